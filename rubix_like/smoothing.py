"""Stars that are wider than a point: width classes, each painted on a layer of its own and convolved once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.blur import blur_layers
from rubix_like.config import RunConfig
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy
from rubix_like.gaussian import gaussian_weights, reach_of

DEPOSIT_SIGMA: float = 0.5
"""Standard deviation (spaxels) along an axis of a star shared among 3 x 3 spaxels (tsc): the narrowest class."""

_RATIO = np.sqrt(2.0)
_WIDEST_OF_FIELD = 1 / 8


class WidthClasses(eqx.Module):
    """Log-spaced widths of Gaussians, between two of which the light of each star is split.

    The split keeps the light and the variance: a star of width s between the classes a and b has the share
    (s^2 - a^2) / (b^2 - a^2) in b; its image is then at most 12 % more peaked than a Gaussian of width s.

    | field | shape | |
    |---|---|---|
    | sigma | (layer,) | spaxels, along an axis, increasing by at most sqrt(2) from that of the deposit itself |
    | sigma_per_length | scalar | width (spaxels) per arcsec of smoothing length |
    | reach | static | spaxels that the widest one spreads light to |
    """

    sigma: Float[Array | ndarray, " layer"]
    sigma_per_length: Float[Array | ndarray, ""]
    reach: int = eqx.field(static=True)

    @property
    def n_layer(self) -> int:
        """Number of classes."""
        return len(self.sigma)

    def shares(
        self, smoothing_length: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle 2"], Float[Array, "particle 2"]]:
        """The two classes of each star and its share in them (sum 1); beyond the ladder's ends, all in the last one."""
        ladder = jnp.asarray(self.sigma) ** 2
        variance = jnp.clip((smoothing_length * self.sigma_per_length) ** 2, ladder[0], ladder[-1])
        above = jnp.searchsorted(ladder, lax.stop_gradient(variance), side="right").astype(jnp.int32)
        low = jnp.clip(above - 1, 0, max(self.n_layer - 2, 0))
        high = jnp.minimum(low + 1, self.n_layer - 1)
        gap = jnp.where(high > low, ladder[high] - ladder[low], jnp.ones_like(variance))
        share = (variance - ladder[low]) / gap
        return jnp.stack([low, high], axis=1), jnp.stack([1 - share, share], axis=1)

    def together(self, layers: Float[Array, "layer y x k"]) -> Float[Array, "inner_y inner_x k"]:
        """The sum of all layers, each convolved to its width, without the margin that is `reach` wide."""
        kernel = jnp.sqrt(jnp.maximum(jnp.asarray(self.sigma) ** 2 - DEPOSIT_SIGMA**2, 0.0))
        weights = jax.vmap(lambda sigma: gaussian_weights(sigma, self.reach))(lax.stop_gradient(kernel))
        return blur_layers(layers, weights)


def plan_widths(config: RunConfig, galaxy: Galaxy | None, arcsec_per_kpc: float) -> tuple[WidthClasses | None, str]:
    """The classes for a galaxy's smoothing lengths, and a note where some are wider than is allowed for.

    Raises ConfigError without smoothing lengths. None for another deposit.
    """
    if config.engine.deposit != "smoothed":
        return None, ""
    if galaxy is None or galaxy.stars.smoothing_length is None:
        raise ConfigError(
            "engine.deposit: expected stars with a smoothing_length (kpc) for 'smoothed', got "
            f"{'no galaxy: pass it to Pipeline.from_config' if galaxy is None else 'none'}; or use nearest, cic or tsc"
        )
    settings, instrument = config.engine.smoothing, config.instrument
    scale = settings.sigma / instrument.pixel_scale
    largest = settings.largest or _WIDEST_OF_FIELD * max(instrument.fov)
    allowed = max(largest / instrument.pixel_scale, DEPOSIT_SIGMA)
    sigma = np.asarray(galaxy.stars.smoothing_length, dtype=np.float64) * arcsec_per_kpc * scale
    weight = np.ones_like(sigma) if galaxy.stars.weight is None else np.asarray(galaxy.stars.weight)
    widest = min(float(np.max(sigma * (weight > 0))), allowed)
    n_step = int(np.ceil(np.log(max(widest / DEPOSIT_SIGMA, 1.0)) / np.log(_RATIO) - 1e-9))
    ladder = np.geomspace(DEPOSIT_SIGMA, max(widest, DEPOSIT_SIGMA), n_step + 1)
    note, wider = "", int(np.sum((sigma > allowed * (1 + 1e-9)) & (weight > 0)))
    if wider:
        note = (
            f"{wider} stars are smoothed with a sigma of {largest:.3g} arcsec instead of up to "
            f"{float(sigma.max()) * instrument.pixel_scale:.3g} arcsec (engine.smoothing.largest)"
        )
    classes = WidthClasses(ladder, np.asarray(scale), reach_of(float(ladder[-1])) if n_step else 0)
    return classes, note

"""What a set of data does to the model's cube on its way to the data: line spread, band or aperture, calibration, sky.

    data = [ scale (1 + sum_j c_j P_j(x)) V(L_s(cube)) ] + sum_t a_t T_t

L_s is the broadening by a wider line spread, V the mean over a band or the sum over an aperture, P_j Legendre's
polynomials, x = -1 to 1 along the set's wavelengths, T_t templates of the sky.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.physics.gaussian import weights_of_variance

Flux = Float[Array, "y x wave"]
"""Of the model's cube."""

Seen = Float[Array, "own_y own_x own_wave"]
"""On the axes of the data."""


class AbstractView(eqx.Module):
    """A linear map from the model's cube to what was observed."""

    @abstractmethod
    def seen(self, flux: Flux) -> Seen:
        """The data's flux."""


class BandView(AbstractView):
    """The mean flux density in a band, of every spaxel: sum_b w_b F_b, with sum(w) = 1."""

    weight: Float[Array | ndarray, " wave"]

    def seen(self, flux: Flux) -> Seen:
        """(y, x, 1)."""
        return jnp.einsum("yxw,w->yx", flux, jnp.asarray(self.weight, flux.dtype))[..., None]


class ApertureView(AbstractView):
    """The light inside an aperture: the sum of spaxels times the share of each that lies inside."""

    share: Float[Array | ndarray, "y x"]

    def seen(self, flux: Flux) -> Seen:
        """(1, 1, wave)."""
        return jnp.einsum("yxw,yx->w", flux, jnp.asarray(self.share, flux.dtype))[None, None]


class Broadening(eqx.Module):
    """A Gaussian that widens the line spread to `scale` times the instrument's.

    The cube's own line spread has the variance `effective`, the instrument's stated one `stated` (bins^2, at every
    bin). The light of each bin is spread by the variance max(scale^2 stated - effective, 0).
    """

    stated: Float[Array | ndarray, " wave"]
    effective: Float[Array | ndarray, " wave"]
    reach: int = eqx.field(static=True)

    def __call__(self, flux: Flux, scale: Float[Array, ""]) -> Flux:
        """The flux of the wider line spread; beyond its ends spectra go on as their last bins."""
        reach, n_wave = self.reach, flux.shape[2]
        stated, effective = (jnp.asarray(own, flux.dtype) for own in (self.stated, self.effective))
        variance = jnp.pad(jnp.maximum(scale**2 * stated - effective, 0.0), reach, mode="edge")
        weights = jax.vmap(lambda own: weights_of_variance(own, reach))(variance)
        longer = jnp.pad(flux, ((0, 0), (0, 0), (reach, reach)), mode="edge")

        def add(total: Array, number: Array) -> tuple[Array, None]:
            """What bins `number - reach` before each one give it."""
            start = 2 * reach - number
            light = lax.dynamic_slice_in_dim(longer, start, n_wave, axis=2)
            own = lax.dynamic_slice_in_dim(weights, start, n_wave, axis=0)
            return total + light * jnp.take(own, number, axis=1)[None, None], None

        return lax.scan(add, jnp.zeros_like(flux), jnp.arange(2 * reach + 1, dtype=jnp.int32))[0]


class Effects(eqx.Module):
    """All of them, for one set; None: there is none of its kind."""

    broadening: Broadening | None = None
    view: AbstractView | None = None
    polynomial: Float[Array | ndarray, "wave degree"] | None = None
    sky: Float[Array | ndarray, "template wave"] | None = None

    def __call__(self, flux: Flux, own: Mapping[str, Any]) -> Seen:
        """The data's flux (1e-20 erg/s/cm2/Angstrom) of a model's cube; `own`: the set's nuisances by key."""
        if self.broadening is not None and "lsf_scale" in own:
            flux = self.broadening(flux, own["lsf_scale"])
        if self.view is not None:
            flux = self.view.seen(flux)
        if "scale" in own:
            flux = flux * own["scale"]
        if self.polynomial is not None:
            continuum = jnp.asarray(self.polynomial, flux.dtype) @ own["polynomial"]
            flux = flux * (1 + continuum)[None, None]
        if self.sky is not None:
            flux = flux + (own["sky"] @ jnp.asarray(self.sky, flux.dtype))[None, None]
        return flux

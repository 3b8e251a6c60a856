"""Stars that are wider than a point: width classes, each painted on a separate layer and convolved once.

Wide classes are painted on coarser cells, so that they take little room and time however wide they are.

A star's width is that before the spaxel's box, as the PSF's is.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config import EngineSettings, InstrumentSettings, PipelineSettings
from rubix_like.errors import ConfigError
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.instrument.blur import refine
from rubix_like.physics.gaussian import gaussian_weights, reach_of
from rubix_like.runtime.notes import Note
from rubix_like.runtime.words import counted

DEPOSIT_SIGMA: float = 0.5
"""Standard deviation (cells) along an axis of a star shared among 3 x 3 cells (tsc): the narrowest class."""

_BOX = 1 / 12

_RATIO = np.sqrt(2.0)
_WIDEST_OF_FIELD = 1 / 8

_LEAST_STEPS = np.sqrt(2.0)
"""Width of a class in cells of its layer, at least: a Gaussian that is shared among its cells and convolved is one
to 1 % of its peak, and even light stays even to 1e-14."""


class LayerGrid(NamedTuple):
    """The grid that neighbouring width classes are painted on: `n_step` times as coarse as the cells, which these
    classes resolve well enough; `reach`: cells that they spread light to, the margin of their layers."""

    n_layer: int
    n_step: int
    reach: int

    @staticmethod
    def of_classes(sigmas: Sequence[float]) -> "tuple[LayerGrid, ...]":
        """The grids of classes of increasing widths (cells)."""

        def coarseness(sigma: float) -> int:
            return 2 ** max(0, int(np.floor(np.log2(sigma / _LEAST_STEPS) + 1e-9)))

        grids = []
        for n_step, classes in itertools.groupby(sigmas, coarseness):
            widths = list(classes)
            grids.append(LayerGrid(len(widths), n_step, reach_of(float(_kernel_sigma(widths[-1], n_step, np)))))
        return tuple(grids)

    def shape(self, inner: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of a layer around so many cells."""
        n_y, n_x = (-(-(size - 1 + 2 * self.reach) // self.n_step) + 1 for size in inner)
        return n_y, n_x


def _kernel_sigma(sigma: Any, n_step: Any, namespace: Any) -> Any:
    """Width of a layer's convolution, less than that of its class by the deposit's."""
    return namespace.sqrt(namespace.maximum(sigma**2 - (DEPOSIT_SIGMA * n_step) ** 2, 0.0))


class WidthClasses(eqx.Module):
    """Log-spaced widths of Gaussians; the light of each star is split between the two nearest.

    The split keeps the light and the variance: a star painted with the width s, between the classes a and b, has the
    share (s^2 - a^2) / (b^2 - a^2) in b; its image is then at most 12 % more peaked than a Gaussian of width s. It is
    painted with its variance and `deposit_variance`.

    | field | shape | |
    |---|---|---|
    | sigma | (layer,) | cells, along an axis, increasing by at most sqrt(2) from that of the deposit itself |
    | sigma_per_length | scalar | width (cells) per arcsec of smoothing length |
    | deposit_variance | scalar | cells^2: the deposit's where the PSF takes it off again, else that of a cell's box |
    | grids | static | those of the layers, which lie one after the other in what is painted |
    | is_limited | static | whether the widest is the largest that `engine.smoothing.largest` allows for |
    """

    sigma: Float[Array | ndarray, " layer"]
    sigma_per_length: Float[Array | ndarray, ""]
    deposit_variance: Float[Array | ndarray, ""]
    grids: tuple[LayerGrid, ...] = eqx.field(static=True)
    is_limited: bool = eqx.field(static=True, default=True)

    @property
    def longest(self) -> Float[Array | ndarray, ""]:
        """Smoothing length (arcsec) of the widest class."""
        variance = self.sigma[-1] ** 2 - self.deposit_variance
        return jnp.sqrt(jnp.maximum(variance, 0)) / self.sigma_per_length

    @property
    def n_layer(self) -> int:
        """Number of classes."""
        return sum(grid.n_layer for grid in self.grids)

    @property
    def reach(self) -> int:
        """Cells that the widest one spreads light to."""
        return max(grid.reach for grid in self.grids)

    def grid_of_each(self) -> list[LayerGrid]:
        """The grid of each class."""
        return [grid for grid in self.grids for _ in range(grid.n_layer)]

    def starts(self, inner: tuple[int, int]) -> Int[ndarray, " end"]:
        """First cell of each layer that is painted around so many rows and columns, and the end of the last one."""
        return np.cumsum([0, *(math.prod(grid.shape(inner)) for grid in self.grid_of_each())])

    def n_product(self, inner: tuple[int, int]) -> int:
        """Products of one image that it takes to put its layers together."""
        shapes = (grid.shape(inner) for grid in self.grid_of_each())
        return sum(inner[0] * n_x * (n_y + inner[1]) for n_y, n_x in shapes)

    def shares(
        self, smoothing_length: Float[Array, " particle"]
    ) -> tuple[Int[Array, "particle 2"], Float[Array, "particle 2"]]:
        """The two classes of each star and its share in them (sum 1); beyond the ladder's ends, all in the last one."""
        ladder = jnp.asarray(self.sigma) ** 2
        painted = (smoothing_length * self.sigma_per_length) ** 2 + self.deposit_variance
        variance = jnp.clip(painted, ladder[0], ladder[-1])
        above = jnp.searchsorted(ladder, lax.stop_gradient(variance), side="right").astype(jnp.int32)
        low = jnp.clip(above - 1, 0, max(self.n_layer - 2, 0))
        high = jnp.minimum(low + 1, self.n_layer - 1)
        gap = jnp.where(high > low, ladder[high] - ladder[low], jnp.ones_like(variance))
        share = (variance - ladder[low]) / gap
        return jnp.stack([low, high], axis=1), jnp.stack([1 - share, share], axis=1)

    def together(self, columns: Float[Array, "cell k"], inner: tuple[int, int]) -> Float[Array, "inner_y inner_x k"]:
        """The sum of all layers, each convolved to its width, without their margins."""
        total, first, cell = jnp.zeros((*inner, columns.shape[1]), columns.dtype), 0, 0
        for grid in self.grids:
            (n_y, n_x), last = grid.shape(inner), first + grid.n_layer
            end = cell + grid.n_layer * n_y * n_x
            layers = columns[cell:end].reshape(grid.n_layer, n_y, n_x, -1)
            sigma = _kernel_sigma(lax.stop_gradient(jnp.asarray(self.sigma)[first:last]), grid.n_step, jnp)
            weights = jax.vmap(gaussian_weights, (0, None))(sigma, grid.reach)
            total = total + refine(layers, weights, grid.n_step, inner)
            first, cell = last, end
        return total


class Lengths(NamedTuple):
    """The smoothing lengths of some stars (kpc); those of parts join.

    `widest`: the largest; `n_wider`: how many are wider than is allowed for; `n_lacking`: how many stars have none.
    """

    widest: float
    n_wider: int
    n_lacking: int

    @staticmethod
    def of(particles: Stars | Gas, allowed: float) -> "Lengths":
        """The lengths of these particles; `allowed`: the largest width that is painted in full (kpc)."""
        if particles.smoothing_length is None:
            return Lengths(0.0, 0, len(particles.position))
        length = np.asarray(particles.smoothing_length, dtype=np.float64)
        return Lengths(float(length.max(initial=0.0)), int(np.sum(length > allowed * (1 + 1e-9))), 0)

    def joined(self, other: "Lengths") -> "Lengths":
        """The lengths of the stars of both."""
        n_wider, n_lacking = self.n_wider + other.n_wider, self.n_lacking + other.n_lacking
        return Lengths(max(self.widest, other.widest), n_wider, n_lacking)


def largest_sigma(engine: EngineSettings, instrument: InstrumentSettings) -> float:
    """Standard deviation (arcsec) beyond which no star is smoothed, as `engine.smoothing.largest` says."""
    return engine.smoothing.largest or _WIDEST_OF_FIELD * max(instrument.fov)


def allowed_length(engine: EngineSettings, instrument: InstrumentSettings, arcsec_per_kpc: float) -> float:
    """The smoothing length (kpc) of the widest stars that are painted as wide as they are."""
    narrowest = DEPOSIT_SIGMA * instrument.pixel_scale
    return max(largest_sigma(engine, instrument), narrowest) / (arcsec_per_kpc * engine.smoothing.sigma)


def plan_widths(
    engine: EngineSettings,
    instrument: InstrumentSettings,
    pipeline: PipelineSettings,
    lengths: Lengths | None,
    arcsec_per_kpc: float,
    cells: int = 1,
) -> tuple[WidthClasses | None, str]:
    """The classes for stars' smoothing lengths, and a note where some are wider than is allowed for.

    `cells`: along the side of a spaxel. Raises ConfigError without smoothing lengths. None for another deposit.
    """
    if engine.deposit != "smoothed":
        return None, ""
    if lengths is None or lengths.n_lacking:
        raise ConfigError(
            "engine.deposit: expected stars with a smoothing_length (kpc) for 'smoothed', and so gas that is read, got "
            f"{'no galaxy: pass it to Pipeline.from_config' if lengths is None else 'none'}; or use nearest, cic or tsc"
        )
    scale = engine.smoothing.sigma * cells / instrument.pixel_scale
    allowed = allowed_length(engine, instrument, arcsec_per_kpc)
    widest = min(lengths.widest, allowed) * arcsec_per_kpc * scale
    is_taken_off = instrument.psf is not None and pipeline.blurs
    deposit_variance = DEPOSIT_SIGMA**2 if is_taken_off else _BOX
    last = max(float(np.hypot(widest, np.sqrt(deposit_variance))), DEPOSIT_SIGMA)
    n_step = int(np.ceil(np.log(last / DEPOSIT_SIGMA) / np.log(_RATIO) - 1e-9))
    ladder = np.geomspace(DEPOSIT_SIGMA, last, n_step + 1)
    note = ""
    if lengths.n_wider:
        widest_sigma = lengths.widest * arcsec_per_kpc * engine.smoothing.sigma
        note = Note(
            "deposit.capped_smoothing",
            f"{counted(lengths.n_wider, 'star is', 'stars are')} smoothed with a sigma of "
            f"{largest_sigma(engine, instrument):.3g} arcsec instead of up to {widest_sigma:.3g} arcsec "
            f"(engine.smoothing.largest)",
        )
    grids = LayerGrid.of_classes(ladder.tolist())
    is_limited = lengths.widest >= allowed
    return WidthClasses(ladder, np.asarray(scale), np.asarray(deposit_variance), grids, is_limited), note

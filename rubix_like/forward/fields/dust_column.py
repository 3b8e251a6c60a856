"""Field `dust_column`: the dust of the gas in front of any position, for what shines to be dimmed by."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config import RunConfig
from rubix_like.config.parameters import declarations
from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.cube.meta import LINE_OF_SIGHT, NO_DUST, SourceCounters
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.fields.field import AbstractField, Parts
from rubix_like.forward.fields.pyramid import InFront, Levels, Pyramid
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import Kind, ReaderWords
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.limits import LARGEST
from rubix_like.galaxy.particles import CELL_RADII, Galaxy, Gas
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.cosmology import arcsec_per_kpc, find_cosmology, hubble

_PC_PER_KPC = 1e3

_WIDEST = 1e6
"""kpc: the width of gas without density, wider than any field."""


class DustColumns(eqx.Module):
    """What the field holds: columns of dust (Msun / pc^2) in front of positions, and those through the whole galaxy.

    `values` (y, x) are the latter on the painted grid: those of a spaxel's cells add up to the spaxel's mean. `counts`
    are those of `DustColumn.count`.
    """

    dust: InFront
    values: Float[Array, "y x"]
    counts: Float[Array, " count"]

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """Dust in Msun / pc^2 in front of positions in the field of view (arcsec, as `Scene` has them).

        It has gradients with respect to the positions, and to the mass, place and width of the gas. Beyond the painted
        grid it is that of the grid's edge. Gas that shines sees half of its own dust in front of it.
        """
        return self.dust.at(position)

    @property
    def counters(self) -> SourceCounters:
        """Those of the gas that has dust."""
        return counters_of(self.counts)


def counters_of(counts: Float[Array, " count"]) -> SourceCounters:
    """The counters that `DustColumn.count` stands for, with the dust (Msun) as amount: of the gas that has dust, what
    lies beside the painted field, and by `LINE_OF_SIGHT` what lies in front of all grids or behind them."""
    (total, outside, far), (mass, mass_outside, mass_far), none = counts[:3], counts[3:6], jnp.zeros_like(counts[0])
    return SourceCounters(
        n_particles=total,
        n_outside=outside,
        n_clamped={LINE_OF_SIGHT: far},
        n_beyond_velocity=none,
        n_overflow=none,
        n_not_finite=counts[6],
        amount_total=mass,
        amount_outside=mass_outside,
        amount_clamped={LINE_OF_SIGHT: mass_far},
    )


class DustColumn(AbstractField):
    """Dust of gas that is cold or forms stars, smoothed by the gas' own lengths, summed along the line of sight.

    Its mass is the gas' `dust_mass` where the galaxy has that, else dust_to_metal x metallicity x mass. It is `shared`
    among the cells of a pyramid of grids by cic, or by tsc, whose derivatives are continuous, where `engine.deposit` is
    tsc or a fit moves particles.

    | field | unit | |
    |---|---|---|
    | dust_to_metal | | mass of dust per mass of metals |
    | cold | K | temperature below which gas has dust (None: all gas has) |
    | torrey | Msun / kpc^3 | 1e10 h^2 of the line above which hot gas has none (None: no hot gas has any) |
    | arcsec_per_kpc | | at the galaxy's distance |
    """

    dust_to_metal: Float[Array | ndarray, ""]
    cold: Float[Array | ndarray, ""] | None
    torrey: Float[Array | ndarray, ""] | None
    arcsec_per_kpc: Float[Array | ndarray, ""]
    cells: int = eqx.field(static=True)
    per_spaxel: int = eqx.field(static=True)
    shared: str = eqx.field(static=True)
    kind: ClassVar[Kind] = "gas"
    words: ClassVar[ReaderWords] = ReaderWords("dust of kind particles", "set dust: null")
    n_count: ClassVar[int] = 7
    map: ClassVar[tuple[str, str] | None] = ("solMass pc-2", "column of dust through the whole galaxy")

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "DustColumn | None":
        """No options; None where the run's dust is not that of its particles."""
        refuse_options(DUST_COLUMN, options)
        dust, observation = setup.config.dust, setup.config.observation
        if not isinstance(dust, ParticleDustSettings):
            return None
        scale = arcsec_per_kpc(setup.luminosity_distance, observation.redshift)
        h = hubble(find_cosmology(observation.cosmology))
        return cls(
            dust_to_metal=np.asarray(dust.dust_to_metal),
            cold=None if dust.cold is None else np.asarray(dust.cold),
            torrey=np.asarray(1e10 * h**2) if dust.hot_dust == "torrey" else None,
            arcsec_per_kpc=np.asarray(scale),
            cells=dust.cells,
            per_spaxel=setup.painting.cells,
            shared="tsc" if setup.painting.deposit == "tsc" or frees_places(setup.config) else "cic",
        )

    def with_parameters(self, parameters: Parameters) -> "DustColumn":
        """With `dust.dust_to_metal`."""
        return eqx.tree_at(lambda field: field.dust_to_metal, self, parameters.dust.dust_to_metal)

    def absent(self, galaxy: Galaxy) -> Gas:
        """Gas without mass in the places of the stars."""
        stars, none = galaxy.stars, jnp.zeros_like(jnp.asarray(galaxy.stars.initial_mass))
        return Gas(
            position=stars.position,
            velocity=stars.velocity,
            mass=none,
            metallicity=none,
            dust_mass=none,
            smoothing_length=none,
            temperature=none,
            weight=none,
        )

    def n_cell(self, grid: SpaxelGrid) -> int:
        """The cells of all grids of the pyramid."""
        return Levels.of(grid.footprint, self.cells).n_cell

    def deposit(self, particles: Gas, scene: Scene, grid: SpaxelGrid) -> Parts:
        """The dust of each gas particle, per square arcsec, in the cells of two rungs of the pyramid."""
        mass = self.mass(particles) * scene.weight
        return self._pyramid(grid).parts(scene.position, self.lengths(particles), mass)

    def count(self, particles: Gas, scene: Scene, grid: SpaxelGrid) -> Float[Array, " count"]:
        """Numbers of gas particles with dust, of those beside the field and beyond its ends, and their dust (Msun);
        then the number of those whose dust or width is no number, or whose dust is negative."""
        mass = lax.stop_gradient(self.mass(particles))
        beside, far = self._pyramid(grid).beyond(lax.stop_gradient(scene.position))
        broken = ~(jnp.isfinite(mass) & (mass >= 0) & jnp.isfinite(lax.stop_gradient(self.lengths(particles))))
        broken = broken if scene.possible is None else broken | ~scene.possible
        dusty = (mass > 0) & ~broken
        chosen = jnp.stack([dusty, dusty & beside, dusty & far], axis=1).astype(scene.weight.dtype)
        weight = lax.stop_gradient(scene.weight)
        dust = jnp.where(broken, jnp.zeros_like(mass), mass) * weight
        numbers = jnp.sum(weight[:, None] * chosen, axis=0), jnp.sum(dust[:, None] * chosen, axis=0)
        return jnp.concatenate([*numbers, jnp.sum(weight * broken.astype(weight.dtype))[None]])

    def mass(self, gas: Gas) -> Float[Array, " particle"]:
        """Dust of each gas particle in Msun."""
        if gas.dust_mass is not None:
            return jnp.asarray(gas.dust_mass)
        if gas.metallicity is None:
            raise ValueError(
                "gas.metallicity: expected metals for dust of kind particles (dust.dust_to_metal), got neither "
                "metallicity nor dust_mass; give one of them, or set dust: null"
            )
        mass = jnp.asarray(self.dust_to_metal) * jnp.asarray(gas.metallicity) * jnp.asarray(gas.mass)
        return mass if self.cold is None else jnp.where(self._is_dusty(gas, self.cold), mass, jnp.zeros_like(mass))

    def _is_dusty(self, gas: Gas, cold: Float[Array | ndarray, ""]) -> Bool[Array, " particle"]:
        """Gas that forms stars, whose temperature is that of an equation of state, and gas that is cold enough."""
        if gas.temperature is None:
            raise ValueError(
                "gas.temperature: expected temperatures (K) to tell gas with dust from gas without (dust.cold), got "
                "none; give temperature or dust_mass, or set dust.cold: null for dust in all gas"
            )
        temperature = jnp.asarray(gas.temperature)
        dusty = temperature < cold
        if self.torrey is not None:
            if gas.density is None:
                raise ValueError(
                    "gas.density: expected densities (Msun / kpc^3) for dust.hot_dust 'torrey', got none; give them, "
                    "or set dust.hot_dust: none"
                )
            dusty |= temperature < 1e6 * (jnp.asarray(gas.density) / self.torrey) ** 0.25
        if gas.star_formation_rate is not None:
            dusty |= jnp.asarray(gas.star_formation_rate) > 0
        return dusty

    def lengths(self, gas: Gas) -> Float[Array, " particle"]:
        """Smoothing lengths in arcsec; without any, twice the radius of a sphere of the cell's volume.

        Gas whose density is 0 is as wide as the widest cells.
        """
        if gas.smoothing_length is not None:
            return jnp.asarray(gas.smoothing_length) * self.arcsec_per_kpc
        if gas.density is None:
            raise ValueError(
                "gas.smoothing_length: expected the widths of the gas (kpc) for dust of kind particles, got neither "
                "smoothing_length nor density; give one of them, or set dust: null"
            )
        density = jnp.asarray(gas.density)
        volume = jnp.asarray(gas.mass) / jnp.where(density > 0, density, jnp.ones_like(density))
        sphere = CELL_RADII**3 * 3 / (4 * np.pi) * volume
        known = (density > 0) & (sphere > 0)
        length = jnp.cbrt(jnp.where(known, sphere, jnp.ones_like(sphere)))
        return jnp.where(known, length, jnp.full_like(length, _WIDEST)) * self.arcsec_per_kpc

    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> DustColumns:
        """Columns in Msun / pc^2, from sums in Msun / arcsec^2, and the counts."""
        area = (self.arcsec_per_kpc / _PC_PER_KPC) ** 2
        dust = self._pyramid(grid).in_front(sums[: -self.n_count] * area)
        reach = 0 if grid.widths is None else grid.widths.reach
        painted = grid.footprint.within(reach)
        return DustColumns(dust, dust.through(painted) / self.per_spaxel**2, sums[-self.n_count :])

    def _pyramid(self, grid: SpaxelGrid) -> Pyramid:
        return Pyramid.over(grid.footprint, self.cells, self.shared)


def check_dust(counters: SourceCounters) -> None:
    """Warn where no gas has dust; raise ValueError for dust that is no number. It does nothing while tracing."""
    if isinstance(counters.n_not_finite, Tracer):
        return
    counters = jax.device_get(counters)
    if int(counters.n_not_finite):
        raise ValueError(
            f"galaxy.gas: expected finite masses, metallicities and widths, masses from 0 to {LARGEST['mass']:g} Msun "
            f"and fractions from 0 to 1, for its dust, got {int(counters.n_not_finite)} particles with others; "
            f"rubix_like.validate(galaxy) names them"
        )
    if not int(counters.n_particles):
        logging.getLogger("rubix_like").warning("dust of kind particles: none but that of birth clouds (%s)", NO_DUST)


def frees_places(config: RunConfig) -> bool:
    """Whether a run's fit may move particles, on the sky or along the line of sight."""
    free = () if config.fit is None else config.fit.free
    declared = declarations(RunConfig)
    return any(
        name.startswith(("galaxy.", "stars.")) or (name in declared and declared[name].mark.moves) for name in free
    )

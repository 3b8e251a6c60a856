"""Fields of surface density, and the cover of an active nucleus by gas."""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.nebular import NUCLEUS
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.fields.field import AbstractField, PaintedField, Parts, painted_field, spread
from rubix_like.forward.products.star_maps import MassNow
from rubix_like.forward.sources.source import Kind, ReaderWords, agn_settings, covered
from rubix_like.forward.sources.stars import star_coordinates
from rubix_like.forward.stages.base import refuse_options
from rubix_like.galaxy.particles import Stars
from rubix_like.galaxy.scene import Scene


class SurfaceDensity(AbstractField):
    """Surface density of stars: their mass now per area of the sky's plane at the galaxy's distance, Msun / kpc^2.

    It is that of all stars, whatever dims their light. `spaxel_area` is in kpc^2.
    """

    mass: MassNow
    spaxel_area: Float[Array | np.ndarray, ""]
    cells: int = eqx.field(static=True)
    kind: ClassVar[Kind] = "stars"
    map: ClassVar[tuple[str, str] | None] = ("solMass kpc-2", "surface density of stars, mass now")

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "SurfaceDensity":
        """No options."""
        refuse_options("surface_density", options)
        side = setup.instrument.pixel_scale / setup.arcsec_per_kpc
        return cls(MassNow.build(setup.library), np.asarray(side**2), setup.painting.cells)

    def n_cell(self, grid: SpaxelGrid) -> int:
        """The number of spaxels of the painted grid."""
        return grid.n_spaxel

    def deposit(self, particles: Stars, scene: Scene, grid: SpaxelGrid) -> Parts:
        """The mass of each star over the area of a spaxel, on the cells that its light falls on."""
        born = jnp.asarray(particles.initial_mass)
        mass = self.mass.of(particles, born, star_coordinates(particles)) * scene.weight
        return spread(mass / self.spaxel_area, scene, grid)

    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> PaintedField:
        """Msun / kpc^2 on the painted grid."""
        return painted_field(sums, grid, self.cells)


class Nucleus(AbstractField):
    """The sum, over all particles of a kind, of their parts of the photons of the nucleus in `nebular.agn`.

    The source `agn` reads it, so that the parts add up to all photons; it is one number, without a map. Gas within
    `radius` (kpc) has a part by what it covers of the nucleus' sky (`covered`); without a radius each star paints an
    equal part of a point in the centre.
    """

    radius: Float[Array | ndarray, ""] | None
    kind: Kind = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    words: ClassVar[ReaderWords] = ReaderWords(
        "nebular.agn.radius, within which gas absorbs the nucleus' photons", "set nebular.agn.radius: 0, a point"
    )

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Nucleus":
        """The field of the section `nebular.agn`; no options. Raises ConfigError for a run without it."""
        refuse_options(NUCLEUS, options)
        radius = agn_settings(setup).radius
        return cls(radius=np.asarray(radius), kind="gas") if radius else cls(radius=None, kind="stars")

    def n_cell(self, grid: SpaxelGrid) -> int:  # noqa: ARG002
        """One."""
        return 1

    def deposit(self, particles: Any, scene: Scene, grid: SpaxelGrid) -> Parts:  # noqa: ARG002
        """The part of each particle, in any unit, in the only cell."""
        every = jnp.ones_like(jnp.asarray(particles.position)[:, 0])
        part = (every if self.radius is None else covered(particles, jnp.asarray(self.radius))) * scene.weight
        return jnp.zeros((len(part), 1), jnp.int32), part[:, None]

    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> Float[Array, ""]:  # noqa: ARG002
        """The sum."""
        return sums[0]

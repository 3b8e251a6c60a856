"""Fields of surface density, and the cover of an active nucleus by gas."""

from abc import abstractmethod
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
from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.galaxy.scene import Scene
from rubix_like.physics.cosmology import arcsec_per_kpc


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
        scale = arcsec_per_kpc(setup.luminosity_distance, setup.config.observation.redshift)
        side = setup.instrument.pixel_scale / float(scale)
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


class AbstractNucleus(AbstractField):
    """The sum, over all particles of a kind, of their parts of the photons of the nucleus in `nebular.agn`.

    The source `agn` reads it, so that the parts add up to all photons; it is one number, without a map.
    """

    words: ClassVar[ReaderWords] = ReaderWords(
        "nebular.agn.radius, within which gas absorbs the nucleus' photons", "set nebular.agn.radius: 0, a point"
    )
    map: ClassVar[tuple[str, str] | None] = None

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractNucleus":
        """That of the section; no options. Raises ConfigError for a run without `nebular.agn`."""
        refuse_options(NUCLEUS, options)
        radius = agn_settings(setup).radius
        return NuclearGas(np.asarray(radius)) if radius else NuclearPoint()

    @abstractmethod
    def part(self, particles: Any) -> Float[Array, " particle"]:
        """The part of each particle, in any unit."""

    def n_cell(self, grid: SpaxelGrid) -> int:  # noqa: ARG002
        """One."""
        return 1

    def deposit(self, particles: Any, scene: Scene, grid: SpaxelGrid) -> Parts:  # noqa: ARG002
        """The part of each particle, in the only cell."""
        part = self.part(particles) * scene.weight
        return jnp.zeros((len(part), 1), jnp.int32), part[:, None]

    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> Float[Array, ""]:  # noqa: ARG002
        """The sum."""
        return sums[0]


class NuclearGas(AbstractNucleus):
    """Of the gas within `radius` (kpc): what it covers of the nucleus' sky (`covered`)."""

    radius: Float[Array | ndarray, ""]
    kind: ClassVar[Kind] = "gas"

    def part(self, particles: Gas) -> Float[Array, " particle"]:
        """By mass and distance."""
        return covered(particles, jnp.asarray(self.radius))


class NuclearPoint(AbstractNucleus):
    """Of all stars alike: each paints an equal part of a point in the centre."""

    kind: ClassVar[Kind] = "stars"

    def part(self, particles: Any) -> Float[Array, " particle"]:
        """One for each."""
        return jnp.ones_like(jnp.asarray(particles.position)[:, 0])

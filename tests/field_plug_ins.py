"""A field, and stages and a source that read fields, as another package would announce them by entry points."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from installed_package import write_dist_info

from rubix_like.extend import (
    AbstractCubeStage,
    AbstractField,
    AbstractParticleMaps,
    AbstractSceneStage,
    AbstractSource,
    MapLabel,
    StageReport,
    build_painter,
    painted_field,
    plan_source,
    refuse_options,
    spread,
    to_scene,
)

ENTRY_POINTS = """[rubix_like.fields]
gas_mass = field_plug_ins:GasMass
[rubix_like.products]
metals = field_plug_ins:Metals
[rubix_like.scene_stages]
dim = field_plug_ins:Dim
fade = field_plug_ins:Fade
[rubix_like.paint_stages]
shaded = field_plug_ins:ShadedStars
[rubix_like.cube_stages]
lift = field_plug_ins:Lift
"""


def announce(folder):
    """Install the package in a folder on Python's path."""
    write_dist_info(folder, "field-plug-ins", ENTRY_POINTS)


class GasMass(AbstractField):
    """Mass of gas per spaxel, Msun."""

    cells: int = eqx.field(static=True)
    kind: ClassVar = "gas"
    map: ClassVar = ("solMass", "mass of gas")

    @classmethod
    def build(cls, setup, options):
        refuse_options("gas_mass", options)
        return cls(setup.painting.cells)

    def n_cell(self, grid):
        return grid.n_spaxel

    def deposit(self, particles, scene, grid):
        return spread(particles.mass * scene.weight, scene, grid)

    def finish(self, sums, grid):
        return painted_field(sums, grid, self.cells)


class Metals(AbstractParticleMaps):
    """Mass of metals in gas, in units of so many Msun, and the velocity of this mass."""

    unit: np.ndarray
    kind: ClassVar = "gas"
    labels: ClassVar = (MapLabel("metal_mass", "solMass", "mass of metals"), MapLabel("metal_v", "km s-1", "velocity"))

    @classmethod
    def build(cls, setup, options):
        refuse_options("metals", options, ("unit",), "products.extra: product")
        return cls(np.asarray(float(options["unit"])))

    def columns(self, particles, scene, parameters):
        mass = particles.mass * particles.metallicity / self.unit
        return {"mass": mass, "momentum": mass * scene.v_los}

    def make(self, summed):
        mass = summed.images["mass"]
        return {"metal_mass": mass, "metal_v": summed.mean(summed.images["momentum"], mass)}


class Dim(AbstractSceneStage):
    """Dims particles by exp(-strength x the field `by` where they are seen)."""

    strength: np.ndarray
    by: str = eqx.field(static=True)

    @property
    def reads(self):
        return (self.by,)

    @classmethod
    def build(cls, setup, options):
        refuse_options("dim", options, ("by", "strength"))
        return cls(np.asarray(float(options["strength"])), str(options["by"]))

    def __call__(self, scene, parameters):
        field = scene.fields[self.by].at(scene.position)
        return eqx.tree_at(lambda s: s.amount, scene, scene.amount * jnp.exp(-self.strength * field))


class Fade(AbstractSceneStage):
    """Dims stars by their age and metallicity; reads no field."""

    @classmethod
    def build(cls, setup, options):
        refuse_options("fade", options)
        return cls()

    def __call__(self, scene, parameters):
        left = jnp.exp(-scene.coordinates["age"] + scene.coordinates["metallicity"])
        return eqx.tree_at(lambda s: s.amount, scene, scene.amount * left)


class ShadedStars(AbstractSource):
    """Stars behind the gas: each shines exp(-strength x mass of gas in its spaxel) of its light."""

    painter: object
    strength: np.ndarray
    kind: ClassVar = "stars"
    reads: ClassVar = ("gas_mass",)

    @classmethod
    def plan(cls, setup, options):
        refuse_options("shaded", options, ("strength",))
        return plan_source(setup, setup.library.templates(), cls.kind)

    @classmethod
    def build(cls, setup, plan, options):
        return cls(build_painter(plan, setup), np.asarray(float(options["strength"])))

    def scene(self, particles, alignment, arcsec_per_kpc):
        coordinates = {"metallicity": jnp.log10(particles.metallicity), "age": particles.log_age}
        return to_scene(particles, particles.initial_mass, coordinates, alignment, arcsec_per_kpc)

    def shine(self, scene, parameters):
        left = jnp.exp(-self.strength * scene.fields["gas_mass"].at(scene.position))
        return eqx.tree_at(lambda s: s.amount, scene, scene.amount * left)


class Lift(AbstractCubeStage):
    """Multiplies spectra by 1 + strength x surface density in their spaxel."""

    strength: np.ndarray
    margin: int = eqx.field(static=True, default=0)
    reads: ClassVar = ("surface_density",)

    @classmethod
    def build(cls, setup, options):
        refuse_options("lift", options, ("strength",))
        return cls(np.asarray(float(options["strength"])))

    def spatial(self, parameters):
        return None

    def report(self):
        return StageReport()

    def __call__(self, cube, parameters, key):
        density = cube.fields["surface_density"].on(cube.footprint)
        return eqx.tree_at(lambda c: c.flux, cube, cube.flux * (1 + self.strength * density[:, None]))

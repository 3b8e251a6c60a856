"""Maps of the gas itself, not of its light: masses, star formation, motions and metals."""

from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from rubix_like.engine.setup import Setup
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.product import AbstractParticleMaps, Summed, root
from rubix_like.forward.sources.source import Kind
from rubix_like.galaxy.particles import Gas
from rubix_like.galaxy.scene import Scene

MEANS: tuple[str, ...] = ("velocity", "velocity2", "metallicity")
"""Quantities summed with the mass of gas as weight: km/s from the reference, its square, mass fraction; the last one
where the gas has it."""


class GasMaps(AbstractParticleMaps):
    """Maps of the mass of gas and, where the gas states them, of its star formation rate, hydrogen and metals."""

    kind: ClassVar[Kind | None] = "gas"

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "GasMaps":  # noqa: ARG003
        """Build it; there are no options."""
        return cls()

    def columns(self, particles: Gas, scene: Scene, parameters: Parameters) -> dict[str, Float[Array, " particle"]]:
        """The amounts of each particle, then its mass times each of `MEANS`."""
        amounts, velocity = amounts_of(particles), scene.v_los - parameters.observation.velocity_offset
        metals = [] if particles.metallicity is None else [jnp.asarray(particles.metallicity)]
        means = zip(MEANS, (velocity, velocity**2, *metals), strict=False)
        return amounts | {name: amounts["gas_mass"] * values for name, values in means}

    def make(self, summed: Summed) -> dict[str, Any]:
        """Amounts as they are; means weighted by mass."""
        images = summed.images
        means = {name: summed.mean(images[name], images["gas_mass"]) for name in MEANS if name in images}
        moments = {"v_gas": means["velocity"] + summed.reference}
        moments["sigma_gas"] = root(means["velocity2"] - means["velocity"] ** 2)
        if "metallicity" in means:
            moments["metallicity_gas"] = means["metallicity"]
        return {name: image for name, image in images.items() if name not in MEANS} | moments


def amounts_of(gas: Gas) -> dict[str, Float[Array, " particle"]]:
    """The quantities that maps add up, by the map's name: mass (Msun) and, where the gas has them, star formation rate
    (Msun/yr) and masses of neutral and molecular hydrogen (Msun)."""
    mass, rate = jnp.asarray(gas.mass), gas.star_formation_rate
    fractions = {"hi_mass": gas.hi_fraction, "h2_mass": gas.h2_fraction}
    found = {"gas_mass": mass} | ({} if rate is None else {"star_formation_rate": jnp.asarray(rate)})
    return found | {name: mass * jnp.asarray(own) for name, own in fractions.items() if own is not None}

"""Sums over gas for its maps: mass, motions, metals, star formation, hydrogen; they need no light."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from rubix_like.engine.kernels.kernel import AbstractDepositKernel
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.products.sums import Placed, sum_columns
from rubix_like.forward.sources.source import Kind, ReaderWords
from rubix_like.galaxy.particles import Gas
from rubix_like.galaxy.scene import Scene

MEANS: tuple[str, ...] = ("velocity", "velocity2", "metallicity")
"""Quantities summed with the mass of gas as weight: km/s from the reference, its square, mass fraction; the last one
where the gas has it."""


class GasSums(eqx.Module):
    """Sums over gas per spaxel, one column for each of `names`: amounts (`amounts_of`), then `MEANS`."""

    values: Float[Array, "spaxel column"]
    names: tuple[str, ...] = eqx.field(static=True)


class GasTables(eqx.Module):
    """Tables for the sums over gas; the sums are of the gas itself, not of its light."""

    kernel: AbstractDepositKernel
    kind: ClassVar[Kind] = "gas"
    words: ClassVar[ReaderWords] = ReaderWords("the maps of products.gas", "set products.gas: false")

    def paint(
        self,
        look: Callable[[Gas], Scene],
        particles: Gas,
        grid: SpaxelGrid,
        chunk: int,
        reference: Float[Array, ""],
    ) -> GasSums:
        """The sums of all gas at hand, kept in 64 bits, as many spaxels at a time as there is room for.

        Velocities are relative to `reference` (km/s). Raises ValueError for gas that is to be smoothed and has no
        smoothing length.
        """
        means = MEANS if particles.metallicity is not None else MEANS[:-1]
        names = (*amounts_of(particles), *means)

        def contribute(own: Gas) -> tuple[Placed, Float[Array, "particle column"]]:
            scene = look(own)
            return grid.weights(scene.position, scene.smoothing_length, self.kind), gas_columns(own, scene, reference)

        dtype = jnp.result_type(grid.footprint.pixel_scale)
        return GasSums(sum_columns(contribute, particles, grid, self.kernel, len(names), chunk, dtype), names)


def amounts_of(gas: Gas) -> dict[str, Float[Array, " particle"]]:
    """The quantities that maps add up, by the map's name: mass (Msun) and, where the gas has them, star formation rate
    (Msun/yr) and masses of neutral and molecular hydrogen (Msun)."""
    mass, rate = jnp.asarray(gas.mass), gas.star_formation_rate
    fractions = {"hi_mass": gas.hi_fraction, "h2_mass": gas.h2_fraction}
    found = {"gas_mass": mass} | ({} if rate is None else {"star_formation_rate": jnp.asarray(rate)})
    return found | {name: mass * jnp.asarray(own) for name, own in fractions.items() if own is not None}


def gas_columns(gas: Gas, scene: Scene, reference: Float[Array, ""]) -> Float[Array, "particle column"]:
    """The columns of each particle: its amounts, then its mass times each of `MEANS`."""
    amounts = {name: own * scene.amount for name, own in amounts_of(gas).items()}
    mass, velocity = amounts["gas_mass"], scene.v_los - reference
    metals = [] if gas.metallicity is None else [jnp.asarray(gas.metallicity)]
    weighted = (mass * own for own in (velocity, velocity**2, *metals))
    return jnp.stack([*amounts.values(), *weighted], axis=1)

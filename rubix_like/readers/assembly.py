"""From tables of converted columns to the stars and gas of a galaxy, in its own frame."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy import Gas, Stars
from rubix_like.readers.frame import Frame
from rubix_like.readers.gas import PRIMORDIAL_HYDROGEN, gas_temperature
from rubix_like.readers.particles import Table

Leaf = Float[Array, "..."]


def make_stars(table: Table, frame: Frame) -> Stars:
    """Stars from the columns position, velocity, mass, log_age, metallicity and, where there are, the others.

    Without `initial_mass` the current mass stands there, to be corrected by the SSP library's surviving fraction.
    """
    position, velocity = frame.apply(table)
    return Stars(
        position=_leaf(position),
        velocity=_leaf(velocity),
        initial_mass=_leaf(table.get("initial_mass", table["mass"])),
        log_age=_leaf(table["log_age"]),
        metallicity=_leaf(table["metallicity"]),
        mass=_leaf(table["mass"]),
        smoothing_length=_optional(table, "smoothing_length"),
    )


def make_gas(table: Table, frame: Frame) -> Gas:
    """Gas from the columns position, velocity, mass, metallicity and, where there are, the others.

    The temperature is the file's, else from internal energy, electron abundance and hydrogen (0.76 without).
    """
    position, velocity = frame.apply(table)
    temperature = table.get("temperature")
    if temperature is None and {"internal_energy", "electron_abundance"} <= set(table):
        hydrogen = table.get("hydrogen_fraction", PRIMORDIAL_HYDROGEN)
        temperature = gas_temperature(table["internal_energy"], table["electron_abundance"], hydrogen)
    return Gas(
        position=_leaf(position),
        velocity=_leaf(velocity),
        mass=_leaf(table["mass"]),
        metallicity=_leaf(table["metallicity"]),
        temperature=None if temperature is None else _leaf(temperature),
        density=_optional(table, "density"),
        internal_energy=_optional(table, "internal_energy"),
        electron_abundance=_optional(table, "electron_abundance"),
        star_formation_rate=_optional(table, "star_formation_rate"),
        hydrogen_fraction=_optional(table, "hydrogen_fraction"),
        oxygen_fraction=_optional(table, "oxygen_fraction"),
        smoothing_length=_optional(table, "smoothing_length"),
    )


def _optional(table: Table, name: str) -> Leaf | None:
    return _leaf(table[name]) if name in table else None


def _leaf(values: Float[ndarray, "..."]) -> Leaf:
    return jnp.asarray(values, dtype=jax.dtypes.canonicalize_dtype(float))

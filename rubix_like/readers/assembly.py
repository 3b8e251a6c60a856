"""Assemble tables of converted columns into the stars and gas of a galaxy, in its own frame."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.particles import Gas, Stars
from rubix_like.readers.fields.columns import Table
from rubix_like.readers.galaxy_frame import GalaxyFrame

Leaf = Float[Array, "..."]


def make_stars(table: Table, frame: GalaxyFrame) -> Stars:
    """Stars from the columns position, velocity, mass, log_age, metallicity and, where there are, the others.

    Where there is no `initial_mass` it is NaN, to be filled in by the SSP library's surviving fraction.
    """
    position, velocity = frame.apply(table)
    return Stars(
        position=_leaf(position),
        velocity=_leaf(velocity),
        initial_mass=_leaf(table.get("initial_mass", np.full_like(table["mass"], np.nan))),
        log_age=_leaf(table["log_age"]),
        metallicity=_leaf(table["metallicity"]),
        mass=_leaf(table["mass"]),
        smoothing_length=_optional(table, "smoothing_length"),
    )


def make_gas(table: Table, frame: GalaxyFrame) -> Gas:
    """Gas from the columns position, velocity, mass, metallicity and, where there are, the others."""
    position, velocity = frame.apply(table)
    return Gas(
        position=_leaf(position),
        velocity=_leaf(velocity),
        mass=_leaf(table["mass"]),
        metallicity=_leaf(table["metallicity"]),
        temperature=_optional(table, "temperature"),
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

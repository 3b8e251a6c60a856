"""The mass of stars now: the galaxy's own, or what the library says is left of the mass at birth."""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.galaxy.particles import Stars
from rubix_like.physics.templates import TemplateAxes, weighted_rows
from rubix_like.ssp import SSPLibrary


class MassNow(eqx.Module):
    """Mass now, also of stars that do not state it; `surviving`: mass left per mass at birth, None if not known."""

    axes: TemplateAxes
    surviving: Float[Array | ndarray, "template 1"] | None

    @classmethod
    def build(cls, library: SSPLibrary) -> "MassNow":
        """Build it with the surviving fractions of a library."""
        surviving = library.surviving_fraction
        return cls(library.templates().axes, None if surviving is None else np.asarray(surviving).reshape(-1, 1))

    def of(
        self, stars: Stars, born: Float[Array, " particle"], coordinates: Mapping[str, Float[Array, " particle"]]
    ) -> Float[Array, " particle"]:
        """Msun; where stars do not state it, from their mass at birth `born` and their coordinates on the axes."""
        if stars.mass is not None:
            return jnp.asarray(stars.mass)
        if self.surviving is None:
            return born
        corners = self.axes.corners(tuple(coordinates[name] for name in self.axes.names))
        return born * weighted_rows(jnp.asarray(self.surviving), corners)[:, 0]

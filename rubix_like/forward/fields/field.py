"""What a field is: a sum over all particles of a kind that is whole before any light is painted."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid, field_of
from rubix_like.forward.sources.source import Kind
from rubix_like.galaxy.scene import Scene
from rubix_like.runtime.mesh.accumulate import accumulate
from rubix_like.runtime.mesh.mesh import varying

Parts = tuple[Int[Array, "particle part"], Float[Array, "particle part"]]
"""The cells to which each particle adds something, and how much; cells beyond the last one get nothing."""


class AbstractField(eqx.Module):
    """A sum over all particles of a kind, which stages, sources and maps may read.

    Every device sums its own particles, chunk by chunk and in 64 bits, then one collective adds up the sums of all
    fields. What `finish` makes of them is found under the field's name, in `Scene.fields` and `PaintedCube.fields`.
    `map` is the unit and the description of a map of the field, for a field that finishes as a `PaintedField`; None
    where there is no map.
    """

    kind: ClassVar[Kind]
    map: ClassVar[tuple[str, str] | None]

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractField":
        """The field for one run; raises ConfigError for options that it does not know."""

    @abstractmethod
    def n_cell(self, grid: SpaxelGrid) -> int:
        """Number of cells that it sums in; those of the painted grid are `grid.n_spaxel`."""

    @abstractmethod
    def deposit(self, particles: Any, scene: Scene, grid: SpaxelGrid) -> Parts:
        """What some particles add to which cells: linear in particles (padding has `scene.weight` 0).

        `scene` is how they are seen after the scene stages that read no field; its amount is the weight.
        """

    @abstractmethod
    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> Any:
        """What stages read, a pytree, from the sums over all particles."""


class PaintedField(eqx.Module):
    """A field on the painted grid: `values` (y, x) are what each cell holds, those of a spaxel's cells add up.

    `cell` is the side of a cell in arcsec, `cells` how many are along the side of a spaxel, `deposit` how particles
    were shared among cells, and how `at` interpolates.
    """

    values: Float[Array, "y x"]
    cell: Float[Array | ndarray, ""]
    cells: int = eqx.field(static=True)
    deposit: str = eqx.field(static=True)

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """The field at positions in the field of view (arcsec), per spaxel; 0 beyond the painted grid.

        It has a gradient with respect to the positions where the deposit has one.
        """
        grid = SpaxelGrid(self.cell, *self.values.shape, deposit=self.deposit)
        cell, share = grid.weights(position)
        values = self.values.reshape(-1).at[cell].get(mode="fill", fill_value=0)
        return self.cells**2 * jnp.sum(share * values, axis=1)

    def image(self, n_y: int, n_x: int) -> Float[Array, "{n_y} {n_x}"]:
        """The field in the n_y x n_x spaxels in the middle of the painted grid, before any PSF."""
        return field_of(self.values[:, :, None], n_y, n_x, self.cells)[:, :, 0]


def spread(amount: Float[Array, " particle"], scene: Scene, grid: SpaxelGrid) -> Parts:
    """The parts of an amount of each particle on the painted grid, shared among cells as its light is."""
    cell, share = grid.weights(scene.position, scene.smoothing_length)
    return cell, share * amount[:, None]


def painted_field(sums: Float[Array, " cell"], grid: SpaxelGrid, cells: int) -> PaintedField:
    """The field of sums over `spread` particles; `cells` along the side of a spaxel (`Setup.painting.cells`)."""
    deposit = grid.deposit if grid.widths is None else "tsc"
    return PaintedField(grid.images(sums[:, None])[:, :, 0], jnp.asarray(grid.pixel_scale), cells, deposit)


def sum_field(
    field: AbstractField, look: Callable[[Any], Scene], particles: Any, grid: SpaxelGrid, chunk: int
) -> Float[Array, " cell"]:
    """The sums of one field over the particles at hand, kept in 64 bits, returned in the grid's precision."""

    def add(total: Array, parts: Parts) -> Array:
        cell, amount = parts
        return total.at[cell].add(amount.astype(total.dtype), mode="drop")

    dtype = jnp.result_type(grid.pixel_scale)
    with jax.enable_x64(True):
        start = varying(jnp.zeros(field.n_cell(grid), jnp.float64), particles)
        sums = accumulate(
            lambda own: field.deposit(own, look(own), grid), add, start, particles, chunk, two_levels=False
        )
        return sums.astype(dtype)

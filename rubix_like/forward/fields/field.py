"""Fields: sums over all particles of a kind that are whole before any light is painted."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from rubix_like.arguments import check_returned_shapes, named_arguments, returned
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors, sum_deposits
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid, field_of
from rubix_like.errors import ConfigError, expect_count
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import Kind, ReaderWords
from rubix_like.galaxy.particles import Galaxy
from rubix_like.galaxy.scene import Scene

Parts = tuple[Int[Array, "particle part"], Float[Array, "particle part"]]
"""The cells to which each particle adds something, and how much; cells beyond the last one get nothing."""


class AbstractField(eqx.Module):
    """A sum over all particles of a kind, which stages, sources and maps may read.

    Every device sums its particles, chunk by chunk and in 64 bits, then one collective adds up the sums of all
    fields. What `finish` makes of them is found under the field's name, in `Scene.fields` and `PaintedCube.fields`.
    `map` is the unit and the description of a map of the field, for a field that finishes as a `PaintedField`; None
    where there is no map.
    """

    kind: ClassVar[Kind]
    words: ClassVar[ReaderWords] = ReaderWords("a field of the pipeline", "take a pipeline without that field")
    map: ClassVar[tuple[str, str] | None] = None
    n_count: ClassVar[int] = 0

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractField | None":
        """The field for one run, None where the run's settings leave it without use: it is then left out.

        Raises ConfigError for options that it does not know.
        """

    def with_parameters(self, parameters: Parameters) -> "AbstractField":  # noqa: ARG002
        """The field with these parameters put in, such as how much dust metals make; itself where it has none."""
        return self

    def on_grid(self, grid: SpaxelGrid) -> "AbstractField":  # noqa: ARG002
        """The field with arrays that follow from the painted grid, made once on the host, so that the compiled program
        takes them as arguments; itself where it has none."""
        return self

    def absent(self, galaxy: Galaxy) -> Any:  # noqa: ARG002
        """Particles that stand for those it reads in a galaxy without any; None where such a galaxy is refused."""
        return None

    @abstractmethod
    def n_cell(self, grid: SpaxelGrid) -> int:
        """Number of cells that it sums in; those of the painted grid are `grid.n_spaxel`."""

    @abstractmethod
    def deposit(self, particles: Any, scene: Scene, grid: SpaxelGrid) -> Parts:
        """The cells that some particles add to, and the amounts: linear in particles (padding has `scene.weight` 0).

        `scene` is how they are seen after the scene stages that read no field; its amount is the weight.
        """

    def count(self, particles: Any, scene: Scene, grid: SpaxelGrid) -> Float[Array, " count"]:
        """`n_count` numbers that are summed beside the cells, such as how many particles lie beyond them.

        A field that finishes as something `Counted` has its counters among the cube's `source_counters`.
        """
        raise NotImplementedError(f"{type(self).__name__}: n_count is {self.n_count}, but count is not defined")

    @abstractmethod
    def finish(self, sums: Float[Array, " cell"], grid: SpaxelGrid) -> Any:
        """The field that stages read, a pytree, of the sums over all particles: of the cells, then those of `count`."""


@runtime_checkable
class Counted(Protocol):
    """A finished field that knows how many particles it could not treat in full."""

    @property
    def counters(self) -> SourceCounters:
        """The counts of its particles; amounts are what it sums up."""
        ...


@runtime_checkable
class HasValues(Protocol):
    """A finished field that a map can be made of."""

    @property
    def values(self) -> Float[Array, "y x"]:
        """The value of each painted cell."""
        ...


class PaintedField(eqx.Module):
    """A field on the painted grid: `values` (y, x) are what each cell holds, those of a spaxel's cells add up.

    `footprint` is that of the cells, `cells` how many are along the side of a spaxel, `deposit` how particles were
    shared among cells, and how `at` interpolates.
    """

    values: Float[Array, "y x"]
    footprint: Footprint
    cells: int = eqx.field(static=True)
    deposit: str = eqx.field(static=True)

    def at(self, position: Float[Array, "particle 3"]) -> Float[Array, " particle"]:
        """The field at positions in the field of view (arcsec), per spaxel; 0 beyond the painted grid.

        It has a gradient with respect to the positions where the deposit has one.
        """
        grid = SpaxelGrid(self.footprint, self.deposit)
        cell, share = grid.weights(position)
        values = self.footprint.elements(self.values).at[cell].get(mode="fill", fill_value=0)
        return self.cells**2 * jnp.sum(share * values, axis=1)

    def on(self, field: Footprint) -> Float[Array, " element"]:
        """The field in the spaxels of a footprint in the middle of the painted grid, before any PSF."""
        return field.elements(field_of(self.values[:, :, None], field, self.cells))[:, 0]


@named_arguments
def spread(amount: Float[Array, " particle"], scene: Scene, grid: SpaxelGrid) -> Parts:
    """The parts of an amount of each particle on the painted grid, shared among cells as its light is."""
    cell, share = grid.weights(scene.position, scene.smoothing_length)
    return cell, share * amount[:, None]


@named_arguments
def painted_field(sums: Float[Array, " cell"], grid: SpaxelGrid, cells: int) -> PaintedField:
    """The field of sums over `spread` particles; `cells` along the side of a spaxel (`Setup.painting.cells`)."""
    deposit = grid.deposit if grid.widths is None else "tsc"
    values = grid.images(sums[:, None])[:, :, 0]
    return PaintedField(values, Footprint.of(values.shape, grid.footprint.pixel_scale), cells, deposit)


def sum_field(
    field: AbstractField,
    look: Callable[[Any], Scene],
    particles: Any,
    grid: SpaxelGrid,
    chunk: int,
    kernel: AbstractDepositKernel,
) -> Float[Array, " cell"]:
    """The sums of one field over the particles at hand, kept in 64 bits, returned in the grid's precision: those of
    the cells, then what it counts."""
    n_cell = field.n_cell(grid)
    expect_count(n_cell, f"{type(field).__name__}: `n_cell`", 0)
    beyond = n_cell + field.n_count

    def contribute(part: Any) -> tuple[tuple[Factors], Any]:
        scene = look(part)
        call = f"{type(field).__name__}: `deposit`"
        found = field.deposit(part, scene, grid)
        cell, amount = returned(found, [jax.Array, jax.Array], call, "a pair (cells, amounts)")
        if not jnp.issubdtype(cell.dtype, jnp.integer):
            raise ConfigError(f"{call} must return cells as whole numbers, got {cell.dtype}; see docs/how-to-extend.md")
        check_returned_shapes(call, {"amounts": (amount, cell.shape)})
        row = jnp.where((cell >= 0) & (cell < n_cell), cell, beyond)
        one = jnp.ones((len(row), 1), amount.dtype)
        return (Factors(row, amount, one, one),), field.count(part, scene, grid) if field.n_count else ()

    dtype = jnp.result_type(grid.footprint.pixel_scale)
    counts = jnp.zeros(field.n_count) if field.n_count else ()
    (sums,), counted = sum_deposits(contribute, particles, kernel, ((beyond + 1, 1),), counts, chunk, dtype)
    cells = sums[:beyond, 0]
    return cells.at[n_cell:].set(counted) if field.n_count else cells  # in place: a concatenation takes a second

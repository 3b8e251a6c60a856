"""Products of a run beside its cube: sums over particles, images of these sums, and the maps made of them."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.maps import Image, MapLabel, ProductAxes
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors, Spaxels, in_blocks, sum_deposits
from rubix_like.engine.painter import AbstractPainter, View
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import Kind, ReaderWords
from rubix_like.galaxy.particles import Galaxy, Stars
from rubix_like.galaxy.scene import Scene

_ROOM = 1 << 28
"""Bytes for sums in 64 bits."""

_COLUMN_VALUES = 2
"""Numbers in the columns of a chunk over `Rates.values_at_once`: 1 MB in float32 on a processor, beside as many that
are multiplied out."""

Placed = tuple[Int[Array, "particle corner"], Float[Array, "particle corner"]]
"""Spaxels of particles (flat; n_spaxel = outside), and the shares of them that lie there."""


def particles_at_once(grid: SpaxelGrid, n_column: int, limit: int) -> int:
    """Particles whose `n_column` columns are computed at once: at most `limit`, fewer for many columns."""
    return max(1, min(limit, _COLUMN_VALUES * rates_here().values_at_once // (grid.n_corner * n_column)))


def blocks_needed(grid: SpaxelGrid, n_column: int) -> int:
    """Number of blocks of spaxels, each small enough that its sums have room."""
    return -(-8 * grid.n_spaxel * n_column // _ROOM)


def sum_columns(
    contribute: Callable[[Any], tuple[Placed, Float[Array, "particle column"]]],
    particles: Any,
    grid: SpaxelGrid,
    kernel: AbstractDepositKernel,
    n_column: int,
    chunk: int,
    dtype: Any,
) -> Float[Array, "spaxel column"]:
    """Sums of the particles' own columns, kept in 64 bits, as many spaxels at a time as there is room for.

    `contribute` makes of a chunk its spaxels with their shares, and the columns.
    """

    def sums(spaxels: Spaxels) -> tuple[Float[Array, "own column"], None]:
        first, n_spaxel = spaxels

        def deposits(own: Any) -> tuple[tuple[Factors], tuple[()]]:
            (spaxel, share), columns = contribute(own)
            inside = (spaxel >= first) & (spaxel < first + n_spaxel)
            row = jnp.where(inside, spaxel - first, n_spaxel)
            return (Factors(row, share, jnp.ones((len(row), 1), columns.dtype), columns),), ()

        at_once = particles_at_once(grid, n_column, chunk)
        (summed,), _ = sum_deposits(deposits, particles, kernel, ((n_spaxel + 1, n_column),), (), at_once, dtype)
        return summed[:n_spaxel], None

    return in_blocks(sums, grid.n_spaxel, blocks_needed(grid, n_column))[0]


class NamedColumns(eqx.Module):
    """Named columns along the last axis of `values`; a width is that of a block of columns, None of a single one."""

    values: Float[Array, "*row column"]
    widths: tuple[tuple[str, int | None], ...] = eqx.field(static=True)

    @classmethod
    def of(cls, columns: Mapping[str, Float[Array, "*_"]], n_axis: int) -> "NamedColumns":
        """Arrays with `n_axis` axes as single columns, those with one axis more as blocks."""
        widths = tuple((name, None if array.ndim == n_axis else array.shape[-1]) for name, array in columns.items())
        blocks = [array[..., None] if array.ndim == n_axis else array for array in columns.values()]
        return cls(jnp.concatenate(blocks, axis=-1), widths)

    @property
    def by_name(self) -> dict[str, Float[Array, "*_"]]:
        """Each column or block."""
        found, first = {}, 0
        for name, width in self.widths:
            found[name] = self.values[..., first] if width is None else self.values[..., first : first + width]
            first += 1 if width is None else width
        return found


class SourceView(NamedTuple):
    """How the particles of a source are seen: those that can shine, its painter, and the view of a chunk on a grid."""

    particles: Any
    painter: AbstractPainter
    look: Callable[[Any, SpaxelGrid], View]


class Viewer(NamedTuple):
    """How a product sees the scene: the painted grid, the field of view, and particles in the observer's frame.

    `scene(kind, chunk)`: where particles are, after the scene stages that read no field, with an amount of 1 each;
    `stars(chunk)`: stars as they shine, after all scene stages; `sources`: those of the pipeline. `fields` hold what
    the pipeline's fields have become.
    """

    grid: SpaxelGrid
    footprint: Footprint
    chunk: int
    kernel: AbstractDepositKernel
    parameters: Parameters
    fields: Mapping[str, Any]
    scene: Callable[[Kind, Any], Scene]
    stars: Callable[[Stars], Scene]
    sources: tuple[SourceView, ...]


class ProductImages(eqx.Module):
    """Images of all products, before and after the PSF, as the compiled function returns them.

    The columns of all products lie side by side, `widths` are the names of each product's. Velocities in them are
    relative to `reference` (km/s). `other`: numbers of each product that are no images, or None.
    """

    before: Float[Array, "y x column"]
    after: Float[Array, "y x column"]
    reference: Float[Array, ""]
    other: tuple[Any, ...]
    widths: tuple[tuple[tuple[str, int | None], ...], ...] = eqx.field(static=True)

    def split(self, values: Float[Array, "y x column"]) -> list[dict[str, Float[Array, "*_"]]]:
        """Each product's images by name."""
        found, first = [], 0
        for widths in self.widths:
            last = first + sum(1 if width is None else width for _, width in widths)
            found.append(NamedColumns(values[:, :, first:last], widths).by_name)
            first = last
        return found


class Summed(NamedTuple):
    """The images of one product, before or after the PSF, that its maps are made of.

    `images`: by name, (y, x) or (y, x, column); `other`: numbers of the product that are no images, or None;
    `reference`: `observation.velocity_offset` (km/s), which the package's sums subtract from velocities; `faintest`:
    weight, over the brightest spaxel's, below which a mean is NaN; `axes`: those of the run's maps.
    """

    images: Mapping[str, Float[Array, "*_"]]
    other: Any
    reference: Float[Array, ""]
    faintest: float
    axes: ProductAxes

    def mean(self, weighted: Image, weight: Image) -> Float[Array, "y x"]:
        """`weighted` / `weight`; NaN, with a gradient of 0, where there is too little weight."""
        return mean(weighted, weight, self.faintest)


def mean(weighted: Image, weight: Image, faintest: float) -> Float[Array, "y x"]:
    """`weighted` / `weight` where there is weight, with a gradient of 0 elsewhere."""
    there = weight > faintest * jnp.max(weight)
    return jnp.where(there, weighted / jnp.where(there, weight, jnp.ones_like(weight)), jnp.nan)


def root(variance: Image) -> Float[Array, "y x"]:
    """The square root, 0 (with no gradient) where rounding leaves nothing or less."""
    positive = variance > 0
    return jnp.where(
        positive,
        jnp.sqrt(jnp.where(positive, variance, jnp.ones_like(variance))),
        jnp.where(jnp.isnan(variance), variance, 0),
    )


class AbstractProduct(eqx.Module):
    """Maps beside the cube: sums over particles, their images before and after the PSF, and the maps made of these.

    The forward model goes through the products of a run in one loop: `paint` on every device, one sum over devices,
    `images`, which the PSF blurs as it does the cube's moments, then on the host `make`. `kind`: the particles that
    `paint` gets (None: none). `labels`: the maps that go into `MapSet.fields`; a product without labels makes fields of
    `MapSet` itself.
    """

    kind: ClassVar[Kind | None] = None
    words: ClassVar[ReaderWords] = ReaderWords("maps", "set products: null")
    labels: ClassVar[tuple[MapLabel, ...]] = ()

    def absent(self, galaxy: Galaxy) -> None:  # noqa: ARG002
        """None: a galaxy without these particles is refused."""
        return

    @abstractmethod
    def paint(self, viewer: Viewer, particles: Any) -> Any:
        """The sums over the particles at hand, arrays that are added up over devices; None where there are none."""

    @abstractmethod
    def images(self, sums: Any, viewer: Viewer) -> NamedColumns | None:
        """Images (y, x, column) on the painted grid of the sums over all particles."""

    def other(self, sums: Any, parameters: Parameters) -> Any:  # noqa: ARG002
        """Numbers that the maps need beside images."""
        return None

    @abstractmethod
    def make(self, summed: Summed) -> Mapping[str, Any]:
        """The maps by name, of images before or after the PSF; differentiable."""


class AbstractParticleMaps(eqx.Module):
    """Maps made of sums over the particles of one kind.

    To write one, name the `kind` of particles and the `labels` of the maps, and define `build`, `columns` and `make`.
    """

    kind: ClassVar[Kind | None] = None
    labels: ClassVar[tuple[MapLabel, ...]] = ()

    @classmethod
    @abstractmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "AbstractParticleMaps":
        """The product for one run; raises ConfigError for options that it does not know."""

    @abstractmethod
    def columns(self, particles: Any, scene: Scene, parameters: Parameters) -> Mapping[str, Float[Array, " particle"]]:
        """Amounts that each particle adds to the sums, by name.

        They are multiplied with `scene.amount`: 0 for padding, else 1, or what the scene stages that read no field have
        made of it.
        """

    @abstractmethod
    def make(self, summed: Summed) -> Mapping[str, Any]:
        """The maps by name, of images before or after the PSF; differentiable."""


class ParticleMaps(AbstractProduct):
    """The product of some `AbstractParticleMaps`; `who` names them in errors, `remedy` says how to leave them out."""

    maps: AbstractParticleMaps
    who: str = eqx.field(static=True)
    remedy: str = eqx.field(static=True, default="take it out of products.extra")

    @property
    def kind(self) -> Kind | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The particles that are summed."""
        return self.maps.kind

    @property
    def labels(self) -> tuple[MapLabel, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Labels of the maps in `MapSet.fields`."""
        return self.maps.labels

    @property
    def words(self) -> ReaderWords:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Words for the error of a galaxy without these particles."""
        return ReaderWords(self.who, self.remedy)

    def paint(self, viewer: Viewer, particles: Any) -> NamedColumns:
        """The sums (spaxel, column) of all particles at hand, kept in 64 bits."""
        call = f"{self.who}: `columns`"

        def contribute(chunk: Any) -> tuple[Placed, NamedColumns]:
            assert self.kind is not None
            scene = viewer.scene(self.kind, chunk)
            with plug_in_named(call, self.maps):
                columns = returned(self.maps.columns(chunk, scene, viewer.parameters), Mapping, call, "columns by name")
                if not columns:
                    raise ConfigError(f"{call} must return at least one column, got none; see docs/how-to-extend.md")
                arrays = {name: jnp.asarray(column) for name, column in columns.items()}
            check_returned_shapes(call, {name: (array, scene.amount.shape) for name, array in arrays.items()})
            named = NamedColumns.of({name: array * scene.amount for name, array in arrays.items()}, 1)
            return viewer.grid.weights(scene.position, scene.smoothing_length, self.kind), named

        def placed(chunk: Any) -> tuple[Placed, Float[Array, "particle column"]]:
            place, named = contribute(chunk)
            return place, named.values

        form, dtype = jax.eval_shape(contribute, particles)[1], jnp.result_type(viewer.grid.footprint.pixel_scale)
        n_column = form.values.shape[1]
        sums = sum_columns(placed, particles, viewer.grid, viewer.kernel, n_column, viewer.chunk, dtype)
        return NamedColumns(sums, form.widths)

    def images(self, sums: NamedColumns, viewer: Viewer) -> NamedColumns:
        """The sums as images, a column each."""
        return NamedColumns(viewer.grid.images(sums.values), sums.widths)

    def make(self, summed: Summed) -> Mapping[str, Any]:
        """The maps; raises ConfigError for others than the labels say, and for those of another shape."""
        call = f"{self.who}: `make`"
        with plug_in_named(call, self.maps):
            maps = returned(self.maps.make(summed), Mapping, call, "maps by name")
        labels = [label.name for label in self.labels]
        if not labels:
            return maps
        given = [name for name, image in maps.items() if image is not None]
        if set(given) != set(labels):
            raise ConfigError(
                f"{call} must return the maps of its labels, {', '.join(labels)}, got {', '.join(given) or 'none'}; "
                f"see docs/how-to-extend.md"
            )
        shape = next(iter(summed.images.values())).shape[:2]
        check_returned_shapes(call, {name: (image, shape) for name, image in maps.items()})
        for name, image in maps.items():
            if not np.issubdtype(image.dtype, np.floating):
                raise ConfigError(f"{call} must return {name} as floats, got {image.dtype}")
        return maps


class FieldMaps(AbstractProduct):
    """Maps of those fields of the pipeline that have one: what they hold in each painted cell."""

    labels: tuple[MapLabel, ...] = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    def paint(self, viewer: Viewer, particles: Any) -> None:  # noqa: ARG002
        """Fields are summed before anything is painted."""
        return

    def images(self, sums: None, viewer: Viewer) -> NamedColumns:  # noqa: ARG002
        """The values of each field."""
        return NamedColumns.of({label.name: viewer.fields[label.name].values for label in self.labels}, 2)

    def make(self, summed: Summed) -> Mapping[str, Any]:
        """The images as they are."""
        return summed.images

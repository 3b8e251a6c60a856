"""Products of a run beside its cube: sums over particles, images of these sums, and the maps made of them."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.maps import Image, MapLabel, Maps, MapSet, ProductAxes
from rubix_like.cube.meta import Counters, Meta
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, Factors, Spaxels, in_blocks, sum_deposits
from rubix_like.engine.painter import AbstractPainter, View
from rubix_like.engine.setup import Setup
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.sources.source import Kind, ReaderWords
from rubix_like.galaxy.limits import POSSIBLE
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.galaxy.scene import Scene
from rubix_like.runtime.mesh.mesh import own_copy

_ROOM = 1 << 28
"""Bytes for sums in 64 bits."""

_COLUMN_VALUES = 2
"""Numbers in the columns of a chunk over `Rates.values_at_once`: 1 MB in float32 on a processor, beside as many that
are multiplied out."""

Placed = tuple[Int[Array, "particle corner"], Float[Array, "particle corner"]]
"""Spaxels of particles (flat; n_spaxel = outside), and the shares of them that lie there."""

Histogram = tuple[Int[Array, " particle"], Float[Array, "particle 2"], Float[Array, " particle"]]
"""The lower of the two bins that each particle adds to, the share of each of them, and the amount."""


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


def sum_columns(
    contribute: Callable[[Any], tuple[Placed, Mapping[str, Float[Array, "particle *_"]], Histogram | None]],
    viewer: Viewer,
    grid: SpaxelGrid,
    particles: Any,
    histogram: tuple[str, int] = ("", 0),
) -> NamedColumns:
    """Sums (spaxel, column) of the particles' columns, kept in 64 bits, as many spaxels at a time as there is room
    for.

    `contribute` makes of a chunk its spaxels with their shares, columns or blocks of them by name, and what it adds to
    a histogram in each spaxel (None: there is none); `histogram`: its name and number of bins.
    """
    name, n_bin = histogram

    def named(chunk: Any) -> tuple[Placed, NamedColumns, Histogram | None]:
        place, columns, added = contribute(chunk)
        return place, NamedColumns.of(columns, 1), added

    form, dtype = jax.eval_shape(named, particles)[1], jnp.result_type(grid.footprint.pixel_scale)
    n_column = form.values.shape[1]
    most = _COLUMN_VALUES * rates_here().values_at_once // (grid.n_corner * n_column)

    def sums(spaxels: Spaxels) -> tuple[Float[Array, "spaxel column"], None]:
        first, n_spaxel = spaxels

        def deposits(chunk: Any) -> tuple[tuple[Factors, ...], tuple[()]]:
            (spaxel, share), columns, added = named(chunk)
            inside = (spaxel >= first) & (spaxel < first + n_spaxel)
            row = jnp.where(inside, spaxel - first, n_spaxel)  # one row more takes what others get
            one = jnp.ones((len(row), 1), columns.values.dtype)
            factors = Factors(row, share, one, columns.values)
            if added is None:
                return (factors,), ()
            lower, near, amount = added
            return (factors, Factors(row * n_bin + lower[:, None], share * amount[:, None], near, one)), ()

        shapes = ((n_spaxel + 1, n_column), ((n_spaxel + 1) * n_bin, 1))[: 2 if n_bin else 1]
        at_once = max(1, min(viewer.chunk, most))
        found, _ = sum_deposits(deposits, particles, viewer.kernel, shapes, (), at_once, dtype)
        return jnp.concatenate([block.reshape(n_spaxel + 1, -1)[:n_spaxel] for block in found], axis=1), None

    n_block = -(-8 * grid.n_spaxel * (n_column + n_bin) // _ROOM)
    widths = (*form.widths, (name, n_bin)) if n_bin else form.widths
    return NamedColumns(in_blocks(sums, grid.n_spaxel, n_block)[0], widths)


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


@jax.jit
def mean(weighted: Image, weight: Image, faintest: float | Float[Array, ""]) -> Float[Array, "y x"]:
    """`weighted` / `weight` where there is weight, with a gradient of 0 elsewhere."""
    there = weight > faintest * jnp.max(weight)
    return jnp.where(there, weighted / jnp.where(there, weight, jnp.ones_like(weight)), jnp.nan)


@jax.jit
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

    def images(self, sums: Any, viewer: Viewer) -> NamedColumns | None:
        """Images (y, x, column) on the painted grid of the sums over all particles."""
        return NamedColumns(viewer.grid.images(sums.values), sums.widths)

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

        def contribute(chunk: Any) -> tuple[Placed, dict[str, Float[Array, " particle"]], None]:
            assert self.kind is not None
            scene = viewer.scene(self.kind, chunk)
            with plug_in_named(call, self.maps):
                columns = returned(self.maps.columns(chunk, scene, viewer.parameters), Mapping, call, "columns by name")
                if not columns:
                    raise ConfigError(f"{call} must return at least one column, got none; see docs/how-to-extend.md")
                arrays = {name: jnp.asarray(column) for name, column in columns.items()}
            check_returned_shapes(call, {name: (array, scene.amount.shape) for name, array in arrays.items()})
            place = viewer.grid.weights(scene.position, scene.smoothing_length, self.kind)
            return place, {name: array * scene.amount for name, array in arrays.items()}, None

        return sum_columns(contribute, viewer, viewer.grid, particles)

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
        """Mass (Msun) and, where the gas has them, star formation rate (Msun/yr) and masses of neutral and molecular
        hydrogen (Msun), then mass times each of `MEANS`."""
        mass, rate = jnp.asarray(particles.mass), particles.star_formation_rate
        amounts = {"gas_mass": mass} | ({} if rate is None else {"star_formation_rate": jnp.asarray(rate)})
        for name, fraction in (("hi_mass", particles.hi_fraction), ("h2_mass", particles.h2_fraction)):
            amounts |= {} if fraction is None else {name: mass * jnp.asarray(fraction)}
        velocity = scene.v_los - parameters.observation.velocity_offset
        metals = [] if particles.metallicity is None else [jnp.asarray(particles.metallicity)]
        means = zip(MEANS, (velocity, velocity**2, *metals), strict=False)
        return amounts | {name: mass * values for name, values in means}

    def make(self, summed: Summed) -> dict[str, Any]:
        """Amounts as they are; means weighted by mass."""
        images = summed.images
        means = {name: summed.mean(images[name], images["gas_mass"]) for name in MEANS if name in images}
        moments = {"v_gas": means["velocity"] + summed.reference}
        moments["sigma_gas"] = root(means["velocity2"] - means["velocity"] ** 2)
        if "metallicity" in means:
            moments["metallicity_gas"] = means["metallicity"]
        return {name: image for name, image in images.items() if name not in MEANS} | moments


_FAINTEST = 1e-6
"""After the PSF a spaxel with less than this share of the brightest one's light (mass) has no mean."""


def make_maps(
    images: ProductImages,
    products: Sequence[AbstractProduct],
    axes: ProductAxes,
    mask: Int[np.ndarray, "y x"],
    counters: Counters | None,
    *,
    footprint: Footprint,
    meta: Meta,
) -> Maps:
    """The maps, before and after the PSF, of all products; differentiable."""
    sums = images.split(images.before)
    before, attenuation = _map_set(images, sums, products, axes, 0.0)
    after, _ = _map_set(images, images.split(images.after), products, axes, _FAINTEST)
    for product, columns in zip(products, sums, strict=True):
        if product.labels and isinstance(product, ParticleMaps):
            for name, image in columns.items():
                what = f"{product.who}: `columns`: expected finite numbers for all particles, got NaN or inf in"
                _check_finite(image, f"{what} '{name}'")
    for kind, mass in (("stars", before.birth_mass), ("gas", before.gas_mass)):
        what = f"galaxy.{kind}: expected {POSSIBLE}, got others in the maps of {kind}"
        _check_finite(mass, f"{what}; rubix_like.validate(galaxy) names them")
    return Maps(
        before=before,
        after=after,
        mask=mask,
        velocity=axes.velocity,
        counters=counters,
        filters=axes.filters,
        band=axes.band,
        fit_particles=axes.fit_particles,
        footprint=footprint,
        meta=meta,
        fields=axes.fields,
        lines=() if axes.lines is None else axes.lines.lines,
        attenuation=attenuation,
    )


def _check_finite(image: Image | None, fault: str) -> None:
    """Raise ValueError, which says the fault, for NaN or inf; it does nothing while tracing."""
    if image is not None and not isinstance(image, Tracer) and not np.isfinite(own_copy(image)).all():
        raise ValueError(fault)


def _map_set(
    images: ProductImages,
    sums: Sequence[Mapping[str, Float[Array, "*_"]]],
    products: Sequence[AbstractProduct],
    axes: ProductAxes,
    faintest: float,
) -> tuple[MapSet, Any]:
    found: dict[str, Any] = {}
    fields: dict[str, Image] = {}
    for product, columns, other in zip(products, sums, images.other, strict=True):
        maps = product.make(Summed(columns, other, images.reference, faintest, axes))
        if product.labels:
            fields |= maps
        else:
            found |= maps
    attenuation = found.pop("attenuation", None)
    return MapSet(**found, fields=fields), attenuation

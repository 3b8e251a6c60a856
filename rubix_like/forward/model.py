"""The forward model: pure functions, composed into one compiled function over a mesh of devices."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray

from rubix_like.arguments import plug_in_named, returned
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.basis import BasisPainter, paint_together
from rubix_like.engine.painter import AbstractPainter, Look, Sum, View, count
from rubix_like.engine.spaxels import Images, SeenByWavelength, SpaxelGrid, field_of
from rubix_like.errors import ConfigError
from rubix_like.forward.fields.field import Counted, HasValues, sum_field
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.product import ProductImages, SourceView, Viewer
from rubix_like.forward.sources.source import AbstractSource, Kind, ReadsParticles, particles_of, scene_of
from rubix_like.forward.sources.stars import star_scene
from rubix_like.forward.stages.base import (
    AbstractCubeStage,
    PaintedCube,
    Spatial,
    Voxels,
    WavelengthSpatial,
    split_keys,
)
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy, Stars
from rubix_like.galaxy.placing import particle_shardings
from rubix_like.galaxy.scene import Scene, to_scene, without_impossible
from rubix_like.runtime.mesh.bin_split import WHOLE, padded, wave_specs
from rubix_like.runtime.mesh.mesh import DATA_AXIS, SAMPLE_AXIS, DeviceLayout, UsedFirst, replicated


class Partial(eqx.Module):
    """Sums over particles: one painter's partial and the counters of each source, and the sums of each product."""

    light: tuple[Any, ...]
    counters: tuple[SourceCounters, ...]
    products: tuple[Any, ...]


Fields = Mapping[str, Any]
"""What the fields of a pipeline hold, by name."""


class Group(NamedTuple):
    """Observations that one program makes of one scene, on one mesh.

    `together`: whether one pass over a source's particles paints them all, by source.
    """

    plans: tuple[Plan, ...]
    layouts: tuple[DeviceLayout, ...]
    together: tuple[bool, ...]

    @classmethod
    def of(cls, plan: Plan, layout: DeviceLayout) -> "Group":
        """A group of one observation."""
        return cls((plan,), (layout,), (False,) * len(plan.sources))

    @property
    def mesh(self) -> Mesh:
        """The devices."""
        return self.layouts[0].mesh


class PassInputs(NamedTuple):
    """All that a pass reads beside particles: tables, parameters and noise key of each observation of a group, and the
    fields that an earlier pass summed up. The scene is by the parameters of the first observation."""

    tables: tuple[Tables, ...]
    parameters: tuple[Parameters, ...]
    keys: tuple[PRNGKeyArray | None, ...]
    fields: Fields

    @classmethod
    def of(cls, tables: Tables, parameters: Parameters, key: PRNGKeyArray | None) -> "PassInputs":
        """The inputs of the first pass for a group of one observation."""
        return cls((tables,), (parameters,), (key,), {})


def sum_fields(plan: Plan, tables: Tables, parameters: Parameters, particles: tuple[Any, ...]) -> Float[Array, " cell"]:
    """The sums of each field over the particles at hand, in chunks, as the stages see them that read no field.

    They are one array, field after field: of several, XLA may leave some for a later collective.
    """
    sums = []
    for name, field, read in zip(plan.fields, tables.fields, particles, strict=True):
        look = functools.partial(scene_before_fields, tables, parameters, field.kind)
        with plug_in_named(f"field '{name}'", field):
            filled = field.with_parameters(parameters)
            sums.append(sum_field(filled, look, read, tables.grid, plan.chunk, tables.kernel))
    return jnp.concatenate(sums)


def scene_before_fields(tables: Tables, parameters: Parameters, kind: Kind, particles: Any) -> Scene:
    """Places and velocities of particles of a kind after the scene stages that read no field, with an amount of 1.

    They have the coordinates that the sources of this kind give them.
    """
    place = tables.alignment, tables.arcsec_per_kpc
    coordinates: dict[str, Array] = {}
    for source in tables.paint:
        if source.kind == kind:
            coordinates |= scene_of(source, particles, *place).coordinates
    scene = to_scene(particles, jnp.ones_like(jnp.asarray(particles.position)[:, 0]), coordinates, *place)
    for number, stage in enumerate(tables.scene):
        scene = scene if stage.reads else tables.scene_after(number, scene, parameters)
    return scene


def finish_fields(plan: Plan, tables: Tables, parameters: Parameters, sums: Float[Array, " cell"]) -> Fields:
    """The fields, from the sums of all devices."""
    filled = [field.with_parameters(parameters) for field in tables.fields]
    ends = np.cumsum([field.n_cell(tables.grid) + field.n_count for field in filled])
    fields = {}
    for name, field, cells in zip(plan.fields, filled, jnp.split(sums, ends[:-1]), strict=True):
        with plug_in_named(call := f"field '{name}': `finish`", field):
            fields[name] = field.finish(cells, tables.grid)
        if field.map is not None and not isinstance(fields[name], HasValues):
            raise ConfigError(f"{call} must return a PaintedField, which has `values`; see docs/how-to-extend.md")
    return fields


def paint(group: Group, inputs: PassInputs, particles: tuple[Any, ...]) -> list[Partial]:
    """The sums of each observation over the particles at hand, in chunks: into the observer's frame, through the scene
    stages, onto spaxels. `particles`: those of each of `tables.painted`."""
    tables, parameters, fields = inputs.tables, inputs.parameters[0], inputs.fields
    first, sums = tables[0], []
    for number, name in enumerate(group.plans[0].sources):
        sources = [arm.paint[number] for arm in tables]
        with plug_in_named(f"source '{name}'", sources[0]):
            painters = [source.painter_for(parameters) for source in sources]
            looks = [look_of(first, parameters, fields, *pair) for pair in zip(sources, painters, strict=True)]
            place = shining_of(sources[0], particles[number]), first.grid, group.plans[0].chunk
            if group.together[number]:
                alike = [painter for painter in painters if isinstance(painter, BasisPainter)]
                sums.append(paint_together(alike, looks[0], *place))
            else:
                sums.append([painter.paint(look, *place) for painter, look in zip(painters, looks, strict=True)])
    partials = []
    for number, (plan, arm) in enumerate(zip(group.plans, tables, strict=True)):
        light, counters = zip(*(source_sums[number] for source_sums in sums), strict=True)
        partials.append(Partial(light, counters, paint_products(plan, arm, parameters, fields, particles)))
    return partials


def paint_products(
    plan: Plan, tables: Tables, parameters: Parameters, fields: Fields, particles: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The sums of each product; `particles`: those of each of `tables.painted`."""
    if not tables.products:
        return ()
    shining = particles[: len(tables.paint)]
    viewer = _viewer(plan, tables, parameters, fields, shining)
    rest = iter(particles[len(tables.paint) :])
    return tuple(product.paint(viewer, None if product.kind is None else next(rest)) for product in tables.products)


def _viewer(
    plan: Plan, tables: Tables, parameters: Parameters, fields: Fields, particles: tuple[Any, ...] | None
) -> Viewer:
    """The viewer that products get; `particles`: those of each source, None after painting."""

    def scene(kind: Kind, chunk: Any) -> Scene:
        return without_impossible(scene_before_fields(tables, parameters, kind, chunk))

    def stars(chunk: Stars) -> Scene:
        scene = without_impossible(star_scene(chunk, tables.alignment, tables.arcsec_per_kpc))
        return _observed_scene(tables, parameters, fields, scene)

    def look(source: AbstractSource, chunk: Any, grid: SpaxelGrid) -> View:
        return _view(source, _scene_of(tables, parameters, fields, source, chunk), grid)

    sources = tuple(
        SourceView(
            None if particles is None else shining_of(source, particles[number]),
            source.painter_for(parameters),
            functools.partial(look, source),
        )
        for number, source in enumerate(tables.paint)
    )
    place = tables.grid, tables.footprint, plan.chunk, tables.kernel
    return Viewer(*place, parameters, fields, scene, stars, sources)


def look_of(
    tables: Tables, parameters: Parameters, fields: Fields, source: AbstractSource, painter: AbstractPainter
) -> Look:
    """The view that a source's painter has of its `shining_of` particles, and their counters."""

    def look(chunk: Any, grid: SpaxelGrid = tables.grid) -> tuple[View, SourceCounters]:
        scene = _scene_of(tables, parameters, fields, source, chunk)
        return _view(source, scene, grid), count(scene, painter.axes, tables.footprint, painter.velocity_limit)

    return look


def shining_of(source: AbstractSource, particles: Any) -> Any:
    """The particles of a source, those that can have light first."""
    shining = source.shining(particles)
    return particles if shining is None else UsedFirst.of(particles, shining)


def _scene_of(tables: Tables, parameters: Parameters, fields: Fields, source: AbstractSource, chunk: Any) -> Scene:
    """A chunk of a source's `shining_of` particles, as they shine."""
    particles = chunk.particles if isinstance(chunk, UsedFirst) else chunk
    scene = scene_of(source, particles, tables.alignment, tables.arcsec_per_kpc)
    return source.shine(_observed_scene(tables, parameters, fields, scene), parameters)


def _view(source: AbstractSource, scene: Scene, grid: SpaxelGrid) -> View:
    place = grid.weights(scene.position, scene.smoothing_length, source.kind)
    coordinates = tuple(scene.coordinates[name] for name in source.painter.axes.coordinate_names)
    return View(scene.amount, coordinates, scene.v_los, *place)


def _observed_scene(tables: Tables, parameters: Parameters, fields: Fields, scene: Scene) -> Scene:
    scene = dataclasses.replace(scene, fields=fields)
    for number in range(len(tables.scene)):
        scene = tables.scene_after(number, scene, parameters)
    return scene


def kinds_of_sums(tables: Tables, partial: Partial) -> list[Sum]:
    """How each array of a partial is added up over the devices."""
    light = [kind for source in tables.paint for kind in source.painter.sums]
    return [*light, *(Sum.PARTICLES for _ in range(len(jax.tree.leaves(partial)) - len(light)))]


def _added(leaves: list[Array], kind: Sum, in_parts: bool, layout: DeviceLayout) -> list[Array]:
    """Arrays of one kind, added up over the devices; `in_parts`: each keeps its part along "data"."""
    if not leaves:
        return []
    if kind is Sum.EVERYTHING:
        return lax.psum(leaves, (DATA_AXIS, *layout.painted.axes))
    if not in_parts:
        return lax.psum(leaves, DATA_AXIS)
    axis = 1 if kind is Sum.BINS else 0
    even = []
    for leaf in leaves:
        widths = [(0, 0)] * leaf.ndim
        widths[axis] = (0, -leaf.shape[axis] % layout.n_data)
        even.append(jnp.pad(leaf, widths))
    return lax.psum_scatter(even, DATA_AXIS, scatter_dimension=axis, tiled=True)


class Observed(NamedTuple):
    """Results of the compiled function: voxels, what is the same on all devices, counters by source and field, and all
    bins of the `fibres` that the cube is made of."""

    voxels: Voxels
    moments: Float[Array, "y x 2"]
    products: ProductImages | None
    counters: dict[str, SourceCounters]
    fibres: Voxels | None = None


def finish(
    plan: Plan,
    layout: DeviceLayout,
    tables: Tables,
    parameters: Parameters,
    fields: Fields,
    partial: Partial,
    key: PRNGKeyArray | None,
    watch: Callable[[int, PaintedCube], None] | None = None,
) -> Observed:
    """The observed cube, or a device's part of it: the sums over all particles pass the detector and the stages.

    `watch` is called with the number of stages that are done and the cube after them.
    """
    early, late = leading_spatial(tables, parameters)
    spatial = seen_through(tables.grid, early)
    viewer = _viewer(plan, tables, parameters, fields, None)
    painters = [source.painter for source in viewer.sources]
    projected = [
        painter.project(light, spatial, layout) for painter, light in zip(painters, partial.light, strict=True)
    ]
    flux = sum((flux for flux, _ in projected[1:]), start=projected[0][0])
    moments = sum((moments for _, moments in projected[1:]), start=projected[0][1])
    summed = list(zip(tables.products, partial.products, strict=True))
    images = [product.images(sums, viewer) for product, sums in summed]
    columns = [image.values for image in images if image is not None]
    painted_columns = jnp.concatenate(columns, axis=2) if columns else None
    if painted_columns is not None:
        moments = jnp.concatenate([moments, spatial.seen(painted_columns)], axis=1)
    painted = tables.footprint.painted(sum(stage.margin for stage, _ in late), 1 if early else plan.cells)
    if early and plan.n_fibre:
        painted = Footprint(plan.n_fibre, 1, painted.pixel_scale, fibres=True)
    if len(flux) != painted.n_element:
        names = ", ".join(tables.cube_names[: len(early)])
        raise ConfigError(
            f"stage '{names}': `spatial` must return images of {painted.n_element} spaxels, got {len(flux)}; see "
            f"docs/how-to-extend.md"
        )
    cube = PaintedCube(flux, moments, painted, fields=fields, split=layout.split)
    keys = split_keys(key, tables.cube)
    if watch is not None:
        watch(len(early), cube)
    for _, number in late:
        cube = tables.cube_after(number, cube, parameters, keys[number])
        if watch is not None:
            watch(number + 1, cube)
    kept = Voxels(cube.flux, cube.variance, cube.truth, cube.bits, dict(cube.contributions) or None)
    voxels = jax.tree.map(cube.footprint.rows, kept)
    moments = cube.footprint.rows(cube.moments)
    products = None
    if painted_columns is not None:
        products = ProductImages(
            before=field_of(painted_columns, tables.footprint, plan.cells),
            after=moments[:, :, 2:],
            reference=parameters.observation.velocity_offset,
            other=tuple(product.other(sums, parameters) for product, sums in summed),
            widths=tuple(() if image is None else image.widths for image in images),
        )
    counters = dict(zip(plan.sources, partial.counters, strict=True))
    counters |= {name: field.counters for name, field in fields.items() if isinstance(field, Counted)}
    fibres = jax.tree.map(layout.split.gather_rows, cube.fibres)
    return Observed(voxels, moments[:, :, :2], products, counters, fibres)


_SpatialMaps = list[Spatial | WavelengthSpatial]


def leading_spatial(tables: Tables, parameters: Parameters) -> tuple[_SpatialMaps, list[tuple[AbstractCubeStage, int]]]:
    """The maps of images at the head of the list, at most one of which depends on wavelength; the other stages and
    their numbers."""
    early: _SpatialMaps = []
    kinds, expected = (Callable, WavelengthSpatial, type(None)), "a function of images, a WavelengthSpatial or None"
    for name, stage in zip(tables.cube_names, tables.cube, strict=True):
        spatial = returned(stage.spatial(parameters), kinds, f"stage '{name}': `spatial`", expected)
        if spatial is None or (isinstance(spatial, WavelengthSpatial) and _by_wavelength(early) is not None):
            break
        early.append(spatial)
    return early, [(stage, number) for number, stage in enumerate(tables.cube)][len(early) :]


def _by_wavelength(maps: _SpatialMaps) -> WavelengthSpatial | None:
    return next((map_ for map_ in maps if isinstance(map_, WavelengthSpatial)), None)


def seen_through(grid: SpaxelGrid, maps: _SpatialMaps) -> Images:
    """Images of painted columns through these maps, one after the other."""

    def through(chosen: Callable[[WavelengthSpatial], Spatial]) -> Callable[[Array], Array]:
        steps = [chosen(map_) if isinstance(map_, WavelengthSpatial) else map_ for map_ in maps]

        def seen(images: Float[Array, "y x k"]) -> Float[Array, "seen k"]:
            for step in steps:
                images = step(images)
            return images.reshape(-1, images.shape[2])

        return seen

    middle, varying = through(lambda map_: map_.middle), _by_wavelength(maps)
    if varying is None:
        return Images(grid, middle)

    def terms(images: Float[Array, "y x k"], sizes: tuple[int, ...]) -> Float[Array, "seen k"]:
        return through(lambda map_: lambda images: map_.terms(images, sizes))(images)

    return Images(grid, middle, SeenByWavelength(terms, varying.shares, through(lambda map_: map_.bins)))


def finish_group(group: Group, inputs: PassInputs, partials: Sequence[Partial]) -> tuple[Observed, ...]:
    """The observed cube of each observation, or a device's part of it."""
    each = zip(group.plans, group.layouts, inputs.tables, inputs.parameters, partials, inputs.keys, strict=True)
    return tuple(
        finish(plan, layout, tables, parameters, inputs.fields, partial, key)
        for plan, layout, tables, parameters, partial, key in each
    )


def observed_specs(layout: DeviceLayout) -> Observed:
    """The prefix of the tree of PartitionSpecs of what every device returns."""
    whole = PartitionSpec()
    voxels = PartitionSpec(None, None, layout.split.axes) if layout.split.axes else whole
    return Observed(voxels, whole, whole, whole, whole)  # pyright: ignore[reportArgumentType]


def gathered(plan: Plan, layout: DeviceLayout, observed: Observed) -> Observed:
    """The array without its padding, if every device will get all parts."""
    if layout.split.is_whole or not layout.gathered:
        return observed
    return observed._replace(voxels=jax.tree.map(lambda voxels: voxels[:, :, : plan.n_wave], observed.voxels))


def observed_shardings(layout: DeviceLayout) -> Observed:
    """The prefix of the tree of shardings of what the compiled function returns."""
    specs = observed_specs(dataclasses.replace(layout, split=WHOLE) if layout.gathered else layout)
    return layout.shardings(specs)


@dataclasses.dataclass(frozen=True)
class ParticlePass:
    """A pass over particles: what every device sums, and what is made of the sums of all devices."""

    words: str
    """What happens to stars, for the progress of a run."""
    done: str
    """What has happened to them."""
    readers: Callable[[Tables], Sequence[ReadsParticles]]
    """What is summed over particles."""
    sum: Callable[[Group, PassInputs, tuple[Any, ...]], Sequence[Any]]
    """A device's sums over the particles at hand, an item for each observation, or for the first alone."""
    kinds: Callable[[Tables, Any], Sequence[Sum]]
    """How each array of an item is added up over the devices."""
    finish: Callable[[Group, PassInputs, Sequence[Any]], Any]
    """What each device makes of the sums that are added up."""
    specs: Callable[[Group], Any]
    """The prefix of the tree of PartitionSpecs of what `finish` makes."""
    whole: Callable[[Group, Any], Any]
    """The result of a pass with the parts of all devices joined."""
    shardings: Callable[[Group], Any]
    """The prefix of the tree of shardings of what `whole` returns."""

    def kinds_of(self, group: Group, tables: Sequence[Tables], sums: Sequence[Any]) -> list[tuple[DeviceLayout, Sum]]:
        """The layout of each array of the sums, and how it is added up."""
        each = zip(group.layouts, tables, sums, strict=False)
        return [(layout, kind) for layout, arm, item in each for kind in self.kinds(arm, item)]

    def add_up(self, group: Group, tables: Sequence[Tables], sums: Sequence[Any]) -> Sequence[Any]:
        """The sums over all devices, each of which keeps what it finishes. One collective for each kind of `Sum`,
        whatever the number of observations."""
        leaves, structure = jax.tree.flatten(sums)
        ways = [
            (kind, layout.scatters and kind in (Sum.BINS, Sum.ROWS))
            for layout, kind in self.kinds_of(group, tables, sums)
        ]
        added = dict[int, Array]()
        for way in itertools.product(Sum, (False, True)):
            numbers = [number for number, chosen in enumerate(ways) if chosen == way]
            added |= zip(numbers, _added([leaves[number] for number in numbers], *way, group.layouts[0]), strict=True)
        return jax.tree.unflatten(structure, [added[number] for number in range(len(leaves))])

    def added(self, group: Group, inputs: PassInputs, particles: tuple[Any, ...]) -> Sequence[Any]:
        """The sums over the particles of all devices, from each one's share."""
        return self.add_up(group, inputs.tables, self.sum(group, inputs, particles))


FIELD_PASS = ParticlePass(
    words="summing the fields of",
    done="summed",
    readers=lambda tables: tables.fields,
    sum=lambda group, inputs, particles: [
        sum_fields(group.plans[0], inputs.tables[0], inputs.parameters[0], particles)
    ],
    kinds=lambda _tables, _sums: [Sum.PARTICLES],
    finish=lambda group, inputs, sums: finish_fields(group.plans[0], inputs.tables[0], inputs.parameters[0], *sums),
    specs=lambda _group: PartitionSpec(),
    whole=lambda _group, fields: fields,
    shardings=lambda group: replicated(group.mesh),
)
"""The sums of all fields; it makes the fields, whole on every device."""

LIGHT_PASS = ParticlePass(
    words="painting",
    done="painted",
    readers=lambda tables: tables.painted,
    sum=paint,
    kinds=kinds_of_sums,
    finish=finish_group,
    specs=lambda group: tuple(map(observed_specs, group.layouts)),
    whole=lambda group, observed: tuple(map(gathered, group.plans, group.layouts, observed)),
    shardings=lambda group: tuple(map(observed_shardings, group.layouts)),
)
"""The light of all sources, and the sums of the products; it makes the observed cubes."""


def passes_of(tables: Tables) -> tuple[ParticlePass, ...]:
    """The passes of a run, in order; the last one makes the cubes."""
    return (FIELD_PASS, LIGHT_PASS) if tables.fields else (LIGHT_PASS,)


def particles_by_pass(tables: Tables, galaxy: Galaxy) -> tuple[tuple[Any, ...], ...]:
    """The particles of a galaxy, or of a device's share, that each pass reads; raises ValueError where it has none of a
    kind."""
    return tuple(particles_of(pass_.readers(tables), galaxy) for pass_ in passes_of(tables))


def observe_share(group: Group, inputs: PassInputs, particles: tuple[tuple[Any, ...], ...]) -> tuple[Observed, ...]:
    """Cubes from one device's share of the particles (`particles_by_pass`), inside `jax.shard_map`.

    Each pass ends with one collective for all observations: the fields, if there are any, then the light.
    """
    result: Any = {}
    for pass_, share in zip(passes_of(inputs.tables[0]), particles, strict=True):
        inputs = inputs._replace(fields=result)
        result = pass_.finish(group, inputs, pass_.added(group, inputs, share))
    return result


_SPLIT = PartitionSpec(DATA_AXIS)


def on_devices(
    function: Callable[..., Any],
    group: Group,
    tables: Sequence[Tables],
    specs: Sequence[Any],
    out_specs: Any,
    *,
    check_vma: bool = True,
) -> Callable[..., Any]:
    """A function of the inputs of a pass and of arrays that lie as `specs` say, which every device of the mesh calls
    with its part of them."""
    mesh, whole = group.mesh, PartitionSpec()
    inputs = PassInputs._make((tuple(map(table_specs, tables, group.layouts)), whole, whole, whole))
    check_vma = check_vma and SAMPLE_AXIS not in mesh.axis_names
    return jax.shard_map(function, mesh=mesh, in_specs=(inputs, *specs), out_specs=out_specs, check_vma=check_vma)


def observe_group(group: Group, inputs: PassInputs, galaxy: Galaxy) -> tuple[Observed, ...]:
    """The whole way: every device paints its particles, each pass is added up once, and each finishes its bins."""
    share, specs = functools.partial(observe_share, group), LIGHT_PASS.specs(group)
    observe = on_devices(share, group, inputs.tables, (_SPLIT,), specs)
    return LIGHT_PASS.whole(group, observe(inputs, particles_by_pass(inputs.tables[0], galaxy)))


def observe_together(
    group: Group,
    tables: tuple[Tables, ...],
    parameters: tuple[Parameters, ...],
    galaxy: Galaxy,
    keys: tuple[PRNGKeyArray | None, ...],
) -> tuple[Observed, ...]:
    """`observe_group`, put where `observed_shardings` says: not by a jit's, which would bind cotangents, too."""
    observed = observe_group(group, PassInputs(tables, parameters, keys, {}), galaxy)
    return lax.with_sharding_constraint(observed, LIGHT_PASS.shardings(group))


def observe(
    plan: Plan, layout: DeviceLayout, tables: Tables, parameters: Parameters, galaxy: Galaxy, key: PRNGKeyArray | None
) -> Observed:
    """`observe_together` for one observation."""
    return observe_together(Group.of(plan, layout), (tables,), (parameters,), galaxy, (key,))[0]


Sums = tuple[Array, ...]
"""What the devices have summed so far of particles that come slab by slab: (device, ...) of each array of a pass."""


@dataclasses.dataclass(frozen=True)
class SumsForm:
    """How the sums of a pass lie on the devices.

    `structure`: of one device's; `shapes`: of its arrays; `axes`: of the mesh along which they differ.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    axes: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, pass_: ParticlePass, group: Group, inputs: PassInputs, slab: Galaxy) -> "SumsForm":
        """The form of a pass over placed slabs like this one; nothing is computed."""
        tables, _, particles, _ = input_shardings(group, inputs.tables, slab)
        tables, particles = jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(sharding.shard_shape(leaf.shape), leaf.dtype),
            (inputs.tables, slab),
            (tables, particles),
        )

        def of_slab(inputs: PassInputs, slab: Galaxy) -> Sequence[Any]:
            return pass_.sum(group, in_slabs(inputs), particles_of(pass_.readers(inputs.tables[0]), slab))

        sums = jax.eval_shape(of_slab, inputs._replace(tables=tables), particles)
        leaves, structure = jax.tree.flatten(sums)
        axes = tuple(
            (DATA_AXIS, *(layout.painted.axes if kind in (Sum.BINS, Sum.EVERYTHING) else ()))
            for layout, kind in pass_.kinds_of(group, tables, sums)
        )
        return cls(structure, tuple(leaf.shape for leaf in leaves), axes)

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """The PartitionSpec of every array."""
        return tuple(PartitionSpec(axes) for axes in self.axes)

    def empty(self, mesh: Mesh) -> Sums:
        """The arrays of all devices, at zero, in 64 bits."""
        counts = (math.prod(mesh.shape[axis] for axis in axes) for axes in self.axes)
        return tuple(jnp.zeros((n, *shape), jnp.float64) for n, shape in zip(counts, self.shapes, strict=True))


def in_slabs(inputs: PassInputs) -> PassInputs:
    """The inputs with painters whose partials of several slabs are added up."""

    def added(node: Any) -> Any:
        return dataclasses.replace(node, in_slabs=True) if isinstance(node, BasisPainter) else node

    tables = jax.tree.map(added, inputs.tables, is_leaf=lambda node: isinstance(node, BasisPainter))
    return inputs._replace(tables=tables)


def add_slab(pass_: ParticlePass, group: Group, form: SumsForm, sums: Sums, inputs: PassInputs, slab: Galaxy) -> Sums:
    """The sums with those over one more slab: every device sums its particles, without a collective."""

    def sum_and_add(inputs: PassInputs, sums: Sums, particles: tuple[Any, ...]) -> Sums:
        more = jax.tree.leaves(pass_.sum(group, in_slabs(inputs), particles))
        return tuple(total + item[None].astype(total.dtype) for total, item in zip(sums, more, strict=True))

    add = on_devices(sum_and_add, group, inputs.tables, (form.specs, _SPLIT), form.specs)
    return add(inputs, sums, particles_of(pass_.readers(inputs.tables[0]), slab))


def finish_sums(pass_: ParticlePass, group: Group, form: SumsForm, sums: Sums, inputs: PassInputs) -> Any:
    """The fields or the observed cubes from the sums of every device, which are added up once."""

    def add_up_and_finish(inputs: PassInputs, sums: Sums) -> Any:
        inputs, items = in_slabs(inputs), jax.tree.unflatten(form.structure, [leaf[0] for leaf in sums])
        return pass_.finish(group, inputs, pass_.add_up(group, inputs.tables, items))

    finish = on_devices(add_up_and_finish, group, inputs.tables, (form.specs,), pass_.specs(group))
    return pass_.whole(group, finish(inputs, sums))


def lay_out(tables: Tables, layout: DeviceLayout) -> Tables:
    """The tables with arrays along the bins that can be cut evenly into the devices' parts (on the host)."""
    painters = [source.painter.laid_out(layout) for source in tables.paint]
    laid = eqx.tree_at(lambda t: [source.painter for source in t.paint], tables, painters)
    return laid if layout.split.is_whole else dataclasses.replace(laid, cube=padded(tables.cube, layout.split))


def table_specs(tables: Tables, layout: DeviceLayout) -> Tables:
    """The tables with a PartitionSpec in place of every array."""
    along_bins = wave_specs(tables.paint, layout.painted.axes), wave_specs(tables.cube, layout.split.axes)
    whole = jax.tree.map(lambda _: PartitionSpec(), tables)
    return eqx.tree_at(lambda t: (t.paint, t.cube), whole, along_bins)


def input_shardings(group: Group, tables: Sequence[Tables], galaxy: Galaxy) -> tuple[Any, ...]:
    """The trees of shardings of all that a program reads: tables, parameters, placed particles and keys."""
    whole = replicated(group.mesh)
    of_tables = (layout.shardings(table_specs(arm, layout)) for arm, layout in zip(tables, group.layouts, strict=True))
    return tuple(of_tables), whole, particle_shardings(galaxy, group.mesh), whole

"""The forward model: pure functions, composed into one compiled function over a mesh of devices."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rubix_like.arguments import plug_in_named, returned
from rubix_like.cube.fibres.fibre_spectra import FibreVoxels
from rubix_like.cube.footprint import Footprint
from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.basis import BasisPainter, paint_together
from rubix_like.engine.painter import AbstractPainter, Look, Sum, View, count
from rubix_like.engine.spaxels import Images, SeenByWavelength, SpaxelGrid, field_of
from rubix_like.errors import ConfigError
from rubix_like.forward.fields.field import Counted, HasValues, sum_field
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.product import ProductImages, SourceView, Viewer
from rubix_like.forward.sources.source import AbstractSource, Kind, particles_of, scene_of
from rubix_like.forward.sources.stars import star_scene
from rubix_like.forward.stages.base import AbstractCubeStage, PaintedCube, Spatial, WavelengthSpatial, split_keys
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy, Stars
from rubix_like.galaxy.placing import particle_shardings
from rubix_like.galaxy.scene import Scene, to_scene, without_impossible
from rubix_like.physics.templates import TemplateAxes
from rubix_like.runtime.compiled_programs import held
from rubix_like.runtime.mesh.bin_split import WHOLE, padded, wave_specs
from rubix_like.runtime.mesh.mesh import DATA_AXIS, SAMPLE_AXIS, DeviceLayout, UsedFirst, replicated


class Partial(eqx.Module):
    """Sums over particles: one painter's partial and the counters of each source, and the sums of each product."""

    light: tuple[Any, ...]
    counters: tuple[SourceCounters, ...]
    products: tuple[Any, ...]


Fields = Mapping[str, Any]
"""What the fields of a pipeline hold, by name."""


def sum_fields(
    plan: Plan, tables: Tables, parameters: Parameters, particles: tuple[Any, ...]
) -> tuple[Float[Array, " cell"], ...]:
    """The sums of each field over the particles at hand, in chunks, as the stages see them that read no field."""
    sums = []
    for name, field, own in zip(plan.fields, tables.fields, particles, strict=True):
        look = functools.partial(scene_before_fields, tables, parameters, field.kind)
        with plug_in_named(f"field '{name}'", field):
            filled = field.with_parameters(parameters)
            sums.append(sum_field(filled, look, own, tables.grid, plan.chunk, tables.kernel))
    return tuple(sums)


def scene_before_fields(tables: Tables, parameters: Parameters, kind: Kind, particles: Any) -> Scene:
    """Where particles of a kind are seen, and how fast: after the scene stages that read no field, with an amount of 1.

    They have the coordinates that the sources of this kind give them.
    """
    place = tables.alignment, tables.arcsec_per_kpc
    shining = [scene_of(source, particles, *place).coordinates for source in tables.paint if source.kind == kind]
    coordinates = {name: values for own in shining for name, values in own.items()}
    scene = to_scene(particles, jnp.ones_like(jnp.asarray(particles.position)[:, 0]), coordinates, *place)
    for number, stage in enumerate(tables.scene):
        scene = scene if stage.reads else tables.scene_after(number, scene, parameters)
    return scene


def finish_fields(
    plan: Plan, tables: Tables, parameters: Parameters, sums: tuple[Float[Array, " cell"], ...]
) -> Fields:
    """The fields, from every device's sums: one collective adds up those of all fields, none where there are none.

    They are one array meanwhile: of several, XLA may leave some for a later collective.
    """
    if not sums:
        return {}
    whole = lax.psum(jnp.concatenate(sums), DATA_AXIS)
    added = jnp.split(whole, np.cumsum([len(own) for own in sums])[:-1])
    fields = {}
    for name, field, own in zip(plan.fields, tables.fields, added, strict=True):
        with plug_in_named(call := f"field '{name}': `finish`", field):
            fields[name] = field.with_parameters(parameters).finish(own, tables.grid)
        if field.map is not None and not isinstance(fields[name], HasValues):
            raise ConfigError(f"{call} must return a PaintedField, which has `values`; see docs/how-to-extend.md")
    return fields


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


def paint(plan: Plan, tables: Tables, parameters: Parameters, fields: Fields, particles: tuple[Any, ...]) -> Partial:
    """Sums over the particles at hand, in chunks: into the observer's frame, through the scene stages, onto spaxels.

    `particles`: those of each of `tables.painted`.
    """
    (partial,) = paint_group((plan,), (False,) * len(tables.paint), (tables,), parameters, fields, particles)
    return partial


def paint_group(
    plans: Sequence[Plan],
    together: Sequence[bool],
    tables: Sequence[Tables],
    parameters: Parameters,
    fields: Fields,
    particles: tuple[Any, ...],
) -> list[Partial]:
    """The sums of each observation of a group; the scene is the same for all."""
    first, sums = tables[0], []
    for number, name in enumerate(plans[0].sources):
        sources = [arm.paint[number] for arm in tables]
        with plug_in_named(f"source '{name}'", sources[0]):
            painters = [source.painter_for(parameters) for source in sources]
            looks = [look_of(first, parameters, fields, *pair) for pair in zip(sources, painters, strict=True)]
            place = shining_of(sources[0], particles[number]), first.grid, plans[0].chunk
            if together[number]:
                alike = [painter for painter in painters if isinstance(painter, BasisPainter)]
                sums.append(paint_together(alike, looks[0], *place))
            else:
                sums.append([painter.paint(look, *place) for painter, look in zip(painters, looks, strict=True)])
    partials = []
    for number, (plan, arm) in enumerate(zip(plans, tables, strict=True)):
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
    """What a source's painter sees of its `shining_of` particles, and their counters."""

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
    own = chunk.particles if isinstance(chunk, UsedFirst) else chunk
    scene = scene_of(source, own, tables.alignment, tables.arcsec_per_kpc)
    return source.shine(_observed_scene(tables, parameters, fields, scene), parameters)


def _view(source: AbstractSource, scene: Scene, grid: SpaxelGrid) -> View:
    """The painter's view of a source's scene on a grid."""
    place = grid.weights(scene.position, scene.smoothing_length, source.kind)
    return View(scene.amount, _coordinates(source.painter.axes, scene), scene.v_los, *place)


def _observed_scene(tables: Tables, parameters: Parameters, fields: Fields, scene: Scene) -> Scene:
    """Particles in the observer's frame, after the scene stages."""
    scene = dataclasses.replace(scene, fields=fields)
    for number in range(len(tables.scene)):
        scene = tables.scene_after(number, scene, parameters)
    return scene


def _coordinates(axes: TemplateAxes, scene: Scene) -> tuple[Float[Array, " particle"], ...]:
    return tuple(scene.coordinates[name] for name in axes.coordinate_names)


def add_up(layouts: Sequence[DeviceLayout], tables: Sequence[Tables], partials: Sequence[Partial]) -> list[Partial]:
    """The sums of each observation over all devices; each keeps what it finishes. One collective for each kind of
    `Sum`, whatever the number of observations."""
    leaves, structure = jax.tree.flatten(list(partials))
    ways: list[tuple[Sum, bool]] = []
    for layout, arm, partial in zip(layouts, tables, partials, strict=True):
        in_parts = (Sum.BINS, Sum.ROWS) if layout.scatters else ()
        ways += [(kind, kind in in_parts) for kind in kinds_of_sums(arm, len(jax.tree.leaves(partial)))]
    added = dict[int, Array]()
    for way in itertools.product(Sum, (False, True)):
        numbers = [number for number, chosen in enumerate(ways) if chosen == way]
        added |= zip(numbers, _added([leaves[number] for number in numbers], *way, layouts[0]), strict=True)
    return jax.tree.unflatten(structure, [added[number] for number in range(len(leaves))])


def kinds_of_sums(tables: Tables, n_leaf: int) -> list[Sum]:
    """How each of the `n_leaf` arrays of a partial is added up over the devices."""
    light = [kind for source in tables.paint for kind in source.painter.sums]
    return [*light, *(Sum.PARTICLES for _ in range(n_leaf - len(light)))]


def _added(leaves: list[Array], kind: Sum, in_parts: bool, layout: DeviceLayout) -> list[Array]:
    """Arrays of one kind, added up over the devices; `in_parts`: each keeps its part along "data"."""
    if not leaves:
        return []
    if kind is Sum.EVERYTHING:
        return lax.psum(leaves, (DATA_AXIS, *layout.painted.axes))
    if not in_parts:
        return lax.psum(leaves, DATA_AXIS)
    axis = 1 if kind is Sum.BINS else 0
    beyond = [-np.array(leaf.shape) % layout.n_data * (np.arange(leaf.ndim) == axis) for leaf in leaves]
    even = [jnp.pad(leaf, [(0, int(more)) for more in own]) for leaf, own in zip(leaves, beyond, strict=True)]
    return lax.psum_scatter(even, DATA_AXIS, scatter_dimension=axis, tiled=True)


class Voxels(NamedTuple):
    """(y, x, wave), on each device the bins of its part, fields as those of `PaintedCube`.

    Where the parts are not even the last ones have bins beyond the detector's, to be left out.
    """

    flux: Float[Array, "y x wave"]
    variance: Float[Array, "y x wave"] | None
    truth: Float[Array, "y x wave"] | None
    bits: Int[Array, "y x wave"] | None = None
    contributions: Mapping[str, Float[Array, "y x wave"]] | None = None


class Observed(NamedTuple):
    """What the compiled function returns: voxels, what is the same on all devices, counters by source and field, and
    all bins of the `fibres` that the cube is made of."""

    voxels: Voxels
    moments: Float[Array, "y x 2"]
    products: ProductImages | None
    counters: dict[str, SourceCounters]
    fibres: FibreVoxels | None = None


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
    projected = [own.project(light, spatial, layout) for own, light in zip(painters, partial.light, strict=True)]
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
        painted = Footprint(plan.n_fibre, 1, painted.pixel_scale)
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
    voxels = jax.tree.map(cube.footprint.images, kept)
    moments = cube.footprint.images(cube.moments)
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
    return next((own for own in maps if isinstance(own, WavelengthSpatial)), None)


def seen_through(grid: SpaxelGrid, maps: _SpatialMaps) -> Images:
    """What is seen of painted columns: through these maps, one after the other."""

    def through(chosen: Callable[[WavelengthSpatial], Spatial]) -> Callable[[Array], Array]:
        own = [chosen(one) if isinstance(one, WavelengthSpatial) else one for one in maps]

        def seen(images: Float[Array, "y x k"]) -> Float[Array, "seen k"]:
            images = functools.reduce(lambda images, one: one(images), own, images)
            return images.reshape(-1, images.shape[2])

        return seen

    middle, one = through(lambda one: one.middle), _by_wavelength(maps)
    if one is None:
        return Images(grid, middle)

    def terms(images: Float[Array, "y x k"], sizes: tuple[int, ...]) -> Float[Array, "seen k"]:
        return through(lambda one: lambda images: one.terms(images, sizes))(images)

    return Images(grid, middle, SeenByWavelength(terms, one.shares, through(lambda one: one.bins)))


class Particles(NamedTuple):
    """The particles that each field of a pipeline reads, and each of its sources and maps (`tables.painted`)."""

    fields: tuple[Any, ...]
    sources: tuple[Any, ...]

    @classmethod
    def of(cls, tables: Tables, galaxy: Galaxy) -> "Particles":
        """The particles of a galaxy, or of a device's share; raises ValueError where it has none of a kind."""
        return cls(particles_of(tables.fields, galaxy), particles_of(tables.painted, galaxy))


def observe_share(
    group: Group,
    tables: Sequence[Tables],
    parameters: Sequence[Parameters],
    particles: Particles,
    keys: Sequence[PRNGKeyArray | None],
) -> tuple[Observed, ...]:
    """What every device of the mesh does inside `jax.shard_map`, with its share of the particles.

    Two passes, each of which ends with one collective for all observations: the fields, if there are any, then the
    light.
    """
    plan, first, shared = group.plans[0], tables[0], parameters[0]
    fields = finish_fields(plan, first, shared, sum_fields(plan, first, shared, particles.fields))
    partials = paint_group(group.plans, group.together, tables, shared, fields, particles.sources)
    added = add_up(group.layouts, tables, partials)
    each = zip(group.plans, group.layouts, tables, parameters, added, keys, strict=True)
    return tuple(
        finish(plan, layout, arm, numbers, fields, partial, key) for plan, layout, arm, numbers, partial, key in each
    )


def observe_group(
    group: Group,
    tables: Sequence[Tables],
    parameters: Sequence[Parameters],
    galaxy: Galaxy,
    keys: Sequence[PRNGKeyArray | None],
) -> tuple[Observed, ...]:
    """The whole way: every device paints its own particles, each pass is added up once, and each finishes its bins."""
    whole, split = PartitionSpec(), PartitionSpec(DATA_AXIS)
    mesh = group.layouts[0].mesh
    observed = jax.shard_map(
        functools.partial(observe_share, group),
        mesh=mesh,
        in_specs=(tuple(map(table_specs, tables, group.layouts)), whole, split, whole),
        out_specs=tuple(map(observed_specs, group.layouts)),
        check_vma=SAMPLE_AXIS not in mesh.axis_names,
    )(tuple(tables), tuple(parameters), Particles.of(tables[0], galaxy), tuple(keys))
    return tuple(map(gathered, group.plans, group.layouts, observed))


def observe_anywhere(
    plan: Plan, layout: DeviceLayout, tables: Tables, parameters: Parameters, galaxy: Galaxy, key: PRNGKeyArray | None
) -> Observed:
    """`observe_group` for one observation."""
    return observe_group(Group.of(plan, layout), (tables,), (parameters,), galaxy, (key,))[0]


def observe_together(group: Group, *arguments: Any) -> tuple[Observed, ...]:
    """`observe_group`, put where `observed_shardings` says: not by a jit's, which would bind cotangents, too."""
    made = observe_group(group, *arguments)
    return lax.with_sharding_constraint(made, tuple(map(observed_shardings, group.layouts)))


def observe(
    plan: Plan, layout: DeviceLayout, tables: Tables, parameters: Parameters, galaxy: Galaxy, key: PRNGKeyArray | None
) -> Observed:
    """`observe_together` for one observation."""
    return observe_together(Group.of(plan, layout), (tables,), (parameters,), galaxy, (key,))[0]


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


class Signature(NamedTuple):
    """What a program is compiled for beside its plan: the structure and shapes of the tables and a placed galaxy."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tables: Tables, galaxy: Galaxy) -> "Signature":
        """That of these tables and particles."""
        leaves, structure = jax.tree.flatten((tables, galaxy))
        return cls(structure, tuple(leaf.shape for leaf in leaves))

    def shardings(self, layout: DeviceLayout) -> tuple[Tables, Galaxy]:
        """The spec trees of the tables and the particles."""
        arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.shapes]
        tables, galaxy = jax.tree.unflatten(self.structure, arrays)
        return layout.shardings(table_specs(tables, layout)), particle_shardings(galaxy, layout.mesh)


@held
def compiled_observe(plan: Plan, layout: DeviceLayout, signature: Signature) -> Callable[..., Any]:
    """`observe` under one jit: tables and particles lie as the spec trees say, all else is whole on every device.

    Held, so that pipelines with the same plan on the same mesh share what was compiled.
    """
    whole, (tables, particles) = replicated(layout.mesh), signature.shardings(layout)
    return jax.jit(functools.partial(observe, plan, layout), in_shardings=(tables, whole, particles, whole))


@held
def compiled_together(group: Group, signatures: tuple[Signature, ...]) -> Callable[..., Any]:
    """`observe_together` under one jit, held as `compiled_observe`."""
    whole = replicated(group.layouts[0].mesh)
    shardings = [signature.shardings(layout) for signature, layout in zip(signatures, group.layouts, strict=True)]
    tables, particles = tuple(arm for arm, _ in shardings), shardings[0][1]
    observe = functools.partial(observe_together, group)
    return jax.jit(observe, in_shardings=(tables, whole, particles, whole))

"""Plans of runs, made on the host: sizes, tables, stages, and notes for the user on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import jax
import numpy as np
from astropy.units import Unit
from jax.sharding import Mesh

from rubix_like.arguments import named_arguments, plug_in_named, returned
from rubix_like.config import PipelineSettings, RunConfig, StageSettings
from rubix_like.config.plug_ins import (
    CUBE_STAGES,
    FIBRE_STAGES,
    FIELDS,
    PAINT_STAGES,
    PRODUCTS,
    SCENE_STAGES,
    SYSTEMATIC_STAGES,
)
from rubix_like.config.run_config import DevicesSettings
from rubix_like.config.sections.nebular import YOUNG_STARS
from rubix_like.cube.maps import BALMER_LINES, DustAxes, LineAxes, MapLabel, ProductAxes
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import FastParticles, Setup, SourcePlan
from rubix_like.engine.smoothing import plan_widths
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError, expect, expect_count
from rubix_like.forward.census import Census
from rubix_like.forward.fields.field import AbstractField
from rubix_like.forward.products.line_maps import EmissionLines, choose_lines, line_notes
from rubix_like.forward.products.product import AbstractParticleMaps, AbstractProduct, FieldMaps, GasMaps, ParticleMaps
from rubix_like.forward.products.star_maps import StarAttenuation, StarMaps
from rubix_like.forward.resolved import Resolved
from rubix_like.forward.run_notes import run_notes
from rubix_like.forward.sources.source import AbstractSource, Kind, seen_through_dust
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.forward.stages.base import AbstractCubeStage, AbstractSceneStage
from rubix_like.forward.stages.scene import Dust, relative_attenuation
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.alignment import align
from rubix_like.instrument.field_psf import PSFTerms, find_terms
from rubix_like.instrument.psf import PSFParameters
from rubix_like.runtime.mesh.mesh import DATA_AXIS, WAVE_AXIS, DeviceLayout, check_mesh, make_mesh


def mesh_of(devices: DevicesSettings) -> Mesh:
    """The devices that the settings name; ConfigError where there are fewer."""
    return make_mesh(None if devices.data == "all" else devices.data, devices.wave)


def plan_layout(
    devices: DevicesSettings, mesh: Mesh, n_wave: int, projected: tuple[tuple[int, int], ...]
) -> DeviceLayout:
    """A run's devices and what each of them holds; ConfigError for a mesh of other axes.

    `projected`: of each source the spaxels that are projected on the detector, and from how many coefficients each.
    Where that takes long, devices share the bins even if all of them get the whole cube in the end.
    """
    check_mesh(mesh)
    sharded = devices.output == "sharded" or (devices.output is None and WAVE_AXIS in mesh.axis_names)
    n_data = mesh.shape[DATA_AXIS]
    rates = rates_here()
    alone = sum(rates.projection_seconds(n_spaxel, n_coefficient, n_wave) for n_spaxel, n_coefficient in projected)
    together = sum(rates.gather_seconds(n_spaxel * n_wave) for n_spaxel, _ in projected)
    return DeviceLayout.build(mesh, n_wave, sharded=sharded, shared=alone * (1 - 1 / n_data) > together)


def plan_products(
    setup: Setup,
    sources: tuple[Any, ...],
    stages: tuple[Any, ...],
    fields: Mapping[str, AbstractField],
    lines: LineAxes | None,
    census: Census | None,
) -> tuple[AbstractProduct, ...]:
    """The products of a run, none without `products`; the pipeline's stage `dust` dims those of light.

    Raises ConfigError for bands that are not known or not covered by the library.
    """
    settings = setup.config.products
    if settings is None:
        return ()
    has_screen = any(isinstance(stage, Dust) for stage in stages)
    planned = setup.sources.get(STAR_SOURCE, next(iter(setup.sources.values())))
    fastest = planned.velocity_limit if census is None else float(census.fast.speed[0])
    found: list[AbstractProduct] = [StarMaps.build(setup, fastest, has_screen=has_screen)]
    if settings.gas:
        found.append(ParticleMaps(GasMaps.build(setup, {}), "the maps of products.gas", "set products.gas: false"))
    if lines is not None:
        vacuum = np.array([line.wavelength for line in lines.lines]) * (1.0 + lines.redshift)
        found.append(
            EmissionLines.build(setup, sources, lines, relative_attenuation(setup, vacuum) if has_screen else None)
        )
    mapped = tuple(MapLabel(name, *field.map) for name, field in fields.items() if field.map is not None)
    if mapped:
        found.append(FieldMaps(mapped))
    if settings.dust:
        found.append(StarAttenuation.build(setup, has_screen=has_screen))
    for entry in settings.extra:
        make = PRODUCTS.find(entry.name).build
        maps = _made(entry, make, (AbstractParticleMaps,), setup, section="products.extra", kind="product")
        product = ParticleMaps(maps, f"product '{entry.name}' ({type(maps).__name__})")
        _check_product(product)
        found.append(product)
    labels = [label.name for product in found for label in product.labels]
    names = [name.upper() + end for name in labels for end in ("", "_TRUE")]  # those of the file's extensions
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"products.extra: expected maps of different names (in capitals, also with _TRUE at the end), got "
            f"{twice[0]} twice; take out one product, or let its labels depend on its options"
        )
    return tuple(found)


def _check_product(product: ParticleMaps) -> None:
    """Raise ConfigError unless a plug-in's product has a kind of particles, and a label for each map, which a FITS file
    can hold."""
    if product.kind not in get_args(Kind):
        kinds = " or ".join(map(repr, get_args(Kind)))
        raise ConfigError(f"{product.who}: `kind` must be {kinds}, got {product.kind!r}")
    call = f"{product.who}: `labels`"
    with plug_in_named(call, product.maps):
        labels = product.maps.labels
    if isinstance(labels, MapLabel):
        raise ConfigError(f"{call}: expected a tuple of MapLabel, got a MapLabel; put a comma after it: ({labels},)")
    if not expect(labels, tuple, call, "a tuple of MapLabel"):
        raise ConfigError(f"{call}: expected a MapLabel for each map, got an empty tuple; see docs/how-to-extend.md")
    for given in labels:
        label = returned(given, MapLabel, call, "a MapLabel for each map")
        if not all(isinstance(word, str) and word.isascii() for word in label) or not label.name.isidentifier():
            raise ConfigError(
                f"{call}: expected a name of letters, digits and _, a unit and a description, in ASCII, got {label}"
            )
        try:
            Unit(label.unit, format="fits")
        except ValueError as error:
            raise ConfigError(f"{call}: expected a unit as FITS spells it ('' for none), got '{label.unit}'") from error


def product_axes(setup: Setup, products: tuple[AbstractProduct, ...], lines: LineAxes | None) -> ProductAxes | None:
    """Axes of the maps as their files describe them; None where there are no maps."""
    settings = setup.config.products
    if settings is None:
        return None
    stars = next(product for product in products if isinstance(product, StarMaps))
    curves = [product for product in products if isinstance(product, StarAttenuation)]
    return ProductAxes(
        filters=stars.filters,
        band="detector" if settings.band is None else settings.band,
        velocity=None if stars.losvd is None else stars.losvd.velocity,
        fit_particles=0 if settings.losvd is None else settings.losvd.fit_particles,
        fields=tuple(label for product in products for label in product.labels),
        has_gas=settings.gas,
        lines=lines,
        dust=_dust_axes(setup, curves[0], lines) if curves else None,
    )


def _dust_axes(setup: Setup, curve: StarAttenuation, lines: LineAxes | None) -> DustAxes:
    """Axes for maps of dust, by the curve of the section `dust`, be it of the particles or of the screen."""
    places = {} if lines is None else {line.name: line.wavelength for line in lines.lines}
    wavelength = np.asarray(curve.wavelength)
    if any(name not in places for name in BALMER_LINES):
        return DustAxes(wavelength, None)
    both = np.array([places[name] for name in BALMER_LINES])
    attenuation = seen_through_dust(setup.library.templates(), setup).attenuation
    stretch = 1.0 + setup.config.observation.redshift
    relative = relative_attenuation(setup, both * stretch) if attenuation is None else attenuation(both)
    return DustAxes(wavelength, None if relative is None else float(relative[1] - relative[0]))


@dataclass(frozen=True)
class Planned:
    """A run before it is compiled; `lines`: the emission lines that have maps; `notes` are sentences for the user;
    `projected`: of each source the spaxels that are projected onto the detector, and from how many coefficients."""

    plan: Plan
    tables: Tables
    setup: Setup
    notes: tuple[str, ...]
    lines: LineAxes | None
    projected: tuple[tuple[int, int], ...]


def plan_run(config: RunConfig, resolved: Resolved, census: Census | None) -> Planned:
    """Sizes, tables and stages of a run, for the galaxy of a census if any; ConfigError for what cannot be observed."""
    if census is None and config.resolved_align != "none":
        raise ConfigError(
            f"observation.align: expected 'none' for a pipeline that is built without a galaxy, got "
            f"'{config.resolved_align}'; pass the galaxy to Pipeline.from_config, or set 'align: none'"
        )
    setup = make_setup(config, resolved, census)
    alignment, pipeline = setup.alignment, resolved.pipeline
    if config.noise is not None and not pipeline.has_cube_stage("noise"):
        raise ConfigError(
            f"noise: expected a pipeline with the stage 'noise', got '{pipeline.name}'; add it to the pipeline's cube "
            f"list, or set noise: null"
        )
    paint = tuple(
        _made(entry, PAINT_STAGES.find(entry.name).build, (AbstractSource,), setup, setup.sources[entry.name])
        for entry in pipeline.paint
    )
    for entry, source in zip(pipeline.paint, paint, strict=True):
        returned(source.painter, AbstractPainter, f"source '{entry.name}': `painter`", "a painter (build_painter)")

    def built(find: Callable[[str], Any], entries: Sequence[StageSettings], *kinds: type) -> tuple[Any, ...]:
        return tuple(_made(entry, find(entry.name).build, kinds, setup) for entry in entries)

    listed = built(FIELDS.find, pipeline.fields, AbstractField, type(None))
    scene = built(SCENE_STAGES.find, pipeline.scene, AbstractSceneStage)
    of_cube = (FIBRE_STAGES, SYSTEMATIC_STAGES)  # before those from outside, which cannot take their names over

    def find_cube_stage(name: str) -> Any:
        return next((stages for stages in of_cube if name in stages), CUBE_STAGES).find(name)

    cube = built(find_cube_stage, pipeline.cube, AbstractCubeStage)
    fields = {entry.name: field for entry, field in zip(pipeline.fields, listed, strict=True) if field is not None}
    _check_fields(pipeline, fields, scene, paint, cube)
    margin = _margin(cube, pipeline.cube)
    lines = choose_lines(setup)
    deposit, cells = setup.painting
    beyond = 0 if setup.widths is None else setup.widths.reach
    grid = SpaxelGrid(setup.instrument.footprint.painted(margin, cells).painted(beyond), deposit, setup.widths)
    tables = Tables(
        alignment=None if alignment is None else alignment.rotation,
        arcsec_per_kpc=np.asarray(resolved.arcsec_per_kpc),
        footprint=setup.instrument.footprint,
        grid=grid,
        scene=scene,
        paint=paint,
        cube=cube,
        kernel=build_kernel(config.engine.kernel),
        products=plan_products(setup, paint, cube, fields, lines, census),
        fields=tuple(field.on_grid(grid) for field in fields.values()),
        scene_names=tuple(stage.name for stage in pipeline.scene),
        cube_names=tuple(stage.name for stage in pipeline.cube),
    )
    engine, instrument = config.engine, setup.instrument
    plan = Plan(
        sources=tuple(setup.sources),
        method=", ".join(dict.fromkeys(plan.method for plan in setup.sources.values())),
        deposit=deposit,
        dtype=engine.precision,
        margin=margin + -(-beyond // cells),
        cells=cells,
        n_wave=instrument.bins.n_wave,
        n_fibre=0 if instrument.fibres is None else len(instrument.fibres),
        chunk=rates_here().chunk if engine.chunk == "auto" else engine.chunk,
        fields=tuple(fields),
        scene=tables.scene_names,
        cube=tables.cube_names,
    )
    notes = (
        *(() if alignment is None else alignment.notes),
        *run_notes(setup, paint, census),
        *line_notes(setup, lines),
        *FIELDS.hidden(stage.name for stage in pipeline.fields),
        *SCENE_STAGES.hidden(plan.scene),
        *PAINT_STAGES.hidden(plan.sources),
        *CUBE_STAGES.hidden(plan.cube),
    )
    projected = tuple((grid.footprint.n_element, source.painter.n_coefficient) for source in paint)
    return Planned(plan, tables, setup, notes, lines, projected)


def _check_fields(
    pipeline: PipelineSettings,
    known: Mapping[str, AbstractField],
    scene: tuple[Any, ...],
    paint: tuple[Any, ...],
    cube: tuple[Any, ...],
) -> None:
    """Raise ConfigError for a field that is listed twice, one that is read but missing or empty, or read too early, and
    for one whose map has no unit and description."""
    for name, field in known.items():
        if field.map is not None:
            returned(
                field.map, [str, str], f"field '{name}': `map`", 'a unit and a description, ("", "number of stars")'
            )
    names = [field.name for field in pipeline.fields]
    if len(set(names)) < len(names):
        raise ConfigError(f"pipeline.fields: expected each field once, got {', '.join(names)}")
    for key, stages in (("scene", pipeline.scene), ("cube", pipeline.cube)):
        twice = [stage.name for stage in stages if stages.count(stage) > 1]
        if twice:
            raise ConfigError(f"pipeline.{key}: expected each stage once, got '{twice[0]}' twice; take out one of them")
    for entry, stage in zip(pipeline.stages, (*scene, *paint, *cube), strict=True):
        for name in expect(
            stage.reads, (tuple, list), f"stage '{entry.name}': reads", 'names in brackets, e.g. ("dust_column",)'
        ):
            if name not in names:
                raise ConfigError(
                    f"pipeline.fields: expected '{name}' (stage '{entry.name}' reads it), got "
                    f"{', '.join(names) or 'none'}; add it to the pipeline's fields"
                )
            if name not in known:
                raise ConfigError(
                    f"pipeline.fields: expected a '{name}' that holds something (stage '{entry.name}' reads it), got "
                    f"one that this run leaves empty; give the section that it needs, or take out the stage"
                )
    reads = [bool(stage.reads) for stage in scene]
    for number in range(1, len(scene)):
        if reads[number - 1] and not reads[number]:
            early, late = pipeline.scene[number - 1].name, pipeline.scene[number].name
            raise ConfigError(
                f"pipeline.scene: expected '{late}' before '{early}' (which reads fields: they are summed over the "
                f"scene of all stages that read none), got the other order; swap them"
            )


@named_arguments
def make_setup(config: RunConfig, resolved: Resolved, census: Census | None) -> Setup:
    """The objects that stages may look at, the plans of the pipeline's sources among them; raises ConfigError for what
    cannot be."""
    resolved.checked_for(config)
    lengths = None if census is None else census.all_lengths
    pipeline, scale, cells = resolved.pipeline, resolved.arcsec_per_kpc, resolved.painting.cells
    by, radius = config.resolved_align, config.observation.align_radius
    widths, width_note = plan_widths(config.engine, config.instrument, pipeline, lengths, scale, cells)
    fast = {} if census is None else {"stars": census.fast, "gas": census.gas, YOUNG_STARS: census.young}
    shared = Setup(
        config=config,
        pipeline=pipeline,
        library=resolved.library,
        instrument=resolved.instrument,
        luminosity_distance=resolved.distance,
        arcsec_per_kpc=scale,
        widths=widths,
        painting=resolved.painting,
        particles={
            kind: motions if motions.number else FastParticles.at_rest()
            for kind, motions in fast.items()
            if motions is not None
        },
        notes=tuple(note for note in (resolved.deposit.note, width_note) if note),
        deposit_reason=resolved.deposit.reason,
        psf_terms=_psf_terms(config, resolved),
        alignment=None if census is None or by == "none" else align(by, radius, census.sample),
    )
    names = [source.name for source in pipeline.paint]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"pipeline.paint: expected each source once (its light would be counted twice), got {', '.join(names)}"
        )
    sources = {
        source.name: replace(
            _made(source, PAINT_STAGES.find(source.name).plan, (SourcePlan,), shared),
            step=resolved.velocity_steps.get(source.name),
        )
        for source in pipeline.paint
    }
    return replace(shared, sources=sources)


def _psf_terms(config: RunConfig, resolved: Resolved) -> PSFTerms | None:
    """The terms of a PSF that follows wavelength, where it acts before all other stages of the cube."""
    psf, settings = resolved.instrument.psf, config.instrument.psf
    if psf is None or psf.nodes is None or settings is None or not resolved.pipeline.blurs_first:
        return None
    if config.instrument.is_refracted:
        return None
    widths = {name: np.asarray(value) for name, value in settings.numbers().items()}
    return find_terms(resolved.instrument.psf_field or psf, PSFParameters(**widths))


def _made(
    stage: StageSettings,
    make: Callable[..., Any],
    kinds: tuple[type, ...],
    *planned: Setup | SourcePlan,
    section: str = "pipeline",
    kind: str = "stage",
) -> Any:
    """The stage or product, one of these kinds, made of its options and of what is planned; raises ConfigError for
    options of another kind, and where it is something else."""
    who = f"{kind} '{stage.name}'"
    call = f"{who}: `{'plan' if SourcePlan in kinds else 'build'}`"
    with plug_in_named(call, make):
        found = _called(stage, make, planned, f"{section}: {who}")
    expected = " or ".join(kind.__name__.replace("NoneType", "None") for kind in kinds)
    for path, leaf in jax.tree_util.tree_leaves_with_path(found):
        if isinstance(leaf, str):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise ConfigError(
                f"{who}: {name}: expected a number, got {leaf!r}; check the {kind}'s options, or in its "
                f"class mark a field of text as static (eqx.field(static=True))"
            )
    return returned(found, kinds, call, f"an instance of {expected}")


def _called(stage: StageSettings, make: Callable[..., Any], planned: tuple[Any, ...], place: str) -> Any:
    """The result of a plug-in's `build` or `plan`; ConfigError says which methods its class lacks, and which of its
    options is a setting of its section."""
    member = getattr(make, "__self__", None)
    lacking = sorted({*getattr(member, "__abstractmethods__", ()), *getattr(member, "__abstractvars__", ())})
    names = ", ".join(f"`{name}`" for name in lacking)
    absent = ConfigError(
        f"{place}: expected {names} in the class {getattr(member, '__name__', member)}, got none; define them "
        f"(docs/how-to-extend.md)"
    )
    if getattr(make, "__name__", "") in lacking:
        raise absent
    try:
        return make(*planned, dict(stage.options))
    except TypeError as error:
        if lacking and "abstract" in str(error):
            raise absent from error
        raise ConfigError(f"{place} cannot be built from {dict(stage.options)}: {error}") from error
    except ConfigError as error:
        keys = getattr(getattr(member, "section_type", None), "model_fields", {})
        moved = [key for key in stage.options if key in keys and f"no option '{key}'" in str(error)]
        if not moved:
            raise
        raise ConfigError(f"{error}; `{moved[0]}` is a setting of the section `{stage.name}`") from error


def _margin(stages: tuple[AbstractCubeStage, ...], settings: tuple[StageSettings, ...]) -> int:
    """Spaxels to paint beyond the field; stages that need them come before those that do not."""
    margins = [stage.margin for stage in stages]
    for margin, stage in zip(margins, settings, strict=True):
        expect_count(margin, f"stage '{stage.name}': margin", 0)
    last = max((number for number, margin in enumerate(margins) if margin), default=-1)
    for number in range(last):
        if margins[number] == 0:
            raise ConfigError(
                f"pipeline.cube: expected '{settings[last].name}' before '{settings[number].name}' (it needs light "
                f"from outside the field), got the other order; swap them"
            )
    return sum(margins)

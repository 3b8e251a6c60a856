"""What the host works out before a run: sizes, tables, stages, and what the user should know of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rubix_like.arguments import named_arguments, returned
from rubix_like.config import PipelineSettings, RunConfig, StageSettings
from rubix_like.config.plug_ins import CUBE_STAGES, FIBRE_STAGES, FIELDS, PAINT_STAGES, SCENE_STAGES, SYSTEMATIC_STAGES
from rubix_like.config.sections.nebular import YOUNG_STARS
from rubix_like.cube.maps import LineAxes
from rubix_like.engine.cost import rates_here
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.motion import FastParticles
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan
from rubix_like.engine.smoothing import plan_widths
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.errors import ConfigError, expect, expect_count
from rubix_like.forward.census import Census
from rubix_like.forward.fields.field import AbstractField
from rubix_like.forward.product_planning import (
    plan_attenuation,
    plan_gas,
    plan_line_maps,
    plan_products,
    products_notes,
)
from rubix_like.forward.products.line_choice import choose_lines, line_notes
from rubix_like.forward.resolved import Resolved
from rubix_like.forward.run_notes import run_notes
from rubix_like.forward.sources.source import AbstractSource
from rubix_like.forward.stages.base import AbstractCubeStage, AbstractSceneStage
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.alignment import Alignment, align
from rubix_like.instrument.psf import PSFParameters
from rubix_like.instrument.psf_terms import PSFTerms, find_terms


@dataclass(frozen=True)
class Planned:
    """A run before it is compiled; `lines`: the emission lines that have maps; `notes` are sentences for the user."""

    plan: Plan
    tables: Tables
    setup: Setup
    notes: tuple[str, ...]
    alignment: Alignment | None
    lines: LineAxes | None

    @property
    def projected(self) -> tuple[tuple[int, int], ...]:
        """Of each source the spaxels that are projected onto the detector, and from how many coefficients each."""
        n_spaxel = self.tables.grid.footprint.n_element
        return tuple((n_spaxel, source.painter.n_coefficient) for source in self.tables.paint)


def plan_run(config: RunConfig, resolved: Resolved, census: Census | None) -> Planned:
    """Sizes, tables and stages of a run, for the galaxy of a census if any; ConfigError for what cannot be observed."""
    setup = make_setup(config, resolved, census)
    alignment = _alignment(config, census)
    pipeline = resolved.pipeline
    _check_noise(config, pipeline)
    paint = _sources(setup)
    lists = (
        (FIELDS.find, pipeline.fields, (AbstractField, type(None))),
        (SCENE_STAGES.find, pipeline.scene, (AbstractSceneStage,)),
        (_cube_stage, pipeline.cube, (AbstractCubeStage,)),
    )
    listed, scene, cube = (
        tuple(_made(stage, find(stage.name).build, kind, setup) for stage in stages) for find, stages, kind in lists
    )
    fields = {own.name: field for own, field in zip(pipeline.fields, listed, strict=True) if field is not None}
    _check_fields(pipeline, fields, scene, paint, cube)
    margin = _margin(cube, pipeline.cube)
    products = None if config.products is None else plan_products(setup, paint, cube, census)
    lines = choose_lines(setup)
    tables = Tables(
        alignment=None if alignment is None else alignment.rotation,
        arcsec_per_kpc=np.asarray(resolved.arcsec_per_kpc),
        footprint=setup.instrument.footprint,
        grid=_grid(setup, margin),
        scene=scene,
        paint=paint,
        cube=cube,
        kernel=build_kernel(config.engine.kernel),
        products=products,
        fields=tuple(fields.values()),
        gas=plan_gas(setup),
        lines=plan_line_maps(setup, paint, cube, lines),
        attenuation=plan_attenuation(setup, cube),
        scene_names=tuple(stage.name for stage in pipeline.scene),
        cube_names=tuple(stage.name for stage in pipeline.cube),
    )
    notes = (
        *(() if alignment is None else alignment.notes),
        *run_notes(setup, paint, census),
        *products_notes(setup, census),
        *line_notes(setup, lines),
    )
    return Planned(_plan(setup, margin, tuple(fields)), tables, setup, notes, alignment, lines)


def _plan(setup: Setup, margin: int, fields: tuple[str, ...]) -> Plan:
    """The sizes and switches; `margin` in spaxels, without what wide stars need beyond; `fields`: those with a use."""
    engine, instrument, cells = setup.config.engine, setup.instrument, setup.painting.cells
    return Plan(
        sources=tuple(setup.sources),
        method=", ".join(dict.fromkeys(plan.method for plan in setup.sources.values())),
        deposit=setup.painting.deposit,
        dtype=engine.precision,
        margin=margin + (0 if setup.widths is None else -(-setup.widths.reach // cells)),
        cells=cells,
        n_wave=instrument.bins.n_wave,
        n_fibre=0 if instrument.fibres is None else len(instrument.fibres),
        chunk=rates_here().chunk if engine.chunk == "auto" else engine.chunk,
        fields=fields,
        scene=tuple(stage.name for stage in setup.pipeline.scene),
        cube=tuple(stage.name for stage in setup.pipeline.cube),
    )


def _grid(setup: Setup, margin: int) -> SpaxelGrid:
    """The cells that are painted: those of the field and of a margin in spaxels, and what wide stars need beyond."""
    deposit, cells = setup.painting
    beyond = 0 if setup.widths is None else setup.widths.reach
    return SpaxelGrid(setup.instrument.footprint.painted(margin, cells).painted(beyond), deposit, setup.widths)


def _check_noise(config: RunConfig, pipeline: PipelineSettings) -> None:
    """Raise ConfigError for noise that nothing would add, since files are planned with a variance."""
    if config.noise is not None and not pipeline.has_cube_stage("noise"):
        raise ConfigError(
            f"noise: expected a pipeline with the stage 'noise', got '{pipeline.name}'; add it to the pipeline's cube "
            f"list, or set noise: null"
        )


def _check_fields(
    pipeline: PipelineSettings,
    made: Mapping[str, AbstractField],
    scene: tuple[Any, ...],
    paint: tuple[Any, ...],
    cube: tuple[Any, ...],
) -> None:
    """Raise ConfigError for a field that is listed twice, one that is read but missing or empty, or read too early."""
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
            if name not in made:
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
    widths, width_note = plan_widths(config, pipeline, lengths, scale, cells)
    shared = Setup(
        config=config,
        pipeline=pipeline,
        library=resolved.library,
        instrument=resolved.instrument,
        luminosity_distance=resolved.distance,
        widths=widths,
        painting=resolved.painting,
        particles={} if census is None else _motions(census),
        notes=tuple(note for note in (resolved.deposit.note, width_note) if note),
        deposit_reason=resolved.deposit.reason,
        psf_terms=_psf_terms(config, resolved),
    )
    return replace(shared, sources=_source_plans(shared, resolved.velocity_steps))


def _psf_terms(config: RunConfig, resolved: Resolved) -> PSFTerms | None:
    """The terms of a PSF that follows wavelength, where it acts before all other stages of the cube."""
    psf, settings = resolved.instrument.psf, config.instrument.psf
    if psf is None or psf.nodes is None or settings is None or not resolved.pipeline.blurs_first:
        return None
    if config.instrument.is_refracted:
        return None
    widths = {name: np.asarray(value) for name, value in settings.numbers().items()}
    return find_terms(resolved.instrument.psf_field or psf, PSFParameters(**widths))


def _motions(census: Census) -> dict[str, FastParticles]:
    """The motions of the particles of each kind, where they are known."""
    found = {"stars": census.fast, "gas": census.gas, YOUNG_STARS: census.young}
    return {kind: fast if fast.number else FastParticles.at_rest() for kind, fast in found.items() if fast is not None}


def _source_plans(setup: Setup, steps: Mapping[str, float]) -> dict[str, SourcePlan]:
    """The plan of each source by name; raises ConfigError where one is painted twice."""
    names = [source.name for source in setup.pipeline.paint]
    if len(set(names)) < len(names):
        raise ConfigError(
            f"pipeline.paint: expected each source once (its light would be counted twice), got {', '.join(names)}"
        )
    plans = {
        source.name: _made(source, PAINT_STAGES.find(source.name).plan, (SourcePlan,), setup)
        for source in setup.pipeline.paint
    }
    return {name: replace(plan, step=steps.get(name)) for name, plan in plans.items()}


def _sources(setup: Setup) -> tuple[AbstractSource, ...]:
    """The sources with their painters."""
    sources = []
    for entry in setup.pipeline.paint:
        build = PAINT_STAGES.find(entry.name).build
        source = _made(entry, build, (AbstractSource,), setup, setup.sources[entry.name])
        returned(source.painter, AbstractPainter, f"source '{entry.name}': `painter`", "a painter (build_painter)")
        sources.append(source)
    return tuple(sources)


def _cube_stage(name: str) -> Any:
    """A stage on the cube, those that only instruments and systematic errors bring among them."""
    return next((stages for stages in (FIBRE_STAGES, SYSTEMATIC_STAGES) if name in stages), CUBE_STAGES).find(name)


def _made(stage: StageSettings, make: Callable[..., Any], kinds: tuple[type, ...], *planned: Setup | SourcePlan) -> Any:
    """What a stage makes of its options and of what is planned, of these kinds; raises ConfigError for options of
    another kind, and for a stage that makes something else."""
    try:
        made = make(*planned, dict(stage.options))
    except TypeError as error:
        raise ConfigError(
            f"pipeline: stage '{stage.name}' cannot be built from {dict(stage.options)}: {error}"
        ) from error
    call = "plan" if SourcePlan in kinds else "build"
    expected = " or ".join(kind.__name__.replace("NoneType", "None") for kind in kinds)
    return returned(made, kinds, f"stage '{stage.name}': `{call}`", f"an instance of {expected}")


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


def _alignment(config: RunConfig, census: Census | None) -> Alignment | None:
    by = config.resolved_align
    if by == "none":
        return None
    if census is None:
        raise ConfigError(
            f"observation.align: expected 'none' for a pipeline that is built without a galaxy, got '{by}'; pass the "
            f"galaxy to Pipeline.from_config, or set 'align: none'"
        )
    return align(by, config.observation.align_radius, census.sample)

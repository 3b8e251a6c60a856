"""What the host works out before a run: sizes, tables, stages, and what the user should know of them."""

from dataclasses import dataclass

import numpy as np

from rubix_like.config import PipelineSettings, RunConfig, StageSettings, load_pipeline
from rubix_like.config.plug_ins import CUBE_STAGES, PAINT_STAGES, SCENE_STAGES
from rubix_like.engine.cost import Work, basis_seconds, direct_seconds
from rubix_like.engine.motion import LARGEST_STEP, Motion, plan_motion
from rubix_like.engine.setup import Setup
from rubix_like.engine.smoothing import WidthClasses, plan_widths
from rubix_like.engine.spaxels import CORNERS, SpaxelGrid
from rubix_like.errors import ConfigError
from rubix_like.forward.census import Census
from rubix_like.forward.product_planning import plan_products, products_notes
from rubix_like.forward.run_notes import run_notes
from rubix_like.forward.stages.base import AbstractCubeStage
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.alignment import Alignment, align
from rubix_like.instrument.detector import LineSpread
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.painting import Painting, plan_painting
from rubix_like.instrument.response import n_fine_bins
from rubix_like.physics.cosmology import arcsec_per_kpc, observed_distance
from rubix_like.runtime.registry import Registry
from rubix_like.ssp import SSPLibrary

_DEFAULT_VELOCITY_LIMIT = 4000.0
_VELOCITY_LADDER = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)


@dataclass(frozen=True)
class Planned:
    """A run before it is compiled; `notes` are sentences for the user."""

    plan: Plan
    tables: Tables
    setup: Setup
    notes: tuple[str, ...]
    alignment: Alignment | None

    @property
    def projected(self) -> tuple[tuple[int, int], ...]:
        """Of each component the spaxels that are projected onto the detector, and from how many coefficients each."""
        n_spaxel = self.tables.grid.n_y * self.tables.grid.n_x
        return tuple((n_spaxel, component.painter.n_coefficient) for component in self.tables.paint)


def plan_run(config: RunConfig, library: SSPLibrary, census: Census | None) -> Planned:
    """Sizes, tables and stages of a run, for the galaxy of a census if any; ConfigError for what cannot be observed."""
    setup = make_setup(config, library, census)
    alignment = _alignment(config, census)
    pipeline = load_pipeline(config.pipeline)
    _check_noise(config, pipeline)
    scene, paint, cube = (
        tuple(_build(registry, stage, setup) for stage in stages)
        for registry, stages in (
            (SCENE_STAGES, pipeline.scene),
            (PAINT_STAGES, pipeline.paint),
            (CUBE_STAGES, pipeline.cube),
        )
    )
    margin = _margin(cube, pipeline.cube)
    products = None if config.products is None else plan_products(setup, paint, cube, census)
    tables = Tables(
        alignment=None if alignment is None else alignment.rotation,
        arcsec_per_kpc=np.asarray(arcsec_per_kpc(setup.luminosity_distance, config.observation.redshift)),
        grid=_grid(setup, margin),
        scene=scene,
        paint=paint,
        cube=cube,
        products=products,
    )
    notes = (
        *(() if alignment is None else alignment.notes),
        *run_notes(setup, pipeline, paint, census),
        *products_notes(setup, census),
    )
    return Planned(_plan(setup, margin), tables, setup, notes, alignment)


def _plan(setup: Setup, margin: int) -> Plan:
    """The sizes and switches; `margin` in spaxels, without what wide stars need beyond."""
    engine, instrument, cells = setup.config.engine, setup.instrument, setup.painting.cells
    return Plan(
        method=setup.method,
        deposit=engine.deposit,
        dtype=engine.precision,
        n_y=instrument.n_y,
        n_x=instrument.n_x,
        margin=margin + (0 if setup.widths is None else -(-setup.widths.reach // cells)),
        cells=cells,
        n_wave=instrument.bins.n_wave,
        chunk=engine.chunk,
    )


def _grid(setup: Setup, margin: int) -> SpaxelGrid:
    """The cells that are painted: those of the field and of a margin in spaxels, and what wide stars need beyond."""
    instrument, (deposit, cells) = setup.instrument, setup.painting
    beyond = 0 if setup.widths is None else setup.widths.reach
    n_y, n_x = (cells * (size + 2 * margin) + 2 * beyond for size in (instrument.n_y, instrument.n_x))
    return SpaxelGrid(np.asarray(instrument.pixel_scale / cells), n_y, n_x, deposit, setup.widths)


def _check_noise(config: RunConfig, pipeline: PipelineSettings) -> None:
    """Raise ConfigError for noise that nothing would add, since files are planned with a variance."""
    if config.noise is not None and not pipeline.has_cube_stage("noise"):
        raise ConfigError(
            f"noise: expected a pipeline with the stage 'noise', got '{pipeline.name}'; add it to the pipeline's cube "
            f"list, or set noise: null"
        )


def make_setup(config: RunConfig, library: SSPLibrary, census: Census | None) -> Setup:
    """What stages may look at; raises ConfigError where the detector lies wholly outside the library."""
    observation = config.observation
    painting = plan_painting(config, load_pipeline(config.pipeline))
    instrument = Instrument.build(config.instrument, painting)
    distance = observed_distance(observation.cosmology, observation.redshift, observation.distance)
    spread = LineSpread(instrument.bins, library, observation.redshift, instrument.lsf)
    velocity_limit = _velocity_limit(config, census)
    lengths = None if census is None else census.lengths
    widths, width_note = plan_widths(config, lengths, arcsec_per_kpc(distance, observation.redshift), painting.cells)
    work = _work(config, library, instrument, census, spread, (painting, widths))
    method, motion = _method_and_motion(config, census, work)
    return Setup(
        config=config,
        library=library,
        instrument=instrument,
        spread=spread,
        method=method,
        motion=motion,
        velocity_limit=velocity_limit,
        luminosity_distance=distance,
        widths=widths,
        painting=painting,
        notes=(width_note,) if width_note else (),
        covered=_covered(spread, max(velocity_limit, motion.limit + LARGEST_STEP)),
    )


def _build(registry: Registry, stage: StageSettings, setup: Setup):
    try:
        return registry.find(stage.name).build(setup, dict(stage.options))
    except TypeError as error:
        raise ConfigError(
            f"pipeline: stage '{stage.name}' cannot be built from {dict(stage.options)}: {error}"
        ) from error


def _margin(stages: tuple[AbstractCubeStage, ...], settings: tuple[StageSettings, ...]) -> int:
    """Spaxels to paint beyond the field; stages that need them come before those that do not."""
    margins = [stage.margin for stage in stages]
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


def _velocity_limit(config: RunConfig, census: Census | None) -> float:
    """Largest |v_los| in km/s that the tables hold: `engine.velocity_range`, or the galaxy's with room to spare."""
    if config.engine.velocity_range is not None:
        return config.engine.velocity_range
    if census is None:
        return _DEFAULT_VELOCITY_LIMIT
    needed = 1.2 * (census.fast.fastest + abs(config.observation.velocity_offset))
    fitting = [limit for limit in _VELOCITY_LADDER if limit >= needed]
    if not fitting:
        raise ValueError(
            f"stars.velocity: expected speeds below {_VELOCITY_LADDER[-1] / 1.2:.0f} km/s, got "
            f"{needed / 1.2:.4g} km/s (with observation.velocity_offset); check the unit (km/s), or give "
            f"engine.velocity_range"
        )
    return fitting[0]


def _covered(spread: LineSpread, velocity_limit: float) -> np.ndarray:
    """Which detector bins see only the library, line spread included, for every velocity up to the limit."""
    covered = spread.covered(-velocity_limit, velocity_limit)
    if not covered.any():
        bins, library = spread.bins, spread.library
        first, last = library.rest_wavelength[[0, -1]]
        stretch = 1.0 + spread.redshift
        raise ConfigError(
            f"instrument.wavelength: expected the detector to see the SSP library '{library.name}' "
            f"({first:.5g}-{last:.5g} Angstrom, at this redshift {first * stretch:.5g}-{last * stretch:.5g}) at "
            f"velocities up to {velocity_limit:g} km/s, got {bins.edges[0]:.5g}-{bins.edges[-1]:.5g} Angstrom; "
            f"change the instrument, the redshift or the library"
        )
    return covered


def _work(
    config: RunConfig,
    library: SSPLibrary,
    instrument: Instrument,
    census: Census | None,
    spread: LineSpread,
    painted: tuple[Painting, WidthClasses | None],
) -> Work:
    """The sizes that costs go by."""
    painting, widths = painted
    n_layer, n_shared, beyond = (1, 1, 0) if widths is None else (widths.n_layer, 2, widths.reach)
    n_y, n_x = (
        painting.cells * (size + 2 * instrument.psf_reach) + 2 * beyond for size in (instrument.n_y, instrument.n_x)
    )
    return Work(
        n_particle=0 if census is None else census.n_stars,
        n_corner=CORNERS[config.engine.deposit] ** 2 * n_shared,
        n_spaxel=n_layer * n_y * n_x,
        n_template=len(library.log_age) * len(library.metallicity),
        n_wave=instrument.bins.n_wave,
        n_fine=n_fine_bins(instrument.bins, spread),
    )


def _method_and_motion(config: RunConfig, census: Census | None, work: Work) -> tuple[str, Motion]:
    """The method, `auto` decided, and the span of the velocity nodes of `basis`.

    `auto` is the cheaper of the two by `cost`; `direct` where nothing says how fast the stars are.
    """
    method, limit = config.engine.method, config.engine.velocity_range
    unknown = census is None and limit is None
    if method == "basis" and unknown:
        raise ConfigError(
            "engine.velocity_range: expected the largest |v_los| for method 'basis' in a pipeline that is built "
            "without a galaxy, got null; give it (e.g. 1000 km/s) or pass the galaxy to Pipeline.from_config"
        )
    if method == "direct" or (method == "auto" and unknown):
        return "direct", Motion(0.0, 0)
    motion = Motion(limit or 0.0, 0)
    if census is not None and limit is None:
        motion = plan_motion(census.fast, census.n_stars, work)
    if method != "auto":
        return method, motion
    cheaper = census is not None and direct_seconds(work) < basis_seconds(work, motion.limit, motion.capacity)
    return ("direct" if cheaper else "basis"), motion

"""What the host works out before a run: sizes, tables, stages, and what the user should know of them."""

from dataclasses import dataclass

import numpy as np

from rubix_like.config import PipelineSettings, RunConfig, StageSettings, load_pipeline
from rubix_like.constants import ARCSEC_PER_RADIAN
from rubix_like.cosmology import find_cosmology, luminosity_distance, universe_age
from rubix_like.cost import Work, basis_seconds, direct_seconds
from rubix_like.detector import LineSpread
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy
from rubix_like.geometry import alignment_rotation
from rubix_like.instrument import Instrument
from rubix_like.motion import LARGEST_STEP, Motion, plan_motion
from rubix_like.products.planning import plan_products, products_notes
from rubix_like.registry import Registry
from rubix_like.response import n_fine_bins
from rubix_like.setup import Setup
from rubix_like.smoothing import WidthClasses, plan_widths
from rubix_like.spaxels import CORNERS, SpaxelGrid
from rubix_like.ssp import SSPLibrary
from rubix_like.stages import CUBE_STAGES, PAINT_STAGES, SCENE_STAGES, AbstractComponent, AbstractCubeStage
from rubix_like.tables import Plan, Tables

_DEFAULT_VELOCITY_LIMIT = 4000.0
_VELOCITY_LADDER = (1000.0, 2000.0, 4000.0, 8000.0, 16000.0, 32000.0)


@dataclass(frozen=True)
class Planned:
    """A run before it is compiled; `notes` are sentences for the user."""

    plan: Plan
    tables: Tables
    setup: Setup
    notes: tuple[str, ...]


def plan_run(config: RunConfig, library: SSPLibrary, galaxy: Galaxy | None) -> Planned:
    """Sizes, tables and stages of a run; raises ConfigError for what cannot be observed."""
    setup = make_setup(config, library, galaxy)
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
    margin = _margin(cube, pipeline.cube) + (0 if setup.widths is None else setup.widths.reach)
    n_y, n_x = setup.instrument.n_y + 2 * margin, setup.instrument.n_x + 2 * margin
    products = None if config.products is None else plan_products(setup, paint, cube, galaxy)
    tables = Tables(
        alignment=_alignment(config, galaxy),
        arcsec_per_kpc=np.asarray(_arcsec_per_kpc(config, setup.luminosity_distance)),
        grid=SpaxelGrid(setup.instrument.pixel_scale, n_y, n_x, config.engine.deposit, setup.widths),
        scene=scene,
        paint=paint,
        cube=cube,
        products=products,
    )
    plan = Plan(
        method=setup.method,
        deposit=config.engine.deposit,
        dtype=config.engine.precision,
        n_y=setup.instrument.n_y,
        n_x=setup.instrument.n_x,
        margin=margin,
        n_wave=setup.instrument.bins.n_wave,
        chunk=config.engine.chunk,
    )
    notes = (*_notes(setup), *_unused_notes(config, pipeline), *_accuracy_notes(paint, config))
    return Planned(plan, tables, setup, (*notes, *_age_notes(setup, galaxy), *products_notes(setup, galaxy)))


def _check_noise(config: RunConfig, pipeline: PipelineSettings) -> None:
    """Raise ConfigError for noise that nothing would add, since files are planned with a variance."""
    if config.noise is not None and not pipeline.has_cube_stage("noise"):
        raise ConfigError(
            f"noise: expected a pipeline with the stage 'noise', got '{pipeline.name}'; add it to the pipeline's cube "
            f"list, or set noise: null"
        )


def _unused_notes(config: RunConfig, pipeline: PipelineSettings) -> list[str]:
    """Says so where the pipeline has no stage for the run's dust."""
    if config.dust is None or pipeline.has_cube_stage("dust"):
        return []
    return [f"the pipeline '{pipeline.name}' has no stage 'dust': the section dust has no effect"]


def _accuracy_notes(components: tuple[AbstractComponent, ...], config: RunConfig) -> list[str]:
    """Says so where the error of a spectrum is more than the tolerance allows for."""
    errors = [component.painter.report().get("basis_spectrum_error", 0.0) for component in components]
    return [
        f"method basis reaches an rms error of {error:.1e} instead of engine.tolerance, {config.engine.tolerance:g}; "
        f"use method direct where that is too much"
        for error in errors
        if error > 1.2 * config.engine.tolerance
    ]


def make_setup(config: RunConfig, library: SSPLibrary, galaxy: Galaxy | None) -> Setup:
    """What stages may look at; raises ConfigError where the detector lies wholly outside the library."""
    observation = config.observation
    instrument = Instrument.build(config.instrument)
    distance = observation.distance
    if distance is None:
        distance = luminosity_distance(find_cosmology(observation.cosmology), observation.redshift)
    spread = LineSpread(instrument.bins, library, observation.redshift, instrument.lsf)
    velocity_limit = _velocity_limit(config, galaxy)
    widths, width_note = plan_widths(config, galaxy, _arcsec_per_kpc(config, distance))
    work = _work(config, library, instrument, galaxy, spread, widths)
    method, motion = _method_and_motion(config, galaxy, spread, work)
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


def _alignment(config: RunConfig, galaxy: Galaxy | None) -> np.ndarray | None:
    if config.resolved_align == "none":
        return None
    if galaxy is None:
        raise ConfigError(
            "observation.align: expected 'none' for a pipeline that is built without a galaxy, got 'stars'; pass the "
            "galaxy to Pipeline.from_config, or set 'align: none'"
        )
    stars = galaxy.stars
    mass = np.asarray(stars.initial_mass if stars.mass is None else stars.mass)
    if stars.weight is not None:  # padding of a placed galaxy has none
        mass = mass * np.asarray(stars.weight)
    return alignment_rotation(np.asarray(stars.position), np.asarray(stars.velocity), mass)


def _velocity_limit(config: RunConfig, galaxy: Galaxy | None) -> float:
    """Largest |v_los| in km/s that the tables hold: `engine.velocity_range`, or the galaxy's with room to spare."""
    if config.engine.velocity_range is not None:
        return config.engine.velocity_range
    if galaxy is None:
        return _DEFAULT_VELOCITY_LIMIT
    speed = np.linalg.norm(np.asarray(galaxy.stars.velocity, dtype=np.float64), axis=1).max()
    needed = 1.2 * (float(speed) + abs(config.observation.velocity_offset))
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


def _arcsec_per_kpc(config: RunConfig, luminosity_distance: float) -> float:
    """By the angular-diameter distance, D_L / (1 + z)^2 (Mpc)."""
    return ARCSEC_PER_RADIAN * (1.0 + config.observation.redshift) ** 2 / (1e3 * luminosity_distance)


def _work(
    config: RunConfig,
    library: SSPLibrary,
    instrument: Instrument,
    galaxy: Galaxy | None,
    spread: LineSpread,
    widths: WidthClasses | None,
) -> Work:
    """The sizes that costs go by."""
    n_layer, n_shared, reach = (1, 1, 0) if widths is None else (widths.n_layer, 2, widths.reach)
    margin = instrument.psf_reach + reach
    return Work(
        n_particle=0 if galaxy is None else len(galaxy.stars.initial_mass),
        n_corner=CORNERS[config.engine.deposit] ** 2 * n_shared,
        n_spaxel=n_layer * (instrument.n_y + 2 * margin) * (instrument.n_x + 2 * margin),
        n_template=len(library.log_age) * len(library.metallicity),
        n_wave=instrument.bins.n_wave,
        n_fine=n_fine_bins(instrument.bins, spread),
    )


def _method_and_motion(config: RunConfig, galaxy: Galaxy | None, spread: LineSpread, work: Work) -> tuple[str, Motion]:
    """The method, `auto` decided, and the span of the velocity nodes of `basis`.

    `auto` is the cheaper of the two by `cost`; `direct` where nothing says how fast the stars are.
    """
    method, limit = config.engine.method, config.engine.velocity_range
    unknown = galaxy is None and limit is None
    if method == "basis" and unknown:
        raise ConfigError(
            "engine.velocity_range: expected the largest |v_los| for method 'basis' in a pipeline that is built "
            "without a galaxy, got null; give it (e.g. 1000 km/s) or pass the galaxy to Pipeline.from_config"
        )
    if method == "direct" or (method == "auto" and unknown):
        return "direct", Motion(0.0, 0)
    motion = Motion(limit or 0.0, 0)
    if galaxy is not None and limit is None:
        motion = plan_motion(config, galaxy, spread, work)
    if method != "auto":
        return method, motion
    cheaper = galaxy is not None and direct_seconds(work) < basis_seconds(work, motion.limit, motion.capacity)
    return ("direct" if cheaper else "basis"), motion


def _age_notes(setup: Setup, galaxy: Galaxy | None) -> tuple[str, ...]:
    """Says so when stars are older than the Universe at the redshift where the galaxy is put."""
    if galaxy is None:
        return ()
    observation = setup.config.observation
    limit = np.log10(universe_age(find_cosmology(observation.cosmology), observation.redshift))
    older = np.asarray(galaxy.stars.log_age) > limit + 1e-3
    if galaxy.stars.weight is not None:
        older &= np.asarray(galaxy.stars.weight) > 0
    if not older.any():
        return ()
    return (
        f"{older.sum()} stars are older than the Universe at redshift {observation.redshift:g} "
        f"({10 ** (limit - 9):.3g} Gyr); they are observed as they are",
    )


def _notes(setup: Setup) -> tuple[str, ...]:
    notes = [*setup.notes, *([setup.motion.note] if setup.method == "basis" and setup.motion.note else [])]
    library, wavelength = setup.library, setup.instrument.bins.wavelength
    _, effective, instrument = setup.spread.widths(wavelength)
    ssp_wider = setup.instrument.lsf is not None and effective > instrument * (1 + 1e-6)
    if np.any(ssp_wider):
        share, worst = np.mean(ssp_wider), np.max(effective / np.maximum(instrument, 1e-12))
        finer = "" if library.name == "bc03-miles" else "; for a finer library: rubix-like ssp get bc03-miles"
        notes.append(
            f"the SSP library '{library.name}' is coarser than the instrument in {share:.0%} of the bins (up to "
            f"{worst:.1f} times its LSF); the file's LSF table holds the effective width{finer}"
        )
    if not setup.covered.all():
        notes.append(
            f"{np.mean(~setup.covered):.1%} of the detector's bins lie outside the SSP library '{library.name}' "
            f"and are flagged in the mask (bit 1)"
        )
    return tuple(notes)

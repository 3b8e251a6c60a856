"""What the host works out before a run: sizes, tables, stages, and what the user should know of them."""

from dataclasses import dataclass

import numpy as np

from rubix_like.config import RunConfig, StageSettings, load_pipeline
from rubix_like.constants import ARCSEC_PER_RADIAN, FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.cosmology import find_cosmology, luminosity_distance, universe_age
from rubix_like.detector import LineSpread
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy
from rubix_like.gaussian import ENCLOSED_SIGMAS
from rubix_like.geometry import alignment_rotation
from rubix_like.instrument import Instrument
from rubix_like.methods import resolve_method
from rubix_like.registry import Registry
from rubix_like.setup import Setup
from rubix_like.spaxels import SpaxelGrid
from rubix_like.ssp import SSPLibrary
from rubix_like.stages import CUBE_STAGES, PAINT_STAGES, SCENE_STAGES, AbstractCubeStage
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
    scene, paint, cube = (
        tuple(_build(registry, stage, setup) for stage in stages)
        for registry, stages in (
            (SCENE_STAGES, pipeline.scene),
            (PAINT_STAGES, pipeline.paint),
            (CUBE_STAGES, pipeline.cube),
        )
    )
    margin = _margin(cube, pipeline.cube)
    n_y, n_x = setup.instrument.n_y + 2 * margin, setup.instrument.n_x + 2 * margin
    observation = config.observation
    angular_distance = setup.luminosity_distance / (1.0 + observation.redshift) ** 2
    tables = Tables(
        alignment=_alignment(config, galaxy),
        arcsec_per_kpc=np.asarray(ARCSEC_PER_RADIAN / (1e3 * angular_distance)),
        velocity_limit=np.asarray(setup.velocity_limit),
        grid=SpaxelGrid(setup.instrument.pixel_scale, n_y, n_x, config.engine.deposit),
        scene=scene,
        paint=paint,
        cube=cube,
    )
    plan = Plan(
        method=resolve_method(config.engine.method),
        deposit=config.engine.deposit,
        dtype=config.engine.precision,
        n_y=setup.instrument.n_y,
        n_x=setup.instrument.n_x,
        margin=margin,
        n_wave=setup.instrument.bins.n_wave,
        chunk=config.engine.chunk,
    )
    return Planned(plan, tables, setup, _notes(setup) + _age_notes(setup, galaxy))


def make_setup(config: RunConfig, library: SSPLibrary, galaxy: Galaxy | None) -> Setup:
    """What stages may look at; raises ConfigError where the detector lies wholly outside the library."""
    observation = config.observation
    instrument = Instrument.build(config.instrument)
    distance = observation.distance
    if distance is None:
        distance = luminosity_distance(find_cosmology(observation.cosmology), observation.redshift)
    spread = LineSpread(instrument.bins, library, observation.redshift, instrument.lsf)
    velocity_limit = _velocity_limit(config, galaxy)
    return Setup(
        config=config,
        library=library,
        instrument=instrument,
        spread=spread,
        velocity_limit=velocity_limit,
        luminosity_distance=distance,
        covered=_covered(spread, velocity_limit),
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
    stretch = 1.0 + spread.redshift
    margin = np.exp(velocity_limit / SPEED_OF_LIGHT)
    bins, library = spread.bins, spread.library
    reach = ENCLOSED_SIGMAS * spread.widths(bins.wavelength)[0] / FWHM_PER_SIGMA
    low, high = (bins.to_vacuum(edge) / stretch for edge in (bins.edges[:-1] - reach, bins.edges[1:] + reach))
    first, last = library.rest_wavelength[[0, -1]]
    covered = (low / margin >= first) & (high * margin <= last)
    if not covered.any():
        raise ConfigError(
            f"instrument.wavelength: expected the detector to see the SSP library '{library.name}' "
            f"({first:.5g}-{last:.5g} Angstrom, at this redshift {first * stretch:.5g}-{last * stretch:.5g}) at "
            f"velocities up to {velocity_limit:g} km/s, got {bins.edges[0]:.5g}-{bins.edges[-1]:.5g} Angstrom; "
            f"change the instrument, the redshift or the library"
        )
    return covered


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
    notes = []
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

"""The posterior that is fitted, made from a configuration, or a pipeline, and an observed cube; its models on devices.

A mesh ("sample", "data") has rows that each compute samples of their own: each row is a group of devices that share the
particles of one model at a time. Rows never wait for one another, so that chains may make steps of any number.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, ArrayLike, Bool
from numpy import ndarray

from rubix_like.config import RunConfig, load_config
from rubix_like.config.parameters import Declaration
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.readers.synthetic import SyntheticReader
from rubix_like.config.sections.fit import FitSettings
from rubix_like.cube.observed import ObservedCube
from rubix_like.cube.observed.observed_cube import check_any_used, choose_voxels
from rubix_like.engine.lines.line_plan import LineMap
from rubix_like.errors import ConfigError
from rubix_like.forward.model import table_specs
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.resolved import Resolved, decisive_settings, resolve
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.forward.stages.noise import Noise
from rubix_like.forward.systematics.systematic import AbstractSystematic
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, named_leaves
from rubix_like.galaxy.limits import MOST_VELOCITY_RANGE
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import draw_base
from rubix_like.galaxy.synthetic_defaults import GAS_PARAMETERS
from rubix_like.galaxy.validation import validate
from rubix_like.inference.data_grid import check_same_grid, on_grid_of
from rubix_like.inference.fitted_set import FittedSet
from rubix_like.inference.likelihoods.kinds import make_errors, with_correlation
from rubix_like.inference.likelihoods.voxel_errors import check_residuals
from rubix_like.inference.populations.populations import method_for_mixtures, mixtures_of, without_spread_ages
from rubix_like.inference.posterior.fit_model import (
    GALAXY,
    LIKELIHOOD,
    NOISE_SCALE,
    STARS,
    V_LOS,
    AbstractParticleSource,
    ComponentsSource,
    Forward,
    Free,
    HeldSource,
    Latent,
    ModelSource,
    SyntheticSource,
    Values,
    line_of_sight,
    read_prior,
    shown,
)
from rubix_like.inference.posterior.free_parameters import (
    REACH,
    SMALLEST_LATENT,
    age_notes,
    declared_by,
    find_parameter,
    library_notes,
    read_free,
    read_start,
)
from rubix_like.inference.posterior.posterior import Likelihood, Polynomial, Posterior, legendre_basis, on_mesh
from rubix_like.instrument.crowding import AUTO
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.psf import USUAL_CHANGE
from rubix_like.physics.plausibility import implausible_voxels
from rubix_like.readers.galaxy_loading import load
from rubix_like.readers.model_readers import AbstractModelReader, point_numbers
from rubix_like.runtime.mesh.mesh import DATA_AXIS, SAMPLE_AXIS, DeviceLayout, put, replicated
from rubix_like.runtime.progress import Report, silent
from rubix_like.runtime.words import percent
from rubix_like.ssp import SSPLibrary

_RANDOM_DRAWS = (
    "the synthetic galaxy's base draws are random: its particle noise is lower with galaxy.draws: sobol, and "
    "fit.model_error takes account of what is left of it"
)

_WIDEST = 3.0
"""Latent of the width of the PSF for which the field's margin is made, and less it that of the narrowest lines."""

_LARGEST_CHANGE = 0.6
"""Largest relative change of the PSF's width, or of its beta, within their priors that images are planned for."""

_PRIOR_DRAWS = 64
"""Draws from the prior by which the fastest star is looked for."""

_ROOM = 1.2
"""Factor on the speed of the fastest star of those draws."""

_LEAST_RANGE = 10.0
"""km/s: for galaxies that are at rest."""

_NO_RUN: Mapping[str, Any] = {}
"""The record of data that no run of ours has made."""


Given = Galaxy | SyntheticSource | ComponentsSource | AbstractGalaxyModel
"""What can be given in Python in place of a configuration's galaxy."""


@dataclass(frozen=True)
class Problem:
    """A fit that is ready to start: the posterior, the data on its grid, the model's pipeline (without noise).

    `start`: latents at which the first start begins; None: drawn from the prior like the others. `sets`: several
    sets of data; `observed` and `pipeline` are then those of the first cube.
    """

    posterior: Posterior
    observed: ObservedCube
    pipeline: Pipeline
    settings: FitSettings
    notes: tuple[str, ...]
    start: Latent | None = None
    sets: tuple[FittedSet, ...] = ()

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines of all sets of data, or that of the one cube."""
        return tuple(data_set.pipeline for data_set in self.sets) or (self.pipeline,)

    @property
    def first_cube(self) -> FittedSet | None:
        """The set whose data and pipeline stand for all; None of one cube."""
        return next((data_set for data_set in self.sets if data_set.pipeline is self.pipeline), None)

    def shown(self, row: Any) -> Any:
        """The voxels (..., y, x, wave) that stand for the data in pictures and guesses: those of the first cube among
        the voxels of all sets; of one cube all."""
        return row if self.first_cube is None else self.first_cube.unpacked(row)


def pose(
    config_or_pipeline: RunConfig | Pipeline,
    observed: ObservedCube,
    settings: FitSettings,
    galaxy: Given | None = None,
    n_sample: int = 1,
    report: Report = silent,
) -> Problem:
    """The posterior of a fit; `n_sample`: how many starts are computed at once, each on its share of the devices.

    Raises ConfigError for settings and ValueError for data that cannot be used.
    """
    observed, selection = select_bins(without_bad_voxels(observed, settings), settings)
    of_errors = {LIKELIHOOD: make_errors(settings.likelihood)}
    if isinstance(config_or_pipeline, Pipeline):
        pipeline, source = config_or_pipeline, _given_source(galaxy)
        check_same_grid(pipeline.frame, observed)
        notes: tuple[str, ...] = ()
    else:
        config = for_model(on_grid_of(config_or_pipeline, observed), settings, noise=None, systematics=None)
        config = with_fit_deposit(config, settings, galaxy, observed.meta)
        pipeline, source, notes = planned(config, settings, galaxy, of_errors, report)
    pipeline = without_noise(pipeline)
    source = without_unread_gas(source, pipeline, settings)
    trees = trees_of(source, pipeline.parameters, sight_of(source, pipeline)) | of_errors
    free = read_free(settings, trees, pipeline.plan.deposit, model_declarations(source))
    check_masses(source, free)
    check_line_widths(free, pipeline)
    pipeline = for_samples(pipeline, n_sample)
    likelihood = make_likelihood(observed, selection, pipeline, settings, free)
    check_residuals(of_errors[LIKELIHOOD], likelihood.flux, likelihood.inverse_sigma)
    forward = _with_mixtures(forward_of(pipeline, source), pipeline, settings, likelihood)
    likelihood = dataclasses.replace(likelihood, errors=of_errors[LIKELIHOOD])
    solved, of_fibres = forward.mixtures is not None, pipeline.frame.fibres is not None
    likelihood, of_data = with_correlation(likelihood, observed, settings, solved=solved, of_fibres=of_fibres)
    of_run = notes_on_run(observed.meta, pipeline.frame.meta)
    notes = (*observed.notes, *of_data, *notes, *of_run, *draw_notes(source), *library_notes_of(free, pipeline))
    start = read_start(settings.start, free, trees)
    posterior = on_mesh(Posterior(forward, free, likelihood), pipeline.mesh)
    return Problem(posterior, observed, pipeline, settings, notes, start)


def forward_of(pipeline: Pipeline, source: AbstractParticleSource, *, on_device: bool = False) -> Forward:
    """The compiled part of a pipeline, with particles."""
    shared = {"parameters": pipeline.parameters, "plan": pipeline.plan, "layout": pipeline.layout}
    return Forward(tables=pipeline.tables, source=source, on_device=on_device, **shared)


def _with_mixtures(forward: Forward, pipeline: Pipeline, settings: FitSettings, likelihood: Likelihood) -> Forward:
    """The model, with what solving for free-form populations needs."""
    if not isinstance(forward.source, ComponentsSource):
        return forward
    base = forward.source.base
    mixtures = mixtures_of(base, pipeline, settings, likelihood.flux, likelihood.inverse_sigma)
    return dataclasses.replace(forward, mixtures=mixtures)


def planned(
    config: RunConfig,
    settings: FitSettings,
    galaxy: Given | None,
    of_errors: Mapping[str, Any],
    report: Report,
    made: tuple[AbstractParticleSource, GalaxyInfo | None] | None = None,
) -> tuple[Pipeline, AbstractParticleSource, tuple[str, ...]]:
    """The pipeline of a configuration, planned for all of the priors, with its particles, and notes on ages.

    `made`: the particles, where they are known."""
    components = galaxy.base if isinstance(galaxy, ComponentsSource) else None
    method = method_for_mixtures(config.galaxy, components, config.engine.method)
    given = load_config(config, {"engine.method": method} if method != config.engine.method else None)
    config, resolved = for_widest_psf(given, resolve(given), settings)
    source, info = source_of(given, resolved.library, galaxy, report) if made is None else made
    trees = {**trees_of(source, Parameters.build(config, config.engine.precision), None), **of_errors}
    free = read_free(settings, trees, config.engine.deposit, model_declarations(source))
    config = with_velocity_range(config, source, free)
    pipeline = Pipeline.from_config(config, galaxy=source.of_host({}), info=info, resolved=resolved)
    return pipeline, source, age_notes(free, config)


def sight_of(source: AbstractParticleSource, pipeline: Pipeline) -> Array | None:
    """The line of sight on the axes of a given galaxy; those of a synthetic one are not asked for it."""
    return line_of_sight(pipeline.tables, pipeline.parameters) if isinstance(source, HeldSource) else None


def check_masses(source: AbstractParticleSource, free: Free) -> None:
    """Raise ConfigError for a prior with whose ends a model of one's own has particles of masses below 0."""
    if not isinstance(source, ModelSource):
        return
    for parameter in (parameter for parameter in free.parameters if parameter.name.startswith(GALAXY)):
        for latent in (-REACH, REACH):
            value = parameter.prior.value(np.full(parameter.shape, latent))
            galaxy = source.of_host({parameter.name: value})
            masses = [galaxy.stars.initial_mass, *([] if galaxy.gas is None else [galaxy.gas.mass])]
            if min(np.min(mass, initial=0) for mass in masses) < 0:
                raise ConfigError(
                    f"fit.free.{parameter.name}: expected a prior with which {type(source.model).__name__} has no "
                    f"masses below 0, got {shown(parameter.prior)}, which reaches {np.min(value):.4g} at {REACH:g} "
                    f"sigma; take log_uniform, log_normal or truncated_normal"
                )


def check_line_widths(free: Free, pipeline: Pipeline) -> None:
    """Raise ConfigError for a prior of the width of lines that reaches below what the velocity nodes hold."""
    leaves = jax.tree.leaves(pipeline.tables.paint, is_leaf=lambda leaf: isinstance(leaf, LineMap))
    narrowest = max((float(leaf.narrowest) for leaf in leaves if isinstance(leaf, LineMap)), default=0.0)
    for parameter in free.parameters:
        lowest = float(np.min(parameter.prior.value(np.full(parameter.shape, -_WIDEST))))
        if parameter.name.endswith(".velocity_dispersion") and lowest < narrowest:
            raise ConfigError(
                f"fit.free.{parameter.name}: expected a prior above {narrowest:g} km/s, the narrowest lines that "
                f"method 'basis' is planned for, got {shown(parameter.prior)}; set {parameter.name} to twice the "
                f"prior's lower end, engine.method: direct, or an instrument.lsf"
            )


def library_notes_of(free: Free, pipeline: Pipeline) -> tuple[str, ...]:
    """Notes on priors of the stars' ages and metallicities, where the pipeline paints stars."""
    painted = dict(zip(pipeline.plan.sources, pipeline.tables.paint, strict=True))
    return library_notes(free, painted[STAR_SOURCE].painter.axes) if STAR_SOURCE in painted else ()


def draw_notes(source: AbstractParticleSource) -> tuple[str, ...]:
    """Notes on the particles of the model."""
    return (_RANDOM_DRAWS,) if isinstance(source, SyntheticSource) and source.draws.kind == "random" else ()


def without_bad_voxels(observed: ObservedCube, settings: FitSettings) -> ObservedCube:
    """The data without voxels that are no numbers, whatever their mask says, with a note on them.

    Raises ConfigError where no error, or two, are given, and ValueError where no voxel can be used, or numbers are
    implausible.
    """
    if observed.variance is None and settings.sigma is None:
        raise ConfigError(
            f"{observed.source}: expected a variance, got none; give fit.sigma, the standard deviation of a voxel"
        )
    if observed.variance is not None and settings.sigma is not None:
        raise ConfigError(f"fit.sigma: expected null for data with a variance ({observed.source}), got both; remove it")
    used, why = choose_voxels(observed.flux, observed.variance, {"masked": ~observed.used})
    check_any_used(used, observed.source, (*observed.notes, *why))
    found = implausible_voxels(observed.flux, variance_of(observed, settings), used, settings.sigma)
    check_plausible(found, observed.source, settings)
    why = () if np.array_equal(used, observed.used) else why
    return dataclasses.replace(observed, used=used, notes=(*observed.notes, *why, *found))


def check_plausible(found: tuple[str, ...], place: str, settings: FitSettings) -> None:
    """Raise ValueError for sentences on implausible numbers, unless the settings accept them."""
    if found and not settings.accept_implausible:
        raise ValueError(
            f"{place}: expected plausible numbers, but {'; '.join(found)}. If they are right, set "
            f"fit.accept_implausible: true"
        )


def select_bins(
    observed: ObservedCube, settings: FitSettings, place: str = "fit"
) -> tuple[ObservedCube, Bool[ndarray, " wave"]]:
    """The data cut to the windows' ends, and which of its bins are fitted (True).

    Raises ConfigError, which begins with `place`, where the data have no bins in any window; a note names what is
    excluded without a bin.
    """

    def within(windows: tuple[tuple[float, float], ...]) -> ndarray:
        wavelength = observed.wavelength
        return np.any([(wavelength >= low) & (wavelength <= high) for low, high in windows], axis=0)

    first, last = observed.wavelength[[0, -1]]
    bins = f"bins of the data, which lie at {first:.2f} to {last:.2f} Angstrom in {observed.medium}"
    unused = tuple(
        f"{place}.exclude[{number}]: {list(window)} has no effect: it holds no {bins}"
        for number, window in enumerate(settings.exclude)
        if not within((window,)).any()
    )
    if unused:
        observed = dataclasses.replace(observed, notes=(*observed.notes, *unused))
    if settings.windows is not None:
        if not within(settings.windows).any():
            raise ConfigError(
                f"{place}.windows[0]: expected a range (low, high) with {bins}, got {list(settings.windows[0])}"
            )
        observed = observed.crop(min(low for low, _ in settings.windows), max(high for _, high in settings.windows))
    chosen = np.ones(len(observed.wavelength), bool) if settings.windows is None else within(settings.windows)
    if settings.exclude:
        chosen &= ~within(settings.exclude)
    return observed, chosen


def variance_of(observed: ObservedCube, settings: FitSettings) -> ndarray:
    """Variance of every voxel: the data's, or where they have none that of `fit.sigma`."""
    return np.full(observed.shape, (settings.sigma or 0.0) ** 2) if observed.variance is None else observed.variance


def make_likelihood(
    observed: ObservedCube, selection: ndarray, pipeline: Pipeline, settings: FitSettings, free: Free
) -> Likelihood:
    """The data with their errors; voxels that are masked, not selected or not in the model are left out."""
    variance, frame = variance_of(observed, settings), pipeline.frame
    used = observed.used & selection & (frame.mask() == 0)
    if not used.any():
        raise ValueError(
            f"{observed.source}: expected voxels to fit, got none: {percent(np.mean(observed.used))} of them are "
            f"usable data, {percent(np.mean(selection))} of the wavelengths are selected, and the model covers "
            f"{percent(np.mean(frame.wave_bits == 0))} of the wavelengths and "
            f"{percent(np.mean(frame.spaxel_bits == 0))} of the spaxels; check mask, fit.windows, "
            f"fit.exclude, the SSP library and the aperture"
        )
    inverse_sigma = np.where(used, 1 / np.sqrt(np.where(used, variance, 1)), 0)
    flux = np.where(used, observed.flux, 0)
    dtype = jax.dtypes.canonicalize_dtype(float)
    smallest = free.value(NOISE_SCALE, np.full(free.n_latent, SMALLEST_LATENT, dtype))
    polynomial = None
    if settings.polynomial is not None:
        basis = legendre_basis(observed.wavelength, settings.polynomial.degree)
        polynomial = Polynomial(jnp.asarray(basis), jnp.asarray(settings.polynomial.sigma, basis.dtype))
    return Likelihood(
        flux=jax.device_put(np.asarray(flux, dtype)),
        inverse_sigma=jax.device_put(np.asarray(inverse_sigma, dtype)),
        polynomial=polynomial,
        smallest_scale=jax.device_put(np.asarray(1.0 if smallest is None else smallest, dtype)),
    )


def without_noise(pipeline: Pipeline) -> Pipeline:
    """The pipeline whose cubes have neither noise nor systematic errors, whatever its configuration says."""
    named = zip(pipeline.tables.cube_names, pipeline.tables.cube, strict=True)
    kept = [(name, stage) for name, stage in named if not isinstance(stage, Noise | AbstractSystematic)]
    names, stages = tuple(name for name, _ in kept), tuple(stage for _, stage in kept)
    tables = dataclasses.replace(pipeline.tables, cube=stages, cube_names=names, products=())
    return dataclasses.replace(pipeline, tables=tables, noise_key=None)


def for_samples(pipeline: Pipeline, n_sample: int) -> Pipeline:
    """The pipeline on a mesh ("sample", "data") of the same devices, for `n_sample` models at once."""
    devices = pipeline.mesh.devices.reshape(-1)
    if len(devices) % n_sample:
        raise ValueError(f"expected a number of samples that divides {len(devices)} devices, got {n_sample}")
    shape = (n_sample, len(devices) // n_sample)
    mesh = Mesh(devices.reshape(shape), (SAMPLE_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2)
    layout = DeviceLayout.build(mesh, pipeline.plan.n_wave, sharded=False)
    tables = put(pipeline.tables, layout.shardings(table_specs(pipeline.tables, layout)))
    return dataclasses.replace(pipeline, tables=tables, layout=layout)


def trees_of(source: AbstractParticleSource, parameters: Parameters, sight: ArrayLike | None) -> dict[str, Any]:
    """The trees whose leaves the names of parameters are; before the line of `sight` is known, velocities along it are
    0."""
    if isinstance(source, SyntheticSource):
        return {GALAXY: source.base, "": parameters}
    if isinstance(source, ComponentsSource):
        named = dict(zip(source.base.names, source.base.components, strict=True))
        return {GALAXY: SimpleNamespace(**named), "": parameters}
    if isinstance(source, ModelSource):
        return {GALAXY: source.model, "": parameters} | {
            f"{GALAXY}{name}": leaf for name, leaf in named_leaves(source.model).items()
        }
    if isinstance(source, HeldSource):
        velocity = np.asarray(source.held.stars.velocity)
        v_los = velocity @ (np.zeros(3) if sight is None else np.asarray(sight))
        return {STARS: source.held.stars, V_LOS: v_los, "": parameters}
    raise TypeError(f"expected a synthetic or a held source, got {type(source).__name__}")


def without_unread_gas(
    source: AbstractParticleSource, pipeline: Pipeline, settings: FitSettings
) -> AbstractParticleSource:
    """A synthetic galaxy without the gas that nothing reads; ConfigError where a parameter of such gas is free."""
    if not isinstance(source, SyntheticSource):
        return source
    if not pipeline.tables.reads_gas:
        source = dataclasses.replace(source, draws=dataclasses.replace(source.draws, gas=None))
    of_gas = [name for name in settings.free if name.startswith(GALAXY) and name.removeprefix(GALAXY) in GAS_PARAMETERS]
    if of_gas and source.draws.gas is None:
        raise ConfigError(
            f"fit.free.{of_gas[0]}: expected a galaxy with gas (galaxy.n_gas) and a pipeline that reads it, got no gas "
            f"or a pipeline that does not read it; leave the parameter out, or set galaxy.n_gas and paint gas"
        )
    return source


def model_declarations(source: AbstractParticleSource) -> dict[str, Declaration]:
    """The parameters of a model of one's own."""
    return declared_by(source.model) if isinstance(source, ModelSource) else {}


def _given_source(galaxy: Given | None) -> AbstractParticleSource:
    """The particles that go with a pipeline, or a configuration without a reader."""
    if isinstance(galaxy, AbstractGalaxyModel):
        return ModelSource.of(galaxy)
    if galaxy is None:
        raise ConfigError("galaxy: expected a Galaxy, a model or a source of particles beside a pipeline, got none")
    return galaxy if isinstance(galaxy, SyntheticSource | ComponentsSource) else held(galaxy)


def held(galaxy: Galaxy) -> HeldSource:
    """The source of checked particles, without padding; ValueError for particles that cannot be used."""
    weight = galaxy.stars.weight
    if weight is not None:
        real = np.asarray(weight) > 0
        galaxy = Galaxy(stars=jax.tree.map(lambda leaf: np.asarray(leaf)[real], galaxy.stars))
    return HeldSource(Galaxy(stars=jax.tree.map(jnp.asarray, validate(galaxy).stars)))


def for_model(config: RunConfig, settings: FitSettings, **others: Any) -> RunConfig:
    """The configuration of a model with free parameters, and with `others` replaced: what does not go with them is
    refused or left out."""
    if config.observation.pointings is not None:
        raise ConfigError(
            "observation.pointings: expected null for a fit or simulations, got a list; take one pointing"
        )
    overrides = {"products": None, "devices.wave": 1, "devices.output": "replicated", **others}
    if "noise" in others:
        overrides["output.layout"] = "default"  # others may need a variance
    if any(name.startswith(GALAXY) for name in settings.free) and not isinstance(config.galaxy, ComponentsReader):
        if config.observation.align not in (None, "none"):
            raise ConfigError(
                "observation.align: expected 'none' where parameters of the synthetic galaxy are free (its disc is "
                f"face-on, and an alignment would follow its particles), got '{config.observation.align}'"
            )
        overrides["observation.align"] = "none"
    for name in ("observation.inclination", "observation.position_angle"):
        if name in settings.free and getattr(config.observation, name.removeprefix("observation.")) is None:
            overrides[name] = 0.0
    return load_config(config, overrides=overrides)


def with_fit_deposit(
    config: RunConfig, settings: FitSettings, galaxy: Given | None = None, data: Mapping[str, Any] = _NO_RUN
) -> RunConfig:
    """The configuration with the deposit that `engine.deposit: auto` stands for in a fit: that of the run which made
    the data, where their `meta` has one, else nearest; tsc in place of nearest where a free parameter moves particles,
    which nearest has no gradient of.

    Raises ConfigError for data with smoothed stars and a model whose stars have no smoothing lengths.
    """
    if config.engine.deposit != AUTO:
        return config
    deposit = str(data.get("deposit") or "nearest")
    if deposit == "smoothed":
        if galaxy is None:
            lacking = isinstance(config.galaxy, SyntheticReader | AbstractModelReader)
        else:
            lacking = not isinstance(galaxy, Galaxy) or galaxy.stars.smoothing_length is None
        if lacking:
            raise ConfigError(
                f"engine.deposit: expected stars with smoothing lengths for the 'smoothed' ones of the data "
                f"({data.get('deposit_reason')}), got a model without, so 'auto' cannot be as in their run; set "
                f"engine.deposit: tsc, and make the data anew with it"
            )
    is_model = isinstance(galaxy, AbstractGalaxyModel | ComponentsSource) or isinstance(
        config.galaxy, AbstractModelReader
    )
    moves = any((is_model and name.startswith(GALAXY)) or find_parameter(name).mark.moves for name in settings.free)
    return load_config(config, overrides={"engine.deposit": "tsc" if moves and deposit == "nearest" else deposit})


def notes_on_run(data: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[str, ...]:
    """Notes on what the run that made the data chose otherwise than the model, by their `meta`; none for data of
    another kind of galaxy."""
    if not data.get("galaxy_reader") or data["galaxy_reader"] != model.get("galaxy_reader"):
        return ()
    return tuple(
        f"the data were made with {place}: {data[key]}, the model with {model[key]}: give the run and the fit the same "
        f"(their particles are painted at other places)"
        for key, place in (("deposit", "engine.deposit"), ("align", "observation.align"))
        if data[key] != model[key]
    )


def for_widest_psf(config: RunConfig, resolved: Resolved, settings: FitSettings) -> tuple[RunConfig, Resolved]:
    """Both with the widest PSF of its prior, where its width is free: the margin is made for it, the cells for the
    PSF of the configuration. A PSF that follows wavelength is planned for all widths (and beta) of the priors."""
    given, psf, change, place = config, config.instrument.psf, USUAL_CHANGE, "fit.free"
    if psf is None:
        return config, resolved
    for name, unit, value in (("instrument.psf.fwhm", "arcsec", psf.fwhm), ("instrument.psf.beta", "", psf.beta)):
        if name not in settings.free or value is None:
            continue
        prior = read_prior(name, settings.free[name], unit)
        low, high = (float(np.max(prior.value(np.asarray(latent)))) for latent in (-_WIDEST, _WIDEST))
        from_one = float(name.endswith(".beta"))  # a Moffat's wings follow beta - 1
        change = max(change, min(1.0 - (low - from_one) / (high - from_one), _LARGEST_CHANGE))
        if name.endswith(".fwhm"):
            place = f"fit.free.{name}: the prior reaches {high:.4g} arcsec"
            overrides: dict[str, Any] = {name: np.full(np.shape(value), high).tolist()}
            config = load_config(config, overrides=overrides | {"engine.oversampling": resolved.painting.cells})
    if config is given and change == USUAL_CHANGE:
        return config, resolved
    try:
        instrument = Instrument.build(config.instrument, resolved.painting, change)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    return config, dataclasses.replace(resolved, instrument=instrument, decisive=decisive_settings(config))


def source_of(
    config: RunConfig, library: SSPLibrary, galaxy: Given | None, report: Report
) -> tuple[AbstractParticleSource, GalaxyInfo | None]:
    """The particles of a configuration, or those given instead."""
    if galaxy is not None:
        return _given_source(galaxy), None
    if config.galaxy is None:
        raise ConfigError("galaxy: expected a section with a reader, or a galaxy given in Python, got none")
    loaded, info = load(config, report, library)
    if isinstance(config.galaxy, AbstractModelReader):
        return ModelSource.of(config.galaxy.model()), info
    reader = config.galaxy
    if isinstance(reader, ComponentsReader):
        base = reader.build(config)
        numbers = point_numbers(reader, without_spread_ages(base), config)
        return ComponentsSource(base, base.points(numbers), numbers), info
    if not isinstance(reader, SyntheticReader):
        return held(loaded), info
    return SyntheticSource(reader.build(), draw_base(reader.n_stars, reader.n_gas, reader.seed, reader.draws)), info


def with_velocity_range(
    config: RunConfig, source: AbstractParticleSource, free: Free, widened: float = 1.0
) -> RunConfig:
    """The configuration prepared for the fastest star of draws from the prior, where it does not say itself.

    `widened`: factor on the draws' latents, where stars must not be faster than this in any of many draws.
    """
    if config.engine.velocity_range is not None:
        return config

    still = config.observation.velocity_offset
    speeds, offsets = [], []
    for latent in widened * free.draw(0, _PRIOR_DRAWS):
        values = free.values(latent)
        speeds.append(_fastest(source, values))
        offsets.append(float(np.abs(values.get("observation.velocity_offset", still))))
    fastest = max(map(sum, zip(speeds, offsets, strict=True)))
    if _ROOM * fastest > MOST_VELOCITY_RANGE:
        of_offset = free.has("observation.velocity_offset") and max(offsets) > max(speeds)
        raise ConfigError(
            f"fit.free{'.observation.velocity_offset' if of_offset else ''}: expected priors with which nothing is "
            f"faster than {MOST_VELOCITY_RANGE / _ROOM:g} km/s, got {fastest:.4g} km/s; narrow priors of velocities "
            f"(numbers without a unit are in km/s)"
        )
    return load_config(config, overrides={"engine.velocity_range": max(_ROOM * fastest, _LEAST_RANGE)})


def _fastest(source: AbstractParticleSource, values: Values) -> float:
    """Speed (km/s) of the fastest particle with these values of the host."""
    if isinstance(source, ComponentsSource):
        stars = source.of_host(values).stars
        random = 0.0 if stars.random_velocity is None else np.abs(stars.random_velocity)
        return float(np.max(np.linalg.norm(stars.velocity, axis=1) + random))
    if isinstance(source, SyntheticSource | ModelSource):
        galaxy = source.of_host(values)
        moving = [galaxy.stars.velocity] if galaxy.gas is None else [galaxy.stars.velocity, galaxy.gas.velocity]
    elif isinstance(source, HeldSource):
        moving = [values.get(STARS + "velocity", source.held.stars.velocity)]
    else:
        raise TypeError(f"expected a synthetic or a held source, got {type(source).__name__}")
    stars, *others = (np.linalg.norm(np.asarray(velocity, np.float64), axis=1) for velocity in moving)
    return float(max(np.max(own) for own in (stars + np.abs(values.get(V_LOS, 0.0)), *others) if own.size))


Kernel = Callable[..., Any]
"""(model, one sample's pytree, *shared) -> pytree of arrays."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Placed:
    """Arrays with the axis `sample` first, filled up to a multiple of the rows; `real`: which are no filling."""

    tree: Any
    real: Bool[Array | np.ndarray, " sample"]


def over_samples(kernel: Kernel, mesh: Mesh, model: Any, samples: Placed, *shared: Any, at_once: int = 1) -> Any:
    """`kernel(model, sample, *shared)` for every sample, each row of the mesh its own; to be called inside a jit.

    `model`: a posterior, or another pytree that is whole on every device. `samples`: what `placed` makes; all arrays
    that are returned have the axis `sample` first, as long as theirs. `at_once`: how many samples a row computes at the
    same time (accelerators like several; each takes memory).
    """

    def on_each_device(model: Any, real: Bool[Array | np.ndarray, " own"], own: Any, shared: Any) -> Any:
        once = jax.jit(kernel, inline=True)  # traced for its shapes, and not again for what it makes

        def one(item: tuple[Any, Any]) -> Any:
            """The result for a sample; one that only fills a row up is not computed."""
            is_real, sample = item
            made = jax.eval_shape(once, model, sample, *shared)
            nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), made)
            return lax.cond(is_real, lambda: once(model, sample, *shared), lambda: nothing)

        if at_once > 1:
            return lax.map(one, (real, own), batch_size=min(at_once, len(real)))
        return lax.map(one, (real, own))

    return on_rows(on_each_device, mesh, model, samples, shared, PartitionSpec(SAMPLE_AXIS))


def on_rows(on_each_device: Callable[..., Any], mesh: Mesh, model: Any, samples: Placed, shared: Any, made: Any) -> Any:
    """`on_each_device(model, real, own, shared)` on all devices of a mesh, with the samples of their rows; `made`:
    how what is returned is cut."""
    along, whole = PartitionSpec(SAMPLE_AXIS), PartitionSpec()
    specs = (whole, along, along, whole)
    program = jax.shard_map(on_each_device, mesh=mesh, in_specs=specs, out_specs=made, check_vma=False)
    if isinstance(model, Posterior):
        model = dataclasses.replace(model, forward=dataclasses.replace(model.forward, on_device=True))
    return program(model, samples.real, samples.tree, shared)


def placed(tree: Any, mesh: Mesh, least: int = 0) -> Placed:
    """Host arrays with the axis `sample` first, cut along the rows of a mesh; the last sample fills the rows up.

    `least`: as many samples at least are made room for, so that groups of several sizes share one compiled program.
    """
    count = len(jax.tree.leaves(tree)[0])
    size = max(count, least)
    missing = size + -size % mesh.shape[SAMPLE_AXIS] - count
    along = NamedSharding(mesh, PartitionSpec(SAMPLE_AXIS))

    def filled(leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        return np.concatenate([leaf, np.repeat(leaf[-1:], missing, axis=0)])

    real = np.arange(count + missing) < count
    return jax.device_put(Placed(jax.tree.map(filled, tree), real), along)


def fetched(tree: Any, count: int) -> Any:
    """The first `count` samples of a pytree as host arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], tree)


def everywhere(tree: Any, mesh: Mesh) -> Any:
    """The pytree, whole on every device of the mesh."""
    return jax.device_put(tree, replicated(mesh))


def models_at_once(n_device: int, n_model: int) -> int:
    """How many models are computed at the same time: all of them where that many can share the devices.

    A number that divides that of the devices, and the smallest with room for all models, so that none has to wait while
    each has as many devices as possible: what is not divided among the devices of a model, its cube, is computed once.
    """
    return min(count for count in range(1, n_device + 1) if n_device % count == 0 and count >= min(n_model, n_device))


def with_rows(problem: Problem, n_sample: int) -> Problem:
    """The problem whose devices compute `n_sample` models at once."""
    pipelines = [for_samples(pipeline, n_sample) for pipeline in problem.pipelines]
    forward = problem.posterior.forward.laid_out([(pipeline.tables, pipeline.layout) for pipeline in pipelines])
    posterior = dataclasses.replace(problem.posterior, forward=forward)
    place = [pipeline is problem.pipeline for pipeline in problem.pipelines].index(True)
    sets = tuple(
        data_set.on(pipeline) for data_set, pipeline in zip(problem.sets, pipelines, strict=bool(problem.sets))
    )
    problem = dataclasses.replace(problem, posterior=posterior, pipeline=pipelines[place], sets=sets)
    return dataclasses.replace(problem, posterior=on_mesh(problem.posterior, problem.pipeline.mesh))

"""The settings of a model with free parameters, its particles and its pipeline: for fits, samplings and simulations.

What a configuration leaves open is decided here, once: by `model_config` before there are particles, and by `settled`
with them.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from rubix_like.config import RunConfig, load_config
from rubix_like.config.parameters import Declaration
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.fit import FitSettings
from rubix_like.engine.lines.line_plan import LineMap
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.resolved import Resolved, decisive_settings
from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.forward.stages.noise import Noise
from rubix_like.forward.systematics.systematic import AbstractSystematic
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, named_leaves
from rubix_like.galaxy.limits import MOST_VELOCITY_RANGE
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import GAS_PARAMETERS, draw_base
from rubix_like.galaxy.validation import validate
from rubix_like.inference.populations.populations import without_spread_ages
from rubix_like.inference.posterior.fit_model import (
    GALAXY,
    STARS,
    V_LOS,
    AbstractParticleSource,
    ComponentsSource,
    Free,
    HeldSource,
    ModelSource,
    SyntheticSource,
    read_prior,
    shown,
)
from rubix_like.inference.posterior.free_parameters import (
    REACH,
    age_notes,
    declared_by,
    find_parameter,
    library_notes,
    read_free,
)
from rubix_like.inference.posterior.problem import Given
from rubix_like.instrument.crowding import AUTO
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.psf import USUAL_CHANGE
from rubix_like.readers.galaxy_loading import load
from rubix_like.readers.model_readers import AbstractModelReader, point_numbers
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.progress import Report
from rubix_like.ssp import SSPLibrary

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

_NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The record of data that no run of ours has made; the errors of a model without data."""


def model_config(config: RunConfig, settings: FitSettings, deposit: str, **others: Any) -> RunConfig:
    """The configuration of a model with free parameters: without what does not go with them, with `deposit`, angles
    that are free, and `others` replaced.

    Raises ConfigError for what does not go with free parameters.
    """
    if config.observation.pointings is not None:
        raise ConfigError(
            "observation.pointings: expected null for a fit or simulations, got a list; take one pointing"
        )
    changes = {"products": None, "devices.wave": 1, "devices.output": "replicated", **others}
    if "noise" in others:
        changes["output.layout"] = "default"  # others may need a variance
    if not isinstance(config.galaxy, ComponentsReader) and any(name.startswith(GALAXY) for name in settings.free):
        if config.observation.align not in (None, "none"):
            raise ConfigError(
                "observation.align: expected 'none' where parameters of the synthetic galaxy are free (its disc is "
                f"face-on, and an alignment would follow its particles), got '{config.observation.align}'"
            )
        changes["observation.align"] = "none"
    for name in ("inclination", "position_angle"):
        if f"observation.{name}" in settings.free and getattr(config.observation, name) is None:
            changes[f"observation.{name}"] = 0.0  # a leaf that a value can take the place of
    if deposit != config.engine.deposit:
        changes["engine.deposit"] = deposit
    return load_config(config, overrides=changes)


def deposit_of_fit(
    config: RunConfig, settings: FitSettings, galaxy: Given | None = None, data: Mapping[str, Any] = _NOTHING
) -> str:
    """The deposit of a fit's model: for `auto` that of the run which made the data, where their `meta` has one, else
    nearest; tsc in place of nearest where a free parameter moves particles, which nearest has no gradient of.

    Raises ConfigError for data with smoothed stars and a model whose stars have no smoothing lengths.
    """
    if config.engine.deposit != AUTO:
        return config.engine.deposit
    deposit = str(data.get("deposit") or "nearest")
    if deposit == "smoothed":
        has_lengths = not isinstance(config.galaxy, SyntheticReader | AbstractModelReader)
        if galaxy is not None:
            has_lengths = isinstance(galaxy, Galaxy) and galaxy.stars.smoothing_length is not None
        if not has_lengths:
            raise ConfigError(
                f"engine.deposit: expected stars with smoothing lengths for the 'smoothed' ones of the data "
                f"({data.get('deposit_reason')}), got a model without, so 'auto' cannot be as in their run; set "
                f"engine.deposit: tsc, and make the data anew with it"
            )
    is_model = isinstance(galaxy, AbstractGalaxyModel | ComponentsSource) or isinstance(
        config.galaxy, AbstractModelReader
    )
    moves = deposit == "nearest" and any(
        (is_model and name.startswith(GALAXY)) or find_parameter(name).mark.moves for name in settings.free
    )
    return "tsc" if moves else deposit


def settled(
    config: RunConfig,
    resolved: Resolved,
    settings: FitSettings,
    free: Free,
    fastest: AbstractParticleSource | None,
    widened: float = 1.0,
) -> tuple[RunConfig, Resolved]:
    """Both as the whole of the priors needs them: with the widest PSF, and prepared for the fastest star of draws.

    `fastest`: the particles whose speeds are looked at; None: speeds are not free. `widened`: factor on the draws'
    latents, where stars must not be faster than this in any of many draws. The margin of the field is made for the
    widest PSF, the cells for the PSF of the configuration. A PSF that follows wavelength is planned for all widths (and
    beta) of the priors. Raises ConfigError for priors that no instrument, or no galaxy, can have.
    """
    psf, change, place = config.instrument.psf, USUAL_CHANGE, "fit.free"
    overrides = dict[str, Any]()
    known = () if psf is None else (("instrument.psf.fwhm", "arcsec", psf.fwhm), ("instrument.psf.beta", "", psf.beta))
    for name, unit, value in known:
        if name not in settings.free or value is None:
            continue
        prior = read_prior(name, settings.free[name], unit)
        low, high = (float(np.max(prior.value(np.asarray(latent)))) for latent in (-_WIDEST, _WIDEST))
        from_one = float(name.endswith(".beta"))  # a Moffat's wings follow beta - 1
        change = max(change, min(1.0 - (low - from_one) / (high - from_one), _LARGEST_CHANGE))
        if name.endswith(".fwhm"):
            place = f"fit.free.{name}: the prior reaches {high:.4g} arcsec"
            overrides = {name: np.full(np.shape(value), high).tolist(), "engine.oversampling": resolved.painting.cells}
    is_usual = not overrides and change == USUAL_CHANGE
    if fastest is not None and config.engine.velocity_range is None:
        overrides["engine.velocity_range"] = _velocity_range(config, fastest, free, widened)
    changed = load_config(config, overrides=overrides)
    if is_usual:
        return changed, resolved
    try:
        instrument = Instrument.build(changed.instrument, resolved.painting, change)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    return changed, dataclasses.replace(resolved, instrument=instrument, decisive=decisive_settings(changed))


def _velocity_range(config: RunConfig, source: AbstractParticleSource, free: Free, widened: float) -> float:
    """Speed (km/s) that the model is prepared for: that of the fastest star of draws from the prior, with room."""
    latents = widened * free.draw(0, _PRIOR_DRAWS)
    speeds = np.array([source.fastest(free.values(latent)) for latent in latents])
    offset = free.value("observation.velocity_offset", latents)
    offsets = np.abs(np.asarray(config.observation.velocity_offset if offset is None else offset, np.float64))
    fastest = float(np.max(speeds + offsets))
    if _ROOM * fastest > MOST_VELOCITY_RANGE:
        of_offset = offset is not None and np.max(offsets) > np.max(speeds)
        raise ConfigError(
            f"fit.free{'.observation.velocity_offset' if of_offset else ''}: expected priors with which nothing is "
            f"faster than {MOST_VELOCITY_RANGE / _ROOM:g} km/s, got {fastest:.4g} km/s; narrow priors of velocities "
            f"(numbers without a unit are in km/s)"
        )
    return max(_ROOM * fastest, _LEAST_RANGE)


def planned(
    config: RunConfig,
    resolved: Resolved,
    settings: FitSettings,
    particles: tuple[AbstractParticleSource, GalaxyInfo | None],
    errors: Mapping[str, Any] = _NOTHING,
    *,
    fastest: AbstractParticleSource | None = None,
    widened: float = 1.0,
) -> tuple[Pipeline, tuple[str, ...]]:
    """The pipeline of a configuration, planned for all of the priors, and notes on ages.

    `errors`: of the likelihood, by the beginning of its parameters' names. `fastest`: particles of simulations, whose
    parameters need no gradient, in place of the source's, and `widened`, as in `settled`.
    """
    source, info = particles
    trees = {**trees_of(source, Parameters.build(config, config.engine.precision), None), **errors}
    deposit = config.engine.deposit if fastest is None else None
    free = read_free(settings, trees, deposit, model_declarations(source))
    config, resolved = settled(config, resolved, settings, free, fastest or source, widened)
    pipeline = Pipeline.from_config(config, galaxy=source.of_host({}), info=info, resolved=resolved)
    return pipeline, age_notes(free, config)


def source_of(
    config: RunConfig, library: SSPLibrary, galaxy: Given | None, report: Report
) -> tuple[AbstractParticleSource, GalaxyInfo | None]:
    """The particles of a configuration, or those given instead."""
    if galaxy is not None:
        return given_source(galaxy), None
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


def given_source(galaxy: Given | None) -> AbstractParticleSource:
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


def trees_of(source: AbstractParticleSource, parameters: Parameters, sight: ArrayLike | None) -> dict[str, Any]:
    """The trees whose leaves parameters name; without a line of `sight`, velocities along it are 0."""
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


def model_declarations(source: AbstractParticleSource) -> dict[str, Declaration]:
    """The parameters of a user model."""
    return declared_by(source.model) if isinstance(source, ModelSource) else {}


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


def without_noise(pipeline: Pipeline) -> Pipeline:
    """The pipeline whose cubes have neither noise nor systematic errors, whatever its configuration says."""
    named = zip(pipeline.tables.cube_names, pipeline.tables.cube, strict=True)
    kept = [(name, stage) for name, stage in named if not isinstance(stage, Noise | AbstractSystematic)]
    names, stages = tuple(name for name, _ in kept), tuple(stage for _, stage in kept)
    tables = dataclasses.replace(pipeline.tables, cube=stages, cube_names=names, products=())
    return dataclasses.replace(pipeline, tables=tables, noise_key=None)


def check_masses(source: AbstractParticleSource, free: Free) -> None:
    """Raise ConfigError for a prior with whose ends a user model has particles of masses below 0."""
    if not isinstance(source, ModelSource):
        return
    of_galaxy = [parameter for parameter in free.parameters if parameter.name.startswith(GALAXY)]
    for parameter, latent in itertools.product(of_galaxy, (-REACH, REACH)):
        value = parameter.prior.value(np.full(parameter.shape, latent))
        galaxy = source.of_host({parameter.name: value})
        of_gas = np.zeros(0) if galaxy.gas is None else galaxy.gas.mass
        if min(np.min(galaxy.stars.initial_mass, initial=0), np.min(of_gas, initial=0)) < 0:
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


def notes_on_run(data: Mapping[str, Any], model: Mapping[str, Any]) -> tuple[str, ...]:
    """Notes on what the run that made the data chose otherwise than the model, by their `meta`; none for data of
    another kind of galaxy."""
    if not data.get("galaxy_reader") or data["galaxy_reader"] != model.get("galaxy_reader"):
        return ()
    return tuple(
        Note(
            "data.made_otherwise",
            f"the data were made with {place}: {data[key]}, the model with {model[key]}: give the run and the fit the "
            f"same (their particles are painted at other places)",
            WARNING,
        )
        for key, place in (("deposit", "engine.deposit"), ("align", "observation.align"))
        if data[key] != model[key]
    )

"""SSP library, instrument and distance that the settings of a run stand for, read and worked out once."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from rubix_like.arguments import named_arguments
from rubix_like.config import PipelineSettings, RunConfig, StageSettings, load_pipeline
from rubix_like.config.loading import check_one_observation
from rubix_like.config.sections.dust import DUST_COLUMN, ParticleDustSettings
from rubix_like.config.sections.instrument import InstrumentSettings
from rubix_like.config.sections.nebular import AGN, NEBULAE, NUCLEUS
from rubix_like.errors import ConfigError
from rubix_like.forward.products.bands import load_band
from rubix_like.forward.products.line_maps import named_lines
from rubix_like.forward.sources.lines import check_component_lines, line_templates
from rubix_like.instrument.crowding import AUTO, Crowding, DepositChoice, choose_deposit
from rubix_like.instrument.instrument import Instrument
from rubix_like.instrument.painting import Painting, plan_painting
from rubix_like.physics.cosmology import arcsec_per_kpc, observed_distance
from rubix_like.runtime.memory import check_cube_fits
from rubix_like.runtime.words import listed
from rubix_like.ssp import SSPLibrary, load_ssp


@dataclass(frozen=True, eq=False)
class Resolved:
    """The objects that a run's settings stand for, on the host; `resolve` makes it.

    `painting`: how stars are shared among the cells of the grid, for which the instrument's PSF is made; `distance`:
    the luminosity distance in Mpc; `arcsec_per_kpc`: at that distance; `deposit`: what was chosen, and why (`auto`
    is replaced by `settle_deposit`, for the galaxy; until then it stands for nearest); `velocity_steps`: km/s, at most,
    between velocity nodes, by source, where others than the tolerance decide; `decisive`: the settings that decide all
    this, by name.
    """

    pipeline: PipelineSettings
    library: SSPLibrary
    instrument: Instrument
    painting: Painting
    distance: float
    arcsec_per_kpc: float
    deposit: DepositChoice
    decisive: Mapping[str, Any]
    velocity_steps: Mapping[str, float] = field(default_factory=dict)

    def checked_for(self, config: RunConfig) -> "Resolved":
        """Itself; raises ConfigError where it was made of other settings than those of `config`."""
        differing = [name for name, value in decisive_settings(config).items() if value != self.decisive[name]]
        if differing:
            raise ConfigError(
                f"resolved: expected resolve(config) of this configuration, got that of one with another "
                f"{listed(differing)}; leave it out, or resolve this configuration"
            )
        return self


def decisive_settings(config: RunConfig) -> dict[str, Any]:
    """The settings of a run that `resolve` reads, by name."""
    observation, engine = config.observation, config.engine
    return {
        "ssp": config.ssp,
        "instrument": config.instrument,
        "pipeline": config.pipeline,
        "nebular": config.nebular,
        "systematics": config.systematics,
        **{f"observation.{name}": getattr(observation, name) for name in ("redshift", "distance", "cosmology")},
        **{f"engine.{name}": getattr(engine, name) for name in ("deposit", "oversampling", "smoothing")},
    }


def check_early(config: RunConfig, n_parts: int = 1) -> None:
    """Raise ConfigError for what needs no file to be refused: a cube beyond the memory of each of the parts that it is
    made in, bands and lines that are not known."""
    check_cube_fits(*config.instrument.n_spaxel_xy, config.instrument.wavelength.n_wave, n_parts)
    products = config.products
    if products is not None:
        for place, names in (("products.filters", products.filters), ("products.band", (products.band,))):
            for name in filter(None, names):
                load_band(name, place)
    if products is not None and not isinstance(products.lines, bool):
        named_lines(products.lines)
    if config.lines is not None:
        line_templates(config.lines)
    check_component_lines(config.galaxy)


@named_arguments
def resolve(config: RunConfig) -> Resolved:
    """The library, instrument and distance of a run; call it once, and pass the result to all that needs them.

    Raises ConfigError for settings that cannot be used, a cube beyond the memory among them, and FileNotFoundError or
    ValueError for a library that cannot be read.
    """
    if config.observations is not None:
        check_one_observation(config, "resolve")
    instrument, observation = config.instrument, config.observation
    n_parts = jax.process_count() if config.devices.is_sharded else 1
    check_early(config, n_parts)
    pipeline = painted_pipeline(config)
    _check_dust_maps(config, pipeline)
    deposit = choose_deposit(config.engine, instrument, pipeline, None, 0)
    with naming_arm(instrument):
        painting = plan_painting(_with_deposit(config, deposit).engine, instrument, pipeline)
        built = Instrument.build(instrument, painting)
    distance = observed_distance(observation.cosmology, observation.redshift, observation.distance)
    return Resolved(
        pipeline=pipeline,
        library=load_ssp(config),
        instrument=built,
        painting=painting,
        distance=distance,
        arcsec_per_kpc=arcsec_per_kpc(distance, observation.redshift),
        deposit=deposit,
        decisive=decisive_settings(config),
    )


def settle_deposit(
    config: RunConfig, resolved: Resolved, crowding: Crowding | None, n_lacking: int
) -> tuple[RunConfig, Resolved]:
    """Both with the deposit that `engine.deposit: auto` stands for; as they are where another one is asked for.

    `n_lacking`: how many particles have no smoothing length.
    """
    if config.engine.deposit != AUTO:
        return config, resolved
    chosen = choose_deposit(config.engine, config.instrument, resolved.pipeline, crowding, n_lacking)
    config = _with_deposit(config, chosen)
    resolved = replace(resolved, deposit=chosen, decisive=decisive_settings(config))
    if chosen.deposit == resolved.painting.deposit:
        return config, resolved
    with naming_arm(config.instrument):
        painting = plan_painting(config.engine, config.instrument, resolved.pipeline)
        instrument = Instrument.build(config.instrument, painting)
    return config, replace(resolved, painting=painting, instrument=instrument)


@contextmanager
def naming_arm(settings: InstrumentSettings) -> Iterator[None]:
    """Name the arm in every ConfigError raised inside, where `settings` are those of one arm."""
    try:
        yield
    except ConfigError as error:
        if settings.arm is None:
            raise
        raise ConfigError(f"arm '{settings.arm}' of {settings.name}: {error}") from error


def _with_deposit(config: RunConfig, chosen: DepositChoice) -> RunConfig:
    return config.model_copy(update={"engine": config.engine.model_copy(update={"deposit": chosen.deposit})})


def painted_pipeline(config: RunConfig) -> PipelineSettings:
    """The run's pipeline, with the active nucleus that `nebulae` stands for where the section `nebular` has one,
    with systematic errors, and with the fibres of the instrument where it has any."""
    pipeline = _through_fibres(config, _with_systematics(config, load_pipeline(config.pipeline)))
    nebular, names = config.nebular, [source.name for source in pipeline.paint]
    if nebular is None or nebular.agn is None or not {NEBULAE, AGN} & set(names):
        return pipeline
    fields, paint = [*pipeline.fields], [*pipeline.paint]
    if NEBULAE in names:
        place = names.index(NEBULAE)
        nebulae = [] if nebular.source == "agn" else [paint[place]]
        nucleus = [] if AGN in names else [StageSettings(name=AGN)]
        paint[place : place + 1] = [*nebulae, *nucleus]
    if NUCLEUS not in {field.name for field in fields}:
        fields.append(StageSettings(name=NUCLEUS))
    return pipeline.model_copy(update={"fields": tuple(fields), "paint": tuple(paint)})


def _with_systematics(config: RunConfig, pipeline: PipelineSettings) -> PipelineSettings:
    """The pipeline with the stages of the section `systematics`, before and after the stage `noise`; where it has none,
    at its end."""
    if config.systematics is None:
        return pipeline
    before, after = (tuple(StageSettings(name=name) for name in names) for names in config.systematics.stages)
    names = [stage.name for stage in pipeline.cube]
    place = names.index("noise") if "noise" in names else len(names)
    cube = (*pipeline.cube[:place], *before, *pipeline.cube[place : place + 1], *after, *pipeline.cube[place + 1 :])
    return pipeline.model_copy(update={"cube": cube})


def _through_fibres(config: RunConfig, pipeline: PipelineSettings) -> PipelineSettings:
    """The pipeline with `fibres` in the place of `psf`, and a last stage that makes the cube of their spectra; the
    aperture is where they lie. Raises ConfigError for one that has no place for them."""
    if config.instrument.fibres is None:
        return pipeline
    names = [stage.name for stage in pipeline.cube]
    if "psf" not in names:
        raise ConfigError(
            f"instrument.fibres: expected a pipeline with the stage 'psf' (the seeing in front of the fibres), got "
            f"'{pipeline.name}' with {', '.join(names) or 'no stage'}; add it to the pipeline's cube list, or set "
            f"instrument.fibres: null"
        )
    kept = (stage for stage in pipeline.cube if stage.name != "aperture")
    seen = (stage.model_copy(update={"name": "fibres"}) if stage.name == "psf" else stage for stage in kept)
    return pipeline.model_copy(update={"cube": (*seen, StageSettings(name="fibre_cube"))})


def _check_dust_maps(config: RunConfig, pipeline: PipelineSettings) -> None:
    if config.products is None or not config.products.dust:
        return
    if config.dust is None:
        raise ConfigError(
            "products.dust: expected a run with dust, got dust: null; give the section, such as dust: {kind: "
            "particles}, or set products.dust: false"
        )
    of_particles = isinstance(config.dust, ParticleDustSettings) and pipeline.has_field(DUST_COLUMN)
    if not of_particles and not (config.screen is not None and pipeline.has_cube_stage("dust")):
        raise ConfigError(
            f"products.dust: expected a pipeline with the field '{DUST_COLUMN}' (dust of kind particles) or the stage "
            f"'dust' (a screen), got '{pipeline.name}' without; add it to the pipeline, or set products.dust: false"
        )

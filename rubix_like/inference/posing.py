"""The posterior of a request: its data are read, its model is planned; of several sets of data a pipeline of each."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config import RunConfig, load_config
from rubix_like.config.data_sets import CovarianceSettings
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.fit import FitSettings
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.observed import ObservedCube
from rubix_like.errors import ConfigError
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.resolved import resolve
from rubix_like.galaxy.particles import GalaxyInfo
from rubix_like.galaxy.validation import implausible_notes
from rubix_like.inference.data_grid import on_grid_of
from rubix_like.inference.fitted_set import FittedSet, row_of
from rubix_like.inference.likelihoods.kinds import (
    JointErrors,
    make_correlation,
    make_errors,
    notes_on_errors,
    with_covariance_of_data,
)
from rubix_like.inference.likelihoods.voxel_errors import AbstractCorrelation, check_residuals
from rubix_like.inference.populations.populations import stars_of
from rubix_like.inference.posterior.fit_model import (
    LIKELIHOOD,
    AbstractParticleSource,
    ComponentsSource,
    Free,
    read_prior,
)
from rubix_like.inference.posterior.free_parameters import read_free, read_start
from rubix_like.inference.posterior.posterior import Likelihood, Posterior, legendre_basis, on_mesh
from rubix_like.inference.posterior.problem import (
    Given,
    Problem,
    check_line_widths,
    check_masses,
    check_plausible,
    draw_notes,
    for_model,
    for_samples,
    library_notes_of,
    make_likelihood,
    model_declarations,
    notes_on_run,
    planned,
    pose,
    select_bins,
    sight_of,
    source_of,
    trees_of,
    with_fit_deposit,
    without_bad_voxels,
    without_noise,
    without_unread_gas,
)
from rubix_like.inference.request import Request
from rubix_like.inference.sets.data_sets import (
    FWHM,
    DataSet,
    check_free_names,
    declared_nuisances,
    leaves_of,
    names_of,
    priors_of,
    sky_templates,
)
from rubix_like.inference.sets.joint_forward import (
    Broadening,
    Effects,
    JointForward,
    SetGrid,
    SetModel,
    config_of,
    displacement_of,
    frame_of,
    grid_of,
    within_ends,
)
from rubix_like.physics.gaussian import reach_of
from rubix_like.readers.model_readers import point_numbers
from rubix_like.runtime.progress import Progress, Report, silent


def posed(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    n_start: int,
    check: Callable[[tuple[int, int, int]], None] | None = None,
) -> Problem:
    """The problem of a request, for as many starts at once: of one cube, or of several sets of data.

    `check`: what the shape of the largest cube must pass before.
    """
    if request.sets is None or isinstance(request.model, Pipeline):
        with progress.step("load", "reading the data"):
            observed = request.read()
        if check is not None:
            check(observed.shape)
        with progress.step("plan", "planning the model") as report:
            problem = pose(request.model, observed, request.settings, galaxy, n_start, report)
            return _with_judged_galaxy(problem, request)
    with progress.step("load", "reading the data"):
        sets = request.read_sets()
    if check is not None:
        check(max((data_set.observed.shape for data_set in sets), key=np.prod))
    with progress.step("plan", "planning the models") as report:
        problem = pose_sets(request.model, sets, request.settings, galaxy, n_start, report)
        return _with_judged_galaxy(problem, request)


def _with_judged_galaxy(problem: Problem, request: Request) -> Problem:
    """The problem with notes on numbers that no galaxy has; raises ValueError unless the settings accept them.

    A model may be at rest: its velocity dispersion is not judged.
    """
    galaxy = problem.posterior.forward.source.of_host({})
    found = implausible_notes(galaxy, is_at_rest=True)
    check_plausible(found, "the galaxy", request.settings)
    return replace(problem, notes=tuple(dict.fromkeys((*problem.notes, *found))))


_WIDEST = 3.0
"""Latent up to which the line spread is planned for."""

_SAME_PLACE = 0.05
"""arcsec by which fibres of data and instrument may differ in the middle of the wavelengths."""

_SEEN_ALIKE = 0.1
"""Of a fibre's diameter by which they may differ at other wavelengths."""

_ENDS = 3.0
"""Standard deviations of the broadening within which bins at the ends are left out."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Prepared:
    """A set whose model can be planned: its data, cut to the windows, which bins are fitted, its settings as if it were
    alone, its grid, its run, and the line spread's narrowest and widest factor."""

    data: DataSet
    observed: ObservedCube
    selection: Bool[ndarray, " wave"]
    settings: FitSettings
    grid: SetGrid
    config: RunConfig
    displacement: Float[ndarray, "2"]
    lsf_scale: tuple[float, float] | None

    @property
    def name(self) -> str:
        """The name of the set."""
        return self.data.name


def pose_sets(
    config: RunConfig,
    data: Sequence[DataSet],
    settings: FitSettings,
    galaxy: Given | None = None,
    n_sample: int = 1,
    report: Report = silent,
) -> Problem:
    """The posterior of a fit of several sets; `n_sample` as in `pose`.

    `observation.offset` is that from the centre of the first cube's field (of the first set's, where there is no cube);
    other sets have it by their own coordinates. Raises ConfigError for settings and ValueError for data that cannot be
    used.
    """
    sections = {data_set.name: data_set.settings for data_set in data}
    check_free_names(settings.free, sections)
    first = next((number for number, data_set in enumerate(data) if data_set.kind in {"cube", "fibres"}), 0)
    sets = _prepare(config, data, settings, galaxy, first)
    of_errors = {LIKELIHOOD: make_errors(settings.likelihood)}
    made = _particles(sets, galaxy, report)
    pipelines, of_ages = _planned(sets, galaxy, of_errors, made, report)
    source = without_unread_gas(made[0], pipelines[first], settings)
    skies = [sky_templates(data_set.name, data_set.data.settings, data_set.observed) for data_set in sets]
    trees = trees_of(source, pipelines[first].parameters, sight_of(source, pipelines[first])) | of_errors
    for data_set, pipeline, sky in zip(sets, pipelines, skies, strict=True):
        trees |= leaves_of(data_set.name, data_set.data.settings, pipeline.parameters, sky)
    priors = {name: prior for key, section in sections.items() for name, prior in priors_of(key, section).items()}
    joint = settings.model_copy(update={"free": {**settings.free, **priors}})
    deposits = [pipeline.plan.deposit for pipeline in pipelines]
    deposit = "nearest" if "nearest" in deposits else deposits[0]  # nearest gives the least gradients
    free = read_free(joint, trees, deposit, model_declarations(source) | declared_nuisances(sections))
    check_masses(source, free)
    for pipeline in pipelines:
        check_line_widths(free, pipeline)
    pipelines = [for_samples(pipeline, n_sample) for pipeline in pipelines]
    found, begin = [], 0
    for prepared, pipeline in zip(sets, pipelines, strict=True):
        frame = frame_of(pipeline.frame, prepared.data, prepared.grid.cube)
        named = (prepared.name, prepared.data.kind, prepared.observed)
        places = prepared.data.middle_places
        found.append(FittedSet(*named, pipeline, frame, prepared.settings, begin, places))
        begin = found[-1].place.stop
    fitted = tuple(found)
    likelihood, of_data = _joint_likelihood(sets, fitted, free, of_errors[LIKELIHOOD])
    check_residuals(of_errors[LIKELIHOOD], likelihood.flux, likelihood.inverse_sigma)
    forward = JointForward(sets=tuple(map(_model, sets, pipelines, skies)), source=source, first=first)
    shared = (*of_data, *notes_on_errors(of_errors[LIKELIHOOD]), *of_ages[first], *draw_notes(source))
    notes = _notes(sets, fitted, first, (*shared, *library_notes_of(free, pipelines[first])))
    start = read_start(settings.start, free, trees)
    posterior = on_mesh(Posterior(forward, free, likelihood), pipelines[first].mesh)
    return Problem(posterior, sets[first].observed, pipelines[first], joint, notes, start, fitted)


def _planned(
    sets: Sequence[_Prepared],
    galaxy: Given | None,
    of_errors: Mapping[str, Any],
    made: tuple[AbstractParticleSource, GalaxyInfo | None],
    report: Report,
) -> tuple[list[Pipeline], list[tuple[str, ...]]]:
    """The pipeline of each set, without noise, and notes on ages."""
    pipelines, notes = [], []
    for data_set in sets:
        try:
            pipeline, _, of_ages = planned(data_set.config, data_set.settings, galaxy, of_errors, report, made)
        except ConfigError as error:
            raise ConfigError(f"fit.data.{data_set.name}: {error}") from error
        _check_fibres(data_set, pipeline)
        pipelines.append(without_noise(pipeline))
        notes.append(of_ages)
    return pipelines, notes


def _check_fibres(prepared: _Prepared, pipeline: Pipeline) -> None:
    """Raise ConfigError unless the instrument of spectra of fibres has the same ones at the same places, at every
    wavelength that is fitted."""
    places = prepared.data.places
    if places is None:
        return
    frame, field = pipeline.frame, f"fit.data.{prepared.name}"
    if frame.fibres is None:
        raise ConfigError(f"{field}: expected an instrument with fibres, got one without; give instrument.fibres")
    bundle, angle = frame.fibres.places, float(frame.meta.get("field_angle") or 0.0)
    if len(bundle) != len(places):
        raise ConfigError(
            f"{field}: expected spectra of the {len(bundle)} fibres of all exposures of the instrument "
            f"({bundle.bundle}), got {len(places)}; change its bundle, dead or dithers"
        )
    off = np.hypot(*np.moveaxis(np.stack(bundle.on_sky_at(angle, places.shape[1]), axis=2) - places, 2, 0)).max(axis=0)
    middle = float(off[len(off) // 2])
    if middle > _SAME_PLACE:
        raise ConfigError(
            f"{field}: expected fibres at the places of the instrument's bundle ({bundle.bundle}), got some up to "
            f"{middle:.3g} arcsec off; give their places (arrangement: positions), the dithers and the refraction"
        )
    worst = int(np.argmax(np.where(prepared.selection, off, 0.0)))
    if prepared.selection[worst] and off[worst] > 2 * bundle.radius * _SEEN_ALIKE:
        raise ConfigError(
            f"{field}: expected fibres at the instrument's places at all wavelengths, got some {off[worst]:.2g} arcsec "
            f"off at {frame.bins.wavelength[worst]:.0f} Angstrom, where refraction moves light of data or model alone; "
            f"give instrument.fibres.refraction as it was, or windows with fewer wavelengths"
        )


def _prepare(
    config: RunConfig, data: Sequence[DataSet], settings: FitSettings, galaxy: Given | None, first: int
) -> list[_Prepared]:
    """All sets, cut, on their grids."""
    cut = []
    for own in data:
        alone = _alone(settings, own, moves=any(one.settings.nuisance.shift is not None for one in data))
        observed, selection = select_bins(without_bad_voxels(own.observed, alone), alone, f"fit.data.{own.name}")
        cut.append((own.cut(observed), alone, selection))
    found = []
    for own, alone, selection in cut:
        scale = _lsf_range(own)
        run = config_of(config, own, 1.0 if scale is None else scale[0])
        grid = grid_of(own, run)
        displacement = (
            np.zeros(2) if own is cut[first][0] else displacement_of(config, grid.cube, cut[first][0].observed)
        )
        nuisance, psf = own.settings.nuisance, run.instrument.psf
        lacks = {
            "lsf_scale": ("an lsf", nuisance.lsf_scale is not None and run.instrument.lsf is None, "lsf"),
            "psf_fwhm": (
                "a psf of kind gaussian or moffat",
                nuisance.psf_fwhm is not None and (psf is None or psf.fwhm is None),
                "psf",
            ),
        }
        for key, (what, lacking, section) in lacks.items():
            if lacking:
                raise ConfigError(
                    f"fit.data.{own.name}.nuisance.{key}: expected an instrument with {what}, got none; leave it out, "
                    f"or give fit.data.{own.name}.instrument.{section}"
                )
        try:
            offset = [float(angle) for angle in np.array(run.observation.offset) + displacement]
            run = for_model(
                load_config(on_grid_of(run, grid.cube), overrides={"observation.offset": offset}),
                alone,
                noise=None,
                systematics=None,
            )
            run = with_fit_deposit(run, alone, galaxy, own.observed.meta)
        except ConfigError as error:
            raise ConfigError(f"fit.data.{own.name}: {error}") from error
        observed = own.observed
        if own.places is not None:  # files do not say how their field is turned
            observed = dataclasses.replace(observed, field_angle=grid.cube.field_angle)
        found.append(_Prepared(own, observed, selection, alone, grid, run, displacement, scale))
    return found


def _alone(settings: FitSettings, data: DataSet, *, moves: bool) -> FitSettings:
    """The settings of a fit of one set alone; `moves`: a set has an unknown shift, so that particles are smoothed."""
    section, free = data.settings, dict(settings.free)
    if section.nuisance.psf_fwhm is not None:
        free[FWHM] = section.nuisance.psf_fwhm
    if section.nuisance.velocity_shift is not None:
        free.setdefault("observation.velocity_offset", section.nuisance.velocity_shift)
    if moves and "observation.offset" not in free:
        free["observation.offset"] = {"normal": (0.0, 1.0)}
    changed = {
        "free": free,
        "data": None,
        "windows": section.windows,
        "exclude": section.exclude,
        "sigma": section.sigma,
        "correlated": (),
        "start": None,
    }
    return settings.model_copy(update=changed)


def _lsf_range(data: DataSet) -> tuple[float, float] | None:
    """The line spread's narrowest and widest factor of its prior."""
    prior = data.settings.nuisance.lsf_scale
    if prior is None:
        return None
    place = names_of(data.name, data.settings)["lsf_scale"]
    scale = read_prior(place, prior, "")
    low, high = (float(scale.value(np.asarray(latent))) for latent in (-_WIDEST, _WIDEST))
    if not low > 0:
        raise ConfigError(
            f"fit.data.{data.name}.nuisance.lsf_scale: expected a prior above 0, got one that reaches {low:.3g} at "
            f"{_WIDEST:g} sigma; take uniform or log_normal"
        )
    return low, high


def _particles(
    sets: Sequence[_Prepared], galaxy: Given | None, report: Report
) -> tuple[AbstractParticleSource, GalaxyInfo | None]:
    """The particles of all sets: of smooth components as many points as the sharpest set needs."""
    config = sets[0].config
    made, info = source_of(config, resolve(config).library, galaxy, report)
    components = made.base.components if isinstance(made, ComponentsSource) else ()
    if any(stars_of(component) is not None for component in components):
        raise ConfigError(
            "fit.data: expected one cube for a population of the kind free_form, which is solved for, got several data "
            "sets; take another kind of population, or fit one cube"
        )
    reader = config.galaxy
    if galaxy is None and isinstance(made, ComponentsSource) and isinstance(reader, ComponentsReader):
        counts = [point_numbers(reader, made.base, prepared.config) for prepared in sets]
        numbers = tuple(max(column) for column in zip(*counts, strict=True))
        made = ComponentsSource(made.base, made.base.points(numbers), numbers)
    return made, info


def _likelihood(prepared: _Prepared, fitted: FittedSet, free: Free) -> Likelihood:
    """The likelihood of a set alone; bins at the ends of a spectrum that is broadened are left out."""
    selection = prepared.selection
    if prepared.lsf_scale is not None:
        selection = selection & within_ends(len(selection), _ENDS * _widest_sigma(prepared, fitted.pipeline))
    return make_likelihood(prepared.observed, selection, fitted.seen, prepared.settings, free)


def _joint_likelihood(
    sets: Sequence[_Prepared], fitted: Sequence[FittedSet], free: Free, errors: Any
) -> tuple[Likelihood, tuple[str, ...]]:
    """All voxels in one row, with the correlations of each set, and notes on these."""
    pairs = zip(sets, fitted, strict=True)
    found = [_correlated(own, one, _likelihood(own, one, free), errors) for own, one in pairs]
    likelihoods = [own for own, _ in found]
    correlations = tuple(
        likelihood.errors if isinstance(likelihood.errors, AbstractCorrelation) else None for likelihood in likelihoods
    )
    if any(correlation is not None for correlation in correlations):
        if errors is not None:
            raise ConfigError(
                "fit.likelihood: expected kind gaussian beside the covariance of a data set, got another; leave one out"
            )
        errors = JointErrors(correlations, tuple(data_set.observed.shape for data_set in sets))
    flux, inverse_sigma, all_data = (
        row_of([np.asarray(getattr(likelihood, name)) for likelihood in likelihoods])
        for name in ("flux", "inverse_sigma", "inverse_sigma_of_data")
    )
    dependent = None if np.array_equal(all_data, inverse_sigma) else jax.device_put(all_data - inverse_sigma)
    return Likelihood(
        flux=jax.device_put(flux),
        inverse_sigma=jax.device_put(inverse_sigma),
        smallest_scale=likelihoods[0].smallest_scale,
        errors=errors,
        dependent=dependent,
    ), tuple(note for _, notes in found for note in notes)


def _correlated(
    prepared: _Prepared, fitted: FittedSet, likelihood: Likelihood, errors: Any
) -> tuple[Likelihood, tuple[str, ...]]:
    """The likelihood of a set with its correlations, and notes on these; `errors`: those of all sets."""
    covariance, place = prepared.data.settings.covariance, f"fit.data.{prepared.name}.covariance"
    if not isinstance(covariance, CovarianceSettings):
        off = covariance == "auto" and prepared.settings.likelihood.covariance is None
        against = None if errors is None else f"fit.likelihood.kind: {prepared.settings.likelihood.kind}"
        place, covariance = ("fit.likelihood.covariance", None) if off else (place, covariance)
        of_fibres = prepared.data.kind == "cube" and fitted.pipeline.frame.fibres is not None
        found, notes = with_covariance_of_data(
            likelihood, prepared.observed, covariance, place, against, of_fibres=of_fibres
        )
        return found, tuple(f"{prepared.name}: {note}" for note in notes)
    try:
        made = make_correlation(covariance, np.asarray(likelihood.inverse_sigma) > 0)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    return dataclasses.replace(likelihood, errors=made), ()


def _widest_sigma(prepared: _Prepared, pipeline: Pipeline) -> float:
    """Standard deviation in bins of the widest broadening of a set."""
    _, high = prepared.lsf_scale or (1.0, 1.0)
    stated, effective = _variances(prepared, pipeline)
    return float(np.sqrt(np.max(np.maximum(high**2 * stated - effective, 0.0))))


def _variances(prepared: _Prepared, pipeline: Pipeline) -> tuple[Float[ndarray, " wave"], Float[ndarray, " wave"]]:
    """Variances (bins^2) of the line spread: as stated of the instrument, and of the cube, planned for the least."""
    frame, (low, _) = pipeline.frame, prepared.lsf_scale or (1.0, 1.0)
    lsf = prepared.config.instrument.lsf
    if lsf is None:
        raise ValueError(f"{prepared.name}: expected an instrument with an lsf, got none")
    width = FWHM_PER_SIGMA * np.diff(frame.bins.edges)
    stated = instrument_fwhm(lsf, frame.bins.wavelength) / low
    return (stated / width) ** 2, (np.asarray(frame.lsf_fwhm) / width) ** 2


def _model(prepared: _Prepared, pipeline: Pipeline, sky: Float[ndarray, "template wave"] | None) -> SetModel:
    """How a set sees the galaxy."""
    broadening = None
    if prepared.lsf_scale is not None:
        stated, effective = _variances(prepared, pipeline)
        broadening = Broadening(stated, effective, reach_of(_widest_sigma(prepared, pipeline)))
    own = prepared.data.settings.nuisance.polynomial
    polynomial = None if own is None else legendre_basis(prepared.observed.wavelength, own.degree)
    effects = Effects(broadening, prepared.grid.view, polynomial, sky)
    return SetModel(
        tables=pipeline.tables,
        parameters=pipeline.parameters,
        effects=jax.tree.map(jnp.asarray, effects),
        displacement=jnp.asarray(prepared.displacement),
        plan=pipeline.plan,
        layout=pipeline.layout,
        name=prepared.name,
        shape=prepared.observed.shape,
        of_fibres=prepared.data.kind == "fibres",
    )


def _notes(
    sets: Sequence[_Prepared], fitted: Sequence[FittedSet], first: int, shared: tuple[str, ...]
) -> tuple[str, ...]:
    """Notes on the data of each set and on its model."""
    notes = [f"{data_set.name}: {note}" for data_set in fitted for note in data_set.observed.notes]
    others = [data_set for number, data_set in enumerate(fitted) if number != first]
    notes += [f"{other.name}: {note}" for other in others for note in other.pipeline.notes]
    for own in fitted:
        notes += [f"{own.name}: {note}" for note in notes_on_run(own.observed.meta, own.pipeline.frame.meta)]
    for number, own in enumerate(sets):
        unknown = None in (own.grid.cube.ra, sets[first].grid.cube.ra) and not own.data.centred
        if number != first and unknown and own.data.settings.nuisance.shift is None:
            notes.append(
                f"{own.name} or {sets[first].name} does not say where on the sky it is: the centres of both fields are "
                f"taken to be the same; nuisance.shift lets them differ"
            )
        if own.lsf_scale is not None:
            lost = int(np.sum(~within_ends(len(own.selection), _ENDS * _widest_sigma(own, fitted[number].pipeline))))
            notes.append(f"{own.name}: {lost} bins at the ends are left out, to which lsf_scale brings unknown light")
    for one, other in itertools.combinations(sets, 2):
        if number := _n_alike(one, other):
            notes.append(
                f"{one.name} and {other.name} hold the same data in {number} voxels, which count twice: errors are too "
                f"small by up to sqrt(2); leave out one of the sets, or give them windows that do not overlap"
            )
    return (*notes, *shared)


def _n_alike(one: _Prepared, other: _Prepared) -> int:
    """How many voxels two sets share at the wavelengths that both fit; 0 where any of them differ."""
    common = np.intersect1d(one.observed.wavelength[one.selection], other.observed.wavelength[other.selection])
    if one.observed.shape[:2] != other.observed.shape[:2] or not len(common):
        return 0
    bins = [np.searchsorted(prepared.observed.wavelength, common) for prepared in (one, other)]
    used = one.observed.used[:, :, bins[0]] & other.observed.used[:, :, bins[1]]
    alike = one.observed.flux[:, :, bins[0]] == other.observed.flux[:, :, bins[1]]
    return int(np.sum(used)) if np.array_equal(used, used & alike) else 0

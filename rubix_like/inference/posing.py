"""Posing of a problem: data are read and cut, a model of each data set is planned, likelihoods are joined."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Bool, Float
from numpy import ndarray
from scipy.special import chdtri

from rubix_like.config import RunConfig, load_config
from rubix_like.config.data_sets import CovarianceSettings
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.sections.fit import FitSettings
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.cube.observed import ObservedCube
from rubix_like.cube.observed.observed_cube import check_any_used, choose_voxels
from rubix_like.errors import ConfigError
from rubix_like.forward.cube_header import Header
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.pipeline import Pipeline
from rubix_like.forward.resolved import resolve
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.synthetic import ComponentDraws
from rubix_like.galaxy.validation import implausible_notes
from rubix_like.inference.data_grid import (
    check_same_grid,
    config_of,
    displacement_of,
    frame_of,
    grid_of,
    on_grid_of,
)
from rubix_like.inference.data_sets import (
    FWHM,
    DataSet,
    check_free_names,
    leaves_of,
    names_of,
    nuisances_of,
    sky_templates,
)
from rubix_like.inference.given_galaxies import GalaxiesInTurn, joint_census, load_given, stack_galaxies, without_unread
from rubix_like.inference.likelihoods.kinds import (
    JointErrors,
    make_correlation,
    make_errors,
    notes_on_errors,
    with_covariance_of_data,
)
from rubix_like.inference.likelihoods.voxel_errors import AbstractCorrelation, check_residuals
from rubix_like.inference.populations.populations import method_for_mixtures, mixtures_of, solved_stars
from rubix_like.inference.posterior.fit_model import (
    LIKELIHOOD,
    NOISE_SCALE,
    STARS,
    V_LOS,
    AbstractForward,
    AbstractParticleSource,
    ComponentsSource,
    Forward,
    Free,
    HeldSource,
    SyntheticSource,
    line_of_sight,
    read_prior,
)
from rubix_like.inference.posterior.free_parameters import SMALLEST_LATENT, age_notes, read_free, read_start
from rubix_like.inference.posterior.joint_forward import Broadening, Effects, JointForward, SetModel
from rubix_like.inference.posterior.model_settings import (
    check_line_widths,
    check_masses,
    deposit_of_fit,
    given_source,
    library_notes_of,
    model_config,
    model_declarations,
    notes_on_run,
    planned,
    settled,
    source_of,
    trees_of,
    without_noise,
    without_unread_gas,
)
from rubix_like.inference.posterior.posterior import Likelihood, Polynomial, Posterior, legendre_basis, on_mesh
from rubix_like.inference.posterior.problem import FittedSet, Given, Problem, for_samples, variance_of
from rubix_like.inference.request import Request
from rubix_like.instrument.crowding import AUTO
from rubix_like.physics.gaussian import reach_of
from rubix_like.physics.plausibility import implausible_voxels
from rubix_like.readers.galaxy_loading import with_deposit
from rubix_like.readers.model_readers import point_numbers
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.runtime.notes import WARNING, Note, as_notes
from rubix_like.runtime.progress import Progress, Report
from rubix_like.runtime.words import percent
from rubix_like.ssp import SSPLibrary

_RANDOM_DRAWS = (
    "the synthetic galaxy's base draws are random: its particle noise is lower with galaxy.draws: sobol, and "
    "fit.model_error takes account of what is left of it"
)

_WIDENED = 2.0
"""Factor on the latents of the draws by which the fastest star is looked for: no simulation of many may have a faster
one."""

_MOST, _CHANCE = 1e6, 1e-3
"""Simulations with separate particles among which a faster one than planned for has so small a chance. The plan is
the same whatever their number, so that a set can be made longer."""

_FAST = ("observation.velocity_offset", "stars.velocity", V_LOS)
"""Parameters by which stars of given galaxies become faster."""


def pose(
    request: Request,
    galaxy: Given | None,
    progress: Progress,
    n_sample: int = 1,
    check: Callable[[tuple[int, int, int]], None] | None = None,
) -> Problem:
    """The problem of a request: its data are read, a model of each data set is planned, on a mesh for `n_sample` models
    at once.

    `check`: what the shape of the largest cube must pass before. `observation.offset` is that from the centre of the
    first cube's field (of the first set's, where there is no cube); other sets have it by their coordinates. Raises
    ConfigError for settings and ValueError for data that cannot be used.
    """
    with progress.step("load", "reading the data"):
        data = request.read()
    if check is not None:
        check(max((data_set.observed.shape for data_set in data), key=np.prod))
    words = "planning the model" if len(data) == 1 else "planning the models"
    with progress.step("plan", words) as report:
        problem = _posed(request, data, galaxy, n_sample, report)
        particles = problem.posterior.forward.source.of_host({})
        found = implausible_notes(particles, is_at_rest=True)  # a model may have no velocity dispersion
        check_plausible(found, "the galaxy", request.settings)
        return dataclasses.replace(problem, notes=tuple(dict.fromkeys((*problem.notes, *found))))


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
    """A data set whose model can be planned: its data, cut to the windows.

    `selection`: bins that are fitted; `settings`: those of a fit of it alone; `cube`: the axes of its model; `view`:
    the `Effects` from there to the data; `config`: its run; `displacement`: from the first cube, (East, North) in
    arcsec; `lsf_scale`: narrowest and widest factor on the line spread, and the `broadening` that follows.
    """

    data: DataSet
    selection: Bool[ndarray, " wave"]
    settings: FitSettings
    config: RunConfig
    cube: ObservedCube
    view: Mapping[str, ndarray] = dataclasses.field(default_factory=dict)
    displacement: Float[ndarray, "2"] = dataclasses.field(default_factory=lambda: np.zeros(2))
    lsf_scale: tuple[float, float] | None = None
    broadening: Broadening | None = None

    @property
    def name(self) -> str:
        """The name of the set; empty for the one cube."""
        return self.data.name

    @property
    def observed(self) -> ObservedCube:
        """The data."""
        return self.data.observed

    def says(self, notes: Iterable[str]) -> list[Note]:
        """Notes with the name of the set in front."""
        return [note.about(self.name) if self.name else note for note in as_notes(notes)]


def _posed(request: Request, data: Sequence[DataSet], galaxy: Given | None, n_sample: int, report: Report) -> Problem:
    settings, sections = request.settings, {data_set.name: data_set.settings for data_set in data if data_set.name}
    if sections:
        check_free_names(settings.free, sections)
    first = next((number for number, data_set in enumerate(data) if data_set.kind in {"cube", "fibres"}), 0)
    errors = {LIKELIHOOD: make_errors(settings.likelihood)}
    sets, source, pipelines, of_ages = _planned(request, data, galaxy, first, errors, report)
    source = without_unread_gas(source, pipelines[first], settings)
    skies = [sky_templates(data_set.name, data_set.data.settings, data_set.observed) for data_set in sets]
    parameters, is_held = pipelines[first].parameters, isinstance(source, HeldSource)
    sight = line_of_sight(pipelines[first].tables, parameters) if is_held else None
    trees = trees_of(source, parameters, sight) | errors
    for data_set, pipeline, sky in zip(sets, pipelines, skies, strict=True):
        trees |= leaves_of(data_set.name, data_set.data.settings, pipeline.parameters, sky)
    priors, declared = nuisances_of(sections)
    joint = settings.model_copy(update={"free": {**settings.free, **priors}}) if priors else settings
    deposits = [pipeline.plan.deposit for pipeline in pipelines]
    deposit = "nearest" if "nearest" in deposits else deposits[0]  # nearest gives the least gradients
    free = read_free(joint, trees, deposit, model_declarations(source) | declared)
    check_masses(source, free)
    for pipeline in pipelines:
        check_line_widths(free, pipeline)
    placed, begin = list[FittedSet](), 0
    for data_set, pipeline in zip(sets, pipelines, strict=True):
        given, frame = data_set.data, frame_of(pipeline.frame, data_set.data, data_set.cube)
        places = None if given.places is None else given.places[:, given.places.shape[1] // 2]
        planned_for = for_samples(pipeline, n_sample)
        placed.append(
            FittedSet(given.name, given.kind, given.observed, planned_for, frame, data_set.settings, begin, places)
        )
        begin = placed[-1].place.stop
    fitted = tuple(placed)
    alone = [
        make_likelihood(data_set.observed, data_set.selection, in_fit.frame, data_set.settings, free)
        for data_set, in_fit in zip(sets, fitted, strict=True)
    ]
    forward = _forward(sets, fitted, source, skies, first, alone)
    likelihood, of_data = _joint_likelihood(sets, fitted, alone, errors[LIKELIHOOD], forward)
    check_residuals(errors[LIKELIHOOD], likelihood.flux, likelihood.inverse_sigma)
    is_random = isinstance(source, SyntheticSource) and source.draws.kind == "random"
    of_draws = [Note("galaxy.random_draws", _RANDOM_DRAWS, WARNING)] if is_random else []
    shared = (*of_data, *of_ages, *of_draws, *library_notes_of(free, pipelines[first]))
    start = read_start(settings.start, free, trees)
    posterior = on_mesh(Posterior(forward, free, likelihood), fitted[first].pipeline.mesh)
    return Problem(posterior, fitted, joint, _notes(sets, fitted, first, shared), start, first)


_Planned = tuple[list[_Prepared], AbstractParticleSource, list[Pipeline], tuple[str, ...]]


def _planned(
    request: Request,
    data: Sequence[DataSet],
    galaxy: Given | None,
    first: int,
    errors: Mapping[str, Any],
    report: Report,
) -> _Planned:
    """The data sets, cut; the particles that they share; the pipeline of each, without noise; notes on ages."""
    moves = any(data_set.settings.nuisance.shift is not None for data_set in data)
    cut = [_cut(request, data_set, moves=moves) for data_set in data]
    if isinstance(request.model, Pipeline):
        check_same_grid(request.model.frame, cut[0].observed)
        return cut, given_source(galaxy), [without_noise(request.model)], ()
    reference = _with_run(cut[first], None, galaxy)
    sets = [
        reference if number == first else _with_run(data_set, reference.cube, galaxy)
        for number, data_set in enumerate(cut)
    ]
    resolved = []
    for data_set in sets:
        with data_set.data.naming():
            resolved.append(resolve(data_set.config))
    particles = _particles(sets, resolved[0].library, galaxy, report)
    broadened, pipelines, notes = [], [], []
    for data_set, known in zip(sets, resolved, strict=True):
        with data_set.data.naming():
            pipeline, of_ages = planned(data_set.config, known, data_set.settings, particles, errors)
        _check_fibres(data_set, pipeline)
        broadened.append(_broadened(data_set, pipeline))
        pipelines.append(without_noise(pipeline))
        notes.append(of_ages)
    return broadened, particles[0], pipelines, notes[first]


def _forward(
    sets: Sequence[_Prepared],
    fitted: Sequence[FittedSet],
    source: AbstractParticleSource,
    skies: Sequence[Float[ndarray, "template wave"] | None],
    first: int,
    alone: Sequence[Likelihood],
) -> AbstractForward:
    """The model of all data sets: of one cube with what solving for free-form populations needs."""
    if sets[0].name:
        triples = zip(sets, fitted, skies, strict=True)
        models = tuple(_model(data_set, in_fit.pipeline, sky) for data_set, in_fit, sky in triples)
        return JointForward(sets=models, source=source, first=first)
    forward = Forward.of(fitted[0].pipeline, source)
    if not isinstance(source, ComponentsSource):
        return forward
    (likelihood,) = alone
    of_data = (likelihood.flux, likelihood.inverse_sigma)
    mixtures = mixtures_of(source.base, fitted[0].pipeline, sets[0].settings, *of_data)
    return dataclasses.replace(forward, mixtures=mixtures)


def _check_fibres(prepared: _Prepared, pipeline: Pipeline) -> None:
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


def _cut(request: Request, data: DataSet, *, moves: bool) -> _Prepared:
    """The set cut to its windows, with settings as if it were alone; `moves`: some set has an unknown shift."""
    settings = request.settings
    if data.name:
        nuisance, free = data.settings.nuisance, dict(settings.free)
        if nuisance.psf_fwhm is not None:
            free[FWHM] = nuisance.psf_fwhm
        if nuisance.velocity_shift is not None:
            free.setdefault("observation.velocity_offset", nuisance.velocity_shift)
        if moves and "observation.offset" not in free:
            free["observation.offset"] = {"normal": (0.0, 1.0)}
        of_set = {name: getattr(data.settings, name) for name in ("windows", "exclude", "sigma")}
        alone = {"free": free, "data": None, "correlated": (), "start": None, **of_set}
        settings = settings.model_copy(update=alone)
    observed, selection = select_bins(without_bad_voxels(data.observed, settings), settings, data.place)
    return _Prepared(data.cut(observed), selection, settings, request.config, observed)


def _with_run(prepared: _Prepared, first: ObservedCube | None, galaxy: Given | None) -> _Prepared:
    """The set with the run of its model on its grid, every setting of which is decided but for those that depend on
    the particles; `first`: the grid from which its displacement is measured (None: that of the set)."""
    data, nuisance, scale = prepared.data, prepared.data.settings.nuisance, None
    if nuisance.lsf_scale is not None:
        prior = read_prior(names_of(data.name, data.settings)["lsf_scale"], nuisance.lsf_scale, "")
        low, high = (float(prior.value(np.asarray(latent))) for latent in (-_WIDEST, _WIDEST))
        if not low > 0:
            raise ConfigError(
                f"fit.data.{data.name}.nuisance.lsf_scale: expected a prior above 0, got one that reaches {low:.3g} at "
                f"{_WIDEST:g} sigma; take uniform or log_normal"
            )
        scale = low, high
    with data.naming():
        run = config_of(prepared.config, data, 1.0 if scale is None else scale[0])
    cube, view = grid_of(data, run)
    displacement = np.zeros(2) if first is None else displacement_of(prepared.config, cube, first)
    psf = run.instrument.psf
    for key, section, what, lacking in (
        ("lsf_scale", "lsf", "an lsf", run.instrument.lsf is None),
        ("psf_fwhm", "psf", "a psf of kind gaussian or moffat", psf is None or psf.fwhm is None),
    ):
        if lacking and getattr(nuisance, key) is not None:
            raise ConfigError(
                f"{data.place}.nuisance.{key}: expected an instrument with {what}, got none; leave it out, "
                f"or give {data.place}.instrument.{section}"
            )
    with data.naming():
        offset = [float(angle) for angle in np.array(run.observation.offset) + displacement]
        run = on_grid_of(run, cube)
        deposit = deposit_of_fit(run, prepared.settings, galaxy, data.observed.meta)
        components = galaxy.base if isinstance(galaxy, ComponentsSource) else None
        method = method_for_mixtures(run.galaxy, components, run.engine.method)
        of_fit = {"observation.offset": offset, "engine.method": method}
        run = model_config(run, prepared.settings, deposit, noise=None, systematics=None, **of_fit)
    if data.places is not None:  # files do not say how their field is turned
        data = data.cut(dataclasses.replace(data.observed, field_angle=cube.field_angle))
    found = {"data": data, "cube": cube, "view": view, "config": run}
    return dataclasses.replace(prepared, **found, displacement=displacement, lsf_scale=scale)


def _particles(
    sets: Sequence[_Prepared], library: SSPLibrary, galaxy: Given | None, report: Report
) -> tuple[AbstractParticleSource, GalaxyInfo | None]:
    """The particles of all sets: of smooth components as many points as the sharpest set needs."""
    config = sets[0].config
    source, info = source_of(config, library, galaxy, report)
    if len(sets) == 1 and not sets[0].name:
        return source, info
    if isinstance(source, ComponentsSource) and solved_stars(source.base):
        raise ConfigError(
            "fit.data: expected one cube for a population of the kind free_form, which is solved for, got several data "
            "sets; take another kind of population, or fit one cube"
        )
    reader = config.galaxy
    if galaxy is None and isinstance(source, ComponentsSource) and isinstance(reader, ComponentsReader):
        counts = [point_numbers(reader, source.base, prepared.config) for prepared in sets]
        numbers = tuple(max(column) for column in zip(*counts, strict=True))
        source = ComponentsSource(source.base, source.base.points(numbers), numbers)
    return source, info


def _joint_likelihood(
    sets: Sequence[_Prepared],
    fitted: Sequence[FittedSet],
    alone: Sequence[Likelihood],
    errors: Any,
    forward: AbstractForward,
) -> tuple[Likelihood, tuple[str, ...]]:
    """The likelihood of all voxels with the correlations of each set, and notes on these."""
    solved = isinstance(forward, Forward) and forward.mixtures is not None
    likelihoods, notes = [], []
    for data_set, in_fit, likelihood in zip(sets, fitted, alone, strict=True):
        correlated, of_data = _correlated(data_set, in_fit, likelihood, errors, solved=solved)
        likelihoods.append(correlated)
        notes += of_data
    if not sets[0].name:
        return likelihoods[0], (*notes_on_errors(likelihoods[0].errors), *notes)
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
        np.concatenate([np.asarray(getattr(likelihood, name)).reshape(-1) for likelihood in likelihoods])[None, None]
        for name in ("flux", "inverse_sigma", "inverse_sigma_of_data")
    )
    dependent = None if np.array_equal(all_data, inverse_sigma) else jax.device_put(all_data - inverse_sigma)
    return Likelihood(
        flux=jax.device_put(flux),
        inverse_sigma=jax.device_put(inverse_sigma),
        smallest_scale=likelihoods[0].smallest_scale,
        errors=errors,
        dependent=dependent,
    ), (*notes, *notes_on_errors(errors))


def _correlated(
    prepared: _Prepared, fitted: FittedSet, likelihood: Likelihood, errors: Any, *, solved: bool
) -> tuple[Likelihood, tuple[str, ...]]:
    """The likelihood of a data set with its correlations, or the errors of all sets, and notes on the data's; `solved`:
    whether populations are solved for."""
    settings, section, place = prepared.settings, prepared.settings.likelihood, "fit.likelihood.covariance"
    covariance = section.covariance
    if prepared.name and not (covariance is None and prepared.data.settings.covariance == "auto"):
        covariance, place = prepared.data.settings.covariance, f"{prepared.data.place}.covariance"
    if isinstance(covariance, CovarianceSettings):
        with prepared.data.naming(".covariance"):
            correlation = make_correlation(covariance, np.asarray(likelihood.inverse_sigma) > 0)
        return dataclasses.replace(likelihood, errors=correlation), ()
    others = {
        f"fit.likelihood.kind: {section.kind}": errors is not None,
        "fit.polynomial": settings.polynomial is not None,
        "fit.model_error": settings.model_error is not None,
        "a free-form population": solved,
    }
    against = next((name for name, given in others.items() if given), None)
    of_fibres = prepared.data.kind == "cube" and fitted.pipeline.frame.fibres is not None
    likelihood = dataclasses.replace(likelihood, errors=errors)
    found, notes = with_covariance_of_data(
        likelihood, prepared.observed, covariance, place, against, of_fibres=of_fibres
    )
    return found, tuple(prepared.says(notes))


def _broadened(prepared: _Prepared, pipeline: Pipeline) -> _Prepared:
    """The data set with the broadening of its line spread; the bins that it spreads light from beyond the ends to are
    not fitted, and a note says so. Variances are in bins^2: of the instrument as stated, and of the cube, which is
    planned for the narrowest line spread."""
    lsf, frame = prepared.config.instrument.lsf, pipeline.frame
    if prepared.lsf_scale is None or lsf is None:
        return prepared
    low, high = prepared.lsf_scale
    width = FWHM_PER_SIGMA * np.diff(frame.bins.edges)
    stated = (instrument_fwhm(lsf, frame.bins.wavelength) / low / width) ** 2
    effective = (np.asarray(frame.lsf_fwhm) / width) ** 2
    widest = float(np.sqrt(np.max(np.maximum(high**2 * stated - effective, 0.0))))
    place = np.arange(len(prepared.selection))
    inside = np.minimum(place, place[::-1]) >= _ENDS * widest
    text = f"{np.sum(~inside)} bins at the ends are left out, to which lsf_scale brings unknown light"
    notes = (*prepared.observed.notes, Note("data.ends_left_out", text))
    return dataclasses.replace(
        prepared,
        data=dataclasses.replace(prepared.data, observed=dataclasses.replace(prepared.observed, notes=notes)),
        selection=prepared.selection & inside,
        broadening=Broadening(stated, effective, reach_of(widest)),
    )


def _model(prepared: _Prepared, pipeline: Pipeline, sky: Float[ndarray, "template wave"] | None) -> SetModel:
    continuum = prepared.data.settings.nuisance.polynomial
    polynomial = None if continuum is None else legendre_basis(prepared.observed.wavelength, continuum.degree)
    effects = Effects(prepared.broadening, polynomial=polynomial, sky=sky, **prepared.view)
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
    notes, reference = list[str](), sets[first]
    for number, (data_set, in_fit) in enumerate(zip(sets, fitted, strict=True)):
        of_pipeline = () if number == first else in_fit.pipeline.notes
        of_run = notes_on_run(data_set.observed.meta, in_fit.pipeline.frame.meta)
        notes += data_set.says((*data_set.observed.notes, *of_pipeline, *of_run))
        unknown = None in (data_set.cube.ra, reference.cube.ra)
        aperture = data_set.data.settings.aperture
        unknown = unknown and (aperture is None or aperture.ra is not None)  # else it lies at the first cube's centre
        if number != first and unknown and data_set.data.settings.nuisance.shift is None:
            notes.append(
                Note(
                    "data.sky_unknown",
                    f"{data_set.name} or {reference.name} does not say where on the sky it is: the centres of both "
                    f"fields are taken to be the same; nuisance.shift lets them differ",
                    WARNING,
                )
            )
    for data_set, other in itertools.combinations(sets, 2):
        if number := _n_alike(data_set, other):
            notes.append(
                Note(
                    "data.counted_twice",
                    f"{data_set.name} and {other.name} hold the same data in {number} voxels, which count twice: "
                    f"errors are too small by up to sqrt(2); leave out one of the sets, or give them windows that do "
                    f"not overlap",
                    WARNING,
                )
            )
    return (*notes, *shared)


def _n_alike(first: _Prepared, second: _Prepared) -> int:
    """How many voxels of two sets hold the same numbers; 0 where any of them differ."""
    data = first.observed, second.observed
    common = np.intersect1d(data[0].wavelength[first.selection], data[1].wavelength[second.selection])
    if data[0].shape[:2] != data[1].shape[:2] or not len(common):
        return 0
    bins = [np.searchsorted(observed.wavelength, common) for observed in data]
    used = data[0].used[:, :, bins[0]] & data[1].used[:, :, bins[1]]
    differ = used & (data[0].flux[:, :, bins[0]] != data[1].flux[:, :, bins[1]])
    return 0 if differ.any() else int(np.sum(used))


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
    found = tuple(implausible_voxels(observed.flux, variance_of(observed, settings), used, settings.sigma))
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
        Note(
            "settings.without_effect",
            f"{place}.exclude[{number}]: {list(window)} has no effect: it holds no {bins}",
            WARNING,
        )
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


def make_likelihood(
    observed: ObservedCube, selection: ndarray, frame: Header, settings: FitSettings, free: Free
) -> Likelihood:
    """The data with their errors; voxels that are masked, not selected or not in the model are left out."""
    variance = variance_of(observed, settings)
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


@dataclasses.dataclass(frozen=True, eq=False)
class PosedModel:
    """A problem without data, for simulations: the pipeline of all, on a mesh of which every device makes separate
    simulations, the model, and its free parameters."""

    pipeline: Pipeline
    forward: Forward
    free: Free
    notes: tuple[str, ...]


def pose_model(config: RunConfig, galaxies: Sequence[Galaxy] | None, report: Report) -> PosedModel:
    """The model for the free parameters of `config.fit`; `galaxies`: observed in turn, instead of the reader's.

    Raises ConfigError for settings, and OSError or ValueError for galaxies, that cannot be used.
    """
    settings, deposit = config.fit or FitSettings(), config.engine.deposit
    in_turn = galaxies is not None or bool(config.simulate and config.simulate.galaxies)
    is_model = isinstance(config.galaxy, SyntheticReader | ComponentsReader) and not in_turn
    as_points = is_model and deposit == AUTO  # synthetic galaxies have no smoothing lengths
    run = model_config(config, settings, "nearest" if as_points else deposit)
    posed = _of_synthetic(run, settings, report) if is_model else _of_given(run, settings, galaxies, report)
    pipeline, source, trees, notes = posed
    if as_points:
        stars = source.of_host({}).stars
        if with_deposit(load_config(run, {"engine.deposit": AUTO}), stars).engine.deposit == "smoothed":
            notes = (*notes, Note("deposit.simulated_as_points", _AS_POINTS, WARNING))
    free = read_free(settings, trees, None)
    pipeline = for_samples(pipeline, pipeline.mesh.size)
    forward = Forward.of(pipeline, source, on_device=True)
    return PosedModel(pipeline, forward, free, (*notes, *library_notes_of(free, pipeline)))


_AS_POINTS = (
    "a run of this configuration smooths its few stars (engine.deposit: auto), simulations paint them as points "
    "(nearest), for want of smoothing lengths: set engine.deposit: tsc in both"
)


_Particles = tuple[Pipeline, AbstractParticleSource, dict[str, Any], tuple[str, ...]]


def _of_synthetic(run: RunConfig, settings: FitSettings, report: Report) -> _Particles:
    """The pipeline for the configuration's galaxy and its fastest stars, its particles, parameter trees, and notes."""
    resolved = resolve(run)
    source, info = source_of(run, resolved.library, None, report)
    is_new = run.simulate is None or run.simulate.particles == "new"
    fastest = _with_fastest(source) if is_new and isinstance(source, SyntheticSource) else source
    pipeline, notes = planned(run, resolved, settings, (source, info), fastest=fastest, widened=_WIDENED)
    source = without_unread_gas(source, pipeline, settings)
    return pipeline, source, trees_of(source, pipeline.parameters, None), notes


def _of_given(run: RunConfig, settings: FitSettings, galaxies: Sequence[Galaxy] | None, report: Report) -> _Particles:
    """The pipeline for given galaxies, planned by their joint census, and the rest as `_of_synthetic` gives it."""
    given, info, notes, run, resolved = load_given(run, galaxies, report)
    of_stars = [name for name in settings.free if name.startswith(STARS)]
    if len(given) > 1 and of_stars:
        raise ConfigError(
            f"fit.free.{of_stars[0]}: expected one galaxy for parameters of its stars, got {len(given)}; leave it out"
        )

    def trees(parameters: Parameters, sight: ArrayLike | None) -> dict[str, Any]:
        return {"": parameters} if len(given) > 1 else trees_of(HeldSource(given[0]), parameters, sight)

    free = read_free(settings, trees(Parameters.build(run, run.engine.precision), None), None)
    fastest = None
    if free.has(*_FAST):
        galaxy = max(given, key=lambda galaxy: np.linalg.norm(galaxy.stars.velocity, axis=1).max())
        fastest = HeldSource(jax.tree.map(jnp.asarray, galaxy))
    run, resolved = settled(run, resolved, settings, free, fastest, _WIDENED)
    census, rotations = joint_census(run, resolved, given)
    pipeline = Pipeline.from_config(run, info=info, census=census, resolved=resolved)
    kept, left_out = without_unread(given, pipeline.plan)
    source = GalaxiesInTurn(stack_galaxies(kept, with_gas=pipeline.tables.reads_gas), rotations)
    sight = line_of_sight(pipeline.tables, pipeline.parameters)
    return pipeline, source, trees(pipeline.parameters, sight), (*notes, *left_out, *age_notes(free, run))


def _with_fastest(source: SyntheticSource) -> SyntheticSource:
    """With particles as fast as the fastest of all simulations: standard normals of three velocities longer than any
    among `_MOST` times as many particles, but for a chance of `_CHANCE`."""

    def stretched(part: ComponentDraws | None) -> ComponentDraws | None:
        if part is None or not len(part.normal):
            return part
        normal = np.array(part.normal)
        longest = np.sqrt(chdtri(3, _CHANCE / (_MOST * len(normal))))
        normal[:, :3] *= max(1.0, longest / np.linalg.norm(normal[:, :3], axis=1).max())
        return dataclasses.replace(part, normal=normal)

    draws = source.draws
    disc, bulge, gas = (stretched(part) for part in (draws.disc, draws.bulge, draws.gas))
    return dataclasses.replace(source, draws=dataclasses.replace(draws, disc=disc, bulge=bulge, gas=gas))

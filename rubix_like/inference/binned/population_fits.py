"""`fit_populations`: free-form populations and kinematics of the spaxels or bins of a cube."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.loading import load_config
from rubix_like.config.sections.instrument import LSFSettings
from rubix_like.config.yaml_files import parse_yaml
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube, observed_from, read_observed
from rubix_like.errors import ConfigError
from rubix_like.inference.binned.bin_fits import BinFit, BinSpectrum, fit_bin
from rubix_like.inference.binned.bin_templates import (
    LARGEST_SIGMA,
    LARGEST_VELOCITY,
    BinTemplates,
    make_templates,
)
from rubix_like.inference.binned.binning import NOT_BINNED, voronoi_bins
from rubix_like.inference.binned.population_maps import PopulationMaps, notes_on_misfit
from rubix_like.inference.binned.population_settings import PopulationSettings, read_settings
from rubix_like.inference.populations.histories import Populations
from rubix_like.inference.populations.ratio_prior import Neighbours, neighbours_of
from rubix_like.inference.populations.smoothness import smoothness_rows
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.physics.cosmology import find_cosmology, observed_distance, universe_age
from rubix_like.runtime.progress import Progress, Report
from rubix_like.runtime.words import counted, percent
from rubix_like.ssp import SSPLibrary, load_ssp

_LEAST_USED = 0.5
"""Share of its wavelengths that a spaxel must have to be in a bin."""

_MOST_AGES = 24
_YOUNGEST, _OLDER = 6.5, 0.02
"""Of the nodes that are taken where none are given; dex that they may be older than the Universe."""

_COSMOLOGY = "Planck18"


class Kinematics(NamedTuple):
    """Velocities and dispersions in km/s that are given: numbers, or images (y, x)."""

    velocity: float | Float[ndarray, "y x"]
    sigma: float | Float[ndarray, "y x"]


@named_arguments
def fit_populations(
    data: FitResult | Cube | ObservedCube | str | Path,
    ssp: SSPLibrary | str | Path | None = None,
    *,
    bins: float | Int[ndarray, "y x"] | None = None,
    kinematics: Kinematics | tuple[Any, Any] | None = None,
    output: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> PopulationMaps:
    """Mass at every age and metallicity in each spaxel or bin of a cube, non-negative and smooth, with errors.

    Spectra are sum_k w_k T_k(lambda; V, sigma), w_k >= 0 the mass at birth of a node, T_k its template with Gaussian
    velocities. The prior of w is on ratios of neighbours (`draw_by_ratios`), or smooth with `regularisation`. `data`: a
    cube with a variance, its file, or the result of a fit. `bins`: a signal to noise, an image of numbers (-1: none),
    or None: all spaxels. `kinematics`: (V, sigma) in km/s, numbers or images, that are kept; None: fitted. `settings`:
    `PopulationSettings`. Needs 64-bit numbers in JAX. Raises ConfigError, ValueError or OSError for what cannot be.
    """
    own, progress = read_settings(settings), progress or Progress()
    _check_precision()
    with progress.step("load", "reading the data"):
        source = _source_of(data, ssp, own)
        spectra = _spectra_of(source.observed, _chosen(source.observed, own), bins)
    motion = None if kinematics is None else _motion_of(kinematics, spectra.bin_map)
    with progress.step("plan", "templates on the detector"):
        problem = _problem_of(source, spectra, own)
    with progress.step("fit", f"populations of {counted(len(problem.inverse_sigma), 'spectrum', 'spectra')}") as report:
        result = _result(_fit_all(problem, spectra, motion, own, report), problem, spectra, source)
    if output is not None:
        with progress.step("write", f"writing {output}"):
            result.write(output)
    return result


def _check_precision() -> None:
    if not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ConfigError(
            "fit_populations: expected 64-bit numbers in JAX, got 32-bit ones, in which weights are not determined; "
            "call jax.config.update('jax_enable_x64', True) first"
        )


class _Problem(NamedTuple):
    templates: BinTemplates
    log_age: Float[ndarray, " age"]
    metallicity: Float[ndarray, " metal"]
    smoothness: Float[ndarray, "difference node"]
    neighbours: Neighbours
    inverse_sigma: Float[ndarray, "bin wave"]


def _problem_of(source: "_Source", spectra: "_Spectra", own: PopulationSettings) -> _Problem:
    """The templates of all nodes, and which wavelengths they cover of those that have data."""
    log_age, metallicity = _nodes(source.library, own.log_ages, own.metallicities, source.redshift)
    grid = (log_age, metallicity, source.observed.bins, source.lsf, source.redshift, source.distance)
    templates = make_templates(source.library, *grid)
    inverse = np.where(templates.covered, spectra.inverse_sigma, 0.0)
    _check_fitted(inverse, source)
    nodes = np.log10(metallicity), log_age, np.asarray(templates.coefficients)[:, 0]
    return _Problem(templates, log_age, metallicity, smoothness_rows(*nodes), neighbours_of(*nodes), inverse)


def _fit_all(
    problem: _Problem, spectra: "_Spectra", motion: ndarray | None, own: PopulationSettings, report: Report
) -> BinFit:
    """The fits of all bins, one after the other by one compiled program."""
    count = len(problem.inverse_sigma)
    keys = jax.random.split(jax.random.key(own.seed), count)
    strength = None if own.regularisation is None else jnp.asarray(float(own.regularisation))
    found = []
    for number, spectrum in enumerate(zip(spectra.flux, problem.inverse_sigma, strict=True)):
        report("bin", number, count)
        given = None if motion is None else jnp.asarray(motion[number])
        arguments = (jnp.asarray(problem.smoothness), problem.neighbours, strength, given, keys[number])
        found.append(jax.device_get(_fitted(own.draws, problem.templates, BinSpectrum(*spectrum), *arguments)))
    return jax.tree.map(lambda *one: np.stack(one), *found)


class _Source(NamedTuple):
    observed: ObservedCube
    library: SSPLibrary
    redshift: float
    distance: float
    lsf: LSFSettings | None


class _Spectra(NamedTuple):
    bin_map: Int[ndarray, "y x"]
    flux: Float[ndarray, "bin wave"]
    inverse_sigma: Float[ndarray, "bin wave"]
    notes: tuple[str, ...]


@functools.partial(jax.jit, static_argnums=0)
def _fitted(
    n_draw: int,
    templates: BinTemplates,
    spectrum: BinSpectrum,
    rows: Array,
    neighbours: Neighbours,
    strength: Array | None,
    motion: Array | None,
    key: Array,
) -> BinFit:
    return fit_bin(templates, spectrum, rows, neighbours, strength, motion, key, n_draw)


def _source_of(data: Any, ssp: Any, own: PopulationSettings) -> _Source:
    """The data, with what a result of a fit knows of them."""
    redshift, distance, settings, cosmology = own.redshift, own.distance, own.lsf, _COSMOLOGY
    if isinstance(data, FitResult):
        config = load_config(parse_yaml(data.config, "the result's configuration"))
        if data.sets and settings is None:
            raise ConfigError(
                "lsf: expected the line spread of the first cube beside the result of a fit of several data sets, got "
                "none; give lsf"
            )
        ssp, cosmology = config.ssp.library if ssp is None else ssp, config.observation.cosmology
        redshift = config.observation.redshift if redshift is None else redshift
        distance = config.observation.distance if distance is None else distance
        settings = config.instrument.lsf if settings is None else settings
        model, residual = data.model, data.residual
        flux = np.asarray(model.flux) + np.asarray(residual.flux)
        observed = observed_from(dataclasses.replace(residual, flux=flux), "the data of a fit")
    elif isinstance(data, Cube):
        observed = observed_from(data)
    else:
        observed = data if isinstance(data, ObservedCube) else read_observed(data)
    if ssp is None:
        raise ConfigError("ssp: expected an SSP library, its name or file, got none; give it, e.g. ssp='popstar'")
    if redshift is None:
        raise ConfigError("redshift: expected that of the galaxy, got none; give it, e.g. redshift=0.02")
    if observed.variance is None:
        raise ConfigError(f"{observed.source}: expected a variance, got none; give data with one")
    library = ssp if isinstance(ssp, SSPLibrary) else load_ssp(ssp)
    found = observed_distance(cosmology, redshift, distance)
    if not found > 0:
        raise ConfigError(f"distance: expected a luminosity distance above 0 Mpc, got {found:g}; give it at redshift 0")
    return _Source(observed, library, float(redshift), found, settings)


def _chosen(observed: ObservedCube, own: PopulationSettings) -> Bool[ndarray, " wave"]:
    """The bins of wavelength that are to be fitted."""
    wavelength = observed.wavelength

    def within(ranges: Any) -> ndarray:
        return np.any([(wavelength >= low) & (wavelength <= high) for low, high in ranges], axis=0)

    chosen = np.ones(len(wavelength), bool) if own.windows is None else within(own.windows)
    return chosen & ~within(own.exclude) if own.exclude else chosen


def _spectra_of(observed: ObservedCube, chosen: ndarray, bins: Any) -> _Spectra:
    """The sums over the spaxels of every bin."""
    assert observed.variance is not None
    used = observed.used & chosen
    enough = used.sum(axis=2) >= max(1, _LEAST_USED * chosen.sum())
    if not enough.any():
        raise ValueError(
            f"{observed.source}: expected a spaxel with data at half of the {int(chosen.sum())} wavelengths that are "
            f"fitted, got none; check the mask, windows and exclude"
        )
    bin_map = _bin_map(observed.flux, observed.variance, used, enough, bins)
    kept = np.unique(bin_map[bin_map >= 0])
    flux, inverse = np.zeros((len(kept), len(chosen))), np.zeros((len(kept), len(chosen)))
    numbers = np.full(bin_map.shape, NOT_BINNED)
    for number, own in enumerate(kept):
        members = bin_map == own
        numbers[members] = number
        whole = used[members].all(axis=0)
        flux[number] = np.where(whole, np.where(used, observed.flux, 0.0)[members].sum(axis=0), 0.0)
        variance = np.where(used, observed.variance, 0.0)[members].sum(axis=0)
        inverse[number] = np.where(whole, 1 / np.sqrt(np.where(whole, variance, 1.0)), 0.0)
    left_out = int((~enough).sum())
    notes = (f"{counted(left_out, 'spaxel')} left out: no data at half of the wavelengths",) if left_out else ()
    return _Spectra(numbers, flux, inverse, (*observed.notes, *notes))


def _bin_map(flux: ndarray, variance: ndarray, used: ndarray, enough: ndarray, bins: Any) -> Int[ndarray, "y x"]:
    """The number of the bin of every spaxel that has data, -1 for others."""
    if bins is None:
        numbers = np.full(enough.shape, NOT_BINNED)
        numbers[enough] = np.arange(enough.sum())
        return numbers
    if np.ndim(bins) == 0:
        held = np.where(used, flux, np.nan)[enough]
        error = np.sqrt(np.where(used, variance, np.nan)[enough])
        signal, noise = np.zeros(enough.shape), np.ones(enough.shape)
        signal[enough], noise[enough] = np.nanmedian(held, axis=1), np.nanmedian(error, axis=1)
        return voronoi_bins(signal, noise, float(bins), enough)
    numbers = np.asarray(bins)
    if numbers.shape != enough.shape or numbers.dtype.kind not in "iu":
        raise ConfigError(
            f"bins: expected None, a signal to noise, or whole numbers of shape {enough.shape}, got {numbers.dtype} of "
            f"shape {numbers.shape}"
        )
    if not (numbers[enough] >= 0).any():
        raise ConfigError("bins: expected spaxels with data in bins (numbers from 0), got none")
    return np.where(enough, np.maximum(numbers, NOT_BINNED), NOT_BINNED)


def _nodes(library: SSPLibrary, log_ages: Any, metallicities: Any, redshift: float) -> tuple[ndarray, ndarray]:
    """The nodes of the grid; ConfigError for those beyond the library."""
    if log_ages is None:
        log_ages = _even_ages(np.asarray(library.log_age, float), redshift)
    ages = np.asarray(log_ages, float)
    metals = np.asarray(library.metallicity if metallicities is None else metallicities, float)
    for name, nodes, held in (("log_ages", ages, library.log_age), ("metallicities", metals, library.metallicity)):
        low, high = float(np.min(held)), float(np.max(held))
        if nodes.ndim != 1 or not len(nodes) or np.any(np.diff(nodes) <= 0):
            raise ConfigError(f"{name}: expected increasing numbers, got {nodes.tolist()}")
        if nodes[0] < low * (1 - 1e-9) or nodes[-1] > high * (1 + 1e-9):
            raise ConfigError(
                f"{name}: expected nodes within the library '{library.name}', {low:g} to {high:g}, got {nodes[0]:g} to "
                f"{nodes[-1]:g}"
            )
    return ages, metals


def _even_ages(held: Float[ndarray, " age"], redshift: float) -> Float[ndarray, " age"]:
    """Those of the ages that are held which lie nearest to evenly spaced ones, up to the age of the Universe."""
    oldest = np.log10(universe_age(find_cosmology(_COSMOLOGY), redshift)) + _OLDER
    old = held[(held >= _YOUNGEST) & (held <= oldest)]
    if not len(old):
        return held[:1]
    even = np.linspace(old[0], old[-1], _MOST_AGES)
    return old[np.unique(np.abs(old[None, :] - even[:, None]).argmin(axis=1))]


def _motion_of(kinematics: Any, bin_map: ndarray) -> Float[ndarray, "bin 2"]:
    """(V, sigma) of every bin, the means over its spaxels."""
    count = int(bin_map.max()) + 1
    motion = np.zeros((count, 2))
    for place, (name, own) in enumerate(zip(("velocity", "sigma"), kinematics, strict=True)):
        values = np.asarray(own, float)
        if values.shape not in ((), bin_map.shape):
            raise ConfigError(
                f"kinematics: expected a {name} in km/s, or an image of shape {bin_map.shape}, got shape {values.shape}"
            )
        image = np.broadcast_to(values, bin_map.shape)
        motion[:, place] = [image[bin_map == number].mean() for number in range(count)]
    slow = np.abs(motion[:, 0]) <= LARGEST_VELOCITY
    if not (slow & (motion[:, 1] > 0) & (motion[:, 1] <= LARGEST_SIGMA)).all():
        raise ConfigError(
            f"kinematics: expected velocities within {LARGEST_VELOCITY:g} km/s and dispersions above 0 up to "
            f"{LARGEST_SIGMA:g} km/s in every bin, got others; check the redshift, and NaN in the images"
        )
    return motion


def _check_fitted(inverse: Float[ndarray, "bin wave"], source: _Source) -> None:
    """Raise ValueError for a bin without wavelengths that can be fitted."""
    empty = np.flatnonzero(~(inverse > 0).any(axis=1))
    if len(empty):
        raise ValueError(
            f"bin {empty[0]}: expected wavelengths that all its spaxels have and the library '{source.library.name}' "
            f"covers at redshift {source.redshift:g}, got none ({percent(len(empty) / len(inverse))} of the bins have "
            f"none); check the mask, windows, redshift and library"
        )


def _populations(found: BinFit, problem: _Problem) -> Populations:
    shape = (len(problem.metallicity), len(problem.log_age))
    count, n_draw = np.asarray(found.draws).shape[:2]
    return Populations(
        labels=tuple(str(number) for number in range(count)),
        log_age=problem.log_age,
        metallicity=problem.metallicity,
        mass=np.asarray(found.weights).reshape(count, *shape),
        draws=np.asarray(found.draws).swapaxes(0, 1).reshape(n_draw, count, *shape),
        smoothness=np.asarray(found.strength),
        light_per_mass=np.asarray(problem.templates.coefficients)[:, 0].reshape(shape),
    )


def _result(found: BinFit, problem: _Problem, spectra: _Spectra, source: _Source) -> PopulationMaps:
    inverse = problem.inverse_sigma
    variance = np.diagonal(found.covariance, axis1=1, axis2=2)
    observed, n_fitted = source.observed, (inverse > 0).sum(axis=1)
    return PopulationMaps(
        bin_map=spectra.bin_map,
        populations=_populations(found, problem),
        velocity=np.asarray(found.motion)[:, 0],
        sigma=np.asarray(found.motion)[:, 1],
        velocity_error=np.sqrt(variance[:, 0]),
        sigma_error=np.sqrt(variance[:, 1]),
        flux=spectra.flux,
        error=np.where(inverse > 0, 1 / np.where(inverse > 0, inverse, 1.0), 0.0),
        model=np.asarray(found.model),
        chi_square=np.asarray(found.chi_square),
        n_fitted=n_fitted,
        bins=observed.bins,
        footprint=observed.footprint,
        ra=observed.ra or 0.0,
        dec=observed.dec or 0.0,
        field_angle=observed.field_angle,
        notes=(*spectra.notes, *notes_on_misfit(np.asarray(found.chi_square), n_fitted)),
    )

"""Data sets as they are asked for, read, and their nuisances as free parameters."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from rubix_like.config.data_sets import FLAT, GIVEN, DataSetSettings
from rubix_like.config.parameters import Declaration, Parameter
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube, observed_from, read_observed
from rubix_like.cube.observed.observed_spectrum import ObservedFibres, fibres_from, read_fibres, read_spectrum
from rubix_like.cube.observed.reading_observed import read_image
from rubix_like.errors import ConfigError
from rubix_like.forward.parameters import Parameters
from rubix_like.forward.products.bands import load_band
from rubix_like.inference.posterior.fit_model import OF_DATA
from rubix_like.inference.posterior.free_parameters import find_parameter
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.words import reason_of

FWHM: str = "instrument.psf.fwhm"

_POSITIVE = Annotated[float, Field(gt=0)]

_FLUX = "1e-20 erg/s/cm2/Angstrom"

_WORDS: Mapping[str, tuple[str, Any, str]] = {
    "scale": ("", _POSITIVE, "factor on the model's flux"),
    "shift": ("arcsec", Any, "(East, North) by which the galaxy is displaced"),
    "velocity_shift": ("km/s", Any, "velocity added along the line of sight"),
    "psf_fwhm": ("arcsec", Any, "full width at half maximum of the PSF"),
    "lsf_scale": ("", _POSITIVE, "factor on the width of the line spread"),
    "polynomial": ("", Any, "coefficients of Legendre's polynomials, degree 1 first, of the factor on the flux"),
    "sky": (_FLUX, Any, "amplitudes of the templates of what the sky's subtraction has left"),
}
"""Key -> unit, form and meaning."""


def names_of(name: str, settings: DataSetSettings) -> dict[str, str]:
    """Key -> dotted name of the nuisances of a set."""
    given = (key for key in _WORDS if getattr(settings.nuisance, key) is not None)
    return {key: f"{OF_DATA}{name}.{key}" for key in given}


def nuisances_of(sets: Mapping[str, DataSetSettings]) -> tuple[dict[str, Any], dict[str, Declaration]]:
    """The priors and the declarations of all nuisances, by dotted name."""
    priors, declared = dict[str, Any](), dict[str, Declaration]()
    for name, settings in sets.items():
        for key, dotted in names_of(name, settings).items():
            prior, (unit, form, words) = getattr(settings.nuisance, key), _WORDS[key]
            priors[dotted] = {"normal": (0.0, prior.sigma)} if key in {"polynomial", "sky"} else prior
            form = find_parameter(FWHM).form if key == "psf_fwhm" else form
            meaning = f"{words}, of the data '{name}'"
            declared[dotted] = Declaration(dotted, unit, Parameter(moves=key == "shift"), form, None, meaning)
    return priors, declared


def leaves_of(
    name: str, settings: DataSetSettings, parameters: Parameters, sky: Float[ndarray, "template wave"] | None
) -> dict[str, Any]:
    """Dotted name -> what a nuisance of a set is without it, of the shape of its values."""
    psf = parameters.instrument.psf
    plain: dict[str, Any] = {
        "scale": np.ones(()),
        "shift": np.zeros(2),
        "velocity_shift": np.zeros(()),
        "psf_fwhm": None if psf is None else psf.fwhm,
        "lsf_scale": np.ones(()),
        "polynomial": np.zeros(0 if settings.nuisance.polynomial is None else settings.nuisance.polynomial.degree),
        "sky": np.zeros(0 if sky is None else len(sky)),
    }
    return {dotted: plain[key] for key, dotted in names_of(name, settings).items()}


def check_free_names(names: Iterable[str], sets: Mapping[str, DataSetSettings]) -> None:
    """Raise ConfigError for free parameters that belong to one of several sets."""
    example = next(iter(sets))
    for name in names:
        if name.startswith(OF_DATA):
            _, data_set, *rest = (*name.split("."), "NAME")
            raise ConfigError(
                f"fit.free.{name}: expected the prior of a nuisance in the section of its data set, got it among the "
                f"free parameters; give it as fit.data.{data_set}.nuisance.{rest[0]}"
            )
        if name.startswith("instrument.") or name == "observation.field_angle":
            remedy = f"give it as fit.data.{example}.nuisance.psf_fwhm" if name == FWHM else "leave it out"
            raise ConfigError(
                f"fit.free.{name}: expected a parameter of the galaxy or of all observations, got one of a single "
                f"instrument beside several data sets; {remedy}"
            )


def sky_templates(
    name: str, settings: DataSetSettings, observed: ObservedCube
) -> Float[ndarray, "template wave"] | None:
    """Templates of what the sky's subtraction has left, on a set's bins; ConfigError for a table that is none."""
    sky = settings.nuisance.sky
    if sky is None:
        return None
    if sky.templates == Path(FLAT):
        return np.ones((1, observed.bins.n_wave))
    place = f"fit.data.{name}.nuisance.sky.templates"
    table = read_columns(sky.templates, place)
    if table.shape[1] < 2 or np.any(np.diff(table[:, 0]) <= 0):
        raise ConfigError(
            f"{place}: expected columns of increasing wavelengths and at least one template, got {table.shape[1]} "
            f"columns in {sky.templates}, or wavelengths that do not increase"
        )
    first, last = observed.wavelength[[0, -1]]
    if table[0, 0] > first or table[-1, 0] < last:
        raise ConfigError(
            f"{place}: expected templates from {first:g} to {last:g} Angstrom, as the data, got {table[0, 0]:g} to "
            f"{table[-1, 0]:g} ({sky.templates}); fit fewer wavelengths (fit.data.{name}.windows), or add 0 at its ends"
        )
    return np.stack([np.interp(observed.wavelength, table[:, 0], column) for column in table[:, 1:].T])


def read_columns(path: Path, place: str) -> Float[ndarray, "row column"]:
    """The columns of finite numbers in a table of text; ConfigError for any other."""
    try:
        table = np.loadtxt(path.expanduser(), ndmin=2)
    except UNREADABLE as error:
        raise ConfigError(
            f"{place}: expected a table of text with columns of numbers, got {path}: {reason_of(error)}"
        ) from error
    if not (len(table) > 1 and np.isfinite(table).all()):
        raise ConfigError(f"{place}: expected at least two rows of finite numbers, got others in {path}")
    return table


@dataclass(frozen=True, eq=False)
class ImageBand:
    """A response R for photons, linear between its nodes (Angstrom in vacuum) and 0 beyond them.

    The mean flux density in it is int F_lambda R lambda dlambda / int R lambda dlambda (Tokunaga & Vacca 2005, PASP
    117, 421, appendix A).
    """

    name: str
    wavelength: Float[ndarray, " node"]
    response: Float[ndarray, " node"]

    @property
    def pivot(self) -> float:
        """sqrt(int R lambda dlambda / int R / lambda dlambda): F_nu = F_lambda pivot^2 / c of the means (ibid.)."""
        between = np.linspace(self.wavelength[0], self.wavelength[-1], 20001)
        fine = np.unique(np.concatenate([between, self.wavelength]))
        response = np.interp(fine, self.wavelength, self.response)
        return float(np.sqrt(np.trapezoid(response * fine, fine) / np.trapezoid(response / fine, fine)))

    def bins(self, count: int) -> WavelengthBins:
        """Even bins in vacuum from end to end."""
        first, last = self.wavelength[[0, -1]]
        step = float(last - first) / count
        return WavelengthBins(float(first) + 0.5 * step, step, count, "linear", "vacuum")

    @property
    def whole(self) -> WavelengthBins:
        """One bin about the pivot wavelength, as wide as the band."""
        first, last = self.wavelength[[0, -1]]
        return WavelengthBins(self.pivot, 2 * float(min(self.pivot - first, last - self.pivot)), 1, "linear", "vacuum")

    def weights(self, bins: WavelengthBins) -> Float[ndarray, " wave"]:
        """w with sum_b w_b F_b the mean flux density of a spectrum that has F_b all over bin b: int_b R lambda dlambda,
        exactly, over the same of all bins."""
        edges = bins.edges
        grid = np.union1d(edges, self.wavelength)
        grid = grid[(grid >= edges[0]) & (grid <= edges[-1])]
        middle = 0.5 * (grid[1:] + grid[:-1])
        at_grid, at_middle = (np.interp(x, self.wavelength, self.response, 0, 0) * x for x in (grid, middle))
        cell = (at_grid[1:] + 4 * at_middle + at_grid[:-1]) * np.diff(grid) / 6  # Simpson: exact for a square
        owner = np.clip(np.searchsorted(edges, middle) - 1, 0, bins.n_wave - 1)
        found = np.bincount(owner, cell, minlength=bins.n_wave)
        return found / found.sum()


def band_of(given: str, place: str) -> ImageBand:
    """The band of a table of text (Angstrom in vacuum, response), or of speclite by its name; else ConfigError."""
    if Path(given).suffix and not given.endswith(".ecsv"):
        table = read_columns(Path(given), place)
        wavelength, response = table[:, 0], table[:, 1] if table.shape[1] > 1 else np.full(len(table), np.nan)
        name = Path(given).stem
    else:
        known = load_band(given, place)
        name, wavelength, response = known.name, known.wavelength, known.response
    if not (np.isfinite(response).all() and np.isfinite(wavelength).all() and (np.diff(wavelength) > 0).all()):
        raise ConfigError(
            f"{place}: expected two columns of finite numbers, wavelengths that increase and responses, got others "
            f"({given})"
        )
    lit = np.flatnonzero(response)
    if (response < 0).any() or not len(lit):
        raise ConfigError(f"{place}: expected responses of 0 or more, and some above 0, got others ({given})")
    kept = slice(max(lit[0] - 1, 0), lit[-1] + 2)
    return ImageBand(name, wavelength[kept], response[kept])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A set of data before its model is planned: `band` of an image; `places` (East, North) in arcsec where fibres see
    each bin. The one cube of a fit has no name, and the settings of a cube without nuisances."""

    name: str
    settings: DataSetSettings
    observed: ObservedCube
    band: ImageBand | None = None
    places: Float[ndarray, "fibre wave 2"] | None = None

    @property
    def place(self) -> str:
        """The section that errors name."""
        return f"fit.data.{self.name}" if self.name else "fit"

    @contextmanager
    def naming(self, key: str = "") -> Iterator[None]:
        """Name the set, and a key of it, in every ConfigError raised inside; the one cube has no name."""
        try:
            yield
        except ConfigError as error:
            if not self.name:
                raise
            raise ConfigError(f"{self.place}{key}: {error}") from error

    def cut(self, observed: ObservedCube) -> "DataSet":
        """The set with some of its bins, those of `observed`."""
        if self.places is None:
            return replace(self, observed=observed)
        start = int(np.argmin(np.abs(self.observed.wavelength - observed.wavelength[0])))
        return replace(self, observed=observed, places=self.places[:, start : start + len(observed.wavelength)])

    @property
    def kind(self) -> str:
        """cube, image, spectrum or fibres."""
        return self.settings.kind


def read_sets(sets: Mapping[str, DataSetSettings], given: Mapping[str, Any]) -> tuple[DataSet, ...]:
    """All sets in their order; `given`: those of Python by name, Cube or ObservedCube.

    Raises ConfigError, ValueError or FileNotFoundError for what cannot be read.
    """
    return tuple(_read(name, settings, given.get(name)) for name, settings in sets.items())


def split_sets(data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Cube | ObservedCube]]:
    """Data sets as they are given in Python: sections as in a configuration, and the cubes among them by name."""
    sections, objects = dict[str, Any](), dict[str, Cube | ObservedCube]()
    for name, given in data.items():
        section = dict(given) if isinstance(given, Mapping) else {"cube": given}
        kinds = ("cube", "image", "spectrum", "fibres")
        held = [key for key in kinds if isinstance(section.get(key), Cube | ObservedCube)]
        objects.update((name, section.pop(key)) for key in held)
        section |= {"fibres": GIVEN} if held == ["fibres"] else {}
        sections[name] = section
    return sections, objects


def check_unstated(place: str, stated: Mapping[str, Any]) -> None:
    """Raise ConfigError for statements on a file of data that are given in Python; their keys follow `place`."""
    for key, value in stated.items():
        if value is not None:
            raise ConfigError(
                f"{place}{key}: expected null for data given in Python, which say it themselves, got {value!r}; leave "
                f"it out"
            )


def _read(name: str, settings: DataSetSettings, given: Any) -> DataSet:
    kind, path = settings.kind, settings.file
    if kind == "fibres":
        if (given is None) == (path is None):
            what = "neither" if given is None else "both"
            raise ConfigError(f"fit.data.{name}.fibres: expected a file, or a cube given in Python, got {what}")
        if isinstance(given, ObservedCube):
            raise ConfigError(f"fit.data.{name}.fibres: expected a Cube that holds its fibres, got an ObservedCube")
        found: ObservedFibres = fibres_from(given, name) if path is None else read_fibres(path)
        return DataSet(name, settings, found.spectra, places=np.stack([found.east, found.north], axis=2))
    stated: dict[str, Any] = {key: getattr(settings, key) for key in ("medium", "units", "pixel_scale", "hdu")}
    band = None if settings.filter is None else band_of(settings.filter, f"fit.data.{name}.filter")
    if given is not None and path is not None:
        raise ConfigError(f"fit.data.{name}.{kind}: expected null for data given in Python, got a file")
    if path is None:
        if given is None:
            raise ConfigError(f"fit.data.{name}: expected {kind}: FILE, or data given in Python, got neither")
        check_unstated(f"fit.data.{name}.", stated)
        observed = observed_from(given, name) if isinstance(given, Cube) else given
    elif band is not None:
        observed = read_image(path, band.whole, stated["units"], stated["pixel_scale"], stated["hdu"])
    elif kind == "spectrum":
        observed = read_spectrum(path, stated["medium"], stated["units"])
    else:
        observed = read_observed(path, **stated)
    n_y, n_x, n_wave = observed.shape
    if (kind == "image" and n_wave != 1) or (kind == "spectrum" and (n_y, n_x) != (1, 1)):
        wanted = "(y, x, 1) with a filter" if kind == "image" else "(1, 1, wave) with an aperture"
        raise ConfigError(f"fit.data.{name}: expected an ObservedCube of shape {wanted}, got {observed.shape}")
    return DataSet(name, settings, observed, band)

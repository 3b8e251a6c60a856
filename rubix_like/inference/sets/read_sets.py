"""Data sets as they are asked for, read: from their files, or as they were given in Python."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.data_sets import GIVEN, DataSetSettings
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube, observed_from, read_observed
from rubix_like.cube.observed.observed_fibres import ObservedFibres, fibres_from, read_fibres
from rubix_like.cube.observed.observed_spectrum import read_spectrum
from rubix_like.cube.observed.reading_observed import read_image
from rubix_like.errors import ConfigError
from rubix_like.forward.products.bands import load_band
from rubix_like.inference.sets.nuisances import read_columns


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
        values = [np.interp(own, self.wavelength, self.response, 0, 0) * own for own in (grid, middle)]
        cell = (values[0][1:] + 4 * values[1] + values[0][:-1]) * np.diff(grid) / 6  # Simpson: exact for a square
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
    if table_fault := _fault(wavelength, response):
        raise ConfigError(f"{place}: {table_fault} ({given})")
    seen = np.flatnonzero(response > 0)
    kept = slice(max(seen[0] - 1, 0), seen[-1] + 2)
    return ImageBand(name, wavelength[kept], response[kept])


def _fault(wavelength: ndarray, response: ndarray) -> str | None:
    """What is wrong with a response curve."""
    if not (np.isfinite(response).all() and np.isfinite(wavelength).all() and (np.diff(wavelength) > 0).all()):
        return "expected two columns of finite numbers, wavelengths that increase and responses, got others"
    if (response < 0).any() or not (response > 0).any():
        return "expected responses of 0 or more, and some above 0, got others"
    return None


_WITH = {"image": "filter", "spectrum": "aperture"}
"""What makes data an image, or a spectrum."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A set of data before its model is planned: `band` of an image; `places` (East, North) in arcsec where fibres see
    each bin."""

    name: str
    settings: DataSetSettings
    observed: ObservedCube
    band: ImageBand | None = None
    places: Float[ndarray, "fibre wave 2"] | None = None

    def cut(self, observed: ObservedCube) -> "DataSet":
        """The same with some of its bins, those of `observed`."""
        if self.places is None:
            return replace(self, observed=observed)
        start = int(np.argmin(np.abs(self.observed.wavelength - observed.wavelength[0])))
        return replace(self, observed=observed, places=self.places[:, start : start + len(observed.wavelength)])

    @property
    def middle_places(self) -> Float[ndarray, "fibre 2"] | None:
        """Of fibres the places in the middle of the wavelengths."""
        return None if self.places is None else self.places[:, self.places.shape[1] // 2]

    @property
    def kind(self) -> str:
        """cube, image, spectrum or fibres."""
        return self.settings.kind

    @property
    def centred(self) -> bool:
        """Whether it is said to lie at the centre of the first cube."""
        return self.settings.aperture is not None and self.settings.aperture.ra is None


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


def _read(name: str, settings: DataSetSettings, given: Any) -> DataSet:
    kind, path = settings.kind, settings.file
    if kind == "fibres":
        return _fibres(name, settings, given)
    stated: dict[str, Any] = {key: getattr(settings, key) for key in ("medium", "units", "pixel_scale", "hdu")}
    band = None if settings.filter is None else band_of(settings.filter, f"fit.data.{name}.filter")
    if given is not None:
        _check_given(name, settings, stated)
        observed = observed_from(given, name) if isinstance(given, Cube) else given
    elif path is None:
        raise ConfigError(f"fit.data.{name}: expected {kind}: FILE, or data given in Python, got neither")
    else:
        observed = _from_file(path, kind, band, stated)
    _check_axes(name, kind, observed)
    return DataSet(name, settings, observed, band)


def _fibres(name: str, settings: DataSetSettings, given: Any) -> DataSet:
    """Spectra of fibres as a column of spaxels."""
    path = settings.file
    if (given is None) == (path is None):
        what = "neither" if given is None else "both"
        raise ConfigError(f"fit.data.{name}.fibres: expected a file, or a cube given in Python, got {what}")
    if isinstance(given, ObservedCube):
        raise ConfigError(f"fit.data.{name}.fibres: expected a Cube that holds its fibres, got an ObservedCube")
    found: ObservedFibres = fibres_from(given, name) if path is None else read_fibres(path)
    return DataSet(name, settings, found.spectra, places=np.stack([found.east, found.north], axis=2))


def _from_file(path: Path, kind: str, band: ImageBand | None, stated: Mapping[str, Any]) -> ObservedCube:
    if band is not None:
        return read_image(path, band.whole, stated["units"], stated["pixel_scale"], stated["hdu"])
    if kind == "spectrum":
        return read_spectrum(path, stated["medium"], stated["units"])
    return read_observed(path, **stated)


def _check_given(name: str, settings: DataSetSettings, stated: Mapping[str, Any]) -> None:
    if settings.file is not None:
        raise ConfigError(f"fit.data.{name}.{settings.kind}: expected null for data given in Python, got a file")
    for key, value in stated.items():
        if value is not None:
            raise ConfigError(
                f"fit.data.{name}.{key}: expected null for data given in Python, which say it themselves, got "
                f"{value!r}; leave it out"
            )


def _check_axes(name: str, kind: str, observed: ObservedCube) -> None:
    wanted = {
        "image": ("(y, x, 1)", observed.shape[2] == 1),
        "spectrum": ("(1, 1, wave)", observed.shape[:2] == (1, 1)),
    }
    text, right = wanted.get(kind, ("", True))
    if not right:
        raise ConfigError(
            f"fit.data.{name}: expected an ObservedCube of shape {text} with a {_WITH[kind]}, got {observed.shape}"
        )

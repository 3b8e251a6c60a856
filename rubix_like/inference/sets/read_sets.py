"""Data sets as they are asked for, read: from their files, or as they were given in Python."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.data_sets import GIVEN, DataSetSettings
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube, observed_from, read_observed
from rubix_like.cube.observed.observed_spectrum import ObservedFibres, fibres_from, read_fibres, read_spectrum
from rubix_like.cube.observed.reading_observed import read_image
from rubix_like.errors import ConfigError
from rubix_like.inference.sets.response_curves import ImageBand, band_of

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

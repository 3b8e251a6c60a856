"""Data sets as they are asked for, read: from their files, or as they were given in Python."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubix_like.config.data_sets import DataSetSettings
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube, observed_from, read_observed
from rubix_like.cube.observed.observed_image import read_image
from rubix_like.cube.observed.observed_spectrum import read_spectrum
from rubix_like.errors import ConfigError
from rubix_like.inference.sets.response_curves import ImageBand, band_of

_WITH = {"image": "filter", "spectrum": "aperture"}
"""What makes data an image, or a spectrum."""


@dataclass(frozen=True, eq=False)
class DataSet:
    """A set of data before its model is planned: `band` of an image."""

    name: str
    settings: DataSetSettings
    observed: ObservedCube
    band: ImageBand | None = None

    @property
    def kind(self) -> str:
        """cube, image or spectrum."""
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
        held = [key for key in ("cube", "image", "spectrum") if isinstance(section.get(key), Cube | ObservedCube)]
        objects.update((name, section.pop(key)) for key in held)
        sections[name] = section
    return sections, objects


def _read(name: str, settings: DataSetSettings, given: Any) -> DataSet:
    kind, path = settings.kind, settings.file
    stated: dict[str, Any] = {key: getattr(settings, key) for key in ("medium", "units", "pixel_scale")}
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


def _from_file(path: Path, kind: str, band: ImageBand | None, stated: Mapping[str, Any]) -> ObservedCube:
    if band is not None:
        return read_image(path, band.whole, stated["units"], stated["pixel_scale"])
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

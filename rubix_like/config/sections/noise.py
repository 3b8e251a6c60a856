"""Settings of the noise: a target signal to noise, or a physical exposure and the detector that it is taken with."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from rubix_like.config.parameters import Parameter
from rubix_like.config.quantities import (
    Angstrom,
    Arcsec,
    Integer,
    InUnit,
    Number,
    SquareMetre,
    Within,
    as_tuple,
    one_or_many,
)
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.resources import resource, resource_names

SKY_SUFFIXES: tuple[str, ...] = (".fits", ".fits.gz", ".ecsv")

NO_SKY: str = "none"


def find_sky(name: str) -> Path | None:
    """The file of an embedded sky or of a table by its path; None for 'none'. Raises ConfigError if there is none."""
    known = resource_names("skies")
    if name == NO_SKY:
        return None
    if name in known:
        return resource("skies", name)
    path = Path(name).expanduser()
    if name.lower().endswith(SKY_SUFFIXES):
        if path.is_file():
            return path
        raise ConfigError(f"expected one of {', '.join(known)}, {NO_SKY} or the path of a table, got no file '{name}'")
    raise ConfigError(
        f"expected one of {', '.join(known)}, {NO_SKY}, or a path ending in {', '.join(SKY_SUFFIXES)}, got '{name}'"
        f"{suggest(name, (*known, NO_SKY))}"
    )


def _texts(value: object) -> object:
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError(f"expected text, or a list of texts, got {'null' if value is None else repr(value)}")
    return value


def _check_skies(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    found = [find_sky(name) for name in as_tuple(names)]
    if None in found and len(found) > 1:
        raise ValueError(f"expected '{NO_SKY}' alone, or a list of skies without it, got {list(names)}")
    return names


_LIST = {"type": "array", "items": {"type": "string"}, "minItems": 1}

Skies = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_texts),
    AfterValidator(_check_skies),
    WithJsonSchema({"anyOf": [{"type": "string"}, _LIST]}),
]
"""One sky, by its name or path, or a list of them; the first that covers a wavelength counts there."""

Fraction = Annotated[Number, Field(ge=1e-6, le=1)]


class DetectorSettings(AbstractSettings):
    """Telescope, spectrograph and detector as an exposure (`noise.exposure`) needs them.

    `throughput` is one number, or a table with one value per `wavelength`, linear between and constant beyond.
    """

    collecting_area: Annotated[SquareMetre, Field(ge=1e-6, le=1e6)]
    """Unobscured area of the telescope's mirror in m2."""
    wavelength: Annotated[tuple[Annotated[Angstrom, Field(gt=0)], ...], Field(min_length=2)] | None = None
    """Wavelengths of the throughput's table in Angstrom of the instrument's medium; null where it is one number."""
    throughput: Annotated[tuple[Fraction, ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})]
    """Electrons per photon at the mirror: telescope, spectrograph and detector together, without the atmosphere."""
    read_noise: Annotated[Number, Field(ge=0, le=1e6)]
    """Standard deviation in electrons per pixel and exposure."""
    dark_current: Annotated[Number, Field(ge=0, le=1e12)]
    """Electrons per pixel and hour."""
    pixels_per_voxel: Annotated[Number, Field(ge=1e-6, le=1e6)] = 1.0
    """Pixels of the detector whose electrons make up one voxel of the cube."""

    @field_validator("wavelength")
    @classmethod
    def _check_increasing(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and np.any(np.diff(value) <= 0):
            raise ValueError(f"expected increasing wavelengths, got {list(value)}")
        return value

    @model_validator(mode="after")
    def _check_table(self) -> "DetectorSettings":
        expected = 1 if self.wavelength is None else len(self.wavelength)
        if len(self.throughput) != expected:
            raise ValueError(
                f"throughput: expected {expected} (one per wavelength; one number where wavelength is null), "
                f"got {len(self.throughput)}"
            )
        return self


def merged_detector(preset: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's detector section with some keys overridden; a new throughput does without the preset's wavelengths."""
    table = {"wavelength": None} if "throughput" in override else {}
    return {**preset, **table, **override}


class ExposureSettings(AbstractSettings):
    """Exposures of one field under one sky; the instrument's `detector` section says what becomes of the light."""

    time: Annotated[float | tuple[float, ...], InUnit("s", many=True), Within(1e-3, 1e9), Parameter()]
    """Time of one exposure; of fibres also a list with one for each of their dithers."""
    count: Annotated[Integer, Field(ge=1, le=10**6)] = 1
    """How many exposures of that time are added up."""
    sky: Skies = "dark"
    """dark, bright, infrared, none (no sky and no atmosphere), or the path of a table (.fits or .ecsv); of a list, e.g.
    [dark, infrared], the first one that covers a wavelength counts there."""


class NoiseSettings(AbstractSettings):
    """Noise and its variance: exactly one of `signal_to_noise` and `exposure`."""

    signal_to_noise: Annotated[Annotated[Number, Field(ge=1e-4, le=1e6)] | None, Parameter()] = None
    """Target: flux per voxel / sigma per voxel where `wavelength` and `radius` say; the same sigma in all voxels. From
    1e-4 to 1e6: variances are kept in 32 bits."""
    wavelength: Annotated[Angstrom, Field(gt=0)] | None = None
    """Of the target: centre of the window in Angstrom of the cube's medium; null: median over all wavelengths."""
    width: Annotated[Angstrom, Field(gt=0)] = 100.0
    """Of the target: full width of the window about `wavelength` in Angstrom."""
    radius: Annotated[Arcsec, Field(ge=0)] | None = None
    """Of the target: distance from the galaxy's centre (`observation.offset`) in arcsec; null: the brightest spaxel."""
    exposure: ExposureSettings | None = None
    """Instead of a target: photons, sky, dark current and read noise of an exposure."""
    seed: Annotated[Integer, Field(ge=0, lt=2**32)] = 1
    """The same seed gives the same noise on any number of devices."""
    keep_truth: StrictBool = False
    """Whether the noiseless flux is kept, as `Cube.truth` and in a second file."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> "NoiseSettings":
        given = [name for name in ("signal_to_noise", "exposure") if getattr(self, name) is not None]
        if len(given) != 1:
            remedy = "set the other to null" if given else "give e.g. signal_to_noise: 50, or exposure: {time: 1800 s}"
            raise ValueError(
                f"expected exactly one of signal_to_noise and exposure, got {' and '.join(given) or 'none'}; {remedy}"
            )
        if self.exposure is not None:
            meaningless = [name for name in ("wavelength", "radius") if getattr(self, name) is not None]
            if meaningless:
                raise ValueError(
                    f"{meaningless[0]}: expected null with an exposure, which needs no target; it goes with "
                    f"signal_to_noise"
                )
        return self

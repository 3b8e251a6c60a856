"""Settings of a detector: its throughput for source and sky, and its own dark current and read noise."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from rubix_like.config.quantities import Angstrom, Number, SquareMetre, as_tuple, one_or_many
from rubix_like.config.settings import AbstractSettings

Fraction = Annotated[Number, Field(gt=0, le=1)]


class DetectorSettings(AbstractSettings):
    """Telescope, spectrograph and detector as an exposure (`noise.exposure`) needs them.

    `throughput` is one number, or a table with one value per `wavelength`, linear between and constant beyond.
    """

    collecting_area: Annotated[SquareMetre, Field(gt=0)]
    """Unobscured area of the telescope's mirror in m2."""
    wavelength: Annotated[tuple[Annotated[Angstrom, Field(gt=0)], ...], Field(min_length=2)] | None = None
    """Wavelengths of the throughput's table in Angstrom of the instrument's medium; null where it is one number."""
    throughput: Annotated[tuple[Fraction, ...], BeforeValidator(as_tuple), one_or_many({"minItems": 1})]
    """Electrons per photon at the mirror: telescope, spectrograph and detector together, without the atmosphere."""
    read_noise: Annotated[Number, Field(ge=0)]
    """Standard deviation in electrons per pixel and exposure."""
    dark_current: Annotated[Number, Field(ge=0)]
    """Electrons per pixel and hour."""
    pixels_per_voxel: Annotated[Number, Field(gt=0)] = 1.0
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

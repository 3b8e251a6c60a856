"""Wavelength bins of a detector, or of a cube (float64 on the host)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Num
from numpy import ndarray

from rubix_like.config import WavelengthSettings
from rubix_like.physics import air

Medium = Literal["air", "vacuum"]


Sampling = Literal["linear", "log"]


@dataclass(frozen=True)
class WavelengthBins:
    """Contiguous detector bins: `edges` (wave + 1,) in Angstrom of `medium`, uniform in lambda or in ln lambda."""

    first: float
    step: float
    n_wave: int
    sampling: Sampling
    medium: Medium

    @classmethod
    def build(cls, settings: WavelengthSettings) -> "WavelengthBins":
        """Bins from an instrument's settings."""
        return cls(settings.start, settings.step, settings.n_wave, settings.sampling, settings.medium)

    def at(self, index: Num[ndarray, " index"]) -> Float[ndarray, " index"]:
        """Wavelength (Angstrom, in `medium`) at fractional bin indices; whole numbers are bin centres."""
        if self.sampling == "log":
            return self.first * 10.0 ** (self.step * np.asarray(index, dtype=np.float64))
        return self.first + self.step * np.asarray(index, dtype=np.float64)

    @property
    def wavelength(self) -> Float[ndarray, " wave"]:
        """Bin centres in Angstrom, in `medium`."""
        return self.at(np.arange(self.n_wave))

    @property
    def edges(self) -> Float[ndarray, " edge"]:
        """Bin edges in Angstrom, in `medium`."""
        return self.at(np.arange(self.n_wave + 1) - 0.5)

    def to_vacuum(self, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
        """Vacuum wavelengths of wavelengths in `medium`."""
        return air.to_vacuum(wavelength) if self.medium == "air" else np.asarray(wavelength)

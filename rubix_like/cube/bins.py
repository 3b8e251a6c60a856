"""Wavelength bins of a detector, of a cube and of its files (float64 on the host)."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Num
from numpy import ndarray
from numpy.typing import ArrayLike

from rubix_like.config import WavelengthSettings
from rubix_like.physics import air

Medium = Literal["air", "vacuum"]

Sampling = Literal["linear", "log"]

SAME_BINS: float = 1e-3
"""Largest difference of two grids of wavelengths that are the same, in bins."""


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

    @classmethod
    def through(cls, wavelength: ArrayLike, edges: ArrayLike, sampling: Sampling, medium: Medium) -> "WavelengthBins":
        """The even bins with these centres and edges (Angstrom in `medium`), such as a file keeps.

        Their step is the roundest one that gives exactly these numbers, if there is one. Raises ValueError for numbers
        that are not those of even bins.
        """
        centres, borders = (np.asarray(values, dtype=np.float64) for values in (wavelength, edges))
        n_wave = centres.size
        if centres.ndim != 1 or not n_wave or borders.shape != (n_wave + 1,):
            raise ValueError(f"wavelength: expected n centres and n + 1 edges, got {centres.shape} and {borders.shape}")
        ends = centres[[0, -1]] if n_wave > 1 else borders
        with np.errstate(all="ignore"):
            step = float(np.diff(np.log10(ends) if sampling == "log" else ends)[0]) / max(n_wave - 1, 1)
            found = cls(float(centres[0]), step, n_wave, sampling, medium)
            rounded = (replace(found, step=float(f"{step:.{digits}g}")) for digits in range(6, 17))
            exact = (own for own in rounded if np.array_equal([*own.wavelength, *own.edges], [*centres, *borders]))
            found = next(exact, found)
            narrowest = np.diff(found.edges).min()
            off = max(found.offset(centres), np.max(np.abs(found.edges - borders)) / narrowest)
        if not (off < SAME_BINS and narrowest > 0):
            raise ValueError(
                f"wavelength: expected positive wavelengths that ascend in even bins ({sampling}), each between the "
                f"edges of its bin"
            )
        return found

    def at(self, index: Num[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Wavelength (Angstrom, in `medium`) at fractional bin indices; whole numbers are bin centres."""
        if self.sampling == "log":
            return self.first * 10.0 ** (self.step * np.asarray(index, dtype=np.float64))
        return self.first + self.step * np.asarray(index, dtype=np.float64)

    def place(self, wavelength: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
        """Fractional bin indices of wavelengths (Angstrom, in `medium`), beyond the ends too: the inverse of `at`."""
        if self.sampling == "log":
            return np.log10(wavelength / self.first) / self.step
        return (wavelength - self.first) / self.step

    @property
    def wavelength(self) -> Float[ndarray, " wave"]:
        """Bin centres in Angstrom, in `medium`."""
        return self.at(np.arange(self.n_wave))

    @property
    def edges(self) -> Float[ndarray, " edge"]:
        """Bin edges in Angstrom, in `medium`."""
        return self.at(np.arange(self.n_wave + 1) - 0.5)

    def part(self, start: int, stop: int) -> "WavelengthBins":
        """The bins `start` to `stop` (exclusive)."""
        return replace(self, first=float(self.wavelength[start]), n_wave=stop - start)

    def offset(self, wavelength: Float[ndarray, " wave"]) -> float:
        """How far as many wavelengths lie from the centres, at most, in bins."""
        return float(np.max(np.abs(wavelength - self.wavelength) / np.diff(self.edges)))

    def agrees(self, other: "WavelengthBins") -> bool:
        """Whether others are the same bins, but for rounding."""
        alike = (self.n_wave, self.sampling, self.medium) == (other.n_wave, other.sampling, other.medium)
        return alike and self.offset(other.wavelength) < SAME_BINS

    def to_vacuum(self, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
        """Vacuum wavelengths of wavelengths in `medium`."""
        return air.to_vacuum(wavelength) if self.medium == "air" else np.asarray(wavelength)


class AbstractBinned:
    """The wavelengths of what has `bins`."""

    bins: WavelengthBins

    @property
    def wavelength(self) -> Float[ndarray, " wave"]:
        """Bin centres in Angstrom, in `medium` (float64)."""
        return self.bins.wavelength

    @property
    def wave_edges(self) -> Float[ndarray, " edge"]:
        """Bin edges in Angstrom, in `medium` (float64)."""
        return self.bins.edges

    @property
    def medium(self) -> Medium:
        """What the wavelengths are in: "air" or "vacuum"."""
        return self.bins.medium

    @property
    def sampling(self) -> Sampling:
        """How the bins are spaced: "linear" or "log"."""
        return self.bins.sampling

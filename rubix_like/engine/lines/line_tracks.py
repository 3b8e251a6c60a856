"""Where lines lie on the detector, and how wide the instrument shows them, at any velocity (host, 64 bits)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.config.sections.lines import LARGEST_DISPERSION
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.instrument.detector import LineSpread
from rubix_like.physics import air
from rubix_like.physics.templates import LineTemplates

LINE_REACH: float = 5.6
"""Sigmas on either side of a line within which it is painted: 2e-8 of its light is beyond."""


def rounded_up(n_bin: int) -> int:
    """A window's bins, rounded up so that similar runs share compilations."""
    return -(-n_bin // 16) * 16


class LinePlaces(NamedTuple):
    """Lines on the detector at some velocities: centres, and sigma of the line spread (Angstrom of the medium)."""

    centre: Float[ndarray, "velocity line"]
    spread: Float[ndarray, "velocity line"]


@dataclass(frozen=True, eq=False)
class LineTracks:
    """Lines (vacuum Angstrom at rest) with thermal widths (km/s), through an instrument's line spread at a redshift.

    At the velocity v a line is a Gaussian in wavelength on the detector about c = lambda (1 + z) exp(v / c0), brought
    into the detector's medium, with sigma^2 = sigma_LSF(c)^2 + (c / c0)^2 (thermal^2 + velocity_dispersion^2).
    """

    spread: LineSpread
    wavelength: Float[ndarray, " line"]
    thermal: Float[ndarray, " line"]

    @classmethod
    def of(cls, templates: LineTemplates, spread: LineSpread) -> "LineTracks":
        """The tracks of all lines of a table."""
        return cls(spread, templates.wavelength, templates.thermal)

    @property
    def bins(self) -> WavelengthBins:
        """The detector's bins."""
        return self.spread.bins

    def chosen(self, which: Bool[ndarray, " line"]) -> "LineTracks":
        """The tracks of some lines."""
        return LineTracks(self.spread, self.wavelength[which], self.thermal[which])

    def at(self, velocity: Float[ndarray, " velocity"]) -> LinePlaces:
        """The lines at velocities in km/s."""
        stretch = (1.0 + self.spread.redshift) * np.exp(velocity / SPEED_OF_LIGHT)
        vacuum = (stretch[:, None] * self.wavelength[None, :]).reshape(-1)
        centre = air.to_air(vacuum) if self.bins.medium == "air" else vacuum
        kernel, _, _ = self.spread.widths(centre)
        shape = len(velocity), len(self.wavelength)
        return LinePlaces(centre.reshape(shape), kernel.reshape(shape) / FWHM_PER_SIGMA)

    def sigma(self, placed: LinePlaces, dispersion: float) -> Float[ndarray, "velocity line"]:
        """Standard deviation (Angstrom) of lines with a velocity_dispersion (km/s)."""
        moved = placed.centre / SPEED_OF_LIGHT
        return np.sqrt(placed.spread**2 + moved**2 * (self.thermal**2 + dispersion**2))

    def windows(self, velocity: Float[ndarray, " velocity"]) -> tuple[Int[ndarray, " line"], Int[ndarray, " line"]]:
        """The first and last bin (of a detector without ends) that each line reaches at any of these velocities."""
        placed = self.at(velocity)
        reach = LINE_REACH * self.sigma(placed, LARGEST_DISPERSION)
        low = self.bins.place(np.maximum((placed.centre - reach).min(axis=0), np.finfo(float).tiny))
        high = self.bins.place((placed.centre + reach).max(axis=0))
        return np.floor(low + 0.5).astype(np.int32), np.floor(high + 0.5).astype(np.int32)

    def on_detector(self, velocity: Float[ndarray, " velocity"]) -> Bool[ndarray, " line"]:
        """Which lines reach the detector at any of these velocities."""
        first, last = self.windows(velocity)
        return (last >= 0) & (first < self.bins.n_wave)

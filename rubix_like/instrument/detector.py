"""The instrument's line-spread function on the detector's wavelength bins (float64 on the host)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config import InstrumentSettings, LSFSettings
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT
from rubix_like.cube.bins import WavelengthBins
from rubix_like.physics.gaussian import ENCLOSED_SIGMAS
from rubix_like.physics.templates import LineTemplates, Templates


@dataclass(frozen=True)
class LineSpread:
    """The Gaussian kernel that takes spectra made of templates, at redshift z, to the instrument's resolution.

    FWHM_kernel^2 = FWHM_inst(lambda_o)^2 - [(1 + z) FWHM_template(lambda_r)]^2 - pixel term, never negative, and
    FWHM_effective^2 = FWHM_kernel^2 + [(1 + z) FWHM_template]^2 + pixel term (Angstrom). The pixel term,
    step^2/12 x 2.3548^2, is there when the instrument's width was measured on its pixels. Lines have no width of their
    own: nothing is subtracted.
    """

    bins: WavelengthBins
    templates: Templates | LineTemplates
    redshift: float
    settings: LSFSettings | None

    def widths(self, wavelength: Float[ndarray, " wave"]) -> tuple[ndarray, ndarray, ndarray]:
        """FWHM (Angstrom) of the kernel, of the effective LSF, and of the instrument at wavelengths in the medium."""
        stretch = 1.0 + self.redshift
        rest = self.bins.to_vacuum(wavelength) / stretch
        own = stretch * np.interp(rest, self.templates.rest_wavelength, self.templates.fwhm)
        if self.settings is None:
            return np.zeros_like(own), own, np.zeros_like(own)
        step = self.bins.width_at(wavelength)
        pixel2 = FWHM_PER_SIGMA**2 * step**2 / 12 * self.settings.includes_pixel
        instrument = instrument_fwhm(self.settings, wavelength)
        kernel2 = np.maximum(instrument**2 - own**2 - pixel2, 0.0)
        return np.sqrt(kernel2), np.sqrt(kernel2 + own**2 + pixel2), instrument

    def covered(self, slowest: float, fastest: float) -> Bool[ndarray, " wave"]:
        """Which detector bins the templates cover, line spread included, at all velocities between two (km/s)."""
        bins, stretch = self.bins, 1.0 + self.redshift
        reach = ENCLOSED_SIGMAS * self.widths(bins.wavelength)[0] / FWHM_PER_SIGMA
        low, high = (bins.to_vacuum(edge) / stretch for edge in (bins.edges[:-1] - reach, bins.edges[1:] + reach))
        first, last = self.templates.covered
        return (low / np.exp(fastest / SPEED_OF_LIGHT) >= first) & (high / np.exp(slowest / SPEED_OF_LIGHT) <= last)


def rest_window(
    rest_wavelength: Float[ndarray, " rest"], edges: Float[ndarray, " fine_edge"], velocity_limit: float
) -> slice:
    """The nodes of templates between the detector's ends in the rest frame, widened by the velocity limit (km/s).

    At least two, also where the detector sees none of them.
    """
    stretch = np.exp(velocity_limit / SPEED_OF_LIGHT)
    first = np.searchsorted(rest_wavelength, edges[0] / stretch, side="right") - 1
    last = np.searchsorted(rest_wavelength, edges[-1] * stretch, side="left")
    start = min(max(int(first), 0), len(rest_wavelength) - 2)
    return slice(start, max(min(int(last), len(rest_wavelength) - 1), start + 1) + 1)


def least_line_width(instrument: InstrumentSettings) -> float:
    """Sigma (km/s) that lines of smooth components are painted with beside the line spread.

    It keeps the light in a bin smooth in the velocity: 0 where the line spread does (sigma of half a bin or more), else
    half of the widest bin.
    """
    bins = instrument.wavelength
    ends = np.array([bins.start, bins.stop])
    step = bins.widths(ends)
    if instrument.lsf is not None:
        square = (instrument_fwhm(instrument.lsf, ends) / FWHM_PER_SIGMA) ** 2
        square -= step**2 / 12 if instrument.lsf.includes_pixel else 0.0
        if np.all(square >= (0.5 * step) ** 2):
            return 0.0
    return float(np.max(0.5 * step / ends)) * SPEED_OF_LIGHT

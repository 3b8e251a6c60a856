"""How wide an instrument draws a line: for the detector, and for the list of presets, which needs no JAX."""

import numpy as np

from rubix_like.config import InstrumentSettings
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT


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

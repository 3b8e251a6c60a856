"""How wide an instrument draws a line: for the detector, and for the list of presets, which needs no JAX."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import InstrumentSettings, LSFSettings
from rubix_like.constants import FWHM_PER_SIGMA, SPEED_OF_LIGHT


def instrument_fwhm(lsf: LSFSettings, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """FWHM of the instrument's LSF at observed wavelengths (both in Angstrom of the instrument's medium)."""
    if lsf.polynomial is not None:
        return np.polynomial.polynomial.polyval(wavelength, np.asarray(lsf.polynomial))
    values = lsf.fwhm or lsf.resolving_power or ()
    known = (
        np.full_like(wavelength, values) if lsf.wavelength is None else np.interp(wavelength, lsf.wavelength, values)
    )
    return known if lsf.resolving_power is None else wavelength / known


def least_line_width(instrument: InstrumentSettings) -> float:
    """Sigma (km/s) that lines of smooth components are painted with beside the line spread.

    It keeps the light in a bin smooth in the velocity: 0 where the line spread does (sigma of half a bin or more), else
    half of the widest bin.
    """
    bins = instrument.wavelength
    ends = np.array([bins.start, bins.stop])
    step = bins.step * np.log(10) * ends if bins.sampling == "log" else np.full(2, bins.step)
    if instrument.lsf is not None:
        square = (instrument_fwhm(instrument.lsf, ends) / FWHM_PER_SIGMA) ** 2
        square -= step**2 / 12 if instrument.lsf.includes_pixel else 0.0
        if np.all(square >= (0.5 * step) ** 2):
            return 0.0
    return float(np.max(0.5 * step / ends)) * SPEED_OF_LIGHT

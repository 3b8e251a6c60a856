"""How wide an instrument draws a line: for the detector, and for the list of presets, which needs no JAX."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import LSFSettings


def instrument_fwhm(lsf: LSFSettings, wavelength: Float[ndarray, " wave"]) -> Float[ndarray, " wave"]:
    """FWHM of the instrument's LSF at observed wavelengths (both in Angstrom of the instrument's medium)."""
    if lsf.polynomial is not None:
        return np.polynomial.polynomial.polyval(wavelength, np.asarray(lsf.polynomial))
    values = lsf.fwhm or lsf.resolving_power or ()
    known = (
        np.full_like(wavelength, values) if lsf.wavelength is None else np.interp(wavelength, lsf.wavelength, values)
    )
    return known if lsf.resolving_power is None else wavelength / known

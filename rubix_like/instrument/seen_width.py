"""The nominal width of the PSF for a cube's header and notes, and the effective width of stars."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.optimize import brentq

from rubix_like.config import InstrumentSettings, PSFSettings
from rubix_like.instrument.painting import Painting

_NOTED = 0.02


class SeenWidth(eqx.Module):
    """FWHM (arcsec) of a PSF before the spaxel's box in the middle of the detector's range, and the effective one: what
    is left of the deposit's spread is part of it, on average over places within a spaxel."""

    fwhm: Float[Array | ndarray, ""]
    effective: Float[Array | ndarray, ""]

    def notes(self, deposit: str, cells: int) -> tuple[str, ...]:
        """Says so where the two differ by more than 2 %."""
        fwhm, effective = float(self.fwhm), float(self.effective)
        if abs(effective - fwhm) <= _NOTED * fwhm:
            return ()
        if effective < fwhm:
            return (
                f"the PSF of {fwhm:.3g} arcsec is too narrow for engine.deposit '{deposit}', which moves stars to the "
                f"middles of spaxels: on average they are seen with an FWHM of {effective:.3g} arcsec (both before the "
                f"spaxel's box); take engine.deposit: tsc",
            )
        remedy = f"engine.oversampling: {2 * cells}" if deposit in ("tsc", "smoothed") else "engine.deposit: tsc"
        return (
            f"engine.deposit '{deposit}' spreads stars beside the PSF: on average they are seen with an FWHM of "
            f"{effective:.3g} instead of {fwhm:.3g} arcsec (both before the spaxel's box); for less take {remedy}",
        )


def seen_width(instrument: InstrumentSettings, painting: Painting, wavelength: float) -> SeenWidth | None:
    """The widths of an instrument's PSF at a wavelength (Angstrom); None without a PSF and for one given as an image.

    effective^2 = fwhm^2 + 8 ln 2 times the variance that the deposit adds and the PSF's image does not take off: of a
    Gaussian, and by the same variance of any other.
    """
    psf = instrument.psf
    if psf is None or psf.kind == "image":
        return None
    fwhm = _fwhm_at(psf, wavelength)
    effective = painting.effective_fwhm(fwhm / instrument.pixel_scale) * instrument.pixel_scale
    return SeenWidth(np.asarray(fwhm), np.asarray(effective))


def _fwhm_at(psf: PSFSettings, wavelength: float) -> float:
    """FWHM (arcsec) of the profile at a wavelength; of a sum of Gaussians that of the sum."""
    table = psf.width_table
    widths = table[:, 0] if psf.wavelength is None else [np.interp(wavelength, psf.wavelength, row) for row in table]
    if psf.components is None:
        return float(widths[0])
    own = np.asarray(widths)
    peaks = np.array([component.fraction for component in psf.components]) / own**2

    def above_half(fwhm: float) -> float:
        return float(peaks @ 2.0 ** -((fwhm / own) ** 2) - 0.5 * peaks.sum())

    if own.min() == own.max():
        return float(own[0])
    found: Any = brentq(above_half, own.min(), own.max())
    return float(found)

"""The deposit of stars in cells, its part that the PSF compensates, and the width that stars are seen with."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.special import ndtr

from rubix_like.config import EngineSettings, InstrumentSettings, PipelineSettings, PSFSettings
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.places import found_at

_VARIANCE: dict[str, float] = {"nearest": 1 / 12, "cic": 1 / 6, "tsc": 1 / 4, "smoothed": 1 / 4}
"""Deposit -> the variance (cells^2) that it gives light along an axis, on average over places within a cell."""

FINEST: int = 4
"""Most cells along a spaxel's side that are taken unasked."""

NARROWEST: dict[int, float] = {1: 3.55, 2: 1.7, 3: 0.95}
"""Cells along a spaxel's side -> the narrowest Gaussian PSF (FWHM in spaxels) of which the image of a star, shared
among 3 x 3 cells, is within 1 % of its peak wherever in the spaxel the star lies."""

_RESOLVED = 0.8
"""FWHM (cells) about which the deposit's variance can be taken off: half of it at 0.73, all from 1.5 on."""


class Painting(NamedTuple):
    """The deposit, and into how many cells along its side a spaxel is cut."""

    deposit: str = "nearest"
    cells: int = 1

    def taken_off(self, fwhm: Any, namespace: Any = jnp) -> Any:
        """Variance of the deposit (cells^2) that a PSF's image is sharpened by, for an FWHM in spaxels.

        All of it for a PSF that the cells resolve, less for a narrower one, where the sharper image would be negative;
        differentiable. None for `nearest`, which moves stars: a star in the middle of a cell then has its exact image.
        """
        if self.deposit == "nearest":
            return namespace.zeros_like(fwhm)
        resolved = namespace.minimum(fwhm * self.cells / _RESOLVED, 10.0)
        return _VARIANCE[self.deposit] * (1.0 - namespace.exp(-(resolved**4)))

    def effective_fwhm(self, fwhm: float) -> float:
        """Width (spaxels) of the Gaussian PSF that stars at random places are really seen with, by variance."""
        sigma = fwhm / FWHM_PER_SIGMA
        n_cell = self.cells * (2 * int(np.ceil(6.0 * sigma)) + 3)
        offset = (np.arange(n_cell) - (n_cell - 1) / 2) / self.cells
        light = ndtr((offset + 0.5) / sigma) - ndtr((offset - 0.5) / sigma)
        image = (light @ offset**2) / light.sum() - float(self.taken_off(np.asarray(fwhm), np)) / self.cells**2
        variance = image + _VARIANCE[self.deposit] / self.cells**2 - 1.0 / 12.0
        return FWHM_PER_SIGMA * float(np.sqrt(max(variance, 0.0)))


ON_SPAXELS: Painting = Painting()
"""Every star in the one spaxel that it lies in."""


def plan_painting(engine: EngineSettings, instrument: InstrumentSettings, pipeline: PipelineSettings) -> Painting:
    """The deposit and the cells that `engine.oversampling` asks for.

    `auto`: for stars shared among 3 x 3 cells as many as keep their images within 1 %, one for any other deposit and
    for a PSF that depends on wavelength (a whole cube would be painted on the cells). One cell per spaxel where there
    is no PSF, or where it is not the first stage of the cube.
    """
    deposit, wanted, psf = engine.deposit, engine.oversampling, instrument.psf
    if psf is None or not pipeline.blurs_first:
        return Painting(deposit)
    if wanted != "auto":
        return Painting(deposit, int(wanted))
    if not psf.is_profile or psf.wavelength is not None or deposit not in ("tsc", "smoothed"):
        return Painting(deposit)
    enough = (cells for cells, fwhm in NARROWEST.items() if psf.narrowest >= fwhm * instrument.pixel_scale)
    return Painting(deposit, next(enough, FINEST))


_NOTED = 0.02


class SeenWidth(eqx.Module):
    """FWHM (arcsec) of a PSF before the spaxel's box in the middle of the detector's range, and the effective one: what
    is left of the deposit's spread is part of it, on average over places within a spaxel. Of a PSF that varies over the
    field, in its middle; `range_` is the smallest and the largest FWHM among its places."""

    fwhm: Float[Array | ndarray, ""]
    effective: Float[Array | ndarray, ""]
    range_: Float[ndarray, " 2"] | None = None

    def entries(self) -> dict[str, float]:
        """Entries of a header."""
        widths = {"psf_fwhm": float(self.fwhm), "psf_fwhm_effective": float(self.effective)}
        if self.range_ is not None:
            widths |= {"psf_fwhm_smallest": float(self.range_[0]), "psf_fwhm_largest": float(self.range_[1])}
        return widths

    def notes(self, deposit: str, cells: int) -> tuple[str, ...]:
        """Says so where the two differ by more than 2 %."""
        fwhm, effective = float(self.fwhm), float(self.effective)
        if abs(effective - fwhm) <= _NOTED * fwhm:
            return ()
        if effective < fwhm:
            words = (
                f"the PSF of {fwhm:.3g} arcsec is too narrow for engine.deposit '{deposit}', which moves stars to the "
                f"middles of spaxels: on average they are seen with an FWHM of {effective:.3g} arcsec (both before the "
                f"spaxel's box); take engine.deposit: tsc"
            )
            return (Note("psf.narrower_than_spaxel", words, WARNING),)
        remedy = f"engine.oversampling: {2 * cells}" if deposit in ("tsc", "smoothed") else "engine.deposit: tsc"
        words = (
            f"engine.deposit '{deposit}' spreads stars beside the PSF: on average they are seen with an FWHM of "
            f"{effective:.3g} instead of {fwhm:.3g} arcsec (both before the spaxel's box); for less take {remedy}"
        )
        return (Note("psf.widened", words, WARNING),)


def seen_width(instrument: InstrumentSettings, painting: Painting, wavelength: float) -> SeenWidth | None:
    """The widths of an instrument's PSF at a wavelength (Angstrom); None without a PSF and for one given as an image.

    effective^2 = fwhm^2 + 8 ln 2 times the variance that the deposit adds and the PSF's image does not take off: of a
    Gaussian, and by the same variance of any other.
    """
    psf = instrument.psf
    if psf is None or not psf.is_profile:
        return None
    widths = np.array([_fwhm_at(place, wavelength) for place in psf.every_place])
    fwhm, range_ = float(widths[0]), None
    if psf.field is not None:
        rows, columns = (np.asarray(axis) for axis in psf.field_axes)
        at_rows = [np.interp(0.0, columns, row) for row in widths.reshape(len(rows), len(columns))]
        fwhm, range_ = float(np.interp(0.0, rows, at_rows)), np.array([widths.min(), widths.max()])
    effective = painting.effective_fwhm(fwhm / instrument.pixel_scale) * instrument.pixel_scale
    return SeenWidth(np.asarray(fwhm), np.asarray(effective), range_)


def _fwhm_at(psf: PSFSettings, wavelength: float) -> float:
    """FWHM (arcsec) of the profile at a wavelength; of a sum of Gaussians that of the sum."""
    table = psf.width_table
    widths = table[:, 0] if psf.wavelength is None else [np.interp(wavelength, psf.wavelength, row) for row in table]
    if psf.components is None:
        return float(widths[0])
    widths = np.asarray(widths)
    peaks = np.array([component.fraction for component in psf.components]) / widths**2

    def above_half(fwhm: float) -> float:
        return float(peaks @ 2.0 ** -((fwhm / widths) ** 2) - 0.5 * peaks.sum())

    if widths.min() == widths.max():
        return float(widths[0])
    found: Any = found_at("scipy.optimize:brentq")(above_half, widths.min(), widths.max())
    return float(found)

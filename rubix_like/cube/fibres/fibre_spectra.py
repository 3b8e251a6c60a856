"""The spectra of fibres that a cube was made of: row-stacked spectra (RSS)."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_places import FibrePlaces
from rubix_like.physics.units import given_numbers

Spectra = Float[Array | np.ndarray, "fibre wave"]


class FibreVoxels(NamedTuple):
    """(fibre, wave), all exposures, fields as those of `FibreSpectra`."""

    flux: Spectra
    variance: Spectra | None
    truth: Spectra | None
    bits: Int[Array | np.ndarray, "fibre wave"] | None = None
    contributions: Mapping[str, Spectra] | None = None


class FibreSpectra(eqx.Module):
    """One spectrum for each fibre in each exposure, and the map that made the cube of them; a pytree.

    | field | shape | |
    |---|---|---|
    | flux | (fibre, wave) | 1e-20 erg/s/cm2/Angstrom per fibre, calibrated for the sky's transparency |
    | variance | (fibre, wave) or None | square of the flux unit; the noise of different fibres is independent |
    | truth | (fibre, wave) or None | flux without noise and systematic errors, where `noise.keep_truth` is true |
    | bits | (fibre, wave) or None | mask bits of systematic errors; flagged ones are left out of the cube |
    | contributions | (fibre, wave) by name | what each systematic error adds to the truth, where that is kept |
    | places | FibrePlaces | where the fibres lie, their numbers and exposures |
    | weights | CubeWeights | the map from fibres to spaxels |
    | mask | (wave,) | bits of the bins, as in `Cube.mask` |
    | layout | static | of the file that a run writes of them: manga, sami or none |
    """

    flux: Spectra
    variance: Spectra | None
    truth: Spectra | None
    places: FibrePlaces
    weights: CubeWeights
    mask: Int[Array | np.ndarray, " wave"]
    layout: str = eqx.field(static=True, default="manga")
    bits: Int[Array | np.ndarray, "fibre wave"] | None = None
    contributions: Mapping[str, Spectra] = eqx.field(default_factory=dict)

    def chi2(self, model: Spectra) -> Float[np.ndarray, " wave"]:
        """Sum over fibres of (flux - model)^2 / variance in each bin, in 64 bits; it has as many degrees of freedom as
        there are fibres that are not flagged in the bin. `model` (fibre, wave) is that of the same pipeline, such as
        `fibres.flux` without noise.

        Raises ValueError without a variance, or for a model of another shape.
        """
        if self.variance is None:
            raise ValueError("fibres.chi2: expected spectra with noise, got no variance; give the run a noise section")
        if np.shape(model) != np.shape(self.flux):
            raise ValueError(f"fibres.chi2: expected a model of shape {np.shape(self.flux)}, got {np.shape(model)}")
        values = given_numbers(model, CUBE_FLUX_DENSITY, "model")
        rest = np.asarray(self.flux, dtype=np.float64) - np.asarray(values, dtype=np.float64)
        return np.sum(self.good * rest**2 / np.asarray(self.variance, dtype=np.float64), axis=0)

    @property
    def good(self) -> Bool[np.ndarray, "fibre wave"]:
        """Which bins of the spectra no systematic error flags."""
        return np.ones(np.shape(self.flux), bool) if self.bits is None else np.asarray(self.bits) == 0

    @property
    def usable(self) -> Bool[np.ndarray, "fibre wave"]:
        """Which bins of the spectra no bit of any kind flags."""
        return self.good & (np.asarray(self.mask) == 0)[None, :]

    def part(self, bins: slice) -> "FibreSpectra":
        """The spectra in some bins."""
        own = {name: getattr(self, name) for name in ("flux", "variance", "truth", "bits")}
        cut: dict[str, Any] = {name: value[:, bins] for name, value in own.items() if value is not None}
        cut["contributions"] = {name: value[:, bins] for name, value in self.contributions.items()}
        return dataclasses.replace(self, **cut, mask=self.mask[bins], places=self.places.part(bins))

    def within(self, rows: slice, columns: slice) -> "FibreSpectra":
        """The same spectra with the map to some of the spaxels."""
        return dataclasses.replace(self, weights=self.weights.part(rows, columns))

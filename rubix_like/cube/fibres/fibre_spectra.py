"""The spectra of fibres that a cube was made of: row-stacked spectra (RSS)."""

from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_places import FibrePlaces

Spectra = Float[Array | np.ndarray, "fibre wave"]


class FibreVoxels(NamedTuple):
    """(fibre, wave), all exposures: flux, with noise its variance, and where it is kept the flux without noise."""

    flux: Spectra
    variance: Spectra | None
    truth: Spectra | None


class FibreSpectra(eqx.Module):
    """One spectrum for each fibre in each exposure, and the map that made the cube of them; a pytree.

    | field | shape | |
    |---|---|---|
    | flux | (fibre, wave) | 1e-20 erg/s/cm2/Angstrom per fibre, calibrated for the sky's transparency |
    | variance | (fibre, wave) or None | square of the flux unit; the noise of different fibres is independent |
    | truth | (fibre, wave) or None | flux without its noise, where `noise.keep_truth` is true |
    | places | FibrePlaces | where the fibres lie, their numbers and exposures |
    | weights | CubeWeights | the map from fibres to spaxels |
    | layout | static | of the file that a run writes of them: manga, sami or none |
    """

    flux: Spectra
    variance: Spectra | None
    truth: Spectra | None
    places: FibrePlaces
    weights: CubeWeights
    layout: str = eqx.field(static=True, default="manga")

    @property
    def surface_brightness(self) -> Spectra:
        """Mean flux within each fibre per arcsec^2."""
        return self.flux / self.places.area

"""The name of the spaxel and of the wavelength where residuals are furthest beyond noise."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.inference.checks.misfit import Left

FAR_BEYOND: float = 5.0
"""Standard deviations of chi^2 from which on a place is named: the largest of thousands reach 4 by chance."""

_COMPASS = ("North", "North-East", "East", "South-East", "South", "South-West", "West", "North-West")


@dataclass(frozen=True)
class DataPlaces:
    """East and North of the light's centre (arcsec) of every spaxel, and wavelengths (Angstrom)."""

    place: Float[ndarray, "y x 2"]
    wavelength: Float[ndarray, " wave"]


def worst_place(left: Left, field: DataPlaces) -> str:
    """The spaxel and the wavelength with the largest chi^2: "in the spaxel 1.2 arcsec North of the centre, at 5010
    Angstrom"; empty where neither is far beyond noise."""
    spaxels, bins = _excess(left, 2), _excess(left, (0, 1))
    words = []
    if spaxels.size > 1 and spaxels.max() >= FAR_BEYOND:
        east, north = field.place[np.unravel_index(np.argmax(spaxels), spaxels.shape)]
        direction = _COMPASS[round(float(np.rad2deg(np.arctan2(east, north))) / 45.0) % len(_COMPASS)]
        words.append(f"in the spaxel {np.hypot(east, north):.2g} arcsec {direction} of the centre")
    if bins.max() >= FAR_BEYOND:
        words.append(f"at {field.wavelength[np.argmax(bins)]:.5g} Angstrom")
    return ", ".join(words)


def most_of_all(where: str) -> str:
    """The end of a sentence on a misfit: ", most of all at 5010 Angstrom"; empty without a place."""
    return f", most of all {where}" if where else ""


def _excess(left: Left, axes: int | tuple[int, ...]) -> ndarray:
    """chi^2 over some axes beyond its expectation k, in standard deviations by Fisher's approximation
    sqrt(2 chi^2) - sqrt(2 k); -inf where nothing was fitted."""
    expected = np.sum(left.variance, axis=axes)
    chi_square = np.sum(np.where(left.variance > 0, left.voxels, 0.0) ** 2, axis=axes)
    beyond = np.sqrt(2 * chi_square) - np.sqrt(2 * expected)
    return np.where((expected > 0) & np.isfinite(beyond), beyond, -np.inf)


def data_places(
    light: Float[ndarray, "y x wave"], place: Float[ndarray, "y x 2"], wavelength: Float[ndarray, " wave"]
) -> DataPlaces:
    """The field about the centre of the light: the mean place of its brighter half."""
    image = np.maximum(light.sum(axis=2), 0.0)
    bright: Bool[ndarray, "y x"] = image >= 0.5 * image.max()
    weight = np.where(bright, image, 0.0)
    total = weight.sum()
    centre = np.tensordot(weight, place, 2) / total if total > 0 else np.zeros(2)
    return DataPlaces(place - centre, wavelength)

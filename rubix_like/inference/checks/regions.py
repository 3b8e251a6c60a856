"""Places where residuals stand out: the spaxel and the bin with the largest chi^2, and regions to leave out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.spatial import KDTree

from rubix_like.runtime.words import counted

Voxels = Float[ndarray, "y x wave"]

FAR_BEYOND: float = 5.0
"""Standard deviations of chi^2 from which on a place is named: the largest of thousands reach 4 by chance."""

_COMPASS = ("North", "North-East", "East", "South-East", "South", "South-West", "West", "North-West")

_LENGTHS_PER_OCTAVE = 4
"""Lengths of the ranges of bins that are compared."""

_MOST_COMPARED = 4_000_000
"""Pairs of a spaxel and one of its neighbours that are compared."""


class ResidualCube(NamedTuple):
    """The residuals of the voxels, and the variance of each if the model is true (0: not fitted), in units of sigma."""

    voxels: Voxels
    variance: Voxels


@dataclass(frozen=True)
class DataPlaces:
    """East and North of the light's centre (arcsec) of every spaxel, and wavelengths (Angstrom)."""

    place: Float[ndarray, "y x 2"]
    wavelength: Float[ndarray, " wave"]


class Region(NamedTuple):
    """A part of the data: its name, as in "without 5000 to 5095 Angstrom", and its voxels (1: in it)."""

    name: str
    voxels: Voxels


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


def worst_place(left: ResidualCube, field: DataPlaces) -> str:
    """The spaxel and the wavelength with the largest chi^2: "in the spaxel 1.2 arcsec North of the centre, at 5010
    Angstrom"; empty where neither is far beyond noise."""
    spaxels, bins = _excess(left, 2), _excess(left, (0, 1))
    words = []
    if spaxels.size > 1 and spaxels.max() >= FAR_BEYOND:
        at = np.unravel_index(np.argmax(spaxels), spaxels.shape)
        words.append(f"in the spaxel {_from_centre(field.place[at])}")
    if bins.max() >= FAR_BEYOND:
        words.append(f"at {field.wavelength[np.argmax(bins)]:.5g} Angstrom")
    return ", ".join(words)


def _from_centre(place: Float[ndarray, " 2"]) -> str:
    """A place on the sky: "1.2 arcsec North of the centre"."""
    east, north = place
    direction = _COMPASS[round(float(np.rad2deg(np.arctan2(east, north))) / 45.0) % len(_COMPASS)]
    return f"{np.hypot(east, north):.2g} arcsec {direction} of the centre"


def most_of_all(where: str) -> str:
    """The end of a sentence on a misfit: ", most of all at 5010 Angstrom"; empty without a place."""
    return f", most of all {where}" if where else ""


def _excess(left: ResidualCube, axes: int | tuple[int, ...]) -> ndarray:
    """chi^2 over some axes beyond its expectation k, in standard deviations by Fisher's approximation
    sqrt(2 chi^2) - sqrt(2 k); -inf where nothing was fitted."""
    expected = np.sum(left.variance, axis=axes)
    chi_square = np.sum(np.where(left.variance > 0, left.voxels, 0.0) ** 2, axis=axes)
    beyond = np.sqrt(2 * chi_square) - np.sqrt(2 * expected)
    return np.where((expected > 0) & np.isfinite(beyond), beyond, -np.inf)


def regions_of(left: ResidualCube, light: Voxels, field: DataPlaces) -> list[Region]:
    """The range of bins, and the spaxels about one of them, where the residuals stand out most from those of the rest:
    by chi^2, by their sum, or by the light that is left (`light`: the model in units of sigma).

    Each holds at most half of the bins, or of the spaxels. Noise has such regions too: they say where to look, not that
    there is anything.
    """
    used = np.isfinite(left.voxels) & (left.variance > 0)
    voxels, variance, light = (np.where(used, part, 0.0) for part in (left.voxels, left.variance, light))
    if not used.any():
        return []
    scale = max(float(np.sum(voxels**2) / np.sum(variance)), 1e-300)
    parts = [voxels**2 / scale, variance, voxels / scale**0.5, light * voxels / scale**0.5, light**2 * variance]
    bins = _range_of_bins([part.sum(axis=(0, 1)) for part in parts])
    spaxels = _spaxels_together([part.sum(axis=2).ravel() for part in parts], field.place.reshape(-1, 2))
    found = []
    if bins is not None:
        ends = field.wavelength[[bins[0], bins[-1]]]
        words = f"{ends[0]:.5g} Angstrom" if len(bins) == 1 else f"{ends[0]:.5g} to {ends[1]:.5g} Angstrom"
        found.append(Region(words, _as_mask(used, np.unravel_index(bins, used.shape[2:]), 2)))
    if spaxels is not None:
        middle = field.place.reshape(-1, 2)[spaxels].mean(axis=0)
        words = "the spaxel" if len(spaxels) == 1 else f"{counted(len(spaxels), 'spaxel')} about"
        place = np.unravel_index(spaxels, used.shape[:2])
        found.append(Region(f"{words} {_from_centre(middle)}", _as_mask(used, place, 0)))
    return found


def _as_mask(used: Bool[ndarray, "y x wave"], chosen: tuple[ndarray, ...], first: int) -> Voxels:
    """1 in the voxels of the chosen spaxels (`first` axis 0) or bins (2)."""
    mask = np.zeros(used.shape)
    mask[(slice(None),) * first + chosen] = 1.0
    return mask


def lengths_of_ranges(n_bin: int) -> Int[ndarray, " length"]:
    """Lengths of the ranges of bins that are compared: up to half of the bins, four to an octave."""
    number = int(_LENGTHS_PER_OCTAVE * np.log2(max(n_bin // 2, 1))) + 1
    return np.unique(np.floor(2 ** (np.arange(number) / _LENGTHS_PER_OCTAVE)).astype(np.int64))


def _range_of_bins(sums: Sequence[Float[ndarray, " wave"]]) -> Int[ndarray, " chosen"] | None:
    """Neighbouring bins that stand out most; None where fewer than two are fitted."""
    places = np.flatnonzero(sums[1] > 0)
    if len(places) < 2:
        return None
    before = np.cumsum([np.concatenate([[0.0], part[places]]) for part in sums], axis=1)
    best, chosen = -np.inf, places[:1]
    for length in lengths_of_ranges(len(places)):
        beyond = _standing_out(before[:, length:] - before[:, :-length])
        first = int(np.argmax(beyond))
        if beyond[first] > best:
            best, chosen = float(beyond[first]), places[first : first + length]
    return chosen


def _spaxels_together(
    sums: Sequence[Float[ndarray, " spaxel"]], place: Float[ndarray, "spaxel 2"]
) -> Int[ndarray, " chosen"] | None:
    """The spaxels nearest to one of them, so many that they stand out most; None where fewer than two are fitted."""
    places = np.flatnonzero((sums[1] > 0) & np.isfinite(place).all(axis=1))
    if len(places) < 2:
        return None
    most = max(min(len(places) // 2, _MOST_COMPARED // len(places)), 1)
    near = np.asarray(KDTree(place[places]).query(place[places], k=most)[1]).reshape(len(places), most)
    beyond = _standing_out(np.cumsum([part[places][near] for part in sums], axis=2))
    first, size = np.unravel_index(np.argmax(beyond), beyond.shape)
    return places[near[first, : size + 1]]


def _standing_out(sums: Float[ndarray, "5 *region"]) -> Float[ndarray, "*region"]:
    """Standard deviations by which regions stand out: the largest of chi^2's excess (Fisher's approximation), the
    sum of the residuals, and the light that is left."""
    chi_square, expected, plain, of_light, of_square = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.sqrt(2 * chi_square) - np.sqrt(2 * expected)
        coherent = np.abs(plain) / np.sqrt(expected), np.abs(of_light) / np.sqrt(of_square)
    return np.max(np.nan_to_num(np.stack([excess, *coherent]), posinf=0.0), axis=0)

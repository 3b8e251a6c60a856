"""In which part of the sky and of the spectrum residuals are too large, in words.

Each test adds up contributions c of voxels, spaxels or bins, of variance v and mean 0 if the model is true. The part
that is told is the one of many whose sum of c is furthest beyond noise (a scan statistic: Kulldorff 1997, Commun. Stat.
Theory Methods 26, 1481), in standard deviations by Fisher's approximation for sums of squares (k = sum(v) / 2),

    sqrt(2 (sum(c) + k)) - sqrt(2 k).

Parts of the sky are circles about every spaxel, all beyond a radius, halves of the field, both ends of an axis; parts
of the spectrum all ranges. The region is looked for in all bins, the range in that region, then the region again in
that range.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.signal import fftconvolve

from rubix_like.inference.checks.misfit import AXES, SHAPES, Left

FAR_BEYOND: float = 5.0
"""Standard deviations from which on a part is told: the largest of thousands of parts reach 4 by chance."""

_ALL_OVER = "all over the field"

_COMPASS = ("North", "North-East", "East", "South-East", "South", "South-West", "West", "North-West")

_RADII = 1.4
"""Ratio of the radii of circles."""

_LENGTHS = 1.25
"""Ratio of the lengths of ranges."""

_FEW_BINS = 400
"""Number of bins up to which all ranges are compared."""

_NEAR = 0.35
"""Distance of a circle's middle from the centre, in radii, that is not told."""

_LEAST = 0.1
"""Half of a variance below which there is none: sums by Fourier transforms have rounding."""

_ROUNDS = 2

Image = Float[ndarray, "y x"]
Spectrum = Float[ndarray, " wave"]


@dataclass(frozen=True)
class DataPlaces:
    """Where the voxels are: East and North of the light's centre (arcsec), the side of a spaxel (arcsec), wavelengths
    (Angstrom)."""

    place: Float[ndarray, "y x 2"]
    pixel_scale: float
    wavelength: Float[ndarray, " wave"]


class _Part(NamedTuple):
    """A part of the sky or of the spectrum, how far its sum is beyond noise, and its words; empty for all of it."""

    inside: ndarray
    excess: float
    words: str


class _Contributions(NamedTuple):
    """Of a range of bins (1: in it) to the spaxels, and of a region to the bins, each with its variance; None: there is
    no such."""

    of_spaxels: Callable[[Spectrum], tuple[Image, Image]] | None
    of_bins: Callable[[Image], tuple[Spectrum, Spectrum]] | None


def whereabouts(left: Left, tests: Mapping[str, float], field: DataPlaces) -> str:
    """Where the residuals of the worst test are largest: "within 1.2 arcsec of the centre, at 5010 to 5030 Angstrom".

    Empty where no part is far beyond noise, and where no test but those of halves of the data found anything.
    """
    for name in sorted(tests, key=lambda name: (tests[name], list(tests).index(name))):
        own = _contributions(name, left)
        if own is not None:
            return _found(own, field)
    return ""


def most_of_all(where: str) -> str:
    """The end of a sentence on a misfit: ", most of all beyond 2 arcsec from the centre"; empty without a place."""
    if not where.startswith(_ALL_OVER):
        return f", most of all {where}" if where else ""
    rest = where.removeprefix(_ALL_OVER).removeprefix(", ")
    return f", {_ALL_OVER}{most_of_all(rest)}"


def _found(own: _Contributions, field: DataPlaces) -> str:
    """The words of the worst part of the sky and of the spectrum."""
    region = _Part(np.ones(field.place.shape[:2]), 0.0, "")
    window = _Part(np.ones(len(field.wavelength)), 0.0, "")
    with np.errstate(invalid="ignore", divide="ignore"):
        for _ in range(_ROUNDS):
            if own.of_spaxels is not None:
                region = _worst(_regions(*own.of_spaxels(window.inside), field))
            if own.of_bins is not None:
                window = _worst(_windows(*own.of_bins(region.inside), field))
    if max(region.excess, window.excess) < FAR_BEYOND:
        return ""
    words = [part.words for part in (region, window) if part.words]
    if own.of_spaxels is not None and not region.words and region.inside.size > 1:
        words.insert(0, _ALL_OVER)
    return ", ".join(words)


def _worst(parts: Iterator[_Part]) -> _Part:
    return max(parts, key=lambda part: part.excess if np.isfinite(part.excess) else -np.inf)


def _contributions(name: str, left: Left) -> _Contributions | None:
    """Those of a test by its name; None of a test of halves."""
    if name == "chi^2":
        variance = np.maximum(left.variance, 0.0)
        return _of_voxels(left.voxels**2 - variance, 2 * variance)
    for axis, words in enumerate(AXES):
        if name in (f"correlation along {words}", f"runs along {words}"):
            return _of_voxels(*_of_pairs(left.voxels, (left.variance > 0).astype(float), axis))
    for what, template in zip(SHAPES, left.shapes, strict=True):
        if name in (f"{what} of the spaxels", f"map of the {what}"):
            return _of_shape(left.voxels, template, bins_too=False)
    if name in ("light of the spaxels", "map of the light", "light of the bins", "spectrum of the light"):
        return _of_shape(left.voxels, left.light, bins_too=True)
    return None


def _of_voxels(value: ndarray, variance: ndarray) -> _Contributions:
    """Sums of voxels."""

    def of_spaxels(window: Spectrum) -> tuple[Image, Image]:
        return value @ window, variance @ window

    def of_bins(region: Image) -> tuple[Spectrum, Spectrum]:
        return np.tensordot(region, value, 2), np.tensordot(region, variance, 2)

    return _Contributions(of_spaxels, of_bins)


def _of_pairs(voxels: ndarray, real: ndarray, axis: int) -> tuple[ndarray, ndarray]:
    """Products of neighbours along an axis, half of each with either of them, and their variance."""
    value, variance = np.zeros_like(voxels), np.zeros_like(voxels)
    low, high = ([slice(None)] * 3 for _ in range(2))
    low[axis], high[axis] = slice(None, -1), slice(1, None)
    first, second = tuple(low), tuple(high)
    product, count = voxels[first] * voxels[second] * real[first] * real[second], real[first] * real[second]
    for place in (first, second):
        value[place] += 0.5 * product
        variance[place] += 0.5 * count
    return value, variance


def _of_shape(voxels: ndarray, template: ndarray, *, bins_too: bool) -> _Contributions:
    """Squares, less 1, of what is left of a shape in each spaxel, within a range; and of the light in each bin, within
    a region."""

    def of_spaxels(window: Spectrum) -> tuple[Image, Image]:
        return _squares(voxels, template * window, 2)

    def of_bins(region: Image) -> tuple[Spectrum, Spectrum]:
        return _squares(voxels, template * region[..., None], (0, 1))

    return _Contributions(of_spaxels, of_bins if bins_too else None)


def _squares(voxels: ndarray, template: ndarray, over: int | tuple[int, ...]) -> tuple[ndarray, ndarray]:
    square = np.sum(template**2, axis=over)
    some = square > 0
    along = np.sum(template * voxels, axis=over) ** 2
    return np.where(some, along / np.where(some, square, 1.0) - 1.0, 0.0), 2.0 * some


def _beyond(total: ndarray | float, variance: ndarray | float) -> ndarray:
    """How far sums are beyond noise, in standard deviations; -inf where there is nothing."""
    half = 0.5 * np.maximum(variance, 0.0)
    return np.where(half > _LEAST, np.sqrt(2 * np.maximum(total + half, 0.0)) - np.sqrt(2 * half), -np.inf)


def _regions(value: Image, variance: Image, field: DataPlaces) -> Iterator[_Part]:
    """All regions of the sky, and the whole first."""
    yield _Part(np.ones(value.shape), float(_beyond(value.sum(), variance.sum())), "")
    if value.size == 1:
        return
    for inside, words in _about_centre(field):
        yield _Part(inside, float(_beyond(np.sum(value * inside), np.sum(variance * inside))), words)
    yield from _circles(value, variance, field)


def _about_centre(field: DataPlaces) -> Iterator[tuple[ndarray, str]]:
    """Outer parts, halves, and both ends of an axis."""
    east, north = np.moveaxis(field.place, 2, 0)
    distance, angle = np.hypot(east, north), np.rad2deg(np.arctan2(east, north))
    for radius in _radii(field):
        yield (distance > radius).astype(float), f"beyond {radius:.2g} arcsec from the centre"
    for number, words in enumerate(_COMPASS):
        apart = np.abs((angle - 45.0 * number + 180.0) % 360.0 - 180.0)
        yield (apart < 90.0).astype(float), f"in the half to the {words}"
        if number < len(_COMPASS) // 2:
            other = _COMPASS[number + len(_COMPASS) // 2]
            yield ((apart < 45.0) | (apart > 135.0)).astype(float), f"on both sides of the centre, {words} and {other}"


def _circles(value: Image, variance: Image, field: DataPlaces) -> Iterator[_Part]:
    """For each radius the worst circle about any spaxel."""
    rows, columns = value.shape
    y, x = np.indices((2 * rows - 1, 2 * columns - 1))
    apart = np.hypot(y - rows + 1, x - columns + 1)
    for radius in _radii(field):
        disc = (apart <= radius / field.pixel_scale).astype(float)
        total, spread = (_convolved(own, disc) for own in (value, variance))
        excess = _beyond(total, spread)
        middle = np.unravel_index(np.argmax(excess), excess.shape)
        centre = field.place[middle]
        offset = field.place - centre
        inside = (np.hypot(offset[..., 0], offset[..., 1]) <= radius * (1 + 1e-9)).astype(float)
        yield _Part(inside, float(excess[middle]), _circle_words(radius, centre))


def _convolved(image: Image, disc: Float[ndarray, "_ _"]) -> Image:
    """Sums over the disc about every spaxel of an image; the disc has room for any two of its spaxels."""
    rows, columns = image.shape
    return fftconvolve(image, disc)[rows - 1 : 2 * rows - 1, columns - 1 : 2 * columns - 1]


def _circle_words(radius: float, centre: Float[ndarray, "2"]) -> str:
    distance = float(np.hypot(*centre))
    if distance <= _NEAR * radius:
        return f"within {radius:.2g} arcsec of the centre"
    direction = _COMPASS[round(float(np.rad2deg(np.arctan2(*centre))) / 45.0) % len(_COMPASS)]
    return f"within {radius:.2g} arcsec of a place {distance:.2g} arcsec {direction} of the centre"


def _radii(field: DataPlaces) -> list[float]:
    """From a spaxel (that alone is a circle) to half of the field."""
    radii, most = [0.5 * field.pixel_scale], 0.25 * sum(field.place.shape[:2]) * field.pixel_scale
    while radii[-1] * _RADII < most:
        radii.append(radii[-1] * _RADII)
    return radii


def _windows(value: Spectrum, variance: Spectrum, field: DataPlaces) -> Iterator[_Part]:
    """All ranges, and the whole first; of many bins only those of some lengths, at some places."""
    count = len(value)
    sums, spreads = (np.concatenate([[0.0], np.cumsum(own)]) for own in (value, variance))
    yield _Part(np.ones(count), float(_beyond(sums[-1], spreads[-1])), "")
    length = 1
    while length < count:
        step = 1 if count <= _FEW_BINS else max(length // 4, 1)
        first = np.arange(0, count - length + 1, step)
        excess = _beyond(sums[first + length] - sums[first], spreads[first + length] - spreads[first])
        best = int(np.argmax(excess))
        inside = np.zeros(count)
        inside[first[best] : first[best] + length] = 1.0
        ends = field.wavelength[[first[best], first[best] + length - 1]]
        words = f"at {ends[0]:.5g} Angstrom" if length == 1 else f"at {ends[0]:.5g} to {ends[1]:.5g} Angstrom"
        yield _Part(inside, float(excess[best]), words)
        length = length + 1 if count <= _FEW_BINS else max(length + 1, int(length * _LENGTHS))


def data_places(
    light: Float[ndarray, "y x wave"], place: Float[ndarray, "y x 2"], pixel_scale: float, wavelength: Spectrum
) -> DataPlaces:
    """The field about the centre of the light: the mean place of its brighter half."""
    image = np.maximum(light.sum(axis=2), 0.0)
    bright: Bool[ndarray, "y x"] = image >= 0.5 * image.max()
    weight = np.where(bright, image, 0.0)
    total = weight.sum()
    centre = np.tensordot(weight, place, 2) / total if total > 0 else np.zeros(2)
    return DataPlaces(place - centre, pixel_scale, wavelength)

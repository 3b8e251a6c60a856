"""Bins of spaxels of about the same signal to noise: accretion and a weighted Voronoi tessellation."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError
from rubix_like.physics.units import as_quantity, in_plain_unit, plain_flags, split_mask

_ENOUGH = 0.8
"""Share of the target from which on a grown bin is kept."""

_ROUNDEST = 0.3
"""Largest roundness r_max / r_of_a_disc_of_the_same_area - 1 of a bin that grows."""

_MOST_ROUNDS = 100

NOT_BINNED: int = -1


@named_arguments
def voronoi_bins(
    signal: Float[ndarray, "y x"], noise: Float[ndarray, "y x"], target: float, used: Bool[ndarray, "y x"] | None = None
) -> Int[ndarray, "y x"]:
    """Numbers of compact bins of spaxels, from 0, whose signal to noise is about `target`; -1 for unused spaxels.

    Bins grow from the brightest spaxel left by the nearest one, while they stay connected and round, until they have
    the target (Cappellari & Copin 2003, MNRAS 342, 345, sect. 5.1); spaxels of those that do not reach it go to the
    nearest bin. Then every spaxel goes to the bin with the least distance over the bin's scale, and centres and scales
    follow, until nothing changes (weighted Voronoi tessellation, Diehl & Statler 2006, MNRAS 368, 497): the scale
    squared is the bin's area times target over its signal to noise. The noise of spaxels is taken as independent.
    Masked spaxels are not used; a unit is that of the signal. Raises ConfigError for a target that all spaxels together
    do not reach, and for noise that is not above 0.
    """
    for name, values in (("signal", signal), ("noise", noise), ("used", used)):
        if values is not None and (np.ndim(values) != 2 or np.shape(values) != np.shape(signal)):
            raise ConfigError(f"{name}: expected a map (y, x), of the shape of the others, got {np.shape(values)}")
    (signal, no_signal), (noise, no_noise) = split_mask(signal), split_mask(noise)
    quantity = as_quantity(signal)
    unit = "" if quantity is None else quantity.unit
    signal, noise = np.asarray(in_plain_unit(signal, unit, "signal")), np.asarray(in_plain_unit(noise, unit, "noise"))
    usable = np.isfinite(signal) & np.isfinite(noise) & (noise > 0) & (signal > 0) & ~np.asarray(no_signal | no_noise)
    chosen = usable if used is None else usable & plain_flags(used, "used", "a spaxel is used")
    if not target > 0:
        raise ConfigError(f"target: expected a signal to noise above 0, got {target!r}")
    if not chosen.any():
        raise ConfigError("signal: expected spaxels that are used and have finite signal and noise above 0, got none")
    place = np.argwhere(chosen).astype(float)
    light, variance = signal[chosen], noise[chosen] ** 2
    reached = light.sum() / np.sqrt(variance.sum())
    if reached < target:
        raise ConfigError(
            f"target: expected a signal to noise of at most {reached:.3g}, that of all spaxels together, got "
            f"{target:g}; set it lower"
        )
    centres = _accreted(place, light, variance, target)
    number = _tessellated(place, light, variance, target, centres)
    bins = np.full(signal.shape, NOT_BINNED)
    bins[chosen] = np.unique(number, return_inverse=True)[1]
    return bins


def _accreted(place: ndarray, light: ndarray, variance: ndarray, target: float) -> Float[ndarray, "bin 2"]:
    """Centres of the grown bins that have nearly the target."""
    free = np.ones(len(place), bool)
    ratio = light / np.sqrt(variance)
    start = int(np.argmax(ratio))
    centres: list[ndarray] = []
    while free.any():
        members = _grown(place, light, variance, target, free, start)
        free[members] = False
        if light[members].sum() / np.sqrt(variance[members].sum()) >= _ENOUGH * target:
            centres.append(np.average(place[members], axis=0, weights=light[members]))
        if free.any():
            left = np.flatnonzero(free)
            middle = place[~free].mean(axis=0)
            start = int(left[np.argmin(((place[left] - middle) ** 2).sum(axis=1))])
    return np.array(centres) if centres else np.average(place, axis=0, weights=light)[None]


def _grown(
    place: ndarray, light: ndarray, variance: ndarray, target: float, free: ndarray, start: int
) -> Int[ndarray, " member"]:
    """The spaxels of one bin."""
    members, others = [start], free.copy()
    others[start] = False
    while light[members].sum() / np.sqrt(variance[members].sum()) < target and others.any():
        centre = place[members].mean(axis=0)
        left = np.flatnonzero(others)
        nearest = int(left[np.argmin(((place[left] - centre) ** 2).sum(axis=1))])
        together = [*members, nearest]
        touches = ((place[members] - place[nearest]) ** 2).sum(axis=1).min() <= 2.0
        if not touches or _roundness(place[together]) > _ROUNDEST:
            break
        now, then = (light[own].sum() / np.sqrt(variance[own].sum()) for own in (members, together))
        if abs(then - target) > abs(now - target) and now >= _ENOUGH * target:
            break
        members = together
        others[nearest] = False
    return np.array(members)


def _roundness(place: ndarray) -> float:
    reach = np.sqrt(((place - place.mean(axis=0)) ** 2).sum(axis=1).max())
    return float(reach / np.sqrt(len(place) / np.pi) - 1)


def _tessellated(
    place: ndarray, light: ndarray, variance: ndarray, target: float, centres: ndarray
) -> Int[ndarray, " spaxel"]:
    """The bin of every spaxel, once nothing changes any more."""
    scale = np.ones(len(centres))
    number = np.full(len(place), -1)
    for _ in range(_MOST_ROUNDS):
        square = ((place[:, None, :] - centres[None]) ** 2).sum(axis=2) / scale**2
        now = np.argmin(square, axis=1)
        if np.array_equal(now, number):
            break
        number = now
        for own in np.unique(number):
            members = number == own
            weight = light[members] / np.sqrt(variance[members])
            centres[own] = np.average(place[members], axis=0, weights=weight**2)
            ratio = light[members].sum() / np.sqrt(variance[members].sum())
            scale[own] = np.sqrt(members.sum() * target / ratio)
    return number

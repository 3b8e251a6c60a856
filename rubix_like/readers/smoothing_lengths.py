"""Smoothing lengths of stars: the file's if they can be used, else the distances to their neighbours."""

import dataclasses
import importlib
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy import ndarray

from rubix_like.config import RunConfig
from rubix_like.config.readers.snapshot import NEIGHBOURS, SmoothingChoice
from rubix_like.errors import ConfigError
from rubix_like.galaxy.limits import require
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Stars
from rubix_like.instrument.crowding import AUTO
from rubix_like.physics.centering import half_mass_radius


@runtime_checkable
class HasSmoothing(Protocol):
    """The settings of a reader whose file may keep smoothing lengths of stars."""

    smoothing_length: Any
    neighbours: Any


def smoothing_choice(run: RunConfig) -> tuple[SmoothingChoice, int]:
    """`galaxy.smoothing_length` and `galaxy.neighbours`, or their defaults for a reader without these keys."""
    if isinstance(run.galaxy, HasSmoothing):
        return run.galaxy.smoothing_length, run.galaxy.neighbours
    return "auto", NEIGHBOURS


def neighbour_distance(position: Float[ndarray, "particle 3"], number: int) -> Float[ndarray, " particle"]:
    """Distance from each particle to its `number`-th nearest other particle, in the unit of `position`.

    The radius that holds `number` neighbours is the support radius of a smoothing kernel with that many. With fewer
    particles it is the distance to the farthest of them, 0 for a single one.
    """
    order = min(number, len(position) - 1)
    if order < 1:
        return np.zeros(len(position))
    spatial = importlib.import_module("scipy.spatial")  # slow: only where neighbours are looked for
    tree = spatial.KDTree(position)
    along = tree.indices  # neighbours one after the other, which is twice as fast
    neighbour = order + 1  # the nearest one is the particle itself
    distance, _ = tree.query(position[along], k=[neighbour], workers=-1)  # pyright: ignore[reportArgumentType]
    lengths = np.empty(len(position))
    lengths[along] = distance[:, 0]
    return lengths


def choose_smoothing_lengths(galaxy: Galaxy, info: GalaxyInfo, run: RunConfig) -> tuple[Galaxy, GalaxyInfo]:
    """The galaxy with smoothing lengths (kpc) as `galaxy.smoothing_length` and the run's deposit ask for.

    auto: those of the file, and for stars without one the distance to the neighbour; that of all stars where the file's
    median is larger than their half-mass radius, since such kernels blur the whole galaxy. Nothing is computed for a
    run that does not smooth; lengths that some stars lack are then left out, and of a part of a galaxy with
    `engine.deposit: auto` all of them, since they may not be usable. Raises ConfigError where the file
    was asked for and has none.
    """
    (choice, number), deposit = smoothing_choice(run), run.engine.deposit
    stars = galaxy.stars
    stored = stars.smoothing_length
    lacking = np.ones(len(stars.initial_mass), dtype=bool) if stored is None else np.isnan(np.asarray(stored))
    if choice == "file" and lacking.any():
        raise ConfigError(
            f"galaxy.smoothing_length: expected smoothing lengths of all stars in {info.source} for 'file', but "
            f"{np.count_nonzero(lacking)} of {lacking.size} have none; set it to auto or neighbours"
        )
    if choice == "auto" and deposit != "smoothed":
        return _with_lengths(galaxy, None if lacking.any() or deposit == AUTO else stored), info
    reason = _unusable(stars) if choice == "auto" else ""
    if choice == "neighbours" or reason:
        lacking = np.ones_like(lacking)
    if not lacking.any():
        return galaxy, dataclasses.replace(info, smoothing_length="file")
    words = f"distance to neighbour {number}; {np.count_nonzero(lacking)} of {lacking.size} stars"
    note = f"smoothing lengths of stars are estimated, {reason or 'not from the file'}: {words}"
    info = dataclasses.replace(info, smoothing_length=words, notes=(*info.notes, note))
    return _with_lengths(galaxy, _estimated(stars, lacking, number)), info


def with_neighbour_lengths(galaxy: Galaxy, number: int) -> Galaxy:
    """The galaxy with the distance of each star to its `number`-th neighbour as smoothing length."""
    lacking = np.ones(len(galaxy.stars.initial_mass), dtype=bool)
    return _with_lengths(galaxy, _estimated(galaxy.stars, lacking, number))


def _estimated(stars: Stars, lacking: Bool[ndarray, " particle"], number: int) -> Float[Array, " particle"]:
    """Distances to neighbours for the stars lacking a length, among all stars."""
    position = np.asarray(stars.position, dtype=np.float64)
    remedy = "leave these particles out or repair the file"
    require(np.isfinite(position), position, "stars.position", "finite values", remedy)
    lengths = neighbour_distance(position, number)
    if stars.smoothing_length is not None:
        lengths = np.where(lacking, lengths, np.asarray(stars.smoothing_length))
    return jax.device_put(np.array(lengths, jax.dtypes.canonicalize_dtype(float)))


def _unusable(stars: Stars) -> str:
    """Why the file's smoothing lengths cannot be used; empty where they can, or where there are none."""
    stored = np.full(1, np.nan) if stars.smoothing_length is None else np.asarray(stars.smoothing_length)
    known = stored[~np.isnan(stored)]
    mass = np.nan_to_num(np.asarray(stars.initial_mass if stars.mass is None else stars.mass, dtype=np.float64))
    if not known.size or not mass.sum() > 0:
        return ""
    median = float(np.median(known))
    half = half_mass_radius(np.asarray(stars.position, dtype=np.float64), mass)
    if median <= half:
        return ""
    return f"as the file's median, {median:.3g} kpc, is above the half-mass radius of {half:.3g} kpc"


def _with_lengths(galaxy: Galaxy, lengths: Any) -> Galaxy:
    return Galaxy(stars=dataclasses.replace(galaxy.stars, smoothing_length=lengths), gas=galaxy.gas)

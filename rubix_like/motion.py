"""How fast the stars are, and what the velocity nodes of method `basis` must span."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import RunConfig
from rubix_like.cost import Work, basis_seconds
from rubix_like.detector import LineSpread, rest_window
from rubix_like.galaxy import Galaxy

OUTLIER_LIGHT: float = 0.01
"""Stars with more than this share of the light are never left to the outliers' way."""

_CAPACITIES = (0, *(2**power for power in range(13)))
_WORTH = 0.8
"""Outliers are treated apart where that costs less than this share of the nodes for all."""

_LADDER = 50.0 * 2.0 ** (np.arange(38) / 4)

LARGEST_STEP: float = 200.0
"""Largest distance between velocity nodes in km/s: how far beyond the limit they may reach."""


class Motion(NamedTuple):
    """Velocity nodes span +-`limit` km/s; up to `capacity` faster stars are painted one by one; `note`: to the user."""

    limit: float
    capacity: int
    note: str = ""


def speeds(config: RunConfig, galaxy: Galaxy) -> Float[ndarray, " particle"]:
    """Largest |v_los| (km/s) that each star can have: its speed, or where no stage turns the stars, |v_z|.

    The velocity offset is added; padding has a speed of 0.
    """
    velocity, offset = np.asarray(galaxy.stars.velocity, dtype=np.float64), config.observation.velocity_offset
    observation = config.observation
    turned = config.resolved_align != "none" or (observation.inclination, observation.position_angle) != (None, None)
    speed = np.linalg.norm(velocity, axis=1) + abs(offset) if turned else np.abs(velocity[:, 2] + offset)
    weight = galaxy.stars.weight
    return speed if weight is None else speed * np.asarray(weight)


def plan_motion(config: RunConfig, galaxy: Galaxy, spread: LineSpread, work: Work) -> Motion:
    """The cheapest span of the nodes, with a few fast stars left out of it, from a ladder of limits 19 % apart.

    One star at 2000 km/s must not double the nodes; but stars with more than 1 % of the light are not outliers.
    """
    speed = speeds(config, galaxy)
    order = np.argsort(speed)[::-1][: _CAPACITIES[-1] + 1]
    light = _light(galaxy, spread)
    shares = np.concatenate([[0.0], np.cumsum(light[order])]) / max(light.sum(), np.finfo(float).tiny)
    found = [
        (basis_seconds(work, limit, capacity), capacity, limit, shares[capacity])
        for capacity in _CAPACITIES
        if capacity < len(speed)
        for limit in [_rung(float(speed[order[capacity]]))]
    ]
    seconds, capacity, limit, _ = _best([entry for entry in found if entry[3] <= OUTLIER_LIGHT])
    cheapest = min(entry for entry in found if entry[1] <= max(1.0, OUTLIER_LIGHT * len(speed)))
    if cheapest[0] > _WORTH * seconds:
        return Motion(limit, capacity)
    which = "1 fast star holds" if cheapest[1] == 1 else f"{cheapest[1]} fast stars hold"
    note = (
        f"{which} {cheapest[3]:.1%} of the light, too much to be treated as outliers: velocities "
        f"up to {limit:.0f} km/s instead of {cheapest[2]:.0f} km/s cost {seconds / cheapest[0]:.2g} times as much"
    )
    return Motion(limit, capacity, note)


def _best(ways: list[tuple[float, int, float, float]]) -> tuple[float, int, float, float]:
    """The cheapest way, or the first (all stars within the nodes) where none is much cheaper."""
    cheapest = min(ways)
    return cheapest if cheapest[0] < _WORTH * ways[0][0] else ways[0]


def _rung(speed: float) -> float:
    """The next limit of the ladder, with 5 % and 10 km/s to spare."""
    return float(_LADDER[np.searchsorted(_LADDER, 1.05 * speed + 10.0)])


def _light(galaxy: Galaxy, spread: LineSpread) -> Float[ndarray, " particle"]:
    """Roughly how bright each star is on the detector: its mass times the mean of the template below it in age and
    metallicity."""
    stars, library = galaxy.stars, spread.library
    edges = spread.bins.to_vacuum(spread.bins.edges[[0, -1]]) / (1 + spread.redshift)
    window = rest_window(np.asarray(library.rest_wavelength), edges, 0.0)
    age, metal = (
        np.clip(np.searchsorted(nodes, np.asarray(values), side="right") - 1, 0, len(nodes) - 1)
        for nodes, values in ((library.log_age, stars.log_age), (library.metallicity, stars.metallicity))
    )
    brightness = np.asarray(library.spectra)[:, :, window].mean(axis=2)
    light = brightness[metal, age] * np.asarray(stars.initial_mass, dtype=np.float64)
    return light if stars.weight is None else light * np.asarray(stars.weight)

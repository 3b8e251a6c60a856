"""How fast particles are, and what the velocity nodes of method `basis` must span."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.engine.cost import Work, rates_here
from rubix_like.runtime.words import percent

OUTLIER_LIGHT: float = 0.01
"""Particles with more than this share of the light are never left to the outliers' way."""

_CAPACITIES = (0, *(2**power for power in range(13)))
_WORTH = 0.8
"""Outliers are treated apart where that costs less than this share of the nodes for all."""

_LADDER = 50.0 * 2.0 ** (np.arange(38) / 4)

LARGEST_STEP: float = 200.0
"""Largest distance between velocity nodes in km/s: how far beyond the limit they may reach."""


class Motion(NamedTuple):
    """Velocity nodes span +-`limit` km/s; up to `capacity` faster particles are painted singly; `note`: to the user."""

    limit: float
    capacity: int
    note: str = ""


class FastParticles(NamedTuple):
    """The fastest of some particles and the light of all of them; the fastest of parts are those of the whole.

    `speed` and `light` (fast,) are the largest |v_los| (km/s) that particles can have, the fastest first and of equals
    the brightest, and roughly how bright they are on the detector; no more are kept than `plan_motion` may leave out.
    `number` and `total_light` are those of all; `fastest` the largest speed (km/s), whatever its direction.
    """

    speed: Float[ndarray, " fast"]
    light: Float[ndarray, " fast"]
    number: int
    total_light: float
    fastest: float

    @staticmethod
    def of(
        velocity: Float[ndarray, "particle 3"], speed: Float[ndarray, " particle"], light: Float[ndarray, " particle"]
    ) -> "FastParticles":
        """The motion of particles with these velocities, largest |v_los| (all km/s) and brightness."""
        fastest = float(np.linalg.norm(velocity, axis=1).max(initial=0.0))
        return FastParticles(*_fastest(speed, light), len(speed), float(light.sum()), fastest)

    @staticmethod
    def at_rest() -> "FastParticles":
        """The motion to plan for where there are no particles: of one that stands still."""
        return FastParticles(np.zeros(1), np.zeros(1), 1, 0.0, 0.0)

    def joined(self, other: "FastParticles") -> "FastParticles":
        """The motion of the particles of both."""
        kept = _fastest(np.concatenate([self.speed, other.speed]), np.concatenate([self.light, other.light]))
        number, light = self.number + other.number, self.total_light + other.total_light
        return FastParticles(*kept, number, light, max(self.fastest, other.fastest))


def _fastest(
    speed: Float[ndarray, " particle"], light: Float[ndarray, " particle"]
) -> tuple[Float[ndarray, " fast"], Float[ndarray, " fast"]]:
    """Speed and light of the fastest."""
    number = _CAPACITIES[-1] + 1
    if len(speed) > number:
        place = len(speed) - number
        near = speed >= np.partition(speed, place)[place]
        speed, light = speed[near], light[near]
    order = np.lexsort((light, speed))[::-1][:number]
    return speed[order], light[order]


def plan_motion(fast: FastParticles, work: Work) -> Motion:
    """The cheapest span of the nodes, with a few fast particles left out of it, from a ladder of limits 19 % apart.

    One particle at 2000 km/s must not double the nodes; but particles with more than 1 % of the light are not outliers.
    """
    shares = np.concatenate([[0.0], np.cumsum(fast.light)]) / max(fast.total_light, np.finfo(float).tiny)
    found = [
        (rates_here().span_seconds(work, limit, capacity), capacity, limit, shares[capacity])
        for capacity in _CAPACITIES
        if capacity < fast.number
        for limit in [_rung(float(fast.speed[capacity]))]
    ]
    seconds, capacity, limit, _ = _best([entry for entry in found if entry[3] <= OUTLIER_LIGHT])
    cheapest = min(entry for entry in found if entry[1] <= max(1.0, OUTLIER_LIGHT * fast.number))
    if cheapest[0] > _WORTH * seconds:
        return Motion(limit, capacity)
    which = "1 fast particle holds" if cheapest[1] == 1 else f"{cheapest[1]} fast particles hold"
    note = (
        f"{which} {percent(cheapest[3], 1)} of the light, too much to be treated as outliers: velocities "
        f"up to {limit:.0f} km/s instead of {cheapest[2]:.0f} km/s cost {seconds / cheapest[0]:.2g} times as much"
    )
    return Motion(limit, capacity, note)


def _best(ways: list[tuple[float, int, float, float]]) -> tuple[float, int, float, float]:
    """The cheapest way, or the first (all particles within the nodes) where none is much cheaper."""
    cheapest = min(ways)
    return cheapest if cheapest[0] < _WORTH * ways[0][0] else ways[0]


def _rung(speed: float) -> float:
    """The next limit of the ladder, with 5 % and 10 km/s to spare."""
    return float(_LADDER[np.searchsorted(_LADDER, 1.05 * speed + 10.0)])

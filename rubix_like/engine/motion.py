"""How fast the stars are, and what the velocity nodes of method `basis` must span."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import RunConfig
from rubix_like.cube.bins import WavelengthBins
from rubix_like.engine.cost import Work, basis_seconds
from rubix_like.galaxy.particles import Stars
from rubix_like.instrument.detector import rest_window
from rubix_like.ssp import SSPLibrary

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


class FastStars(NamedTuple):
    """The fastest of some stars and the light of all of them; the fastest of parts are those of the whole.

    `speed` and `light` (fast,) are the largest |v_los| (km/s) that stars can have (`speeds`), the fastest first and of
    equals the brightest, and how bright they are on the detector (`Brightness`); no more are kept than `plan_motion`
    may leave out. `total_light` is that of all stars; `fastest` the largest speed (km/s), whatever its direction.
    """

    speed: Float[ndarray, " fast"]
    light: Float[ndarray, " fast"]
    total_light: float
    fastest: float

    @staticmethod
    def of(config: RunConfig, brightness: "Brightness", stars: Stars) -> "FastStars":
        """Those of these stars."""
        speed, light = speeds(config, stars), brightness.of(stars)
        velocity = np.asarray(stars.velocity, dtype=np.float64)
        fastest = float(np.linalg.norm(velocity, axis=1).max(initial=0.0))
        return FastStars(*_fastest(speed, light), float(light.sum()), fastest)

    def joined(self, other: "FastStars") -> "FastStars":
        """Those of the stars of both."""
        kept = _fastest(np.concatenate([self.speed, other.speed]), np.concatenate([self.light, other.light]))
        return FastStars(*kept, self.total_light + other.total_light, max(self.fastest, other.fastest))


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


def speeds(config: RunConfig, stars: Stars) -> Float[ndarray, " particle"]:
    """Largest |v_los| (km/s) that each star can have: its speed, or where no stage turns the stars, |v_z|.

    The velocity offset is added.
    """
    velocity, offset = np.asarray(stars.velocity, dtype=np.float64), config.observation.velocity_offset
    observation = config.observation
    turned = config.resolved_align != "none" or (observation.inclination, observation.position_angle) != (None, None)
    return np.linalg.norm(velocity, axis=1) + abs(offset) if turned else np.abs(velocity[:, 2] + offset)


class Brightness(NamedTuple):
    """Roughly how bright stars are on the detector: their mass times the mean of the template below them in age and
    metallicity."""

    log_age: Float[ndarray, " age"]
    metallicity: Float[ndarray, " metal"]
    template: Float[ndarray, "metal age"]

    @staticmethod
    def build(config: RunConfig, library: SSPLibrary) -> "Brightness":
        """The means of the library's templates over the range of the detector."""
        bins = WavelengthBins.build(config.instrument.wavelength)
        edges = bins.to_vacuum(bins.edges[[0, -1]]) / (1 + config.observation.redshift)
        window = rest_window(np.asarray(library.rest_wavelength), edges, 0.0)
        template = np.asarray(library.spectra)[:, :, window].mean(axis=2)
        return Brightness(np.asarray(library.log_age), np.asarray(library.metallicity), template)

    def of(self, stars: Stars) -> Float[ndarray, " particle"]:
        """The brightness of each star."""
        age, metal = (
            np.clip(np.searchsorted(nodes, np.asarray(values), side="right") - 1, 0, len(nodes) - 1)
            for nodes, values in ((self.log_age, stars.log_age), (self.metallicity, stars.metallicity))
        )
        return self.template[metal, age] * np.asarray(stars.initial_mass, dtype=np.float64)


def plan_motion(fast: FastStars, n_stars: int, work: Work) -> Motion:
    """The cheapest span of the nodes, with a few fast stars left out of it, from a ladder of limits 19 % apart.

    One star at 2000 km/s must not double the nodes; but stars with more than 1 % of the light are not outliers.
    """
    shares = np.concatenate([[0.0], np.cumsum(fast.light)]) / max(fast.total_light, np.finfo(float).tiny)
    found = [
        (basis_seconds(work, limit, capacity), capacity, limit, shares[capacity])
        for capacity in _CAPACITIES
        if capacity < n_stars
        for limit in [_rung(float(fast.speed[capacity]))]
    ]
    seconds, capacity, limit, _ = _best([entry for entry in found if entry[3] <= OUTLIER_LIGHT])
    cheapest = min(entry for entry in found if entry[1] <= max(1.0, OUTLIER_LIGHT * n_stars))
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

"""Check that a galaxy's masses and motions are plausible; otherwise note a likely wrong unit or damage."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.galaxy.particles import Galaxy, Stars

STELLAR_MASSES: tuple[float, float] = (1e3, 1e14)
"""Msun: from the faintest dwarfs (Simon 2019, ARA&A 57, 375) to beyond the most massive galaxies of clusters."""

LEAST_DISPERSION: float = 1.0
"""km/s: less than that of any galaxy's stars; about 2 km/s in the faintest dwarfs (Simon 2019)."""

_LEAST_STARS = 10
"""Of fewer stars the dispersion says nothing."""


class VelocitySums(NamedTuple):
    """Additive sums over stars: mass m (at birth), m v and m |v|^2 in Msun and km/s."""

    n_stars: int = 0
    mass: float = 0.0
    momentum: tuple[float, float, float] = (0.0, 0.0, 0.0)
    squares: float = 0.0

    @staticmethod
    def of(stars: Stars) -> "VelocitySums":
        """The sums over these stars, in float64."""
        mass, velocity = (np.asarray(values, dtype=np.float64) for values in (stars.initial_mass, stars.velocity))
        x, y, z = (mass @ velocity).tolist()
        return VelocitySums(len(mass), float(mass.sum()), (x, y, z), float(mass @ (velocity**2).sum(axis=1)))

    def joined(self, other: "VelocitySums") -> "VelocitySums":
        """The sums over the stars of both."""
        x, y, z = (one + two for one, two in zip(self.momentum, other.momentum, strict=True))
        return VelocitySums(
            self.n_stars + other.n_stars, self.mass + other.mass, (x, y, z), self.squares + other.squares
        )

    @property
    def dispersion(self) -> float:
        """sigma_v = sqrt(sum m |v - <v>|^2 / (3 sum m)) in km/s, of one axis; <v> is the mean weighted by mass."""
        mean: Float[ndarray, 3] = np.asarray(self.momentum) / self.mass
        return float(np.sqrt(max(self.squares / self.mass - float(mean @ mean), 0.0) / 3))


def mass_notes(sums: VelocitySums, *, is_at_rest: bool) -> tuple[str, ...]:
    """Sentences on a stellar mass and a velocity dispersion that no galaxy has; `is_at_rest`: as the user wants it."""
    notes = []
    low, high = STELLAR_MASSES
    if not low <= sums.mass <= high:
        notes.append(
            f"the stars' birth masses add up to {sums.mass:.3g} Msun, which is no galaxy's ({low:g} to {high:g}): are "
            f"the masses in another unit?"
        )
    if sums.n_stars >= _LEAST_STARS and sums.dispersion < LEAST_DISPERSION and not is_at_rest:
        notes.append(
            f"the stars' velocity dispersion is {sums.dispersion:.3g} km/s, which is no galaxy's (at least "
            f"{LEAST_DISPERSION:g}): are the velocities in another unit?"
        )
    return tuple(notes)


def integer_notes(galaxy: Galaxy) -> tuple[str, ...]:
    """A sentence where arrays hold whole numbers, which may have been rounded."""
    kinds = {"stars": galaxy.stars, "gas": galaxy.gas}
    found = [
        f"{kind}.{name}"
        for kind, particles in kinds.items()
        for name, values in ({} if particles is None else vars(particles)).items()
        if isinstance(values, np.ndarray | jax.Array) and values.dtype.kind in "iu"
    ]
    return whole_number_notes(found)


def whole_number_notes(places: list[str]) -> tuple[str, ...]:
    """The sentence for quantities that are stored as whole numbers; none without any."""
    if not places:
        return ()
    stored = "is stored" if len(places) == 1 else "are stored"
    return (f"{', '.join(places)} {stored} as whole numbers: what was rounded away is lost",)

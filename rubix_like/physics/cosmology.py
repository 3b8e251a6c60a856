"""Distances by astropy's cosmologies; times in those of simulations, tabulated in the scale factor for many stars."""

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import ARCSEC_PER_RADIAN
from rubix_like.errors import ConfigError, suggest
from rubix_like.physics.gauss_legendre import leggauss

if TYPE_CHECKING:
    from astropy.cosmology import FLRW

Values = Float[ndarray, "*shape"]

FIRST_SCALE_FACTOR: float = 1e-3
"""Earliest birth the age table reaches (z = 999, before any star)."""

SNAPSHOT_SLACK: float = 1e-4
"""A birth this little after the snapshot (in scale factor) is rounding of the file: age 0."""

_TABLE_NODES = 2049

_AGE_POINTS = 200

_PER_YEAR: float = np.asarray(units.Quantity(1.0, "km / (s Mpc)").to_value("1 / yr"), dtype=np.float64).item()
"""1 km/s/Mpc in 1/yr."""


@functools.cache
def _astropy_cosmology() -> Any:
    """The module, which takes half a second to import, when a distance or an age is asked for."""
    return importlib.import_module("astropy.cosmology")


def find_cosmology(name: str) -> "FLRW":
    """The named cosmology of astropy (`Planck18`, `WMAP9` ...); raises ConfigError with the nearest known name."""
    known = _astropy_cosmology().available
    if name not in known:
        raise ConfigError(f"unknown cosmology '{name}'{suggest(name, known)}")
    return getattr(_astropy_cosmology(), name)


@dataclass(frozen=True)
class MatterAndLambda:
    """The expansion of a simulation: matter, Lambda and the curvature Omega_k that they leave to 1, no radiation.

    H(z) = 100 h km/s/Mpc sqrt(Omega_m (1 + z)^3 + Omega_k (1 + z)^2 + Omega_Lambda) (Peebles 1993, eq. 13.3), as
    `astropy.cosmology.LambdaCDM` without radiation, which takes half a second to import.
    """

    h: float
    omega_m: float
    omega_l: float

    def hubble_time(self, redshift: Values) -> Values:
        """1 / H in yr."""
        stretch, omega_k = redshift + 1.0, 1.0 - self.omega_m - self.omega_l
        rate = np.sqrt(stretch**2 * (self.omega_m * stretch + omega_k) + self.omega_l)
        return 1.0 / (100 * self.h * rate * _PER_YEAR)

    def age(self, redshift: float) -> float:
        """Age of the Universe in yr: the integral of du 2 u^2 / sqrt(Omega_m + Omega_k u^2 + Omega_Lambda u^6) over H0
        from 0 to u = sqrt(a), by Gauss-Legendre."""
        points, weights = leggauss(_AGE_POINTS)
        last, omega_k = (1.0 + redshift) ** -0.5, 1.0 - self.omega_m - self.omega_l
        u = 0.5 * last * (points + 1)
        values = 2 * u**2 / np.sqrt(self.omega_m + omega_k * u**2 + self.omega_l * u**6)
        return float(0.5 * last * (weights @ values) / (100 * self.h * _PER_YEAR))


def snapshot_cosmology(h: float, omega_m: float, omega_l: float) -> MatterAndLambda:
    """The cosmology of a simulation.

    `h` = H0 / (100 km/s/Mpc); raises ValueError where `h` is not in [0.01, 100], `omega_m` not in (0, 10] or `omega_l`
    not in [-10, 10] (no simulation is run there), or where the expansion has no beginning.
    """
    possible = 0.01 <= h <= 100 and 0 < omega_m <= 10 and abs(omega_l) <= 10
    a = np.geomspace(FIRST_SCALE_FACTOR, 1, 200)
    if not (possible and (omega_m / a**3 + (1 - omega_m - omega_l) / a**2 + omega_l > 0).all()):
        raise ValueError(
            f"cosmology of the snapshot: expected HubbleParam in [0.01, 100], Omega0 in (0, 10] and OmegaLambda in "
            f"[-10, 10], with a big bang, got {h}, {omega_m}, {omega_l}; is the Header complete?"
        )
    return MatterAndLambda(h, omega_m, omega_l)


def luminosity_distance(cosmology: "FLRW", redshift: float) -> float:
    """D_L in Mpc; 0 at redshift 0, where a flux needs an explicit distance. Raises ConfigError below redshift 0."""
    if not redshift >= 0:
        raise ConfigError(f"redshift: expected >= 0 for a distance from the cosmology, got {redshift}")
    distance = cosmology.luminosity_distance(redshift)  # pyright: ignore[reportAttributeAccessIssue]
    return float(distance.to_value(units.Mpc))


def hubble(cosmology: "FLRW") -> float:
    """h: the Hubble constant in 100 km/s/Mpc."""
    return float(cosmology.H0.to_value("km / (s Mpc)")) / 100  # pyright: ignore[reportAttributeAccessIssue]


def observed_distance(cosmology: str, redshift: float, given: float | None) -> float:
    """D_L in Mpc of what is observed: the given one, or that of the named cosmology."""
    return luminosity_distance(find_cosmology(cosmology), redshift) if given is None else given


def arcsec_per_kpc(luminosity_distance: float, redshift: float) -> float:
    """How large a kpc is seen, by the angular-diameter distance D_L / (1 + z)^2 (Mpc)."""
    return ARCSEC_PER_RADIAN * (1.0 + redshift) ** 2 / (1e3 * luminosity_distance)


@dataclass(frozen=True)
class AgeTable:
    """Time from a birth to a snapshot, age(a) = integral of da' / (a' H(a')) from a to the snapshot.

    Nodes are equal steps of ln(a / a_snapshot) that end at 0 with age exactly 0; `slope` is the exact
    d age / d ln a = -1 / H, so a cubic Hermite interpolation is good to 1e-9 of the age.
    """

    scale_factor: float
    log_ratio: Float[ndarray, " node"]
    age: Float[ndarray, " node"]
    slope: Float[ndarray, " node"]

    def stellar_age(self, birth: Float[ndarray, " particle"], place: str = "birth") -> Float[ndarray, " particle"]:
        """Ages in yr of stars born at the scale factors `birth`; 0 for births up to 1e-4 after the snapshot.

        Raises ValueError for a birth outside [0.001, a_snapshot + 1e-4], naming the first.
        """
        birth = np.asarray(birth, dtype=np.float64)
        bad = ~((birth >= FIRST_SCALE_FACTOR) & (birth <= self.scale_factor + SNAPSHOT_SLACK))
        if bad.any():
            first = int(np.argmax(bad))
            raise ValueError(
                f"{place}: expected birth scale factors of {FIRST_SCALE_FACTOR} to {self.scale_factor:.6g} (the "
                f"snapshot), got {birth[first]} at star {first} ({bad.sum()} of {birth.size}); "
                f"is the Header of another snapshot?"
            )
        x = np.minimum(np.log(birth / self.scale_factor), 0.0)
        step = -self.log_ratio[0] / (self.log_ratio.size - 1)
        left = np.clip(((x - self.log_ratio[0]) / step).astype(np.int64), 0, self.log_ratio.size - 2)
        s = (x - self.log_ratio[left]) / (self.log_ratio[left + 1] - self.log_ratio[left])
        r = 1.0 - s
        values = r * r * (1 + 2 * s) * self.age[left] + s * s * (1 + 2 * r) * self.age[left + 1]
        return values + step * s * r * (r * self.slope[left] - s * self.slope[left + 1])


def universe_age(cosmology: "FLRW", redshift: float) -> float:
    """Age of the Universe in yr."""
    return float(cosmology.age(redshift).to_value(units.yr))  # pyright: ignore[reportAttributeAccessIssue]


def age_table(cosmology: MatterAndLambda, scale_factor: float) -> AgeTable:
    """Tabulate the ages (yr) of stars in a snapshot at `scale_factor`, by 5-point Gauss-Legendre between nodes."""
    log_ratio = np.linspace(np.log(FIRST_SCALE_FACTOR / scale_factor), 0.0, _TABLE_NODES)
    points, weights = leggauss(5)
    half = 0.5 * np.diff(log_ratio)
    middle = log_ratio[:-1] + half

    def hubble_time(log_ratio: Values) -> Values:
        return cosmology.hubble_time(np.exp(-log_ratio) / scale_factor - 1.0)

    spans = half * (hubble_time(middle[:, None] + half[:, None] * points) @ weights)
    age = np.append(np.cumsum(spans[::-1])[::-1], 0.0)
    return AgeTable(scale_factor, log_ratio, age, -hubble_time(log_ratio))

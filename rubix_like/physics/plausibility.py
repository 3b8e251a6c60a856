"""Numbers that no galaxy and no observation has: the trace of a wrong unit, power of h, column or mask."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import percent

STELLAR_MASSES: tuple[float, float] = (1e3, 1e14)
"""Msun: from the faintest dwarfs (Simon 2019, ARA&A 57, 375) to beyond the most massive galaxies of clusters."""

HALF_MASS_RADII: tuple[float, float] = (0.01, 500.0)
"""kpc: from ultra-compact dwarfs to beyond the light within clusters of galaxies."""

CLUSTER_MASS, SMALLEST_CLUSTER = 1e7, 1e-4
"""Stars of less mass (Msun) may be a star cluster, with a half-mass radius (kpc) from 0.1 pc on (Krumholz et al. 2019,
ARA&A 57, 227)."""

LEAST_DISPERSION: float = 1.0
"""km/s: less than that of any galaxy's stars; about 2 km/s in the faintest dwarfs (Simon 2019)."""

NEWBORN_LOG_AGE, MOST_NEWBORN = 5.0, 0.02
"""A galaxy that forms a share of its stars within 1e5 yr would double its mass in 5 Myr."""

YOUNG_LOG_AGE, MOST_YOUNG = 6.0, 0.99
"""No galaxy formed all of its stars within 1e6 yr, which is the age of the youngest clusters."""

COLDEST: float = 10.0
"""K: gas is as cold in the cores of molecular clouds alone."""

FASTEST: float = 300.0
"""km/s: more than the stars of a galaxy move on average, relative to it."""

RICHEST: float = 0.06
"""Metal mass fraction, more than three times the Sun's, that half of a galaxy's mass never exceeds."""

LARGEST_SIGNAL_TO_NOISE: float = 1e4
"""Median per voxel: 1e8 electrons in each, which no detector holds."""

LARGEST_FLUX: float = 1e-8
"""erg/s/cm2/Angstrom: that of Sirius in V, the brightest star."""

MOST_UNUSED, IS_FLUX = 0.5, 5.0
"""Share of the voxels with flux, which is at least so many standard deviations: masked ones may hold noise."""

_LEAST_STARS = 10
"""Fewer stars say nothing of radius, dispersion and the share of newborn ones."""

_ROUNDING = 1e-12
"""Relative rounding of sums over stars."""

_SAMPLED_VOXELS = 1 << 20
"""Larger cubes are judged by so many voxels, drawn at random."""

_LOG_RADIUS, _BINS_PER_DEX, _N_BINS = -12.0, 100, 2400
"""Bins of log10(radius / kpc): where they begin, how many to a dex and in all; the first one holds radius 0."""

_UNIT_REMEDY = (
    "Give the unit: of a table in galaxy.columns, of a file in a field map (docs/inputs.md), of components with their "
    "numbers (galaxy.components: mass: 1e10 Msun, light: {scale_length: 3 kpc}), in Python as a quantity"
)


class ParticleSums(NamedTuple):
    """Additive sums over particles by which a galaxy is judged, in Msun, km/s and kpc.

    Of stars: mass m (at birth), m v and m |v|^2, `radii`: m in bins of log10 radius about the galaxy's centre, and the
    masses of stars younger than 1e5 yr and 1e6 yr and of those with Z above `RICHEST`; of gas: its mass, that with such
    Z and that colder than `COLDEST`.
    Random velocities along the line of sight (`Stars.random_velocity`) count along all three axes, with mean 0.
    """

    n_stars: int
    mass: float
    momentum: Float[ndarray, "3"]
    squares: float
    radii: Float[ndarray, " bin"]
    newborn: float
    young: float
    rich: float
    gas: float = 0.0
    rich_gas: float = 0.0
    cold_gas: float = 0.0

    @staticmethod
    def of(stars: Mapping[str, Any], gas: Mapping[str, Any] | None = None) -> "ParticleSums":
        """The sums in float64 over particles with these columns, those of `Stars` and `Gas`; padding does not count."""
        mass = _weighted(stars, "initial_mass")
        velocity, position = (np.asarray(stars[name], dtype=np.float64) for name in ("velocity", "position"))
        random = np.asarray(0.0 if stars.get("random_velocity") is None else stars["random_velocity"], np.float64)
        radius = np.linalg.norm(position, axis=1)
        bins = (np.log10(np.clip(radius, 1e-12, 1e12)) - _LOG_RADIUS) * _BINS_PER_DEX
        with_metals = gas if gas is not None and gas.get("metallicity") is not None else {"mass": [], "metallicity": []}
        gas_mass, metals = _weighted(with_metals, "mass"), np.asarray(with_metals["metallicity"])
        temperature = np.asarray(np.inf if with_metals.get("temperature") is None else with_metals["temperature"])
        age = np.asarray(stars["log_age"])
        return ParticleSums(
            n_stars=len(mass),
            mass=float(mass.sum()),
            momentum=mass @ velocity,
            squares=float(mass @ ((velocity**2).sum(axis=1) + 3 * random**2)),
            radii=np.bincount(np.clip(bins.astype(int), 0, _N_BINS - 1), mass, _N_BINS),
            newborn=float(mass[age < NEWBORN_LOG_AGE].sum()),
            young=float(mass[age < YOUNG_LOG_AGE].sum()),
            rich=float(mass[np.asarray(stars["metallicity"]) > RICHEST].sum()),
            gas=float(gas_mass.sum()),
            rich_gas=float(gas_mass[metals > RICHEST].sum()),
            cold_gas=float(gas_mass[np.broadcast_to(temperature < COLDEST, gas_mass.shape)].sum()),
        )

    def joined(self, other: "ParticleSums") -> "ParticleSums":
        """The sums over the particles of both."""
        return ParticleSums._make(left + right for left, right in zip(self, other, strict=True))

    @property
    def dispersion(self) -> float:
        """sigma_v = sqrt(sum m |v - <v>|^2 / (3 sum m)) in km/s, of one axis; <v> is the mean weighted by mass.

        0 where the difference is within the rounding of the sums.
        """
        mean = self.momentum / self.mass
        square = self.squares / self.mass
        variance = square - float(mean @ mean)
        return float(np.sqrt(variance / 3)) if variance > _ROUNDING * square else 0.0

    @property
    def half_mass_radius(self) -> float:
        """The radius (kpc, to 1 %) within which half of the stars' mass lies; 0 for a point source."""
        index = int(np.searchsorted(np.cumsum(self.radii), 0.5 * self.mass))
        return 10 ** (_LOG_RADIUS + (index + 0.5) / _BINS_PER_DEX) if index else 0.0


def _weighted(columns: Mapping[str, Any], name: str) -> Float[ndarray, " particle"]:
    """A column in float64, 0 for padding."""
    weight = columns.get("weight")
    return np.asarray(columns[name], np.float64) * (1.0 if weight is None else np.asarray(weight, np.float64))


def implausible_galaxy(sums: ParticleSums, *, is_at_rest: bool = False) -> Iterator[Note]:
    """Notes on numbers that no galaxy has, with the likely cause; `is_at_rest`: as the user wants it.

    None for a galaxy without stellar mass, such as one of gas or of emission lines alone.
    """
    if not sums.mass:
        return
    yield from implausible_mass(sums.mass)
    if sums.n_stars >= _LEAST_STARS:
        yield from _notes_on_radius(sums.half_mass_radius, sums.mass)
        if sums.dispersion < LEAST_DISPERSION and not is_at_rest:
            yield Note(
                "galaxy.dispersion",
                f"the stars' velocity dispersion is {sums.dispersion:.3g} km/s, which is no galaxy's (at least "
                f"{LEAST_DISPERSION:g}): are the velocities in another unit? {_UNIT_REMEDY}",
                WARNING,
            )
        speed = float(np.linalg.norm(sums.momentum / sums.mass))
        if speed > max(FASTEST, sums.dispersion):
            yield Note(
                "galaxy.bulk_velocity",
                f"the mean velocity of the stars relative to the galaxy is {speed:.3g} km/s, which is no galaxy's "
                f"(at most {FASTEST:g}): do velocities hold the galaxy's own motion? Subtract their mean; "
                f"observation.velocity_offset moves the galaxy",
                WARNING,
            )
        limits = ((NEWBORN_LOG_AGE, MOST_NEWBORN, sums.newborn), (YOUNG_LOG_AGE, MOST_YOUNG, sums.young))
        beyond = [(log_age, most, mass) for log_age, most, mass in limits if mass > most * sums.mass]
        for log_age, most, mass in beyond[:1]:
            yield Note(
                "galaxy.ages",
                f"{percent(mass / sums.mass)} of the stars' mass is younger than {10**log_age:g} yr, which is no "
                f"galaxy's (at most {percent(most)}): are ages in Gyr or Myr taken for yr, or for log10(age / yr)? "
                f"{_UNIT_REMEDY}",
                WARNING,
            )
    for kind, rich, mass in (("stars", sums.rich, sums.mass), ("gas", sums.rich_gas, sums.gas)):
        if rich > 0.5 * mass:
            yield Note(
                "galaxy.metallicities",
                f"{percent(rich / mass)} of the mass of the {kind} has metallicities above {RICHEST:g}, which is "
                f"no galaxy's (at most half): are they in solar units? They are mass fractions: multiply by the "
                f"Sun's, about 0.0134",
                WARNING,
            )
    if sums.gas and sums.cold_gas == sums.gas:
        yield Note(
            "galaxy.gas_temperature",
            f"gas.temperature: all gas is colder than {COLDEST:g} K, which is no galaxy's: are these log10 of the "
            f"temperature? Give it in K",
            WARNING,
        )


def implausible_mass(mass: float) -> Iterator[Note]:
    """A note on a sum of the stars' birth masses (Msun) that no galaxy has; none without stellar mass."""
    low, high = STELLAR_MASSES
    if mass and not low <= mass <= high:
        yield Note(
            "galaxy.mass",
            f"the stars' birth masses add up to {mass:.3g} Msun, which is no galaxy's ({low:g} to {high:g}): are they "
            f"in another unit, such as 1e10 Msun/h? {_UNIT_REMEDY}",
            WARNING,
        )


def _notes_on_radius(radius: float, mass: float) -> Iterator[Note]:
    low, high = HALF_MASS_RADII
    if mass < CLUSTER_MASS:
        low = SMALLEST_CLUSTER
    if radius == 0 or low <= radius <= high:
        return
    cause = (
        "are positions in Mpc or Mpc/h"
        if radius < low
        else "are positions in pc, not from the galaxy's centre, or those of a whole box (galaxy.subhalo selects)"
    )
    yield Note(
        "galaxy.size",
        f"the half-mass radius of the stars is {radius:.2g} kpc, which is no galaxy's ({low:g} to {high:g}): "
        f"{cause}? {_UNIT_REMEDY}",
        WARNING,
    )


def implausible_voxels(
    flux: Float[ndarray, "y x wave"],
    variance: Float[ndarray, "y x wave"] | None,
    used: Bool[ndarray, "y x wave"],
    sigma: float | None = None,
) -> Iterator[Note]:
    """Notes on fluxes (1e-20 erg/s/cm2/Angstrom), variances and masks that no observation has, with the likely
    cause; cubes of more than 2^20 voxels are judged by a sample of them. `sigma`: `fit.sigma`, where the variances are
    those of it."""
    if flux.size > _SAMPLED_VOXELS:
        sample = np.unravel_index(np.random.default_rng(1).integers(flux.size, size=_SAMPLED_VOXELS), flux.shape)
        flux, used = flux[sample], used[sample]
        variance = None if variance is None else variance[sample]
    has_flux = np.isfinite(flux) & (flux != 0)
    good = has_flux if variance is None else has_flux & (variance > 0)
    snr = np.zeros(flux.shape)
    if variance is not None:
        snr[good] = np.abs(flux[good]) / np.sqrt(variance[good])
    above_noise = snr > IS_FLUX
    judged = above_noise if above_noise.any() else has_flux
    unused = np.count_nonzero(judged & ~used) / max(np.count_nonzero(judged), 1)
    if unused > MOST_UNUSED:
        yield Note(
            "data.mask",
            f"{percent(unused)} of the voxels with flux are masked or have no variance, unlike in observations (at "
            f"most half): does the mask mark good voxels? In a file write 0 where voxels are good, or rename the "
            f"mask's HDU; in Python `used` is True there",
            WARNING,
        )
    light = good & used
    if not light.any():
        return
    brightest = float(np.percentile(np.abs(flux[light]), 99)) * 1e-20  # erg/s/cm2/Angstrom
    if brightest > LARGEST_FLUX:
        yield Note(
            "data.flux",
            f"the flux density reaches {brightest:.3g} erg/s/cm2/Angstrom per spaxel, unlike in observations (at "
            f"most {LARGEST_FLUX:g}): does BUNIT mean another power of ten? Give units, such as '1e-16 "
            f"erg/s/cm2/Angstrom' (of a file in a fit: fit.data_units; in Python: flux with its unit)",
            WARNING,
        )
    median = float(np.median(snr[light]))
    if median > LARGEST_SIGNAL_TO_NOISE:
        cause = (
            "are these variances in an HDU for standard deviations, or errors in another unit? In a file rename the "
            "HDU VAR, or give it a BUNIT; in Python give `variance`, the square of the errors, with its unit"
        )
        if sigma is not None:
            cause = f"is fit.sigma, {sigma:g}, in another unit? Give it in 1e-20 erg/s/cm2/Angstrom"
        yield Note(
            "data.errors",
            f"the median S/N per voxel is {median:.3g}, unlike in observations (at most "
            f"{LARGEST_SIGNAL_TO_NOISE:g}): {cause}",
            WARNING,
        )

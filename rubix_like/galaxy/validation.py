"""Checks of a galaxy's particles on concrete data.

The constructors check shapes only, so that they work in jit.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import numpy as np

from rubix_like.arguments import named_arguments
from rubix_like.galaxy.limits import (
    FRACTIONS,
    LARGEST_LOG_AGE,
    NOT_NEGATIVE,
    SMALLEST_METALLICITY,
    check_magnitudes,
    require,
)
from rubix_like.galaxy.particles import Galaxy, Gas, Stars
from rubix_like.physics.plausibility import ParticleSums, implausible_galaxy
from rubix_like.physics.units import universe_age_in_yr
from rubix_like.runtime.mesh.mesh import is_traced
from rubix_like.runtime.notes import WARNING, Note

AGE_SLACK: float = 1e-3
"""dex by which a star may be older than the Universe (rounding in the file)."""

MASS_RATIOS: tuple[float, float] = (0.01, 1.01)
"""Possible ratios of a star's mass now to that at birth: stars lose at most about half, and files round."""

PART_SLACK: float = 1e-6
"""Relative excess of a part (dust, neutral hydrogen) over the gas it is in that is rounding."""

Particles = TypeVar("Particles", Stars, Gas)


@named_arguments
def validate(galaxy: Galaxy, universe_age: Any = None) -> Galaxy:
    """Check that the particles are physical and return them, slightly negative mass fractions set to 0.

    Checked: at least one star; shapes; all values finite and below `limits.LARGEST`; masses, densities, temperatures
    and lengths >= 0; a positive sum of birth masses; log_age in [0, 10.3] and not above log10(`universe_age` / yr) +
    1e-3; mass fractions in [-1e-12, 1]; masses now from 0.01 to 1.01 times those at birth; no more dust than gas; HI
    and H2 together at most 1. `universe_age` is in yr, or a quantity. Raises ValueError with the field, the number of
    bad values, the first of them and the remedy.
    Gas without particles becomes None. The input is unchanged; only concrete arrays can be checked: call it outside
    jit.
    """
    if is_traced(galaxy):
        raise ValueError(
            "galaxy: expected arrays with values, got traced ones; check galaxies and build pipelines outside of "
            "jax.jit, jax.grad and jax.vmap, and call the pipeline inside"
        )
    universe_age = universe_age_in_yr(universe_age, "universe_age")
    if np.shape(galaxy.stars.position)[:1] == (0,):
        raise ValueError("stars: expected at least one star, got none; is this the right file or subhalo?")
    stars = validate_stars(galaxy.stars, universe_age)
    if not stars.has_light:
        raise ValueError("stars.initial_mass: expected a positive sum, got 0; a galaxy of no mass has no light")
    if galaxy.gas is None or np.shape(galaxy.gas.position)[:1] == (0,):
        return Galaxy(stars=stars)
    return Galaxy(stars=stars, gas=validate_gas(galaxy.gas))


def validate_stars(stars: Stars, universe_age: float | None = None) -> Stars:
    """Check each star as `validate` does, of any part of a galaxy, even none of it."""
    stars = Stars(**vars(stars))  # shapes and units, should a field have been replaced since
    _check_fields("stars", vars(stars))
    if stars.mass is not None:
        now, birth = (np.asarray(values, dtype=np.float64) for values in (stars.mass, stars.initial_mass))
        least, most = MASS_RATIOS
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(birth == now, 1.0, now / birth)
        remedy = "one of the two is in another unit than its reader expects, or damaged"
        expected = f"masses now from {least:g} to {most:g} times those at birth (stars.initial_mass)"
        require((ratio >= least) & (ratio <= most), ratio, "stars.mass / stars.initial_mass", expected, remedy)
    log_age, place = np.asarray(stars.log_age), "stars.log_age"
    remedy = "ages are stored as log10(age / yr) (1 Gyr is 9.0; age 0 is stored as 0), neither in yr nor in Gyr"
    good = (log_age >= 0) & (log_age <= LARGEST_LOG_AGE)
    require(good, log_age, place, f"log10(age / yr) in [0, {LARGEST_LOG_AGE}]", remedy)
    if universe_age is not None:
        limit = float(np.log10(universe_age))
        remedy = "the ages do not belong to this redshift or cosmology"
        require(log_age <= limit + AGE_SLACK, log_age, place, f"at most {limit:.4f}, the age of the Universe", remedy)
    return _without_negative_fractions(stars)


def validate_gas(gas: Gas) -> Gas:
    """Check gas as `validate` does, of any part of a galaxy, even none of it."""
    gas = Gas(**vars(gas))
    _check_fields("gas", vars(gas))
    if gas.dust_mass is not None:
        dust, mass = (np.asarray(values, dtype=np.float64) for values in (gas.dust_mass, gas.mass))
        remedy = "one of the two is in another unit than its reader expects (its power of h, or 1e10 Msun), or damaged"
        require(dust <= mass * (1 + PART_SLACK), dust, "gas.dust_mass", "at most the mass of the gas it is in", remedy)
    if gas.hi_fraction is not None and gas.h2_fraction is not None:
        neutral = np.asarray(gas.hi_fraction, dtype=np.float64) + np.asarray(gas.h2_fraction, dtype=np.float64)
        remedy = (
            "hi_fraction is of HI alone where there is an h2_fraction: subtract it from that of all neutral hydrogen"
        )
        require(neutral <= 1 + PART_SLACK, neutral, "gas.hi_fraction + gas.h2_fraction", "at most 1", remedy)
    return _without_negative_fractions(gas)


def _check_fields(kind: str, fields: Mapping[str, Any]) -> None:
    for name, leaf in fields.items():
        if leaf is None:
            continue
        place = f"{kind}.{name}"
        if not isinstance(leaf, np.ndarray | jax.Array):
            raise ValueError(f"{place}: expected an array, got {type(leaf).__name__}; write np.asarray(values)")
        values = np.asarray(leaf)
        if values.dtype.kind == "b":
            raise ValueError(f"{place}: expected numbers, got booleans, such as a mask; give the quantity itself")
        require(np.isfinite(values), values, place, "finite values", "leave these particles out or repair the file")
        if name in NOT_NEGATIVE:
            require(values >= 0, values, place, "values >= 0", "leave these particles out or repair the file")
        if name in FRACTIONS:
            good = (values >= SMALLEST_METALLICITY) & (values <= 1)
            remedy = "metallicities are mass fractions (the Sun's is about 0.02), neither in solar units nor log10"
            require(good, values, place, f"mass fractions in [{SMALLEST_METALLICITY}, 1]", remedy)
        elif name != "log_age":
            check_magnitudes(name, values, place)


def _without_negative_fractions(particles: Particles) -> Particles:
    """Only where there are any: nothing is compiled for the others' number of particles."""
    fractions = {name: value for name, value in vars(particles).items() if name in FRACTIONS and value is not None}
    negative = {name: value for name, value in fractions.items() if (np.asarray(value) < 0).any()}
    return replace(particles, **{name: value.clip(min=0) for name, value in negative.items()})


def implausible_notes(galaxy: Galaxy, *, is_at_rest: bool) -> tuple[Note, ...]:
    """Sentences on numbers of particles without padding that no galaxy has; `is_at_rest`: as the user wants it."""
    gas = None if galaxy.gas is None else vars(galaxy.gas)
    return tuple(implausible_galaxy(ParticleSums.of(vars(galaxy.stars), gas), is_at_rest=is_at_rest))


def integer_notes(galaxy: Galaxy) -> tuple[Note, ...]:
    """A sentence where arrays hold whole numbers, which may have been rounded."""
    kinds = {"stars": galaxy.stars, "gas": galaxy.gas}
    places = [
        f"{kind}.{name}"
        for kind, particles in kinds.items()
        for name, values in ({} if particles is None else vars(particles)).items()
        if isinstance(values, np.ndarray | jax.Array) and values.dtype.kind in "iu"
    ]
    return whole_number_notes(places)


def whole_number_notes(places: list[str]) -> tuple[Note, ...]:
    """The sentence for quantities that are stored as whole numbers; none without any."""
    if not places:
        return ()
    stored = "is stored" if len(places) == 1 else "are stored"
    text = f"{', '.join(places)} {stored} as whole numbers: what was rounded away is lost"
    return (Note("galaxy.whole_numbers", text, WARNING),)

"""A galaxy as particles: equinox pytrees of float arrays, in kpc, km/s, Msun and log10 yr."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from numbers import Integral
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from rubix_like.arguments import expect_fields
from rubix_like.constants import COLUMN_UNITS
from rubix_like.errors import expect
from rubix_like.physics.units import given_numbers, plain_numbers, universe_age_in_yr
from rubix_like.runtime.words import counted, html_table

Particles3 = Float[Array | np.ndarray, "particle 3"]
Particles1 = Float[Array | np.ndarray, " particle"]

CELL_RADII: float = 2.0
"""Smoothing length of a gas cell over the radius of the sphere of its volume, as yt takes it for AREPO."""


def _plain_columns(name: str, columns: dict[str, Any]) -> dict[str, Any]:
    """Columns as plain arrays in their units; raises ValueError for another physical type, for masked values and for
    true and false."""
    return {
        field: None if values is None else given_numbers(values, COLUMN_UNITS.get(field, ""), f"{name}.{field}")
        for field, values in columns.items()
    }


def _check_shapes(name: str, arrays: dict[str, Any], vectors: tuple[str, ...]) -> None:
    """Raise ValueError unless all arrays hold the same number of particles (shapes only, so it works on tracers)."""
    lengths = Counter(np.shape(value)[:1] for value in arrays.values() if np.ndim(value))
    count = max(lengths, key=lambda length: lengths[length], default=())
    for field in (*vectors, *(("mass",) if name == "Gas" else ("initial_mass", "log_age"))):
        if arrays[field] is None:
            raise ValueError(f"{name}.{field}: expected an array over the particles, got None")
    for field, value in arrays.items():
        if value is None:
            continue
        expected = (*count, 3) if field in vectors else count
        if np.shape(value) != expected or len(count) != 1:
            raise ValueError(
                f"{name}.{field}: expected shape {expected if len(count) == 1 else '(N, 3)'}, got {np.shape(value)}; "
                f"every field of one particle kind holds the same number of particles"
            )


def _words(name: str, columns: Mapping[str, Any]) -> str:
    known = ", ".join(column for column, values in columns.items() if values is not None)
    return f"{name}({_counted('particle', columns)}: {known})"


class Stars(eqx.Module):
    """Star particles, each a simple stellar population (every leaf a float array over the same particles).

    Quantities and columns of tables are converted to these units; masked values are refused.

    | field | shape | unit |
    |---|---|---|
    | position | (particle, 3) | kpc, from the galaxy's centre |
    | velocity | (particle, 3) | km/s, relative to the galaxy |
    | initial_mass | (particle,) | Msun at birth (SSP spectra are per unit of it) |
    | log_age | (particle,) | log10(age / yr); an age of 0 is stored as 0 |
    | metallicity | (particle,) | metal mass fraction Z |
    | mass | (particle,) or None | Msun now |
    | smoothing_length | (particle,) or None | kpc |
    | weight | (particle,) or None | 1 for a particle, 0 for padding; set by `shard`, never by hand |

    Emitters of smooth components (`galaxy.components`) have numbers that hold on the sky, wherever it is seen from:

    | field | shape | unit |
    |---|---|---|
    | random_velocity | (particle,) or None | km/s, of either sign, added along the line of sight |
    | east, north | (particle,) or None | arcsec, added to the place on the sky |
    | tilt, twist | (particle,) or None | deg, added to the inclination and the position angle |
    | line_light | (particle, line) or None | brightness in each emission line (`components.line_light.LineRow`) |
    """

    position: Particles3
    velocity: Particles3
    initial_mass: Particles1
    log_age: Particles1
    metallicity: Particles1
    mass: Particles1 | None = None
    smoothing_length: Particles1 | None = None
    weight: Particles1 | None = None
    random_velocity: Particles1 | None = None
    east: Particles1 | None = None
    north: Particles1 | None = None
    tilt: Particles1 | None = None
    twist: Particles1 | None = None
    line_light: Float[Array | np.ndarray, "particle line"] | None = None

    def __post_init__(self) -> None:
        vars(self).update(_plain_columns("Stars", vars(self)))

    def __check_init__(self) -> None:
        _check_shapes("Stars", vars(self) | {"line_light": None}, ("position", "velocity"))
        if self.line_light is not None and np.shape(self.line_light)[:1] != np.shape(self.position)[:1]:
            raise ValueError(
                f"Stars.line_light: expected as many rows as particles ({len(self.position)}), got shape "
                f"{np.shape(self.line_light)}"
            )

    @property
    def has_light(self) -> bool:
        """Whether any star has mass, or any emitter lines; not to be traced."""
        mass = np.sum(np.asarray(self.initial_mass), dtype=np.float64)
        return bool(mass > 0) or (self.line_light is not None and bool(np.any(np.asarray(self.line_light) > 0)))

    def __repr__(self) -> str:
        return _words("Stars", vars(self))


class Gas(eqx.Module):
    """Gas particles or cells (every leaf a float array over the same particles).

    Quantities and columns of tables are converted to these units; masked values are refused.

    | field | shape | unit |
    |---|---|---|
    | position | (particle, 3) | kpc, from the galaxy's centre |
    | velocity | (particle, 3) | km/s, relative to the galaxy |
    | mass | (particle,) | Msun |
    | metallicity | (particle,) or None | metal mass fraction Z |
    | temperature | (particle,) or None | K |
    | density | (particle,) or None | Msun / kpc^3 |
    | internal_energy | (particle,) or None | (km/s)^2, per unit mass |
    | electron_abundance | (particle,) or None | electrons per hydrogen nucleus |
    | star_formation_rate | (particle,) or None | Msun / yr |
    | hydrogen_fraction, oxygen_fraction | (particle,) or None | mass fractions, of all the gas |
    | smoothing_length | (particle,) or None | kpc |
    | hi_fraction | (particle,) or None | mass fraction of neutral hydrogen; of HI alone where the file separates H2 |
    | h2_fraction | (particle,) or None | mass fraction of molecular hydrogen |
    | dust_mass | (particle,) or None | Msun, part of `mass` |
    | weight | (particle,) or None | 1 for a particle, 0 for padding; set by `shard`, never by hand |
    """

    position: Particles3
    velocity: Particles3
    mass: Particles1
    metallicity: Particles1 | None = None
    temperature: Particles1 | None = None
    density: Particles1 | None = None
    internal_energy: Particles1 | None = None
    electron_abundance: Particles1 | None = None
    star_formation_rate: Particles1 | None = None
    hydrogen_fraction: Particles1 | None = None
    oxygen_fraction: Particles1 | None = None
    smoothing_length: Particles1 | None = None
    hi_fraction: Particles1 | None = None
    h2_fraction: Particles1 | None = None
    dust_mass: Particles1 | None = None
    weight: Particles1 | None = None

    def __post_init__(self) -> None:
        vars(self).update(_plain_columns("Gas", vars(self)))

    def __check_init__(self) -> None:
        _check_shapes("Gas", vars(self), ("position", "velocity"))

    def __repr__(self) -> str:
        return _words("Gas", vars(self))

    def required(self, name: str, reader: str, remedy: str) -> Float[Array, " particle"]:
        """A column that `reader` needs; raises ValueError, with the `remedy`, where there is none."""
        column = getattr(self, name)
        if column is None:
            raise ValueError(f"gas.{name}: expected one per particle for {reader}, got none; {remedy}")
        return jnp.asarray(column)


class Galaxy(eqx.Module):
    """Stars and, where there is any, gas of one galaxy: float leaves only, so that it can be differentiated."""

    stars: Stars
    gas: Gas | None = None

    def __check_init__(self) -> None:
        expect_fields(self)

    def __repr__(self) -> str:
        return f"Galaxy({', '.join(_counted(noun, columns) for noun, columns in self._kinds().items())})"

    def _repr_html_(self) -> str:
        """A table of every kind of particles: columns, units, lowest, median and highest values."""
        tables = []
        for noun, columns in self._kinds().items():
            rows = [("column", "unit", "lowest", "median", "highest")]
            for name, values in columns.items():
                unit = "log10(yr)" if name == "log_age" else COLUMN_UNITS.get(name, "").replace(" ", "")
                if values is not None and name != "weight":
                    rows.append((name, unit, *_range(values)))
            tables.append(html_table(_counted(noun, columns), rows))
        return "".join(tables)

    def _kinds(self) -> dict[str, dict[str, Any]]:
        gas = {} if self.gas is None else {"gas particle": vars(self.gas)}
        return {"star": vars(self.stars), **gas}


def _counted(noun: str, columns: Mapping[str, Any]) -> str:
    return counted(np.shape(columns["position"])[0], noun)


def _range(values: Any) -> tuple[str, str, str]:
    """Lowest, median and highest value; empty where they are not known, as inside of a compiled function."""
    if isinstance(values, Tracer) or not np.size(values):
        return "", "", ""
    numbers = np.asarray(values, np.float64)
    low, middle, high = (f"{float(measure(numbers)):.4g}" for measure in (np.min, np.median, np.max))
    return low, middle, high


def expect_galaxy(galaxy: Any, place: str = "galaxy") -> Galaxy:
    """The galaxy, where it is one; raises ConfigError that names the argument `place` for a path, a dict and so on."""
    return expect(galaxy, Galaxy, place, "an rl.Galaxy (rl.load_galaxy(config) reads one)")


class GalaxyInfo(eqx.Module):
    """Facts on a galaxy beside its particles: plain values, never differentiated.

    `redshift` is the snapshot's (None when it has none), `universe_age` in yr at that redshift (upper limit of the
    stars' ages; None: not checked). `initial_mass`, `ages`, `metallicities`, `velocities` and `smoothing_length` say
    where those of the stars come from: "file" or a few words. A reader leaves NaN in the stars' birth masses that are
    not in its file, to be filled in from the current masses by `load_galaxy`; `initial_mass` is "missing" until then.
    `smoothing_length` is empty where a run does not need it. `notes` are sentences for the run's summary; `center` (kpc
    in the file's frame) and `bulk_velocity` (km/s) are what the reader took off.
    """

    name: str
    reader: str
    source: str
    simulation: str = ""
    redshift: float | None = eqx.field(
        converter=partial(plain_numbers, unit="", place="GalaxyInfo.redshift"), default=None
    )
    cosmology: str = ""
    universe_age: float | None = eqx.field(
        converter=partial(universe_age_in_yr, place="GalaxyInfo.universe_age"), default=None
    )
    n_stars: int = 0
    n_gas: int = 0
    center: tuple[float, float, float] | None = eqx.field(
        converter=partial(plain_numbers, unit="kpc", place="GalaxyInfo.center"), default=None
    )
    bulk_velocity: tuple[float, float, float] | None = eqx.field(
        converter=partial(plain_numbers, unit="km / s", place="GalaxyInfo.bulk_velocity"), default=None
    )
    initial_mass: str = "file"
    ages: str = "file"
    metallicities: str = "file"
    velocities: str = "file"
    smoothing_length: str = ""
    notes: tuple[str, ...] = ()

    def __check_init__(self) -> None:
        expect_fields(self)
        if self.redshift is not None and not (np.ndim(self.redshift) == 0 and self.redshift > -1):
            raise ValueError(f"GalaxyInfo.redshift: expected a number above -1, or None, got {self.redshift!r}")
        for name in ("n_stars", "n_gas"):
            if not (isinstance(getattr(self, name), Integral) and getattr(self, name) >= 0):
                raise ValueError(f"GalaxyInfo.{name}: expected a whole number from 0, got {getattr(self, name)!r}")
        for name in ("center", "bulk_velocity"):
            vector = getattr(self, name)
            if vector is not None and np.shape(vector) != (3,):
                raise ValueError(f"GalaxyInfo.{name}: expected three numbers (x, y, z), got {vector!r}")

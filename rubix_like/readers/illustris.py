"""Cut-outs of Illustris and IllustrisTNG, as downloaded from the TNG API (tng-project.org/data/docs/specifications).

Code units become kpc (a / h), km/s (sqrt(a)), Msun (1e10 / h) and log10 yr with the Header's own cosmology, in float64.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import h5py
import jax
import jax.numpy as jnp
import numpy as np
from astropy import constants, units
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.centering import bulk_velocity, half_mass_radius, shrinking_sphere, unwrap
from rubix_like.config.quantities import Number
from rubix_like.config.settings import AbstractSettings
from rubix_like.cosmology import age_table, snapshot_cosmology, universe_age
from rubix_like.galaxy import Galaxy, GalaxyInfo, Gas, Stars
from rubix_like.readers.hdf5 import columns, header_number, header_text, names, open_snapshot
from rubix_like.validation import require

ADIABATIC_INDEX: float = 5 / 3

PRIMORDIAL_HYDROGEN: float = 0.76
"""Hydrogen mass fraction where the cut-out has no GFM_Metals."""

KELVIN_PER_ENERGY: float = float((constants.m_p / constants.k_B * units.Unit("km2 / s2")).to_value(units.K))  # pyright: ignore[reportAttributeAccessIssue]
"""m_p / k_B times 1 (km/s)^2: 121.15 K."""

_STAR_WIDTHS = {
    "Coordinates": 3,
    "Velocities": 3,
    "Masses": None,
    "GFM_Metallicity": None,
    "GFM_StellarFormationTime": None,
}
_GAS_WIDTHS = {"Coordinates": 3, "Velocities": 3, "Masses": None, "GFM_Metallicity": None}
_GAS_OPTIONAL = {
    "Density": None,
    "StarFormationRate": None,
    "InternalEnergy": None,
    "ElectronAbundance": None,
    "GFM_Metals": 10,
}

Vector = Float[ndarray, "3"]
Leaf3 = Float[Array, "particle 3"]
Table = dict[str, Float[ndarray, "..."]]


@dataclass(frozen=True)
class SnapshotUnits:
    """Factors from the code units of a snapshot at scale factor a and Hubble parameter h.

    | factor | from | to |
    |---|---|---|
    | length | ckpc / h | kpc |
    | velocity | km/s sqrt(a) | km/s |
    | mass | 1e10 Msun / h | Msun |
    | density | (1e10 Msun / h) / (ckpc / h)^3 | Msun / kpc^3 |
    """

    scale_factor: float
    h: float

    @property
    def length(self) -> float:
        """kpc per code unit."""
        return self.scale_factor / self.h

    @property
    def velocity(self) -> float:
        """km/s per code unit."""
        return self.scale_factor**0.5

    @property
    def mass(self) -> float:
        """Msun per code unit."""
        return 1e10 / self.h

    @property
    def density(self) -> float:
        """Msun / kpc^3 per code unit."""
        return self.mass / self.length**3


@dataclass(frozen=True)
class Frame:
    """The galaxy's own frame in code units: what is taken off the particles, and the periodic box."""

    center: Vector
    velocity: Vector
    box_size: float | None

    def apply(self, table: Table, scale: SnapshotUnits) -> tuple[Leaf3, Leaf3]:
        """Positions (kpc) and velocities (km/s) relative to the galaxy; subtracted in float64, then cast."""
        position = unwrap(table["Coordinates"], self.center, self.box_size) * scale.length
        return _leaf(position), _leaf((table["Velocities"] - self.velocity) * scale.velocity)


class IllustrisReader(AbstractSettings):
    """Reader of one Illustris or IllustrisTNG cut-out (HDF5 with PartType4 and, where there is gas, PartType0).

    `center` is in the file's own ckpc/h, as SubhaloPos of the catalogue; null finds it by the shrinking sphere. Wind
    cells (GFM_StellarFormationTime <= 0) are left out before anything else. The bulk velocity is the mass-weighted
    mean of the stars within the half-mass radius. Gas shares centre and bulk velocity with the stars.
    """

    reader: Literal["illustris"] = "illustris"
    path: Path
    center: tuple[Number, Number, Number] | None = None

    def load(self) -> tuple[Galaxy, GalaxyInfo]:
        """Read the file; raises FileNotFoundError, OSError or ValueError with place, expectation and remedy."""
        with open_snapshot(self.path) as file:
            h, scale_factor = header_number(file, "HubbleParam"), _scale_factor(file)
            omega_m, omega_l = header_number(file, "Omega0"), header_number(file, "OmegaLambda")
            scale = SnapshotUnits(scale_factor, h)
            table, wind_note = _read_stars(file)
            frame, frame_notes = self._find_frame(table, header_number(file, "BoxSize", 0.0) or None, scale)
            gas_table, gas_note = _read_gas(file)
            simulation = header_text(file, "SimulationName")
        cosmology = snapshot_cosmology(h, omega_m, omega_l)
        ages = age_table(cosmology, scale_factor)
        place = f"{self.path}: PartType4/GFM_StellarFormationTime"
        stars = _stars(table, ages.stellar_age(table["GFM_StellarFormationTime"], place), frame, scale)
        galaxy = Galaxy(stars=stars, gas=_gas(gas_table, frame, scale))
        redshift = 1 / scale_factor - 1
        center = frame.center if frame.box_size is None else frame.center % frame.box_size
        info = GalaxyInfo(
            name=self.path.stem,
            reader=self.reader,
            source=str(self.path),
            simulation=simulation,
            redshift=redshift,
            cosmology=f"H0={100 * h:g}, Omega_m={omega_m:g}, Omega_Lambda={omega_l:g} (snapshot)",
            universe_age=universe_age(cosmology, redshift),
            n_stars=table["Masses"].size,
            n_gas=0 if galaxy.gas is None else galaxy.gas.mass.shape[0],
            center=_triple(center * scale.length),
            bulk_velocity=_triple(frame.velocity * scale.velocity),
            initial_mass="file" if "GFM_InitialMass" in table else "missing",
            notes=wind_note + frame_notes + gas_note,
        )
        return galaxy, info

    def _find_frame(self, table: Table, box_size: float | None, scale: SnapshotUnits) -> tuple[Frame, tuple[str, ...]]:
        """Centre (the given one, else the shrinking sphere's) and bulk velocity, in code units."""
        mass, notes = table["Masses"], ()
        first = table["Coordinates"][0]
        center = first + shrinking_sphere(unwrap(table["Coordinates"], first, box_size), mass)
        if self.center is not None:
            given = np.array(self.center)
            apart = float(np.linalg.norm(unwrap((center - given)[None], np.zeros(3), box_size)))
            if apart > half_mass_radius(unwrap(table["Coordinates"], center, box_size), mass):
                text = f"galaxy.center is {apart * scale.length:.3g} kpc from the densest place of the stars"
                notes = (f"{text}, beyond their half-mass radius (expected in ckpc/h)",)
            center = given
        offset = unwrap(table["Coordinates"], center, box_size)
        return Frame(center, bulk_velocity(offset, table["Velocities"], mass), box_size), notes


def gas_temperature(
    internal_energy: Float[ndarray, " particle"],
    electron_abundance: Float[ndarray, " particle"],
    hydrogen_fraction: Float[ndarray, " particle"] | float,
) -> Float[ndarray, " particle"]:
    """Temperature in K: T = (gamma - 1) u mu m_p / k_B, mu = 4 / (1 + 3 X + 4 X x_e) (TNG FAQ), u in (km/s)^2."""
    mean_weight = 4 / (1 + 3 * hydrogen_fraction + 4 * hydrogen_fraction * electron_abundance)
    return (ADIABATIC_INDEX - 1) * internal_energy * mean_weight * KELVIN_PER_ENERGY


def _scale_factor(file: h5py.File) -> float:
    """Header's Time, or 1 / (1 + Redshift) where it is missing."""
    redshift = header_number(file, "Redshift", -1.0)
    scale_factor = header_number(file, "Time", 1 / (1 + redshift) if redshift > -1 else None)
    if not 0.01 < scale_factor <= 1.0 + 1e-6:
        raise ValueError(
            f"{file.filename}: Header: expected a scale factor Time in (0.01, 1], got {scale_factor}; "
            f"only cosmological snapshots of Illustris and IllustrisTNG are read"
        )
    return min(scale_factor, 1.0)


def _read_stars(file: h5py.File) -> tuple[Table, tuple[str, ...]]:
    """The star particles in code units, wind cells left out; raises ValueError when no star remains."""
    place = f"{file.filename}: PartType4 (stars)"
    if not names(file, "PartType4"):
        raise ValueError(f"{place} is missing or empty; the file has {', '.join(file)}; choose a subhalo with stars")
    optional = {name: None for name in ("GFM_InitialMass",) if name in names(file, "PartType4")}
    table = columns(file, "PartType4", _STAR_WIDTHS | optional)
    mass = table["Masses"]
    require(mass >= 0, mass, f"{file.filename}: PartType4/Masses", "masses >= 0", "the file may be damaged")
    is_star = table["GFM_StellarFormationTime"] > 0
    n_wind = int(np.count_nonzero(~is_star))
    if not is_star.any():
        found = f"only {n_wind} wind cells (GFM_StellarFormationTime <= 0)" if n_wind else "no particles"
        raise ValueError(f"{place}: expected at least one star, got {found}; choose a subhalo with stars")
    notes = (f"{n_wind} wind cells (GFM_StellarFormationTime <= 0) left out",) if n_wind else ()
    return {name: values[is_star] for name, values in table.items()}, notes


def _read_gas(file: h5py.File) -> tuple[Table, tuple[str, ...]]:
    """The gas cells in code units; an empty table without gas, with a note where fields it needs are missing."""
    present = names(file, "PartType0")
    missing = [name for name in _GAS_WIDTHS if name not in present]
    if not present:
        return {}, ()
    if missing:
        return {}, (f"gas left out: the cut-out has no PartType0/{', '.join(missing)}",)
    optional = {name: width for name, width in _GAS_OPTIONAL.items() if name in present}
    table = columns(file, "PartType0", _GAS_WIDTHS | optional)
    return (table if table["Masses"].size else {}), ()


def _stars(table: Table, age: Float[ndarray, " particle"], frame: Frame, scale: SnapshotUnits) -> Stars:
    position, velocity = frame.apply(table, scale)
    mass = _leaf(table["Masses"] * scale.mass)
    return Stars(
        position=position,
        velocity=velocity,
        initial_mass=_leaf(table["GFM_InitialMass"] * scale.mass) if "GFM_InitialMass" in table else mass,
        log_age=_leaf(np.log10(np.maximum(age, 1.0))),
        metallicity=_leaf(table["GFM_Metallicity"]),
        mass=mass,
    )


def _gas(table: Table, frame: Frame, scale: SnapshotUnits) -> Gas | None:
    if not table:
        return None
    position, velocity = frame.apply(table, scale)
    metals = table.get("GFM_Metals")
    temperature = None
    if "InternalEnergy" in table and "ElectronAbundance" in table:
        hydrogen = PRIMORDIAL_HYDROGEN if metals is None else metals[:, 0]
        temperature = _leaf(gas_temperature(table["InternalEnergy"], table["ElectronAbundance"], hydrogen))
    return Gas(
        position=position,
        velocity=velocity,
        mass=_leaf(table["Masses"] * scale.mass),
        metallicity=_leaf(table["GFM_Metallicity"]),
        temperature=temperature,
        density=_leaf(table["Density"] * scale.density) if "Density" in table else None,
        star_formation_rate=_leaf(table["StarFormationRate"]) if "StarFormationRate" in table else None,
        hydrogen_fraction=None if metals is None else _leaf(metals[:, 0]),
        oxygen_fraction=None if metals is None else _leaf(metals[:, 4]),
    )


def _leaf(values: Float[ndarray, "..."]) -> Float[Array, "..."]:
    return jnp.asarray(values, dtype=jax.dtypes.canonicalize_dtype(float))


def _triple(values: Vector) -> tuple[float, float, float]:
    x, y, z = values.tolist()
    return x, y, z

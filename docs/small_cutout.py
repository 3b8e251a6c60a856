"""A file in the layout of an IllustrisTNG cut-out, made from the synthetic galaxy: `python docs/small_cutout.py`.

It stands in for a real cut-out where the notebooks are tested. Nothing in it was simulated: positions, velocities and
ages are drawn from the formulas of the reader `synthetic`, and its header says so.
"""

from pathlib import Path

import h5py
import numpy as np
from astropy import units
from astropy.cosmology import FlatLambdaCDM

import rubix_like as rl

H, OMEGA_M, BOX = 0.6774, 0.3089, 35000.0
CENTER = np.array([34998.0, 500.0, 17000.0])
"""ckpc/h; the galaxy lies across the edge of the periodic box, as galaxies of simulations do."""

BULK_VELOCITY = np.array([100.0, -50.0, 20.0])
"""km/s."""

_YOUNG = 0.05
"""Share of the stars that get ages of 1 to 30 Myr, so that there are photons that ionise gas."""


def write_cutout(path: Path, n_stars: int = 1500, n_gas: int = 400, seed: int = 3) -> Path:
    """Write stars (PartType4) and gas (PartType0) at z = 0 in the units of IllustrisTNG, and return the path."""
    section = {"reader": "synthetic", "n_stars": n_stars, "n_gas": n_gas, "seed": seed, "star_formation_rate": 2.0}
    observed = {"galaxy": section, "observation": {"redshift": 0.03}, "instrument": {"name": "manga"}}
    galaxy = rl.load_galaxy(rl.load_config(observed))
    stars, gas = galaxy.stars, galaxy.gas
    if gas is None:
        raise ValueError(f"expected n_gas of at least 1, got {n_gas}")
    with h5py.File(path, "w") as file:
        header = {"Redshift": 0.0, "Time": 1.0, "HubbleParam": H, "Omega0": OMEGA_M, "OmegaLambda": 1 - OMEGA_M}
        about = {"SimulationName": "none: a synthetic galaxy of rubix_like", "BoxSize": BOX}
        file.create_group("Header").attrs.update(header | about)
        own = file.create_group("PartType4")
        mass = _stored_mass(stars.initial_mass)
        own["Masses"], own["GFM_InitialMass"] = 0.6 * mass, mass
        own["GFM_Metallicity"] = np.asarray(stars.metallicity)
        own["GFM_StellarFormationTime"] = _scale_factors(10 ** np.asarray(stars.log_age, float), seed)
        _write_phase_space(own, stars)
        cells = file.create_group("PartType0")
        cells["Masses"] = _stored_mass(gas.mass)
        cells["GFM_Metallicity"] = np.asarray(gas.metallicity)
        cells["StarFormationRate"] = np.asarray(gas.star_formation_rate)
        cells["Density"] = np.asarray(gas.density) / 1e10 / H**2
        cells["InternalEnergy"] = np.full(n_gas, 200.0)
        cells["ElectronAbundance"] = np.full(n_gas, 0.5)
        _write_phase_space(cells, gas)
    return path


def _stored_mass(mass: object) -> np.ndarray:
    """1e10 Msun/h."""
    return np.asarray(mass) * H / 1e10


def _write_phase_space(group: h5py.Group, particles: rl.Stars | rl.Gas) -> None:
    group["Coordinates"] = (CENTER + np.asarray(particles.position) * H) % BOX
    group["Velocities"] = np.asarray(particles.velocity) + BULK_VELOCITY


def _scale_factors(age: np.ndarray, seed: int) -> np.ndarray:
    """The scale factor at birth of stars of these ages (yr), some of them made young."""
    generator = np.random.default_rng(seed)
    young = generator.random(age.size) < _YOUNG
    age = np.where(young, generator.uniform(1e6, 3e7, age.size), age)
    cosmology = FlatLambdaCDM(H0=100 * H, Om0=OMEGA_M)
    table = np.concatenate([[0.0], np.geomspace(1e-5, 10.0, 60)])
    lookback = cosmology.lookback_time(table).to_value(units.yr)
    oldest = lookback[-1] * 0.999
    return 1 / (1 + np.interp(np.minimum(age, oldest), lookback, table))


if __name__ == "__main__":
    print(write_cutout(Path("cutout.hdf5")))

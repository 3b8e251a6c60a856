"""Every real galaxy in HDF5 against a reading of its raw fields with h5py, numpy and factors written out here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from astropy import constants, units
from astropy.cosmology import FlatLambdaCDM, LambdaCDM, Planck18
from astropy.io import fits
from snapshot_reading import reader_of

from rubix_like import run
from rubix_like.galaxy.validation import validate_gas

KPC_PER_KMS_IN_YEARS = 977792221.6807891
MPC_OVER_KMS_RATE = 1e10 / (1e3 * KPC_PER_KMS_IN_YEARS)


@dataclass
class Raw:
    """What a file holds, in kpc, km/s, Msun, yr; `gas` by the name of the quantity in the reader."""

    position: Any
    velocity: Any
    mass: Any
    redshift: float | None
    age: Any = None
    metallicity: Any = None
    initial_mass: Any = None
    smoothing_length: Any = None
    box: float | None = None
    gas: dict[str, Any] = field(default_factory=dict)


def values(file, name):
    return file[name][()].astype(np.float64)


def ages(births, a, h, omega_m, omega_l=None):
    """Years from births (scale factors) to a, by astropy."""
    if omega_l is None:
        cosmology: Any = FlatLambdaCDM(H0=100 * h, Om0=omega_m, Tcmb0=0)
    else:
        cosmology = LambdaCDM(H0=100 * h, Om0=omega_m, Ode0=omega_l, Tcmb0=0)
    elapsed = cosmology.age(1 / a - 1) - cosmology.age(1 / np.minimum(births, a) - 1)
    return np.maximum(elapsed.to_value(units.yr), 1.0)


def illustris(file):
    a, h, omega_m = (float(np.ravel(file["Header"].attrs[name])[0]) for name in ("Time", "HubbleParam", "Omega0"))
    keep = file["PartType4/GFM_StellarFormationTime"][()] > 0
    star = {name: values(file, f"PartType4/{name}")[keep] for name in file["PartType4"]}
    gas = {}
    if "PartType0" in file:
        metals = values(file, "PartType0/GFM_Metals")
        gas = {
            "mass": values(file, "PartType0/Masses") * 1e10 / h,
            "metallicity": values(file, "PartType0/GFM_Metallicity"),
            "density": values(file, "PartType0/Density") * 1e10 * h**2 / a**3,
            "internal_energy": values(file, "PartType0/InternalEnergy"),
            "electron_abundance": values(file, "PartType0/ElectronAbundance"),
            "star_formation_rate": values(file, "PartType0/StarFormationRate"),
            "hydrogen_fraction": metals[:, 0],
            "oxygen_fraction": metals[:, 4],
            "velocity": values(file, "PartType0/Velocities") * np.sqrt(a),
        }
    return Raw(
        position=star["Coordinates"] * a / h,
        velocity=star["Velocities"] * np.sqrt(a),
        mass=star["Masses"] * 1e10 / h,
        initial_mass=star["GFM_InitialMass"] * 1e10 / h if "GFM_InitialMass" in star else None,
        metallicity=np.maximum(star["GFM_Metallicity"], 0.0),
        age=ages(star["GFM_StellarFormationTime"], a, h, omega_m),
        redshift=1 / a - 1,
        box=75000 * a / h,
        gas=gas,
    )


def camels(file):
    a, h = 0.909046978208372, 0.6711
    return Raw(
        position=values(file, "PartType4/Coordinates") * a / h,
        velocity=np.zeros((3479, 3)),
        mass=values(file, "PartType4/Masses") * 1e10 / h,
        initial_mass=values(file, "PartType4/GFM_InitialMass") * 1e10 / h,
        metallicity=values(file, "PartType4/GFM_Metallicity"),
        smoothing_length=values(file, "PartType4/SubfindHsml") * a / h,
        age=ages(values(file, "PartType4/GFM_StellarFormationTime"), a, h, 0.3),
        redshift=1 / a - 1,
        gas={
            "mass": values(file, "PartType0/Masses") * 1e10 / h,
            "metallicity": values(file, "PartType0/GFM_Metallicity"),
            "star_formation_rate": values(file, "PartType0/StarFormationRate"),
            "smoothing_length": values(file, "PartType0/SubfindHsml") * a / h,
        },
    )


def eagle(file):
    h = 0.6777
    a = float(np.ravel(file["Header"].attrs["ExpansionFactor"])[0])
    gas = {}
    if "PartType0" in file:
        gas = {
            "mass": values(file, "PartType0/Mass") * 1e10 / h,
            "metallicity": values(file, "PartType0/SmoothedMetallicity"),
            "density": values(file, "PartType0/Density") * 10 * h**2 / a**3,
            "internal_energy": values(file, "PartType0/InternalEnergy"),
            "temperature": values(file, "PartType0/Temperature"),
            "star_formation_rate": values(file, "PartType0/StarFormationRate"),
            "hydrogen_fraction": values(file, "PartType0/SmoothedElementAbundance/Hydrogen"),
            "oxygen_fraction": values(file, "PartType0/SmoothedElementAbundance/Oxygen"),
            "smoothing_length": values(file, "PartType0/SmoothingLength") * 1000 * a / h,
            "velocity": values(file, "PartType0/Velocity") * np.sqrt(a),
        }
    return Raw(
        position=values(file, "PartType4/Coordinates") * 1000 * a / h,
        velocity=values(file, "PartType4/Velocity") * np.sqrt(a),
        mass=values(file, "PartType4/Mass") * 1e10 / h,
        initial_mass=values(file, "PartType4/InitialMass") * 1e10 / h,
        metallicity=values(file, "PartType4/SmoothedMetallicity"),
        age=ages(values(file, "PartType4/StellarFormationTime"), a, h, 0.307),
        redshift=1 / a - 1,
        box=67770 * a / h,
        gas=gas,
    )


def horizon_agn(file):
    a = float(file["Header"].attrs["ExpansionFactor"][0])
    return Raw(
        position=values(file, "PartType4/Coordinates"),
        velocity=values(file, "PartType4/Velocity"),
        mass=values(file, "PartType4/Mass"),
        initial_mass=values(file, "PartType4/InitialMass"),
        metallicity=values(file, "PartType4/SmoothedMetallicity"),
        age=ages(values(file, "PartType4/StellarFormationTime"), a, 0.70400002, 0.27200001, 0.72799999),
        redshift=1 / a - 1,
        gas={
            "mass": values(file, "PartType0/Mass"),
            "metallicity": values(file, "PartType0/SmoothedMetallicity"),
            "density": values(file, "PartType0/Mass") / values(file, "PartType0/dx") ** 3,
            "temperature": values(file, "PartType0/Temperature"),
            "star_formation_rate": values(file, "PartType0/StarFormationRate"),
            "hydrogen_fraction": values(file, "PartType0/SmoothedElementAbundance/Hydrogen"),
            "oxygen_fraction": values(file, "PartType0/SmoothedElementAbundance/Oxygen"),
            "smoothing_length": values(file, "PartType0/dx"),
            "velocity": values(file, "PartType0/Velocity"),
        },
    )


def magneticum(file):
    h = 0.704
    a = float(file["Header"].attrs["ExpansionFactor"][0])
    born, species = values(file, "PartType4/InitialMass"), values(file, "PartType4/Metallicity")
    mass, gas_species = values(file, "PartType0/Mass"), values(file, "PartType0/Metallicity")
    return Raw(
        position=values(file, "PartType4/Coordinates") * a / h,
        velocity=values(file, "PartType4/Velocity") * np.sqrt(a),
        mass=values(file, "PartType4/Mass") * 1e10 / h,
        initial_mass=born * 1e10 / h,
        metallicity=(species.sum(axis=1) - species[:, 0]) / born,
        age=ages(values(file, "PartType4/StellarFormationTime"), a, h, 0.272),
        redshift=1 / a - 1,
        box=48000 * a / h,
        gas={
            "mass": mass * 1e10 / h,
            "metallicity": (gas_species.sum(axis=1) - gas_species[:, 0]) / mass,
            "density": values(file, "PartType0/Density") * 1e10 * h**2 / a**3,
            "internal_energy": values(file, "PartType0/InternalEnergy"),
            "temperature": values(file, "PartType0/Temperature"),
            "star_formation_rate": values(file, "PartType0/StarFormationRate"),
            "hydrogen_fraction": 1 - gas_species.sum(axis=1) / mass,
            "oxygen_fraction": gas_species[:, 3] / mass,
            "smoothing_length": values(file, "PartType0/SmoothingLength") * a / h,
            "velocity": values(file, "PartType0/Velocity") * np.sqrt(a),
        },
    )


def colibre(file):
    births = values(file, "PartType4/BirthScaleFactors")
    return Raw(
        position=values(file, "PartType4/Coordinates") * 1000,
        velocity=values(file, "PartType4/Velocities"),
        mass=values(file, "PartType4/Masses") * 1e10,
        initial_mass=values(file, "PartType4/InitialMasses") * 1e10,
        metallicity=values(file, "PartType4/MetalMassFractions"),
        age=ages(births, 1.0, float(file["Header"].attrs["HubbleParam"][0]), 0.304611, 0.693922),
        redshift=0.0,
        box=float(file["Header"].attrs["BoxSize"][0]) * 1000,
        gas={
            "mass": values(file, "PartType0/Masses") * 1e10,
            "metallicity": values(file, "PartType0/MetalMassFractions"),
            "density": values(file, "PartType0/Densities") * 10,
            "internal_energy": values(file, "PartType0/InternalEnergies"),
            "temperature": values(file, "PartType0/Temperatures"),
            "star_formation_rate": values(file, "PartType0/StarFormationRates") * MPC_OVER_KMS_RATE,
            "hydrogen_fraction": values(file, "PartType0/ElementMassFractions/Hydrogen"),
            "oxygen_fraction": values(file, "PartType0/ElementMassFractions/Oxygen"),
            "smoothing_length": values(file, "PartType0/SmoothingLengths") * 1000 * 2.018932,
            "velocity": values(file, "PartType0/Velocities"),
        },
    )


def gadget(file):
    return Raw(
        position=values(file, "PartType2/Coordinates"),
        velocity=values(file, "PartType2/Velocities"),
        mass=values(file, "PartType2/Masses") * 1e10,
        redshift=None,
    )


def gizmo(file):
    def both(name):
        return np.concatenate([values(file, f"PartType4/{name}"), values(file, f"PartType2/{name}")])

    born = values(file, "PartType4/StellarFormationTime")
    metals = values(file, "PartType0/Metallicity")
    return Raw(
        position=both("Coordinates"),
        velocity=both("Velocities"),
        mass=both("Masses") * 1e10,
        metallicity=values(file, "PartType4/Metallicity")[:, 0],
        age=np.maximum((file["Header"].attrs["Time"] - born) * KPC_PER_KMS_IN_YEARS, 1.0),
        redshift=None,
        box=10000.0,
        gas={
            "mass": values(file, "PartType0/Masses") * 1e10,
            "metallicity": metals[:, 0],
            "density": values(file, "PartType0/Density") * 1e10,
            "internal_energy": values(file, "PartType0/InternalEnergy"),
            "electron_abundance": values(file, "PartType0/ElectronAbundance"),
            "star_formation_rate": values(file, "PartType0/StarFormationRate"),
            "hydrogen_fraction": 1 - metals[:, 0] - metals[:, 1],
            "oxygen_fraction": metals[:, 4],
            "hi_fraction": values(file, "PartType0/NeutralHydrogenAbundance") * (1 - metals[:, 0] - metals[:, 1]),
            "h2_fraction": values(file, "PartType0/FractionH2") * (1 - metals[:, 0] - metals[:, 1]),
            "smoothing_length": values(file, "PartType0/SmoothingLength"),
            "velocity": values(file, "PartType0/Velocities"),
        },
    )


GALAXIES: dict[str, tuple[Any, dict[str, str]]] = {
    "EAGLE_snap28_G92_9_full7524": (eagle, {}),
    "SimSpin_example_Colibre": (colibre, {}),
    "SimSpin_example_EAGLE": (eagle, {}),
    "SimSpin_example_HDF5": (gadget, {"ages": "recipe"}),
    "SimSpin_example_HorizonAGN": (horizon_agn, {}),
    "SimSpin_example_IllustrisTNG": (illustris, {}),
    "SimSpin_example_Magneticum": (magneticum, {}),
    "camels_CV_10gal": (camels, {"velocities": "zero"}),
    "gizmo_isolated_C16": (gizmo, {"ages": "recipe"}),
    "illustris1_z0_subhalo420815_stars": (illustris, {}),
    "illustris1_z0_subhalo426280_stars": (illustris, {}),
}
"""File -> the reading written out above, and the keys under `galaxy` that the file needs."""


def unwrapped(offset, box):
    return offset if box is None else offset - box * np.round(offset / box)


def half_mass_radius(offset, mass):
    radius = np.linalg.norm(offset, axis=1)
    order = np.argsort(radius)
    return radius[order][np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())]


def check_stars(stars, raw, info):
    assert float(stars.mass.sum()) == pytest.approx(raw.mass.sum(), rel=1e-6)
    offset = unwrapped(raw.position - np.array(info.center), raw.box)
    np.testing.assert_allclose(stars.position, offset, rtol=1e-9, atol=1e-6)
    radius = half_mass_radius(np.asarray(stars.position), raw.mass)
    assert radius == pytest.approx(half_mass_radius(offset, raw.mass), rel=1e-6)
    np.testing.assert_allclose(stars.velocity, raw.velocity - np.array(info.bulk_velocity), rtol=1e-9, atol=1e-6)
    means = {
        "initial_mass": (stars.initial_mass, raw.initial_mass),
        "metallicity": (stars.metallicity, raw.metallicity),
        "smoothing_length": (stars.smoothing_length, raw.smoothing_length),
        "age": (10.0 ** np.asarray(stars.log_age), raw.age),
    }
    for quantity, (read, known) in means.items():
        if known is not None:
            n = len(known)
            mean = np.average(np.asarray(read)[:n], weights=raw.mass[:n])
            assert mean == pytest.approx(np.average(known, weights=raw.mass[:n]), rel=1e-6), quantity


def check_gas(gas, raw, info):
    assert info.n_gas == len(raw.gas.get("mass", ()))
    if not raw.gas:
        assert gas is None
        return
    assert float(gas.mass.sum()) == pytest.approx(raw.gas["mass"].sum(), rel=1e-6)
    for quantity, known in raw.gas.items():
        expected = known - np.array(info.bulk_velocity) if quantity == "velocity" else known
        np.testing.assert_allclose(getattr(gas, quantity), expected, rtol=1e-6, atol=1e-9, err_msg=quantity)
    rate, metals = raw.gas["star_formation_rate"].sum(), (raw.gas["metallicity"] * raw.gas["mass"]).sum()
    assert float(gas.star_formation_rate.sum()) == pytest.approx(rate, rel=1e-6)
    assert float((gas.metallicity * gas.mass).sum()) == pytest.approx(metals, rel=1e-6)
    assert 1e-4 < metals / raw.gas["mass"].sum() < 0.05
    if "oxygen_fraction" in raw.gas:  # of the Sun's metals 0.43 are oxygen (Asplund et al. 2009), of young gas more
        assert 0.4 < float((gas.oxygen_fraction * gas.mass).sum()) / metals < 0.65
    validate_gas(gas)


@pytest.mark.parametrize("name", GALAXIES)
def test_what_is_read_agrees_with_the_raw_fields(real_data: Path, name):
    reading, keys = GALAXIES[name]
    path = real_data / "galaxies" / f"{name}.hdf5"
    galaxy, info = reader_of(path=path, **keys).load()
    with h5py.File(path) as file:
        raw = reading(file)
    assert info.reader == ("swift" if reading is colibre else reading.__name__)
    assert (info.redshift is None) == (raw.redshift is None)
    assert info.redshift is None or info.redshift == pytest.approx(raw.redshift, rel=1e-6, abs=1e-12)
    assert info.n_stars == len(raw.mass)
    check_stars(galaxy.stars, raw, info)
    check_gas(galaxy.gas, raw, info)


@pytest.mark.slow
@pytest.mark.parametrize("name", GALAXIES)
def test_a_cube_without_a_hint(real_data: Path, tmp_path, name):
    """One spaxel takes all the light: as much per mass, in Lsun per Angstrom and Msun, as old and young stars give.

    Where ages or motions are not the file's, it is said.
    """
    keys = GALAXIES[name][1]
    path = real_data / "galaxies" / f"{name}.hdf5"
    size = 4e5
    config = {
        "galaxy": {"path": str(path), **keys},
        "observation": {"redshift": 0.05, "align": "none"},
        "instrument": {
            "name": "muse",
            "pixel_scale": size,
            "fov": [size, size],
            "wavelength": {"start": 5000.0, "stop": 5060.0, "step": 10.0, "sampling": "linear", "medium": "air"},
            "psf": None,
            "lsf": None,
        },
        "engine": {"method": "direct", "precision": "float64"},
        "devices": {"data": 1},
    }
    cube = run(config, tmp_path / "cube.fits")
    with h5py.File(path) as file:
        mass = GALAXIES[name][0](file).mass.sum()
    flux = np.asarray(cube.flux).sum(axis=(0, 1)) * 1e-20
    distance = Planck18.luminosity_distance(0.05).to_value(units.cm)
    light = flux * 4 * np.pi * distance**2 * 1.05 / constants.L_sun.cgs.value / mass
    assert ((light > 2e-5) & (light < 2e-3)).all()
    header = fits.getheader(tmp_path / "cube.fits")
    assert ("recipe" in header["GALAGES"]) == ("ages" in keys)
    assert ("zero" in header["GALVELOC"]) == ("velocities" in keys)

"""RUBIX's rubix_galaxy.h5: files in its layout, written here, against the numbers that were written."""

import h5py
import numpy as np
import pytest
from astropy import units as u
from astropy.cosmology import Planck15
from command_line import printed
from snapshot_reading import reader_of

N, REDSHIFT = 12, 0.3
STARS = {"coords": "kpc", "mass": "Msun", "velocity": "km/s", "metallicity": "", "age": "Gyr"}
GAS = {
    "coords": "kpc",
    "density": "Msun/kpc^3",
    "mass": "Msun",
    "metallicity": "",
    "metals": "",
    "sfr": "Msun/yr",
    "internal_energy": "erg/g",
    "velocity": "km/s",
    "electron_abundance": "",
}
HEADER = {
    "Time": 1 / (1 + REDSHIFT),
    "HubbleParam": 0.6774,
    "Omega0": 0.3089,
    "OmegaLambda": 0.6911,
    "BoxSize": 75000.0,
}


@pytest.fixture
def particles():
    rng = np.random.default_rng(8)
    then = Planck15.lookback_time(REDSHIFT).to_value("Gyr")
    shared = {"coords": rng.normal(0, 5, (N, 3)) + 9000, "mass": rng.uniform(1e5, 2e5, N)}
    shared |= {"velocity": rng.normal(0, 99, (N, 3)), "metallicity": rng.uniform(0, 0.04, N)}
    gas = {name: rng.uniform(0.1, 0.9, N) for name in ("density", "sfr", "internal_energy", "electron_abundance")}
    return {
        "stars": shared | {"age": then + rng.uniform(0.001, 9, N)},
        "gas": shared | gas | {"metals": rng.uniform(0, 0.1, (N, 10))},
    }


def write(path, particles, meta=HEADER, redshift=REDSHIFT, **units):
    with h5py.File(path, "w") as file:
        for name, value in meta.items():
            file[f"meta/{name}"] = value
        for name, value, unit in (("redshift", redshift, ""), ("center", [9000.0] * 3, "kpc")):
            file[f"galaxy/{name}"] = value
            file[f"galaxy/{name}"].attrs["unit"] = unit
        file["galaxy/halfmassrad_stars"] = 5.0
        for kind, table in particles.items():
            for name, values in table.items():
                file[f"particles/{kind}/{name}"] = values
                unit = ({"temperature": "K"} | (STARS if kind == "stars" else GAS) | units)[name]
                file[f"particles/{kind}/{name}"].attrs["unit"] = unit
    return path


def load(path, **settings):
    return reader_of(path=path, center=(9000, 9000, 9000), **settings).load()


def test_a_file_from_tng(tmp_path, particles):
    galaxy, info = load(write(tmp_path / "rubix_galaxy.h5", particles))
    raw = particles["stars"]
    assert (info.reader, info.initial_mass) == ("rubix", "file")
    assert info.redshift == pytest.approx(REDSHIFT, rel=1e-12)
    np.testing.assert_allclose(galaxy.stars.position, raw["coords"] - 9000, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(galaxy.stars.velocity) + info.bulk_velocity, raw["velocity"], atol=1e-9)
    np.testing.assert_allclose(galaxy.stars.initial_mass, raw["mass"], rtol=1e-12)
    np.testing.assert_array_equal(galaxy.stars.metallicity, raw["metallicity"])
    age = raw["age"] * 1e9 - Planck15.lookback_time(REDSHIFT).to_value("yr")
    np.testing.assert_allclose(galaxy.stars.log_age, np.log10(age), rtol=1e-9)


def test_gas_of_a_file_from_tng(tmp_path, particles):
    gas = load(write(tmp_path / "rubix_galaxy.h5", particles))[0].gas
    raw = particles["gas"]
    np.testing.assert_allclose(gas.density, raw["density"], rtol=1e-12)
    np.testing.assert_allclose(gas.internal_energy, raw["internal_energy"] * 1e-10, rtol=1e-12)
    np.testing.assert_allclose(gas.star_formation_rate, (raw["sfr"] * u.g / u.s).to_value("Msun/yr"), rtol=1e-12)
    np.testing.assert_array_equal(gas.hydrogen_fraction, raw["metals"][:, 0])
    np.testing.assert_array_equal(gas.oxygen_fraction, raw["metals"][:, 4])


def test_a_file_made_through_pynbody(tmp_path, particles):
    """Ages, masses and star formation are as stored; the redshift is that of the observation."""
    del particles["gas"]["electron_abundance"]
    particles["gas"]["temperature"] = np.linspace(1e4, 1e6, N)
    particles["stars"]["age"] = np.linspace(0.001, 13, N)
    galaxy, info = load(write(tmp_path / "a.h5", particles, {"halo_path": "a.AHF", "path": "a"}, redshift=0.1))
    assert (info.reader, info.initial_mass, info.redshift) == ("rubix_pynbody", "missing", None)
    np.testing.assert_allclose(galaxy.stars.log_age, np.log10(np.linspace(0.001, 13, N) * 1e9), rtol=1e-12)
    np.testing.assert_array_equal(galaxy.gas.star_formation_rate, particles["gas"]["sfr"])
    np.testing.assert_array_equal(galaxy.gas.temperature, particles["gas"]["temperature"])


def test_units_are_those_of_the_attributes(tmp_path, particles):
    particles["stars"]["age"] *= 1000
    path = write(tmp_path / "a.h5", particles, coords="pc", age="Myr", mass="100 Msun")
    galaxy, _ = load(path)
    raw = particles["stars"]
    np.testing.assert_allclose(galaxy.stars.position, (raw["coords"] - 9000) * 1e-3, rtol=1e-6)
    np.testing.assert_allclose(galaxy.stars.mass, raw["mass"] * 100, rtol=1e-12)
    assert "100 Msun instead of Msun" in " ".join(printed("inspect", path).split())
    for unit in ("Mpc", "bananas"):
        with pytest.raises(ValueError, match=f"particles/stars/mass: expected a unit of Msun .*, got '{unit}'"):
            load(write(tmp_path / "b.h5", particles, mass=unit))


def test_births_after_the_snapshot(tmp_path, particles):
    particles["stars"]["age"][3] -= 9.5
    with pytest.raises(ValueError, match="particles/stars/age: expected births before the snapshot"):
        load(write(tmp_path / "a.h5", particles))


def test_named_and_incomplete(tmp_path, particles):
    path = write(tmp_path / "a.h5", particles)
    assert load(path, reader="rubix")[1].reader == "rubix"
    with h5py.File(path, "a") as file:
        del file["meta/Omega0"]
    with pytest.raises(ValueError, match="meta has no attribute Omega0 that is a number"):
        load(path)

"""Cut-outs with known values, and real ones, against conversions written out here with numpy and astropy."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from astropy import constants, units
from astropy.cosmology import FlatLambdaCDM
from snapshot_files import write_snapshot
from snapshot_reading import reader_of

A, H, BOX = 0.64, 0.7, 35000.0
CENTER = np.array([34990.0, 12.0, 17000.0])
N_STARS, N_WIND, N_GAS = 400, 7, 60


def star_columns(rng):
    """In code units: a ball across the box's faces, its stars in rotation; every 50th particle is wind, far away."""
    offset = rng.normal(size=(N_STARS + N_WIND, 3)) * 20 * rng.random((N_STARS + N_WIND, 1)) ** 2
    velocity = rng.normal(size=offset.shape) * 50 + np.array([300.0, -200.0, 50.0])
    birth = rng.uniform(0.1, A, len(offset))
    birth[5] = A
    wind = np.arange(1, N_WIND * 50, 50)
    birth[wind] = np.linspace(-0.5, 0, N_WIND)
    offset[wind] += 5000
    velocity[wind] = 1e5
    return {
        "Coordinates": (CENTER + offset) % BOX,
        "Velocities": velocity.astype(np.float32),
        "Masses": rng.uniform(1e-5, 2e-5, len(offset)).astype(np.float32),
        "GFM_InitialMass": rng.uniform(2e-5, 4e-5, len(offset)).astype(np.float32),
        "GFM_Metallicity": rng.uniform(0, 0.04, len(offset)).astype(np.float32),
        "GFM_StellarFormationTime": birth,
    }


def gas_columns(rng):
    metals = rng.uniform(0, 0.02, (N_GAS, 10))
    metals[:, 0] = rng.uniform(0.7, 0.76, N_GAS)
    return {
        "Coordinates": (CENTER + rng.normal(size=(N_GAS, 3)) * 30) % BOX,
        "Velocities": rng.normal(size=(N_GAS, 3)) * 80,
        "Masses": rng.uniform(1e-5, 2e-5, N_GAS),
        "GFM_Metallicity": rng.uniform(0, 0.04, N_GAS),
        "GFM_Metals": metals,
        "Density": rng.uniform(1e-7, 1e-3, N_GAS),
        "InternalEnergy": rng.uniform(100, 1e5, N_GAS),
        "ElectronAbundance": rng.uniform(0, 1.2, N_GAS),
        "StarFormationRate": rng.uniform(0, 1, N_GAS),
    }


HEADER = {
    "BoxSize": np.array([BOX]),
    "HubbleParam": np.array([H]),
    "Omega0": 0.3,
    "OmegaLambda": np.array([0.7]),
    "Redshift": np.array([1 / A - 1]),
    "Time": np.array([A]),
    "SimulationName": np.array([b"TNG-test"]),
    "NumPart_ThisFile": np.array([9, 0, 0, 0, 12345, 0]),
}


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(11)
    return {"PartType4": star_columns(rng), "PartType0": gas_columns(rng)}


@pytest.fixture(scope="module")
def cutout(tmp_path_factory, tables):
    return write_snapshot(tmp_path_factory.mktemp("cutout") / "cutout_77.hdf5", tables, HEADER)


@pytest.fixture(scope="module")
def centred(cutout):
    """The galaxy about the given centre, and what is known of it."""
    return load(cutout, center=CENTER.tolist())


@pytest.fixture(scope="module")
def found(cutout):
    """The galaxy about the centre that is found."""
    return load(cutout)


def without(table, *names, **changes):
    return {name: values for name, values in (table | changes).items() if name not in names}


def load(path, **settings):
    return reader_of(reader="illustris", path=path, **settings).load()


def nearest_image(position, center):
    """The offset among the 27 images that is the shortest, axis by axis."""
    images = position[None] - center + BOX * np.array([-1, 0, 1])[:, None, None]
    return np.take_along_axis(images, np.abs(images).argmin(axis=0)[None], axis=0)[0]


def inner_mean_velocity(offset, velocity, mass):
    radius = np.linalg.norm(offset, axis=1)
    order = np.argsort(radius)
    inner = order[: np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum()) + 1]
    return np.average(velocity[inner], axis=0, weights=mass[inner])


def converted(tables):
    """Stars in kpc, km/s, Msun and yr about CENTER."""
    raw = {name: np.asarray(values, dtype=float) for name, values in tables["PartType4"].items()}
    keep = raw["GFM_StellarFormationTime"] > 0
    raw = {name: values[keep] for name, values in raw.items()}
    offset = nearest_image(raw["Coordinates"], CENTER)
    bulk = inner_mean_velocity(offset, raw["Velocities"], raw["Masses"])
    age = FlatLambdaCDM(H0=70, Om0=0.3, Tcmb0=0)
    redshift = 1 / raw["GFM_StellarFormationTime"] - 1
    years = (age.age(1 / A - 1) - age.age(redshift)).to_value(units.yr)
    return {
        "position": offset * A / H,
        "velocity": (raw["Velocities"] - bulk) * np.sqrt(A),
        "initial_mass": raw["GFM_InitialMass"] * 1e10 / H,
        "mass": raw["Masses"] * 1e10 / H,
        "metallicity": raw["GFM_Metallicity"],
        "log_age": np.log10(np.maximum(years, 1)),
        "bulk": bulk * np.sqrt(A),
    }


def test_stars_with_a_given_center(centred, tables):
    galaxy, info = centred
    expected = converted(tables)
    for name in ("position", "velocity", "initial_mass", "mass", "metallicity"):
        np.testing.assert_allclose(getattr(galaxy.stars, name), expected[name], rtol=1e-9, atol=1e-9, err_msg=name)
    born_now = expected["log_age"] == 0
    assert born_now.sum() == 1
    np.testing.assert_array_equal(np.asarray(galaxy.stars.log_age)[born_now], 0)
    np.testing.assert_allclose(np.asarray(galaxy.stars.log_age), expected["log_age"], atol=1e-6 / np.log(10))
    np.testing.assert_allclose(info.bulk_velocity, expected["bulk"], rtol=1e-9)
    np.testing.assert_allclose(info.center, CENTER * A / H, rtol=1e-12)
    assert (info.n_stars, info.n_gas, info.initial_mass) == (N_STARS, N_GAS, "file")
    assert (info.name, info.simulation, info.reader) == ("cutout_77", "TNG-test", "illustris")
    assert info.redshift == pytest.approx(1 / A - 1, rel=1e-12)
    years = FlatLambdaCDM(H0=70, Om0=0.3, Tcmb0=0).age(1 / A - 1).to_value(units.yr)
    assert info.universe_age == pytest.approx(years, rel=1e-9)
    assert info.notes == (f"{N_WIND} wind cells (GFM_StellarFormationTime <= 0) left out",)


def test_gas(centred, tables):
    gas, raw = centred[0].gas, tables["PartType0"]
    np.testing.assert_allclose(gas.position, nearest_image(raw["Coordinates"], CENTER) * A / H, atol=1e-9)
    bulk = converted(tables)["bulk"]
    np.testing.assert_allclose(gas.velocity, raw["Velocities"] * np.sqrt(A) - bulk, atol=1e-9)
    np.testing.assert_allclose(gas.mass, raw["Masses"] * 1e10 / H, rtol=1e-12)
    np.testing.assert_allclose(gas.density, raw["Density"] * 1e10 / H / (A / H) ** 3, rtol=1e-12)
    np.testing.assert_allclose(gas.star_formation_rate, raw["StarFormationRate"])
    np.testing.assert_allclose(gas.hydrogen_fraction, raw["GFM_Metals"][:, 0])
    np.testing.assert_allclose(gas.oxygen_fraction, raw["GFM_Metals"][:, 4])
    x = raw["GFM_Metals"][:, 0]
    weight = 4 / (1 + 3 * x + 4 * x * raw["ElectronAbundance"]) * constants.m_p
    kelvin = (2 / 3 * raw["InternalEnergy"] * (units.km / units.s) ** 2 * weight / constants.k_B).to_value(units.K)
    np.testing.assert_allclose(gas.temperature, kelvin, rtol=1e-12)


def test_center_is_found_across_the_faces_of_the_box(found, tables):
    galaxy, info = found
    center = np.array(info.center) * H / A
    assert ((center >= 0) & (center < BOX)).all()
    assert np.linalg.norm(nearest_image(center[None], CENTER)) < 2
    stars = tables["PartType4"]
    offset = nearest_image(stars["Coordinates"], center)[stars["GFM_StellarFormationTime"] > 0]
    np.testing.assert_allclose(galaxy.stars.position, offset * A / H, atol=1e-8)
    assert np.abs(galaxy.stars.position).max() < 100 * A / H


def test_wind_does_not_move_the_center(found, tmp_path, tables):
    is_star = tables["PartType4"]["GFM_StellarFormationTime"] > 0
    clean = {name: values[is_star] for name, values in tables["PartType4"].items()}
    (galaxy, info), (alone, said) = found, load(write_snapshot(tmp_path / "clean.hdf5", {"PartType4": clean}, HEADER))
    assert (info.center, info.bulk_velocity) == (said.center, said.bulk_velocity)
    assert (said.notes, alone.gas) == ((), None)
    np.testing.assert_array_equal(galaxy.stars.position, alone.stars.position)


def test_a_wrong_given_center_is_noted(cutout):
    notes = load(cutout, center=(CENTER * A / H).tolist())[1].notes
    assert any("kpc from the densest place" in note for note in notes)


def test_velocities_set_to_zero(tmp_path, cutout, tables, found):
    """Of stars and gas, whether the file has them or not; what it has is not used, and that is said."""
    galaxy, info = load(cutout, velocities="zero")
    assert any("set to zero" in note and "those of the file are not used" in note for note in info.notes)
    still = {group: without(table, "Velocities") for group, table in tables.items()}
    bare, bare_info = load(write_snapshot(tmp_path / "bare.hdf5", still, HEADER), velocities="zero")
    assert any("set to zero" in note for note in bare_info.notes)
    assert not any("not used" in note for note in bare_info.notes)
    for particles, said in ((galaxy, info), (bare, bare_info)):
        assert not np.any(particles.stars.velocity)
        assert particles.gas.velocity.shape == (N_GAS, 3)
        assert not np.any(particles.gas.velocity)
        assert (said.velocities, said.bulk_velocity) == ("zero", (0, 0, 0))
    np.testing.assert_array_equal(galaxy.stars.position, bare.stars.position)
    assert found[1].velocities == "file"


def test_what_a_file_may_lack(tmp_path, tables, found):
    """Masses at birth, which are said to be missing; the scale factor, which the redshift tells; the box."""
    groups = tables | {"PartType4": without(tables["PartType4"], "GFM_InitialMass")}
    galaxy, info = load(write_snapshot(tmp_path / "a.hdf5", groups, without(HEADER, "Time")))
    assert info.initial_mass == "missing"
    assert np.isnan(galaxy.stars.initial_mass).all()
    for name in ("position", "velocity", "mass", "log_age"):
        expected = getattr(found[0].stars, name)
        np.testing.assert_allclose(getattr(galaxy.stars, name), expected, rtol=1e-9, atol=1e-6, err_msg=name)
    path = write_snapshot(tmp_path / "b.hdf5", tables, without(HEADER, "BoxSize"))
    raw = tables["PartType4"]
    offset = (raw["Coordinates"] - CENTER)[raw["GFM_StellarFormationTime"] > 0]
    position = load(path, center=CENTER.tolist())[0].stars.position
    np.testing.assert_allclose(position, offset * A / H, rtol=1e-12, atol=1e-8)


def test_birth_just_after_the_snapshot_is_age_zero(tmp_path, tables):
    birth = tables["PartType4"]["GFM_StellarFormationTime"].copy()
    birth[[2, 3]] = A + 9e-5
    stars = tables["PartType4"] | {"GFM_StellarFormationTime": birth}
    log_age = load(write_snapshot(tmp_path / "a.hdf5", {"PartType4": stars}, HEADER))[0].stars.log_age
    assert np.count_nonzero(np.asarray(log_age) == 0) == 3
    birth[2] = A + 2e-4
    with pytest.raises(ValueError, match="birth scale factors"):
        load(write_snapshot(tmp_path / "b.hdf5", {"PartType4": stars}, HEADER))


def test_gas_is_optional(tmp_path, tables):
    stars = {"PartType4": tables["PartType4"]}
    assert load(write_snapshot(tmp_path / "b.hdf5", stars | {"PartType0": {}}, HEADER))[0].gas is None
    few = {name: tables["PartType0"][name] for name in ("Coordinates", "Velocities", "Masses", "GFM_Metallicity")}
    gas = load(write_snapshot(tmp_path / "c.hdf5", stars | {"PartType0": few}, HEADER))[0].gas
    assert gas.temperature is None
    assert gas.hydrogen_fraction is None
    del few["Velocities"]
    galaxy, info = load(write_snapshot(tmp_path / "d.hdf5", stars | {"PartType0": few}, HEADER))
    assert galaxy.gas is None
    assert any("gas left out: the file has no PartType0/Velocities" in note for note in info.notes)


@pytest.mark.parametrize("name", ["Coordinates", "Velocities", "GFM_StellarFormationTime"])
def test_missing_field(tmp_path, tables, name):
    stars = {"PartType4": without(tables["PartType4"], name)}
    words = rf"PartType4/{name} is missing; PartType4 has .*GFM_InitialMass.*; (download|take)"
    with pytest.raises(ValueError, match=words):
        load(write_snapshot(tmp_path / "a.hdf5", stars, HEADER))


def test_wind_alone(tmp_path, tables):
    wind = tables["PartType4"] | {"GFM_StellarFormationTime": np.full(N_STARS + N_WIND, -0.5)}
    with pytest.raises(ValueError, match="got only 407 wind cells"):
        load(write_snapshot(tmp_path / "b.hdf5", {"PartType4": wind}, HEADER))


REAL = {
    "illustris1_z0_subhalo420815_stars": (0.704, 0.2726, 1.0),
    "illustris1_z0_subhalo426280_stars": (0.704, 0.2726, 1.0),
    "SimSpin_example_IllustrisTNG": (0.6774, 0.3089, 0.7705836),
}


@pytest.mark.parametrize("name", REAL)
def test_real_cutouts(real_data: Path, name):
    h, omega_m, a = REAL[name]
    path = real_data / "galaxies" / f"{name}.hdf5"
    galaxy, info = load(path)
    with h5py.File(path) as file:
        stars = {key: file[f"PartType4/{key}"][()].astype(float) for key in file["PartType4"] if key != "ParticleIDs"}
        n_gas = file["PartType0/Masses"].size if "PartType0" in file else 0
    keep = stars["GFM_StellarFormationTime"] > 0
    assert info.n_stars == keep.sum() < keep.size
    assert info.n_gas == n_gas
    assert info.redshift == pytest.approx(1 / a - 1, abs=1e-6)
    assert float(galaxy.stars.mass.sum()) == pytest.approx(stars["Masses"][keep].sum() * 1e10 / h, rel=1e-12)
    offset = np.asarray(galaxy.stars.position) + np.array(info.center) - stars["Coordinates"][keep] * a / h
    box = 75000 * a / h
    assert np.abs(offset - box * np.round(offset / box)).max() < 0.02
    cosmology = FlatLambdaCDM(H0=100 * h, Om0=omega_m, Tcmb0=0)
    births = np.minimum(stars["GFM_StellarFormationTime"][keep][::50], a)
    years = (cosmology.age(1 / a - 1) - cosmology.age(1 / births - 1)).to_value(units.yr)
    log_age = np.log10(np.maximum(years, 1))
    old = log_age > 7
    np.testing.assert_allclose(np.asarray(galaxy.stars.log_age)[::50][old], log_age[old], atol=1e-4)
    if name == "illustris1_z0_subhalo420815_stars":
        _check_core(galaxy, info, path)


def _check_core(galaxy, info, path):
    """The half of the mass is within 15 kpc of the centre, and the guess in the header is near it."""
    radius = np.linalg.norm(galaxy.stars.position, axis=1)
    assert np.median(radius) < 15
    with h5py.File(path) as file:
        guess = file["Header"].attrs["CentreGuess"] / 0.704
    assert np.linalg.norm(np.array(info.center) - guess) < 5
    inner = radius < np.median(radius)
    np.testing.assert_allclose(np.asarray(galaxy.stars.velocity)[inner].mean(axis=0), 0, atol=15)

"""tipsy files written by pynbody itself, against the numbers that were written; what is said where it is missing."""

import struct
import sys
import warnings

import numpy as np
import pytest
from astropy import constants, units
from astropy.cosmology import FlatLambdaCDM
from snapshot_reading import open_container, reader_of

from rubix_like import ConfigError
from rubix_like.readers.containers.pynbody_snapshot import is_ramses, is_tipsy

A = 0.5
LENGTH = 50000.0 * units.kpc
MASS = 1.8e16 * units.Msun
TIME = (LENGTH**3 / (constants.G * MASS)) ** 0.5
"""Gasoline's unit of time, in which G = 1."""

HUBBLE = 2.894405
"""H0 in 1 / TIME: h = 0.72."""

N_GAS, N_DARK, N_STAR = 5, 3, 7


def particle_bytes(order, counts=(N_GAS, N_DARK, N_STAR), extra=0):
    header = struct.pack(order + "d6i", A, sum(counts), 3, *counts, 0)
    return header + bytes(48 * counts[0] + 36 * counts[1] + 44 * counts[2] + extra)


@pytest.mark.parametrize("order", ["<", ">"])
def test_tipsy_is_told_from_its_counts_and_size(tmp_path, order):
    path = tmp_path / "run.00010"
    for content, expected in (
        (particle_bytes(order), True),
        (particle_bytes(order, extra=4), False),
        (particle_bytes(order)[:-4], False),
        (particle_bytes(order, counts=(0, 0, 0)), False),
        (particle_bytes(order, counts=(5, -3, 7), extra=300), False),
        (particle_bytes(order)[:20], False),
    ):
        path.write_bytes(content)
        assert is_tipsy(path, content[:4096]) is expected


def test_ramses_is_told_from_its_folder(tmp_path):
    folder = tmp_path / "output_00042"
    folder.mkdir()
    assert not is_ramses(folder)
    with pytest.raises(IsADirectoryError, match="expected a file, or an output of RAMSES"):
        reader_of(path=folder).load()
    (folder / "info_00042.txt").write_text("ncpu = 1\n")
    assert is_ramses(folder)
    assert not is_ramses(folder / "info_00042.txt")


def test_without_pynbody_the_extra_is_named(tmp_path, monkeypatch):
    path = tmp_path / "run.00010"
    path.write_bytes(particle_bytes(">"))
    monkeypatch.setitem(sys.modules, "pynbody", None)
    for settings in ({}, {"reader": "pynbody"}):
        with pytest.raises(ConfigError, match=r"needs the package pynbody: pip install 'rubix-like\[pynbody\]'"):
            reader_of(path=path, **settings).load()


@pytest.fixture
def run(tmp_path):
    """A cosmological run in code units: its folder and the numbers in single precision."""
    pynbody = pytest.importorskip("pynbody")
    rng = np.random.default_rng(1)
    n = N_GAS + N_DARK + N_STAR
    snapshot = pynbody.new(gas=N_GAS, dm=N_DARK, star=N_STAR)
    stored = {
        "pos": rng.normal(0.1, 1e-4, (n, 3)),
        "vel": rng.normal(0, 0.1, (n, 3)),
        "mass": rng.uniform(1e-12, 2e-12, n),
    }
    gas = {"rho": rng.random(N_GAS), "temp": rng.uniform(1e4, 1e6, N_GAS), "metals": rng.uniform(0, 0.03, N_GAS)}
    star = {"tform": rng.uniform(0.01, 0.1, N_STAR), "metals": rng.uniform(0, 0.03, N_STAR)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, values in stored.items():
            snapshot[name] = values
        snapshot["phi"], snapshot["eps"] = np.zeros(n), np.full(n, 1e-6)
        for family, arrays in ((snapshot.gas, gas), (snapshot.star, star)):
            for name, values in arrays.items():
                family[name] = values
        snapshot.properties["a"] = A
        snapshot.write(fmt=pynbody.snapshot.tipsy.TipsySnap, filename=str(tmp_path / "run.00010"))
    lines = {"dKpcUnit": LENGTH.value, "dMsolUnit": MASS.value, "dHubble0": HUBBLE, "dOmega0": 0.3, "dLambda": 0.7}
    (tmp_path / "run.param").write_text("".join(f"{key} = {x}\n" for key, x in (lines | {"bComove": 1}).items()))
    (tmp_path / "run.00010.massform").write_text("\n".join(["15", *(f"{1e-12 * (i + 1)}" for i in range(n)), ""]))
    single = {name: values.astype("f4").astype("f8") for name, values in stored.items()}
    single |= {f"gas {name}": values.astype("f4").astype("f8") for name, values in gas.items()}
    return tmp_path / "run.00010", single | {name: values.astype("f4").astype("f8") for name, values in star.items()}


def test_a_tipsy_file_in_our_units(run):
    """pynbody's own constants give a unit of velocity that is 1.5e-4 larger than that of astropy's."""
    path, raw = run
    kms = (LENGTH / TIME).to_value("km/s")
    galaxy, info = reader_of(path=path).load()
    assert (info.reader, info.simulation, info.n_stars, info.n_gas) == ("pynbody", "Tipsy", N_STAR, N_GAS)
    assert info.redshift == pytest.approx(1)
    h = (HUBBLE / TIME).to_value("km / (s Mpc)") / 100
    position = raw["pos"] * LENGTH.value * A
    offset = np.asarray(galaxy.stars.position) + info.center
    np.testing.assert_allclose(offset, position[-N_STAR:], rtol=1e-6)
    velocity = np.asarray(galaxy.stars.velocity) + info.bulk_velocity
    np.testing.assert_allclose(velocity, raw["vel"][-N_STAR:] * kms * A, rtol=3e-4)
    np.testing.assert_allclose(galaxy.stars.mass, raw["mass"][-N_STAR:] * MASS.value, rtol=1e-6)
    np.testing.assert_allclose(galaxy.stars.initial_mass, (np.arange(N_STAR) + 9) * 1e-12 * MASS.value, rtol=1e-6)
    np.testing.assert_allclose(galaxy.stars.metallicity, raw["metals"], rtol=1e-6)
    now = FlatLambdaCDM(H0=100 * h, Om0=0.3, Tcmb0=0).age(1 / A - 1).to_value("yr")
    age = now - raw["tform"] * TIME.to_value("yr")
    np.testing.assert_allclose(galaxy.stars.log_age, np.log10(age), atol=2e-4)
    density = raw["gas rho"] * (MASS / LENGTH**3).to_value("Msun/kpc3") / A**3
    np.testing.assert_allclose(galaxy.gas.density, density, rtol=1e-5)
    np.testing.assert_allclose(galaxy.gas.temperature, raw["gas temp"], rtol=1e-6)


def test_slabs_shapes_and_header(run):
    path, raw = run
    with open_container(path) as (container, kind):
        assert kind == "pynbody"
        assert container.groups() == ("Header", "stars", "gas", "dark_matter")
        assert container.shape("stars", "pos") == (N_STAR, 3)
        assert container.shape("gas", "temp") == (N_GAS,)
        np.testing.assert_allclose(container.read("gas", "temp", 1, 3), raw["gas temp"][1:3])
        np.testing.assert_allclose(container.attribute("Header", "BoxSize"), LENGTH.value * A)
        assert "temp" not in container.datasets("stars")
        with pytest.raises(ValueError, match="gas/age is missing; gas has pos"):
            container.read("gas", "age", 0, 1)


def test_units_are_never_those_that_pynbody_assumes(run):
    path, _ = run
    path.with_suffix(".param").unlink()
    with pytest.raises(OSError, match=r"No readable param file.*put the run's \.param file beside it"):
        reader_of(path=path).load()


def test_black_holes_are_left_out(run):
    path, raw = run
    content = bytearray(path.read_bytes())
    big = struct.unpack(">i", content[12:16])[0] == 3
    at = 32 + 48 * N_GAS + 36 * N_DARK + 44 * 2 + 4 * 8
    content[at : at + 4] = struct.pack((">" if big else "<") + "f", -0.05)
    path.write_bytes(bytes(content))
    galaxy, info = reader_of(path=path).load()
    assert info.n_stars == N_STAR - 1
    assert info.notes[0].startswith("1 particles with a negative time of formation")
    np.testing.assert_allclose(galaxy.stars.metallicity, np.delete(raw["metals"], 2), rtol=1e-6)


def test_a_file_that_pynbody_does_not_know(tmp_path):
    pytest.importorskip("pynbody")
    (tmp_path / "text").write_text("not a snapshot")
    with pytest.raises(OSError, match="cannot be read by pynbody"):
        reader_of(path=tmp_path / "text", reader="pynbody").load()


def test_units_of_gadget_are_not_left_to_pynbody(tmp_path):
    (tmp_path / "snapshot").write_bytes(struct.pack(">i", 256) + bytes(300))
    with pytest.raises(ConfigError, match="is a binary snapshot of Gadget, which is read without pynbody"):
        reader_of(path=tmp_path / "snapshot", reader="pynbody").load()

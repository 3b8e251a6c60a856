"""Plain tables of every format, written here with known numbers and units, against astropy's conversions of them."""

import dataclasses
import gzip
import importlib.util
import sys

import h5py
import numpy as np
import pytest
from astropy import units as u
from astropy.cosmology import FlatLambdaCDM
from astropy.io import fits
from astropy.table import QTable, Table
from snapshot_reading import open_container, reader_of

from rubix_like import ConfigError, load_config
from rubix_like.config.readers.snapshot import TableSettings
from rubix_like.readers.fields.field_map import QUANTITIES
from rubix_like.readers.fields.table_map import NAMES

N = 30
NEEDS_PYARROW = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


@pytest.fixture
def columns():
    """Stars with units that are none of ours."""
    rng = np.random.default_rng(4)
    return {
        "id": np.arange(N, dtype=np.uint64) + np.uint64(2**63),
        **{name: rng.normal(0, 3e-3, N) * u.Mpc for name in "xyz"},
        **{name: rng.normal(0, 1e5, N) * u.m / u.s for name in ("vx", "vy", "vz")},
        "mass": rng.uniform(1, 2, N) * u.Unit("1e5 Msun"),
        "initial_mass": rng.uniform(2, 3, N) * u.Unit("1e5 Msun"),
        "age": rng.uniform(10, 9000, N) * u.Myr,
        "metallicity": rng.uniform(0, 0.04, N),
    }


def stars(path, **settings):
    return reader_of(path=path, center=settings.pop("center", (0, 0, 0)), **settings).load()


def check(galaxy, info, columns):
    position = np.stack([columns[name].to_value("kpc") for name in "xyz"], axis=1)
    velocity = np.stack([columns[name].to_value("km/s") for name in ("vx", "vy", "vz")], axis=1)
    np.testing.assert_allclose(galaxy.stars.position, position, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(galaxy.stars.velocity) + info.bulk_velocity, velocity, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(galaxy.stars.mass, columns["mass"].to_value("Msun"), rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.initial_mass, columns["initial_mass"].to_value("Msun"), rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.log_age, np.log10(columns["age"].to_value("yr")), rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.metallicity, columns["metallicity"], rtol=1e-12)
    assert info.reader == "table"
    assert info.redshift is None
    assert info.notes == ()


@pytest.mark.parametrize(
    "name",
    ["a.fits", "a.fits.gz", "a.ecsv", pytest.param("a.parquet", marks=NEEDS_PYARROW), "a.h5"],
)
def test_units_of_the_columns_are_those_of_the_file(tmp_path, columns, name):
    """Recognised by content: every file is renamed first."""
    path, renamed = tmp_path / name, tmp_path / "galaxy.dat"
    more = {"path": "stars", "serialize_meta": True} if name == "a.h5" else {}
    QTable(columns).write(path, **more)
    path.rename(renamed)
    settings = {"reader": "table"} if name == "a.h5" else {}
    check(*stars(renamed, **settings), columns)


def test_formats_without_units(tmp_path, columns):
    """Numbers in kpc, km/s, Msun as assumed, which is noted; the unit of ages has to be stated."""
    units = dict.fromkeys("xyz", "kpc") | dict.fromkeys(("vx", "vy", "vz"), "km/s") | {"age": "Gyr"}
    units |= dict.fromkeys(("mass", "initial_mass"), "Msun")
    plain = {key: values.to_value(units[key]) if key in units else values for key, values in columns.items()}
    path = tmp_path / "a.csv"
    Table(plain).write(path)
    with pytest.raises(ConfigError, match=r"table/age: expected a unit, got none; state it, e.g. galaxy: \{columns"):
        stars(path)
    galaxy, info = stars(path, columns={"age": {"column": "age", "unit": "Gyr"}})
    assert info.notes == (
        "stars.position: the file has no unit for x y z: taken as kpc",
        "stars.velocity: the file has no unit for vx vy vz: taken as km / s",
        "stars.mass: the file has no unit for mass: taken as Msun",
        "stars.initial_mass: the file has no unit for initial_mass: taken as Msun",
    )
    check(galaxy, dataclasses.replace(info, notes=()), columns)


def test_columns_named_in_a_configuration(tmp_path, columns):
    table = Table({f"col{i}": values for i, values in enumerate(columns.values())})
    path = tmp_path / "a.fits"
    table.write(path)
    section = {
        "path": str(path),
        "center": [0, 0, 0],
        "columns": {
            "position": ["col1", "col2", "col3"],
            "velocity": {"column": ["col4", "col5", "col6"]},
            "mass": "col7",
            "initial_mass": {"column": "col8", "unit": "1e5 Msun"},
            "age": {"column": "col9", "unit": "Myr"},
            "metallicity": "col10",
        },
    }
    run = load_config({"galaxy": section, "observation": {"redshift": 0.1}, "instrument": {"name": "muse"}})
    check(*run.galaxy.load(), columns)
    assert load_config(run.model_dump(mode="json")).galaxy == run.galaxy


def test_stars_and_gas_of_one_file(tmp_path, columns):
    gas = {name: columns[name][:9] for name in ("x", "y", "z", "vx", "vy", "vz", "mass", "metallicity")}
    gas |= {"rho": np.arange(1.0, 10) * 1e-24 * u.g / u.cm**3, "temperature": np.arange(9.0) * 1e4 * u.K}
    gas |= {"sfr": np.arange(9.0) * u.kg / u.s, "u": np.arange(9.0) * u.erg / u.g}
    hdus = [fits.PrimaryHDU()]
    for name, content in (("GAS", gas), ("STARS", columns)):
        hdus.append(fits.table_to_hdu(QTable(content)))
        hdus[-1].name = name
    fits.HDUList(hdus).writeto(tmp_path / "a.fits")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, content in (("stars", columns), ("gas", gas)):
            for key, values in content.items():
                stored = np.asarray(getattr(values, "value", values))
                dataset = file.create_dataset(f"galaxy/{name}/{key}", data=stored, chunks=(4,), compression="gzip")
                dataset.attrs["units"] = str(getattr(values, "unit", ""))
    tables = {"columns": {"table": "galaxy/stars"}, "gas": {"table": "galaxy/gas"}}
    for name, settings in (("a.fits", {}), ("a.h5", {"reader": "table", **tables})):
        galaxy, info = stars(tmp_path / name, **settings)
        check(galaxy, info, columns)
        np.testing.assert_allclose(galaxy.gas.density, gas["rho"].to_value("Msun/kpc3"), rtol=1e-12)
        np.testing.assert_allclose(galaxy.gas.star_formation_rate, gas["sfr"].to_value("Msun/yr"), rtol=1e-12)
        np.testing.assert_allclose(galaxy.gas.internal_energy, gas["u"].to_value("km2/s2"), rtol=1e-12)
        np.testing.assert_allclose(galaxy.gas.temperature, gas["temperature"].to_value("K"), rtol=1e-12)
    with pytest.raises(
        ConfigError, match=r"galaxy.columns.table: .* has no 'galaxy/star'; did you mean 'galaxy/stars'"
    ):
        stars(tmp_path / "a.h5", columns={"table": "galaxy/star"})
    with pytest.raises(
        ConfigError, match=r"columns.table: expected the table to read, .* has galaxy/gas, galaxy/stars"
    ):
        stars(tmp_path / "a.h5", reader="table")


def test_vectors_big_endian_and_structured_arrays(tmp_path):
    rng = np.random.default_rng(5)
    position, mass = rng.normal(size=(N, 3)), rng.random(N)
    wanted = {"age": {"column": "age", "unit": "yr"}}
    dtype = [("pos", ">f8", 3), ("vel", "<f8", 3), ("m", ">f8"), ("age", "f4"), ("Z", "f8")]
    table = np.zeros(N, dtype)
    for name, values in (("pos", position), ("vel", position), ("m", mass), ("age", mass * 1e9), ("Z", mass / 100)):
        table[name] = values
    np.save(tmp_path / "b.npy", table)
    fits.BinTableHDU(table).writeto(tmp_path / "c.fits")
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["stars"] = table
    for name, reader in (("b.npy", "auto"), ("c.fits", "table"), ("d.h5", "table")):
        galaxy, _ = stars(tmp_path / name, columns=wanted, reader=reader)
        np.testing.assert_allclose(galaxy.stars.position, position, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(galaxy.stars.mass, mass, rtol=1e-12)
        np.testing.assert_allclose(galaxy.stars.log_age, np.log10(mass * 1e9), rtol=1e-7)


def test_slabs_are_the_rows_of_the_whole(tmp_path, columns):
    QTable(columns).write(tmp_path / "a.fits")
    paths = [tmp_path / "a.fits"]
    if importlib.util.find_spec("pyarrow"):
        from pyarrow import parquet  # noqa: PLC0415

        QTable(columns).write(tmp_path / "whole.parquet")
        parquet.write_table(parquet.read_table(tmp_path / "whole.parquet"), tmp_path / "c.parquet", row_group_size=7)
        paths.append(tmp_path / "c.parquet")
    for path in paths:
        with open_container(path) as (container, kind):
            assert kind == "table"
            (table,) = container.groups()
            assert container.shape(table, "x") == (N,)
            for start, stop in ((0, N), (5, 9), (6, 15), (29, 99), (4, 4)):
                rows = container.read(table, "x", start, stop)
                np.testing.assert_array_equal(rows, columns["x"].value[start:stop], err_msg=str(path))
            ids = container.read(table, "id", 0, 3)
            assert [int(value) for value in ids] == [2**63, 2**63 + 1, 2**63 + 2]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mass": None, "initial_mass": None}, "mass is missing"),
        ({"x": None}, r"position is missing; .*name its column \(galaxy.columns: \{position: COLUMN\}\)$"),
        ({"x": np.ones(N) * u.kpc}, r"expected one unit, got Mpc, kpc; state it"),
        ({"mass": np.ones(N) * u.kpc}, r"mass: expected a unit of (solMass|Msun), got 'kpc'"),
        ({"age": np.ones(N)}, "age: expected a unit, got none"),
        ({"metallicity": np.ones(N) * u.dex}, r"metallicity: expected a unit of a pure number, got 'dex'"),
        ({"metallicity": None}, r"metallicity is missing; .*galaxy.columns: .*, or set galaxy.ages: recipe"),
        ({"age": None}, "age is missing"),
    ],
)
def test_columns_that_cannot_be_used(tmp_path, columns, change, text):
    table = {name: values for name, values in (columns | change).items() if values is not None}
    path = tmp_path / "a.ecsv"
    Table(table).write(path)
    with pytest.raises(ValueError, match=text):
        stars(path)


def test_units_that_are_traps(tmp_path, columns):
    table = Table(columns)
    for unit, text in (("kpc/h", r"got 'kpc/h' \('h' is an hour here"), ("Msol", "expected a unit that astropy knows")):
        for name in "xyz":
            table[name].unit = None
            table[name].info.meta = None
        path = tmp_path / "a.h5"
        with h5py.File(path, "w") as file:
            for name in table.colnames:
                file[f"stars/{name}"] = np.asarray(table[name])
                file[f"stars/{name}"].attrs["unit"] = unit if name in "xyz" else str(table[name].unit or "")
        with pytest.raises(ConfigError, match=text):
            stars(path, reader="table")
        galaxy, _ = stars(path, reader="table", columns={"position": {"column": ["x", "y", "z"], "unit": "Mpc"}})
        np.testing.assert_allclose(galaxy.stars.position[:, 0], np.asarray(table["x"]) * 1e3, rtol=1e-12)


def test_names_with_units_capitals_and_masses_at_birth_only(tmp_path, columns):
    table = QTable(columns)
    for old, new in (("x", "X"), ("y", "Y"), ("z", "Z"), ("initial_mass", "Initial_Mass")):
        table.rename_column(old, new)
    table["age_gyr"] = table["age"].to_value("Gyr")
    table.remove_columns(["age", "mass"])
    table.write(tmp_path / "a.ecsv")
    galaxy, info = stars(tmp_path / "a.ecsv")
    born = columns["initial_mass"].to_value("Msun")
    assert info.notes == ("stars.mass: the table has only masses at birth: taken for the mass now",)
    np.testing.assert_allclose(galaxy.stars.mass, born, rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.log_age, np.log10(columns["age"].to_value("yr")), rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.position[:, 2], columns["z"].to_value("kpc"), rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.metallicity, columns["metallicity"], rtol=1e-12)


def test_an_epoch_in_the_meta_data(tmp_path, columns):
    table = QTable(columns)
    table.remove_column("age")
    table["a_form"] = np.linspace(0.1, 0.5, N)
    table.write(tmp_path / "a.ecsv")
    with pytest.raises(ValueError, match="is missing"):
        stars(tmp_path / "a.ecsv")
    table.meta = {"redshift": 0.8, "HubbleParam": 0.7, "Omega0": 0.3}
    table.write(tmp_path / "b.ecsv")
    galaxy, info = stars(tmp_path / "b.ecsv")
    cosmology = FlatLambdaCDM(H0=70, Om0=0.3, Tcmb0=0)
    years = (cosmology.age(0.8) - cosmology.age(1 / table["a_form"] - 1)).to_value("yr")
    assert info.redshift == pytest.approx(0.8)
    np.testing.assert_allclose(galaxy.stars.log_age, np.log10(years), atol=1e-6)


def test_settings_with_a_typo(tmp_path, columns):
    path = tmp_path / "a.ecsv"
    QTable(columns).write(path)
    with pytest.raises(ConfigError, match=r"galaxy.columns.mass: .* has no column 'masss'; did you mean 'mass'"):
        stars(path, columns={"mass": "masss"})
    for wrong in ({"maas": "m"}, {"age": {"column": "age", "unit": "Gyrs per kpc"}}, {"position": ["x", "y"]}):
        with pytest.raises(ConfigError, match=r"galaxy\.columns"):
            stars(path, columns=wrong)
    with pytest.raises(ConfigError, match="only with reader: table"):
        stars(path, columns={"mass": "mass"}, reader="eagle")
    assert (
        set(TableSettings.model_fields) - {"table"} == set(NAMES) == set(QUANTITIES) - {"birth_time", "lookback_time"}
    )


def test_masked_numbers_are_refused(tmp_path, columns):
    table = Table(columns, masked=True)
    table["mass"].mask[4] = True
    table.write(tmp_path / "a.ecsv")
    with pytest.raises(ValueError, match=r"table/mass: expected finite values"):
        stars(tmp_path / "a.ecsv")


@pytest.mark.parametrize("name", ["a.fits", "a.ecsv", pytest.param("a.parquet", marks=NEEDS_PYARROW)])
def test_truncated_and_damaged_files(tmp_path, columns, name):
    path = tmp_path / name
    QTable(columns).write(path)
    whole = path.read_bytes()
    for end in (len(whole) // 2, len(whole) - 1500, 90):
        path.write_bytes(whole[:end])
        with pytest.raises((OSError, ValueError), match=r"a\.") as caught:
            stars(path, columns={"age": {"column": "age", "unit": "Myr"}})
        assert str(path) in str(caught.value)


def test_files_that_are_no_tables(tmp_path):
    fits.PrimaryHDU(np.zeros((4, 4))).writeto(tmp_path / "image.fits")
    with pytest.raises(ValueError, match="FITS file without any table"):
        stars(tmp_path / "image.fits")
    for name, content in (("a.csv", b"just,words\nand,more\n"), ("b.csv", b"\x00\x01\x02" * 50), ("c.csv", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OSError, match="nor another one that is recognised"):
            stars(tmp_path / name)
    (tmp_path / "d.gz").write_bytes(gzip.compress(b"x,y\n1,2\n"))
    with pytest.raises(OSError, match="nor another one that is recognised"):
        stars(tmp_path / "d.gz")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "a.dat").write_bytes(b"PAR1" + bytes(100))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigError, match=r"needs the package pyarrow: pip install 'rubix-like\[tables\]'"):
        stars(tmp_path / "a.dat")


def test_galaxy_chop(real_data):
    path = real_data / "galaxies" / "tng100_394242_kinematics.h5"
    galaxy, info = reader_of(path=path, center=(0, 0, 0), ages="recipe").load()
    with h5py.File(path) as file:
        raw = file["stars"][()]
    assert (info.reader, info.n_stars) == ("galaxy_chop", 32067)
    assert float(galaxy.stars.mass.sum()) == pytest.approx(raw["m"].sum(), rel=1e-12)
    position = np.stack([raw[name] for name in "xyz"], axis=1)
    velocity = np.stack([raw[name] for name in ("vx", "vy", "vz")], axis=1)
    np.testing.assert_allclose(galaxy.stars.position, position, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(galaxy.stars.velocity) + info.bulk_velocity, velocity, atol=1e-9)
    with pytest.raises(ValueError, match=r"stars/age is missing; .*galaxy.ages: recipe"):
        reader_of(path=path).load()

"""Remedies of messages, followed: the input is refused with the remedy, and the remedy as given makes it right."""

import re
from pathlib import Path

import h5py
import numpy as np
import pytest

import rubix_like as rl
from rubix_like.cli.main import main
from rubix_like.extend import import_library

RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 20},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": {"name": "muse", "fov": "2 arcsec"},
    "devices": {"data": 1},
}

CONFIGURATION = {
    "key": ({"instrument.pixelscale": 0.4}, "'pixel_scale'", {"instrument.pixel_scale": 0.4}, 0.4),
    "unit": ({"instrument.pixel_scale": "3 kpc"}, "'0.8 arcsec'", {"instrument.pixel_scale": "0.8 arcsec"}, 0.8),
    "unit of an angle": (
        {"observation.inclination": "3 kpc"},
        "'0.8 deg'",
        {"observation.inclination": "0.8 deg"},
        0.8,
    ),
    "key of a reader": ({"galaxy.n_star": 5}, "'n_stars'", {"galaxy.n_stars": 5}, 5),
    "reader": ({"galaxy.reader": "syntetic"}, "'synthetic'", {"galaxy.reader": "synthetic"}, "synthetic"),
    "value": ({"engine.method": "baisis"}, "'basis'", {"engine.method": "basis"}, "basis"),
    "section": ({"enginee.method": "basis"}, "'engine'", {"engine.method": "basis"}, "basis"),
    "ending": ({"output.path": "cube.txt"}, "'cube.fits'", {"output.path": "cube.fits"}, Path("cube.fits")),
    "number": ({"galaxy.n_stars": "many"}, "expected a whole number", {"galaxy.n_stars": "7"}, 7),
}
"""Overrides, the remedy in the message, overrides that follow it, and the value of the setting then."""

CHECK = ("check", "quickstart", "--set", "galaxy.n_stars=20", "devices.data=1")
COMMANDS = {
    "configuration": (("check", "quikstart", *CHECK[2:]), "did you mean 'quickstart'?", CHECK),
    "command": (("chek", *CHECK[1:]), "did you mean 'check'?", CHECK),
    "option": (("check", "quickstart", "--sett", *CHECK[3:]), "did you mean --set", CHECK),
    "kind of list": (("list", "instrumnts"), "did you mean 'instruments'?", ("list", "instruments")),
    "setting without a value": ((*CHECK, "noise"), "noise=null", (*CHECK, "noise=null")),
    "key of a setting": ((*CHECK, "galaxy.n_star=9"), "'n_stars'", (*CHECK, "galaxy.n_stars=9")),
    "library": (("ssp", "info", "popstr"), "`rubix-like ssp list`", ("ssp", "list")),
    "no cube": (("plot",), "the following arguments are required: CUBE", ("plot", "--help")),
    "bracket": (("check", "open.yaml"), "every bracket and quote closed", ("check", "closed.yaml")),
    "tab": (("check", "tab.yaml"), "indented by spaces", ("check", "closed.yaml")),
}
"""A command, the remedy in its message, and the command that follows it."""

COLUMNS = ("x", "y", "z", "vx", "vy", "vz", "mass", "age", "Z")
UNITS = {"age": {"column": "age", "unit": "Gyr"}}
"""What the message on a column without a unit says."""
RENAMED = {"age": {"column": "t", "unit": "Gyr"}}
TABLES = {
    "unit": (COLUMNS, {}, "{columns: {age: {column: ..., unit: Gyr}}}", {"columns": UNITS}),
    "column": ((*COLUMNS[:7], "t", "Z"), {}, "galaxy.columns: {age: COLUMN}", {"columns": RENAMED}),
    "no ages": ((*COLUMNS[:7], "other", "Z"), {}, "set galaxy.ages: recipe", {"ages": "recipe"}),
    "no velocities": (
        (*COLUMNS[:3], "a", "b", "c", *COLUMNS[6:]),
        {"columns": UNITS},
        "velocities: zero",
        {"columns": UNITS, "velocities": "zero"},
    ),
}
"""Columns of a table, settings, the remedy in the message, and settings that follow it."""


@pytest.mark.parametrize(("bad", "remedy", "followed", "right"), CONFIGURATION.values(), ids=CONFIGURATION)
def test_remedies_of_configurations(bad, remedy, followed, right):
    with pytest.raises(rl.ConfigError) as refused:
        rl.load_config(RUN, bad)
    assert remedy in str(refused.value)
    found = rl.load_config(RUN, followed)
    for key in next(iter(followed)).split("."):
        found = getattr(found, key)
    assert found == right


def code_of(arguments):
    try:
        return main(list(arguments))
    except SystemExit as error:
        return error.code


@pytest.mark.parametrize(("bad", "remedy", "followed"), COMMANDS.values(), ids=COMMANDS)
def test_remedies_of_the_command_line(bad, remedy, followed, tmp_path, monkeypatch, capsys, jax_settings):
    monkeypatch.chdir(tmp_path)
    text = "galaxy: {reader: synthetic, n_stars: 20}\nobservation: {redshift: 0.05}\ninstrument: {name: muse, fov: 2}\n"
    Path("closed.yaml").write_text(text + "devices: {data: 1}\n")
    Path("open.yaml").write_text(text + "devices: {data: 1\n")
    Path("tab.yaml").write_text(text + "devices:\n\tdata: 1\n")
    assert code_of(bad) == 2
    assert remedy in capsys.readouterr().err
    assert code_of(followed) == 0


@pytest.mark.parametrize("path", [".", "", "no.fits"])
def test_what_is_no_cube_is_named(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert code_of(["plot", path]) == 2
    assert "cube" in capsys.readouterr().err


def test_files_of_python_objects_are_refused_without_advice_to_run_them(tmp_path):
    path = tmp_path / "spectra_emiles_9.0.npz"
    np.savez(
        path, **dict.fromkeys(("templates", "masses", "lam", "ages", "metals", "fwhm"), np.array([{}, None], object))
    )
    with pytest.raises(ValueError, match="write arrays of numbers by numpy.save") as refused:  # noqa: RUF043
        import_library(path)
    assert "allow_pickle" not in str(refused.value)


@pytest.mark.parametrize(("columns", "settings", "remedy", "followed"), TABLES.values(), ids=TABLES)
def test_remedies_of_tables(columns, settings, remedy, followed, tmp_path):
    path = tmp_path / "stars.csv"
    random = np.random.default_rng(1)
    values = np.column_stack([random.normal(size=(30, 6)), np.full((30, 3), [1e5, 2.0, 0.02])])
    np.savetxt(path, values, delimiter=",", header=",".join(columns), comments="")
    galaxy = {"reader": "table", "path": str(path)}
    with pytest.raises(ValueError, match="table/") as refused:
        rl.load_galaxy({**RUN, "galaxy": {**galaxy, **settings}})
    assert remedy in str(refused.value)
    stars = rl.load_galaxy({**RUN, "galaxy": {**galaxy, **followed}}).stars
    assert len(stars.position) == 30
    np.testing.assert_allclose(stars.initial_mass, 1e5, rtol=1e-6)
    if "columns" in followed:
        np.testing.assert_allclose(stars.log_age, np.log10(2e9), rtol=1e-6)
    if "velocities" in followed:
        assert not np.any(stars.velocity)


def write_tables(file):
    """Two tables, each of which may hold the stars."""
    for number, name in enumerate(("old", "young"), start=1):
        group = file.create_group(name)
        group.update({key: np.arange(30.0) * number for key in ("x", "y", "z", "vx", "vy", "vz")})
        group.update({"mass": np.full(30, 1e5 * number), "log_age": np.full(30, 9.0), "Z": np.full(30, 0.02)})


def write_snapshot(file, label, **without):
    """A snapshot with the marks of EAGLE and Magneticum, of which a label tells them apart."""
    header = {"RunLabel": label, "Time": 0.8, "Redshift": 0.25, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7}
    file.create_group("Header").attrs.update({**header, "BoxSize": 0.0})
    columns = {"Coordinates": (30, 3), "Velocity": (30, 3), "Mass": 30, "InitialMass": 30, "Metallicity": 30}
    for name, shape in columns.items():
        if name not in without:
            data = file.create_dataset(f"PartType4/{name}", data=np.random.default_rng(1).uniform(0.001, 0.01, shape))
            data.attrs.update({"aexp-scale-exponent": 0.0, "h-scale-exponent": 0.0, "CGSConversionFactor": 0.0})
    file["PartType4/StellarFormationTime"] = np.full(30, 0.5)


SNAPSHOTS = {
    "tables": (write_tables, {"reader": "table"}, "{columns: {table: old}}", {"columns": {"table": "old"}}),
    "kinds": (
        lambda file: write_snapshot(file, "EAGLE Magneticum"),
        {},
        "galaxy: {reader: eagle}",
        {"reader": "eagle"},
    ),
    "no velocities": (
        lambda file: write_snapshot(file, "EAGLE", Velocity=0),
        {},
        "galaxy.velocities: zero",
        {"velocities": "zero"},
    ),
}
"""A file of HDF5, settings, the remedy in the message, and settings that follow it."""


@pytest.mark.parametrize(("write", "settings", "remedy", "followed"), SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_remedies_of_snapshots(write, settings, remedy, followed, tmp_path):
    with h5py.File(tmp_path / "galaxy.hdf5", "w") as file:
        write(file)
    galaxy = {"path": str(tmp_path / "galaxy.hdf5"), **settings}
    with pytest.raises(ValueError, match=re.escape(remedy)):
        rl.load_galaxy({**RUN, "galaxy": galaxy})
    stars = rl.load_galaxy({**RUN, "galaxy": {**galaxy, **followed}}).stars
    assert stars.position.shape == (30, 3)
    assert np.any(stars.velocity) == ("velocities" not in followed)


LONE_VALUES = {
    "instrument": ("muse", "name"),
    "ssp": ("popstar", "library"),
    "galaxy": ("synthetic", "reader"),
    "observation": (0.05, "redshift"),
    "noise": (50, "signal_to_noise"),
    "engine": ("basis", "method"),
    "output": ("cube.h5", "path"),
    "lines": ("Ha", "wavelengths"),
    "devices": (1, "data"),
    "simulate": (7, "n"),
}
"""A section, a value in its place, and the key that the message says."""


@pytest.mark.parametrize(("section", "value", "key"), [(name, *own) for name, own in LONE_VALUES.items()])
def test_remedies_of_values_in_place_of_sections(section, value, key):
    with pytest.raises(rl.ConfigError, match=re.escape(f"write {section}: {{{key}: {value}}}")):
        rl.load_config({**RUN, section: value})
    found = getattr(rl.load_config({**RUN, section: {key: value}}), section)
    assert str(value) in str(getattr(found, key))


@pytest.mark.parametrize("name", ["age", "velocty"])
def test_remedies_of_maps(name):
    """The message on a map that is missing gives the setting that makes it, and the name that there is."""
    bare, mapped = (
        rl.Pipeline.from_config(rl.load_config({**RUN, **own})) for own in ({}, {"products": {"losvd": None}})
    )
    galaxy = rl.load_galaxy(RUN)
    with pytest.raises(ValueError, match=r"give the run products: \{losvd: null\}") as refused:
        bare(galaxy).map(name)
    assert ("did you mean 'velocity'" in str(refused.value)) == (name == "velocty")
    assert mapped(galaxy).map({"velocty": "velocity"}.get(name, name)).shape == (10, 10)

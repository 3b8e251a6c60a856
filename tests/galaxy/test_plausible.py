"""Numbers that no galaxy has: refused star by star, noted for all, refused by fits; numbers that are rounded."""

import json
from pathlib import Path

import equinox as eqx
import h5py
import numpy as np
import pytest
from command_line import main
from small import mock_data
from small_snapshots import write_small

from rubix_like import Galaxy, Gas, Pipeline, Stars, load_config, load_galaxy, load_galaxy_info, log_posterior, validate
from rubix_like.galaxy.validation import implausible_notes, integer_notes
from rubix_like.physics.plausibility import ParticleSums

CONFIG = {
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": 1,
        "wavelength": {"start": 5000, "stop": 5010},
        "psf": None,
        "lsf": None,
    },
    "engine": {"method": "direct"},
}


def stars(count=40, mass=1e8, speed=50.0, **changes):
    rng = np.random.default_rng(1)
    fields = {
        "position": rng.normal(size=(count, 3)),
        "velocity": speed * rng.normal(size=(count, 3)) + 30.0,
        "initial_mass": mass * rng.uniform(0.5, 1.5, count),
        "log_age": np.full(count, 9.5),
        "metallicity": np.full(count, 0.02),
    }
    return Stars(**(fields | changes))


def test_a_star_does_not_gain_mass_nor_lose_nearly_all():
    born = stars()
    for ratio, fits in ((1.0, 1), (1.009, 1), (0.011, 1), (1.02, 0), (1e3, 0), (0.009, 0), (0.0, 0)):
        mass = np.array(born.initial_mass)
        mass[7] *= ratio
        galaxy = Galaxy(stars=Stars(**{**vars(born), "mass": mass}))
        if fits:
            validate(galaxy)
            continue
        words = r"stars.mass / stars.initial_mass: .* index 7 \(1 of 40 values\); one of the two"
        with pytest.raises(ValueError, match=words):
            validate(galaxy)


@pytest.mark.parametrize(("dataset", "ratio"), [("InitialMass", 1e-10), ("Mass", 1000.0)])
def test_a_mass_of_a_simulation_in_another_unit_is_refused(tmp_path, dataset, ratio):
    def change(file, times):
        file["PartType4/Mass"][()] = 0.6 * file["PartType4/InitialMass"][()]
        file[f"PartType4/{dataset}"][()] = file[f"PartType4/{dataset}"][()] * times
        file["PartType4/SmoothedMetallicity"][()] = 0.02

    for times in (1.0, ratio):
        path = write_small(tmp_path / f"{times}.hdf5", "eagle", lambda file, times=times: change(file, times))
        config = {**CONFIG, "galaxy": {"path": str(path), "ages": "recipe"}}
        if times == 1.0:
            load_galaxy(config)
            continue
        with pytest.raises(ValueError, match=r"masses now from 0\.01 to 1\.01 times those at birth"):
            load_galaxy(config)


def test_dispersion_and_radius_are_those_of_the_formula():
    """Weighted by mass, of one axis; of parts put together, and of a galaxy that moves as a whole."""
    whole = stars(velocity=np.random.default_rng(3).normal(size=(40, 3)) * [10, 20, 30] + [1e4, -3e4, 2e4])
    mass, velocity = whole.initial_mass, whole.velocity
    mean = np.average(velocity, axis=0, weights=mass)
    expected = np.sqrt(np.average(((velocity - mean) ** 2).sum(axis=1), weights=mass) / 3)
    halves = [
        Stars(**{name: values[part] for name, values in vars(whole).items() if values is not None})
        for part in (slice(0, 15), slice(15, 40))
    ]
    sums = ParticleSums.of(vars(halves[0])).joined(ParticleSums.of(vars(halves[1])))
    assert sums.dispersion == pytest.approx(expected, rel=1e-6)
    assert sums.mass == pytest.approx(mass.sum(), rel=1e-12)
    radius = np.linalg.norm(whole.position, axis=1)
    order = np.argsort(radius)
    half = np.searchsorted(np.cumsum(mass[order]), 0.5 * mass.sum())
    assert sums.half_mass_radius == pytest.approx(radius[order][half], rel=0.012)


def sphere(radius, count=40):
    """Places at one radius (kpc)."""
    places = np.random.default_rng(4).normal(size=(count, 3))
    return radius * places / np.linalg.norm(places, axis=1)[:, None]


GYR = np.linspace(0.25, 10, 40)
"""Ages in Gyr, 19 of 40 below 5; a 25th of them are metallicities in solar units, 34 of 40 above 0.06."""


def found_in(stars, gas=None):
    return [*implausible_notes(Galaxy(stars=stars, gas=gas), is_at_rest=False)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mass": 1e1}, "birth masses add up to 3"),
        ({"mass": 1e13}, "e+14 Msun, which is no galaxy's (1000 to 1e+14)"),
        ({"speed": 50 * 7e-5}, "velocity dispersion is 0.003"),
        ({"speed": 0.0}, "velocity dispersion is 0 km/s"),
        ({"position": sphere(5e-3)}, "half-mass radius of the stars is 0.005 kpc, which is no galaxy's (0.01 to 500)"),
        ({"position": sphere(5e-3)}, "are positions in Mpc or Mpc/h?"),
        ({"position": sphere(5e3)}, "half-mass radius of the stars is 5e+03 kpc"),
        ({"position": sphere(5e3)}, "are positions in pc, "),
        ({"position": sphere(2e-5), "mass": 1e4}, "is 2e-05 kpc, which is no galaxy's (0.0001 to 500)"),
        ({"log_age": GYR, "initial_mass": np.full(40, 1e8)}, "48 % of the stars' mass is younger than 100000 yr"),
        ({"log_age": np.log10(8000 * np.ones(40))}, "100 % of the stars' mass is younger than 100000 yr"),
        ({"log_age": np.full(40, 5.0)}, "100 % of the stars' mass is younger than 1e+06 yr"),
        ({"velocity": sphere(50.0) + np.full(3, 350.0)}, "which is no galaxy's (at most 300): do velocities"),
        (
            {"metallicity": GYR / 25, "initial_mass": np.full(40, 1e8)},
            "85 % of the mass of the stars has metallicities",
        ),
    ],
)
def test_what_no_galaxy_has_is_noted(changes, words):
    (note,) = found_in(stars(**changes))
    assert "no galaxy's" in note
    assert words in note


def test_such_notes_are_in_the_summary_and_the_header():
    """All that there are, each once."""
    strange = stars(position=sphere(5e-3), speed=0.0, mass=1e13)
    pipeline = Pipeline.from_config(CONFIG, Galaxy(stars=strange))
    found = [note for note in pipeline.notes if "no galaxy's" in note]
    assert found == found_in(strange)
    assert len(found) == 3
    header = [value for key, value in pipeline.frame.meta.items() if key.startswith("note_")]
    assert [header.count(note) for note in found] == [1, 1, 1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"speed": 1.3},
        {"speed": 0.0, "random_velocity": 50 * np.random.default_rng(2).normal(size=40)},
        {"count": 5, "speed": 0.0},
        {"position": sphere(0.025), "mass": 1e3, "speed": 3.0},  # an ultra-faint dwarf
        {"position": sphere(0.003), "mass": 1e4, "speed": 8.0},  # a globular cluster
        {"position": sphere(0.015), "mass": 2e6, "speed": 25.0},  # an ultra-compact dwarf
        {"position": sphere(88.0), "mass": 1e10, "speed": 200.0, "metallicity": np.full(40, 0.04)},  # a massive halo
        {"position": np.zeros((40, 3))},  # a point source
        {"log_age": np.linspace(6, 10.1, 40)},  # a young galaxy
        {"log_age": np.where(np.arange(40) == 0, 0.0, 9.0), "initial_mass": np.where(np.arange(40) == 0, 1e6, 1e8)},
        {"metallicity": np.where(np.arange(40) < 15, 0.07, 0.03)},  # a rich centre
    ],
)
def test_what_galaxies_have_is_not_noted(changes):
    assert found_in(stars(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metallicity": 0.5}, "100 % of the mass of the gas has metallicities above 0.06"),
        ({"metallicity": 0.04}, None),
        ({"metallicity": 0.5, "weight": 0.0}, None),  # padding
        ({"temperature": 4.0}, "gas.temperature: all gas is colder than 10 K"),
        ({"temperature": 1e4}, None),
    ],
)
def test_metallicities_in_solar_units_and_logarithms_of_temperatures_of_gas_are_noted(changes, words):
    columns = {name: np.full(40, value) for name, value in ({"metallicity": 0.02} | changes).items()}
    if "temperature" in columns:
        columns["temperature"][0] = 5.0
    found = found_in(stars(), Gas(sphere(2.0), np.zeros((40, 3)), np.full(40, 1e7), **columns))
    assert [words in note for note in found] == ([] if words is None else [True])


def table(path: Path, *, rest=False, **changes):
    """The section of a plain table in HDF5, written here, of which some columns are changed."""
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(size=40) for name in ("x", "y", "z")}
    columns |= {name: 50 * rng.normal(size=40) for name in ("vx", "vy", "vz")}
    columns |= {"m": np.full(40, 1e8), "t": np.full(40, 5.0), "Z": np.full(40, 0.02), **changes}
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            file[f"stars/{name}"] = values
    named = {
        "position": {"column": ["x", "y", "z"], "unit": "kpc"},
        "velocity": {"column": ["vx", "vy", "vz"], "unit": "km/s"},
        "metallicity": {"column": "Z"},
        "mass": {"column": "m", "unit": "Msun"},
        "age": {"column": "t", "unit": "Gyr"},
    }
    section = {"reader": "table", "path": str(path), "columns": named}
    return load_config({**CONFIG, "galaxy": {**section, "velocities": "zero"} if rest else section})


def test_stars_that_are_meant_to_be_at_rest_are_not_noted(tmp_path):
    config = table(tmp_path / "a.hdf5", rest=True)
    galaxy, info = load_galaxy(config), load_galaxy_info(config)
    still = Galaxy(stars=Stars(**{**vars(galaxy.stars), "velocity": np.zeros((40, 3))}))
    for rest, n_notes in ((True, 0), (False, 1)):
        pipeline = Pipeline.from_config(table(tmp_path / "a.hdf5", rest=rest), still, info=info)
        assert sum("dispersion is 0 km/s" in note for note in pipeline.notes) == n_notes


def test_what_no_galaxy_has_is_noted_where_a_file_is_read(tmp_path, capsys):
    """In what is known of the galaxy, and in the report of `inspect`."""
    places = dict(zip("xyz", np.random.default_rng(3).normal(scale=2e-3, size=(3, 40)), strict=True))
    config = table(tmp_path / "megaparsecs.hdf5", **places)
    words = "half-mass radius of the stars is 0.00"
    assert sum(words in note for note in load_galaxy_info(config).notes) == 1
    section = config.model_dump(mode="json")["galaxy"]
    options = [f"--set=galaxy.{key}={json.dumps(section[key])}" for key in ("columns", "reader")]
    assert main(["inspect", section["path"], *options]) == 0
    assert words in " ".join(capsys.readouterr().out.split())


FREE = {"fit": {"free": {"observation.velocity_offset": {"normal": [0, 100]}}}}


def test_a_fit_refuses_such_a_galaxy_unless_it_is_accepted():
    good, bad = (Galaxy(stars=stars(count=10, position=sphere(radius, 10))) for radius in (0.1, 5e-3))
    data = mock_data((5, 5, 2))
    words = r"the galaxy: expected plausible numbers, but the half-mass radius of the stars is 0.005 kpc.*set fit"
    assert not any("no galaxy's" in note for note in log_posterior(CONFIG | FREE, data, galaxy=good).notes)
    with pytest.raises(ValueError, match=words):
        log_posterior(CONFIG | FREE, data, galaxy=bad)
    accepted = load_config(CONFIG | FREE, overrides={"fit.accept_implausible": True})
    assert sum("no galaxy's" in note for note in log_posterior(accepted, data, galaxy=bad).notes) == 1


def test_whole_numbers_are_noted_of_tables_and_arrays(tmp_path):
    assert not any("whole numbers" in note for note in load_galaxy_info(table(tmp_path / "a.hdf5")).notes)
    whole = np.full(40, 100_000_000)
    notes = load_galaxy_info(table(tmp_path / "b.hdf5", m=whole, t=np.full(40, 5, np.int16))).notes
    assert any("stars/m, stars/t are stored as whole numbers" in note for note in notes), notes
    rounded = eqx.tree_at(lambda s: s.initial_mass, stars(), whole)  # the tests' hook lets no such stars be made
    (note,) = integer_notes(Galaxy(stars=rounded))
    assert note.startswith("stars.initial_mass is stored as whole numbers")
    assert integer_notes(Galaxy(stars=stars())) == ()

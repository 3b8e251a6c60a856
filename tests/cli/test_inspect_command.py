"""`rubix-like inspect` on tiny files whose numbers are worked out here, on damaged ones, and on the real ones."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import yaml
from astropy import units
from astropy.cosmology import FlatLambdaCDM
from astropy.table import Table
from command_line import main
from small_snapshots import write_small

from rubix_like import ConfigError
from rubix_like.readers.containers.container import as_text
from rubix_like.readers.fields.field_map import parse_field_map
from rubix_like.readers.inspection import groups
from rubix_like.readers.inspection.groups import FieldReport, light_of_gas, measure_range
from rubix_like.readers.inspection.report import inspect_galaxy, inspection_text, table_text

HEADER = {
    "BoxSize": 1000.0,
    "HubbleParam": 0.5,
    "Omega0": 0.3,
    "OmegaLambda": 0.7,
    "Redshift": 1.0,
    "Time": 0.5,
    "SimulationName": "TNG-tiny",
    "NumPart_ThisFile": [2, 0, 0, 0, 9, 0],
}
KILOPARSEC = 3.085678e21


def tiny_groups():
    """Four stars, one of them wind, and two gas cells, of IllustrisTNG."""
    return {
        "PartType4": {
            "Coordinates": np.arange(12.0).reshape(4, 3),
            "Velocities": np.array([[2, 0, 0], [4, 0, 0], [0, 6, 0], [0, 0, -8]], dtype=np.float32),
            "Masses": np.array([1, 2, 3, 4], dtype=np.float32),
            "GFM_StellarFormationTime": np.array([0.25, -1, 0.4, 0.5]),
            "ParticleIDs": np.arange(4),
            "Odd": np.zeros((4, 2)),
        },
        "PartType0": {
            "Coordinates": np.ones((2, 3)),
            "Velocities": np.ones((2, 3)),
            "Masses": np.array([1.0, 2.0]),
            "GFM_Metallicity": np.array([0.01, 0.02]),
            "Density": np.array([1.0, 3.0]),
        },
        "PartType1": {"Coordinates": np.ones((5, 3))},
    }


def write(path, groups, header=HEADER):
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        for group, table in groups.items():
            for name, values in table.items():
                file[f"{group}/{name}"] = values
        stars = file.get("PartType4", {})
        if "Coordinates" in stars:
            stars["Coordinates"].attrs.update({"to_cgs": KILOPARSEC, "a_scaling": 1.0, "h_scaling": 0.0})
        if "Masses" in stars:
            stars["Masses"].attrs.update({"to_cgs": 1.989e43, "a_scaling": 0.0, "h_scaling": -1.0})
    return path


def inspect(capsys, *arguments):
    """(exit code, standard output, standard error) of `rubix-like inspect`."""
    capsys.readouterr()
    code = main(["inspect", *map(str, arguments)])
    return code, *capsys.readouterr()


TINY = """\
file          tiny.hdf5
kind          hdf5
recognised    IllustrisTNG and Illustris (illustris): it has PartType4/GFM_StellarFormationTime, has Header@BoxSize
simulation    TNG-tiny
redshift      1 (scale factor a = 0.5)
age then      8.052 Gyr since the Big Bang
h             0.5
cosmology     H0=50, Omega_m=0.3, Omega_Lambda=0.7 (snapshot)
periodic box  1000 x 0.5 kpc = 500 kpc

Stars in PartType4: 3 (1 wind cells (GFM_StellarFormationTime <= 0) left out)
  quantity            dataset                        shape   type     stored unit and conversion        stated by
  position            Coordinates                    (4, 3)  float64  kpc x a^1 = 0.5 kpc               file
  velocity            Velocities                     (4, 3)  float32  km / s x a^0.5 = 0.707107 km / s  map
  mass                Masses                         (4)     float32  1e10 Msun x h^-1 = 2e+10 Msun     file
  birth_scale_factor  GFM_StellarFormationTime       (4)     float64                                    map
  age                 from GFM_StellarFormationTime

  quantity            unit    smallest  median  largest  sum
  position x          kpc     0         3       4.5
  position y          kpc     0.5       3.5     5
  position z          kpc     1         4       5.5
  velocity x          km / s  0         0       1.4142
  velocity y          km / s  0         0       4.2426
  velocity z          km / s  -5.6569   0       0
  mass                Msun    2e+10     6e+10   8e+10    1.6e+11
  birth_scale_factor          0.25      0.4     0.5
  age                 Gyr     1e-09     2.1713  5.0948
  - position: the file states h^ 0 instead of -1 of the field map
  - no metallicities: galaxy.ages: recipe draws them, too, from a gradient
  - no masses at birth: the mass now over the surviving fraction of the SSP library (taken equal where the library has
    none)
  - no smoothing lengths: engine.deposit: smoothed takes them from the distances to the neighbours
  - the Header's NumPart_ThisFile is 9, the file has 4 rows: those are read
  not used: Odd (4, 2), ParticleIDs

Gas in PartType0: 2
  quantity     dataset          shape   type     stored unit and conversion                         stated by
  position     Coordinates      (2, 3)  float64  kpc x a^1 x h^-1 = 1 kpc                           map
  velocity     Velocities       (2, 3)  float64  km / s x a^0.5 = 0.707107 km / s                   map
  mass         Masses           (2)     float64  1e10 Msun x h^-1 = 2e+10 Msun                      map
  metallicity  GFM_Metallicity  (2)     float64                                                     map
  density      Density          (2)     float64  1e10 Msun / kpc3 x a^-3 x h^2 = 2e+10 Msun / kpc3  map

  quantity     unit         smallest  median   largest  sum
  position x   kpc          1         1        1
  position y   kpc          1         1        1
  position z   kpc          1         1        1
  velocity x   km / s       0.70711   0.70711  0.70711
  velocity y   km / s       0.70711   0.70711  0.70711
  velocity z   km / s       0.70711   0.70711  0.70711
  mass         Msun         2e+10     3e+10    4e+10    6e+10
  metallicity               0.01      0.015    0.02
  density      Msun / kpc3  2e+10     4e+10    6e+10
  - no temperatures, nor an internal_energy that would tell them
  - no smoothing lengths: they follow from mass and density
  Light that it can make:
  - nebulae: none around forming stars (no star_formation_rate); young stars ionise nebulae without it
  - abundances: O/H from metallicity in solar proportions (no oxygen_fraction)
  - dust: no dust_mass; metallicity and mass give it for a stated dust-to-metal ratio
  - neutral hydrogen: neither hi_fraction nor h2_fraction
  - maps (products.gas: true): gas mass, velocity and dispersion, metallicity

Not used: PartType1 (1 dataset)

To be read by
galaxy:
  path: tiny.hdf5
  ages: recipe
"""


def test_the_whole_report(tmp_path, capsys):
    write(tmp_path / "tiny.hdf5", tiny_groups())
    code, text, errors = inspect(capsys, "tiny.hdf5")
    assert text.splitlines() == TINY.splitlines()
    assert (code, errors) == (0, "")
    code, text, _ = inspect(capsys, "tiny.hdf5", "--json")
    found = json.loads(text)
    stars, gas = found["groups"]
    assert code == 0
    assert (stars["n_rows"], stars["n_left_out"], gas["n_rows"]) == (4, 1, 2)
    mass = {row["quantity"]: row for row in stars["fields"]}["mass"]
    assert (mass["dtype"], mass["shape"], mass["unit"], mass["origin"]) == ("float32", [4], "Msun", "file")
    assert mass["total"] == pytest.approx(8 * 1e10 / 0.5)
    assert yaml.safe_load(found["galaxy"]) == {"galaxy": {"path": "tiny.hdf5", "ages": "recipe"}}


def test_light_of_gas_that_forms_stars(tmp_path):
    groups = tiny_groups()
    metals = np.tile([0.7, 0.28, 0.001, 0.001, 0.006], (2, 1))
    groups["PartType0"] |= {"StarFormationRate": np.array([0.0, 2.5]), "GFM_Metals": metals}
    groups["PartType0"] |= {"NeutralHydrogenAbundance": np.array([0.5, 1.0])}
    _, inspection = fields_of(write(tmp_path / "gas.hdf5", groups))
    (light,) = [report.light for report in inspection.groups if report.family == "gas"]
    assert light == (
        "nebulae: around forming stars: star_formation_rate is above 0 in 1 of 2 particles, 2.5 Msun / yr in all",
        "abundances: O/H from oxygen_fraction and hydrogen_fraction",
        "dust: no dust_mass; metallicity and mass give it for a stated dust-to-metal ratio",
        "neutral hydrogen: hi_fraction",
        "maps (products.gas: true): gas mass, velocity and dispersion, metallicity, star formation rate, neutral "
        "hydrogen",
    )


def test_light_of_gas_that_has_little():
    rate = FieldReport("star_formation_rate", unit="Msun / yr", total=0.0, n_values=7, n_positive=0)
    still = "nebulae: none around forming stars: star_formation_rate is 0 in all 7 particles"
    metals = "abundances: O/H from metallicity in solar proportions (no oxygen_fraction)"
    assert light_of_gas([rate, FieldReport("metallicity")])[:2] == (still, metals)
    damaged = [FieldReport(name, problems=("2 NaN",)) for name in ("star_formation_rate", "dust_mass")]
    assert light_of_gas([*damaged, FieldReport("oxygen_fraction")]) == (
        "nebulae: star_formation_rate has no number that can be read",
        "abundances: O/H from oxygen_fraction and a usual share of hydrogen (no hydrogen_fraction)",
        "dust: dust_mass has no number that can be read",
        "neutral hydrogen: neither hi_fraction nor h2_fraction",
        "maps (products.gas: true): none (no mass)",
    )
    forming = FieldReport("star_formation_rate", n_values=7, n_positive=2)
    assert light_of_gas([forming])[0] == "nebulae: none around forming stars (no metallicity, by which they ionise)"
    nothing = ("abundances: neither oxygen_fraction nor metallicity", "dust: neither dust_mass nor metallicity")
    assert light_of_gas([])[1:3] == nothing


@pytest.mark.parametrize(("name", "stated"), [("simba", "1e10 Msun x h^-1 = 1.42857e+10 Msun"), ("swift", "")])
def test_dust_and_hydrogen_in_the_report(tmp_path, name, stated):
    """Masses of dust, and fractions of the mass, in Msun; the product is named."""
    with h5py.File(write_small(tmp_path / "gas.hdf5", name)) as file:
        gas = {key: values[()] for key, values in file["PartType0"].items() if hasattr(values, "shape")}
    dust = gas["Dust_Masses"] / 0.7 if name == "simba" else gas["TotalDustMassFractions"] * gas["Masses"]
    rows, inspection = fields_of(tmp_path / "gas.hdf5", "gas", reader=name)
    assert rows["dust_mass"].total == pytest.approx(dust.sum() * 1e10, rel=1e-9)
    assert (rows["dust_mass"].unit, rows["dust_mass"].conversion) == ("Msun", stated)
    abundance = "NeutralHydrogenAbundance" if name == "simba" else "SpeciesFractions[:, 1]"
    assert rows["hi_fraction"].dataset == f"{abundance} x hydrogen_fraction"
    assert rows["dust_mass"].dataset == ("Dust_Masses" if name == "simba" else "TotalDustMassFractions x mass")
    (light,) = [report.light for report in inspection.groups if report.family == "gas"]
    assert f"dust: dust_mass, {dust.sum() * 1e10:.5g} Msun in all" in light
    assert "neutral hydrogen: hi_fraction and h2_fraction" in light


def test_the_ages_of_the_report_are_those_of_the_cosmology():
    cosmology = FlatLambdaCDM(H0=50, Om0=0.3, Tcmb0=0)
    birth = np.array([3.0, 1.5])
    ages = (cosmology.age(1.0) - cosmology.age(birth)).to_value(units.Gyr)
    assert [f"{age:.5g}" for age in ages] == ["5.0948", "2.1713"]
    assert f"{cosmology.age(1.0).to_value(units.Gyr):.4g}" == "8.052"


def fields_of(path, family="stars", **section):
    """Quantity -> its row, and the whole inspection."""
    inspection = inspect_galaxy({"path": str(path), "reader": "illustris", **section})
    rows = [row for report in inspection.groups if report.family == family for row in report.fields]
    return {row.quantity: row for row in rows}, inspection


def notes_of(inspection, family):
    return [note for report in inspection.groups if report.family == family for note in report.notes]


def test_values_that_are_no_numbers_are_counted_and_the_others_shown(tmp_path, capsys):
    groups = tiny_groups()
    groups["PartType4"]["Masses"] = np.array([1, np.nan, np.inf, 4])
    groups["PartType4"]["Velocities"][2, 1] = np.nan
    groups["PartType0"] |= {"Density": np.array([-1.0, 3.0]), "GFM_Metallicity": np.array([0.5, 1.5])}
    path = write(tmp_path / "bad.hdf5", groups)
    stars, inspection = fields_of(path)
    assert stars["mass"].problems == ("1 NaN", "1 infinite")
    assert (stars["mass"].smallest, stars["mass"].largest) == pytest.approx((2e10, 8e10))
    assert stars["velocity"].problems == ("1 NaN",)
    assert stars["velocity"].largest == pytest.approx(2 * np.sqrt(0.5))
    gas, _ = fields_of(path, "gas")
    assert gas["density"].problems == ("1 negative",)
    assert gas["metallicity"].problems == ("1 above 1", "expected mass fractions: is it in solar units?")
    code, text, errors = inspect(capsys, path, "--reader", "illustris")
    assert code == 2
    assert "  - mass: 1 NaN; 1 infinite" in text.splitlines()
    assert "  - PartType4: Masses: 1 NaN" in text.splitlines()
    assert "Once the problems are solved" in text
    assert errors == f"rubix-like: {path} cannot be used as it is: {len(inspection.problems)} problems, as listed\n"


def damage(path, dataset):
    """Overwrite the middle of a compressed dataset's only chunk."""
    with h5py.File(path) as file:
        chunk = file[dataset].id.get_chunk_info(0)
    with path.open("r+b") as file:
        file.seek(chunk.byte_offset + chunk.size // 2)
        file.write(b"\xff" * (chunk.size // 3))


def test_a_damaged_dataset_is_one_row_and_the_others_go_on(tmp_path):
    groups = tiny_groups()
    masses = groups["PartType4"].pop("Masses")
    path = write(tmp_path / "damaged.hdf5", groups)
    with h5py.File(path, "a") as file:
        file.create_dataset("PartType4/Masses", data=masses, compression="gzip", chunks=(4,))
    damage(path, "PartType4/Masses")
    stars, inspection = fields_of(path)
    assert stars["position"].largest == pytest.approx(5.5, rel=1e-6)
    assert stars["mass"].shape == (4,)
    assert stars["mass"].median is None
    (problem,) = stars["mass"].problems
    assert "PartType4/Masses cannot be read" in problem
    assert any("Masses" in text for text in inspection.problems)
    assert max(map(len, inspection_text(inspection).splitlines())) <= 120


def test_a_dataset_of_another_shape(tmp_path):
    groups = tiny_groups()
    groups["PartType4"]["Velocities"] = np.ones((4, 2))
    stars, _ = fields_of(write(tmp_path / "odd.hdf5", groups))
    assert "expected shape (N, 3), got (4, 2)" in stars["velocity"].problems[0]
    assert stars["position"].largest == pytest.approx(5.5, rel=1e-6)


def test_datasets_of_other_lengths(tmp_path, capsys):
    groups = tiny_groups()
    groups["PartType4"]["Masses"] = np.ones(3)
    code, text, _ = inspect(capsys, write(tmp_path / "odd.hdf5", groups), "--reader", "illustris")
    assert code == 2
    assert "expected as many rows in every dataset, got Coordinates 4, Velocities 4, Masses 3" in " ".join(text.split())
    assert "    Masses  (3) float64" in text.splitlines()


def test_births_after_the_snapshot(tmp_path):
    groups = tiny_groups()
    groups["PartType4"]["GFM_StellarFormationTime"][0] = 0.9
    stars, inspection = fields_of(write(tmp_path / "late.hdf5", groups))
    assert stars["birth_scale_factor"].largest == 0.9
    assert "birth" in stars["age"].problems[0]
    assert inspection.problems


@pytest.mark.parametrize(
    ("family", "removed", "note", "needed"),
    [
        ("stars", "Velocities", "no velocities: galaxy.velocities: zero", {"velocities": "zero", "ages": "recipe"}),
        ("stars", "GFM_StellarFormationTime", "no ages: galaxy.ages: recipe", {"ages": "recipe"}),
        ("gas", "Velocities", "no velocities: the gas is left out unless", {"ages": "recipe"}),
        ("gas", "GFM_Metallicity", "no metallicities: the gas has no map of them", {"ages": "recipe"}),
    ],
)
def test_what_is_missing_and_what_follows(tmp_path, family, removed, note, needed):
    groups = tiny_groups()
    del groups["PartType4" if family == "stars" else "PartType0"][removed]
    path = write(tmp_path / "less.hdf5", groups)
    inspection = inspect_galaxy({"path": str(path), "reader": "illustris"})
    assert any(text.startswith(note) for text in notes_of(inspection, family))
    section = yaml.safe_load(inspection.galaxy)["galaxy"]
    assert section == {"path": str(path), "reader": "illustris", **needed}


def test_the_temperature_that_follows(tmp_path):
    groups = tiny_groups()
    groups["PartType0"] |= {"InternalEnergy": np.ones(2)}
    start = "no temperatures: they follow from internal_energy"
    _, inspection = fields_of(write(tmp_path / "warm.hdf5", groups))
    text = f"{start} and a hydrogen fraction of 0.76, the gas being taken as neutral below 10000 K and ionised above"
    assert text in notes_of(inspection, "gas")
    groups["PartType0"] |= {"ElectronAbundance": np.ones(2), "GFM_Metals": np.full((2, 10), 0.5)}
    _, inspection = fields_of(write(tmp_path / "known.hdf5", groups))
    assert f"{start}, electron_abundance and hydrogen_fraction" in notes_of(inspection, "gas")


def test_a_file_without_stars_is_a_problem(tmp_path):
    groups = tiny_groups()
    del groups["PartType4"]
    inspection = inspect_galaxy({"path": str(write(tmp_path / "gas.hdf5", groups)), "reader": "illustris"})
    assert inspection.problems == ("no stars (PartType4)",)
    groups = tiny_groups()
    groups["PartType4"]["GFM_StellarFormationTime"][:] = -1
    inspection = inspect_galaxy({"path": str(write(tmp_path / "wind.hdf5", groups)), "reader": "illustris"})
    assert "no stars (PartType4)" in inspection.problems


@pytest.mark.parametrize("missing", ["HubbleParam", "Time"])
def test_a_header_that_cannot_be_read_shows_what_is_there(tmp_path, capsys, missing):
    header = {key: value for key, value in HEADER.items() if key not in {missing, "Redshift"}}
    path = write(tmp_path / "headless.hdf5", tiny_groups(), header)
    code, text, errors = inspect(capsys, path)
    assert code == 2
    assert f"Header has no attribute {missing}" in " ".join(text.split())
    assert "    Coordinates  (4, 3) float64" in text.splitlines()
    assert errors == f"rubix-like: {path} cannot be used as it is: 1 problem, as listed\n"


UNKNOWN = """\
What is in it:
Info
    @Epoch = 0.5
    @Names = ['a' 'b']
Stars
    @What = particles
    Age  (4) float32
    Mass  (4) float64
    Pos  (4, 3) float64
    vx  (4) int64

A field map says where a simulation keeps what is needed. Save this as my_simulation.yaml, correct groups, datasets,
units and their powers of a and h (keys a: and h:), add what is missing (docs/how-to-extend.md), and try it with
  rubix-like inspect unknown.hdf5 --reader my_simulation.yaml

title: My simulation
source: where its units are documented
expansion: auto
stars:
  groups: Stars
  fields:
    position:
      dataset: Pos
      unit: kpc
    velocity:
      stack:
      - vx
      - vy
      - vz
      unit: km / s
    mass:
      dataset: Mass
      unit: Msun
    age:
      dataset: Age
      unit: Gyr

Problems
"""


def test_a_file_that_nobody_knows(capsys):
    with h5py.File("unknown.hdf5", "w") as file:
        file["Stars/Pos"], file["Stars/Mass"] = np.ones((4, 3)), np.ones(4)
        file["Stars/Age"], file["Stars/vx"] = np.ones(4, ">f4"), np.arange(4)
        file["Stars"].attrs["What"] = b"particles"
        file.create_group("Info").attrs["Epoch"] = 0.5
        file["Info"].attrs["Names"] = ["a", "b"]
    code, text, errors = inspect(capsys, "unknown.hdf5")
    assert UNKNOWN in text
    file, problem = text.splitlines()[:2]
    assert file.split() == ["file", "unknown.hdf5"]
    assert problem.startswith("problem  galaxy.path: 'unknown.hdf5' is not recognised (")
    assert "'unknown.hdf5' is not recognised" in text
    assert (code, errors) == (2, "rubix-like: unknown.hdf5 cannot be used as it is: 1 problem, as listed\n")


def test_the_start_of_a_field_map_is_one():
    with h5py.File("unknown.hdf5", "w") as file:
        file["Stars/Pos"], file["Stars/Mass"], file["Stars/Velocity"] = np.ones((4, 3)), np.ones(4), np.ones((4, 3))
    start = inspect_galaxy({"path": "unknown.hdf5"}).field_map
    assert parse_field_map(yaml.safe_load(start), "start").stars.groups == ("Stars",)
    Path("my_simulation.yaml").write_text(start)
    stars, inspection = fields_of("unknown.hdf5", reader="my_simulation.yaml")
    assert set(stars) == {"position", "velocity", "mass"}
    assert inspection.facts["recognised"].startswith("My simulation (my_simulation.yaml, as named): it has nothing")
    assert yaml.safe_load(inspection.galaxy)["galaxy"]["reader"] == "my_simulation.yaml"


def test_a_wrong_kind_that_is_named(tmp_path, capsys):
    write(tmp_path / "tiny.hdf5", {"Stars": {"Mass": np.ones(3)}})
    code, text, _ = inspect(capsys, "tiny.hdf5", "--reader", "eagle")
    assert code == 2
    assert "expected 'tiny.hdf5' to have PartType4 or PartType0 (EAGLE)" in " ".join(text.splitlines()[1].split())
    assert "field map says" not in text
    assert "    Mass  (3) float64" in text.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.hdf5"], "no file 'gone.hdf5'"),
        (["tiny.hdf5", "--reader", "ilustris"], "unknown reader 'ilustris'; did you mean 'illustris'?"),
        (["tiny.hdf5", "--reader", "synthetic"], "the reader 'synthetic' reads without one"),
        (["tiny.hdf5", "--set", "galaxy.velocites=zero"], "galaxy: unknown key 'velocites'; did you mean 'velocities'"),
        (["tiny.hdf5", "--set", "noise.seed=1"], "--set: expected a key of the section galaxy"),
        (["tiny.hdf5", "--set", "galaxy.center"], "--set: expected KEY=VALUE"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, arguments, message):
    write(tmp_path / "tiny.hdf5", tiny_groups())
    code, text, errors = inspect(capsys, *arguments)
    assert (code, text) == (2, "")
    assert message in errors


def test_keys_that_are_set_are_in_the_section_to_run(tmp_path, capsys):
    write(tmp_path / "tiny.hdf5", tiny_groups())
    _, text, _ = inspect(
        capsys, "tiny.hdf5", "--reader", "illustris", "--set", "galaxy.center=[1, 2, 3]", "galaxy.ages={history: burst}"
    )
    section = yaml.safe_load(text[text.index("galaxy:\n") :])["galaxy"]
    assert section == {
        "path": "tiny.hdf5",
        "reader": "illustris",
        "center": [1, 2, 3],
        "ages": {"history": "burst"},
    }


def test_a_selection_is_counted(tmp_path, capsys):
    write(tmp_path / "tiny.hdf5", tiny_groups())
    arguments = ["tiny.hdf5", "--reader", "illustris", "--set", "galaxy.sphere.center=[0, 1, 2]"]
    code, text, errors = inspect(capsys, *arguments, "galaxy.sphere.radius=6 kpc")
    assert (code, errors) == (0, "")
    assert "Selected: 2 of 4 stars and 2 of 2 gas" in text.splitlines()
    kept = "3 (1 wind cells (GFM_StellarFormationTime <= 0) left out)"
    assert f"Stars in PartType4: {kept}, ranges and sums of the whole file" in text.splitlines()
    section = yaml.safe_load(text[text.rindex("galaxy:") :])["galaxy"]
    assert section["sphere"] == {"center": [0, 1, 2], "radius": "6 kpc"}
    code, text, _ = inspect(capsys, *arguments, "galaxy.sphere.radius=8 kpc", "galaxy.sphere.center=[500, 500, 500]")
    assert code == 2
    assert "none of the 3 stars" in " ".join(text.split())


def test_files_of_one_snapshot(tmp_path, capsys):
    whole, parts = tiny_groups(), ({}, {})
    for group, table in whole.items():
        for part, rows in zip(parts, (slice(0, 1), slice(1, None)), strict=True):
            part[group] = {name: values[rows] for name, values in table.items()}
    counts = {"NumFilesPerSnapshot": 2, "NumPart_Total": [2, 5, 0, 0, 7, 0]}
    for number, part in enumerate(parts):
        here = [len(part["PartType0"]["Masses"]), 0, 0, 0, len(part["PartType4"]["Masses"]), 0]
        write(tmp_path / f"snap.{number}.hdf5", part, HEADER | counts | {"NumPart_ThisFile": here})
    code, text, errors = inspect(capsys, "snap.0.hdf5", "snap.1.hdf5", "--reader", "illustris")
    assert (code, errors) == (0, "")
    lines = text.splitlines()
    expected = TINY.splitlines()
    for start in ("  mass  ", "  position  ", "  velocity  ", "  density  "):
        assert [line for line in lines if line.startswith(start)] == [x for x in expected if x.startswith(start)]
    assert "PartType4 has 4 rows in all files together, but the Header tells of 7" in text
    assert "NumPart_ThisFile" not in text
    assert yaml.safe_load(text[text.rindex("galaxy:") :])["galaxy"]["path"] == ["snap.0.hdf5", "snap.1.hdf5"]


def in_slabs(values, kept, size):
    return [(values[i : i + size], kept[i : i + size]) for i in range(0, len(values), size)]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("shape", [(101,), (101, 3)])
def test_ranges_do_not_depend_on_the_slabs(size, shape):
    rng = np.random.default_rng(3)
    values, kept = rng.normal(size=shape), rng.random(101) < 0.7
    values[5], values[9] = np.nan, np.inf
    components = measure_range(in_slabs(values, kept, size), 101, low=-1.0, high=2.0)
    assert len(components) == values[0].size
    for found, column in zip(components, values.reshape(101, -1).T, strict=True):
        good = column[kept & np.isfinite(column)]
        assert (found.smallest, found.largest, found.median) == (good.min(), good.max(), np.median(good))
        assert found.total == pytest.approx(good.sum())
        assert (found.n_values, found.n_nan, found.n_infinite) == (good.size, 1, 1)
        assert (found.n_below, found.n_above) == ((good < -1).sum(), (good > 2).sum())


def test_the_median_of_many_rows_is_that_of_every_few(monkeypatch):
    monkeypatch.setattr(groups, "MEDIAN_ROWS", 10)
    values = np.random.default_rng(4).normal(size=35)
    kept = np.arange(35) % 3 > 0
    for size in (1, 5, 35):
        (found,) = measure_range(in_slabs(values, kept, size), 35)
        assert found.median == np.median(values[::4][kept[::4]])


def test_nothing_finite_has_no_range():
    (found,) = measure_range([(np.full(3, np.nan), np.ones(3, dtype=bool))], 3)
    assert (found.smallest, found.median, found.largest, found.n_nan) == (None, None, None, 3)
    assert measure_range([], 0)[0].median is None


def test_tables_fit_their_width_and_lose_nothing():
    rows = [("one", "x" * 50, "", "[bold]a[/bold]"), ("two", "short words that may be wrapped at spaces", "", "b")]
    text = table_text(("name", "long", "empty", "last"), rows, 60)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 60
    assert "empty" not in text
    assert text.count("x") == 50
    assert "[bold]a[/bold]" in text


@pytest.mark.slow
def test_real_files_are_described_in_full(real_data: Path, capsys):
    paths = sorted(path for path in (real_data / "galaxies").iterdir() if "_subhalo." not in path.name)
    assert len(paths) > 12
    for path in paths:
        code, text, errors = inspect(capsys, path)
        assert (code, errors) == (0, ""), errors
        assert text.isascii(), path
        assert max(map(len, text.splitlines())) <= 120, path
        section = yaml.safe_load(text[text.rindex("To be read by\n") :].removeprefix("To be read by\n"))
        assert section["galaxy"]["path"] == str(path)


def test_a_table(capsys):
    rng = np.random.default_rng(2)
    columns = {name: rng.normal(size=5) for name in ("x", "y", "z", "vx", "vy", "vz")}
    Table(dict(**columns, m=np.full(5, 1e6), t=np.full(5, 5.0))).write("stars.ecsv")
    code, text, _ = inspect(capsys, "stars.ecsv", "--set", "galaxy.columns={age: {column: t, unit: Gyr}}")
    assert code == 0
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "age t (5) float64 Gyr table" in lines
    assert "age Gyr 5 5 5" in lines
    assert [line.split()[0] for line in lines[:6] if line] == [
        "file",
        "kind",
        "recognised",
        "simulation",
        "cosmology",
        "periodic",
    ]
    assert "position x, y, z (5) float64 kpc table" in lines
    assert "- position: the file has no unit for x y z: taken as kpc" in lines
    section = yaml.safe_load(text[text.rindex("galaxy:") :])["galaxy"]
    assert section == {"path": "stars.ecsv", "columns": {"age": {"column": "t", "unit": "Gyr"}}, "ages": "recipe"}
    code, text, _ = inspect(capsys, "stars.ecsv", "--reader", "eagle")
    assert code == 2
    assert "field map says" not in text


def test_a_table_whose_columns_nobody_knows(capsys):
    Table({"a": np.ones(5), "b": np.ones(5)}).write("odd.ecsv")
    code, text, errors = inspect(capsys, "odd.ecsv")
    remedy = "galaxy.columns: {position: [..., ..., ...], mass: ...} (not used: a, b)"
    assert f"table: no position and mass recognised; name the columns, {remedy}" in " ".join(text.split())
    assert (code, errors) == (2, "rubix-like: odd.ecsv cannot be used as it is: 1 problem, as listed\n")
    Table({"x": np.ones(5), "y": np.ones(5), "z": np.ones(5), "vx": np.ones(5), "w": np.ones(5)}).write("half.ecsv")
    code, text, _ = inspect(capsys, "half.ecsv")
    words = " ".join(text.split())
    assert code == 2
    assert "table: no mass recognised; name the columns, galaxy.columns: {mass: ...} (not used: vx, w)" in words
    assert (
        "no velocities: name the columns, galaxy.columns: {velocity: [..., ..., ...]} (not used: vx, w); or galaxy"
        in words
    )
    assert "\nTo be read by" not in text


MY_MAP = """\
title: Mine
source: none
expansion: never
stars:
  groups: particles/star
  fields:
    position: {dataset: r, unit: kpc}
    velocity: {dataset: speed, unit: km / s}
    mass: {dataset: m, unit: Msun}
    age: {dataset: t, unit: Gyr}
"""


def my_galaxy(*left_out):
    shapes = {"r": (4, 3), "v": (4, 3), "m": (4,), "t": (4,), "s": (4,)}
    with h5py.File("mine.hdf5", "w") as file:
        for name, shape in shapes.items():
            if name not in left_out:
                file[f"particles/star/{name}"] = np.full(shape, 2.0)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("dataset: m,", "dataset: mass,", "no mass (particles/star/mass): the file cannot be read without"),
        ("dataset: r,", "stack: [r, q, vv],", "no position (particles/star/q or vv; did you mean 'v'?): the file"),
    ],
)
def test_a_field_map_that_names_what_is_not_there_for_what_is_needed(capsys, old, new, problem):
    my_galaxy()
    Path("my.yaml").write_text(MY_MAP.replace(old, new).replace("speed", "none"))
    code, text, _ = inspect(capsys, "mine.hdf5", "--reader", "my.yaml")
    assert code == 2
    assert f"  - particles/star: {problem}" in text
    assert "\nTo be read by" not in text


def test_a_field_map_that_names_velocities_that_are_not_there(capsys):
    my_galaxy()
    Path("my.yaml").write_text(MY_MAP)
    code, text, _ = inspect(capsys, "mine.hdf5", "--reader", "my.yaml")
    hint = "the field map names speed, not in particles/star; did you mean 'v'? Or galaxy.velocities: zero makes"
    words = " ".join(text.split())
    assert code == 0
    assert f"no velocities: {hint}" in words
    assert "age Gyr 2 2 2" in words
    assert "\nNot used:" not in text
    assert "\ntime " not in text
    assert "\nh " not in text


def test_ages_follow_from_birth_times_in_gigayears():
    my_galaxy()
    clock = "header: {time: [/now]}\nstars:"
    text = MY_MAP.replace("age: {dataset: t", "birth_time: {dataset: t").replace("stars:", clock)
    Path("my.yaml").write_text(text)
    with h5py.File("mine.hdf5", "a") as file:
        file.attrs["now"] = 5.0
    stars, inspection = fields_of("mine.hdf5", reader="my.yaml")
    assert (stars["birth_time"].unit, stars["birth_time"].median) == ("Gyr", pytest.approx(2.0))
    assert (stars["age"].unit, stars["age"].median) == ("Gyr", pytest.approx(3.0))
    assert inspection.facts["time"] == "5 as stored"


@pytest.mark.parametrize(
    ("stored", "text"), [(b'"Eagle', "Eagle"), ("'TNG50-1'", "TNG50-1"), ("5'", "5'"), (None, ""), ([b" a "], "a")]
)
def test_text_without_the_quotes_that_it_begins_with(stored, text):
    assert as_text(stored) == text


def test_the_light_of_real_gas(real_data: Path):
    """GIZMO's disc: cells that form stars and their rates, counted here."""
    path = real_data / "galaxies" / "gizmo_isolated_C16.hdf5"
    with h5py.File(path) as file:
        rate = file["PartType0/StarFormationRate"][()]
    _, inspection = fields_of(path, reader="gizmo")
    (light,) = [report.light for report in inspection.groups if report.family == "gas"]
    counts = f"{(rate > 0).sum()} of {rate.size} particles, {rate.sum():.5g} Msun / yr in all"
    assert light[0] == f"nebulae: around forming stars: star_formation_rate is above 0 in {counts}"
    assert light[-2] == "neutral hydrogen: hi_fraction and h2_fraction"


def test_a_real_galaxy_against_numpy(real_data: Path):
    path = real_data / "galaxies" / "EAGLE_snap28_G92_9_full7524.hdf5"
    stars, inspection = fields_of(path, reader="eagle")
    with h5py.File(path) as file:
        mass = file["PartType4/Mass"][()].astype(float) * 1e10 / 0.6777
        position = file["PartType4/Coordinates"][()] * 1e3 / 0.6777
    assert stars["mass"].total == pytest.approx(mass.sum(), rel=1e-12)
    assert (stars["position"].smallest, stars["position"].largest) == pytest.approx((position.min(), position.max()))
    expected = np.stack([position.min(axis=0), np.median(position, axis=0), position.max(axis=0)], axis=1)
    np.testing.assert_allclose(stars["position"].axes, expected, rtol=1e-12)
    assert inspection.facts["simulation"] == "Eagle"
    assert "half-mass radius" in stars["smoothing_length"].remark
    assert stars["mass"].conversion == "1e10 Msun x h^-1 = 1.47558e+10 Msun"
    assert inspection.groups[0].n_rows == mass.size
    with pytest.raises(ConfigError, match="reads without one"):
        inspect_galaxy({"path": str(path), "reader": "synthetic"})

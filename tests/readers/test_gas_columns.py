"""What gas shines by, in every simulation: stored numbers and factors as the simulations' own pages give them."""

import dataclasses

import h5py
import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from small_snapshots import A, H, write_small
from snapshot_reading import opened_by, reader_of, watched

from rubix_like import ConfigError, Gas
from rubix_like.extend import load_field_map, resource_names
from rubix_like.galaxy.validation import validate_gas
from rubix_like.readers.fields.field_map import parse_field_map
from rubix_like.readers.snapshot import complete_gas

TEN_METALS = [0.74, 0.24, 0.004, 0.001, 0.008, 0.002, 0.001, 0.001, 0.002, 0.001]
"""GFM_Metals of TNG: H He C N O Ne Mg Si Fe and the others."""

ELEVEN_METALS = [0.02, 0.25, 0.004, 0.001, 0.008, 0.002, 0.001, 0.001, 0.001, 0.001, 0.001]
"""Metallicity of GIZMO and SIMBA: all metals, then He C N O Ne Mg Si S Ca Fe."""

ELEVEN_MASSES = [5e-5, 1e-6, 1e-6, 2e-6, 1e-6, *[3e-7] * 6]
"""Metallicity of Magneticum in cells of a mass of 2e-4: masses of He C Ca O N Ne Mg S Si Fe and the others."""

NINE_METALS = [0.74, 0.24, 0.004, 0.001, 0.008, 0.002, 0.001, 0.001, 0.002]
"""ElementMassFractions of SWIFT: H He C N O Ne Mg Si Fe."""

CHIMES = [0.3, 0.5, 0.2, 0.0, 0.08, 0.01, 0.0, 0.15, 0.0, 0.0]
"""SpeciesFractions of COLIBRE per hydrogen nucleus: e HI HII H- HeI HeII HeIII H2 H2+ H3+."""

SWIFT_RATE = 1e10 * 3.15576e7 / 3.0856775814913673e19
"""Msun/yr in 1e10 Msun km/s/Mpc: seconds in a year over km in a Mpc. swiftsimio prints it as 10227144.89 Msun/Gyr."""


def cell_length(mass, density):
    """Twice the radius of a sphere of the cell's volume, in kpc."""
    return 2 * (3 * mass / (4 * np.pi * density)) ** (1 / 3)


TNG = {  # tng-project.org/data/docs/specifications, PartType0
    "star_formation_rate": ({"StarFormationRate": 0.3}, 0.3),  # Msun/yr
    "metallicity": ({"GFM_Metallicity": 0.02}, 0.02),
    "hydrogen_fraction": ({"GFM_Metals": TEN_METALS}, 0.74),
    "oxygen_fraction": ({"GFM_Metals": TEN_METALS}, 0.008),
    "hi_fraction": ({"NeutralHydrogenAbundance": 0.9, "GFM_Metals": TEN_METALS}, 0.9 * 0.74),  # n_H0 / n_H
}
MASS_IN_GADGET_UNITS = ({"Masses": 2e-4}, 2e-4 * 1e10 / 0.7)
KPC_OVER_H = ({"SmoothingLength": 0.6}, 0.6 * 0.5 / 0.7)  # comoving kpc/h
GIZMO = {  # GIZMO user guide, section on snapshot outputs
    "mass": MASS_IN_GADGET_UNITS,
    "star_formation_rate": ({"StarFormationRate": 0.3}, 0.3),  # Msun/yr
    "metallicity": ({"Metallicity": ELEVEN_METALS}, 0.02),
    "hydrogen_fraction": ({"Metallicity": ELEVEN_METALS}, 1 - 0.02 - 0.25),
    "oxygen_fraction": ({"Metallicity": ELEVEN_METALS}, 0.008),
    "hi_fraction": ({"NeutralHydrogenAbundance": 0.6, "Metallicity": ELEVEN_METALS}, 0.6 * 0.73),
    "h2_fraction": ({"FractionH2": 0.3, "Metallicity": ELEVEN_METALS}, 0.3 * 0.73),  # m_H2 / m_H
    "smoothing_length": KPC_OVER_H,
}
SWIFT = {  # swift.strw.leidenuniv.nl/docs/Snapshots
    "mass": ({"Masses": 2e-4}, 2e-4 * 1e10),  # no h anywhere
    "star_formation_rate": ({"StarFormationRates": 3.0}, 3 * SWIFT_RATE),
    "metallicity": ({"MetalMassFractions": 0.02}, 0.02),
    "hydrogen_fraction": ({"ElementMassFractions": NINE_METALS}, 0.74),
    "oxygen_fraction": ({"ElementMassFractions": NINE_METALS}, 0.008),
    "smoothing_length": ({"SmoothingLengths": 3e-4}, 3e-4 * 1e3 * 0.5 * 2.018932),  # FWHM to support, quartic spline
}
GAS = {
    "illustris": TNG
    | {
        "mass": MASS_IN_GADGET_UNITS,
        "smoothing_length": (
            {"Masses": 2e-4, "Density": 3e-6},
            cell_length(2e-4 * 1e10 / 0.7, 3e-6 * 1e10 * 0.7**2 / 0.5**3),  # (1e10 Msun/h) / (ckpc/h)^3
        ),
    },
    "camels": TNG | {"smoothing_length": ({"SubfindHsml": 0.6}, 0.6 * 0.5 / 0.7)},  # camels.readthedocs.io, as TNG's
    "eagle": {  # The EAGLE team 2017, arXiv:1706.09899, table of gas properties
        "mass": ({"Mass": 2e-4}, 2e-4 * 1e10 / 0.7),
        "star_formation_rate": ({"StarFormationRate": 0.3}, 0.3),  # Msun/yr
        "metallicity": ({"SmoothedMetallicity": 0.02}, 0.02),
        "hydrogen_fraction": ({"SmoothedElementAbundance/Hydrogen": 0.74}, 0.74),
        "oxygen_fraction": ({"SmoothedElementAbundance/Oxygen": 0.008}, 0.008),
        "smoothing_length": ({"SmoothingLength": 6e-4}, 6e-4 * 1e3 * 0.5 / 0.7),  # comoving Mpc/h
    },
    "horizon_agn": {  # the README in SimSpin's files: physical kpc and Msun
        "mass": ({"Mass": 2e6}, 2e6),
        "star_formation_rate": ({"StarFormationRate": 0.3}, 0.3),
        "metallicity": ({"SmoothedMetallicity": 0.02}, 0.02),
        "hydrogen_fraction": ({"SmoothedElementAbundance/Hydrogen": 0.74}, 0.74),
        "oxygen_fraction": ({"SmoothedElementAbundance/Oxygen": 0.008}, 0.008),
        "smoothing_length": ({"dx": 1.5}, 1.5),
    },
    "magneticum": {  # magneticum.org, block Zs: masses, in the unit of the cell's own
        "mass": ({"Mass": 2e-4}, 2e-4 * 1e10 / 0.7),
        "star_formation_rate": ({"StarFormationRate": 0.3}, 0.3),
        "metallicity": ({"Metallicity": ELEVEN_MASSES}, (3 * 1e-6 + 2e-6 + 6 * 3e-7) / 2e-4),
        "hydrogen_fraction": ({"Metallicity": ELEVEN_MASSES}, 1 - (5e-5 + 3 * 1e-6 + 2e-6 + 6 * 3e-7) / 2e-4),
        "oxygen_fraction": ({"Metallicity": ELEVEN_MASSES}, 2e-6 / 2e-4),
        "smoothing_length": KPC_OVER_H,
    },
    "gadget": {  # GADGET-2 user guide, section 6; HYDROGEN_MASSFRAC 0.76 in its allvars.h
        "mass": MASS_IN_GADGET_UNITS,
        "star_formation_rate": ({"StarFormationRate": 0.3}, 0.3),  # Msun/yr
        "metallicity": ({"Metallicity": 0.02}, 0.02),
        "hi_fraction": ({"NeutralHydrogenAbundance": 0.5}, 0.5 * 0.76),
        "smoothing_length": KPC_OVER_H,
    },
    "gizmo": GIZMO,
    "simba": GIZMO | {"dust_mass": ({"Dust_Masses": 3e-6}, 3e-6 * 1e10 / 0.7)},  # load_simba.py of Synthesizer
    "swift": SWIFT
    | {  # github.com/robjmcgibbon/colibre-docs: species and total dust fractions
        "hi_fraction": ({"SpeciesFractions": CHIMES, "ElementMassFractions": NINE_METALS}, 0.5 * 0.74),
        "h2_fraction": ({"SpeciesFractions": CHIMES, "ElementMassFractions": NINE_METALS}, 2 * 0.15 * 0.74),
        "dust_mass": ({"TotalDustMassFractions": 0.004, "Masses": 2e-4}, 0.004 * 2e-4 * 1e10),
    },
}
"""Simulation -> quantity -> the datasets it is made of, with the number that is stored, and what that is by hand, at
a = 0.5 and h = 0.7."""


def write(path, name, numbers, without=()):
    """The small file of a simulation whose gas has these numbers, and not the datasets `without`."""

    def change(file):
        group = file["PartType0"]
        rows = len(group["Coordinates"])
        for dataset in (*without, *numbers):
            if dataset in group:
                del group[dataset]
        for dataset, number in numbers.items():
            group[dataset] = np.stack([np.asarray(number, np.float64)] * rows)

    return write_small(path, name, change)


def read(path, name):
    """The file's gas with what can be derived, in the simulation's box."""
    field_map = load_field_map(name)
    with opened_by(field_map, path) as snapshot:
        table, _ = complete_gas(snapshot.read("gas", 0, 4))
    return Gas(**{field.name: table[field.name] for field in dataclasses.fields(Gas) if field.name in table})


@pytest.mark.parametrize("name", GAS)
def test_columns_of_gas_are_the_stored_numbers_times_factors_by_hand(tmp_path, name):
    assert (A, H) == (0.5, 0.7)
    assert pytest.approx(10227144.887961628 / 1e9, rel=1e-5) == SWIFT_RATE
    numbers = {dataset: number for stored, _ in GAS[name].values() for dataset, number in stored.items()}
    gas = read(write(tmp_path / "a.hdf5", name, numbers), name)
    for quantity, (_, expected) in GAS[name].items():
        np.testing.assert_allclose(getattr(gas, quantity), expected, rtol=1e-9, err_msg=quantity)
    validate_gas(gas)


def test_no_simulation_and_no_column_of_gas_is_left_out():
    """Of the columns that nebulae, dust and maps of hydrogen need; RUBIX's and pynbody's files have tests of their
    own."""
    needed = ("star_formation_rate", "metallicity", "oxygen_fraction", "hydrogen_fraction")
    needed += ("hi_fraction", "h2_fraction", "smoothing_length", "dust_mass")
    maps = {name: load_field_map(name) for name in resource_names("simulations")}
    others = {"galaxy_chop", "pynbody", "rubix", "rubix_pynbody"}
    assert set(GAS) == set(maps) - others
    for name, table in GAS.items():
        assert {quantity for quantity in needed if quantity in maps[name].gas.fields} <= set(table), name


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (  # SWIFT-EAGLE (PS2020 cooling) and KIARA state masses
            {"AtomicHydrogenMasses": 5e-5, "MolecularHydrogenMasses": 2e-5, "DustMasses": 1e-6, "Masses": 2e-4},
            {"hi_fraction": 0.25, "h2_fraction": 0.1, "dust_mass": 1e4},
        ),
        (  # COLIBRE's snipshots: HI HeI HeII H2 per hydrogen nucleus, hydrogen and helium
            {"ReducedSpeciesFractions": [0.5, 0.08, 0.0, 0.15], "ReducedElementMassFractions": [0.74, 0.25]},
            {"hi_fraction": 0.5 * 0.74, "h2_fraction": 2 * 0.15 * 0.74, "hydrogen_fraction": 0.74, "dust_mass": None},
        ),
        (  # PS2020 without its masses: three species, other ones
            {"SpeciesFractions": [0.5, 0.3, 0.1], "ElementMassFractions": NINE_METALS},
            {"hi_fraction": None, "h2_fraction": None, "dust_mass": None},
        ),
        (  # species of hydrogen of which nothing is known
            {"SpeciesFractions": CHIMES},
            {"hi_fraction": None, "h2_fraction": None, "hydrogen_fraction": None, "dust_mass": None},
        ),
    ],
    ids=["masses", "snipshot", "three species", "no hydrogen"],
)
def test_other_runs_of_swift(tmp_path, numbers, expected):
    without = ("SpeciesFractions", "ElementMassFractions", "TotalDustMassFractions")
    gas = read(write(tmp_path / "a.hdf5", "swift", numbers, without), "swift")
    for quantity, value in expected.items():
        if value is None:
            assert getattr(gas, quantity) is None, quantity
        else:
            np.testing.assert_allclose(getattr(gas, quantity), value, rtol=1e-9, err_msg=quantity)


def test_what_a_fraction_is_of_is_read_once(tmp_path):
    """In a whole table; where the fraction alone is asked for, what it is of is read for it."""
    path = write_small(tmp_path / "a.hdf5", "simba")
    field_map = load_field_map("simba")
    asked = []
    with opened_by(field_map, path) as opened:
        snapshot = watched(opened, asked)
        whole = snapshot.read("gas", 0, 4)
        n_reads = [name for name, *_ in asked].count("PartType0/Metallicity")
        assert n_reads == 3  # metallicity, hydrogen and oxygen, none again for HI and H2
        asked.clear()
        alone = snapshot.read("gas", 1, 3, ["hi_fraction"])
        assert {name for name, *_ in asked} == {"PartType0/NeutralHydrogenAbundance", "PartType0/Metallicity"}
    assert set(alone) >= {"hi_fraction"}
    np.testing.assert_array_equal(alone["hi_fraction"], whole["hi_fraction"][1:3])


MINE = {
    "title": "Mine",
    "source": "here",
    "expansion": "never",
    "stars": {"groups": "PartType4", "fields": {"position": {"dataset": "Pos", "unit": "kpc"}}},
    "gas": {
        "groups": "PartType0",
        "fields": {
            "position": {"dataset": "Pos", "unit": "kpc"},
            "mass": {"dataset": "Masses", "unit": "Msun", "mass_table": True},
            "dust_mass": {"dataset": "Dust", "fraction_of": "mass"},
        },
    },
}


def test_a_fraction_of_the_mass_in_the_header(tmp_path):
    """The same whether the masses are a dataset or one number of the MassTable."""
    for name, masses in (("table", None), ("dataset", np.full(3, 5.0))):
        path = tmp_path / f"{name}.hdf5"
        with h5py.File(path, "w") as file:
            file.create_group("Header").attrs["MassTable"] = np.array([5.0, 0, 0, 0, 0, 0])
            file["PartType0/Pos"], file["PartType0/Dust"] = np.ones((3, 3)), np.array([0.0, 0.01, 0.02])
            if masses is not None:
                file["PartType0/Masses"] = masses
        field_map = parse_field_map(MINE, "mine")
        with opened_by(field_map, path) as snapshot:
            table = snapshot.read("gas", 0, 3)
        np.testing.assert_allclose(table["dust_mass"], [0.0, 0.05, 0.1])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"fraction_of": "masss"}, r"dust_mass: fraction_of: .* got 'masss'; did you mean 'mass'"),
        ({"fraction_of": "position"}, "dust_mass: fraction_of: expected a quantity .* got 'position'"),
        ({"fraction_of": "dust_mass"}, "dust_mass: fraction_of: expected a quantity .* got 'dust_mass'"),
        ({"fraction_of": "metallicity"}, "dust_mass: fraction_of: metallicity: expected a unit of Msun"),
        ({"fraction_of": "mass", "unit": "Msun"}, "dust_mass: expected a unit of a pure number"),
        ({"otherwise": {"dataset": "D", "fraction_of": "gas"}, "unit": "Msun"}, "fraction_of: expected a quantity"),
    ],
)
def test_a_fraction_of_what_cannot_be_is_refused(field, message):
    fields = MINE["gas"]["fields"] | {"metallicity": {"dataset": "Z"}, "dust_mass": {"dataset": "Dust"} | field}
    with pytest.raises(ConfigError, match=message):
        parse_field_map(MINE | {"gas": {"groups": "PartType0", "fields": fields}}, "mine")


def test_parts_of_the_gas_are_the_whole(tmp_path):
    path = write_small(tmp_path / "a.hdf5", "simba")
    reader = reader_of(path=path, center=(0, 0, 0))
    whole = reader.load()[0].gas
    with reader.open_galaxy() as galaxy:
        parts = [galaxy.read_gas(0, 3), galaxy.read_gas(3, 4)]
    for name in ("hi_fraction", "h2_fraction", "dust_mass", "star_formation_rate", "oxygen_fraction"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)


def test_columns_of_a_table(tmp_path):
    """By their names; a unit that the table does not state is kpc, Msun ..., which is noted."""
    known = {"hi_fraction": [0.3, 0.2], "h2_fraction": [0.1, 0.0], "dust_mass": [1e3, 0.0], "sfr": [0.0, 2.0]}
    both = dict.fromkeys("xyz", np.ones(2)) | dict.fromkeys(("vx", "vy", "vz"), np.zeros(2))
    both |= {"mass": np.full(2, 1e6), "Z": np.full(2, 0.02)}
    tables = {"stars": both | {"log_age": np.full(2, 9.0)}, "gas": both | known}
    hdus = [fits.BinTableHDU(Table(columns), name=name) for name, columns in tables.items()]
    fits.HDUList([fits.PrimaryHDU(), *hdus]).writeto(tmp_path / "a.fits")
    galaxy, info = reader_of(path=tmp_path / "a.fits", center=(0, 0, 0)).load()
    found = dataclasses.asdict(galaxy.gas)
    for name, values in known.items():
        np.testing.assert_array_equal(found["star_formation_rate" if name == "sfr" else name], values, err_msg=name)
    assert "gas.dust_mass: the file has no unit for dust_mass: taken as Msun" in info.notes

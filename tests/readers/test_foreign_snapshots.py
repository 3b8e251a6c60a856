"""Snapshots as other codes and hands write them: right numbers, by numpy from the formulas, or a remedy that works."""

import struct

import h5py
import numpy as np
import pytest
from scipy.integrate import quad
from snapshot_reading import reader_of

N = 200
RNG = np.random.default_rng(1)
OFFSET = RNG.normal(0, 3, (N, 3))
VELOCITY = RNG.normal(0, 100, (N, 3))
BIRTH = RNG.uniform(0.1, 0.5, N)
GYR = 3.085678e16 / 3.15576e16
"""kpc / (km/s) in Gyr."""

ISOLATED = {"Time": 0.5, "Redshift": 0.0, "Omega0": 0.0, "OmegaLambda": 0.0, "HubbleParam": 1.0, "BoxSize": 600.0}
COSMOLOGICAL = {
    "Time": 0.8,
    "Redshift": 0.25,
    "Omega0": 0.3,
    "OmegaLambda": 0.7,
    "HubbleParam": 0.7,
    "BoxSize": 35e3,
}


def write(path, header, stars, **groups):
    """A file with a Header, PartType4 and other groups of datasets or, as `Group@`, of attributes."""
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update({"MassTable": np.zeros(6), "NumFilesPerSnapshot": 1} | header)
        for name, content in {"PartType4": stars, **groups}.items():
            group = file.require_group(name.removesuffix("_attributes"))
            if name.endswith("_attributes"):
                group.attrs.update(content)
            else:
                for key, values in content.items():
                    group[key] = values
    return path


def stars(**more):
    return {
        "Coordinates": 300 + OFFSET,
        "Velocities": VELOCITY,
        "Masses": np.full(N, 1e-4),
        "Metallicity": np.full(N, 0.02),
    } | more


def arepo(**more):
    columns = stars()
    columns["GFM_Metallicity"] = columns.pop("Metallicity")
    return columns | more


def load(path, **galaxy):
    found, info = reader_of(path=path, **galaxy).load()
    return found.stars, info


def radius(position):
    position = np.asarray(position)
    return np.median(np.linalg.norm(position - np.median(position, axis=0), axis=1))


def age_since(birth, now, h=0.7, omega_m=0.3):
    """Gyr between two scale factors of a flat universe."""
    return quad(lambda a: 1 / np.sqrt(omega_m / a + (1 - omega_m) * a**2), birth, now)[0] * GYR * 10 / h


@pytest.mark.parametrize("code", ["AREPO", "SWIFT"])
def test_births_of_an_isolated_run_are_times(tmp_path, code):
    """Ages are (now - birth) kpc / (km/s), h being 1."""
    if code == "AREPO":
        parameters = {"ComovingIntegrationOn": 0, "UnitLength_in_cm": 3.085678e21, "UnitVelocity_in_cm_per_s": 1e5}
        content = arepo(GFM_StellarFormationTime=BIRTH)
        path = write(tmp_path / "a.hdf5", ISOLATED, content, Parameters_attributes=parameters)
    else:
        content = {"Coordinates": OFFSET, "Velocities": VELOCITY, "Masses": np.full(N, 1e-4), "BirthTimes": BIRTH}
        elements = np.stack([*np.full((9, N), 1e-3), RNG.uniform(0.01, 0.02, N)], axis=1)
        path = write(
            tmp_path / "a.hdf5",
            {"Time": 0.5, "Redshift": 0.0, "Scale-factor": 1.0},
            content | {"MetalMassFractions": elements},
            Code_attributes={"Code": "SWIFT"},
            Cosmology_attributes={"Cosmological run": 0, "h": 1.0, "Omega_m": 0.0},
            Units_attributes={
                "Unit length in cgs (U_L)": 3.085678e21,
                "Unit mass in cgs (U_M)": 1.98841e43,
                "Unit time in cgs (U_t)": 3.085678e16,
            },
        )
    found, info = load(path)
    assert info.redshift is None
    np.testing.assert_allclose(10 ** np.asarray(found.log_age) / 1e9, (0.5 - BIRTH) * GYR, rtol=1e-4)
    assert radius(found.position) == pytest.approx(radius(OFFSET), rel=1e-5)
    if code == "SWIFT":
        np.testing.assert_allclose(found.metallicity, elements[:, -1], rtol=1e-6)


def test_swift_without_attributes_is_swift(tmp_path):
    """PartType2 of a zoom is dark matter, lengths are those of its Units."""
    dark = {"Coordinates": 50 * OFFSET, "Velocities": VELOCITY, "Masses": np.full(N, 1.0)}
    content = {
        "Coordinates": OFFSET,
        "Velocities": VELOCITY,
        "Masses": np.full(N, 1e-4),
        "BirthScaleFactors": BIRTH / 3,
        "MetalMassFractions": np.full(N, 0.02),
    }
    units = {"Unit length in cgs (U_L)": 3.085678e21, "Unit mass in cgs (U_M)": 1.989e43}
    path = write(
        tmp_path / "a.hdf5",
        {"Time": 1.5, "Redshift": 4.0, "Scale-factor": 0.2, "BoxSize": 5e3},
        content,
        PartType2=dark,
        Code_attributes={"Code": "SWIFT"},
        Cosmology_attributes={"Cosmological run": 1, "h": 0.7, "Omega_m": 0.3, "Omega_lambda": 0.7},
        Units_attributes=units | {"Unit time in cgs (U_t)": 3.085678e16},
    )
    found, info = load(path)
    assert (info.n_stars, round(info.redshift, 6)) == (N, 4.0)
    assert radius(found.position) == pytest.approx(0.2 * radius(OFFSET), rel=1e-5)
    np.testing.assert_allclose(found.mass, 1e6, rtol=1e-2)
    assert 10 ** float(found.log_age[0]) / 1e9 == pytest.approx(age_since(BIRTH[0] / 3, 0.2), rel=2e-3)


def test_units_by_other_names(tmp_path):
    content = arepo(Coordinates=(30e3 + OFFSET) / 1e3, GFM_StellarFormationTime=BIRTH)
    units = {"Unit length in cgs (U_L)": 3.085678e24, "Unit velocity in cgs (U_V)": 1e5, "BoxSize": 67.77}
    found, _ = load(write(tmp_path / "a.hdf5", COSMOLOGICAL | units, content))
    assert radius(found.position) == pytest.approx(0.8 / 0.7 * radius(OFFSET), rel=1e-3)


@pytest.mark.parametrize(
    ("header", "redshift"),
    [
        ({"BoxSize": np.array([25e3, 25e3, 5e4])}, 0.25),
        ({"Time": 1.00002, "Redshift": 0.0}, 0.0),
    ],
)
def test_healthy_headers_are_read(tmp_path, header, redshift):
    path = write(tmp_path / "a.hdf5", COSMOLOGICAL | header, stars(StellarFormationTime=BIRTH))
    assert load(path)[1].redshift == pytest.approx(redshift, abs=1e-12)


def test_a_galaxy_across_the_faces_of_a_box_that_is_no_cube(tmp_path):
    box = np.array([25e3, 25e3, 5e4])
    content = stars(Coordinates=(OFFSET + np.array([1, 2, 49999])) % box, StellarFormationTime=BIRTH)
    found, _ = load(write(tmp_path / "a.hdf5", COSMOLOGICAL | {"BoxSize": box}, content))
    assert radius(found.position) == pytest.approx(0.8 / 0.7 * radius(OFFSET), rel=1e-5)


PROVEN = {"Time": 0.8, "Redshift": 0.25, "HubbleParam": 0.7, "BoxSize": 35e3}


@pytest.mark.parametrize(
    ("header", "content", "words"),
    [
        (PROVEN, stars(StellarFormationTime=BIRTH), "Header has no attribute Omega0 that is a number; it has BoxSize"),
        (
            {key: COSMOLOGICAL[key] for key in COSMOLOGICAL if key != "HubbleParam"},
            stars(StellarFormationTime=BIRTH),
            "Header has no attribute HubbleParam",
        ),
        (
            ISOLATED,
            stars(StellarFormationTime=np.where(np.arange(N) < 150, -1.0, BIRTH)),
            "150 of 200 births are negative, which marks stars of the initial conditions or winds; "
            "set galaxy.ages: recipe",
        ),
        (
            COSMOLOGICAL,
            stars(StellarFormationTime=np.where(np.arange(N) < 150, -1.0, BIRTH)),
            "150 of 200 births are negative",
        ),
    ],
)
def test_what_a_header_lacks_and_marks_for_births(tmp_path, header, content, words):
    path = write(tmp_path / "a.hdf5", header, content)
    with pytest.raises(ValueError, match=words):
        load(path)
    if "births" in words:
        found, info = load(path, ages="recipe")
        assert "150 of 200 stars" in info.ages
        expected = (
            (0.5 - BIRTH[-1]) * GYR if header is ISOLATED else age_since(BIRTH[-1], 0.8)
        )  # of the last star, whose birth is a number
        assert 10 ** float(found.log_age[-1]) / 1e9 == pytest.approx(expected, rel=1e-3)


def test_scale_factors_of_birth_in_a_run_without_expansion(tmp_path):
    content = {"Coordinates": OFFSET, "Velocities": VELOCITY, "Masses": np.full(N, 1e-4), "BirthScaleFactors": BIRTH}
    path = write(
        tmp_path / "a.hdf5",
        {"Time": 0.5, "Redshift": 0.0},
        content | {"MetalMassFractions": np.full(N, 0.02)},
        Code_attributes={"Code": "SWIFT"},
        Cosmology_attributes={"Cosmological run": 0},
    )
    with pytest.raises(ValueError, match=r"BirthScaleFactors .*gives no ages: the cosmology of the file is none"):
        load(path)


def test_types_2_and_3_are_stars_only_where_the_header_says_so(tmp_path):
    disc = {"Coordinates": 300 + OFFSET, "Velocities": VELOCITY, "Masses": np.full(N, 1e-4)}
    counts = {}
    for name, header in (("isolated", ISOLATED), ("silent", {"Time": 0.3, "Redshift": 0.0})):
        path = write(tmp_path / f"{name}.hdf5", header, stars(StellarFormationTime=BIRTH / 2), PartType2=disc)
        counts[name] = load(path, ages="recipe")[1].n_stars
    assert counts == {"isolated": 2 * N, "silent": N}


GALSYN = {"table": "star", "position": "coords", "velocity": "vel", "initial_mass": "init_mass", "metallicity": "zmet"}


def test_redshifts_of_birth(tmp_path):
    """GalSyn's input has no header: the remedy of the message is to store what is missing in the file."""
    path = tmp_path / "galsyn.hdf5"
    birth = RNG.uniform(0.5, 4, N)
    with h5py.File(path, "w") as file:
        group = file.create_group("star")
        group["coords"], group["vel"] = OFFSET, VELOCITY
        group["mass"], group["init_mass"], group["zmet"] = np.full(N, 1e6), np.full(N, 1.3e6), np.full(N, 0.02)
        group["form_z"] = birth
    columns = GALSYN | {"birth_redshift": "form_z"}
    with pytest.raises(ValueError, match=r"gives no ages: .* store redshift, HubbleParam and Omega0"):
        load(path, reader="table", columns=columns)
    with h5py.File(path, "a") as file:
        file.attrs.update(redshift=0.25, HubbleParam=0.7, Omega0=0.3)
    found, _ = load(path, reader="table", columns=columns)
    assert 10 ** float(found.log_age[0]) / 1e9 == pytest.approx(age_since(1 / (1 + birth[0]), 0.8), rel=1e-3)
    field_map = tmp_path / "galsyn.yaml"
    field_map.write_text(
        """
title: GalSyn
source: its documentation
header: {redshift: 0.25, scale_factor: 0.8, h: 0.7, omega_m: 0.3, flat: true}
stars:
  groups: star
  fields:
    position: {dataset: coords, unit: kpc}
    velocity: {dataset: vel, unit: km / s}
    mass: {dataset: mass, unit: Msun}
    initial_mass: {dataset: init_mass, unit: Msun}
    metallicity: {dataset: zmet}
    birth_redshift: {dataset: form_z}
"""
    )
    again, _ = load(path, reader=str(field_map))
    np.testing.assert_allclose(again.log_age, found.log_age, rtol=1e-6)


def write_gadget(path, blocks):
    """A binary snapshot of format 2 with `N` stars."""
    counts = [0, 0, 0, 0, N, 0]
    header = struct.pack("<6i6ddd2i6I2i4d2i6I2i", *counts, *[0] * 6, 0.8, 0.25, 1, 1, *counts, 0, 1, 5e4, 0.3, 0.7, 0.7,
                         1, 1, *[0] * 6, 0, 0)  # fmt: skip
    with path.open("wb") as file:
        for label, data in (("HEAD", header.ljust(256, b"\0")), *blocks):
            size = struct.pack("<i", len(data))
            file.write(struct.pack("<i4sii", 8, label.ljust(4).encode(), len(data) + 8, 8) + size + data + size)


@pytest.mark.parametrize("birth_masses", [False, True])
def test_metals_of_magneticum_are_masses_of_eleven_species(tmp_path, birth_masses):
    mass, birth_mass = np.full(N, 1e-4, "<f4"), np.full(N, 1.6e-4, "<f4")
    species = RNG.uniform(1e-7, 3e-7, (N, 11)).astype("<f4")
    blocks = [
        ("POS", (1000 + OFFSET).astype("<f4")),
        ("VEL", VELOCITY.astype("<f4")),
        ("ID", np.arange(N, dtype="<u4")),
        ("MASS", mass),
        ("AGE", BIRTH.astype("<f4")),
        ("Zs", species),
        *([("iM", birth_mass)] if birth_masses else []),
    ]
    write_gadget(tmp_path / "a.dat", [(label, values.tobytes()) for label, values in blocks])
    found, _ = load(tmp_path / "a.dat")
    expected = species[:, 1:].sum(axis=1) / (birth_mass if birth_masses else mass)
    np.testing.assert_allclose(found.metallicity, expected, rtol=1e-5)


def test_blocks_that_are_not_read_are_named(tmp_path):
    blocks = [("POS", OFFSET), ("VEL", VELOCITY), ("MASS", np.full(N, 1e-4)), ("AGE", BIRTH), ("ZZ", BIRTH)]
    data = [(label, values.astype("<f4").tobytes()) for label, values in blocks]
    write_gadget(tmp_path / "a.dat", [*data[:2], ("ID", np.arange(N, dtype="<u4").tobytes()), *data[2:]])
    with pytest.raises(ValueError, match=r"Metallicity .*is missing; .*; not read: block ZZ; "):
        load(tmp_path / "a.dat")


@pytest.mark.parametrize(
    ("places", "writer"),
    [
        (["InputHalos/HaloCentre", "BoundSubhalo/TotalMass"], "SOAP"),
        (["galaxy_data/GroupID", "halo_data/GroupID"], "CAESAR"),
        (["Mass_200crit", "ID"], "VELOCIraptor"),
        (["Subhalo/SubhaloLenType"], "SUBFIND"),
    ],
)
def test_catalogues_of_haloes_are_called_so(tmp_path, places, writer):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for place in places:
            file[place] = np.ones(3)
    with pytest.raises(ValueError, match=f"is a catalogue of haloes by {writer}: .* give the snapshot as galaxy.path"):
        load(tmp_path / "a.hdf5")

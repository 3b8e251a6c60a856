"""Several files of one snapshot give what one file with all the rows gives; missing and foreign parts are named."""

import shutil

import equinox as eqx
import h5py
import numpy as np
import pytest
from command_line import main
from snapshot_files import write_snapshot
from snapshot_reading import reader_of

A = 0.8
HEADER = {"BoxSize": 1e4, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 1 / A - 1, "Time": A}
SPLIT = {"PartType0": (11, 0, 4), "PartType4": (30, 25, 45)}


def columns(group, rng):
    count = sum(SPLIT[group])
    table = {
        "Coordinates": 5000 + rng.normal(size=(count, 3)) * 30,
        "Velocities": rng.normal(size=(count, 3)) * 100,
        "Masses": rng.uniform(1e-5, 2e-5, count),
        "GFM_Metallicity": rng.uniform(0, 0.04, count),
    }
    if group == "PartType4":
        table |= {"GFM_StellarFormationTime": rng.uniform(0.1, A, count), "GFM_InitialMass": 2 * table["Masses"]}
    return table


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(3)
    return {group: columns(group, rng) for group in SPLIT}


def write(path, groups, header):
    """A file that states the unit of its masses itself."""
    write_snapshot(path, groups, header)
    with h5py.File(path, "r+") as file:
        for group in [group for group, table in groups.items() if "Masses" in table]:
            file[f"{group}/Masses"].attrs.update(to_cgs=1.989e43, a_scaling=0.0, h_scaling=-1.0)
    return path


def part_of(tables, number):
    """The rows of one file; a group without any is not there at all."""
    parts = {}
    for group, table in tables.items():
        ends = np.cumsum((0, *SPLIT[group]))
        rows = slice(ends[number], ends[number + 1])
        if rows.stop > rows.start:
            parts[group] = {name: values[rows] for name, values in table.items()}
    return parts


def header_of(number, **changes):
    low = [SPLIT["PartType0"][number], 0, 0, 0, SPLIT["PartType4"][number], 0]
    total = [15, 0, 0, 0, 100, 0]
    counts = {"NumPart_ThisFile": low, "NumPart_Total": total, "NumPart_Total_HighWord": [0] * 6}
    return HEADER | counts | {"NumFilesPerSnapshot": 3} | changes


@pytest.fixture(scope="module")
def parts(tmp_path_factory, tables):
    inside = tmp_path_factory.mktemp("snapdir_020")
    for number in range(3):
        write(inside / f"snap_020.{number}.hdf5", part_of(tables, number), header_of(number))
    return inside


@pytest.fixture
def folder(parts, tmp_path):
    """The parts, to be changed."""
    return shutil.copytree(parts, tmp_path / "snapdir_020")


def load(path, **settings):
    return reader_of({"reader": "illustris", "path": path} | settings).load()


def masses(path, **settings):
    return np.asarray(load(path, **settings)[0].stars.mass)


def test_all_ways_to_name_them_give_the_whole(parts, tmp_path, tables):
    whole, expected = load(write(tmp_path / "whole.hdf5", tables, HEADER), center=(5000, 5000, 5000))
    for path in (
        parts,
        parts / "snap_020.*.hdf5",
        parts / "snap_020.0.hdf5",
        parts / "snap_020.2.hdf5",
        [parts / f"snap_020.{number}.hdf5" for number in range(3)],
    ):
        galaxy, info = load(path, center=(5000, 5000, 5000))
        assert eqx.tree_equal(galaxy, whole), path
        assert (info.n_stars, info.n_gas) == (expected.n_stars, expected.n_gas) == (100, 15)
        assert not any("Header tells of" in note for note in info.notes)
        assert info.source == f"{parts / 'snap_020.0.hdf5'} and 2 more"


def test_more_than_ten_parts_are_in_the_order_of_their_numbers(tmp_path, tables):
    stars = tables["PartType4"]
    for number in range(12):
        rows = {name: values[number * 8 : number * 8 + 8] for name, values in stars.items()}
        write(tmp_path / f"s.{number}.hdf5", {"PartType4": rows}, HEADER | {"NumFilesPerSnapshot": 12})
    np.testing.assert_allclose(masses(tmp_path / "s.*.hdf5"), stars["Masses"][:96] * 1e10 / 0.7)


def test_a_part_alone_is_a_list_of_one_or_a_file_without_a_number(parts, tmp_path, tables):
    assert masses(shutil.copy(parts / "snap_020.1.hdf5", tmp_path / "cutout.hdf5")).size == 25
    alone = part_of(tables, 2)["PartType4"]["Masses"] * 1e10 / 0.7
    np.testing.assert_allclose(masses([parts / "snap_020.2.hdf5"]), alone)
    listed = [parts / "snap_020.2.hdf5", parts / "snap_020.0.hdf5"]
    np.testing.assert_allclose(masses(listed)[:45], tables["PartType4"]["Masses"][55:] * 1e10 / 0.7)
    assert "PartType4 has 75 rows in all files together, but the Header tells of 100" in load(listed)[1].notes


def test_high_words_of_totals_count(folder):
    with h5py.File(folder / "snap_020.0.hdf5", "r+") as file:
        file["Header"].attrs["NumPart_Total_HighWord"] = [0, 0, 0, 0, 1, 0]
    notes = load(folder)[1].notes
    assert f"PartType4 has 100 rows in all files together, but the Header tells of {2**32 + 100}" in notes


def test_missing_parts(folder):
    (folder / "snap_020.1.hdf5").unlink()
    words = r"has 3 files, of which 1 are missing in '.*': snap_020.1.hdf5; download"
    for path in (folder, folder / "snap_020.*.hdf5", folder / "snap_020.0.hdf5"):
        with pytest.raises(FileNotFoundError, match=words):
            load(path)
    with h5py.File(folder / "snap_020.0.hdf5", "r+") as file:
        file["Header"].attrs["NumFilesPerSnapshot"] = 2**40
    words = rf"of which {2**40 - 2} are missing .*snap_020.1.hdf5, snap_020.3.hdf5, .* and \d+ more"
    with pytest.raises(FileNotFoundError, match=words):
        load(folder / "snap_020.0.hdf5")


def test_part_that_is_there_twice(folder):
    (folder / "snap_020.02.hdf5").write_bytes((folder / "snap_020.2.hdf5").read_bytes())
    with pytest.raises(ValueError, match=r"part 2 is there twice: snap_020.02.hdf5, snap_020.2.hdf5; remove one"):
        load(folder / "snap_020.0.hdf5")
    with pytest.raises(ValueError, match=r"'.*snap_020.0.hdf5' is there twice"):
        load([folder / "snap_020.0.hdf5", folder / "snap_020.1.hdf5", folder / "." / "snap_020.0.hdf5"])


def test_names_that_are_no_parts_of_one_snapshot(folder, tmp_path, tables):
    (folder / "snap_020.3.hdf5").write_bytes((folder / "snap_020.2.hdf5").read_bytes())
    with pytest.raises(ValueError, match=r"tells of 3 files, but there is 'snap_020.3.hdf5'"):
        load(folder)
    (folder / "snap_020.3.hdf5").rename(folder / "snap_020.2 (copy).hdf5")
    with pytest.raises(ValueError, match=r"'.*copy.*' is not named like 'snap_020.0.hdf5'"):
        load(folder / "*.hdf5")
    with pytest.raises(ValueError, match=r"expected one snapshot in '.*', got files of 2 names \(snap_020.0.hdf5, "):
        load(folder)
    for name in ("a.hdf5", "b.hdf5"):
        write(tmp_path / name, part_of(tables, 1), HEADER)
    with pytest.raises(ValueError, match=r"expected the parts of one snapshot, got 2 files \(a.hdf5, b.hdf5\)"):
        load(tmp_path / "?.hdf5")
    assert masses([tmp_path / "a.hdf5", tmp_path / "b.hdf5"]).size == 50
    with pytest.raises(FileNotFoundError, match=r"no file matches '.*nothing"):
        load(tmp_path / "nothing*.hdf5")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        load(empty)


def test_parts_of_other_snapshots(folder, tables, capsys):
    for name, value, text in (
        ("Time", 0.8001, "expected the scale_factor"),
        ("HubbleParam", 0.71, "expected the h"),
        ("BoxSize", 9999.0, "expected the box_size"),
        ("Omega0", 0.31, "expected the cosmology_text"),
    ):
        write(folder / "snap_020.2.hdf5", part_of(tables, 2), header_of(2, **{name: value}))
        words = rf"snap_020.2.hdf5: {text}.* of .*snap_020.0.hdf5.*no parts of one snapshot"
        with pytest.raises(ValueError, match=words):
            load(folder)
    main(["inspect", str(folder)])
    assert text in " ".join(capsys.readouterr().out.split())


def test_units_and_datasets_must_agree(folder, tables):
    path = folder / "snap_020.2.hdf5"
    with h5py.File(path, "r+") as file:
        file["PartType4/Masses"].attrs["h_scaling"] = 0.0
    with pytest.raises(ValueError, match=r"snap_020.2.hdf5: PartType4/Masses: expected the unit and powers .* h\^-1"):
        load(folder)
    parts = part_of(tables, 2)
    del parts["PartType4"]["GFM_InitialMass"]
    write(path, parts, header_of(2))
    with pytest.raises(ValueError, match=r"snap_020.2.hdf5: .* only one of them has GFM_InitialMass"):
        load(folder)
    parts = part_of(tables, 2)
    parts["PartType4"]["Masses"] = parts["PartType4"]["Masses"][:-1]
    write(path, parts, header_of(2))
    with pytest.raises(ValueError, match=r"snap_020.2.hdf5: PartType4: expected as many rows in every dataset"):
        load(folder)
    parts = part_of(tables, 2)
    parts["PartType4"]["Coordinates"] = parts["PartType4"]["Coordinates"][:, :2]
    write(path, parts, header_of(2))
    with pytest.raises(ValueError, match=r"PartType4/Coordinates: expected one shape in all files, got"):
        load(folder)


def test_catalogue_in_several_files(parts, tmp_path, tables):
    lengths = np.zeros((5, 6), dtype=np.int32)
    lengths[:, 4], lengths[:, 0] = (10, 20, 30, 25, 15), 3
    for number, rows in enumerate((slice(0, 2), slice(2, 2), slice(2, 5))):
        subhaloes = {"Subhalo": {"SubhaloLenType": lengths[rows]}} if rows.stop > rows.start else {}
        write(tmp_path / f"fof.{number}.hdf5", subhaloes, {"NumFiles": 3})
    expected = tables["PartType4"]["Masses"][60:85] * 1e10 / 0.7
    np.testing.assert_allclose(masses(parts, catalogue=tmp_path / "fof.0.hdf5", subhalo=3), expected)
    (tmp_path / "fof.1.hdf5").unlink()
    with pytest.raises(FileNotFoundError, match=r"galaxy.catalogue: .* missing in '.*': fof.1.hdf5"):
        load(parts, catalogue=tmp_path / "fof.0.hdf5", subhalo=3)

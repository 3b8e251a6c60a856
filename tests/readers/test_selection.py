"""Haloes, subhaloes, spheres and boxes of a snapshot, against masks written out here with numpy."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from snapshot_files import write_snapshot
from snapshot_reading import reader_of

from rubix_like import ConfigError
from rubix_like.config.readers.snapshot import to_kpc
from rubix_like.extend import open_selected
from rubix_like.readers.selection import row_ranges as rows_module
from rubix_like.readers.selection.row_ranges import RowRanges, chained, row_range, where

A, H, BOX = 0.5, 0.7, 1000.0
KPC = A / H
HEADER = {"BoxSize": BOX, "HubbleParam": H, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 1.0, "Time": A}

GROUP_LENGTHS = np.array([[40, 90], [0, 0], [25, 60], [10, 0]])
"""Gas and stars of four haloes; after them come particles of none."""
SUBHALOES = np.array([[20, 50, 0], [10, 30, 0], [15, 20, 2], [5, 30, 2], [8, 0, 3]])
"""Gas, stars and halo of five subhaloes; the first two leave unbound particles in their halo."""
OUTSIDE = (12, 33)
CENTERS = np.array([[10.0, 20, 990], [300, 300, 300], [600, 100, 500], [650, 120, 480], [900, 900, 900]])


def members(kind):
    """Halo and subhalo of every row of a type (column 0: gas, 1: stars), -1 for none, in the order of the snapshot."""
    halo, subhalo = [], []
    for number, lengths in enumerate(GROUP_LENGTHS):
        own = [index for index, row in enumerate(SUBHALOES) if row[2] == number]
        inside = [index for index in own for _ in range(SUBHALOES[index, kind])]
        subhalo += inside + [-1] * (lengths[kind] - len(inside))
        halo += [number] * lengths[kind]
    return np.array(halo + [-1] * OUTSIDE[kind]), np.array(subhalo + [-1] * OUTSIDE[kind])


def particles(kind, rng):
    subhalo = members(kind)[1]
    position = np.where(subhalo[:, None] >= 0, CENTERS[subhalo], rng.uniform(0, BOX, (subhalo.size, 3)))
    position = (position + rng.normal(size=position.shape) * 8) % BOX
    common = {
        "Coordinates": position,
        "Velocities": rng.normal(size=position.shape) * 100,
        "Masses": rng.uniform(1e-5, 2e-5, subhalo.size),
        "GFM_Metallicity": rng.uniform(0, 0.04, subhalo.size),
    }
    if kind == 0:
        return common
    birth = rng.uniform(0.1, A, subhalo.size)
    birth[::17] = -birth[::17]
    return common | {"GFM_StellarFormationTime": birth, "GFM_InitialMass": common["Masses"] * 2}


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(5)
    return {"PartType0": particles(0, rng), "PartType4": particles(1, rng)}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory, tables):
    return write_snapshot(tmp_path_factory.mktemp("selection") / "snap_050.hdf5", tables, HEADER)


def by_type(pairs):
    return np.insert(np.zeros((len(pairs), 4), dtype=np.int32), [0, 3], pairs, axis=1)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    hosts = SUBHALOES[:, 2]
    groups = {
        "Group": {
            "GroupLenType": by_type(GROUP_LENGTHS),
            "GroupFirstSub": np.array([0, -1, 2, 4], dtype=np.int32),
            "GroupNsubs": np.array([2, 0, 2, 1], dtype=np.int32),
            "GroupPos": CENTERS[[0, 1, 2, 4]],
        },
        "Subhalo": {"SubhaloLenType": by_type(SUBHALOES[:, :2]), "SubhaloGrNr": hosts, "SubhaloPos": CENTERS},
    }
    return write_snapshot(
        tmp_path_factory.mktemp("groups") / "fof_subhalo_tab_050.hdf5", groups, {"Time": A, "Redshift": 1.0}
    )


def selected(path, **settings):
    """Rows of the selected stars and gas particles in the file, and the snapshot's own view of them."""
    with open_selected(reader_of({"reader": "illustris", "path": path} | settings)) as chosen:
        found = [chosen.read(family, 0, chosen.count(family), ("mass",)) for family in ("stars", "gas")]
    return [table["row"].astype(int) for table in found]


def born(tables):
    return tables["PartType4"]["GFM_StellarFormationTime"] > 0


def test_by_type_puts_gas_and_stars_in_their_columns():
    assert by_type([[1, 2]]).tolist() == [[1, 0, 0, 0, 2, 0]]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_subhalo_of_a_catalogue(snapshot, catalogue, tables, number):
    stars, gas = selected(snapshot, catalogue=catalogue, subhalo=number)
    np.testing.assert_array_equal(stars, np.flatnonzero((members(1)[1] == number) & born(tables)))
    np.testing.assert_array_equal(gas, np.flatnonzero(members(0)[1] == number))


@pytest.mark.parametrize("number", [0, 2])
def test_halo_of_a_catalogue_has_unbound_particles_too(snapshot, catalogue, tables, number):
    stars, gas = selected(snapshot, catalogue=catalogue, halo=number)
    np.testing.assert_array_equal(stars, np.flatnonzero((members(1)[0] == number) & born(tables)))
    np.testing.assert_array_equal(gas, np.flatnonzero(members(0)[0] == number))
    assert len(selected(snapshot, catalogue=catalogue, halo=number, subhalo=number)[0]) < len(stars)


def test_the_galaxy_is_centred_on_the_catalogue_s_position(snapshot, catalogue, tables):
    galaxy, info = reader_of(reader="illustris", path=snapshot, catalogue=catalogue, subhalo=0).load()
    assert info.n_stars == galaxy.stars.mass.size
    np.testing.assert_allclose(info.center, CENTERS[0] * KPC)
    assert "centred on the catalogue's position of subhalo 0" in info.notes
    assert info.name == "snap_050_subhalo0"
    rows = np.flatnonzero((members(1)[1] == 0) & born(tables))
    offset = tables["PartType4"]["Coordinates"][rows] - CENTERS[0]
    offset -= BOX * np.round(offset / BOX)
    np.testing.assert_allclose(galaxy.stars.position, offset * KPC, atol=1e-9)
    other = reader_of(
        reader="illustris", path=snapshot, catalogue=catalogue, subhalo=0, center=(1.0, "4 kpc", 2)
    ).load()[1]
    np.testing.assert_allclose(other.center, (KPC, 4, 2 * KPC))
    assert any(note.startswith("galaxy.center is ") for note in other.notes)


def test_catalogue_with_offsets_of_its_own(tmp_path, snapshot, catalogue):
    with h5py.File(catalogue) as file:
        lengths = file["Subhalo/SubhaloLenType"][()]
    groups = {"Subhalo": {"SubhaloLenType": lengths, "SubhaloOffsetType": np.full_like(lengths, 3)}}
    other = write_snapshot(tmp_path / "tab.hdf5", groups, {})
    assert selected(snapshot, catalogue=other, subhalo=0)[1].tolist() == list(range(3, 23))


def test_catalogue_of_subhaloes_alone_must_cover_the_rows(tmp_path, snapshot, catalogue, tables):
    with h5py.File(catalogue) as file:
        lengths = file["Subhalo/SubhaloLenType"][()]
    alone = write_snapshot(tmp_path / "alone.hdf5", {"Subhalo": {"SubhaloLenType": lengths}}, {})
    with pytest.raises(
        ValueError, match="PartType4 has 183 rows, but the subhaloes of the catalogue have 130 together"
    ):
        selected(snapshot, catalogue=alone, subhalo=1)
    lengths[4] += (GROUP_LENGTHS.sum(axis=0) + OUTSIDE - SUBHALOES[:, :2].sum(axis=0))[[0, 0, 0, 0, 1, 1]] * [
        1,
        0,
        0,
        0,
        1,
        0,
    ]
    whole = write_snapshot(tmp_path / "whole.hdf5", {"Subhalo": {"SubhaloLenType": lengths}}, {})
    stars, gas = selected(snapshot, catalogue=whole, subhalo=1)
    assert gas.tolist() == list(range(20, 30))
    assert stars.tolist() == [row for row in range(50, 80) if born(tables)[row]]


def test_faults_of_catalogues(tmp_path, snapshot, catalogue):
    def fails(match, **settings):
        with pytest.raises(ValueError, match=match):
            selected(snapshot, **({"catalogue": catalogue} | settings))

    fails(r"galaxy.subhalo: expected one of the 5 of '.*' \(0 to 4\), got 5", subhalo=5)
    fails(r"galaxy.halo: expected one of the 4 of '.*' \(0 to 3\), got 9", halo=9)
    fails("galaxy.subhalo: subhalo 4 of .* has no stars; the nearest number with stars is 3", subhalo=4)
    fails("galaxy.halo: halo 1 of .* has no stars; the nearest number with stars is [02]", halo=1)
    fails("galaxy.halo: subhalo 0 is not in halo 2", subhalo=0, halo=2)
    early = write_snapshot(tmp_path / "early.hdf5", {}, {"Time": 0.4})
    fails("is of time 0.4, the snapshot '.*' of 0.5", catalogue=early, subhalo=0)
    bare = write_snapshot(tmp_path / "bare.hdf5", {"Group": {"GroupLenType": by_type(GROUP_LENGTHS)}}, {})
    fails("Subhalo/SubhaloLenType is missing", catalogue=bare, subhalo=0)
    longer = write_snapshot(tmp_path / "longer.hdf5", {"Group": {"GroupLenType": by_type([[1, 999]])}}, {})
    fails("halo 0 begins at row 0 and ends at row 999 of PartType4, which has 183", catalogue=longer, halo=0)
    offsets = {"SubhaloLenType": by_type([[1, 9]]), "SubhaloOffsetType": by_type([[0, -1]])}
    before = write_snapshot(tmp_path / "before.hdf5", {"Subhalo": offsets}, {})
    fails("subhalo 0 begins at row -1 and ends at row 8 of PartType4", catalogue=before, subhalo=0)
    with pytest.raises(FileNotFoundError, match=r"galaxy.catalogue: no file '.*gone.hdf5'"):
        selected(snapshot, catalogue=tmp_path / "gone.hdf5", subhalo=0)
    with pytest.raises(ConfigError, match="expected 'halo' or 'subhalo' beside it"):
        reader_of(reader="illustris", path=snapshot, catalogue=catalogue)


def nearest(position, center):
    images = position[None] - center + BOX * np.array([-1, 0, 1])[:, None, None]
    return np.abs(images).min(axis=0)


@pytest.mark.parametrize("unit", ["file", "kpc"])
def test_sphere_and_box_are_periodic(snapshot, tables, unit):
    center, radius, sides = np.array([5.0, 15, 995]), 17.0, np.array([20.0, 30, 12])

    def given(length):
        return float(length) if unit == "file" else f"{float(length) * KPC!r} kpc"

    sphere = {"center": [given(x) for x in center], "radius": given(radius)}
    box = {"center": [given(x) for x in center], "size": [given(x) for x in sides]}
    offsets = {name: nearest(table["Coordinates"], center) for name, table in tables.items()}
    in_sphere = {name: (offset**2).sum(axis=1) <= radius**2 for name, offset in offsets.items()}
    in_box = {name: (offset <= sides / 2).all(axis=1) for name, offset in offsets.items()}
    assert 3 < np.count_nonzero(in_box["PartType4"]) < np.count_nonzero(in_sphere["PartType4"]) < 50
    for settings, expected in (
        ({"sphere": sphere}, in_sphere),
        ({"box": box}, in_box),
        ({"sphere": sphere, "box": box}, {name: in_sphere[name] & in_box[name] for name in tables}),
    ):
        stars, gas = selected(snapshot, **settings)
        np.testing.assert_array_equal(stars, np.flatnonzero(expected["PartType4"] & born(tables)))
        np.testing.assert_array_equal(gas, np.flatnonzero(expected["PartType0"]))


def test_all_selections_must_hold(snapshot, catalogue, tables):
    both = selected(snapshot, catalogue=catalogue, halo=0, sphere={"radius": 12.0})[0]
    offset = nearest(tables["PartType4"]["Coordinates"], CENTERS[0])
    expected = ((offset**2).sum(axis=1) <= 144) & (members(1)[0] == 0) & born(tables)
    np.testing.assert_array_equal(both, np.flatnonzero(expected))
    cube = selected(snapshot, center=CENTERS[2].tolist(), box={"size": 10.0})[0]
    near = (nearest(tables["PartType4"]["Coordinates"], CENTERS[2]) <= 5).all(axis=1)
    np.testing.assert_array_equal(cube, np.flatnonzero(near & born(tables)))


def test_nothing_selected_says_where_the_nearest_is(snapshot, tables):
    center = np.array([480.0, 520, 505])
    stars = tables["PartType4"]["Coordinates"][born(tables)]
    distance = np.sqrt((nearest(stars, center) ** 2).sum(axis=1))
    place = ", ".join(f"{x:.6g}" for x in stars[distance.argmin()])
    text = f"none of the 172 stars .* the nearest is {distance.min() * KPC:.4g} kpc from its centre, at {place}"
    for region in (
        {"sphere": {"center": center.tolist(), "radius": 0.1}},
        {"box": {"center": center.tolist(), "size": 1}},
    ):
        with pytest.raises(ValueError, match=text):
            selected(snapshot, **region)


def test_gas_may_be_outside(snapshot, tables):
    star = int(np.flatnonzero(born(tables))[3])
    sphere = {"center": tables["PartType4"]["Coordinates"][star].tolist(), "radius": 1e-3}
    galaxy, info = reader_of({"reader": "illustris", "path": snapshot, "sphere": sphere}).load()
    assert (info.n_stars, info.n_gas, galaxy.gas) == (1, 0, None)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"sphere": {"radius": 3}}, "galaxy.sphere.center: expected three coordinates"),
        ({"sphere": {"radius": "3 Msun"}}, "physical length such as '30 kpc', got '3 Msun'"),
        ({"sphere": {"radius": 0}}, "expected more than 0"),
        ({"box": {"center": [1, 2], "size": 3}}, "box.center"),
        ({"box": {"size": [3, "-1 kpc", 3]}}, "expected more than 0"),
        ({"subhalo": -1}, "galaxy.subhalo: expected a number >= 0, got -1"),
        ({"halo": 1}, "particles of Illustris.* carry no number of their halo; give the group catalogue"),
    ],
)
def test_settings_that_select_nothing_well(snapshot, settings, text):
    with pytest.raises(ValueError, match=text):
        selected(snapshot, **settings)


def test_lengths_are_bare_or_physical():
    reader = reader_of({"path": "a.hdf5", "sphere": {"radius": "0.03 Mpc"}, "center": ["1e1", 2, "3 pc"]})
    assert reader.sphere is not None
    assert to_kpc(reader.sphere.radius, 7.0) == pytest.approx(30)
    assert [to_kpc(x, 7.0) for x in reader.center] == pytest.approx([70, 14, 0.003])
    assert reader_of(reader.model_dump(mode="json")) == reader


def eagle(path, numbers):
    rng = np.random.default_rng(2)
    count = len(numbers)
    stars = {
        "Coordinates": rng.uniform(1, 2, (count, 3)),
        "Velocity": rng.normal(size=(count, 3)),
        "Mass": np.full(count, 1e-5),
        "InitialMass": np.full(count, 2e-5),
        "StellarFormationTime": np.full(count, 0.5),
        "SmoothedMetallicity": np.full(count, 0.01),
        "GroupNumber": np.array([halo for halo, _ in numbers], dtype=np.int32),
        "SubGroupNumber": np.array([subhalo for _, subhalo in numbers], dtype=np.int32),
    }
    header = HEADER | {"RunLabel": b"Eagle", "Time": 1.0, "Redshift": 0.0, "ExpansionFactor": 1.0}
    write_snapshot(path, {"PartType4": stars}, header)
    with h5py.File(path, "r+") as file:
        file["PartType4/Coordinates"].attrs["aexp-scale-exponent"] = 1.0
    return path


def test_numbers_that_particles_carry(tmp_path):
    """GroupNumber is negative for particles near a halo, SubGroupNumber 2^30 for those bound to none (EAGLE)."""
    none = 1 << 30
    path = eagle(tmp_path / "eagle.hdf5", [(12, 0), (12, 1), (-12, none), (12, none), (7, 0), (-12, 0), (none, none)])
    assert selected(path, reader="eagle", halo=12)[0].tolist() == [0, 1, 3]
    assert selected(path, reader="eagle", halo=12, subhalo=0)[0].tolist() == [0, 5]
    assert selected(path, reader="eagle", halo=7, subhalo=0)[0].tolist() == [4]
    with pytest.raises(ValueError, match=r"EAGLE counts subhaloes within their halo; expected galaxy.halo beside it"):
        selected(path, reader="eagle", subhalo=0)
    with pytest.raises(
        ValueError, match=r"none of the 7 stars of '.*' has the number 9; they have 4 numbers, .* are 7, 12,"
    ):
        selected(path, reader="eagle", halo=9)
    with pytest.raises(ValueError, match=r"none of the 1 star of '.*' has the number 3; they have 1 number, .* are 0$"):
        selected(path, reader="eagle", halo=7, subhalo=3)
    with h5py.File(path, "r+") as file:
        del file["PartType4/GroupNumber"]
        file["PartType4/GroupNumber"] = np.full((7, 2), 12)
    with pytest.raises(ValueError, match=r"expected one number of the halo per particle, got int64 of shape \(7, 2\)"):
        selected(path, reader="eagle", halo=12)
    with h5py.File(path, "r+") as file:
        del file["PartType4/GroupNumber"]
    with pytest.raises(ValueError, match=r"PartType4/GroupNumber \(number of the halo\) is missing; PartType4 has"):
        selected(path, reader="eagle", halo=7)


def test_rows_in_runs(monkeypatch):
    monkeypatch.setattr(rows_module, "SLAB_ROWS", 7)
    monkeypatch.setattr(rows_module, "GAP_ROWS", 3)
    rng = np.random.default_rng(1)
    mask = np.repeat(rng.random(40) < 0.3, rng.integers(1, 6, 40))
    rows = where(mask, 100)
    expected = 100 + np.flatnonzero(mask)

    def listed(some):
        return np.concatenate([np.arange(a, b) for a, b in zip(some.starts, some.stops, strict=True)] or [np.zeros(0)])

    np.testing.assert_array_equal(listed(rows), expected)
    assert rows.count == expected.size
    for start, stop in ((0, 5), (3, 17), (10, 10), (0, 999), (expected.size - 1, expected.size)):
        np.testing.assert_array_equal(listed(rows.part(start, stop)), expected[start:stop])
    pieces = list(rows.pieces())
    assert max(stop - start for start, stop, _ in pieces) <= 7
    found = [start + np.flatnonzero(inside.mask(start, stop)) for start, stop, inside in pieces]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    joined = chained([inside for _, _, inside in pieces])
    np.testing.assert_array_equal(joined.starts, rows.starts)
    np.testing.assert_array_equal(joined.stops, rows.stops)
    assert list(row_range(5, 5).pieces()) == []
    assert chained([row_range(0, 0), row_range(2, 4), RowRanges(np.array([4]), np.array([6]))]).starts.tolist() == [2]


def test_real_galaxies_of_camels_one_by_one(real_data: Path):
    """Ten galaxies in one file: each has the rows that its length says, and its own mass."""
    path = real_data / "galaxies" / "camels_CV_10gal.hdf5"
    catalogue = real_data / "galaxies" / "camels_CV_10gal_subhalo.hdf5"
    with h5py.File(path) as file, h5py.File(catalogue) as groups:
        h = file["Header"].attrs["HubbleParam"]
        mass, birth = file["PartType4/Masses"][()].astype(float), file["PartType4/GFM_StellarFormationTime"][()]
        gas_mass = file["PartType0/Masses"][()].astype(float)
        lengths, position = groups["Subhalo/SubhaloLenType"][()], groups["Subhalo/SubhaloPos"][()]
        time = file["Header"].attrs["Time"]
    starts = lengths.cumsum(axis=0) - lengths
    settings = {"reader": "camels", "path": path, "catalogue": catalogue}
    for number in range(10):
        rows = [np.arange(starts[number, kind], starts[number, kind] + lengths[number, kind]) for kind in (4, 0)]
        stars, gas = selected(**settings, subhalo=number)
        np.testing.assert_array_equal(stars, rows[0][birth[rows[0]] > 0])
        np.testing.assert_array_equal(gas, rows[1])
        if number not in (0, 5):
            continue
        galaxy, info = reader_of(**settings, subhalo=number, velocities="zero").load()
        assert info.n_stars == stars.size
        assert float(galaxy.stars.mass.sum()) == pytest.approx(mass[stars].sum() * 1e10 / h, rel=1e-12)
        if gas.size:
            assert float(galaxy.gas.mass.sum()) == pytest.approx(gas_mass[gas].sum() * 1e10 / h, rel=1e-12)
        assert (galaxy.gas is None) == (gas.size == 0)
        np.testing.assert_allclose(info.center, position[number] * time / h, rtol=1e-6)
        assert not any("from the densest place" in note for note in info.notes)


def test_real_eagle_galaxy_by_its_numbers(real_data: Path):
    path = real_data / "galaxies" / "EAGLE_snap28_G92_9_full7524.hdf5"
    assert len(selected(path, reader="eagle", halo=92, subhalo=9)[0]) == 7524
    with pytest.raises(
        ValueError, match=r"none of the 7524 stars of .* has the number 3; they have 1 number, .* are 92"
    ):
        selected(path, reader="eagle", halo=3, subhalo=0)

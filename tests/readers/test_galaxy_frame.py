"""The frame of a galaxy and what is selected, found slab by slab and by several processes, are those of the whole."""

import h5py
import jax
import numpy as np
import pytest
from snapshot_files import write_snapshot
from snapshot_reading import open_snapshot, reader_of, watched
from thread_team import run_team, values_of

import rubix_like as rl
from rubix_like import open_galaxy
from rubix_like.extend import open_selected
from rubix_like.physics.centering import shrinking_sphere, unwrap
from rubix_like.readers import galaxy_frame as frame_module
from rubix_like.readers.galaxy_frame import StoredStars, find_frame, held_stars
from rubix_like.readers.selection import row_ranges as rows_module
from rubix_like.readers.selection.row_ranges import RowRanges, filtered
from rubix_like.readers.selection.selected import select
from rubix_like.readers.snapshot import ColumnReader, GalaxySlabs
from rubix_like.runtime.processes.process_group import SINGLE

BOX = np.full(3, 200.0)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(frame_module, "SLAB_STARS", 75)
    monkeypatch.setattr(rows_module, "SLAB_ROWS", 64)
    monkeypatch.setattr(rows_module, "GAP_ROWS", 5)


def stars_of(n, seed=1):
    """A clump and a satellite at a corner of the periodic box, the inner stars slower than the others."""
    rng = np.random.default_rng(seed)
    offset = rng.normal(size=(n, 3)) * 3.0 * rng.uniform(0.05, 2.0, (n, 1))
    offset[: n // 5] += [0.0, 12.0, 0.0]
    velocity = rng.normal(size=(n, 3)) * 100 + [70.0, -30.0, 10.0] + 20.0 * np.abs(offset)
    return {
        "position": (offset + np.array([1.0, 199.0, 100.0])) % BOX,
        "velocity": velocity,
        "mass": rng.uniform(1, 4, n),
    }


def stored(table, team=SINGLE, asked=None):
    """The table as a file of which only what is asked for is read."""

    def read(start, stop, names):
        if asked is not None:
            asked.append((start, stop, tuple(names)))
        return {name: table[name][start:stop] for name in names}

    return StoredStars(len(table["mass"]), read, team)


def inner_mean(table, center, box_size=BOX):
    """Mass-weighted mean velocity of the stars within the half-mass radius, all at once."""
    radius = np.linalg.norm(unwrap(table["position"], center, box_size), axis=1)
    order = np.argsort(radius)
    enclosed = np.cumsum(table["mass"][order])
    inner = radius <= radius[order][np.searchsorted(enclosed, enclosed[-1] / 2 * (1 - 1e-12))] * (1 + 1e-12)
    return np.average(table["velocity"][inner], axis=0, weights=table["mass"][inner])


def densest(table, step=1):
    first = table["position"][0]
    sample = {name: values[::step] for name, values in table.items()}
    return first + shrinking_sphere(unwrap(sample["position"], first, BOX), sample["mass"])


# ---------------------------------------------------------------- the frame


@pytest.mark.parametrize("n", [1, 2, 400, 777])
def test_up_to_the_size_of_the_sample_all_stars_are_gathered(n):
    """Read once, and the same to the last bit whatever the slabs and the processes."""
    table, asked = stars_of(n), []
    expected, _ = find_frame(held_stars(table), None, BOX)
    np.testing.assert_array_equal(expected.center, densest(table))
    np.testing.assert_allclose(expected.velocity, inner_mean(table, expected.center), rtol=1e-12)
    frames = [find_frame(stored(table, asked=asked), None, BOX)[0]]
    assert sum(stop - start for start, stop, _ in asked) == n
    for size in (2, 4):
        frames += [f for f, _ in values_of(run_team(size, lambda team: find_frame(stored(table, team), None, BOX)))]
    for frame in frames:
        np.testing.assert_array_equal(frame.center, expected.center)
        np.testing.assert_array_equal(frame.velocity, expected.velocity)


@pytest.mark.parametrize("given", [None, np.array([0.5, 198.0, 101.0])])
def test_the_centre_of_more_is_that_of_a_sample_and_the_velocity_that_of_all(monkeypatch, given):
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", 100)
    table, asked = stars_of(777), []
    center = densest(table, step=8) if given is None else given
    frame, _ = find_frame(stored(table, asked=asked), given, BOX)
    np.testing.assert_allclose(frame.center, center, rtol=1e-12)
    assert np.linalg.norm(unwrap(frame.center[None], densest(table), BOX)) < 3.0
    np.testing.assert_allclose(frame.velocity, inner_mean(table, center), rtol=1e-11)
    assert max(stop - start for start, stop, _ in asked) <= 75
    names = {("position", "mass"): 777, ("position", "velocity", "mass"): 2 * 777}
    assert {name: sum(stop - start for start, stop, read in asked if read == name) for name in names} == names


@pytest.mark.parametrize("sample", [100, 1 << 20])
def test_wild_velocities_move_nobody(monkeypatch, sample):
    """The mean is that of the stars within the half-mass radius but for the wild ones, which are noted; held, by slabs
    and by processes, whether or not they are in the sample."""
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", sample)
    table = stars_of(777)
    center = densest(table, step=8 if sample == 100 else 1)
    offset = np.linalg.norm(unwrap(table["position"], center, BOX), axis=1)
    expected, quiet = find_frame(stored(table), center, BOX)
    np.testing.assert_allclose(expected.velocity, inner_mean(table, center), rtol=1e-11)
    assert quiet == ()
    inner, outer = np.argsort(offset)[[10, 11]], np.argsort(offset)[-1]
    table["velocity"][inner] = [[1e6, 0.0, 0.0], [0.0, -4e3, 0.0]]
    table["velocity"][outer] = [0.0, 0.0, 1e6]
    order = np.argsort(offset)
    half = np.searchsorted(np.cumsum(table["mass"][order]), table["mass"].sum() / 2)
    within = offset <= offset[order[half]]
    counted = within & ~np.isin(np.arange(777), inner)
    mean = np.average(table["velocity"][counted], axis=0, weights=table["mass"][counted])
    found = [find_frame(held_stars(table), center, BOX), find_frame(stored(table), center, BOX)]
    found += values_of(run_team(3, lambda team: find_frame(stored(table, team), center, BOX)))
    for frame, notes in found:
        np.testing.assert_allclose(frame.velocity, mean, rtol=1e-10)
        assert np.linalg.norm(frame.velocity - expected.velocity) < 3.0
        assert notes == found[0][1]
        assert notes[0].startswith(f"2 of {within.sum()} stars within the half-mass radius are left out of the bulk")
        assert float(notes[0].split("up to ")[1].removesuffix(" km/s")) == pytest.approx(1e6, rel=1e-3)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sample", [3, 100, 1 << 20])
def test_processes_find_the_frame_of_one(monkeypatch, size, sample):
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", sample)
    for n in (3, 4, 500):
        table = stars_of(n, seed=2)
        alone, note = find_frame(stored(table), np.array([60.0, 60.0, 60.0]), BOX)
        assert "beyond their half-mass radius" in note[0]
        held, _ = find_frame(held_stars(table), np.array([60.0, 60.0, 60.0]), BOX)
        np.testing.assert_allclose(alone.velocity, held.velocity, rtol=1e-12)
        asked = [[] for _ in range(size)]

        def work(team, table=table, asked=asked):
            return find_frame(stored(table, team, asked[team.number]), np.array([60.0, 60.0, 60.0]), BOX)

        found = values_of(run_team(size, work))
        for frame, notes in found:
            assert notes == note
            np.testing.assert_array_equal(frame.velocity, found[0][0].velocity)
            np.testing.assert_allclose(frame.velocity, alone.velocity, rtol=1e-12)
        for number, parts in enumerate(asked):
            first, last = n * number // size, n * (number + 1) // size
            assert all(first <= start <= stop <= last for start, stop, _ in parts if stop > start)


@pytest.mark.parametrize("sample", [10, 1 << 20])
def test_stars_that_complete_the_half_together(monkeypatch, sample):
    """Equal masses, of which two halves are the whole to the last digit or not; rings of equal radii."""
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", sample)
    for n, mass in ((240, 0.1), (240, 1 / 3), (241, 0.7)):
        angle = np.arange(n) * 2.4
        radius = 1.0 + np.arange(n) // 60
        table = {
            "position": np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle], axis=1) + 100.0,
            "velocity": np.random.default_rng(1).normal(size=(n, 3)) + radius[:, None] * 10,
            "mass": np.full(n, mass),
        }
        order = np.random.default_rng(n).permutation(n)
        inside = radius <= radius[(n - 1) // 2]
        expected = table["velocity"][inside].mean(axis=0)
        for stars in (table, {name: values[order] for name, values in table.items()}):

            def work(team, stars=stars):
                return find_frame(stored(stars, team), np.full(3, 100.0), None)

            for frame, _ in [work(SINGLE), *values_of(run_team(3, work))]:
                np.testing.assert_allclose(frame.velocity, expected, rtol=1e-12)


# ---------------------------------------------------------------- rows


def test_parts_of_rows():
    rng = np.random.default_rng(3)
    for n_run in (0, 1, 2, 30):
        ends = np.sort(rng.choice(500, 2 * n_run, replace=False))
        rows = RowRanges(ends[0::2], ends[1::2])
        runs = [np.arange(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True)]
        every = np.concatenate([np.zeros(0, int), *runs])
        assert rows.count == every.size
        for start, stop in rng.integers(0, every.size + 1, (40, 2)).tolist():
            part = rows.part(start, stop)
            found = [np.arange(a, b) for a, b in zip(part.starts, part.stops, strict=True)]
            np.testing.assert_array_equal(np.concatenate([np.zeros(0, int), *found]), every[start:stop])
            assert part.count == max(stop - start, 0)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_rows_are_looked_through_once_by_all_processes_together(size):
    chosen = np.random.default_rng(4).random(300) < 0.5
    rows = RowRanges(np.array([10, 250]), np.array([200, 253]))
    expected = filtered(rows, lambda start, stop: chosen[start:stop], "", lambda *_: None)
    tested = []

    def work(team):
        def test(start, stop):
            tested.extend(range(start, stop))
            return chosen[start:stop]

        return filtered(rows, test, "", lambda *_: None, team)

    for found in values_of(run_team(size, work)):
        np.testing.assert_array_equal(found.starts, expected.starts)
        np.testing.assert_array_equal(found.stops, expected.stops)
    assert sorted(tested) == [*range(10, 200), *range(250, 253)]


# ---------------------------------------------------------------- files

A, N_OLD, N_YOUNG, N_GAS = 0.8, 130, 110, 40
HEADER = {"BoxSize": 1e5, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 1 / A - 1, "Time": A}
FIELD_MAP = """
title: two kinds of stars
source: the tests
expansion: auto
labels: {halo: HaloNumber}
stars:
  groups: [PartType2, PartType4]
  fields:
    position: {dataset: Coordinates, unit: kpc}
    velocity: {dataset: Velocities, unit: km / s}
    mass: {dataset: Masses, unit: 1e10 Msun}
    initial_mass: {dataset: InitialMass, unit: 1e10 Msun}
    age: {dataset: Age, unit: Gyr}
    metallicity: {dataset: Metallicity}
gas:
  groups: PartType0
  fields:
    position: {dataset: Coordinates, unit: kpc}
    velocity: {dataset: Velocities, unit: km / s}
    mass: {dataset: Masses, unit: 1e10 Msun}
    metallicity: {dataset: Metallicity}
"""


def particles(n, seed):
    rng = np.random.default_rng(seed)
    return {
        "Coordinates": 5e4 + rng.normal(size=(n, 3)) * 30,
        "Velocities": rng.normal(size=(n, 3)) * 100 + 50,
        "Masses": rng.uniform(1e-5, 2e-5, n),
        "HaloNumber": rng.integers(0, 3, n),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first_pass")
    (folder / "two.yaml").write_text(FIELD_MAP)
    young, gas = particles(N_YOUNG, 2), particles(N_GAS, 3)
    known = {
        "InitialMass": 2 * young["Masses"],
        "Age": np.linspace(0.1, 9, N_YOUNG),
        "Metallicity": np.full(N_YOUNG, 0.02),
    }
    gas["Metallicity"] = np.full(N_GAS, 0.01)
    groups = {"PartType2": particles(N_OLD, 1), "PartType4": young | known, "PartType0": gas}
    return write_snapshot(folder / "snap.hdf5", groups, HEADER)


SELECTIONS = {"all": {}, "sphere": {"sphere": {"center": [5e4, 5e4, 5e4], "radius": 45}}, "halo": {"halo": 1}}


def run_of(path, **galaxy):
    section = {"reader": str(path.parent / "two.yaml"), "path": str(path), "ages": "recipe"} | galaxy
    return rl.load_config(
        {"galaxy": section, "observation": {"redshift": 0.05}, "instrument": {"name": "muse", "fov": "5 arcsec"}}
        | {"engine": {"deposit": "nearest"}}
    )


@pytest.mark.parametrize(("selection", "size"), [("all", 4), ("sphere", 4), ("halo", 1)])
def test_shares_of_processes_are_the_whole(path, selection, size):
    """With what is drawn and what is completed, and what is said of how many stars."""
    config = run_of(path, **SELECTIONS[selection])
    whole, info = rl.load_galaxy(config), rl.load_galaxy_info(config)
    n_old = int(np.isnan(reader_rows(config.galaxy, "initial_mass")).sum())
    assert info.ages.endswith(f"; {n_old} of {info.n_stars} stars")
    assert info.initial_mass.endswith(f"; {n_old} of {info.n_stars} stars")

    def work(team):
        with open_galaxy(config, team=team) as galaxy:
            stars = galaxy.read_stars(*team.share(galaxy.n_stars))
            return galaxy.info, stars, galaxy.read_gas(*team.share(galaxy.n_gas))

    found = values_of(run_team(size, work))
    assert all(share[0] == info for share in found)
    for kind, expected in ((1, whole.stars), (2, whole.gas)):
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *(share[kind] for share in found))
        jax.tree.map(np.testing.assert_array_equal, joined, expected)


@pytest.mark.parametrize(("selection", "sample"), [("all", 50), ("sphere", 50), ("halo", 1 << 20)])
def test_no_process_reads_outside_its_share(monkeypatch, path, selection, sample):
    """Of the rows in which it looks for the selected ones, then of these."""
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", sample)
    reader = reader_of(
        {"reader": str(path.parent / "two.yaml"), "path": path, "ages": "recipe"} | SELECTIONS[selection]
    )
    size = 3
    every = reader_rows(reader)

    def work(team):
        asked = []
        with open_snapshot(reader) as opened:
            snapshot = watched(opened, asked)
            selected = select(snapshot, reader, None, lambda *_: None, team)
            looked = rows_of(asked)
            asked.clear()
            columns = ColumnReader(selected, ages=reader.ages)
            count = selected.count("stars")
            stars = StoredStars(count, columns.stars, team)
            frame, _ = find_frame(stars, selected.center, snapshot.box_size)
            with reader.open_galaxy() as alone:
                np.testing.assert_allclose(frame.velocity, alone.frame.velocity, rtol=1e-12)
                info = alone.info
            GalaxySlabs(columns, frame, info).read_stars(*team.share(count))
            return looked, rows_of(asked)

    everything = np.arange(N_OLD + N_YOUNG)
    for number, (looked, read) in enumerate(values_of(run_team(size, work))):
        candidates = everything[len(everything) * number // size : len(everything) * (number + 1) // size]
        assert set(looked) <= set(candidates)
        assert bool(looked) == (selection != "all")
        share = every[len(every) * number // size : len(every) * (number + 1) // size]
        assert (min(read), max(read)) == (share[0], share[-1])


def reader_rows(reader, quantity="row"):
    """A column of all selected stars."""
    with open_selected(reader) as selected:
        return selected.read("stars", 0, selected.count("stars"), ("mass", "initial_mass"))[quantity]


def rows_of(asked):
    """Rows of stars that were read, counted through both groups."""
    first = {"PartType2": 0, "PartType4": N_OLD}
    groups = [(name.partition("/")[0], start, stop) for name, start, stop in asked]
    return {first[group] + row for group, start, stop in groups if group in first for row in range(start, stop)}


def test_only_one_process_looks_at_the_columns_of_gas(path):
    asked = [[], [], []]

    def work(team):
        with open_snapshot(reader_of({"reader": str(path.parent / "two.yaml"), "path": path})) as opened:
            snapshot = watched(opened, asked[team.number])
            selected = select(snapshot, reader_of({"path": path}), None, lambda *_: None, team)
            return ColumnReader(selected).gas_quantities(team)

    found = values_of(run_team(3, work))
    assert found == [frozenset({"position", "velocity", "mass", "metallicity", "row"})] * 3
    assert [bool(read) for read in asked] == [True, False, False]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        ({"sphere": {"center": [1e4, 1e4, 1e4], "radius": 1}}, "the nearest is"),
        ({"halo": 7}, "has the number 7; they have 3 numbers, the nearest of which are 2, 1, 0"),
    ],
)
def test_an_empty_selection_is_told_by_all_processes_as_by_one(path, selection, message):
    config = run_of(path, **selection)
    with pytest.raises(ValueError, match=message) as alone, open_galaxy(config):
        pass

    def work(team):
        with open_galaxy(config, team=team):
            pass

    assert [str(error) for error in run_team(3, work)] == [str(alone.value)] * 3


def test_a_damaged_row_is_told_by_the_process_that_reads_it(path, tmp_path):
    damaged = tmp_path / "snap.hdf5"
    damaged.write_bytes(path.read_bytes())
    with h5py.File(damaged, "r+") as file:
        file["PartType4/Velocities"][100] = np.nan
    config = run_of(damaged, reader=str(path.parent / "two.yaml"))

    def work(team):
        with open_galaxy(config, team=team):
            pass

    first, second = run_team(2, work)
    assert isinstance(second, ValueError)
    assert "PartType4/Velocities: expected finite values" in str(second)
    assert isinstance(first, RuntimeError)
    assert "process 1" in str(first)


def test_a_file_that_one_process_does_not_see(path, tmp_path):
    """The others do not wait for it."""
    configs = [run_of(seen, reader=str(path.parent / "two.yaml")) for seen in (path, tmp_path / "none.hdf5")]

    def work(team):
        with open_galaxy(configs[team.number], team=team):
            pass

    first, second = run_team(2, work)
    assert isinstance(second, FileNotFoundError)
    assert "process 1 failed: galaxy.path: no file" in str(first)


def test_a_galaxy_in_memory_is_whole_in_every_process():
    config = rl.load_config(
        {"galaxy": {"reader": "synthetic", "n_stars": 50, "n_gas": 9}}
        | {"observation": {"redshift": 0.1}, "instrument": {"name": "muse", "fov": "5 arcsec"}}
    )

    def work(team):
        with open_galaxy(config, team=team) as galaxy:
            assert (galaxy.n_stars, galaxy.n_gas) == (50, 9)
            return galaxy.read_stars(*team.share(50)).position, galaxy.read_gas(*team.share(9)).mass

    positions, masses = (np.concatenate(parts) for parts in zip(*values_of(run_team(3, work)), strict=True))
    whole = rl.load_galaxy(config)
    np.testing.assert_array_equal(positions, whole.stars.position)
    np.testing.assert_array_equal(masses, whole.gas.mass)


REAL = {
    "EAGLE_snap28_G92_9_full7524.hdf5": {},
    "illustris1_z0_subhalo420815_stars.hdf5": {},
    "gizmo_isolated_C16.hdf5": {"ages": "recipe"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_galaxies(real_data, monkeypatch, name):
    """By slabs, samples and processes: the frame is that of all stars at once but for the scatter of a small sample."""
    monkeypatch.setattr(frame_module, "SLAB_STARS", 1 << 13)
    monkeypatch.setattr(rows_module, "SLAB_ROWS", 1 << 13)
    reader = reader_of({"path": real_data / "galaxies" / name} | REAL[name])
    with reader.open_galaxy() as galaxy:
        whole, n_stars = galaxy.frame, galaxy.n_stars
    given = reader.model_copy(update={"center": tuple(f"{x!r} kpc" for x in whole.wrapped_center.tolist())})
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", n_stars // 5)

    def work(team, chosen=reader):
        with chosen.open_galaxy(team=team) as galaxy:
            return galaxy.frame, galaxy.info

    frames = [*values_of(run_team(1, work)), *values_of(run_team(3, work))]
    for frame, info in frames:
        np.testing.assert_array_equal(frame.center, frames[0][0].center)
        np.testing.assert_allclose(frame.velocity, frames[0][0].velocity, rtol=1e-9)
        assert info == frames[0][1] or info.bulk_velocity == pytest.approx(frames[0][1].bulk_velocity, rel=1e-9)
        assert np.linalg.norm(unwrap(frame.center[None], whole.center, whole.box_size)) < 3.0
    for frame, _ in values_of(run_team(2, lambda team: work(team, given))):
        np.testing.assert_allclose(frame.velocity, whole.velocity, rtol=1e-9)

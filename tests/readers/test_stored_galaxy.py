"""Parts of a galaxy put together are the whole; only what is asked for is read; memory stays within what is stated."""

import io
import time
import tracemalloc

import h5py
import jax
import numpy as np
import pytest
from snapshot_reading import open_snapshot, reader_of, watched

import rubix_like as rl
from rubix_like import open_galaxy
from rubix_like.extend import Progress
from rubix_like.readers import galaxy_frame as frame_module
from rubix_like.readers.galaxy_loading import load
from rubix_like.readers.selection import row_ranges as rows_module
from rubix_like.readers.selection.selected import select
from rubix_like.readers.snapshot import ColumnReader, GalaxySlabs
from rubix_like.runtime import progress as progress_module

A, COUNT = 0.8, 700
FIELDS = ("Coordinates", "Velocities", "Masses", "GFM_Metallicity")
HEADER = {"BoxSize": 1e5, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 1 / A - 1, "Time": A}


def write(path, count, n_gas, **storage):
    """Stars in a ball of 30 code units, every ninth a wind cell; gas around them."""
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(HEADER)
        for group, number in (("PartType4", count), ("PartType0", n_gas)):
            table = {
                "Coordinates": 5e4 + rng.normal(size=(number, 3)) * 30,
                "Velocities": (rng.normal(size=(number, 3)) * 100).astype(np.float32),
                "Masses": rng.uniform(1e-5, 2e-5, number).astype(np.float32),
                "GFM_Metallicity": rng.uniform(0, 0.04, number).astype(np.float32),
            }
            if group == "PartType4":
                birth = rng.uniform(0.1, A, number).astype(np.float32)
                birth[::9] = 0
                table |= {"GFM_StellarFormationTime": birth, "GFM_InitialMass": 2 * table["Masses"]}
            for name, values in table.items():
                file.create_dataset(f"{group}/{name}", data=values, **storage)
    return path


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("slabs") / "snap.hdf5", COUNT, 90)


@pytest.fixture
def small_slabs(monkeypatch):
    monkeypatch.setattr(rows_module, "SLAB_ROWS", 64)
    monkeypatch.setattr(rows_module, "GAP_ROWS", 5)


def run(path, **galaxy):
    return rl.load_config(
        {
            "galaxy": {"reader": "illustris", "path": str(path)} | galaxy,
            "observation": {"redshift": 0.05},
            "instrument": {"name": "muse", "fov": "5 arcsec"},
            "engine": {"deposit": "nearest"},
        }
    )


SPHERE = {"sphere": {"center": [5e4, 5e4, 5e4], "radius": 40}}


@pytest.mark.parametrize("selection", [{}, SPHERE])
def test_parts_put_together_are_the_whole(small_slabs, path, selection):
    config = run(path, **selection)
    whole, info = load(config)
    parts = []
    with rl.open_galaxy(config) as galaxy:
        assert (galaxy.n_stars, galaxy.n_gas) == (galaxy.info.n_stars, galaxy.info.n_gas)
        assert galaxy.info == info
        for cuts in ((), (1, 2), (0, 63, 64, 65, 200)):
            stars = [galaxy.read_stars(*ends) for ends in zip((0, *cuts), (*cuts, galaxy.n_stars), strict=True)]
            parts.append((stars, whole.stars))
        gas = [galaxy.read_gas(*ends) for ends in ((0, 7), (7, 7), (7, galaxy.n_gas))]
        parts.append((gas, whole.gas))
    for some, expected in parts:
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *some)
        jax.tree.map(np.testing.assert_array_equal, joined, expected)
    assert 0 < len(whole.stars.mass) < COUNT


def test_parts_beyond_the_galaxy_and_after_its_end(path):
    with rl.open_galaxy(run(path)) as galaxy:
        assert galaxy.read_stars(3, 3).mass.shape == (0,)
        for start, stop in ((-5, 3), (10, 5), (0, galaxy.n_stars + 1)):
            with pytest.raises(ValueError, match=rf"0 <= start <= stop <= {galaxy.n_stars}, got start {start} and"):
                galaxy.read_stars(start, stop)
    with pytest.raises(ValueError, match=r"snap\.hdf5 is closed: read it inside the `with`"):
        galaxy.read_stars(0, 10)


def test_ages_by_recipe_belong_to_the_row_whatever_the_parts(tmp_path):
    path = write(tmp_path / "snap.hdf5", 200, 5)
    with h5py.File(path, "r+") as file:
        for name in ("GFM_StellarFormationTime", "GFM_Metallicity", "GFM_InitialMass"):
            del file[f"PartType4/{name}"]
    config = run(path, ages="recipe", **SPHERE)
    whole = rl.load_galaxy(config)
    with rl.open_galaxy(config) as galaxy:
        assert galaxy.info.ages == rl.load_galaxy_info(config).ages
        assert "wind cells cannot be told from stars: the file has no GFM_StellarFormationTime" in galaxy.info.notes
        part = galaxy.read_stars(30, 70)
    for name in ("log_age", "metallicity", "initial_mass"):
        np.testing.assert_array_equal(getattr(part, name), np.asarray(getattr(whole.stars, name))[30:70])


def test_lengths_by_neighbours_need_all_stars(path):
    for more in ({"galaxy": {"smoothing_length": "neighbours"}}, {"engine": {"deposit": "smoothed"}}):
        section = {"reader": "illustris", "path": str(path)} | more.get("galaxy", {})
        config = run(path).model_dump(mode="json") | {"galaxy": section, "engine": more.get("engine", {})}
        with pytest.raises(rl.ConfigError, match="neighbours need all stars at once"), open_galaxy(config):
            pass


def test_lengths_of_the_file_must_be_there_for_parts_too(path, tmp_path):
    config = run(path, smoothing_length="file")
    with (
        open_galaxy(config) as galaxy,
        pytest.raises(rl.ConfigError, match=r"smoothing lengths of all stars .* 7 of 7 have none"),
    ):
        galaxy.read_stars(3, 10)
    stored = write(tmp_path / "snap.hdf5", 60, 5)
    with h5py.File(stored, "r+") as file:
        file["PartType4/StellarHsml"] = np.linspace(0.1, 1, 60)
    config = run(stored, smoothing_length="file")
    whole, info = load(config)
    with open_galaxy(config) as galaxy:
        assert galaxy.info == info
        np.testing.assert_array_equal(galaxy.read_stars(3, 10).smoothing_length, whole.stars.smoothing_length[3:10])


def counted(path, asked, **settings):
    """The selected particles of a snapshot that counts, and its reader."""
    reader = reader_of({"reader": "illustris", "path": path} | settings)
    opened = open_snapshot(reader)
    snapshot = opened.__enter__()
    return opened, select(watched(snapshot, asked), reader), reader


def test_nothing_outside_the_part_is_read(small_slabs, path):
    asked = []
    opened, selected, reader = counted(path, asked)
    try:
        rows = selected.read("stars", 0, selected.count("stars"), ("mass",))["row"].astype(int)
        with reader.open_galaxy() as galaxy:
            frame, info = galaxy.frame, galaxy.info
        parts = GalaxySlabs(ColumnReader(selected), frame, info)
        asked.clear()
        parts.read_stars(100, 150)
    finally:
        opened.__exit__(None, None, None)
    first, last = rows[100], rows[149]
    assert {name for name, _, _ in asked} == {
        f"PartType4/{name}" for name in (*FIELDS, "GFM_StellarFormationTime", "GFM_InitialMass")
    }
    assert min(start for _, start, _ in asked) == first
    assert max(stop for _, _, stop in asked) == last + 1
    for name in {name for name, _, _ in asked}:
        read = [(start, stop) for column, start, stop in asked if column == name]
        assert sum(stop - start for start, stop in read) == last + 1 - first
        assert max(stop - start for start, stop in read) <= 64


def test_selecting_reads_only_what_it_needs(small_slabs, path):
    asked = []
    opened, selected, _ = counted(path, asked)
    opened.__exit__(None, None, None)
    assert {name for name, _, _ in asked} == {"PartType4/GFM_StellarFormationTime"}
    assert sum(stop - start for _, start, stop in asked) == COUNT
    asked = []
    opened, selected, _ = counted(path, asked, **SPHERE)
    try:
        names = {"GFM_StellarFormationTime", "Coordinates"}
        assert {name.partition("/")[2] for name, _, _ in asked} == names
        asked.clear()
        selected.read("stars", 0, 10, ("mass",))
        assert {name for name, _, _ in asked} == {"PartType4/Masses"}
    finally:
        opened.__exit__(None, None, None)


def test_progress_shows_rows(small_slabs, path, monkeypatch):
    reports = []
    load(run(path, **SPHERE), lambda *report: reports.append(report))
    whats = list(dict.fromkeys(what for what, _, _ in reports))
    assert whats[:2] == ["GFM_StellarFormationTime of stars read", "positions of stars read"]
    assert whats[-2:] == ["stars read", "gas read"]
    for what in whats:
        done = [(finished, total) for step, finished, total in reports if step == what]
        assert [finished for finished, _ in done] == sorted(finished for finished, _ in done)
        assert done[-1][0] == done[-1][1] > 0
    assert sum(what == "stars read" for what, _, _ in reports) > 3

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    with Progress(stream).step("load", "loading") as report:
        report("stars read", 1000, 4000)
        time.sleep(0.3)
    assert "loading (stars read: 1,000 of 4,000)" in stream.getvalue()
    monkeypatch.setattr(progress_module, "_HEARTBEAT_SECONDS", 0.05)
    log = io.StringIO()
    with Progress(log).step("load", "loading") as report:
        report("stars read", 1000, 4000)
        time.sleep(0.2)
    assert "loading ... still at work after 0 s, stars read: 1,000 of 4,000\n" in log.getvalue()


def peak_of(act):
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_memory_is_bounded(tmp_path, share):
    """The bound of docs/big-files.md: columns of the selected, a slab, and runs (every ninth star is a wind cell)."""
    count = 1_500_000 if share < 1 else 500_000
    path = write(tmp_path / "big.hdf5", count, 10, chunks=True, compression="lzf")
    radius = 30 * np.sqrt(3) * 10 if share == 1 else 10.2
    numbers = 3 + 3 + 4 + 1  # position, velocity, two masses, metallicity, birth, row
    reader = reader_of({"reader": "illustris", "path": path, "sphere": {"center": [5e4, 5e4, 5e4], "radius": radius}})
    found = []
    peak = peak_of(lambda: found.append(reader.load()[1].n_stars))
    assert found[0] == pytest.approx(share * count * 8 / 9, rel=0.2)
    runs = count // 9 + found[0]
    bound = 3 * 8 * numbers * found[0] + 2 * 8 * numbers * rows_module.SLAB_ROWS + 64 * runs
    print(f"peak {peak / 1e6:.0f} MB, bound {bound / 1e6:.0f} MB, {found[0]} of {count} stars")
    assert peak < bound


@pytest.mark.long
def test_memory_of_opening_does_not_grow_with_the_galaxy(monkeypatch, tmp_path):
    """The bound of docs/big-files.md for opening: the sample, a slab and runs, here of one in nine rows."""
    monkeypatch.setattr(frame_module, "SAMPLE_STARS", 1 << 14)
    monkeypatch.setattr(frame_module, "SLAB_STARS", 1 << 14)
    monkeypatch.setattr(rows_module, "SLAB_ROWS", 1 << 14)
    numbers, peaks = 11, []
    for count in (100_000, 400_000):
        path = write(tmp_path / "big.hdf5", count, 10, chunks=True, compression="lzf")
        reader = reader_of({"reader": "illustris", "path": path})

        def act(reader=reader, count=count):
            with reader.open_galaxy() as galaxy:
                assert galaxy.n_stars == count - -(-count // 9)

        peaks.append(peak_of(act))
        bound = 3 * 8 * numbers * (1 << 14) + 2 * 8 * numbers * (1 << 14) + (1 << 20) + 64 * count // 9
        print(f"peak {peaks[-1] / 1e6:.1f} MB, bound {bound / 1e6:.1f} MB, {count} stars")
        assert peaks[-1] < bound
    assert peaks[1] - peaks[0] < 64 * 300_000 / 9

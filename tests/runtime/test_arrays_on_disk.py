"""Arrays kept on disk: the same bits come back, and nothing that happens to the files matters but for time."""

import gc
import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rubix_like.runtime import arrays_on_disk as disk_cache
from rubix_like.runtime.arrays_on_disk import clear_cache, key_of, remembered, stored

REPOSITORY = Path(__file__).resolve().parents[2]
ARRAYS = {
    "matrix": np.random.default_rng(1).normal(size=(60, 100)).astype(np.float32),
    "values": np.array([0.1, np.nan, -np.inf, -0.0, 5e-324] + [1 / 3] * 2000),
    "smooth": np.arange(7) % 2 == 0,
    "step": np.asarray(0.1),
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engine"


@pytest.fixture(autouse=True)
def only_what_a_test_makes_is_collected():
    """The many objects of the tests before are not gone through again by each `gc.collect()`."""
    gc.freeze()


class Maker:
    """Counts how often the arrays were made."""

    def __init__(self, arrays=ARRAYS):
        self.arrays, self.calls = arrays, 0

    def __call__(self):
        self.calls += 1
        return self.arrays


def ask(make, key="key", names=tuple(ARRAYS), kind="basis"):
    return remembered(kind, key, names, make)


def assert_same(found, expected=ARRAYS):
    for name, values in expected.items():
        assert found[name].dtype == values.dtype
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_same_bits_come_back(folder):
    make = Maker()
    assert_same(ask(make))
    assert names_in(folder) == ["basis-key.npz"]
    for _ in range(2):
        assert_same(ask(make))
    assert make.calls == 1


def test_keys_and_kinds_are_kept_apart(folder):
    one, other = ({"a": np.array([value])} for value in (1.0, 2.0))
    for kind, key, arrays in (("basis", "x", one), ("basis", "y", other), ("matrix", "x", other)):
        assert_same(ask(Maker(arrays), key, ("a",), kind), arrays)
    for kind, key, arrays in (("basis", "x", one), ("basis", "y", other), ("matrix", "x", other)):
        make = Maker({})
        assert_same(ask(make, key, ("a",), kind), arrays)
        assert make.calls == 0
    assert names_in(folder) == ["basis-x.npz", "basis-y.npz", "matrix-x.npz"]


def test_the_folder_is_made_only_when_something_is_kept(tmp_path):
    assert stored() == []
    assert clear_cache() == (0, 0)
    assert not (tmp_path / "cache").exists()


# ---------------------------------------------------------------- keys


def test_a_key_depends_on_values_shape_type_order_and_text():
    base = np.arange(6.0)
    different = [
        (base,),
        (np.nextafter(base, 9),),
        (base.reshape(2, 3),),
        (base.reshape(3, 2),),
        (base.reshape(1, 6),),
        (base.astype(np.float32),),
        (base.astype(">f8"),),
        (base.view(np.int64),),
        (base[:5],),
        (base[::-1],),
        (np.asarray(0.0),),
        (np.zeros(1),),
        (np.zeros(0),),
        (np.zeros((0, 3)),),
        (np.zeros(1, bool),),
        (base, 1e-3),
        (base, 1.0000000000000002e-3),
        (base, "0.001"),
        (1e-3, base),
        (base[:3], base[3:]),
        (base[:2], base[2:]),
        (base, "a", "b"),
        (base, "ab"),
        (base, "a;'b'"),
        (),
    ]
    keys = [key_of(*parts) for parts in different]
    assert len(set(keys)) == len(different)
    assert all(key.isalnum() and len(key) == 40 for key in keys)


def test_a_key_does_not_depend_on_how_an_array_lies_in_memory():
    table = np.random.default_rng(2).normal(size=(5, 7))
    assert key_of(table) == key_of(table.copy()) == key_of(np.asfortranarray(table)) == key_of(table.T.copy().T)
    assert key_of(table[:, ::2]) == key_of(table[:, ::2].copy())


def test_a_key_is_the_same_in_another_process():
    program = (
        "import numpy; from rubix_like.runtime.arrays_on_disk import key_of; "
        "print(key_of(numpy.arange(3.0), 'a', 0.1, True))"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONHASHSEED": "5"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == key_of(np.arange(3.0), "a", 0.1, True)


# ---------------------------------------------------------------- damaged files


def assert_made_again(path, caplog):
    """The damaged file is noticed, said and replaced."""
    make = Maker()
    with caplog.at_level(logging.WARNING, logger="rubix_like"):
        assert_same(ask(make))
    assert make.calls == 1
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert str(path) in record.getMessage()
    assert "made again" in record.getMessage()
    caplog.clear()
    assert_same(ask(make))
    assert make.calls == 1
    assert not caplog.records
    assert names_in(path.parent) == [path.name]
    gc.collect()  # a file left open is an error of this test


def test_truncated_files_and_files_that_are_something_else(folder, caplog):
    """Also an empty one, which a crash of the machine leaves; text, zeros (what some file systems leave after a crash),
    an empty archive, and a bare array."""
    ask(Maker())
    path = folder / "basis-key.npz"
    content = path.read_bytes()
    bare = io.BytesIO()
    np.save(bare, np.arange(3.0))
    cut = [content[: int(share * len(content))] for share in (0.0, 0.001, 0.3, 0.9, 0.9999)]
    for other in (*cut, b"hello", b"\x00" * 40000, b"PK\x05\x06" + b"\x00" * 18, bare.getvalue()):
        path.write_bytes(other)
        assert_made_again(path, caplog)


def test_a_file_that_lacks_an_array(folder, caplog):
    ask(Maker({name: ARRAYS[name] for name in ("matrix", "step")}))
    assert_made_again(folder / "basis-key.npz", caplog)


def test_arrays_of_objects_are_not_read(folder, caplog):
    """They would run code."""
    folder.mkdir(parents=True)
    np.savez(folder / "basis-key.npz", **{**ARRAYS, "step": np.array([{"a": 1}], dtype=object)})
    assert_made_again(folder / "basis-key.npz", caplog)


def places(content):
    """Every byte of the checksum, every seventh of the archive's records and the arrays' headers, some values."""
    records = [content.index(f"{name}.npy".encode()) for name in ARRAYS]
    marked = {place for start in records for place in range(start - 40, start + 190)}
    marked |= set(range(content.rindex(b"PK\x01\x02") - 300, len(content))) | set(range(0, len(content), 1009))
    return [*range(32), *sorted(place for place in marked if 32 <= place < len(content))[::7]]


@pytest.mark.parametrize("pattern", [0x02, *(pytest.param(other, marks=pytest.mark.long) for other in (0x01, 0xFF))])
def test_flipped_bytes_never_give_other_arrays(folder, pattern):
    """Wherever a byte is changed, in values, headers or the archive's records: nothing raised, nothing wrong."""
    ask(Maker())
    path = folder / "basis-key.npz"
    content = path.read_bytes()
    wrong = []
    for place in places(content):
        damaged = bytearray(content)
        damaged[place] ^= pattern
        path.write_bytes(damaged)
        try:
            assert_same(ask(Maker()))
        except Exception as error:
            wrong.append((place, repr(error)[:80]))
    gc.collect()
    assert not wrong, f"{len(wrong)} of {len(places(content))}: {wrong[:3]} ... {wrong[-3:]}"


# ---------------------------------------------------------------- folders and disks that cannot be used


@pytest.mark.parametrize("blocked", ["cache", "cache/engine"])
def test_a_file_in_place_of_the_folder(tmp_path, blocked, caplog):
    (tmp_path / blocked).parent.mkdir(exist_ok=True)
    (tmp_path / blocked).write_text("not a folder")
    make = Maker()
    for _ in range(2):
        assert_same(ask(make))
    assert make.calls == 2
    assert stored() == []
    assert clear_cache() == (0, 0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (tmp_path / blocked).read_text() == "not a folder"


def test_a_folder_in_place_of_the_file(folder):
    (folder / "basis-key.npz" / "within").mkdir(parents=True)
    assert_same(ask(Maker()))
    assert names_in(folder) == ["basis-key.npz"]


def test_a_name_too_long_for_the_system(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / ("long" * 100)))
    assert_same(ask(Maker()))


FULL_DISK = """
import os, resource, sys, numpy
from rubix_like.runtime import arrays_on_disk as disk_cache

def make():
    return {"a": numpy.arange(50_000.0)}

for place in sys.argv[1:]:
    os.environ["RUBIX_LIKE_CACHE"] = place
    print("in", place, file=sys.stderr)
    for limit in (0, 100, 4096, 200_000, 400_200):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        found = disk_cache.remembered("basis", "key", ("a",), make)
        assert found["a"].tobytes() == make()["a"].tobytes()
        print(limit, *((path.name, path.stat().st_size) for path in disk_cache.folder().iterdir()))
"""


def test_a_full_disk_leaves_nothing_half_written(tmp_path):
    """A limit on the size of files stands for it: the file is 400 kB, and the write fails at any part of the way.

    An older file (a damaged one, since a good one would not be written again) outlives it.
    """
    (tmp_path / "older" / "engine").mkdir(parents=True)
    (tmp_path / "older" / "engine" / "basis-key.npz").write_bytes(b"older")
    places = [str(tmp_path / "older"), str(tmp_path / "new")]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", FULL_DISK, *places]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    kept = (" ('basis-key.npz', 5)", "")
    expected = "".join(f"{limit}{own}\n" for own in kept for limit in (0, 100, 4096, 200_000, 400_200))
    assert done.stdout == expected, done.stderr
    assert done.stderr.splitlines()[-1] == f"in {places[1]}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter and write everywhere")
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_folder_without_permission(folder, mode):
    """One that may not be entered, and one that may not be written to."""
    folder.mkdir(parents=True)
    folder.chmod(mode)
    try:
        assert_same(ask(Maker()))
        assert stored() == []
    finally:
        folder.chmod(0o700)
    assert names_in(folder) == []


# ---------------------------------------------------------------- the limit


def keep(number, hours_ago):
    """A file of about 10 kB, last used some hours ago."""
    ask(Maker({"a": np.full(1250, float(number))}), str(number), ("a",))
    path = disk_cache.folder() / f"basis-{number}.npz"
    when = path.stat().st_mtime - 3600 * hours_ago
    os.utime(path, (when, when))
    return path


def test_stored_files_are_sorted_by_last_use():
    paths = [keep(number, hours_ago) for number, hours_ago in enumerate((5, 9, 1))]
    entries = stored()
    assert [path for path, _, _ in entries] == [paths[1], paths[0], paths[2]]
    assert [size for _, size, _ in entries] == [path.stat().st_size for path in (paths[1], paths[0], paths[2])]


def test_the_least_recently_used_files_are_removed_beyond_the_limit(monkeypatch, folder):
    for number, hours_ago in enumerate((5, 9, 1, 7)):
        keep(number, hours_ago)
    size = (folder / "basis-0.npz").stat().st_size
    monkeypatch.setattr(disk_cache, "LIMIT_BYTES", 3 * size)
    keep(4, 0)
    assert names_in(folder) == ["basis-0.npz", "basis-2.npz", "basis-4.npz"]
    keep(4, 0)
    assert len(names_in(folder)) == 3, "within the limit nothing is removed"


def test_reading_is_a_use(monkeypatch, folder):
    size = keep(0, 9).stat().st_size
    keep(1, 5)
    assert_same(ask(Maker({}), "0", ("a",)), {"a": np.full(1250, 0.0)})
    monkeypatch.setattr(disk_cache, "LIMIT_BYTES", 2 * size)
    keep(2, 0)
    assert names_in(folder) == ["basis-0.npz", "basis-2.npz"]


def test_the_newest_file_is_kept_even_alone_beyond_the_limit(monkeypatch, folder):
    """Also where the clock says that it is the oldest."""
    monkeypatch.setattr(disk_cache, "LIMIT_BYTES", 100)
    for number, hours_ago in ((0, -100), (1, 0)):
        path = keep(number, hours_ago)
        assert names_in(folder) == [path.name]


def test_clear_removes_all_files_and_says_how_much(folder):
    sizes = [keep(number, 0).stat().st_size for number in range(3)]
    assert clear_cache() == (3, sum(sizes))
    assert names_in(folder) == []
    assert stored() == []

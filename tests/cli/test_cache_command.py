"""`rubix-like cache info` and `cache clear`: what they say is what is on the disk, and the SSP libraries stay."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from command_line import main
from quick_compiler import quick_environment

from rubix_like import Cube
from rubix_like.extend import resource
from rubix_like.runtime import arrays_on_disk as disk_cache

N_VALUES = {"basis": 2000, "matrix": 50_000}


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def command(folder, capsys):
    """Calls the command: (standard output, standard error); the signal's handler is put back."""
    handler = signal.getsignal(signal.SIGTERM)

    def call(*arguments, code=0):
        assert main(arguments) == code
        return capsys.readouterr()

    yield call
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def filled(folder):
    """Two kept results, two compiled programs, JAX's time of last use of one, and something that is none of ours."""
    for kind, n in N_VALUES.items():
        disk_cache.remembered(kind, "key", ("a",), lambda n=n: {"a": np.zeros(n)})
    for name, size in (
        (f"compiled/jit_observe-{'1' * 64}-cache", 3000),
        ("compiled/jit_observe-1-atime", 8),
        (f"compiled/jit_observe-{'2' * 64}-cache", 992),
        ("mine.txt", 5),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    return folder


def add_library(folder):
    content = resource("data", "popstar").read_bytes()
    (folder / "ssp").mkdir(parents=True)
    (folder / "ssp" / "mine.h5").write_bytes(content)
    return content


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def rows(text):
    """First word -> (files, size, limit or "") of each line but the folder's."""
    pattern = re.compile(r"^(\w+) +(\d+) files?, ([\d.]+ \w+)(?: of at most ([\d.]+ \w+))?:", re.MULTILINE)
    return {name: (int(number), size, limit) for name, number, size, limit in pattern.findall(text)}


def test_info_of_a_cache_that_does_not_exist(command, folder):
    output, errors = command("cache", "info")
    assert errors == ""
    assert output.splitlines()[0].split() == ["folder", str(folder)]
    assert rows(output) == {"engine": (0, "0 B", "2 GB"), "compiled": (0, "0 B", "500 MB"), "ssp": (0, "0 B", "")}
    assert not folder.exists()


def test_info_counts_files_and_bytes_of_each_kind(command, filled):
    content = add_library(filled)
    output, errors = command("cache", "info")
    assert errors == ""
    found = rows(output)
    size = sum((filled / "engine" / f"{kind}-key.npz").stat().st_size for kind in N_VALUES)
    assert 416_000 < size < 418_000
    assert found["engine"] == (2, f"{size / 1000:.3g} kB", "2 GB")
    assert found["compiled"] == (2, "3.99 kB", "500 MB")
    assert found["ssp"] == (1, f"{len(content) / 1e6:.3g} MB", "")


def test_clear_removes_what_can_be_made_again_and_keeps_the_rest(command, filled):
    content = add_library(filled)
    size = sum((filled / name).stat().st_size for name in files(filled) if name.endswith((".npz", "-cache")))
    output, errors = command("cache", "clear")
    assert (output, errors) == (f"Removed 4 files ({size / 1000:.3g} kB) from {filled}\n", "")
    assert files(filled) == ["compiled/jit_observe-1-atime", "mine.txt", "ssp/mine.h5"]
    assert (filled / "ssp" / "mine.h5").read_bytes() == content
    assert rows(command("cache", "info").out)["engine"] == (0, "0 B", "2 GB")
    assert command("cache", "clear").out == f"Removed 0 files (0 B) from {filled}\n"


def test_one_file_is_not_files(command, folder):
    disk_cache.remembered("basis", "key", ("a",), lambda: {"a": np.zeros(3)})
    assert command("cache", "clear").out.startswith("Removed 1 file (")


def test_what_was_cleared_is_made_again(command, filled):
    command("cache", "clear")
    made = []

    def make():
        made.append(1)
        return {"a": np.ones(3)}

    for _ in range(2):
        np.testing.assert_array_equal(disk_cache.remembered("basis", "key", ("a",), make)["a"], 1.0)
    assert len(made) == 1


@pytest.mark.parametrize("blocked", ["", "engine", "compiled"])
def test_a_file_in_place_of_a_folder(command, folder, blocked):
    (folder / blocked).parent.mkdir(parents=True, exist_ok=True)
    (folder / blocked).write_text("not a folder")
    assert rows(command("cache", "info").out)["engine"][0] == 0
    assert command("cache", "clear").out == f"Removed 0 files (0 B) from {folder}\n"
    assert (folder / blocked).read_text() == "not a folder"


@pytest.mark.parametrize("arguments", [["cache"], ["cache", "empty"]])
def test_an_action_is_needed(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    errors = capsys.readouterr().err
    assert "ACTION" in errors or "'info', 'clear'" in errors


@pytest.mark.slow
def test_a_run_fills_the_cache_and_the_next_one_uses_it(command, folder, tmp_path):
    """In processes of their own: the same cube to the bit, of two kept results one of which was damaged between; then
    cleared."""
    settings = ("engine.method=basis", "galaxy.n_stars=300", "devices.data=1")
    instrument = "instrument={name: muse, fov: 2 arcsec, wavelength: {start: 4900, stop: 5000}, psf: null, lsf: null}"

    environment = {**os.environ, **quick_environment()}

    def observed(name):
        program = [sys.executable, "-m", "rubix_like.cli", "run", "quickstart", "--output", str(tmp_path / name)]
        command = [*program, "--set", instrument, *settings]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return np.asarray(Cube.read(tmp_path / name).flux)

    first = observed("first.fits")
    kept = {path: path.stat() for path, _, _ in disk_cache.stored()}
    assert sorted(path.name.partition("-")[0] for path in kept) == ["basis", "matrix"]
    whole, damaged = sorted(kept)
    damaged.write_bytes(damaged.read_bytes()[:1000])
    np.testing.assert_array_equal(observed("second.fits"), first)
    assert whole.stat().st_ino == kept[whole].st_ino  # not written again
    assert whole.stat().st_mtime > kept[whole].st_mtime  # but used
    assert damaged.stat().st_size == kept[damaged].st_size  # made again
    assert {path for path, _, _ in disk_cache.stored()} == set(kept)
    command("cache", "clear")
    assert not [name for name in files(folder) if name.endswith((".npz", "-cache"))]

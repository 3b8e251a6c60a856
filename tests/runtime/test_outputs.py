"""Files appear whole or not at all, under names that are no one else's; what cannot be written is known before."""

import os
import re
import subprocess
import sys

import pytest

from rubix_like.runtime.files import outputs as atomic
from rubix_like.runtime.files.outputs import check_writable, remove_abandoned, remove_stale, replacing


def test_a_temporary_file_is_new_and_nobody_elses(tmp_path, monkeypatch):
    """Two containers have the same process numbers: names differ all the same, and a file that is there is kept."""
    words = iter(["a" * 6, "a" * 6, "b" * 6])
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda n: next(words, "c" * 6))
    monkeypatch.setattr(os, "getpid", lambda: 7)
    monkeypatch.setattr(atomic.socket, "gethostname", lambda: "node-12.cluster")
    with replacing(tmp_path / "cube.fits") as first:
        first.write_text("first")
        with replacing(tmp_path / "cube.fits") as second:
            second.write_text("second")
            assert first.name == ".rubix-like-node12cluster-000007aaaaaa-cube.fits"
            assert second.name == ".rubix-like-node12cluster-000007bbbbbb-cube.fits"
        assert first.read_text() == "first"
    assert (tmp_path / "cube.fits").read_text() == "first"
    assert [own.name for own in tmp_path.iterdir()] == ["cube.fits"]


@pytest.mark.parametrize("begin", [lambda path: check_writable(path, 0), lambda path: replacing(path).__enter__()])
def test_a_signal_just_after_a_temporary_file_was_made_leaves_nothing(tmp_path, monkeypatch, begin):
    def close(descriptor):
        assert len(list(tmp_path.iterdir())) == 1
        raise SystemExit(143)

    monkeypatch.setattr(os, "close", close)
    with pytest.raises(SystemExit):
        begin(tmp_path / "cube.fits")
    assert list(tmp_path.iterdir()) == []


def test_only_temporary_files_of_ours_are_removed(tmp_path):
    ours = tmp_path / ".rubix-like-other-0123456789ab-cube.fits"
    names = (".12-cube.fits", ".rubix-like-x-cube.fits", ".rubix-like-other-0123456789ab-cube2.fits", "cube.lock")
    for name in (ours.name, *names):
        (tmp_path / name).touch()
    assert remove_stale([tmp_path / "cube.fits"]) == 1
    assert {own.name for own in tmp_path.iterdir()} == set(names)


def test_what_a_killed_process_left_is_removed_and_what_others_write_is_not(tmp_path):
    path = tmp_path / "cube.fits"
    words = (
        "import os, signal; from pathlib import Path; from rubix_like.runtime.files.outputs import replacing\n"
        f"with replacing(Path({str(path)!r})) as temporary: os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", words], check=False)
    (left,) = tmp_path.iterdir()
    elsewhere = tmp_path / left.name.replace(re.findall(r"-like-(\w+)-", left.name)[0], "elsewhere")
    elsewhere.touch()
    with replacing(path) as temporary:
        remove_abandoned([path])
        assert set(tmp_path.iterdir()) == {elsewhere, temporary}


@pytest.mark.parametrize("name", ["n" * 245 + ".fits", "n" * 300 + ".fits"])
def test_a_name_that_is_too_long_is_refused(tmp_path, name):
    with pytest.raises(
        OSError, match=rf"expected a name of at most \d+ bytes, got one of {len(name)}; choose a shorter name"
    ):
        check_writable(tmp_path / name, 0)


def test_a_name_as_long_as_is_allowed_can_be_written(tmp_path):
    with pytest.raises(OSError, match="at most") as refused:
        check_writable(tmp_path / ("n" * 300), 0)
    longest = int(str(refused.value).split("at most ")[1].split()[0])
    path = tmp_path / ("n" * longest)
    check_writable(path, 0)
    with replacing(path) as temporary:
        temporary.write_text("whole")
    assert path.read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_in_which_nothing_can_be_made_is_refused_before(tmp_path, monkeypatch):
    """Permissions say yes (to root they always do), making a file says no: a read-only file system."""

    def refuse(path, flags, mode=0o777):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=r"cannot write .*cube\.fits: no permission to write in .*choose another folder"):
        check_writable(tmp_path / "cube.fits", 0)

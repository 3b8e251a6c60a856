"""Checkpoints of fits: when they are written, that they hold everything, that another fit's are refused."""

import re
import time

import numpy as np
import pytest
from small_results import FINGERPRINT, snapshot

from rubix_like import ConfigError
from rubix_like.inference.checkpoint import SECONDS, advance, claimed, kept_notes, kept_points, load_checkpoint, save
from rubix_like.inference.samplers.chains import Chains

READ = type(snapshot(0)).from_arrays


def assert_same(one, other):
    first, second = one.arrays(), other.arrays()
    assert list(first) == list(second)
    for name in first:
        assert first[name].dtype == second[name].dtype, name
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_a_checkpoint_holds_every_bit(tmp_path):
    path = tmp_path / "fit.checkpoint.npz"
    assert load_checkpoint(path, FINGERPRINT, READ) is None
    save(path, snapshot(7), FINGERPRINT)
    assert_same(load_checkpoint(path, FINGERPRINT, READ), snapshot(7))
    assert [own.name for own in tmp_path.iterdir()] == [path.name]


def test_the_checkpoint_of_another_fit_is_refused(tmp_path):
    path = tmp_path / "fit.checkpoint.npz"
    save(path, snapshot(7), FINGERPRINT)
    with pytest.raises(ConfigError, match=r"differs in: model\. Write to another place .*restart=True"):
        load_checkpoint(path, {**FINGERPRINT, "model": "c"}, READ)
    with pytest.raises(ConfigError, match="differs in: data; model"):
        load_checkpoint(path, {"data": "x", "model": "y"}, READ)
    with pytest.raises(ConfigError, match="differs in: device"):
        load_checkpoint(path, {**FINGERPRINT, "device": "d"}, READ)


def test_the_checkpoint_of_other_work_is_refused_for_what_it_is(tmp_path):
    """That of a fit where a sampling's is expected: it is not damaged."""
    path = tmp_path / "fit.checkpoint.npz"
    save(path, snapshot(7), FINGERPRINT)
    with pytest.raises(ConfigError, match="differs in: sampling"):
        load_checkpoint(path, {**FINGERPRINT, "sampling": "nuts"}, Chains.from_arrays)


@pytest.mark.parametrize("content", [b"", b"text", "half", "no fingerprint"])
def test_a_damaged_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "fit.checkpoint.npz"
    save(path, snapshot(7), FINGERPRINT)
    if content == "half":
        content = path.read_bytes()[: path.stat().st_size // 2]
    if content == "no fingerprint":
        np.savez(path, **snapshot(7).arrays())
    else:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path)) + ": expected the checkpoint .*restart=True"):
        load_checkpoint(path, FINGERPRINT, READ)


@pytest.mark.parametrize("points", [None, 4096])
def test_notes_and_the_number_of_points_are_kept(tmp_path, points):
    path = tmp_path / "checkpoint.npz"
    save(path, snapshot(7), FINGERPRINT, ("one", "two"), points)
    assert kept_notes(path) == ("one", "two")
    assert kept_points(path) == points


def test_every_end_of_a_start_is_kept_and_little_else():
    kept, seen = [], []
    steps = [snapshot(step, step // 100) for step in range(301)]
    last = advance(iter(steps), kept.append, seen.append)
    assert last is steps[-1]
    assert len(seen) == 301
    assert [own.n_step[0] for own in kept] == [100, 200, 300]


def test_a_checkpoint_is_due_about_every_second():
    kept = []

    def slow():
        for step in range(3):
            time.sleep(0.6 * SECONDS if step else 0)
            yield snapshot(step)

    advance(slow(), kept.append, lambda _: None)
    assert [own.n_step[0] for own in kept] == [2]


@pytest.mark.parametrize("error", [SystemExit(143), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("place", ["search", "report"])
def test_the_last_step_is_kept_when_a_search_is_ended(error, place):
    kept = []

    def steps():
        for step in range(5):
            yield snapshot(step)
        if place == "search":
            raise error

    def see(own):
        if place == "report" and own.n_step[0] == 4:
            raise error

    with pytest.raises(type(error)):
        advance(steps(), kept.append, see)
    assert [own.n_step[0] for own in kept] == [4]


def test_one_process_works_on_a_fit_and_removes_what_dead_ones_left(tmp_path):
    output = tmp_path / "fit.h5"
    half = [tmp_path / f".rubix-like-otherhost-0123456789ab-{name}" for name in ("fit.h5", "fit_model.fits")]
    names = (".rubix-like-otherhost-0123456789ab-another.h5", ".123-fit.h5", "fit.lock", "fit.checkpoint.npz")
    others = {tmp_path / name for name in names}
    for own in (*half, *others):
        own.write_text("half")
    with claimed(output, output, tmp_path / "fit_model.fits"):
        assert not any(own.exists() for own in half)
        assert all(own.read_text() == "half" for own in others)
        with pytest.raises(ConfigError, match=r"fit\.h5: another process is at work on it"), claimed(output):
            pass
    with claimed(output):
        pass
    assert set(tmp_path.iterdir()) == others

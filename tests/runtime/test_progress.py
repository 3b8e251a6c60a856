"""Progress in a log, on a terminal and in silence."""

import io
import re
import sys
import threading
import time

import pytest

import rubix_like as rl
from rubix_like.extend import Progress
from rubix_like.runtime import progress as module
from rubix_like.runtime.progress import progress_here, terminal_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_has_a_line_at_the_start_and_one_at_the_end_of_a_step():
    stream = io.StringIO()
    progress = Progress(stream)
    with progress.step("load", "loading the galaxy"):
        assert stream.getvalue() == "loading the galaxy ...\n"
        time.sleep(0.11)
    first, second = stream.getvalue().splitlines()
    assert first == "loading the galaxy ..."
    assert re.fullmatch(r"loading the galaxy: 0\.\d s", second)
    assert 0.1 < progress.timings["load"] < 5
    assert second == f"loading the galaxy: {progress.timings['load']:.1f} s"


def test_silence(capfd):
    """Times are kept all the same, in the order of the steps."""
    progress = Progress()
    for name in ("b", "a"):
        with progress.step(name, "at work"):
            pass
    assert list(progress.timings) == ["b", "a"]
    assert capfd.readouterr() == ("", "")


def test_a_failing_step_has_no_end_and_no_time():
    stream = io.StringIO()
    progress = Progress(stream)
    before = threading.active_count()
    with pytest.raises(ValueError, match="broken"), progress.step("load", "loading"):
        raise ValueError("broken")
    assert stream.getvalue() == "loading ...\n"
    assert progress.timings == {}
    assert threading.active_count() == before


def test_long_steps_show_that_they_live(monkeypatch):
    monkeypatch.setattr(module, "_HEARTBEAT_SECONDS", 0.05)
    stream = io.StringIO()
    with Progress(stream).step("run", "painting"):
        time.sleep(0.3)
    lines = stream.getvalue().splitlines()
    beats = [line for line in lines if line.startswith("painting ... still at work after ")]
    assert len(beats) >= 2
    assert len(lines) == len(beats) + 2
    time.sleep(0.15)
    assert stream.getvalue().splitlines() == lines


def test_a_terminal_shows_a_spinner_and_keeps_the_last_line():
    stream = Terminal()
    progress = Progress(stream)
    with progress.step("load", "loading the galaxy"):
        time.sleep(0.3)
    text = stream.getvalue()
    assert "loading the galaxy" in text
    assert "loading the galaxy ..." not in text
    assert text.endswith(f"loading the galaxy: {progress.timings['load']:.1f} s\n")


def test_a_terminal_is_left_in_order_after_a_failure():
    """The cursor that the spinner hides is shown again."""
    stream = Terminal()
    with pytest.raises(KeyboardInterrupt), Progress(stream).step("load", "loading"):
        raise KeyboardInterrupt
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert stream.getvalue().rfind(shown) >= stream.getvalue().rfind(hidden)


def test_the_command_s_progress_goes_to_standard_error(capsys):
    with terminal_progress().step("load", "loading"):
        pass
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("loading ...\nloading: ")


@pytest.mark.parametrize(
    ("quiet", "terminal", "notebook", "shown"),
    [
        (None, False, False, None),
        (None, True, False, "stderr"),
        (None, False, True, "stdout"),
        (True, True, True, None),
        (False, False, False, "stderr"),
        (False, False, True, "stdout"),
    ],
)
def test_where_a_call_from_python_shows_progress(monkeypatch, quiet, terminal, notebook, shown):
    kernel = type("Shell", (), {"kernel": object() if notebook else None})
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": lambda: kernel}))
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    found = progress_here(quiet)
    assert found.stream is (None if shown is None else getattr(sys, shown))
    assert found.rewrites is (shown == "stdout")


ABSENT = {"galaxy": {"path": "absent.hdf5"}, "observation": {"redshift": 0.05}, "instrument": {"name": "muse"}}
FREE = {"observation.velocity_offset": {"normal": [0, 50]}}
FIRST_STEPS = [
    ("run", lambda place, quiet: rl.run(ABSENT, place / "cube.fits", quiet=quiet), "loading the galaxy"),
    ("fit", lambda place, quiet: rl.fit(ABSENT, place / "data.fits", FREE, quiet=quiet), "reading the data"),
    ("sample", lambda place, quiet: rl.sample(ABSENT, place / "data.fits", FREE, quiet=quiet), "reading the data"),
    ("simulate", lambda place, quiet: rl.simulate(ABSENT, priors=FREE, n=1, quiet=quiet), "planning the simulations"),
]
"""Calls whose first step fails, and what it is called."""


@pytest.mark.parametrize(("call", "step"), [pytest.param(*case[1:], id=case[0]) for case in FIRST_STEPS])
def test_calls_from_python_show_their_steps_unless_they_are_quiet(capsys, monkeypatch, tmp_path, call, step):
    """In the log of a script with `quiet=False` alone; on a terminal also without it."""
    (tmp_path / "data.fits").write_bytes(b"SIMPLE  =                    T" + bytes(3000))
    shown = []
    for quiet in (None, True, False):
        with pytest.raises((OSError, ValueError)):
            call(tmp_path, quiet)
        shown.append(capsys.readouterr().err)
    assert shown[:2] == ["", ""]
    assert shown[2].startswith(f"{step} ...")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises((OSError, ValueError)):
        call(tmp_path, None)
    assert step in sys.stderr.getvalue()


def test_in_a_notebook_the_end_of_a_step_takes_the_place_of_its_start():
    """Letters of the longer line are covered by blanks."""
    stream, progress = io.StringIO(), Progress(io.StringIO(), rewrites=True)
    progress.stream = stream
    with progress.step("load", "loading"):
        progress._line("loading ... still at work", lasts=False)
    lines = stream.getvalue().split("\r")
    assert lines[:2] == ["loading ...", "loading ... still at work"]
    assert re.fullmatch(r"loading: 0\.\d s {11}\n", lines[2])

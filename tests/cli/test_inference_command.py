"""The command `rubix-like fit`: what it refuses, what it writes and says, and what being killed does not change."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from command_line import main
from quick_compiler import quick_environment
from small import muse

from rubix_like import FitResult, run
from rubix_like.cli import inference_command
from rubix_like.extend import Progress

REPOSITORY = Path(__file__).resolve().parents[2]

CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 50},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(5000, 5200, 10, fov="0.8 arcsec"),
    "engine": {"method": "direct", "velocity_range": 1000},
    "noise": {"signal_to_noise": 30},
    "fit": {
        "data": "cube.fits",
        "free": {
            "galaxy.stellar_mass": {"log_uniform": [1e9, 1e11]},
            "observation.velocity_offset": {"normal": [0, 100]},
        },
        "starts": 3,
        "candidates": 1,
    },
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    Path("run.yaml").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "fit=null"], "fit.free: expected at least one parameter"),
        (["--set", "fit.data=null"], "--data: expected an observed cube, got none; give its file, or fit.data in the"),
        ([], "no such cube: cube.fits"),
        (["--data", "other.fits"], "no such cube: other.fits"),
        (["--output", "fit.fits"], "expected a path that ends in .h5 or .hdf5, got 'fit.fits'"),
        (["--output", "absent/fit.h5"], "the folder absent does not exist"),
        (["--set", "fit.startz=2"], "unknown key 'fit.startz'; did you mean 'start"),
        (["--set", "fit.free={dust.a_v: {uniform: [1, 0]}}"], "fit.free.dust.a_v: expected low < high"),
    ],
)
@pytest.mark.usefixtures("jax_settings", "folder")
def test_what_cannot_be_fitted_is_refused(words, message, capsys):
    assert main(["fit", "run.yaml", *words]) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert out == ""
    assert sorted(path.name for path in Path().iterdir() if path.name != "cache") == ["run.yaml"]


def start(output, *words):
    """The command in a process of its own, one step after the other in its log."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", **quick_environment()}
    command = [sys.executable, "-m", "rubix_like.cli", "fit", "run.yaml", "--output", output, *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill(number):
    """Start, wait for a new checkpoint, or for one that is half-written, and end it by `number`; how it ended."""
    process = start("stopped.h5")
    before, left = checkpoint(), unfinished()
    while process.poll() is None and checkpoint() == before and unfinished() <= left:
        time.sleep(0.002)
    process.send_signal(number)
    process.communicate(timeout=600)
    return process.returncode


def unfinished():
    """Checkpoints that are being written, or were when their process was killed."""
    return set(Path().glob(".rubix-like-*.npz"))


def checkpoint():
    """When the checkpoint was written."""
    path = Path(".stopped.h5.rubix-like-checkpoint.npz")
    return path.stat().st_mtime_ns if path.exists() else None


def contents(path):
    """Every number and text of a result but its configuration, which names its file."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and not name.endswith("config"):
            value = item[()]
            found[name] = value.tobytes() if isinstance(value, np.ndarray) and value.dtype != object else repr(value)

    with h5py.File(path) as file:
        file.visititems(visit)
        attributes = {name: value for name, value in file.attrs.items() if name != "date"}
    return found, attributes


@pytest.mark.parametrize(
    "signals",
    [
        pytest.param([signal.SIGKILL], marks=pytest.mark.long),
        pytest.param([signal.SIGTERM, signal.SIGKILL], marks=pytest.mark.long),
    ],
)
def test_kills_change_nothing(folder, signals):
    """Killed, and ended in order, the fit ends as without, bit for bit."""
    run(CONFIG, output="cube.fits")
    whole = start("whole.h5")
    out, errors = whole.communicate()
    assert whole.returncode == 0, errors
    assert "reduced chi^2" in out
    assert "Result written to whole.h5, its model to whole_model.fits" in out
    for number in signals:
        assert kill(number) == (-number if number == signal.SIGKILL else 128 + number)
    while checkpoint() is None:  # killed while the first one was half-written
        assert kill(signal.SIGKILL) == -signal.SIGKILL
    last = start("stopped.h5")
    out, errors = last.communicate()
    assert last.returncode == 0, errors
    assert "going on after" in errors
    assert contents("stopped.h5") == contents("whole.h5")
    left = {path.name for path in folder.iterdir() if path.name.startswith((".", "stopped"))}
    assert left == {"stopped.h5", "stopped_model.fits", "stopped_residual.fits"}


def stopped_by(error):
    """The command's progress, during which `error` is raised when the fit shows its second step."""
    progress = Progress(sys.stderr)
    step, shown = progress.step, []

    @contextmanager
    def stopped(name, label):
        with step(name, label):

            def report(what, done, total):
                shown.append(name)
                if name == "fit" and shown.count("fit") == 2:
                    raise error

            yield report

    progress.step = stopped
    return lambda: progress


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
@pytest.mark.usefixtures("jax_settings", "folder")
def test_a_fit_that_is_stopped_says_where_and_goes_on(error, code, monkeypatch, capsys):
    """Ctrl-C leaves the best so far; both leave the checkpoint, from which the same command goes on."""
    config = CONFIG | {"engine": CONFIG["engine"] | {"deposit": "tsc"}}
    Path("run.yaml").write_text(json.dumps(config))
    run(config, output="cube.fits")
    with monkeypatch.context() as patch:
        patch.setattr(inference_command, "terminal_progress", stopped_by(error))
        try:
            found = main(["fit", "run.yaml", "--output", "fit.h5"])
        except SystemExit as left:
            found = left.code
    assert found == code
    said = capsys.readouterr().err
    assert "the fit stopped after step 2 of start 3 of 3 (lowest loss " in said  # all three at once, on 8 devices
    assert "the same command goes on from there" in said
    assert Path(".fit.h5.rubix-like-checkpoint.npz").exists()
    assert Path("fit.h5").exists() == (code == 130)
    if code == 130:
        assert "it was interrupted; the same command goes on" in FitResult.read("fit.h5").summary().splitlines()[0]
    assert main(["fit", "run.yaml", "--output", "fit.h5"]) == 0
    assert "going on after 6 steps" in capsys.readouterr().err
    assert FitResult.read("fit.h5").converged
    assert not Path(".fit.h5.rubix-like-checkpoint.npz").exists()

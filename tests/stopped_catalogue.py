"""A catalogue that is ended at random moments and resumed, with any executor."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from astropy.io import fits
from quick_compiler import quick_environment

REPOSITORY = Path(__file__).resolve().parent.parent
SETTINGS = {
    "galaxy": {"reader": "synthetic", "n_stars": 200},
    "observation": {"redshift": 0.05},
    "instrument": {
        "name": "muse",
        "fov": "1.2 arcsec",
        "wavelength": {"start": 4900, "stop": 5000, "step": 10},
        "psf": None,
        "lsf": None,
    },
    "engine": {"method": "direct", "precision": "float64"},
    "noise": {"signal_to_noise": 20},
    "products": {"losvd": None},
    "output": {"path": "stopped.fits"},
}
COMMAND = (sys.executable, "-m", "rubix_like.cli")


def write_lists(n_galaxy: int) -> None:
    """run.yaml, list.csv and views.csv in the working folder: galaxies from three angles."""
    Path("run.yaml").write_text(json.dumps(SETTINGS))
    Path("list.csv").write_text("name,galaxy.seed\n" + "".join(f"g{seed},{seed}\n" for seed in range(n_galaxy)))
    Path("views.csv").write_text("name,observation.inclination\nface,0 deg\nmid,45 deg\nedge,90 deg\n")


def start(*options: str, command: tuple[str, ...] = COMMAND) -> subprocess.Popen[str]:
    """The command on the catalogue, its log as a pipe; the caller sets RUBIX_LIKE_CACHE."""
    words = ["run", "run.yaml", "--catalogue", "list.csv", "--views", "views.csv", *options]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)} | quick_environment()
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    # a shell that runs the tests in the background has told its children to ignore Ctrl-C
    heeding = ["env", "--default-signal=INT", *command]
    return subprocess.Popen([*heeding, *words], env=environment, text=True, start_new_session=True, **streams)


def wait_for_entries(process: subprocess.Popen[str], n_entry: int) -> None:
    """Wait until the log has lines of so many entries (0: any line), or has ended."""
    assert process.stderr is not None
    for line in process.stderr:
        n_entry -= line.startswith("[")
        if n_entry <= 0:
            return


def contents(path: str | Path) -> list:
    """Headers without the date, and the bytes of the data, of every extension."""
    with fits.open(path) as hdus:
        return [
            (
                [(card.keyword, card.value) for card in hdu.header.cards if card.keyword not in {"DATE", "CHECKSUM"}],
                None if hdu.data is None else hdu.data.tobytes(),
            )
            for hdu in hdus
        ]


def summary(place: str = "cube") -> list[dict[str, str]]:
    return list(csv.DictReader(Path(place, "summary.csv").read_text().splitlines()))


def records() -> list[dict]:
    paths = Path("stopped/records").glob("*.json")
    return [json.loads(path.read_text()) for path in paths if not path.name.startswith(".")]


def n_done() -> int:
    return sum(record["status"] == "done" for record in records())


def stage() -> str:
    """What a process was doing when it was killed, by what it left."""
    if list(Path("stopped").glob(".*")) or list(Path("stopped/records").glob(".*")):
        return "writing"
    return "computing" if any(record["status"] == "started" for record in records()) else "between"


Ended = Callable[[subprocess.Popen[str], int], None]
"""Ends a process, and what it has started, by a signal."""


def end(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)


def interrupt(
    chance: random.Random, number: int, options: tuple[str, ...], command: tuple[str, ...], by: Ended
) -> tuple[int, str, int]:
    """Start, wait for some entries (with an executor for one) and a while, end it, alternately by SIGTERM and SIGKILL.

    Returns how it ended, the stage, and how many entries are done.

    The first three SIGKILLs wait for a cube that is being written: that is only a tenth of the time.
    """
    process = start(*options, command=command)
    wait_for_entries(process, 1 if options else chance.randrange(6))
    time.sleep(chance.uniform(0, 0.4))
    patience = time.monotonic() + 30 * (number in {1, 3, 5})
    while time.monotonic() < patience and process.poll() is None and not list(Path("stopped").glob(".*.fits")):
        time.sleep(0.0005)
    by(process, signal.SIGKILL if number % 2 else signal.SIGTERM)
    process.communicate(timeout=60)
    return process.returncode, stage(), n_done()


def check_interruptions(
    n_kill: int, n_galaxy: int, *options: str, command: tuple[str, ...] = COMMAND, by: Ended = end
) -> list[tuple[int, str, int]]:
    """Galaxies from three angles, ended several times at random: complete in the end, data and headers as without.

    Returns how each ended, at which stage, and how many entries were done.
    """
    write_lists(n_galaxy)
    chance = random.Random(6)
    whole = start("--output", "whole")
    kills = [interrupt(chance, number, options, command, by) for number in range(n_kill)]
    print(options, kills)  # shown with -s
    done = [n for _, _, n in kills]
    assert done == sorted(done)
    assert len(set(done)) >= n_kill // 2, "most restarts went on from where the one before was ended"
    assert 0 < done[-1] < 3 * n_galaxy
    check_complete(start(*options, command=command), whole, n_galaxy)
    return kills


def check_complete(last: subprocess.Popen[str], whole: subprocess.Popen[str], n_galaxy: int) -> None:
    """The last run left the data and headers of an uninterrupted one, and nothing else."""
    assert f"{3 * n_galaxy} entries of {n_galaxy} galaxies" in last.communicate()[1]
    whole.communicate()
    assert (last.returncode, whole.returncode) == (0, 0)
    names = {path.name for path in Path("whole").glob("*.fits")}
    assert len(names) == 6 * n_galaxy
    assert names == {path.name for path in Path("stopped").iterdir() if path.suffix == ".fits"}
    assert list(Path("stopped").rglob(".*")) == []
    assert {row["status"] for row in summary("stopped")} == {"done"}
    assert [name for name in names if contents(f"stopped/{name}") != contents(f"whole/{name}")] == []

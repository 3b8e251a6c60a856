"""`python tests/fuzz/kills.py --kills 60`: commands that are killed at random moments and given again.

Ends with 1 where what they leave in the end differs from what undisturbed ones write, but for dates, where temporary
files stay, or where files of others beside change.
"""

import argparse
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from small import muse  # noqa: E402
from stopped_catalogue import contents as fits_contents  # noqa: E402

SETTINGS = {
    "galaxy": {"reader": "synthetic", "n_stars": 50},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(5000, 5200, 10, fov="0.8 arcsec"),
    "engine": {"method": "basis", "velocity_range": 1000, "deposit": "tsc"},
    "noise": {"signal_to_noise": 30},
    "fit": {
        "data": "data.fits",
        "free": {
            "galaxy.stellar_mass": {"log_uniform": [1e9, 1e11]},
            "observation.velocity_offset": {"normal": [0, 100]},
        },
        "starts": 3,
        "candidates": 1,
        "sampling": {"nuts": {"chains": 2, "warmup": 60, "draws": 60}, "predictive": 4},
    },
    "simulate": {"n": 24, "batch": 4, "shard": 4},
    "output": {"path": "cube.fits"},
}
COMMANDS = {
    "run": ("run", "run.yaml"),
    "simulate": ("simulate", "run.yaml", "--output", "set"),
    "fit": ("fit", "run.yaml", "--output", "fit.h5"),
    "sample": ("sample", "run.yaml", "--output", "samples.h5"),
    "catalogue": ("run", "run.yaml", "--catalogue", "list.csv", "--output", "cubes"),
}
STRANGERS = (
    *("notes.txt", ".rubix-like-notes.txt", "cube.fits.bak", "simulations_final.h5", ".fit.h5.swp", "fit_notes.txt"),
    *("set/simulations_final.h5", "set/notes.txt", "cubes/notes.fits", "cubes/records/notes.txt"),
)
"""Files of others, each with its name in it; those in folders of outputs once there are such folders."""

KILLS_A_ROUND = 4
TIMES = {"date", "seconds", "started", "worker"}
"""What differs from run to run in records, summaries and HDF5."""


def main() -> int:
    """Kill and resume each command; print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60, help="of all commands together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="*", default=list(COMMANDS), choices=COMMANDS)
    options = parser.parse_args()
    faults = []
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        for place, name in enumerate(options.commands):
            n_kill = (options.kills + place) // len(options.commands)
            found = interrupted(name, n_kill, random.Random(f"{options.seed} {name}"), Path(folder) / name)
            faults += [f"{name}: {fault}" for fault in found]
    print("\n".join(faults) or "no faults")
    return 1 if faults else 0


def interrupted(name: str, n_kill: int, chance: random.Random, folder: Path) -> list[str]:
    """Faults of a command that is killed so many times, in rounds that end with one that is left alone."""
    prepare(folder)
    begun = time.monotonic()
    code, errors = finished(start(name, folder))
    seconds = time.monotonic() - begun
    if code != 0:
        return [f"ended with {code}: {errors}"]
    expected, faults, moments = contents(folder), [], []
    while n_kill > 0:
        placed = prepare(folder)
        for _ in range(min(n_kill, KILLS_A_ROUND)):
            left = killed(name, folder, seconds, chance)
            if left is None:
                break
            moments.append(left)
            n_kill -= 1
            placed |= add_strangers(folder, placed)
        code, errors = finished(start(name, folder))
        faults += [f"ended with {code} after kills: {errors}"] if code != 0 else differences(expected, folder, placed)
    print(f"{name}: {len(moments)} kills, that left: {', '.join(moments)}", flush=True)
    return faults


def prepare(folder: Path) -> set[str]:
    """Inputs of all commands, files of others beside, and nothing else; the names of those."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / "run.yaml").write_text(json.dumps(SETTINGS))
    (folder / "list.csv").write_text("name,galaxy.seed\n" + "".join(f"g{seed},{seed}\n" for seed in range(8)))
    data = folder.parent / "data.fits"
    if not data.exists():
        code, errors = finished(start("run", folder, "--output", str(data), "--set", "output.maps=false"))
        assert code == 0, errors
    (folder / "data.fits").write_bytes(data.read_bytes())
    return add_strangers(folder, set())


def add_strangers(folder: Path, placed: set[str]) -> set[str]:
    """Write files of others but those that were `placed` before, where outputs have made their folders; their names."""
    added = set()
    for name in {*STRANGERS} - placed:
        parent = (folder / name).parent
        if parent.is_dir() and any(not own.name.startswith(".") for own in parent.iterdir()):
            (folder / name).write_text(name)
            added.add(name)
    return added


def start(name: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command in a group of processes of its own."""
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent), "RUBIX_LIKE_CACHE": str(folder.parent / "cache")}
    program = [sys.executable, "-m", "rubix_like", *COMMANDS[name], *words]
    streams: dict[str, int] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(program, cwd=folder, env=environment, text=True, start_new_session=True, **streams)


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How a process ended that was left alone, and the end of what it said."""
    errors = process.communicate()[1]
    return process.returncode, errors[-1000:]


def killed(name: str, folder: Path, seconds: float, chance: random.Random) -> str | None:
    """Start a command and kill it, at any moment or just after some change of its files; the newest file it left.

    None where it ended before. `seconds`: how long an undisturbed one takes.
    """
    process, before = start(name, folder), listing(folder)
    latest = time.monotonic() + chance.uniform(0.1, 0.8) * seconds
    n_change, wait = chance.choice([0, 1, 1, 2, 5, 20]), chance.choice([0, 0.001, 0.01, 0.1])
    while process.poll() is None and time.monotonic() < latest + 2 * seconds * (n_change > 0):
        now = listing(folder)
        if n_change and now != before:
            before, n_change = now, n_change - 1
            if n_change == 0:
                break
        time.sleep(0.0005)
    time.sleep(wait)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    newest = max(files(folder), key=lambda path: path.stat().st_mtime_ns)
    return newest.name if process.returncode == -signal.SIGKILL else None


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def listing(folder: Path) -> set[tuple[str, int, int]]:
    """Names, sizes and dates of all files; one that goes meanwhile is left out."""
    found = set()
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:
            continue
        found.add((str(path), status.st_size, status.st_mtime_ns))
    return found


def differences(expected: dict[str, object], folder: Path, placed: set[str]) -> list[str]:
    """What differs of the files in a folder: outputs, and those of others that were `placed` there."""
    found = contents(folder)
    touched = [own for own in placed if not (folder / own).exists() or (folder / own).read_text() != own]
    return [
        *(f"{own} of others is gone or changed" for own in touched),
        *(f"{own} is missing" for own in expected.keys() - found.keys()),
        *(f"{own} stayed" for own in found.keys() - expected.keys()),
        *(f"{own} differs" for own in expected.keys() & found.keys() if expected[own] != found[own]),
    ]


def contents(folder: Path) -> dict[str, object]:
    """What is in each file but those of others, without dates."""
    readers: dict[str, Callable[[Path], object]] = {
        ".fits": fits_contents,
        ".h5": hdf5_contents,
        ".json": lambda path: without_times(json.loads(path.read_text())),
        ".csv": lambda path: without_times(list(csv.DictReader(path.read_text().splitlines()))),
    }
    names = {str(path.relative_to(folder)): path for path in files(folder)}
    return {
        name: (Path.read_bytes if path.name.startswith(".") else readers.get(path.suffix, Path.read_bytes))(path)
        for name, path in names.items()
        if name not in STRANGERS
    }


def hdf5_contents(path: Path) -> object:
    """Bytes of every dataset, and all attributes."""
    found = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        value = item[()] if isinstance(item, h5py.Dataset) else None
        is_array = isinstance(value, np.ndarray) and value.dtype != object
        found[name] = (value.tobytes() if is_array else repr(value), attributes(item))

    def attributes(item: h5py.Dataset | h5py.Group) -> dict[str, str]:
        return {key: repr(value) for key, value in item.attrs.items() if key not in {*TIMES, "DIMENSION_LIST"}}

    with h5py.File(path) as file:
        file.visititems(visit)
        return found, attributes(file)


def without_times(value: object) -> object:
    """JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {key: without_times(own) for key, own in value.items() if key not in TIMES}
    return [without_times(own) for own in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())

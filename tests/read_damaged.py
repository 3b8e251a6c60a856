"""Run by test_hostile_galaxies in a process of its own: damages copies of files, reads them, writes what came of it.

python read_damaged.py JOBS FOLDER OUTCOMES: JOBS is a JSON list of recipes (see damage.py); one line of OUTCOMES is
written as soon as a recipe has been tried, so a crash or a hang shows in the one that has no line.
"""

import contextlib
import faulthandler
import io
import json
import resource
import sys
import warnings
from pathlib import Path

import numpy as np
from damage import damaged_copy

from rubix_like.cli import main
from rubix_like.readers.field_map import FAMILIES
from rubix_like.readers.snapshot import SnapshotReader

SECONDS = 20
"""A recipe that takes longer is a hang."""

MORE_MEMORY = 1 << 30
"""Bytes of address space that reading may take."""


def read(path):
    """All columns of all families, as they leave `Snapshot.read`, and what the header says."""
    with SnapshotReader(path=path).open() as snapshot:
        tables = {family: snapshot.read(family, 0, snapshot.count(family)) for family in FAMILIES}
        epoch = snapshot.epoch
    columns = {f"{family}.{name}": values for family in FAMILIES for name, values in tables[family].items()}
    header = {"scale_factor": epoch.scale_factor, "h": epoch.h, "box": epoch.box_size or 0.0, "time": epoch.time}
    cosmology = epoch.cosmology_text
    return columns | {f"header.{name}": np.array([value]) for name, value in header.items()} | {"cosmology": cosmology}


def differences(found, expected):
    """By column: the rows that differ, or why the columns cannot be compared."""
    result = {}
    for name in sorted(set(found) | set(expected)):
        one, two = found.get(name), expected.get(name)
        if one is None or two is None:
            result[name] = "only in one"
        elif isinstance(one, str):
            result.update({} if one == two else {name: one})
        elif one.shape != two.shape:
            result[name] = f"shape {one.shape} instead of {two.shape}"
        else:
            same = (one == two) | (np.isnan(one) & np.isnan(two))
            rows = np.flatnonzero(~same.reshape(len(same), -1).all(axis=1))
            result.update({name: rows[:10].tolist() + [...][:0]} if rows.size else {})
    return result


def attempt(path, expected):
    try:
        found = read(path)
    except (ValueError, OSError) as error:
        return {"status": "refused", "type": type(error).__name__, "message": str(error)}
    except BaseException as error:
        return {"status": "broken", "type": type(error).__name__, "message": str(error)}
    changed = differences(found, expected)
    return {"status": "changed", "changed": changed} if changed else {"status": "identical"}


def command_line(path):
    """Exit code and standard error of `rubix-like check` of a run on this file."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(io.StringIO()):
        code = main(["check", "quickstart", "--set", "galaxy.path=" + str(path)])
    return {"code": code, "text": text.getvalue()}


def try_recipes(recipes, folder, outcomes):
    expected = {}
    for recipe in recipes:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        source = recipe["source"]
        if source not in expected:
            expected[source] = read(Path(source))
        path = damaged_copy(recipe, folder)
        outcome = attempt(path, expected[source])
        if recipe.get("command"):
            outcome["command"] = command_line(path)
        path.unlink()
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"name": recipe["name"]} | outcome), file=outcomes, flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("error")
    jobs, folder, written = (Path(argument) for argument in sys.argv[1:])
    used = resource.getrusage(resource.RUSAGE_SELF)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MORE_MEMORY, size + MORE_MEMORY))
    with written.open("w") as outcomes:
        try_recipes(json.loads(jobs.read_text()), folder, outcomes)

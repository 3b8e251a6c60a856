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
from command_line import main
from damage import damaged_copy
from snapshot_reading import open_snapshot, reader_of

from rubix_like.extend import resource as packaged
from rubix_like.readers.fields.field_map import FAMILIES

SECONDS = 60
"""A recipe that takes longer is a hang."""

MORE_MEMORY = 2 << 30
"""Bytes of address space that reading may take, with what JAX takes to compile its first programs."""


def read(path, reader="auto"):
    """All columns as `Snapshot.read` gives them, with the numbers of the header, and the name of the field map."""
    with open_snapshot(reader_of(path=path, reader=reader)) as snapshot:
        tables = {family: snapshot.read(family, 0, snapshot.count(family)) for family in FAMILIES}
        epoch, name = snapshot.epoch, snapshot.field_map.name
    columns = {f"{family}.{name}": values for family in FAMILIES for name, values in tables[family].items()}
    header = [epoch.scale_factor, epoch.h, *(epoch.box_size or (0.0,)), epoch.time]
    return columns | {"header": np.array(header), "cosmology": np.array([epoch.cosmology_text])}, name


def differences(found, expected):
    """By column: the first rows that differ, or why the columns cannot be compared."""
    result = {}
    for name in sorted(set(found) | set(expected)):
        if name not in found or name not in expected:
            result[name] = "only in one"
        elif found[name].shape != expected[name].shape:
            result[name] = "other shape"
        else:
            rows = np.unique(np.argwhere(~_same(found[name], expected[name]))[:, 0])[:10].tolist()
            result.update({name: rows} if rows else {})
    return result


def _same(one, two):
    return one == two if one.dtype.kind == "U" else (one == two) | (np.isnan(one) & np.isnan(two))


def attempt(path, reader, expected):
    """What came of reading `path`."""
    try:
        found, _ = read(path, reader)
    except (ValueError, OSError) as error:
        return {"status": "refused", "message": str(error)}
    except Exception as error:
        return {"status": "broken", "message": f"{type(error).__name__}: {error}"}
    changed = differences(found, expected)
    return {"status": "changed", "changed": changed} if changed else {"status": "identical"}


def command_line(path):
    """Exit code and standard error of `rubix-like check` for a run on this file."""
    text = io.StringIO()
    with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
        code = main(["check", "quickstart", "--set", f"galaxy={{reader: auto, path: {path}}}"])
    return {"code": code, "text": text.getvalue()}


def try_recipes(recipes, folder, outcomes):
    """One line for each recipe."""
    known = {}
    for recipe in recipes:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        source = recipe["source"]
        if source not in known:
            expected, name = read(Path(source))
            known[source] = expected, str(packaged("simulations", name))  # a file's is not held against the others
        expected, reader = known[source]
        path = damaged_copy(recipe, folder)
        outcome = attempt(path, "auto" if recipe["auto"] else reader, expected)
        if recipe["command"] and outcome["status"] == "refused":
            outcome["command"] = command_line(path)
        path.unlink()
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"name": recipe["name"]} | outcome), file=outcomes, flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("error")
    jobs, work, written = (Path(argument) for argument in sys.argv[1:])
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE_MEMORY, taken + MORE_MEMORY))
    with written.open("w") as file:
        try_recipes(json.loads(jobs.read_text()), work, file)

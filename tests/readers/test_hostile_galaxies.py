"""Damaged snapshots: refused with a message, or read as if nothing were, but for the element that was touched.

Each file is read in a process of its own with limits of time and memory, so a crash or a hang fails the test instead of
ending it.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from damage import gadget_recipes, recipes, write_eagle, write_gadget, write_illustris
from snapshot_reading import open_snapshot, reader_of

REPOSITORY = Path(__file__).resolve().parents[2]
GADGET = "SimSpin_example_Gadget"
REAL = ("EAGLE_snap28_G92_9_full7524.hdf5", "gizmo_isolated_C16.hdf5", "SimSpin_example_IllustrisTNG.hdf5")


def outcomes(jobs, folder):
    """What came of each recipe, read in another process."""
    (folder / "jobs.json").write_text(json.dumps(jobs))
    tests = Path(__file__).parents[1]
    command = [sys.executable, str(tests / "read_damaged.py"), "jobs.json", ".", "outcomes.jsonl"]
    environment = os.environ | {"PYTHONPATH": f"{REPOSITORY}:{tests}", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    lines = (folder / "outcomes.jsonl").read_text().splitlines()
    came = [json.loads(line) for line in lines]
    assert len(came) == len(jobs), f"{jobs[len(came)]['name']} ended the process:\n{done.stderr[-3000:]}"
    assert done.returncode == 0, done.stderr
    return came


def fault(recipe, came):
    """What is wrong with what came of a recipe; empty where nothing is."""
    status = came["status"]
    if status == "broken":
        return came["message"]
    if status == "refused":
        return _fault_of_message(came)
    if status == "identical" or recipe["expect"] == "anything":
        return "" if "length" not in recipe else "a truncated file was read"
    changed = came["changed"]
    if recipe["expect"] == "without" and set(changed.values()) == {"only in one"}:
        return ""
    if recipe["expect"] == "one row":
        mine = all(name.startswith(recipe["family"]) for name in changed)
        return "" if mine and all(rows == [recipe["row"]] for rows in changed.values()) else f"changed {changed}"
    return f"changed {changed}"


def _fault_of_message(came):
    if "damaged" not in came["message"].split("; the file is")[0] or "\n" in came["message"] or "\n" in came["message"]:
        return f"the message does not name the file in one line: {came['message']}"
    if "command" not in came:
        return ""
    *progress, last = came["command"]["text"].splitlines()
    good = last.startswith("rubix-like: ") and "damaged" in last and progress == ["loading the galaxy ..."]
    return "" if came["command"]["code"] == 2 and good else f"the command line ended with {came['command']}"


def check(jobs, folder):
    """No recipe has a fault; returns how many were refused, changed and identical."""
    came = outcomes(jobs, folder)
    faults = {job["name"]: text for job, one in zip(jobs, came, strict=True) if (text := fault(job, one))}
    assert not faults, "\n".join(f"{name}: {text}" for name, text in faults.items())
    return Counter(one["status"] for one in came)


def jobs_for(path, seed, n_flips, n_raw, n_edits):
    with open_snapshot(reader_of(path=path)) as snapshot:
        return recipes(path, snapshot, n_flips, n_raw, n_edits, seed)


@pytest.fixture
def written(tmp_path):
    return [write_illustris(tmp_path / "illustris.hdf5"), write_eagle(tmp_path / "eagle.hdf5")]


@pytest.fixture
def binary(tmp_path):
    return write_gadget(tmp_path / "binary")


def test_a_few_damaged_files(written, binary, tmp_path):
    jobs = [job for seed, path in enumerate(written) for job in jobs_for(path, seed, 4, 2, 5)]
    jobs += gadget_recipes(binary, 6, 3, 3)
    assert len(jobs) >= 40
    counts = check(jobs, tmp_path)
    assert counts["refused"] > 20


@pytest.mark.long
def test_many_damaged_files(written, binary, tmp_path):
    jobs = [job for seed, path in enumerate(written) for job in jobs_for(path, 10 + seed, 48, 14, 20)]
    jobs += gadget_recipes(binary, 30, 10, 13)
    assert len(jobs) >= 200
    counts = check(jobs, tmp_path)
    assert counts["refused"] > 100


@pytest.mark.long
def test_many_damaged_real_files(real_data, tmp_path):
    folder = real_data / "galaxies"
    jobs = [job for seed, name in enumerate(REAL) for job in jobs_for(folder / name, 20 + seed, 20, 6, 10)]
    jobs += gadget_recipes(folder / GADGET, 15, 5, 12)
    assert len(jobs) >= 125
    counts = check(jobs, tmp_path)
    assert counts["refused"] > 60

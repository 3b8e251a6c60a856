"""A few damaged files of each kind; two hundred of each, and sixty kills, with --long."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from quick_compiler import quick_environment

RUN, KILLS = (Path(__file__).resolve().parent / name for name in ("run.py", "kills.py"))


@pytest.mark.parametrize(
    ("count", "commands"),
    [
        pytest.param(1, ["--commands", "1"], marks=pytest.mark.slow(15)),
        pytest.param(200, ["--commands", "5", "--new"], marks=pytest.mark.long),
    ],
    ids=("few", "many"),
)
def test_damaged_files_of_every_kind_are_refused_or_read(count, commands):
    words = [sys.executable, str(RUN), "--count", str(count), *commands]
    environment = os.environ | quick_environment()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| {count} |" in done.stdout


@pytest.mark.long
def test_killed_commands_end_as_undisturbed_ones():
    words, environment = [sys.executable, str(KILLS), "--kills", "60"], os.environ | quick_environment()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": 12 kills") == 5

"""Arguments of a wrong kind from Python: the error names the argument; big-endian columns are converted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from quick_compiler import quick_environment
from small import few_stars

import rubix_like as rl

HERE = Path(__file__).parent
REFUSALS = {"ConfigError", "ValueError"}


@pytest.fixture(scope="module")
def misuses(tmp_path_factory):
    """The table of `misuses.py`, of a process without checks of types at run time, which users do not have."""
    environment = os.environ | quick_environment() | {"PYTHONPATH": os.pathsep.join([str(HERE.parent), str(HERE)])}
    done = subprocess.run(
        [sys.executable, str(HERE / "misuses.py")],
        env=environment,
        cwd=tmp_path_factory.mktemp("misuses"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_an_error_names_the_argument(misuses):
    wrong = [case for case in misuses if case[1] not in case[3] or (case[2] not in REFUSALS and case[0] != "run, plot")]
    assert len(misuses) > 200
    assert not wrong


def test_columns_of_the_other_order_of_bytes_are_converted():
    stars = few_stars(3, 0.1).stars
    swapped = {name: None if values is None else np.asarray(values, ">f8") for name, values in vars(stars).items()}
    taken = rl.Stars(**swapped)
    assert taken.position.dtype.isnative
    np.testing.assert_array_equal(taken.position, np.asarray(stars.position, float))
    rl.shard(rl.Galaxy(stars=taken), rl.make_mesh(1))

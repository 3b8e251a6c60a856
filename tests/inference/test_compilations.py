"""How many programs a fit and a sampling compile: those that hold the whole model, and small ones beside them."""

import contextlib
import functools
import logging
import os
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import yaml
from quick_compiler import quick_environment
from small import TWO_FREE, muse, small_disc

from rubix_like import Pipeline, fit, load_config, load_galaxy, sample

MOST = 40
"""Programs of the command `fit` in all, 30 with JAX 0.10.2."""

MOST_ON_HOST = 22
"""Of these, programs of a single operation on the host."""

WHOLE = {"linearised"}
"""Programs that hold the whole model."""

SMALL = {"linear_of", "_scores", "_linear", "_slopes"}
"""Programs of the size of the likelihood, or of the priors."""

SEARCH = {"_init", "_judge", "_solve"}
"""Programs of the optimiser."""

PLANNING = {"sampled", "detect", "project"}

CONFIG = {
    **small_disc(45),
    "instrument": muse(5000, 5370, 10),
    "engine": {"deposit": "tsc", "velocity_range": 900},
    "devices": {"data": 1},
    "noise": {"signal_to_noise": 20, "seed": 3},
    "fit": {
        **TWO_FREE,
        "candidates": 2,
    },
}


@contextlib.contextmanager
def compiled():
    """The names of the programs that are compiled inside, in order."""
    names: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record):
            names.extend(names_in(record.getMessage()))

    logger, listener = logging.getLogger("jax._src.interpreters.pxla"), Listener()
    level = logger.level
    logger.addHandler(listener)
    logger.setLevel(logging.DEBUG)
    try:
        yield names
    finally:
        logger.setLevel(level)
        logger.removeHandler(listener)


def names_in(text):
    return re.findall(r"Compiling (?:jit\()?(\w+)\)? with ", text)


@functools.cache
def data():
    config = load_config(CONFIG)
    galaxy = load_galaxy(config)
    return Pipeline.from_config(config, galaxy=galaxy)(galaxy)


@functools.cache
def fitted():
    """The fit, and what was compiled for it."""
    given = data()
    with compiled() as names:
        result = fit(CONFIG, given)
    return result, tuple(names)


def check(names):
    assert Counter(name for name in names if name in WHOLE) == Counter(WHOLE)
    named = [name for name in names if name in SMALL | SEARCH | PLANNING]
    assert len(named) == len(set(named))
    others = [name for name in names if name not in WHOLE | SMALL | SEARCH | PLANNING]
    assert len(others) <= MOST_ON_HOST, Counter(others)
    assert len(names) <= MOST


def test_a_fit_compiles_the_model_once():
    check(fitted()[1])


@pytest.mark.slow(12)
def test_the_command_compiles_as_much_in_a_new_process(tmp_path):
    data().write(tmp_path / "cube.fits")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [sys.executable, "-m", "rubix_like.cli", "fit", "run.yaml", "--data", "cube.fits", "--output", "fit.h5"]
    environment = (
        os.environ
        | quick_environment()
        | {"JAX_LOG_COMPILES": "1", "JAX_LOGGING_LEVEL": "WARNING", "RUBIX_LIKE_CACHE": str(tmp_path / "own")}
    )
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    check(names_in("\n".join(line for line in ended.stderr.splitlines() if line.startswith("WARNING"))))
    assert re.search(r"Processor time to the first step: [\d.]+ s \(import .*, compile .*, first step ", ended.stdout)
    assert "compiling the model: " in ended.stderr


@pytest.mark.slow(12)
def test_a_sampling_from_a_fit_takes_its_information_matrix():
    result = fitted()[0]
    settings = {"nuts": {"chains": 1, "warmup": 20, "draws": 4}, "predictive": 2}
    with compiled() as names:
        found = sample(CONFIG, data(), fitted=result, sampling=settings)
    assert not {"linear_of", "_linear", "_begin"} & set(names)
    assert found.laplace is not None
    assert result.laplace is not None
    np.testing.assert_array_equal(found.laplace.information, result.laplace.information)

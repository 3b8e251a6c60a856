"""Arguments of a wrong kind from Python: the error names the argument; big-endian columns are converted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from astropy import units
from quick_compiler import quick_environment
from small import few_stars, make_cube

import rubix_like as rl
from rubix_like.extend import Footprint

HERE = Path(__file__).parent
REFUSALS = {"ConfigError", "ValueError", "FileNotFoundError", "OSError", "TypeError"}
"""TypeError: for an argument that is missing or that there is not, by Python's own words, which name it."""


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
    assert len(misuses) > 900
    assert not wrong


def test_columns_of_the_other_order_of_bytes_are_converted():
    stars = few_stars(3, 0.1).stars
    swapped = {name: None if values is None else np.asarray(values, ">f8") for name, values in vars(stars).items()}
    taken = rl.Stars(**swapped)
    assert taken.position.dtype.isnative
    np.testing.assert_array_equal(taken.position, np.asarray(stars.position, float))
    rl.shard(rl.Galaxy(stars=taken), rl.make_mesh(1))


def test_records_convert_quantities_and_pass_through_jax():
    library = rl.load_ssp("popstar")
    given = vars(library) | {"rest_wavelength": library.rest_wavelength / 10 * units.nm}
    np.testing.assert_allclose(rl.SSPLibrary(**given).rest_wavelength, library.rest_wavelength, rtol=1e-14)
    summed = jax.jit(lambda scale: rl.SSPLibrary(**vars(library) | {"spectra": library.spectra * scale}).spectra.sum())
    np.testing.assert_allclose(summed(2.0), 2 * library.spectra.sum())
    places = jax.vmap(lambda scale: Footprint(2, 3, scale))(np.array([0.2, 0.4]))
    np.testing.assert_array_equal(places.pixel_scale, [0.2, 0.4])
    for record in (library, make_cube(), Footprint(2, 3, 0.2)):
        marked = jax.tree.map(lambda _: object(), record)
        assert all(type(leaf) is object for leaf in jax.tree.leaves(marked))
        doubled = eqx.tree_at(lambda tree: jax.tree.leaves(tree)[0], record, replace_fn=lambda leaf: 2 * leaf)
        np.testing.assert_array_equal(jax.tree.leaves(doubled)[0], 2 * jax.tree.leaves(record)[0])

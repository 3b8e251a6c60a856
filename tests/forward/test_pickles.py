"""Pipelines that are pickled: the same cube from what comes back, in this process and in a fresh one."""

import functools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from small import few_stars, muse

from rubix_like import ConfigError, Pipeline, load_config, make_mesh
from rubix_like.runtime.mesh import mesh

REPOSITORY = Path(__file__).resolve().parents[2]

CONFIG = {
    "observation": {"redshift": 0.05},
    "instrument": muse(psf={"fwhm": "0.4 arcsec"}),
    "noise": {"signal_to_noise": 20},
}

GALAXY = few_stars(40, 0.5)


@functools.cache
def planned(devices, wave=1):
    return Pipeline.from_config(load_config(CONFIG), GALAXY, mesh=make_mesh(devices, wave))


@pytest.fixture(scope="module")
def pipeline():
    return planned(2, 2)


@pytest.mark.parametrize(("devices", "wave"), [(1, 1), (2, 2)])
def test_what_comes_back_is_on_the_same_devices_and_gives_the_same_cube(devices, wave):
    pipeline = planned(devices, wave)
    again = pickle.loads(pickle.dumps(pipeline))
    assert again.plan == pipeline.plan
    assert again.mesh == pipeline.mesh
    for own, other in zip(jax.tree.leaves(pipeline.tables), jax.tree.leaves(again.tables), strict=True):
        assert own.sharding == other.sharding
        np.testing.assert_array_equal(own, other)
    first, second = pipeline(GALAXY), again(GALAXY)
    np.testing.assert_array_equal(first.flux, second.flux)
    assert (first.meta, first.wavelength.tolist()) == (second.meta, second.wavelength.tolist())


def test_too_few_devices_or_bits_are_refused(pipeline, monkeypatch):
    kept = pickle.dumps(pipeline)
    monkeypatch.setattr(mesh.jax, "devices", lambda: jax.local_devices()[:2])
    with pytest.raises(ConfigError, match="expected 4, for which the run was planned, got 2"):
        pickle.loads(kept)


def test_what_a_pipeline_shows(pipeline):
    assert repr(pipeline) == "Pipeline('stellar' for muse: 5 x 5 spaxels, 31 bins, method direct, 4 devices)"
    assert "5 x 5 of 0.2 arcsec" in pipeline._repr_html_()
    assert "Warning: " in pipeline._repr_html_()


FRESH = """
import pathlib, pickle, sys, {module}
pipeline, galaxy = {module}.loads(pathlib.Path(sys.argv[1]).read_bytes())
import numpy
numpy.save(sys.argv[2], numpy.asarray(pipeline(galaxy).flux))
"""


@pytest.mark.slow(15)
@pytest.mark.parametrize("module", ["pickle", "cloudpickle"])
def test_a_fresh_process_gives_the_same_cube(module, tmp_path):
    """That has no setting of JAX but one device, and imports nothing before it unpickles."""
    dump = pytest.importorskip(module).dumps
    pipeline = planned(1)
    (tmp_path / "kept").write_bytes(dump((pipeline, GALAXY)))
    program = [sys.executable, "-c", FRESH.format(module=module), str(tmp_path / "kept"), str(tmp_path / "flux.npy")]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run(program, check=True, env=environment)
    expected = np.asarray(pipeline(GALAXY).flux)
    np.testing.assert_allclose(np.load(tmp_path / "flux.npy"), expected, rtol=1e-4, atol=1e-5 * expected.max())

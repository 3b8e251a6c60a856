"""Coefficients of a large field are reduced before they are projected: within the stated error of `direct`."""

import numpy as np
import pytest
from observing import configuration, galaxy_of
from small import muse

from rubix_like import Pipeline, make_mesh
from rubix_like.engine import basis_plan, cost

N = 400


def pipeline_of(galaxy, method, psf, n_devices=1):
    instrument = muse(4750.0, 9350.0, 5.0, fov=1.2, psf=psf)
    config = configuration(instrument=instrument, engine={"method": method, "tolerance": 1e-3})
    return Pipeline.from_config(config, galaxy, mesh=make_mesh(n_devices))


@pytest.mark.slow(8)
@pytest.mark.parametrize("psf", [None, {"kind": "moffat", "fwhm": 0.8, "beta": 2.8, "enclosed": 0.8}])
def test_reduced_coefficients_keep_the_stated_error(psf, monkeypatch):
    """Of every spaxel's spectrum, whose fewer columns are as many on eight devices; a small field is not reduced."""
    rng = np.random.default_rng(3)
    galaxy = galaxy_of(
        rng.uniform(-0.6, 0.6, (N, 3)),
        rng.normal(0, 150, N),
        rng.uniform(0.5, 2, N) * 1e6,
        rng.uniform(6.0, 10.2, N),
        10 ** rng.uniform(-3, -1.5, N),
    )
    whole = pipeline_of(galaxy, "basis", psf)
    monkeypatch.setattr(cost, "_LEAST_REDUCED", 0.0)
    monkeypatch.setattr(basis_plan, "_REDUCED_WORTH", np.inf)
    reduced = pipeline_of(galaxy, "basis", psf)
    maps = [each.tables.paint[0].painter.coefficient_map for each in (whole, reduced)]
    assert maps[0].reduction is None
    assert maps[1].reduction is not None
    assert maps[1].n_coefficient <= 0.7 * maps[0].n_coefficient
    errors = [each.frame.meta["basis_spectrum_error"] for each in (whole, reduced)]
    assert errors[0] < errors[1] <= errors[0] + 1e-4
    expected = np.asarray(pipeline_of(galaxy, "direct", psf)(galaxy).flux)
    found = np.asarray(reduced(galaxy).flux)
    rms = np.sqrt(((found - expected) ** 2).mean(axis=2)) / expected.mean(axis=2)
    assert 0 < rms.max() <= errors[1]
    assert found.sum() == pytest.approx(expected.sum(), rel=1e-4)
    on_eight = np.asarray(pipeline_of(galaxy, "basis", psf, 8)(galaxy).flux)
    np.testing.assert_allclose(on_eight, found, rtol=0, atol=1e-12 * found.max())

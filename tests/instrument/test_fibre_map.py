"""The light of a point in every fibre, against integrals in 64 bits that know nothing of grids."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from fibre_sums import light_in_disc
from small import instrument_settings

from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.extend import Footprint
from rubix_like.instrument.fibres.bundle import cube_weights, fibre_places
from rubix_like.instrument.fibres.fibre_map import FibreMap, margin_for
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf import PSF, PSFParameters

matrices, weights = eqx.filter_jit(FibreMap.matrices), eqx.filter_jit(SpaxelGrid.weights)
GAUSSIAN = {"kind": "gaussian", "fwhm": 1.4}
MOFFAT = {"kind": "moffat", "fwhm": 1.5, "beta": 2.8, "enclosed": 0.9}
TWO = {"kind": "gaussians", "components": [{"fwhm": 1.2, "fraction": 3}, {"fwhm": 2.4, "fraction": 1}]}


def fibres_behind(psf, painting, bundle="manga-19", **changes):
    """Settings, places, the painted cells, and the map from them to the fibres."""
    settings = instrument_settings(
        {"name": "sami_blue", "fov": 7, "pixel_scale": 0.5, "psf": psf, "fibres": {"bundle": bundle, **changes}}
    )
    places, footprint = fibre_places(settings.fibres), Footprint.build(settings)
    built = PSF.build(settings.psf, settings.pixel_scale, np.array([5000.0]), painting)
    painted = footprint.painted(margin_for(places, footprint, built.reach), painting.cells)
    numbers = PSFParameters(**{name: jnp.asarray(value) for name, value in settings.psf.numbers().items()})
    matrix = matrices(FibreMap.build(settings, places, painted, painting), built, numbers)[0]
    return settings, places, painted, np.asarray(matrix)


@pytest.mark.parametrize(
    ("psf", "deposit", "cells"),
    [(GAUSSIAN, "tsc", 6), (MOFFAT, "tsc", 6), (TWO, "nearest", 1), (MOFFAT, "nearest", 1)],
    ids=["gaussian", "moffat", "two gaussians in the middle of a cell", "moffat in the middle of a cell"],
)
def test_a_point_source_in_every_fibre_is_the_psf_over_its_disc(psf, deposit, cells):
    changes = {"rings": 1, "dithers": [[0, 0], [0.7, -0.3]], "seeing": [1, 1.3], "transparency": [1, 0.5]}
    _, places, painted, matrix = fibres_behind(psf, Painting(deposit, cells), **changes)
    point = np.array([0.25, -1.25]) if deposit == "nearest" else np.array([0.4321, -1.1234])
    index, weight = weights(SpaxelGrid(painted, deposit), jnp.asarray([[*point, 0.0]]))
    found = matrix[:, np.asarray(index[0])] @ np.asarray(weight[0])
    away = np.hypot(places.x - point[0], places.y - point[1])
    light = [light_in_disc(psf, r, 1.0, seeing) for r, seeing in zip(away, places.seeing, strict=True)]
    np.testing.assert_allclose(found, np.array(light) * places.transparency, atol=1e-5)
    assert found.max() > 0.1


@pytest.mark.parametrize("bundle", ["manga-19", "sami-61"])
def test_a_uniform_source_gives_every_good_spaxel_its_value(bundle):
    psf = {"kind": "gaussian", "fwhm": 1.4, "enclosed": 0.999999}
    settings, places, painted, matrix = fibres_behind(psf, Painting("nearest", 2), bundle, dead=[3, 9])
    light = matrix.sum(axis=1) * float(painted.pixel_scale) ** 2
    np.testing.assert_allclose(light, np.pi * (settings.fibres.diameter / 2) ** 2, rtol=1e-5)
    weights = cube_weights(settings.fibres.cube, places, Footprint.build(settings))
    image = np.asarray(weights.images(jnp.asarray(light)[:, None]))[:, :, 0]
    good = weights.coverage > 0
    assert good.mean() > 0.5
    np.testing.assert_allclose(image[good], 0.25, rtol=1e-4)
    assert (image[~good] == 0).all()


def test_drizzle_keeps_the_light_that_fibres_collect():
    settings = instrument_settings({"name": "sami_blue", "fov": 17, "psf": GAUSSIAN, "fibres": "sami-61"})
    places, footprint = fibre_places(settings.fibres), Footprint.build(settings)
    weights = cube_weights(settings.fibres.cube, places, footprint)
    flux = np.random.default_rng(5).uniform(0.5, 2, len(places))
    image = np.asarray(weights.images(jnp.asarray(flux)[:, None]))[:, :, 0]
    drop = np.pi * (0.4) ** 2
    np.testing.assert_allclose(weights.coverage.sum(), len(places) * drop, rtol=1e-9)
    collected = (weights.coverage / drop * image).sum() * np.pi * 0.8**2 / footprint.pixel_scale**2
    np.testing.assert_allclose(collected, flux.sum(), rtol=1e-3)

"""The light of a point in every fibre, against integrals in 64 bits that know nothing of grids."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import dblquad

from rubix_like.config import InstrumentSettings
from rubix_like.cube.footprint import Footprint
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.instrument.fibres.bundle import fibre_places
from rubix_like.instrument.fibres.fibre_map import FibreMap, margin_for
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf import PSF, PSFParameters

GAUSSIAN = {"kind": "gaussian", "fwhm": 1.4}
MOFFAT = {"kind": "moffat", "fwhm": 1.5, "beta": 2.8}
TWO = {"kind": "gaussians", "components": [{"fwhm": 1.2, "fraction": 3}, {"fwhm": 2.4, "fraction": 1}]}


def density(psf, seeing):
    """The PSF (per arcsec^2) at a distance in arcsec, from its formula."""
    if psf["kind"] == "moffat":
        alpha2 = (psf["fwhm"] * seeing) ** 2 / (4 * (2 ** (1 / psf["beta"]) - 1))
        return lambda r: (psf["beta"] - 1) / (np.pi * alpha2) * (1 + r**2 / alpha2) ** -psf["beta"]
    parts = psf.get("components", [{"fwhm": psf["fwhm"], "fraction": 1.0}]) if "fwhm" in psf else psf["components"]
    total = sum(part["fraction"] for part in parts)

    def of(r):
        light = 0.0
        for part in parts:
            variance = (part["fwhm"] * seeing) ** 2 / (8 * np.log(2))
            light += part["fraction"] / total * np.exp(-(r**2) / (2 * variance)) / (2 * np.pi * variance)
        return light

    return of


def in_disc(psf, seeing, distance, radius):
    """Light of a point at a distance from the disc's middle, by quadrature over the disc."""
    of = density(psf, seeing)
    return dblquad(
        lambda t, r: r * of(np.sqrt(r**2 + distance**2 - 2 * r * distance * np.cos(t))),
        0,
        radius,
        0,
        2 * np.pi,
        epsabs=1e-10,
        epsrel=1e-10,
    )[0]


@pytest.mark.parametrize(
    ("psf", "deposit", "cells"),
    [(GAUSSIAN, "tsc", 6), (MOFFAT, "tsc", 6), (TWO, "tsc", 6), (MOFFAT, "nearest", 1)],
    ids=["gaussian", "moffat", "two gaussians", "moffat in the middle of a cell"],
)
def test_a_point_source_in_every_fibre_is_the_psf_over_its_disc(psf, deposit, cells):
    settings = InstrumentSettings.model_validate(
        {
            "name": "manga",
            "fov": 7,
            "pixel_scale": 0.5,
            "psf": psf,
            "fibres": {"bundle": "manga-19", "rings": 1, "dithers": [[0, 0], [0.7, -0.3]], "seeing": [1, 1.3]},
        }
    )
    places, footprint, painting = fibre_places(settings.fibres), Footprint.build(settings), Painting(deposit, cells)
    built = PSF.build(settings.psf, settings.pixel_scale, np.array([5000.0]), painting)
    painted = footprint.painted(margin_for(places, footprint, built.reach), cells)
    optics = FibreMap.build(settings, places, painted, painting)
    numbers = PSFParameters(**{name: jnp.asarray(value) for name, value in settings.psf.numbers().items()})
    point = np.array([0.25, -1.25]) if deposit == "nearest" else np.array([0.4321, -1.1234])
    index, weight = SpaxelGrid(painted, deposit).weights(jnp.asarray([[*point, 0.0]]))
    found = np.asarray(optics.matrices(built, numbers)[0][:, index[0]] @ weight[0])
    for number in (0, 3, 5, 8, 13):
        distance = np.hypot(places.x[number] - point[0], places.y[number] - point[1])
        expected = in_disc(psf, places.seeing[number], distance, places.radius)
        np.testing.assert_allclose(found[number], expected, atol=1e-5)
    assert found.max() > 0.1

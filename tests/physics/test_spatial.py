"""PSF, aperture and deposit: flux and centroids are kept, widths add in quadrature, light from outside shines in."""

import numpy as np
import pytest
from observing import configuration, galaxy_of, observe

from rubix_like.cube import white_light

BINS = {"start": 5000.0, "stop": 5005.0, "step": 1.25}
ARCSEC_PER_KPC = 0.9892393
PIXEL = 0.2


def image(position, *, fov=7.8, psf=None, deposit="nearest", aperture=None, **observation):
    config = configuration(
        observation=observation,
        instrument={"fov": fov, "wavelength": BINS, "psf": psf, "aperture": aperture},
        engine={"deposit": deposit},
    )
    return observe(config, galaxy_of(position))


def at(east, north):
    """Position in kpc of a star at (East, North) spaxels from the field's centre."""
    return [(PIXEL * east / ARCSEC_PER_KPC, PIXEL * north / ARCSEC_PER_KPC, 0.0)]


def moments(light):
    """Sum, centroid (column, row) from the field's centre and the variances along columns and rows, in spaxels."""
    rows, columns = (np.arange(n) - (n - 1) / 2 for n in light.shape)
    total = light.sum()
    x, y = light.sum(axis=0) @ columns / total, light.sum(axis=1) @ rows / total
    return total, (x, y), (light.sum(axis=0) @ (columns - x) ** 2 / total, light.sum(axis=1) @ (rows - y) ** 2 / total)


@pytest.mark.parametrize("fwhm", [0.15, 0.3, 0.8, 1.6])
def test_a_point_source_is_as_wide_as_the_psf(fwhm):
    """Within 1 %, from narrower than a spaxel to eight of them; all its light is in the field."""
    light = white_light(image(at(0, 0), fov=15.0, psf={"fwhm": fwhm}))
    total, centre, variances = moments(light)
    np.testing.assert_allclose(np.sqrt(variances) * PIXEL * np.sqrt(8 * np.log(2)), fwhm, rtol=0.01)
    np.testing.assert_allclose(centre, 0.0, atol=1e-9)
    assert total == pytest.approx(white_light(image(at(0, 0))).sum(), rel=1e-6)


def test_psf_adds_in_quadrature():
    """A patch of stars: variances after the PSF are those before it plus the PSF's."""
    stars = np.random.default_rng(2).normal(size=(400, 3)) * [0.8, 0.4, 0.3]
    sharp, blurred = (moments(white_light(image(stars, fov=15.0, psf=psf))) for psf in (None, {"fwhm": 1.0}))
    added = np.subtract(blurred[2], sharp[2])
    np.testing.assert_allclose(np.sqrt(added) * PIXEL * np.sqrt(8 * np.log(2)), 1.0, rtol=0.01)
    assert blurred[0] == pytest.approx(sharp[0], rel=1e-6)


def test_psf_is_a_gaussian():
    """Profile along a row against the integral of a Gaussian over spaxels."""
    row = white_light(image(at(0, 0), fov=7.8, psf={"fwhm": 1.2})).sum(axis=0)
    sigma = 1.2 / np.sqrt(8 * np.log(2)) / PIXEL
    offset = np.arange(39) - 19
    expected = np.exp(-0.5 * (offset / sigma) ** 2)
    np.testing.assert_allclose(row / row.sum(), expected / expected.sum(), atol=5e-3 * expected.max() / expected.sum())


def test_light_from_outside_the_field_shines_in():
    """A star two spaxels beyond the East border: dark without a PSF, and the image of a larger field with one."""
    star = at(7, 1)
    assert white_light(image(star, fov=1.8)).sum() == 0
    small, large = (white_light(image(star, fov=fov, psf={"fwhm": 0.8})) for fov in (1.8, 7.8))
    inner = slice(15, 24)
    np.testing.assert_allclose(small, large[inner, inner], rtol=1e-10, atol=1e-12 * large.max())
    assert small.sum() > 0.01 * large.sum()
    assert small[:, 0].sum() > 10 * small[:, 3].sum()


def test_aperture_masks_after_the_psf():
    """A star outside the circle still lights its inside; outside there is no flux, and bit 2."""
    star = at(9, 0)
    options = {"fov": 5.0, "psf": {"fwhm": 1.2}}
    bare = image(star, **options)
    masked = image(star, aperture={"shape": "circle", "size": 3.0}, **options)
    centres = (np.arange(25) - 12) * PIXEL
    inside = np.hypot(*np.meshgrid(centres, centres)) <= 1.5
    np.testing.assert_allclose(
        np.asarray(masked.flux), np.where(inside[:, :, None], np.asarray(bare.flux), 0.0), rtol=1e-12
    )
    np.testing.assert_array_equal(np.asarray(masked.mask), np.where(inside, 0, 2)[:, :, None] * np.ones(5, dtype=int))
    assert np.asarray(masked.flux).sum() > 0.02 * np.asarray(bare.flux).sum()


@pytest.mark.parametrize("deposit", ["nearest", "cic", "tsc"])
def test_deposit_keeps_the_light(deposit):
    stars = np.random.default_rng(1).uniform(-1.5, 1.5, size=(200, 3))
    total = white_light(image(stars, fov=5.0, deposit=deposit)).sum()
    one = white_light(image(at(0, 0), fov=5.0)).sum()
    assert total == pytest.approx(200 * one, rel=1e-12)


@pytest.mark.parametrize(("deposit", "variance"), [("cic", None), ("tsc", 0.25)])
def test_deposit_keeps_centroids(deposit, variance):
    """Exactly for cic and tsc, wherever in a spaxel the star lies; tsc adds the same variance everywhere."""
    for east, north in ((0.0, 0.0), (0.31, -0.77), (-2.5, 1.5), (3.14, 2.72)):
        light = white_light(image(at(east, north), fov=5.0, deposit=deposit))
        _, centre, variances = moments(light)
        np.testing.assert_allclose(centre, (-east, north), atol=1e-6)
        if variance is not None:
            np.testing.assert_allclose(variances, variance, rtol=1e-6)


def test_nearest_puts_a_star_into_its_spaxel():
    for east, north in ((0.49, -0.49), (0.51, 1.49), (-3.6, 2.4)):
        light = white_light(image(at(east, north), fov=5.0))
        lit = np.argwhere(light > 0)
        assert lit.tolist() == [[12 + round(north), 12 - round(east)]]


def test_offset_moves_the_galaxy_on_the_sky():
    """observation.offset is (East, North) in arcsec: three spaxels East are three columns less."""
    light = white_light(image(at(0, 0), fov=5.0, offset=[0.6, -0.4]))
    assert np.argwhere(light > 0).tolist() == [[12 - 2, 12 - 3]]

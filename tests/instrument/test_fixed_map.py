"""PSFs that are images, or of adaptive optics, in front of fibres, against sums over chords or in polar coordinates."""

import numpy as np
import pytest
from astropy.io import fits
from observing import configuration, galaxy_of
from scipy.interpolate import CubicSpline
from scipy.special import j0
from small import muse, psf_settings

from rubix_like import ConfigError, Pipeline, load_config, make_mesh
from rubix_like.extend import to_vacuum
from rubix_like.instrument.fibres.bundle import index_of_air
from rubix_like.instrument.fibres.fibre_map import Displacements, shares_of_image
from rubix_like.instrument.psf_images import light_in_discs, lights_in_discs, optical_transfer

FINE = 0.06
"""arcsec: side of an image's pixel, which is no part of a spaxel's."""

WAVELENGTH = (5000.0, 9000.0)
FIBRES = {
    "bundle": "manga-19",
    "rings": 1,
    "pitch": 1.2,
    "diameter": 1.0,
    "dithers": [[0, 0], [0.3, 0.2]],
    "cube": {"method": "shepard", "sigma": 0.4, "limit": 1.2},
    "spectra": "none",
}


def planes(tail=0.3):
    """A core that narrows with wavelength, and a tail to the upper right."""
    y, x = np.indices((45, 51)) - np.array([22, 25])[:, None, None]
    core = [np.exp(-0.5 * (x**2 + (y / 1.3) ** 2) / sigma**2) for sigma in (5.0, 3.0)]
    return np.array(core) + tail * np.exp(-0.5 * ((x - 9) ** 2 + (y - 6) ** 2) / 8)


def by_chords(image, scale, radius, right, up):
    """Light of an image (of light 1) in a disc: along 20000 horizontal chords, on which it is summed exactly."""
    n_row, n_column = image.shape
    height = (np.arange(20000) + 0.5) / 20000 * 2 * radius - radius
    row = np.floor((up + height) / scale + n_row / 2).astype(int)
    inside = (row >= 0) & (row < n_row)
    half = np.sqrt(radius**2 - height**2)
    summed = np.pad(image.cumsum(axis=1), ((0, 0), (1, 0)))
    edges = (np.arange(n_column + 1) - n_column / 2) * scale
    ends = np.array([np.interp(right + sign * half, edges, np.arange(n_column + 1)) for sign in (-1, 1)])
    pixel = np.minimum(ends.astype(int), n_column - 1)
    light = summed[np.clip(row, 0, n_row - 1), pixel] + (ends - pixel) * image[np.clip(row, 0, n_row - 1), pixel]
    return float(((light[1] - light[0]) * inside).sum() * 2 * radius / 20000 / scale / image.sum())


def test_the_light_of_pixels_in_discs():
    """Within, across and beyond an image, in discs smaller and larger than its pixels: to 2e-5, as the chords are."""
    image = planes()[1]
    away = Displacements(np.array([[0.0, 0.21, -1.23, 3.0]]), np.array([[0.0, 0.77, -1.5]]))
    for radius in (0.02, 0.4, 1.1):
        found = shares_of_image(image[None] / image.sum(), FINE, radius, away)[0, 0]
        expected = [[by_chords(image, FINE, radius, west, north) for west in away.west[0]] for north in away.north[0]]
        np.testing.assert_allclose(found, expected, atol=2e-5)
    assert found[0, 1] > 0.5


def section(path, tail=0.3):
    fits.writeto(path, planes(tail), fits.Header({"CDELT1": -FINE / 3600, "CDELT2": FINE / 3600} | SKY))
    return {"kind": "image", "file": str(path), "wavelength": WAVELENGTH, "enclosed": 0.9999}


SKY = {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CUNIT1": "deg", "CUNIT2": "deg"}


def observed(psf, **fibres):
    """The light of a star in every fibre relative to all of it, the fibres' places, the wavelengths."""
    star, engine = galaxy_of([(0.0, 0.0, 0.0)]), {"deposit": "nearest"}
    instrument = muse(4750, 9350, 1150, fov=3.0, psf=psf, fibres=FIBRES | fibres)
    found = Pipeline.from_config(configuration(instrument=instrument, engine=engine), star, mesh=make_mesh(1))(star)
    whole = configuration(instrument=muse(4750, 9350, 1150, fov=0.6, psf=None), engine=engine)
    total = np.asarray(Pipeline.from_config(whole, star, mesh=make_mesh(1))(star).flux).sum(axis=(0, 1))
    return np.asarray(found.fibres.flux) / total, found.fibres.places, found.bins.wavelength


def expected_of(places, wavelength, tail=0.3, moved=(0, 0)):
    light = planes(tail) / planes(tail).sum(axis=(1, 2), keepdims=True)
    second = np.clip((wavelength - WAVELENGTH[0]) / (WAVELENGTH[1] - WAVELENGTH[0]), 0, 1)
    images = light[0] + second[:, None, None] * (light[1] - light[0])
    seen = list(zip(images, np.broadcast_to(moved, (len(second), 2)), strict=True))
    return np.array(
        [
            [part * by_chords(image, FINE * seeing, 0.5, east - x, y - north) for image, (east, north) in seen]
            for x, y, seeing, part in zip(places.x, places.y, places.seeing, places.transparency, strict=True)
        ]
    )


@pytest.mark.slow
def test_fibres_behind_an_image(tmp_path):
    """Of another form at each wavelength, wider in the second exposure, at each place of the field: to 2e-5 of the
    star's light; the tail is where it is in the file (columns to the West)."""
    psf, other = section(tmp_path / "psf.fits"), section(tmp_path / "other.fits", tail=0.0)
    light, places, wavelength = observed(psf, seeing=[1, 1.2])
    expected = expected_of(places, wavelength)
    np.testing.assert_allclose(light, expected, atol=2e-5)
    first, upper = places.exposure == 1, places.y > 0.1
    assert light[first & upper & (places.x < 0)].max() > 1.2 * light[first & upper & (places.x > 0)].max()
    field = [{"at": [-1, 0], "file": psf["file"]}, {"at": [3, 0], "file": other["file"]}]
    over, places, _ = observed(psf | {"field": field})
    mixed = 0.75 * expected_of(places, wavelength) + 0.25 * expected_of(places, wavelength, tail=0.0)
    np.testing.assert_allclose(over, mixed, atol=2e-5)


@pytest.mark.long
def test_refraction_behind_an_image(tmp_path):
    """Every wavelength of it lands elsewhere (index of air as tested in test_refraction): 3e-4 of the star's light."""
    refraction = {"zenith_distance": 50, "zenith_angle": 30, "wavelength": 5000, "pressure": 743}
    light, places, wavelength = observed(section(tmp_path / "psf.fits"), refraction=refraction)
    index = index_of_air(to_vacuum(np.append(wavelength, 5000.0)), 743.0, 7.0, 10.67)
    size = (index[:-1] - index[-1]) * np.tan(np.deg2rad(50)) * 206264.806
    moved = size[:, None] * [np.sin(np.deg2rad(30)), np.cos(np.deg2rad(30))]
    assert np.ptp(size) > 0.5
    np.testing.assert_allclose(light, expected_of(places, wavelength, moved=moved), atol=3e-4)


OPTICS = {"diameter": 8, "obstruction": 0.14, "cutoff": 33 / 16, "wavelength": 6500}
OPTICS |= {"r0": 0.15, "amplitude": 2, "alpha": 0.25, "beta": 1.8, "background": 1e-3}


def optics_of(**keys):
    return psf_settings({"kind": "adaptive", "optics": keys}).optics


def profile_of(wavelength):
    """The PSF (per arcsec^2) by distance in arcsec: a Hankel transform of the transfer function, splines between."""
    nodes, weights = np.polynomial.legendre.leggauss(600)
    per_metre = np.pi / 180 / 3600 / (wavelength * 1e-10)
    frequency = 4 * (nodes + 1) * per_metre
    transfer = optical_transfer(optics_of(**OPTICS), wavelength, 4 * (nodes + 1), np.zeros(600))
    weight = 2 * np.pi * frequency * transfer * weights * 4 * per_metre
    distance = np.linspace(0, 2.5, 2500)
    return CubicSpline(distance, j0(2 * np.pi * distance[:, None] * frequency) @ weight)


def in_disc(psf, radius, distance):
    """Light in a disc at a distance: sums in polar coordinates about its middle."""
    at, share = np.polynomial.legendre.leggauss(200)
    r, angle = (at + 1) * radius / 2, np.arange(1000) * 2 * np.pi / 1000
    away = np.sqrt(distance**2 + r[:, None] ** 2 + 2 * distance * r[:, None] * np.cos(angle))
    return float((share * radius / 2 * r) @ psf(away).mean(axis=1) * 2 * np.pi)


MAOPPY = {(0.0, 0.0): 0.37686, (0.1, 0.0): 0.18678, (-0.1, 0.05): 0.13861, (0.0, 0.3): 0.01679}
"""(to the right, up) in arcsec -> the light of maoppy 1.7.3's PSF within 0.1 arcsec, its image made as for `MAOPPY` of
test_adaptive, its pixels cut into 16 x 16."""


@pytest.mark.slow
def test_the_light_of_adaptive_optics_in_discs():
    """To 2e-6 of the star's light."""
    west, north = np.array([[0.0, 0.1]]), np.array([[0.0, -0.05, 0.2]])
    found = light_in_discs(optics_of(**OPTICS), 6500.0, 0.1, west, north)[0]
    away, psf = np.hypot(west[0][None, :], north[0][:, None]), profile_of(6500.0)
    np.testing.assert_allclose(found, [[in_disc(psf, 0.1, distance) for distance in row] for row in away], atol=2e-6)


@pytest.mark.slow
def test_the_light_of_many_discs_and_wavelengths():
    """A circular PSF by the distance alone: to 2e-6 of the star's light; others are those of one wavelength."""
    wavelength, every = np.array([6500.0, 9000.0]), []
    for far in (0.2, 1.5):
        every.append((np.array([[0.0, far], [0.07, 0.1]]), np.array([[0.0], [-0.05]])))
    found = lights_in_discs(optics_of(**OPTICS), wavelength, 0.1, every)
    for at, (west, north), light in zip(wavelength, every, found, strict=True):
        psf, away = profile_of(at), np.hypot(west[:, None, :], north[:, :, None])
        expected = np.reshape([in_disc(psf, 0.1, one) for one in away.ravel()], away.shape)
        np.testing.assert_allclose(light, expected, atol=2e-6)
    turned = optics_of(**OPTICS, ratio=1.2, theta=30)
    one = lights_in_discs(turned, wavelength[:1], 0.1, every[:1])[0]
    np.testing.assert_array_equal(one, light_in_discs(turned, 6500.0, 0.1, *every[0]))


@pytest.mark.long
def test_encircled_light_of_maoppy():
    """With the axes turned, in every direction: 5e-4 of the star's light."""
    turned = optics_of(**OPTICS, ratio=1.2, theta=30, outer_scale=10)
    for (west, north), expected in MAOPPY.items():
        found = light_in_discs(turned, 6500.0, 0.1, np.array([[west]]), np.array([[north]]))
        assert found[0, 0, 0] == pytest.approx(expected, abs=5e-4)


@pytest.mark.long
def test_fibres_behind_adaptive_optics():
    """Every fibre's light in every bin, the polynomials between the nodes included: 2e-4 of the star's."""
    light, places, wavelength = observed({"kind": "adaptive", "optics": OPTICS, "enclosed": 0.8})
    away = np.hypot(places.x, places.y)
    profiles = [profile_of(at) for at in wavelength]
    expected = [[in_disc(profile, 0.5, distance) for profile in profiles] for distance in away]
    np.testing.assert_allclose(light, expected, atol=2e-4)


@pytest.mark.parametrize(
    ("psf", "fibres", "message"),
    [
        (None, {}, "psf: expected the seeing in front of the fibres"),
        (
            {"kind": "adaptive", "optics": OPTICS},
            {"seeing": [1, 1.2]},
            "fibres.seeing: expected null (or 1) with a PSF",
        ),
    ],
)
def test_what_fibres_cannot_be_behind(psf, fibres, message):
    with pytest.raises(ConfigError) as found:
        load_config({"instrument": muse(fov=3.0, psf=psf, fibres=FIBRES | fibres)})
    assert message in str(found.value)

"""Instruments: presets, overrides, field, bins and aperture against numbers worked out here."""

import numpy as np
import pytest

from rubix_like import Instrument, air, load_config, load_instrument
from rubix_like.apertures import inside_aperture
from rubix_like.detector import WavelengthBins
from rubix_like.resources import resource_names


@pytest.mark.parametrize("name", resource_names("instruments"))
def test_every_preset_is_an_instrument(name):
    instrument = load_instrument(name)
    assert isinstance(instrument, Instrument)
    assert instrument.name == name
    assert instrument.inside.shape == (instrument.n_y, instrument.n_x)
    assert instrument.inside.any()
    edges, wavelength = instrument.bins.edges, instrument.bins.wavelength
    assert len(edges) == len(wavelength) + 1
    assert (np.diff(edges) > 0).all()
    assert ((edges[:-1] < wavelength) & (wavelength < edges[1:])).all()


def test_muse():
    """Nominal wide field: 300 x 300 spaxels of 0.2 arcsec, 3681 bins of 1.25 Angstrom in air."""
    muse = load_instrument("muse")
    assert (muse.n_y, muse.n_x) == (300, 300)
    assert muse.bins.medium == "air"
    assert muse.bins.n_wave == 3681
    np.testing.assert_allclose(muse.bins.wavelength[[0, 1, -1]], [4750.0, 4751.25, 9350.0])
    assert (muse.psf.kind, muse.psf.is_separable) == ("gaussian", True)
    assert muse.inside.all()


def test_manga():
    """Law et al. 2016: 4563 bins, log10 lambda from 3.5589 by 1e-4, in vacuum."""
    manga = load_instrument("manga")
    assert manga.bins.n_wave == 4563
    np.testing.assert_allclose(np.log10(manga.bins.wavelength), 3.5589 + 1e-4 * np.arange(4563), atol=1e-8)
    assert manga.bins.medium == "vacuum"
    assert not manga.inside[0, 0]
    assert manga.inside[manga.n_y // 2, manga.n_x // 2]


def test_overrides():
    instrument = load_instrument(
        "muse", fov=["2 arcsec", "1 arcsec"], pixel_scale="0.1 arcsec", psf=None, lsf=None, wavelength={"stop": 4800}
    )
    assert (instrument.n_y, instrument.n_x) == (10, 20)
    assert instrument.psf is None
    assert instrument.lsf is None
    assert instrument.bins.n_wave == 41


def test_the_instrument_of_a_run():
    config = load_config({"observation": {"redshift": 0.1}, "instrument": {"name": "muse", "fov": "3 arcsec"}})
    assert Instrument.build(config.instrument).n_x == 15


def test_linear_bins():
    bins = WavelengthBins(first=5000.0, step=2.0, n_wave=3, sampling="linear", medium="vacuum")
    np.testing.assert_allclose(bins.wavelength, [5000.0, 5002.0, 5004.0])
    np.testing.assert_allclose(bins.edges, [4999.0, 5001.0, 5003.0, 5005.0])
    np.testing.assert_array_equal(bins.to_vacuum(bins.edges), bins.edges)


def test_logarithmic_bins():
    bins = WavelengthBins(first=5000.0, step=1e-3, n_wave=3, sampling="log", medium="air")
    np.testing.assert_allclose(bins.wavelength, 5000.0 * 10 ** (1e-3 * np.arange(3)))
    np.testing.assert_allclose(np.diff(np.log10(bins.edges)), 1e-3)
    np.testing.assert_allclose(bins.edges[0], 5000.0 * 10**-5e-4)
    np.testing.assert_allclose(bins.to_vacuum(bins.edges), air.to_vacuum(bins.edges))


def area(shape, width, height):
    x = np.linspace(-6, 6, 1201)
    return inside_aperture(shape, *np.meshgrid(x, x), width, height).sum() * 0.01**2


@pytest.mark.parametrize(
    ("shape", "width", "height", "expected"),
    [
        ("rectangle", 4.0, 2.0, 8.0),
        ("circle", 4.0, 4.0, np.pi * 4),
        ("circle", 4.0, 2.0, np.pi * 2),
        ("hexagon", 4.0, 4.0, 1.5 * np.sqrt(3) * 4),
    ],
)
def test_areas_of_apertures(shape, width, height, expected):
    np.testing.assert_allclose(area(shape, width, height), expected, rtol=0.01)


def test_corners_of_the_hexagon_lie_east_and_west():
    x, y = np.array([[2.0, -2.0, 2.01, 0.0, 0.0, 1.0]]), np.array([[0.0, 0.0, 0.0, 1.73, 1.74, 1.73]])
    np.testing.assert_array_equal(inside_aperture("hexagon", x, y, 4.0, 4.0)[0], [True, True, False, True, False, True])


def test_aperture_of_its_own_size():
    instrument = load_instrument("muse", fov="4 arcsec", aperture={"shape": "circle", "size": "2 arcsec"})
    x = (np.arange(20) - 9.5) * 0.2
    np.testing.assert_array_equal(instrument.inside, np.hypot(*np.meshgrid(x, x)) <= 1.0)

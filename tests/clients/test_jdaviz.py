"""jdaviz without a browser: the helper Cubeviz with no argument, and the app that follows it with the kind of data."""

import numpy as np
import pytest
from astropy import units
from observed import FILES, FLUX_UNIT

pytestmark = [  # of jdaviz and what it is made of, about each other
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::astropy.utils.exceptions.AstropyDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The unit 'Angstrom' has been deprecated:astropy.units.UnitsWarning"),
]


@pytest.fixture(scope="session")
def jdaviz(client):
    return client("jdaviz")


def layers(helper, mock):
    """Name of a layer, without the file's, -> its numbers."""
    return {
        data.label.removeprefix(mock.path.stem).strip(): data.get_component("flux").data
        for data in helper._app.data_collection
    }


def check(helper, mock, name):
    found = layers(helper, mock)
    flux = helper.get_data(mock.path.stem)
    masked = mock.in_order("mask") != 0
    per_spaxel = units.Unit("erg / (s cm2 Angstrom)")
    np.testing.assert_allclose(found[""], mock.in_order("flux") * FLUX_UNIT.to(per_spaxel), rtol=1e-6)
    assert str(flux.flux.unit) == "erg / (Angstrom s cm2 pix2)"
    if mock.cube.variance is None:
        assert "[UNC]" not in found
    else:
        sigma = np.sqrt(mock.in_order("variance")) * FLUX_UNIT.to(per_spaxel)
        np.testing.assert_allclose(found["[UNC]"], sigma, rtol=1e-6)
    assert ("[DQ]" in found) == np.any(masked)
    if np.any(masked):
        np.testing.assert_array_equal(np.nan_to_num(found["[DQ]"]), mock.in_order("mask"))
    np.testing.assert_allclose(flux.spectral_axis.to_value(units.AA), mock.cube.wavelength, rtol=1e-12)
    sky = helper._app.data_collection[0].meta["_orig_spatial_wcs"]  # what its viewers show under the cursor
    for x, y in mock.corners:
        np.testing.assert_allclose(sky.wcs_pix2world(x, y, 0), mock.sky(x, y), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FILES)
def test_cubeviz(jdaviz, mocks, name):
    mock = mocks[name]
    helper = jdaviz.Cubeviz()
    helper.load_data(str(mock.path))
    check(helper, mock, name)


def test_the_app(jdaviz, mocks):
    app = jdaviz.new_app()
    app.load(str(mocks["muse"].path), format="3D Spectrum")
    assert {"", "[UNC]", "[DQ]"} <= set(layers(app, mocks["muse"]))

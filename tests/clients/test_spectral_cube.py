"""spectral-cube, opened with hdu=1 (flux) and hdu=2 (variance); it reads no masks from files."""

import numpy as np
import pytest
from astropy import units
from observed import COMPRESSIONS, FILES, FLUX_UNIT


@pytest.fixture(scope="session")
def spectral_cube(client):
    return client("spectral_cube")


@pytest.mark.parametrize("name", FILES)
def test_flux_unit_wavelength_and_sky(spectral_cube, mocks, name):
    mock = mocks[name]
    read = spectral_cube.SpectralCube.read(mock.path, hdu=1)
    np.testing.assert_array_equal(read.unmasked_data[:].value, mock.in_order("flux"))
    np.testing.assert_allclose((1 * read.unit).to_value(FLUX_UNIT), 1)
    np.testing.assert_allclose(read.spectral_axis.to_value(units.AA), mock.cube.wavelength, rtol=1e-12)
    assert read.spectral_axis.unit == units.AA
    assert read.wcs.wcs.ctype[2] == {"manga": "WAVE-LOG"}.get(name, "AWAV")
    _, dec, ra = read.world[:]
    for x, y in mock.corners:
        values = (ra[0, y, x].to_value(units.deg), dec[0, y, x].to_value(units.deg))
        np.testing.assert_allclose(values, mock.sky(x, y), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", ["muse", "manga", *COMPRESSIONS])
def test_variance(spectral_cube, mocks, name):
    read = spectral_cube.SpectralCube.read(mocks[name].path, hdu=2)
    np.testing.assert_array_equal(read.unmasked_data[:].value, mocks[name].in_order("variance"))
    np.testing.assert_allclose((1 * read.unit).to_value(FLUX_UNIT**2), 1)

"""mpdaf's Cube, opened with no argument."""

import numpy as np
import pytest
from astropy import units
from observed import FILES, FLUX_UNIT, LINE_AXES, LINES, centre_of


@pytest.fixture(scope="session")
def mpdaf(client):
    return client("mpdaf.obj")


@pytest.mark.parametrize("name", FILES)
def test_flux_variance_mask_and_unit(mpdaf, mocks, name):
    mock = mocks[name]
    read = mpdaf.Cube(str(mock.path))
    masked = mock.in_order("mask") != 0
    assert np.any(masked) == (name not in ("manga", "clean"))
    np.testing.assert_array_equal(np.ma.getmaskarray(read.data), masked)
    np.testing.assert_array_equal(read.data.data[~masked], mock.in_order("flux")[~masked])
    np.testing.assert_allclose((1 * read.unit).to_value(FLUX_UNIT), 1)
    if mock.cube.variance is None:
        assert read.var is None
    else:
        np.testing.assert_array_equal(np.ma.getmaskarray(read.var), masked)
        np.testing.assert_array_equal(read.var.data[~masked], mock.in_order("variance")[~masked])


@pytest.mark.parametrize("name", FILES)
def test_world_coordinates(mpdaf, mocks, name):
    mock = mocks[name]
    read = mpdaf.Cube(str(mock.path))
    for x, y in mock.corners:
        ((dec, ra),) = read.wcs.pix2sky([y, x])
        np.testing.assert_allclose((ra, dec), mock.sky(x, y), rtol=0, atol=1e-10)
    np.testing.assert_allclose(read.wave.coord(unit=units.AA), mock.cube.wavelength, rtol=1e-12)
    assert read.wave.unit == units.AA
    assert read.wave.wcs.wcs.ctype[0] == {"manga": "WAVE-LOG"}.get(name, "AWAV")
    np.testing.assert_allclose(read.wcs.get_step(unit=units.arcsec), mock.cube.pixel_scale)


@pytest.mark.parametrize("axis", LINE_AXES)
@pytest.mark.filterwarnings("ignore")  # of mpdaf's fit
def test_lines_are_where_they_should_be(mpdaf, line_mocks, axis):
    """To 0.3 km/s in the medium of the file: the mean of mpdaf's wavelengths by its flux, and the Gaussian that it fits
    (in linear bins: it cuts a spectrum out of logarithmic ones with wavelengths that are 0.02 Angstrom off)."""
    read = mpdaf.Cube(str(line_mocks[axis]))
    wavelength, spectrum = read.wave.coord(unit=units.AA), read[:, 1, 1]
    light = np.asarray(spectrum.data) * np.gradient(wavelength)
    fluxes = []
    for line in LINES:
        centre = centre_of(line, axis.split()[1])
        near = np.abs(wavelength - centre) < 12
        assert np.average(wavelength[near], weights=light[near]) == pytest.approx(centre, rel=1e-6)
        fluxes.append(light[near].sum())
        if axis.startswith("linear"):
            fitted = spectrum.gauss_fit(centre - 12, centre + 12, cont=0, unit=units.AA)
            assert fitted.lpeak == pytest.approx(centre, rel=1e-6)
            assert fitted.flux == pytest.approx(fluxes[-1], rel=2e-3)
    np.testing.assert_allclose(np.array(fluxes) / fluxes[0], [1.0, 0.5, 1.5], rtol=2e-3)

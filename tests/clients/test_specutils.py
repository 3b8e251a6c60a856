"""specutils: our files read with no argument and no format, and Cube.to_specutils."""

import numpy as np
import pytest
from astropy import units
from astropy.modeling import models
from astropy.nddata import InverseVariance, VarianceUncertainty
from observed import FILES, FLUX_UNIT, LINE_AXES, LINES, centre_of
from small import make_cube

from rubix_like.extend import WavelengthBins


@pytest.fixture(scope="session")
def specutils(client):
    return client("specutils")


def check(spectrum, mock, name):
    """Flux, variance, mask, units, wavelength and sky of a spectrum with axes (wave, y, x)."""
    assert spectrum.spectral_axis_index == 0
    np.testing.assert_array_equal(spectrum.flux.value, mock.in_order("flux"))
    np.testing.assert_allclose((1 * spectrum.flux.unit).to_value(FLUX_UNIT), 1)
    if spectrum.mask is None:
        assert not np.any(mock.cube.mask)
    else:
        np.testing.assert_array_equal(spectrum.mask, mock.in_order("mask") != 0)
        assert spectrum.mask.dtype == bool
    if mock.cube.variance is None:
        assert spectrum.uncertainty is None
    else:
        assert isinstance(spectrum.uncertainty, VarianceUncertainty)
        np.testing.assert_array_equal(spectrum.uncertainty.array, mock.in_order("variance"))
        np.testing.assert_allclose((1 * spectrum.uncertainty.unit).to_value(FLUX_UNIT**2), 1)
    np.testing.assert_allclose(spectrum.spectral_axis.to_value(units.AA), mock.cube.wavelength, rtol=1e-12)
    for x, y in mock.corners:
        np.testing.assert_allclose(spectrum.wcs.wcs_pix2world(x, y, 0, 0)[:2], mock.sky(x, y), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", FILES)
def test_a_file(specutils, mocks, name):
    spectrum = specutils.Spectrum.read(mocks[name].path)
    check(spectrum, mocks[name], name)
    assert spectrum.meta["header"]["CTYPE3"] == {"manga": "WAVE-LOG"}.get(name, "AWAV")


@pytest.mark.parametrize("name", FILES)
def test_a_cube(specutils, mocks, name):
    spectrum = mocks[name].cube.to_specutils()
    assert type(spectrum) is specutils.Spectrum
    assert spectrum.spectral_axis.unit == units.AA
    check(spectrum, mocks[name], name)
    assert spectrum.meta["medium"] == {"manga": "vacuum"}.get(name, "air")
    assert spectrum.meta["run"]["redshift"] == 0.03


def test_spectra_of_a_cube_are_spectra_of_its_file(specutils, mocks):
    ours, read = mocks["muse"].cube.to_specutils(), specutils.Spectrum.read(mocks["muse"].path)
    assert ours[:, 4, 7].flux.shape == (81,)
    np.testing.assert_array_equal(ours[:, 4, 7].flux.value, read[:, 4, 7].flux.value)
    axes = (own[:, 4, 7].spectral_axis.to_value(units.AA) for own in (ours, read))
    np.testing.assert_allclose(*axes, rtol=1e-14)


def test_a_logcube_is_known_as_one_of_manga(specutils, mocks):
    mock = mocks["logcube"]
    spectrum = specutils.Spectrum.read(mock.path)
    spaxel = units.Unit("spaxel", represents=units.pixel)
    assert spectrum.flux.unit * spaxel == units.Unit("1e-17 erg / (Angstrom cm2 s)")
    np.testing.assert_allclose(1000 * spectrum.flux.value, mock.in_order("flux"), rtol=1e-6)
    assert isinstance(spectrum.uncertainty, InverseVariance)
    np.testing.assert_allclose(1e-6 * spectrum.uncertainty.array * mock.in_order("variance"), 1, rtol=1e-6)
    np.testing.assert_array_equal(spectrum.mask, mock.in_order("mask") != 0)
    np.testing.assert_allclose(spectrum.spectral_axis.to_value(units.AA), mock.cube.wavelength, rtol=1e-12)


@pytest.mark.parametrize("axis", LINE_AXES)
def test_lines_are_where_they_should_be(specutils, client, line_mocks, axis):
    """Gaussians fitted by specutils to 0.3 km/s, in the medium of the file, and fluxes as the ratios of the lines."""
    fitting, analysis = client("specutils.fitting"), client("specutils.analysis")
    spectrum = specutils.Spectrum.read(line_mocks[axis])[:, 1, 1]
    fluxes = []
    for line in LINES:
        centre = centre_of(line, axis.split()[1])
        near = specutils.SpectralRegion((centre - 12) * units.AA, (centre + 12) * units.AA)
        first = models.Gaussian1D(spectrum.flux.max(), (centre + 1) * units.AA, 1.5 * units.AA)
        found = fitting.fit_lines(spectrum, first, window=near)
        assert found.mean.quantity.to_value(units.AA) == pytest.approx(centre, rel=1e-6)
        fluxes.append(analysis.line_flux(spectrum, near).value)
    np.testing.assert_allclose(np.array(fluxes) / fluxes[0], [1.0, 0.5, 1.5], rtol=2e-3)


@pytest.mark.parametrize("place", [0.5, 0.45], ids=["centres in the middle", "centres beside it"])
def test_a_cube_with_uneven_bins(specutils, place):
    """Flux, variance, wavelengths and edges; the sky is left out."""
    edges = 6000 + np.cumsum([0.0, 30, 31, 50, 36])
    bins = WavelengthBins.of_table(edges[:-1] + place * np.diff(edges), edges, "air")
    cube = make_cube(bins=bins)
    spectrum = cube.to_specutils()
    assert spectrum.spectral_axis_index == 0
    np.testing.assert_allclose(spectrum.spectral_axis.to_value(units.AA), bins.wavelength, rtol=1e-15)
    if place == 0.5:
        np.testing.assert_allclose(spectrum.bin_edges.to_value(units.AA), edges, rtol=1e-15)
    np.testing.assert_array_equal(spectrum.flux.value, np.asarray(cube.flux).transpose(2, 0, 1))
    assert spectrum.meta["sampling"] == "table"

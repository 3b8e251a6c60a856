"""Templates of pyPipe3D as an SSP library."""

import numpy as np
import pytest
from astropy.io import fits
from ssp_files import light
from ssp_files.cached import cached_library
from ssp_files.pipe3d import WAVELENGTH, write_sample

from rubix_like import ConfigError
from rubix_like.extend import import_library, read_table
from rubix_like.importers.pipe3d import read_pipe3d


def test_templates_times_their_norms(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    path = import_library(write_sample(tmp_path))
    assert path == cached_library("mastar-cb19")
    table = read_table(path)
    np.testing.assert_allclose(table.spectra, light.spectra(WAVELENGTH), rtol=1e-6)
    np.testing.assert_allclose(table.log_age, np.log10(light.AGES), atol=1e-3)
    np.testing.assert_array_equal(table.metallicity, light.METALLICITIES)
    np.testing.assert_allclose(table.rest_wavelength, WAVELENGTH)
    np.testing.assert_allclose(table.fwhm, WAVELENGTH / 1800.0)
    assert (table.medium, table.imf, table.solar_metallicity) == ("vacuum", "Salpeter 1955, 0.1-100 Msun", 0.017)


def test_the_medium_is_where_the_lines_stand(tmp_path):
    table = read_pipe3d(write_sample(tmp_path, "air"))
    assert table.medium == "air"
    assert "air measured" in table.source


def test_ages_in_other_units(tmp_path):
    """The templates of one age and metallicity each, named in Myr and Gyr as those of older files."""
    cards = {f"NAME{index}": f"spec_ssp_100Myr_z{z}.spec" for index, z in enumerate(("004", "008", "02"))}
    cards |= {f"NAME{12 + index}": f"spec_ssp_10.0Gyr_z{z}.spec" for index, z in enumerate(("004", "008", "02"))}
    table = read_pipe3d(write_sample(tmp_path, **cards))
    np.testing.assert_allclose(table.log_age[[0, -1]], [8.0, 10.0])
    np.testing.assert_allclose(table.spectra, light.spectra(WAVELENGTH), rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"NORM3": None}, "NORM3: expected a number in the header, got None"),
        ({"NORM3": 0.0}, "NORM3: expected the flux that the template was divided by, got 0"),
        ({"NORM3": "one"}, "NORM3: expected a number in the header, got 'one'"),
        ({"NAME4": None}, "NAME4: expected a name such as spec_ssp_1.0000_z017.spec, got 'nothing'"),
        ({"NAME4": "spec_ssp_old_z02.spec"}, "NAME4: expected a name .* got 'spec_ssp_old_z02.spec'"),
        ({"NAME4": "spec_ssp_0.0000_z02.spec"}, "NAME4: expected a name"),
        ({"NAME4": "spec_ssp_0.1000_z004.spec"}, "one template for each of 3 metallicities and 5 ages.* 1 double"),
        ({"NAME4": "spec_ssp_7.0000_z008.spec"}, "one template for each of 3 metallicities and 6 ages, got 15"),
        ({"CDELT1": None}, "CDELT1: expected a number"),
        ({"CDELT1": -1.5}, "CRVAL1, CDELT1, CRPIX1: expected Angstrom"),
        ({"CRVAL1": 3700.0}, "the Balmer lines"),
        ({f"NORM{index}": 1.0 for index in range(15)}, "another unit or were normalised"),
        ({"name": "gsd01_156.fits"}, "expected a file of templates MaStar_CB19.* give the file the name it had"),
    ],
)
def test_templates_that_cannot_be_used_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read_pipe3d(write_sample(tmp_path, **changes))


def test_files_of_another_kind_or_cut_short(tmp_path):
    image = tmp_path / "MaStar_image.fits"
    fits.PrimaryHDU(np.ones((3, 4))).writeto(image)
    with pytest.raises(ConfigError, match="not a known layout"):
        import_library(image)
    path = write_sample(tmp_path, name="MaStar_CB19.slog_1_5.fits")
    path.write_bytes(path.read_bytes()[:-20000])
    with pytest.raises(ValueError, match="FITS file is damaged or incomplete"):
        import_library(path)

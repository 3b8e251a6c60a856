"""What spectra tell of their medium and unit."""

import numpy as np
import pytest
from ssp_files import light

from rubix_like.extend import cache_directory, read_table, to_vacuum
from rubix_like.importers.stellar_spectra import check_light_unit, measured_medium

LOG_AGE = np.log10(light.AGES)


@pytest.mark.parametrize("medium", ["air", "vacuum"])
@pytest.mark.parametrize("step", [0.3, 0.9, 2.0])
def test_the_medium_is_found_from_the_balmer_lines(medium, step):
    wavelength = light.wavelengths(3500.0, 9000.0, step)
    spectra = light.spectra(wavelength, medium)
    found, offset = measured_medium("x", wavelength, LOG_AGE, light.METALLICITIES, spectra)
    assert found == medium
    assert abs(offset) < 12.0


def test_redshifted_or_coarse_spectra_have_no_medium():
    wavelength = light.wavelengths(3500.0, 9000.0)
    spectra = light.spectra(wavelength)
    with pytest.raises(ValueError, match=r"x: expected the Balmer lines within 40 km/s"):
        measured_medium("x", wavelength * (1 + 150.0 / 299792.458), LOG_AGE, light.METALLICITIES, spectra)
    coarse = np.arange(3500.0, 9000.0, 10.0)
    with pytest.raises(ValueError, match=r"sampled by 3 A or finer, got 10 A over 3500-8990 A"):
        measured_medium("x", coarse, LOG_AGE, light.METALLICITIES, light.spectra(coarse))


@pytest.mark.parametrize("factor", [1.0, 20.0, 0.05])
def test_any_imf_passes_as_lsun_per_angstrom(factor):
    wavelength = light.wavelengths(3500.0, 9000.0)
    check_light_unit("x", wavelength, LOG_AGE, light.METALLICITIES, factor * light.spectra(wavelength))


@pytest.mark.parametrize("factor", [3.828e33, 1e4, 5500.0**2 / 2.998e18, 1e-7])
def test_another_unit_is_seen(factor):
    wavelength = light.wavelengths(3500.0, 9000.0)
    with pytest.raises(
        ValueError, match=r"x: expected about 1\.4e-04 Lsun/Angstrom/Msun at 5500 A and 10\^9\.00 yr, got"
    ):
        check_light_unit("x", wavelength, LOG_AGE, light.METALLICITIES, factor * light.spectra(wavelength))


def test_bc03_miles_is_in_air_as_documented():
    path = cache_directory() / "ssp" / "bc03-miles.h5"
    if not path.is_file():
        pytest.skip("bc03-miles is not in the cache (rubix-like ssp get bc03-miles)")
    table = read_table(path)
    arrays = (table.log_age, table.metallicity, table.spectra.astype(np.float64))
    medium, offset = measured_medium("x", table.rest_wavelength, *arrays)
    assert (medium, abs(offset) < 10.0) == ("air", True)
    assert measured_medium("x", to_vacuum(table.rest_wavelength), *arrays)[0] == "vacuum"
    check_light_unit("x", table.rest_wavelength, *arrays)

"""A folder of E-MILES spectra as an SSP library."""

import os
from pathlib import Path

import numpy as np
import pytest
from speclite.filters import load_filter
from ssp_files import light
from ssp_files.cached import cached_library
from ssp_files.miles import METALS, WAVELENGTH, write_masses, write_sample, write_spectrum

from rubix_like import ConfigError, load_ssp
from rubix_like.extend import import_library
from rubix_like.importers.miles import BASTI, PADOVA, emiles_fwhm, metal_fraction, read_miles
from rubix_like.importers.stellar_spectra import measured_medium


def test_spectra_stand_at_their_ages_and_metallicities(tmp_path):
    table = read_miles(write_sample(tmp_path))
    assert table.medium == "air"
    assert table.name == "e-miles-un1.30-padova"
    assert table.imf == "unimodal, logarithmic slope 1.30 (Salpeter 1955), 0.1-100 Msun"
    assert "non-commercial" in table.licence
    assert table.surviving_fraction is None
    np.testing.assert_allclose(table.log_age, np.log10(light.AGES), atol=1e-4)
    np.testing.assert_array_equal(table.metallicity, [z for _, z in METALS])
    np.testing.assert_allclose(table.rest_wavelength, WAVELENGTH)
    expected = light.spectra(WAVELENGTH, "air", metallicities=[0.008], ages=[1e9])[0, 0]
    np.testing.assert_allclose(table.spectra[1, 2], expected, rtol=1e-6)


def test_resolution_by_wavelength():
    wavelength = np.array([2000.0, 3060.7, 3060.9, 3541.3, 3541.5, 8950.0, 9000.0, 49999.4])
    expected = [3.0, 3.0, 5.0, 5.0, 2.51, 2.51, 2.354820045 * 60.0 / 299792.458 * 9000.0, 23.57]
    np.testing.assert_allclose(emiles_fwhm(wavelength), expected, rtol=3e-4)


def test_metallicities_are_those_of_the_isochrones():
    np.testing.assert_allclose(metal_fraction(np.array([-1.7129, 0.0, 0.2223]), PADOVA), [0.0004, 0.019, 0.03])
    np.testing.assert_allclose(metal_fraction(np.array([-0.25, 0.06]), BASTI), [0.01, 0.0198])
    np.testing.assert_allclose(metal_fraction(np.array([-1.0]), PADOVA), [0.0019])


def test_kind_is_read_from_the_names(tmp_path):
    table = read_miles(write_sample(tmp_path, begin="Ech1.30", end="_iTp0.40_Ep0.40"))
    assert table.name == "e-miles-ch1.30-basti-Ep0.40"
    assert table.imf == "Chabrier 2003, 0.1-100 Msun"
    assert "BaSTI" in table.source
    assert "abundances Ep0.40" in table.source
    np.testing.assert_allclose(table.metallicity, 0.0172 * 10.0 ** np.array([-0.71, -0.40, 0.0]))


def test_masses_are_taken_from_the_table_beside(tmp_path):
    folder = write_sample(tmp_path)
    path = write_masses(folder)
    table = read_miles(folder)
    np.testing.assert_allclose(table.surviving_fraction, np.tile(0.7 - 0.01 * light.AGES / 1e9, (3, 1)), atol=1e-4)
    assert path.name in table.source
    path.write_text(path.read_text().replace("10.0000", "11.0000"))
    with pytest.raises(ValueError, match=r"expected a row for \[M/H\] -0\.71 at 10 Gyr"):
        read_miles(folder)
    write_masses(folder, fraction=2.0)
    with pytest.raises(ValueError, match="expected masses in stars and remnants of 0-1"):
        read_miles(folder)
    path.write_text("UN 1.30 0.0 one 1.0 0.7")
    with pytest.raises(ValueError, match="expected numbers after the IMF"):
        read_miles(folder)


def test_a_folder_is_imported_by_recognition(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    assert import_library(write_sample(tmp_path)) == cached_library("e-miles-un1.30-padova")
    assert load_ssp("e-miles-un1.30-padova").source_medium == "air"
    with pytest.raises(ConfigError, match=r"its folder is one of miles-fits: give .*e-miles;"):
        import_library(tmp_path / "e-miles" / SPECTRUM)
    (tmp_path / "near").mkdir()
    for miss in ("Eun1.30Zp0.00T1.0000.fits", "Eun1.30Zp0.00T01.0000.txt", "Xun1.30Zp0.00T01.0000.fits"):
        (tmp_path / "near" / miss).write_text("")
    with pytest.raises(ConfigError, match=r"known layouts of a folder: .*miles-fits"):
        import_library(tmp_path / "near")
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        import_library(tmp_path / "none")


def damage(path):
    path.write_bytes(path.read_bytes()[:6000])


def no_scale(path):
    write_spectrum(path, np.ones(len(WAVELENGTH)), CDELT1="wide")


SPECTRUM = "Eun1.30Zp0.00T01.0000_iPp0.00_baseFe.fits"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damage, f"{SPECTRUM}: the FITS file is damaged"),
        (Path.unlink, r"15|1 are missing, e\.g\. \[M/H\] \+0\.00 at 1 Gyr"),
        (no_scale, "expected one spectrum with CRVAL1 and CDELT1"),
        (lambda path: write_spectrum(path, np.ones((2, 9))), "expected one spectrum with CRVAL1"),
        (lambda path: write_spectrum(path, np.ones(2999)), "expected the wavelengths of the other spectra"),
        (lambda path: write_spectrum(path, np.ones(3000), CRVAL1=8.2, CDELT1=1e-4), "linearly sampled, got 8.2 to 8.4"),
        (lambda path: write_spectrum(path, np.full(3000, np.nan)), "spectra: expected finite"),
        (
            lambda path: path.rename(path.with_name(path.name.replace("un1", "un2"))),
            "got 2 kinds, e.g. Eun1.30.* and Eun2",
        ),
        (lambda path: path.with_name(path.name + ".gz").write_bytes(path.read_bytes()), "keep one"),
        (
            lambda path: path.rename(path.with_name(path.name.replace("T01", "T00").replace("1.0", "0.0"))),
            "are missing",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_says_why(tmp_path, change, message):
    folder = write_sample(tmp_path)
    change(folder / SPECTRUM)
    with pytest.raises(ValueError, match=message):
        read_miles(folder)


def test_the_native_resolution_in_the_words_of_the_web_tool_alone_is_taken(tmp_path, monkeypatch):
    """MIUSCAT's spectra say (A), MILES' (Angstroms)."""
    for number, words in enumerate(("2.51 (A) FWHM", "5.00 (Angstroms) FWHM", "60.0 (km/s) sigma")):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setattr("ssp_files.miles.COMMENTS", (f"= '# Spectral resolution: {words}'",))
        path = write_sample(folder)
        if words.startswith("2.51"):
            assert read_miles(path).spectra.max() > 0
            continue
        with pytest.raises(ValueError, match="native resolution"):
            read_miles(path)


@pytest.mark.slow
def test_the_real_models_have_their_published_magnitudes():
    """M_V of the table of masses of the same models (its last column but one), Vega: M_V of the Sun 4.82."""
    folder = Path(os.environ.get("RUBIX_LIKE_TEST_SSP", "none")) / "miles_models"
    if not folder.is_dir():
        pytest.skip("miles_models of pPXF 8.1.0 is not in $RUBIX_LIKE_TEST_SSP")
    table = read_miles(folder)
    spectra = table.spectra.astype(np.float64)
    assert measured_medium("x", table.rest_wavelength, table.log_age, table.metallicity, spectra)[0] == "air"
    band = load_filter("bessell-V")
    response = np.interp(table.rest_wavelength, band.wavelength, band.response, left=0, right=0) * table.rest_wavelength
    light_v = spectra @ response / response.sum()
    for metal, age, published in ((0.0004, 1.0, 4.236), (0.019, 1.0, 4.935), (0.019, 10.0, 7.127)):
        found = light_v[
            np.searchsorted(table.metallicity, metal - 1e-5), np.argmin(np.abs(table.log_age - 9 - np.log10(age)))
        ]
        assert 4.82 - 2.5 * np.log10(found / 1.34987e-4) == pytest.approx(published, abs=0.03)
    assert table.surviving_fraction[4, np.argmin(np.abs(table.log_age - 10))] == pytest.approx(0.7195)

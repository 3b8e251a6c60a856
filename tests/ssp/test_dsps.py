"""DSPS' tables as an SSP library."""

import h5py
import numpy as np
import pytest
from ssp_files import light
from ssp_files.cached import cached_library
from ssp_files.dsps import datasets, write_sample

from rubix_like import ConfigError, load_ssp
from rubix_like.extend import import_library
from rubix_like.importers.dsps import fsps_miles_fwhm, is_dsps, read_dsps
from rubix_like.importers.stellar_spectra import per_angstrom


def test_light_per_hertz_becomes_light_per_angstrom(tmp_path):
    table = read_dsps(write_sample(tmp_path))
    np.testing.assert_allclose(table.spectra, light.spectra(light.wavelengths(91.0, 1e6)), rtol=1e-12)
    np.testing.assert_allclose(table.log_age, np.log10(light.AGES), rtol=1e-12)
    np.testing.assert_allclose(table.metallicity, light.METALLICITIES, rtol=1e-12)
    assert table.medium == "vacuum"
    assert table.imf == "Kroupa 2001, 0.08-120 Msun"
    assert table.surviving_fraction is None


def test_energy_is_the_same_per_hertz_and_per_angstrom():
    """The integral over frequency of L_nu is that over wavelength of L_lambda."""
    wavelength = np.geomspace(1000.0, 1e5, 20001)
    frequency = 2.99792458e18 / wavelength
    per_hertz = frequency * np.exp(-frequency / 5e14)
    energy = -np.trapezoid(per_hertz, frequency)
    assert np.trapezoid(per_angstrom(per_hertz, wavelength), wavelength) == pytest.approx(energy, rel=1e-6)


def test_resolution_is_that_of_miles_where_it_reaches():
    wavelength = np.concatenate([[1000.0, 1100.0], np.arange(3500.0, 3600.0, 0.9), [9000.0, 9020.0, 9040.0]])
    fwhm = fsps_miles_fwhm(wavelength)
    np.testing.assert_allclose(fwhm[[0, 60, -1, -2]], [100.0, 2.54, 9040.0 / 300.0, 9020.0 / 300.0])


def test_it_is_imported_by_recognition(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    assert import_library(write_sample(tmp_path)) == cached_library("dsps-fsps")
    assert load_ssp("dsps-fsps").source_medium == "vacuum"


def test_a_table_of_lines_is_left_out(tmp_path):
    lines = {"ssp_emline_name": ["Ha"], "ssp_emline_wave": [6564.6], "ssp_emline_luminosity": np.ones((3, 5, 1))}
    assert "table of emission lines is left out" in read_dsps(write_sample(tmp_path, **lines)).source


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ssp_flux": np.ones((5, 3, 2549))}, "ssp_flux: expected shape"),
        ({"ssp_flux": np.ones((3, 5))}, "ssp_flux: expected a dataset of numbers with 3 axes"),
        ({"ssp_flux": datasets()["ssp_flux"] * 1e15}, "another unit"),
        ({"ssp_lgmet": light.METALLICITIES}, "ssp_lgmet: expected log10 of metal mass fractions"),
        ({"ssp_lg_age_gyr": np.log10(light.AGES)}, r"ssp_lg_age_gyr: expected log10\(age / Gyr\), got 8 to 10"),
        ({"ssp_wave": -datasets()["ssp_wave"]}, "ssp_wave: expected Angstrom in 1-1e12"),
        ({"ssp_wave": ["a", "b"]}, "ssp_wave: expected a dataset of numbers"),
        ({"ssp_lgmet": np.array([np.nan, -2.0, -1.7])}, "ssp_lgmet: expected log10"),
    ],
)
def test_datasets_that_cannot_be_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_dsps(write_sample(tmp_path, **changed))


def test_near_misses_are_not_recognised(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    assert not is_dsps(write_sample(tmp_path, other=np.ones(2)))
    path = write_sample(tmp_path, ssp_lgmet=None)
    assert not is_dsps(path)
    with pytest.raises(ConfigError, match=r"not a known layout .*dsps-hdf5"):
        import_library(path)


def test_damage_is_a_clear_error(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    path = write_sample(tmp_path, ssp_flux=None)
    with h5py.File(path, "r+") as file:
        file.create_dataset("ssp_flux", data=datasets()["ssp_flux"], compression="gzip")
        chunk = file["ssp_flux"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + 10 : chunk.byte_offset + 40] = bytes(30)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="the HDF5 file is damaged or incomplete"):
        import_library(path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="damaged"):
        import_library(path)

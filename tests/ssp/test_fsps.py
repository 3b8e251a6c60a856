"""FSPS through python-fsps."""

import sys
import types

import numpy as np
import pytest
from command_line import main
from ssp_files import light
from ssp_files.cached import cached_library
from ssp_files.fsps import StellarPopulation

from rubix_like import ConfigError, list_libraries, load_ssp
from rubix_like.extend import read_population
from rubix_like.ssp import SHELF


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def python_fsps(monkeypatch):
    package = types.ModuleType("fsps")
    package.__dict__["StellarPopulation"] = StellarPopulation
    monkeypatch.setitem(sys.modules, "fsps", package)


def test_spectra_masses_and_settings_of_a_population():
    table = read_population(StellarPopulation())
    wavelength = light.wavelengths(91.0, 1e6)
    np.testing.assert_allclose(table.spectra, light.spectra(wavelength), rtol=1e-6)
    np.testing.assert_allclose(table.log_age, np.log10(light.AGES))
    np.testing.assert_array_equal(table.metallicity, light.METALLICITIES)
    np.testing.assert_allclose(table.surviving_fraction, [light.surviving()[0] - 0.01 * i for i in (1, 2, 3)])
    assert table.imf == "Kroupa 2001, 0.08-120 Msun"
    assert table.medium == "vacuum"
    assert table.solar_metallicity == 0.0142
    assert "isochrones mist, spectra miles" in table.source
    at = np.searchsorted(table.rest_wavelength, [5000.0, 8000.0])
    step = table.rest_wavelength[at[1] + 1] - table.rest_wavelength[at[1]]
    expected = 2.354820045 / 299792.458 * table.rest_wavelength[at] * [60.0, 1000.0]
    np.testing.assert_allclose(table.fwhm[at], np.maximum(expected, [0.0, step]), rtol=1e-6)


@pytest.mark.parametrize(
    ("stars", "dispersion", "power", "advised"),
    [(b"c3k_lr", 1273.133, 100, True), (b"c3k_hr", 42.43778, 3000, False)],
)
def test_the_resolution_of_a_build_is_stored_and_a_coarse_one_is_told(monkeypatch, stars, dispersion, power, advised):
    """km/s at 5500 A as in FSPS 4.0's files c3k_lr.res and c3k_hr.res; R = lambda / FWHM as in its SPECTRA/C3K."""

    class Build(StellarPopulation):
        def __init__(self, **params):
            super().__init__(**params)
            self.wavelengths = light.wavelengths(91.0, 1e6, 0.5)
            self.resolutions = np.full(len(self.wavelengths), dispersion)
            self.libraries = (b"mist", stars, b"DL07")

    package = types.ModuleType("fsps")
    package.__dict__["StellarPopulation"] = Build
    monkeypatch.setitem(sys.modules, "fsps", package)
    said = []
    SHELF.get("fsps", progress=said.append)
    library = load_ssp("fsps")
    at = np.searchsorted(library.rest_wavelength, 5500.0)
    assert library.rest_wavelength[at] / library.fwhm[at] == pytest.approx(power, rel=2e-3)
    assert f"R = {power} (4000-7000 A)" in library.source
    assert any("FFLAGS='-DC3K_LR=0 -DMILES=0 -DC3K_HR=1'" in sentence for sentence in said) == advised


def test_other_imfs_are_stated():
    assert read_population(StellarPopulation(imf_type=0)).imf == "Salpeter 1955, 0.08-120 Msun"
    assert "slopes (1.3, 2.3, 2.7)" in read_population(StellarPopulation(imf3=2.7)).imf


@pytest.mark.parametrize(("key", "value"), [("sfh", 1), ("dust2", 0.3), ("zred", 0.1), ("add_neb_emission", True)])
def test_other_light_than_that_of_bare_stars_is_refused(key, value):
    with pytest.raises(ValueError, match=f"{key}: expected .*, got {value}"):
        read_population(StellarPopulation(**{key: value}))


def test_get_computes_it_once(python_fsps, capsys):
    assert ("fsps", "to compute: rubix-like ssp get fsps") in list_libraries().rows
    with pytest.raises(ConfigError, match="compute it once with: rubix-like ssp get fsps"):
        load_ssp("fsps")
    assert main(["ssp", "get", "fsps"]) == 0
    assert "metallicity 3 of 3" in capsys.readouterr().err
    assert load_ssp("fsps").name == "fsps"
    assert ("fsps", "in the cache") in list_libraries().rows
    written = cached_library("fsps").stat().st_mtime_ns
    SHELF.get("fsps")
    assert cached_library("fsps").stat().st_mtime_ns == written


def test_without_the_package_or_its_data_the_error_tells_how_to_get_them(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fsps", None)
        with pytest.raises(ConfigError, match=r"needs the package fsps: pip install 'rubix-like\[fsps\]'.*SPS_HOME"):
            SHELF.get("fsps")
    assert not cached_library("fsps").exists()
    (tmp_path / "fsps.py").write_text('raise RuntimeError("You need to have the SPS_HOME environment variable")')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"FSPS' data are missing .*git clone.*SPS_HOME"):
        SHELF.get("fsps")

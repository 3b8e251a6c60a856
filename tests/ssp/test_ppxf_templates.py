"""Templates of pPXF as an SSP library."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from ssp_files import light
from ssp_files.cached import cached_library
from ssp_files.ppxf import METALS, arrays, write_sample

from rubix_like import ConfigError, load_ssp
from rubix_like.extend import import_library
from rubix_like.importers.ppxf import COLLECTIONS, is_ppxf, read_ppxf


def test_arrays_are_turned_and_converted(tmp_path):
    table = read_ppxf(write_sample(tmp_path))
    source = arrays()
    assert table.name == "ppxf-emiles"
    assert table.medium == "air"
    assert table.imf == "Salpeter 1955"
    np.testing.assert_array_equal(table.spectra[2, 1], source["templates"][:, 1, 2])
    np.testing.assert_allclose(table.log_age, np.log10(source["ages"] * 1e9), rtol=1e-14)
    np.testing.assert_allclose(table.metallicity, [0.004, 0.008, 0.019])
    np.testing.assert_array_equal(table.surviving_fraction, source["masses"].T)
    np.testing.assert_array_equal(table.fwhm, 2.51)


@pytest.mark.parametrize(("name", "solar"), [("fsps", 0.0142), ("galaxev", 0.02), ("xsl", 0.0152)])
def test_each_library_has_its_solar_metallicity_and_medium(tmp_path, name, solar):
    table = read_ppxf(write_sample(tmp_path, name))
    assert table.solar_metallicity == solar
    assert table.medium == ("vacuum" if name == "fsps" else "air")
    np.testing.assert_allclose(table.metallicity, solar * 10.0 ** np.array(METALS[name]))
    assert COLLECTIONS[name].citation in table.citation


def test_the_imf_follows_from_the_masses(tmp_path):
    table = read_ppxf(write_sample(tmp_path, masses=light.surviving().T - 0.15))
    assert table.imf == "Kroupa or Chabrier"
    assert "0.57 of the mass at birth" in table.source


def test_it_is_imported_by_recognition(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    assert import_library(write_sample(tmp_path, "xsl")) == cached_library("ppxf-xsl")
    library = load_ssp("ppxf-xsl")
    assert library.source_medium == "air"
    assert library.rest_wavelength[0] == pytest.approx(3501.0, abs=0.1)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"masses": np.full((5, 3), 1.3)}, r"masses: expected fractions .* got 1\.3 to 1\.3"),
        ({"masses": np.full((3, 5), 0.7)}, r"masses: expected shape \(5, 3\)"),
        ({"templates": np.ones((3, 5, 9))}, r"templates: expected shape .* got \(3, 5, 9\)"),
        ({"templates": arrays()["templates"] / 1e-5}, "the spectra are in another unit or were normalised"),
        ({"templates": np.full_like(arrays()["templates"], np.nan)}, "another unit"),
        ({"ages": np.array([0.0, 0.5, 1.0, 3.0, 10.0])}, "ages: expected Gyr above 0, got 0"),
        ({"ages": np.array([0.5, 0.1, 1.0, 3.0, 10.0])}, "log_age: expected strictly increasing"),
        ({"lam": arrays()["lam"] + 1500.0}, "does not hold the library that its name says"),
        ({"lam": np.ones((2, 2))}, "lam: expected one axis"),
        ({"metals": np.array(["a", "b", "c"])}, "damaged or holds no numbers"),
        ({"metals": np.array([{}, {}, {}], dtype=object)}, "damaged or holds no numbers"),
        ({"lam": arrays()["lam"][::-1]}, "lam and fwhm: expected increasing"),
        ({"fwhm": np.zeros_like(arrays()["fwhm"])}, "lam and fwhm: expected increasing and positive"),
        ({"fwhm": np.ones(7)}, "fwhm: expected shape"),
    ],
)
def test_arrays_that_cannot_be_are_refused(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        read_ppxf(write_sample(tmp_path, **changed))


def test_the_name_must_tell_the_library(tmp_path):
    path = write_sample(tmp_path)
    for name in ("templates.npz", "emiles_or_fsps.npz"):
        with pytest.raises(ValueError, match=r"expected one of emiles, fsps, galaxev, xsl in its name"):
            read_ppxf(path.rename(tmp_path / name))
        path = tmp_path / name


def test_only_the_six_arrays_are_recognised(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    assert is_ppxf(write_sample(tmp_path))
    assert not is_ppxf(write_sample(tmp_path, more=np.ones(2)))
    path = write_sample(tmp_path, masses=None)
    assert not is_ppxf(path)
    with pytest.raises(ConfigError, match=r"not a known layout .*ppxf-npz"):
        import_library(path)


def test_damage_is_a_clear_error(tmp_path):
    path = write_sample(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"spectra_emiles_9\.0\.npz: the file is damaged"):
        read_ppxf(path)
    path.write_bytes(content[: len(content) // 2])
    assert is_ppxf(path)
    with pytest.raises(ValueError, match=r"spectra_emiles_9\.0\.npz: the file is damaged"):
        read_ppxf(path)


def real_files():
    spec = importlib.util.find_spec("ppxf")
    folders = [os.environ.get("RUBIX_LIKE_TEST_SSP"), spec and Path(str(spec.origin)).parent / "sps_models"]
    return sorted(path for folder in folders if folder for path in Path(folder).glob("spectra_*_9.0.npz"))


@pytest.mark.slow
def test_the_real_files_are_read():
    if not real_files():
        pytest.skip("no spectra_*_9.0.npz of pPXF in $RUBIX_LIKE_TEST_SSP or in an installed ppxf")
    for path in real_files():
        table = read_ppxf(path)
        assert table.medium == {"emiles": "air", "fsps": "vacuum", "xsl": "air"}.get(
            path.name.split("_")[1], table.medium
        )

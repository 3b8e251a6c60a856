"""GALAXEV's text files (.ised_ASCII) as an SSP library."""

import gzip
import os
import shutil

import numpy as np
import pytest
from ssp_files import bc03, light
from ssp_files.cached import cached_library

from rubix_like import ConfigError, load_ssp
from rubix_like.extend import cache_directory, import_library, read_table
from rubix_like.importers.bc03 import METALLICITIES, read_bc03_ascii, stelib_fwhm


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_and_one_of_its_files_are_the_same_library(cache, tmp_path):
    folder = bc03.write_sample(tmp_path)
    path = import_library(folder)
    assert path == cached_library("bc03-lr-chabrier")
    table = read_table(path)
    np.testing.assert_array_equal(table.metallicity, [0.004, 0.008, 0.02])
    np.testing.assert_allclose(table.log_age, [5.0, *np.log10(light.AGES)], atol=1e-6)
    for index, metallicity in enumerate(bc03.CODES.values()):
        np.testing.assert_allclose(table.spectra[index], bc03.spectra(metallicity)[1:], rtol=1e-6)
        np.testing.assert_allclose(table.surviving_fraction[index], (bc03.LIVING + bc03.REMNANTS)[1:], rtol=1e-6)
    np.testing.assert_allclose(table.rest_wavelength, bc03.WAVELENGTH, rtol=1e-6)
    assert (table.medium, table.imf) == ("vacuum", "Chabrier 2003, 0.1-100 Msun")
    assert "without the metallicities m22, m32, m72" in table.source
    one = read_table(import_library(folder / bc03.file_name("52"), "by-file"))
    np.testing.assert_array_equal(one.spectra, table.spectra)


def test_gzipped_files_of_other_stars(tmp_path):
    table = read_bc03_ascii(bc03.write_sample(tmp_path, "hr_stelib", "salp", compress=True))
    assert (table.name, table.medium) == ("bc03-stelib-salpeter", "air")
    np.testing.assert_allclose(table.fwhm, stelib_fwhm(bc03.WAVELENGTH), rtol=1e-4)
    wavelength = np.arange(3000.0, 10000.0, 20.0)
    near = np.interp([3100.0, 3300.0, 9400.0, 9600.0], wavelength, stelib_fwhm(wavelength))
    np.testing.assert_allclose(near, [20.0, 3.0, 3.0, 32.0])
    shutil.rmtree(tmp_path / "bc03")
    table = read_bc03_ascii(bc03.write_sample(tmp_path, "hr_xmiless", "kroup"))
    assert (table.name, table.medium, table.imf) == ("bc03-miles-kroupa", "air", "Kroupa 2001, 0.1-100 Msun")


def test_what_belongs_together(tmp_path):
    folder = bc03.write_sample(tmp_path)
    bc03.write_sample(tmp_path, imf="salp", compress=True)
    (folder / "my_galaxy.ised_ASCII").write_text("a composite population")
    with pytest.raises(
        ConfigError, match="holds 2 sets of BC03 files; give one file of the set you want: bc2003_lr_BaSeL"
    ):
        read_bc03_ascii(folder)
    assert read_bc03_ascii(folder / (bc03.file_name("42", imf="salp") + ".gz")).name == "bc03-lr-salpeter"
    (folder / (bc03.file_name("62") + ".gz")).write_bytes(b"a broken copy beside the plain file")
    assert read_bc03_ascii(folder / bc03.file_name("62")).name == "bc03-lr-chabrier"
    with pytest.raises(ValueError, match="expected a name such as bc2003_hr_stelib_m62_chab_ssp"):
        read_bc03_ascii(folder / "my_galaxy.ised_ASCII")


def test_lonely_and_strange_sets(tmp_path):
    folder = bc03.write_sample(tmp_path)
    for code in ("42", "52"):
        (folder / bc03.file_name(code)).unlink()
    with pytest.raises(ValueError, match=r"at least 2 metallicities .* got 1"):
        read_bc03_ascii(folder)
    for kind, imf, message in (
        ("hr_pickles", "chab", "with NAME one of lr, lr_basel"),
        ("lr", "topheavy", "the IMF chab"),
    ):
        with pytest.raises(ValueError, match=message):
            read_bc03_ascii(bc03.write_sample(tmp_path, kind, imf) / bc03.file_name("62", kind, imf))


def edit(old, new, count=1):
    return lambda text: text.replace(old, new, count)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[: len(text) // 2], r"expected \d+ numbers in row \d+ .* cut short|expected 7 spectra"),
        (lambda text: text[:200], "expected a line with the metallicity"),
        (lambda text: "", "expected a line with the metallicity"),
        (edit("Z=0.0200", "Z=0.0500", 3), "expected Z=0.02 by the file's name, got Z=0.05"),
        (edit("       7  ", "     seven  "), "expected the number of ages"),
        (edit("1.0000000E+05", "1.0000000E+11"), "expected at least 2 increasing ages"),
        (lambda text: text[:-300] + "x.1" + text[-297:], "expected numbers after the lines of text"),
        (lambda text: text.rsplit(None, 1)[0] + " NaN", "expected finite numbers"),
        (edit(f"{len(bc03.WAVELENGTH):8d}  ", f"{len(bc03.WAVELENGTH) - 1:8d}  "), "numbers in row|spectra of"),
        (edit("9.1000000E+01", "9.2000000E+01"), "expected the wavelengths of the other files"),
        (edit("\n", "\n\u00e9"), "expected the text of a BC03 file"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, change, message):
    folder = bc03.write_sample(tmp_path)
    path = folder / bc03.file_name("62")
    path.write_text(change(path.read_text()), encoding="latin-1")
    with pytest.raises(ValueError, match=message) as error:
        read_bc03_ascii(folder)
    assert str(error.value).startswith(str(path))


def test_a_gzipped_file_cut_short(tmp_path):
    folder = bc03.write_sample(tmp_path, compress=True)
    path = folder / (bc03.file_name("62") + ".gz")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="could not read it"):
        read_bc03_ascii(folder)


def test_masses_tell_a_population_from_a_galaxy(tmp_path):
    folder = bc03.write_sample(tmp_path)
    path = folder / bc03.file_name("62")
    path.write_text(bc03.content(0.02, living=np.linspace(0.0, 0.9, 7)))
    with pytest.raises(
        ValueError, match=r"to begin at 1 Msun and to fall, got 0 and up to 1\.03: not a simple stellar"
    ):
        read_bc03_ascii(folder)
    text = bc03.content(0.02)
    path.write_text(text[: text.rindex("       7  ", 0, text.rindex("       7  "))].rsplit("       7  ", 8)[0])
    assert read_bc03_ascii(folder).surviving_fraction is None


def test_the_arrays_of_bc03_lr_come_back(tmp_path):
    """The library of RUBIX, written in GALAXEV's layout."""
    if not (cache_directory() / "ssp" / "bc03-lr.h5").is_file() and not os.environ.get("CI"):
        pytest.skip("bc03-lr is not in the cache (rubix-like ssp get bc03-lr)")
    library = load_ssp("bc03-lr")
    chosen = slice(None, None, 20)
    ages, spectra = 10.0 ** library.log_age[chosen], library.spectra[:, chosen]
    codes = {value: code for code, value in list(METALLICITIES.items())[:6]}
    for metallicity, by_age in zip(library.metallicity, spectra, strict=True):
        text = bc03.content(
            metallicity,
            age=np.append(0.0, ages),
            wavelength=library.rest_wavelength,
            light_by_age=by_age[[0, *range(len(by_age))]],
            living=np.linspace(1.0, 0.5, len(ages) + 1),
            remnants=np.linspace(0.0, 0.1, len(ages) + 1),
        )
        path = tmp_path / bc03.file_name(codes[round(float(metallicity), 5)], "lr")
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(text.encode(), 1))
    table = read_bc03_ascii(tmp_path)
    np.testing.assert_allclose(table.spectra, spectra, rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(table.log_age, library.log_age[chosen], atol=1e-6)
    np.testing.assert_allclose(table.metallicity, library.metallicity)
    np.testing.assert_allclose(table.fwhm, library.fwhm)
    assert table.medium == library.source_medium

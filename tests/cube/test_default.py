"""Files: the layout that clients expect, the way back, and what happens when writing fails."""

import dataclasses
import os
import resource
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.table import Table
from astropy.wcs import WCS
from small import full_cube, make_cube

from rubix_like import ConfigError, Counters, Cube, load_config, load_cube, read_observed
from rubix_like.cube.footprint import header_of
from rubix_like.cube.meta import join_rows, split_rows
from rubix_like.extend import write_cube
from rubix_like.runtime.files.outputs import check_writable, replacing


def assert_same(one: Cube, other: Cube) -> None:
    for name in ("flux", "variance", "mask"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None) == (second is None)
        if first is not None:
            assert second.dtype == (np.int32 if name == "mask" else np.float32)
            np.testing.assert_array_equal(second, np.asarray(first).astype(second.dtype))
    for name in ("wavelength", "wave_edges", *(["lsf_fwhm"] if one.lsf_fwhm is not None else [])):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=0, atol=1e-10)
        assert getattr(other, name).dtype == np.float64
    for name in ("medium", "sampling", "pixel_scale", "meta"):
        assert getattr(other, name) == getattr(one, name)


@pytest.mark.parametrize(
    ("name", "sampling", "medium"),
    [
        ("cube.fits", "linear", "air"),
        ("cube.fits", "log", "vacuum"),
        ("cube.fits.gz", "log", "air"),
        ("cube.fits.gz", "linear", "vacuum"),
    ],
)
def test_round_trip(tmp_path, name, sampling, medium):
    cube = full_cube(sampling, medium=medium)
    path = cube.write(tmp_path / name)
    assert path == tmp_path / name
    assert_same(cube, Cube.read(path))
    assert os.listdir(tmp_path) == [name]
    assert path.read_bytes()[:2] == (b"\x1f\x8b" if name.endswith("gz") else b"SI")


def test_counters_come_back_and_velocity_maps_do_not(tmp_path):
    cube = full_cube(mean_v_los=jnp.zeros((3, 5)))
    again = Cube.read(cube.write(tmp_path / "cube.fits"))
    assert again.mean_v_los is None
    for field in dataclasses.fields(Counters):
        assert getattr(again.counters, field.name) == getattr(cube.counters, field.name)
    assert Cube.read(make_cube(lsf_fwhm=np.ones(4)).write(tmp_path / "plain.fits")).counters is None


def test_layout_with_noise(tmp_path):
    cube = full_cube()
    with fits.open(cube.write(tmp_path / "cube.fits")) as hdus:
        hdus.verify("exception")
        assert [hdu.name for hdu in hdus] == ["PRIMARY", "DATA", "STAT", "DQ", "VAR", "LSF", "CONFIG"]
        assert hdus[0].data is None
        assert hdus["DATA"].data.shape == (4, 3, 5)
        assert hdus["DATA"].data.dtype == np.dtype(">f4")
        assert hdus["DQ"].data.dtype == np.uint8
        assert hdus["DQ"].header["HDUCLAS3"] == "FLAG8BIT"
        np.testing.assert_array_equal(hdus["DATA"].data[1, 2, 3], np.asarray(cube.flux)[2, 3, 1])
        np.testing.assert_array_equal(hdus["VAR"].data, hdus["STAT"].data)
        header = hdus["DATA"].header
        flux_unit = 1e-20 * units.erg / units.s / units.cm**2 / units.AA
        assert units.Unit(header["BUNIT"], format="fits").is_equivalent(flux_unit)
        np.testing.assert_allclose(units.Unit(header["BUNIT"], format="fits").to(flux_unit), 1)
        np.testing.assert_allclose(units.Unit(hdus["STAT"].header["BUNIT"], format="fits").to(flux_unit**2), 1)
        assert (header["CTYPE3"], header["CUNIT3"], header["SPECSYS"]) == ("AWAV", "Angstrom", "BARYCENT")
        assert (header["ERRDATA"], header["QUALDATA"], header["DISPAXIS"]) == ("STAT", "DQ", 3)
        assert (header["CD3_3"], header["CDELT3"]) == (1.25, 1.25)
        assert hdus["STAT"].header["HDUCLAS3"] == "MSE"


NO_FLAG = np.zeros((3, 5, 4), np.int32)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"variance": None}, ["DATA", "LSF", "CONFIG", "DQ"]),
        ({"variance": None, "lsf_fwhm": None}, ["DATA", "CONFIG", "DQ"]),
        ({"variance": None, "mask": NO_FLAG}, ["DATA", "LSF", "CONFIG"]),
        ({"mask": NO_FLAG}, ["DATA", "STAT", "VAR", "LSF", "CONFIG"]),
        ({"mask": np.broadcast_to(np.int32(0), (3, 5, 4))}, ["DATA", "STAT", "VAR", "LSF", "CONFIG"]),
    ],
)
def test_layout_without_noise_or_flags(tmp_path, changes, names):
    """Only variances are HDU 2; a missing DQ is one without a flag; cards point to what is there."""
    cube = full_cube(**changes)
    path = cube.write(tmp_path / "cube.fits")
    assert_same(cube, Cube.read(path))
    with fits.open(path) as hdus:
        assert [hdu.name for hdu in hdus] == ["PRIMARY", *names]
        for card, name in (("ERRDATA", "STAT"), ("QUALDATA", "DQ")):
            images = [hdu for hdu in hdus if hdu.is_image and hdu.name not in ("PRIMARY", "STAT", "VAR")]
            assert {hdu.header.get(card) for hdu in images} <= {None, name}
            assert (hdus["DATA"].header.get(card) == name) == (name in names)


@pytest.mark.parametrize(("bit", "dtype"), [(128, "u1"), (256, ">i2"), (1 << 15, ">i4")])
def test_the_mask_takes_the_smallest_integers(tmp_path, bit, dtype):
    cube = full_cube(mask=np.where(np.arange(4) == 2, bit, 0) + NO_FLAG)
    path = cube.write(tmp_path / "cube.fits")
    assert fits.getdata(path, "DQ").dtype == np.dtype(dtype)
    assert_same(cube, Cube.read(path))


def test_sizes_against_four_bytes_of_mask_per_voxel(tmp_path):
    """Of the old layout: flux and mask in 4 bytes each, with noise two variances more, of which one is a copy."""
    shape = (60, 60, 100)
    n_voxel, random = np.prod(shape), np.random.default_rng(0)
    fields = {"flux": random.normal(size=shape).astype(np.float32)}
    flags = random.integers(0, 16, shape).astype(np.int32)

    def size(**changes):
        return make_cube(*shape, **fields, **changes).write(tmp_path / "cube.fits").stat().st_size

    assert size(mask=np.zeros(shape, np.int32)) <= 0.52 * 8 * n_voxel
    assert size(mask=flags) <= 0.65 * 8 * n_voxel
    assert size(mask=flags, variance=np.ones(shape, np.float32)) - 4 * n_voxel <= 0.76 * 12 * n_voxel


def test_a_file_of_an_older_version(tmp_path):
    """DQ of 32 bits as HDU 2, also where nothing is flagged."""
    cube = full_cube(variance=None)
    with fits.open(cube.write(tmp_path / "cube.fits")) as hdus:
        old = [hdu.copy() for hdu in hdus]
        old.insert(2, fits.ImageHDU(old.pop().data.astype(np.int32), name="DQ"))
        fits.HDUList(old).writeto(tmp_path / "old.fits", checksum=True)
    assert_same(cube, Cube.read(tmp_path / "old.fits"))


@pytest.mark.parametrize(("layout", "name"), [("default", "cube.fits"), ("default", "cube.h5"), ("manga", "cube.fits")])
def test_gzip_loses_nothing(tmp_path, layout, name):
    cube = full_cube("log", medium="vacuum")
    plain, packed = (cube.write(tmp_path / f"{kind}-{name}", layout, kind) for kind in ("none", "gzip"))
    if layout == "default":
        assert_same(Cube.read(plain), Cube.read(packed))
    else:
        one, other = read_observed(plain), read_observed(packed)
        np.testing.assert_array_equal(one.flux, other.flux)
        np.testing.assert_array_equal(one.used, other.used)
    if name.endswith("fits"):
        with fits.open(packed, checksum=True) as hdus:
            hdus.verify("exception")
            images = [hdu for hdu in hdus if isinstance(hdu, fits.CompImageHDU)]
            assert images
            assert {hdu._bintable.header["ZCMPTYPE"] for hdu in images} == {"GZIP_2"}


def test_rice_rounds_fluxes_alone(tmp_path):
    """To a fraction of the noise (Pence et al. 2009: the error is uniform in a step of sigma / q)."""
    shape, random = (60, 50, 8), np.random.default_rng(3)
    flux, sigma = random.normal(5, 0.1, shape).astype(np.float32), 0.1
    flux[3, 4, 5] = 0
    variance = np.full(shape, sigma**2, np.float32)
    mask = random.integers(0, 8, shape).astype(np.int32)
    cube = make_cube(*shape, flux=flux, variance=variance, mask=mask)
    again = Cube.read(cube.write(tmp_path / "cube.fits", compression="rice", quantize=16))
    error = np.asarray(again.flux) - flux
    assert error[3, 4, 5] == 0
    np.testing.assert_allclose(np.std(error), sigma / 16 / np.sqrt(12), rtol=0.1)
    np.testing.assert_array_equal(again.variance, variance)
    np.testing.assert_array_equal(again.mask, mask)
    assert (tmp_path / "cube.fits").stat().st_size < 0.5 * cube.write(tmp_path / "plain.fits").stat().st_size


@pytest.mark.parametrize(
    ("options", "layout", "name", "words"),
    [
        ({"compression": "zip"}, "default", "a.fits", r"compression: expected one of none, gzip, rice, got 'zip'"),
        ({"compression": "rice"}, "default", "a.fits", "quantize: expected a number with compression 'rice'"),
        ({"compression": "gzip", "quantize": 4}, "default", "a.fits", "quantize: expected a number with.*got 4"),
        ({"compression": "rice", "quantize": -1}, "default", "a.fits", "quantize: expected a number > 0, got -1"),
        ({"compression": "gzip"}, "default", "a.fits.gz", "compressed as a whole.*write 'a.fits'"),
        ({"compression": "rice", "quantize": 4}, "default", "a.h5", "expected one of none, gzip for this kind"),
        ({"compression": "gzip"}, "hsim", "a.fits", "expected one of none for this kind"),
    ],
)
def test_compression_that_is_refused(tmp_path, options, layout, name, words):
    cube = full_cube(medium="vacuum", variance=None)
    with pytest.raises(ConfigError, match=words):
        cube.write(tmp_path / name, layout, **options)
    output = {"path": tmp_path / name, "layout": layout, **options}
    wavelength = {"start": 5000, "stop": 5100, "step": 1.25, "medium": "vacuum"}
    with pytest.raises(ConfigError, match=r"output\.|quantize"):
        load_config("quickstart", overrides={"output": output, "instrument.wavelength": wavelength})
    assert os.listdir(tmp_path) == []


def test_layout_of_log_sampling(tmp_path):
    cube = full_cube("log", medium="vacuum", lsf_fwhm=None)
    path = cube.write(tmp_path / "cube.fits")
    with fits.open(path) as hdus:
        assert [hdu.name for hdu in hdus] == ["PRIMARY", "DATA", "STAT", "DQ", "VAR", "CONFIG", "WAVE"]
        header = hdus["DATA"].header
        assert header["CTYPE3"] == "WAVE-LOG"
        np.testing.assert_allclose(header["CD3_3"] / header["CRVAL3"], 1e-4 * np.log(10), rtol=1e-10)
        metres = WCS(header).wcs_pix2world(0, 0, np.arange(4), 0)[2]
        np.testing.assert_allclose(metres * 1e10, hdus["WAVE"].data["WAVE"], rtol=1e-13)


def test_primary_cards(tmp_path):
    header = fits.getheader(full_cube().write(tmp_path / "cube.fits"))
    expected = {"RA": 150.0, "DEC": 40.0, "OBJECT": "Galaxy ? 1", "REDSHIFT": 0.05, "NSTARS": 100, "NOUTSIDE": 3}
    assert {key: header[key] for key in expected} == expected
    assert (header["RADESYS"], header["EQUINOX"], header["DISPAXIS"]) == ("ICRS", 2000.0, 3)
    assert "LUMDIST" not in header
    assert "INCLIN" not in header
    assert len(header["DATE"]) == 19


def test_cards_have_room_for_any_value():
    for value in (*("x" * n for n in (1, 30, 50, 60, 66, 68, 200)), "'" * 40, -1 / 3, 10**18):
        header = header_of([("KEYWORD", value, 70 * "c")])
        again = fits.Header.fromstring(header.tostring())
        assert again["KEYWORD"] == value
        assert set(again.comments["KEYWORD"]) <= {"c"}


def test_config_table_is_readable(tmp_path):
    path = full_cube().write(tmp_path / "cube.fits")
    table = Table.read(path, "CONFIG")
    lines = [str(row["VALUE"]) for row in table if row["KEY"] == "config"]
    assert lines[:3] == ["galaxy:", "  reader: synthetic", "  n_stars: 50000"]
    lsf = Table.read(path, "LSF")
    assert lsf["FWHM"].unit == units.AA


def test_rows_come_back_with_their_types():
    words = ["1", "true", "NaN", "", " x", "x ", "[1]", "{}", "a\nb", "\n", "1\n2", '"', "tab\t", "é"]
    for value in (*words, 1, 1.0, 0.1, True, None):
        (again,) = join_rows(split_rows({"key": value})).values()
        assert (again, type(again)) == (value, type(value))


def test_float64_flux_is_written_as_float32(tmp_path):
    cube = make_cube(flux=jnp.full((3, 5, 4), 1 / 3, jnp.float64))
    again = Cube.read(cube.write(tmp_path / "cube.fits"))
    assert again.flux.dtype == np.float32
    np.testing.assert_array_equal(again.flux, np.float32(1 / 3))


def test_reading_what_is_not_ours(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.fits"):
        load_cube(tmp_path / "none.fits")
    text = tmp_path / "text.fits"
    text.write_text("not a cube")
    with pytest.raises(ValueError, match="not a complete cube of rubix_like"):
        load_cube(text)
    fits.PrimaryHDU(np.zeros((2, 2))).writeto(tmp_path / "other.fits")
    with pytest.raises(ValueError, match="ORIGIN is None"):
        load_cube(tmp_path / "other.fits")


@pytest.mark.parametrize("name", ["cube.fits", "cube.fits.gz"])
def test_reading_a_truncated_file(tmp_path, name):
    path = full_cube().write(tmp_path / name)
    content = path.read_bytes()
    for keep in (0.3, 0.6, 0.9):
        path.write_bytes(content[: int(keep * len(content))])
        with pytest.raises(ValueError, match="not a complete cube of rubix_like"):
            load_cube(path)


def test_names_that_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match=r"cube\.txt.*cube\.fits'"):
        write_cube(full_cube(), tmp_path / "cube.txt")
    with pytest.raises(ConfigError, match=r"unknown layout 'mangaa'; did you mean 'manga'"):
        full_cube().write(tmp_path / "cube.fits", "mangaa")
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="does not exist; create it"):
        write_cube(full_cube(), tmp_path / "none" / "cube.fits")


@pytest.mark.parametrize("name", ["cube.fits", "cube.fits.gz", "cube.h5"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, name):
    path = tmp_path / name
    path.write_text("old")
    noise = np.random.default_rng(0).normal(size=(40, 40, 50))
    cube = make_cube(40, 40, 50, flux=noise, mask=np.zeros(noise.shape, np.int32))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"cannot write .*is full.*free some space"):
            cube.write(path, overwrite=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == [name]
    assert path.read_text() == "old"


def test_an_interrupt_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "cube.fits"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as temporary:
            assert temporary.parent == tmp_path
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == ["cube.fits"]
    assert path.read_text() == "old"


def test_check_writable(tmp_path):
    check_writable(tmp_path / "cube.fits", 1000)
    assert os.listdir(tmp_path) == []
    with pytest.raises(FileNotFoundError, match="mkdir -p"):
        check_writable(tmp_path / "none" / "cube.fits", 1000)
    with pytest.raises(IsADirectoryError, match="add a file name"):
        check_writable(tmp_path, 1000)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="is a file, not a folder"):
        check_writable(tmp_path / "file" / "cube.fits", 1000)
    with pytest.raises(OSError, match="1 PB are needed"):
        check_writable(tmp_path / "cube.fits", 10**15)


def test_check_writable_without_permission(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for folder in (closed, Path("/sys"), Path("/proc/sys")):
        if folder.is_dir() and not os.access(folder, os.W_OK):
            with pytest.raises(PermissionError, match=f"no permission to write in {folder}"):
                check_writable(folder / "cube.fits", 1000)
            return
    pytest.skip("root may write everywhere here")

"""Checksums of our files, those of others, and files that are the same to the byte."""

import gzip
import hashlib
import re
import warnings

import h5py
import numpy as np
import pytest
from astropy.io import fits
from command_line import main
from small import FLUX, muse_hdus, vacuum_cube
from test_products import config

from rubix_like import Cube, Maps, read_observed

FILES = [
    ("default", "a.fits"),
    ("default", "a.fits.gz"),
    ("manga", "a.fits"),
    ("manga", "a.fits.gz"),
    ("hsim", "a.fits"),
]


def changed(path, place, compressed=False):
    """One bit of a file the other way round, `place` bytes behind the beginning of DATA's, or of the only, image."""
    raw = bytearray(gzip.decompress(path.read_bytes()) if compressed else path.read_bytes())
    with fits.open(path) as hdus:
        hdu = next(hdu for hdu in hdus if hdu.header["NAXIS"] == 3)
        start = hdu.fileinfo()["datLoc"] + place
    raw[start] ^= 1
    path.write_bytes(gzip.compress(bytes(raw)) if compressed else bytes(raw))
    return path


def assert_sums_hold(path):
    """By astropy's own reckoning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fits.open(path, checksum=True) as hdus:
            hdus.verify("exception")
            for hdu in hdus:
                assert {"CHECKSUM", "DATASUM"} <= set(hdu.header), hdu.name
                assert (hdu.verify_checksum(), hdu.verify_datasum()) == (1, 1)


@pytest.mark.parametrize(("layout", "name"), FILES)
def test_every_part_of_a_file_has_checksums(tmp_path, layout, name):
    cube = vacuum_cube("linear" if layout == "hsim" else "log")
    assert_sums_hold(cube.write(tmp_path / name, layout))


@pytest.mark.parametrize(
    ("name", "layout", "place", "words"),
    [
        ("a.fits", "default", 9, r"\(DATA\): its data were"),
        ("a.fits", "default", -2880, r"\(.*\): its header was"),
        ("a.fits.gz", "default", -2000, r"\(.*\): its header was"),
        ("a.fits", "manga", 40, r"\(FLUX\): its data were"),
    ],
)
def test_a_cube_of_ours_that_was_changed_is_refused(tmp_path, name, layout, place, words):
    """A bit of a flux, of a comment, of blanks: everything else is as it was."""
    path = vacuum_cube().write(tmp_path / name, layout)
    read_observed(path)
    changed(path, place, name.endswith(".gz"))
    for read in (Cube.read, read_observed):
        with pytest.raises(ValueError, match=rf"HDU 1 {words} changed or damaged .*make it again"):
            read(path)


def test_a_changed_cube_of_others_is_noted(tmp_path):
    """Both sums, one of them, none, and images that astropy compresses."""
    path = tmp_path / "muse.fits"
    fits.HDUList(muse_hdus()).writeto(path, checksum=True)
    assert not any("changed or damaged" in note for note in read_observed(path).notes)
    assert "HDU 1 (DATA): its data were changed or damaged" in read_observed(changed(path, 4)).notes[0]
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"DATASUM = ", b"DATAS   = "))
    assert any(note.startswith("HDU 1 (DATA): it was changed or damaged") for note in read_observed(path).notes)
    path.write_bytes(raw.replace(b"CHECKSUM= ", b"CHECKS  = ").replace(b"DATASUM = ", b"DATAS   = "))
    assert not any("changed or damaged" in note for note in read_observed(path).notes)
    primary, data, *_ = muse_hdus()
    packed = fits.CompImageHDU(FLUX.copy(), data.header, name="DATA", compression_type="GZIP_1")
    fits.HDUList([primary, packed]).writeto(tmp_path / "packed.fits", checksum=True)
    assert not any("changed or damaged" in note for note in read_observed(tmp_path / "packed.fits").notes)


@pytest.mark.parametrize(("name", "unit"), [("DATA", "10**-17 erg s-1 cm-2 Angstrom-1"), ("STAT", None), ("DQ", "adu")])
def test_the_unit_of_every_image_is_looked_at(tmp_path, name, unit):
    path = vacuum_cube().write(tmp_path / "cube.fits")
    with fits.open(path, mode="update", checksum=True) as hdus:
        hdus[name].header["BUNIT"] = unit or "adu"
        if unit is None:
            del hdus[name].header["BUNIT"]
        for hdu in hdus:
            hdu.add_checksum()
    with pytest.raises(ValueError, match=rf"HDU {name}: expected BUNIT .*, got {re.escape(repr(unit))}"):
        Cube.read(path)


def test_hdf5_knows_damaged_arrays(tmp_path):
    path = vacuum_cube().write(tmp_path / "cube.h5")
    with h5py.File(path) as file:
        assert [name for name in file if isinstance(file[name], h5py.Dataset) and not file[name].fletcher32] == []
        place = file["variance"].id.get_chunk_info(0).byte_offset
    Cube.read(path)
    raw = bytearray(path.read_bytes())
    raw[place + 5] ^= 1
    path.write_bytes(bytes(raw))
    for read in (Cube.read, read_observed):
        with pytest.raises(ValueError, match="is not a complete cube of rubix_like"):
            read(path)


def test_the_same_command_makes_the_same_bytes(tmp_path, monkeypatch, jax_settings):
    """A cube in both formats, its maps, the picture; the date is that of the environment."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    noise = {"signal_to_noise": 20, "keep_truth": True}
    (tmp_path / "run.yaml").write_text(config(noise=noise, psf={"fwhm": 0.4}).to_yaml())
    command = ["run", str(tmp_path / "run.yaml"), "--output", "cube.fits", "--set"]
    sums = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr("rubix_like.runtime.files.outputs.socket.gethostname", lambda folder=folder: folder.name)
        assert main([*command, "output.maps=cube.fits.maps.fits.gz"]) == 0
        Cube.read("cube.fits").write("cube.h5")
        sums.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert len(sums[0]) == 4
    assert sums[0] == sums[1]
    assert fits.getval("cube.fits", "DATE") == "2023-11-14T22:13:20"
    assert_sums_hold("cube.fits.maps.fits.gz")
    raw = gzip.decompress((tmp_path / "two" / "cube.fits.maps.fits.gz").read_bytes())
    with fits.open("cube.fits.maps.fits.gz") as hdus:
        place = hdus["LIGHT"].fileinfo()["datLoc"]
    (tmp_path / "maps.fits").write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
    with pytest.raises(ValueError, match=r"\(LIGHT\): its data were changed or damaged"):
        Maps.read(tmp_path / "maps.fits")


def test_a_date_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(
        ValueError, match="SOURCE_DATE_EPOCH: expected seconds since 1970 as a whole number, got 'yesterd"
    ):
        vacuum_cube().write(tmp_path / "cube.fits")
    assert np.size(list(tmp_path.iterdir())) == 0

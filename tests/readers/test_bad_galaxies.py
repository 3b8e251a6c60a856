"""What users may hand over by mistake: every file ends in one sentence with file, place, expectation and remedy."""

import os
import struct

import h5py
import numpy as np
import pytest
from damage import BOX, N_STARS, write_illustris
from snapshot_reading import open_snapshot, reader_of

from rubix_like import ConfigError
from rubix_like.extend import load_field_map, resource

STARS = "PartType4"

ILLUSTRIS = str(resource("simulations", "illustris"))
"""As a file of the user's own, a field map is not held against the others, which takes its time."""


@pytest.fixture
def path(tmp_path):
    return write_illustris(tmp_path / "cutout.hdf5")


def load(path, reader=ILLUSTRIS):
    return reader_of(path=path, reader=reader).load()


def stars(path):
    """The columns of the stars as they leave the file."""
    with open_snapshot(reader_of(path=path, reader=ILLUSTRIS)) as snapshot:
        return snapshot.read("stars", 0, snapshot.count("stars"))


def refused(path, pattern, reader=ILLUSTRIS, error=ValueError):
    """Reading is refused in one line that names the file."""
    with pytest.raises(error, match=pattern) as caught:
        load(path, reader)
    assert path.name in str(caught.value)
    assert "\n" not in str(caught.value)


def replace(path, place, values, **options):
    with h5py.File(path, "r+") as file:
        del file[place]
        file.create_dataset(place, data=values, **options)


def stored(path, place):
    with h5py.File(path) as file:
        return file[place][()]


def test_truncated_file(path):
    content = path.read_bytes()
    for length in (0, 3, 8, 100, 1000, 5000, 20000, -1):
        path.write_bytes(content[:length])
        refused(path, "is not an HDF5 file|cannot be read .*is the download complete", error=OSError)


def test_gas_only(path):
    with h5py.File(path, "r+") as file:
        del file["PartType4"]
    refused(
        path, r"PartType4 \(stars\) is missing or empty; the file has Header, PartType0; choose a galaxy with stars"
    )


def test_unlabelled_files(tmp_path, path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["run/density"] = np.ones(3)
    refused(
        tmp_path / "other.h5", r"is not recognised \(the file has run\); name its simul.*field map", "auto", ConfigError
    )
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    refused(tmp_path / "empty.h5", r"is not recognised \(the file has nothing\)", "auto", ConfigError)
    with h5py.File(path, "r+") as file:
        del file["Header"]
    refused(path, "no group Header; the file has PartType0, PartType4; download the file")


def test_identifiers_of_64_bits(path):
    expected = stars(path)["position"]
    for dtype in ("<u8", ">u8", "<i8"):
        top = 2**64 if "u" in dtype else 2**63
        replace(path, f"{STARS}/ParticleIDs", (np.arange(N_STARS, dtype=object) + top - N_STARS).astype(dtype))
        np.testing.assert_array_equal(stars(path)["position"], expected)


PACKED = {
    "plain chunks": {"chunks": (16, 3)},
    "one column per chunk": {"chunks": (50, 1), "compression": "gzip"},
    "gzip": {"chunks": (16, 3), "compression": "gzip"},
    "lzf": {"chunks": (16, 3), "compression": "lzf"},
    "shuffle and check sum": {"chunks": (16, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
    "check sum": {"chunks": (64, 2), "fletcher32": True},
}


@pytest.mark.parametrize("packing", PACKED)
def test_packed_datasets_are_read_by_slab(path, packing):
    place = f"{STARS}/Coordinates"
    values = stored(path, place)
    values[:40] = 0.0  # whole chunks of the fill value
    values[40:] = BOX["TNG"] / 2
    values[:, 1] += np.arange(N_STARS)
    replace(path, place, np.asfortranarray(values), **PACKED[packing])
    with open_snapshot(reader_of(path=path, reader=ILLUSTRIS)) as snapshot:
        whole = snapshot.read("stars", 0, N_STARS)["position"]
        parts = [snapshot.read("stars", start, start + 37)["position"] for start in range(0, N_STARS, 37)]
    np.testing.assert_allclose(whole, values * 0.8 / 0.7, rtol=1e-14)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_chunks_that_were_never_written(path):
    with h5py.File(path, "r+") as file:
        del file["PartType4/Masses"]
        masses = file.create_dataset("PartType4/Masses", (N_STARS,), "f4", chunks=(50,))
        masses[:100] = 1e-5
    refused(path, r"PartType4/Masses cannot be read: its shape \(150,\) takes 3 chunks, but 2 are stored")
    with h5py.File(path, "r+") as file:
        del file["PartType4/Masses"]
        file.create_dataset("PartType4/Masses", (N_STARS,), "f4")
    refused(path, r"its shape \(150,\) takes 600 bytes, but 0 are stored; the file is damaged or incomplete")


INDEX = {
    "left-out filter": (4, 1, r"its chunk at \(50, 0\) cannot be of"),
    "bytes": (3, 0x7F, "it claims bytes .* of a file of|cannot be of"),
    "place": (8, 1, "the index of its chunks does not cover its shape|bad coordinate offset"),
    "place within a number": (30, 24, "Coordinates cannot be read .*chunk address isn't defined|bad coordinate offset"),
    "address": (36, 0x40, "it claims bytes .* of a file of"),
}
"""Byte of the entry in the index of chunks, the bits that are flipped, and the message."""


@pytest.mark.parametrize("case", INDEX)
def test_damaged_index_of_chunks(path, case):
    """HDF5 gives zeros, or bytes that are no numbers, for most of them."""
    offset, mask, pattern = INDEX[case]
    place = f"{STARS}/Coordinates"
    replace(path, place, stored(path, place), chunks=(50, 3), compression="gzip", shuffle=True)
    with h5py.File(path) as file:
        chunk = file[place].id.get_chunk_info(1)
    entry = struct.pack("<IIQQQQ", chunk.size, 0, 50, 0, 0, chunk.byte_offset)
    content = bytearray(path.read_bytes())
    assert content.count(entry) == 1
    content[content.index(entry) + offset] ^= mask
    path.write_bytes(content)
    refused(path, pattern)


def test_datasets_that_share_their_bytes(path):
    """The address of one contiguous dataset becomes that of another."""
    with h5py.File(path) as file:
        one, two = (file[f"{STARS}/{name}"].id.get_offset() for name in ("Masses", "GFM_Metallicity"))
    content = path.read_bytes()
    assert content.count(struct.pack("<Q", one)) == 1
    path.write_bytes(content.replace(struct.pack("<Q", one), struct.pack("<Q", two)))
    refused(path, "claims the same bytes of the file as /PartType4/")


def test_numbers_of_no_known_format(path):
    """One bit of the exponent's bias in the type of the masses."""
    replace(path, f"{STARS}/Masses", stored(path, f"{STARS}/Masses").astype("f8"))
    bias = struct.pack("<I", 1023)
    with h5py.File(path) as file:
        start = h5py.h5o.get_info(file[f"{STARS}/Masses"].id).addr
    content = bytearray(path.read_bytes())
    content[content.index(bias, start)] ^= 2
    path.write_bytes(content)
    refused(path, "PartType4/Masses cannot be read: its numbers are in no format of IEEE 754")


def test_unknown_compression(path):
    """The number of the filter is changed to that of Zstandard, which HDF5 does not come with."""
    place = f"{STARS}/Masses"
    replace(path, place, stored(path, place), chunks=(N_STARS,), compression="lzf")
    content = path.read_bytes()
    assert content.count(b"\x00\x7d\x08\x00") == 1
    path.write_bytes(content.replace(b"\x00\x7d\x08\x00", b"\xf0\x7e\x08\x00"))
    refused(path, r"PartType4/Masses .*compressed by filter 32496 \(lzf\).*hdf5plugin.*h5repack -f GZIP=1")


def test_numbers_of_all_kinds(path):
    expected = stars(path)
    for dtype in (">f4", ">f8", "<f8", np.longdouble):
        for name in ("Masses", "GFM_Metallicity"):
            replace(path, f"{STARS}/{name}", stored(path, f"{STARS}/{name}").astype(dtype))
        found = stars(path)
        np.testing.assert_array_equal(found["mass"], expected["mass"])
        np.testing.assert_array_equal(found["metallicity"], expected["metallicity"])
    replace(path, f"{STARS}/Masses", np.full(N_STARS, 3, dtype=np.int32))
    half = np.linspace(0, 0.04, N_STARS).astype(np.float16)
    replace(path, f"{STARS}/GFM_Metallicity", half)
    found = stars(path)
    np.testing.assert_allclose(found["mass"], 3e10 / 0.7, rtol=1e-12)
    np.testing.assert_array_equal(found["metallicity"], half.astype(float))


VALUES = {
    "text": (np.full(N_STARS, b"1.5"), r"expected numbers, got \|S3"),
    "variable text": (np.array(["1.5"] * N_STARS, dtype=h5py.string_dtype()), "expected numbers, got object"),
    "truth": (np.ones(N_STARS, dtype=bool), "expected numbers, got bool"),
    "complex": (np.ones(N_STARS, dtype=complex), "expected numbers, got complex128"),
    "compound": (np.ones(N_STARS, dtype=[("a", "f4"), ("b", "i4")]), "expected numbers, got "),
    "one number": (1.5, r"expected as many rows in every dataset, got .*Masses a single number"),
    "no rows": (np.ones(0), r"expected as many rows in every dataset, got .*Masses 0"),
    "one row less": (np.ones(N_STARS - 1), r"got .*Masses 149"),
    "two columns": (np.ones((N_STARS, 2)), r"Masses: expected shape \(N,\), got \(150, 2\)"),
    "nothing": (h5py.Empty("f4"), "expected as many rows in every dataset"),
    "too large": (np.full(N_STARS, 1e30), r"expected mass of at most 1e\+15 in magnitude, got .* at index 0"),
    "not a number": (np.full(N_STARS, np.nan), "expected finite values"),
}


@pytest.mark.parametrize("case", VALUES)
def test_what_is_no_column_of_masses(path, case):
    values, pattern = VALUES[case]
    replace(path, f"{STARS}/Masses", values)
    refused(path, pattern)


def test_velocities_faster_than_light_and_positions_far_outside_the_box(path):
    values = stored(path, f"{STARS}/Velocities")
    values[7, 2] = 4e5
    replace(path, f"{STARS}/Velocities", values)
    refused(path, r"Velocities: expected velocity of at most 299792 .* got .* at index \(7, 2\) \(1 of 450 values\)")
    write_illustris(path)
    values = stored(path, f"{STARS}/Coordinates")
    values[9, 0] = 3 * BOX["TNG"]
    replace(path, f"{STARS}/Coordinates", values)
    refused(path, r"Coordinates: expected positions in or near the box of 40000 kpc, got 120000.* at index \(9, 0\)")


def test_links_that_lead_nowhere(path):
    for link, text in (
        (h5py.SoftLink("/gone"), r"PartType4/Masses cannot be read: it is a link to /gone, which is not there"),
        (
            h5py.ExternalLink("gone.hdf5", "/a"),
            r"it is a link to /a in 'gone.hdf5', which is not there; keep the files",
        ),
        (h5py.SoftLink("/PartType4/Masses"), "PartType4/Masses cannot be read .*too many links"),
    ):
        with h5py.File(path, "r+") as file:
            del file["PartType4/Masses"]
            file["PartType4/Masses"] = link
        refused(path, text)


def test_virtual_dataset(path, tmp_path):
    expected = stars(path)["mass"]
    with h5py.File(tmp_path / "part.hdf5", "w") as file:
        file["masses"] = stored(path, f"{STARS}/Masses")
    layout = h5py.VirtualLayout((N_STARS,), "f4")
    layout[:] = h5py.VirtualSource("part.hdf5", "masses", (N_STARS,))
    with h5py.File(path, "r+") as file:
        del file["PartType4/Masses"]
        file.create_virtual_dataset("PartType4/Masses", layout)
    np.testing.assert_array_equal(stars(path)["mass"], expected)
    (tmp_path / "part.hdf5").unlink()
    refused(path, "PartType4/Masses .* virtual and its source masses in 'part.hdf5' is not there; keep all files")
    layout = h5py.VirtualLayout((N_STARS,), "f4")
    layout[:10] = h5py.VirtualSource(".", "PartType4/GFM_Metallicity", (N_STARS,))[:10]
    with h5py.File(path, "r+") as file:
        del file["PartType4/Masses"]
        file.create_virtual_dataset("PartType4/Masses", layout)
    refused(path, "has 150 numbers, but sources for 10")


HEADERS = {
    "text": ("HubbleParam", "seventy", "Header has no attribute HubbleParam that is a number"),
    "complex": ("HubbleParam", 0.7 + 0j, "Header has no attribute HubbleParam that is a number"),
    "nothing": ("HubbleParam", h5py.Empty("f8"), "Header has no attribute HubbleParam that is a number"),
    "no values": ("Omega0", np.ones(0), "Header has no attribute Omega0 that is a number"),
    "not a number": ("OmegaLambda", np.nan, "Header has no attribute OmegaLambda that is a number"),
    "no expansion": ("HubbleParam", 0.0, r"expected HubbleParam in \[0.01, 100\]"),
    "km/s/Mpc": ("HubbleParam", 1e4, r"expected HubbleParam in \[0.01, 100\]"),
    "absurd density": ("OmegaLambda", 1e200, r"OmegaLambda in \[-10, 10\]"),
    "negative scale factor": ("Time", -0.8, r"scale factor Time in \(0.01, 1\], got -0.8"),
    "zero scale factor": ("Time", 0.0, r"scale factor Time in \(0.01, 1\], got 0.0"),
    "other redshift": ("Redshift", 3.0, r"expected scale factor = 1 / \(1 \+ redshift\), got 0.8 and redshift 3.0"),
    "negative box": ("BoxSize", -1.0, "Header/BoxSize: expected the side of a periodic box, .* got -1.0"),
    "no box": ("BoxSize", np.nan, "Header/BoxSize: expected the side of a periodic box, .* got nan"),
    "slab": ("BoxSize", [35000.0, 35000.0, 0.0], "Header/BoxSize: expected .* its three sides, or 0 for none"),
    "huge box": ("BoxSize", 1e200, r"side of the periodic box: expected position of at most 1e\+07"),
    "small box": ("BoxSize", 35.0, "Coordinates: expected positions in or near the box of 40 kpc"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers(path, case):
    name, value, pattern = HEADERS[case]
    with h5py.File(path, "r+") as file:
        file["Header"].attrs[name] = value
    refused(path, pattern)


def test_headers_that_hold_a_number_in_another_way(path):
    for value in ([0.7], np.float32(0.7), "0.7", np.array([[0.7]])):
        with h5py.File(path, "r+") as file:
            file["Header"].attrs["HubbleParam"] = value
        with open_snapshot(reader_of(path=path, reader=ILLUSTRIS)) as snapshot:
            assert snapshot.epoch.h == pytest.approx(0.7, rel=1e-7)


def test_empty_groups(path):
    with h5py.File(path, "r+") as file:
        del file["PartType0"]
        file.create_group("PartType0")
    assert load(path)[0].gas is None
    with h5py.File(path, "r+") as file:
        del file["PartType4"]
        file.create_group("PartType4")
    refused(path, r"PartType4 \(stars\) is missing or empty")
    with h5py.File(path, "r+") as file:
        for name in ("Coordinates", "Velocities", "Masses"):
            file[f"PartType4/{name}"] = np.ones((0, 3))
    refused(path, "expected at least one star, got no particles")


def test_what_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file"):
        load(tmp_path / "absent.hdf5")
    (tmp_path / "loop.hdf5").symlink_to(tmp_path / "loop.hdf5")
    with pytest.raises(OSError, match=r"loop\.hdf5"):
        load(tmp_path / "loop.hdf5")
    os.mkfifo(tmp_path / "pipe.hdf5")
    for place in (tmp_path / "pipe.hdf5", "/dev/null", "/dev/zero"):
        with pytest.raises(ConfigError, match=rf"galaxy\.path: expected a file .*, got '{place}', which is a pipe"):
            load(place)


def test_files_of_other_things(tmp_path):
    for content in (b"", b"x", b"no snapshot\n" * 50, b"\x00" * 5000, b"\x89HDF\r\n\x1a\n", b"\xff" * 600):
        (tmp_path / "thing.hdf5").write_bytes(content)
        refused(tmp_path / "thing.hdf5", "is not an HDF5 file|cannot be read", reader="auto", error=OSError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(path):
    path.chmod(0)
    refused(path, "ermission", error=OSError)


MAP = """
title: Mine
source: a test
stars:
  groups: PartType4
  fields:
    position: {dataset: Coordinates, unit: kpc}
    mass: {dataset: Masses, unit: 1e10 Msun}
recognise: [{has: [PartType4/Coordinates]}]
"""

TYPOS = {
    "unknown key": ("unit: kpc", "unti: kpc", r"stars.fields.position.unti'; did you mean 'unit'"),
    "unknown section": ("stars:", "star:", r"unknown key 'star'; did you mean 'stars'"),
    "unknown quantity": ("position:", "positoin:", r"unknown quantity 'positoin'; did you mean 'position'"),
    "no unit": ("kpc", "parsek", r"stars.fields.position.unit: expected a unit that astropy knows.*got 'parsek'"),
    "other unit": ("kpc", "km / s", r"position: expected a unit of kpc, got 'km / s'"),
    "no dataset": ("dataset: Coordinates, ", "", "stars.fields.position: expected either dataset or stack"),
    "number": ("unit: kpc", "unit: kpc, a: one", "stars.fields.position.a: expected a finite number, got 'one'"),
    "regular expression": (
        "has: [PartType4/Coordinates]",
        "matches: {Header@Code: '('}",
        r"expected a regular expression",
    ),
    "nothing to recognise": ("has:", "lacks:", "expected at least one entry of has or matches"),
    "no yaml": ("title: Mine", "title: [Mine", "expected YAML"),
    "missing": ("title: Mine", "", "title: expected a value, got none"),
}


@pytest.mark.parametrize("case", TYPOS)
def test_field_maps_with_a_typo(tmp_path, case):
    good, bad, pattern = TYPOS[case]
    assert good in MAP
    file = tmp_path / "mine.yaml"
    file.write_text(MAP.replace(good, bad, 1))
    with pytest.raises(ConfigError, match=pattern) as caught:
        load_field_map(str(file))
    assert str(file) in str(caught.value)
    file.write_text(MAP)
    assert load_field_map(str(file)).title == "Mine"

"""Gadget's binary snapshots, written here byte by byte, against the numbers that were written."""

import struct
import time
import tracemalloc

import numpy as np
import pytest
from snapshot_reading import open_container, reader_of

from rubix_like import ConfigError
from rubix_like.readers.containers.gadget_binary import open_gadget

A, H = 0.5, 0.7
COUNTS = (6, 4, 0, 0, 5, 1)
MASS_TABLE = (0.0, 0.25, 0.0, 0.0, 0.0, 0.0)
GAS_BLOCKS = (("U   ", 6), ("RHO ", 6), ("NE  ", 6), ("NH  ", 6), ("HSML", 6), ("SFR ", 6))


def header(order="<", counts=COUNTS, masses=MASS_TABLE, flags=(1, 1, 1, 1), time=A, omega=0.3, h=H):
    """The 256 bytes: `flags` are of star formation, cooling, ages and metals."""
    sfr, cooling, age, metals = flags
    numbers = (*masses, time, 1 / time - 1 if time else 0, sfr, 1, *counts, cooling, 1, 50000.0)
    cosmology = (omega, 0.7 if omega else 0.0, h)
    text = struct.pack(order + "6I6d2d2i6I2i4d2i6I", *counts, *numbers, *cosmology, age, metals, *[0] * 6)
    return text.ljust(256, b"\0")


def record(data, order="<"):
    marker = struct.pack(order + "I", len(data))
    return marker + data + marker


def labelled(label, data, order="<"):
    return record(label.encode().ljust(4) + struct.pack(order + "i", len(data) + 8), order) + record(data, order)


def make_blocks(seed=3):
    rng = np.random.default_rng(seed)
    n = sum(COUNTS)
    blocks = {
        "POS ": rng.uniform(1000, 1040, (n, 3)),
        "VEL ": rng.normal(0, 100, (n, 3)),
        "ID  ": np.arange(n, dtype=np.uint64) + np.uint64(2**63 + 5),
        "MASS": rng.uniform(1e-4, 2e-4, n - COUNTS[1]),
    }
    blocks |= {label: rng.uniform(0.1, 0.9, size) for label, size in GAS_BLOCKS}
    return blocks | {"AGE ": rng.uniform(0.1, A, COUNTS[4]), "Z   ": rng.uniform(0, 0.03, COUNTS[0] + COUNTS[4])}


def write(path, blocks, form=2, order="<", width=4, id_width=8, head=None):
    """Write a snapshot and return what its numbers are after rounding to the width."""
    stored = {
        label: values.astype(f"{order}u{id_width}" if label == "ID  " else f"{order}f{width}")
        for label, values in blocks.items()
    }
    first = {"HEAD": head or header(order)} | {label: values.tobytes() for label, values in stored.items()}
    put = labelled if form == 2 else lambda label, data, order: record(data, order)
    path.write_bytes(b"".join(put(label, data, order) for label, data in first.items()))
    return {label.strip(): values.astype("f8") for label, values in stored.items() if label != "ID  "}


@pytest.mark.parametrize("form", [1, 2])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("width", [4, 8])
def test_every_block_of_every_kind_of_file(tmp_path, form, order, width):
    path = tmp_path / "snapshot_000"
    blocks = make_blocks()
    if width == 4:
        blocks["ID  "] = np.arange(sum(COUNTS)) + 2**31 + 5
    raw = write(path, blocks, form, order, width, id_width=width)
    with open_container(path) as (container, kind):
        assert kind == "gadget-binary"
        assert container.groups() == ("Header", "PartType0", "PartType1", "PartType4", "PartType5")
        assert float(container.attribute("Header", "HubbleParam")) == H
        assert container.attribute("Header", "NumPart_ThisFile").tolist() == list(COUNTS)
        read = container.read
        np.testing.assert_array_equal(read("PartType4", "Coordinates", 0, 5), raw["POS"][10:15])
        np.testing.assert_array_equal(read("PartType4", "Coordinates", 2, 4), raw["POS"][12:14])
        np.testing.assert_array_equal(read("PartType5", "Velocities", 0, 9), raw["VEL"][15:])
        np.testing.assert_array_equal(read("PartType4", "Masses", 0, 5), raw["MASS"][6:11])
        np.testing.assert_array_equal(read("PartType5", "Masses", 0, 1), raw["MASS"][11:])
        np.testing.assert_array_equal(read("PartType0", "StarFormationRate", 1, 6), raw["SFR"][1:])
        np.testing.assert_array_equal(read("PartType4", "StellarFormationTime", 0, 5), raw["AGE"])
        np.testing.assert_array_equal(read("PartType0", "Metallicity", 0, 6), raw["Z"][:6])
        np.testing.assert_array_equal(read("PartType4", "Metallicity", 0, 5), raw["Z"][6:])
        ids = read("PartType0", "ParticleIDs", 0, 6)
        assert ids.dtype.kind == "u"
        assert ids.tolist() == [int(value) for value in blocks["ID  "][:6]]
        assert "Masses" not in container.datasets("PartType1")


def test_a_cosmological_snapshot_in_our_units(tmp_path):
    raw = write(tmp_path / "snap", make_blocks(), width=8)
    galaxy, info = reader_of(path=tmp_path / "snap", center=(1020, 1020, 1020)).load()
    assert info.reader == "gadget"
    assert info.redshift == pytest.approx(1 / A - 1)
    np.testing.assert_allclose(galaxy.stars.position, (raw["POS"][10:15] - 1020) * A / H, rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.mass, raw["MASS"][6:11] * 1e10 / H, rtol=1e-12)
    np.testing.assert_allclose(galaxy.gas.density, raw["RHO"] * 1e10 / H / (A / H) ** 3, rtol=1e-12)
    np.testing.assert_allclose(galaxy.gas.smoothing_length, raw["HSML"] * A / H, rtol=1e-12)
    velocity = np.asarray(galaxy.stars.velocity) + info.bulk_velocity
    np.testing.assert_allclose(velocity, raw["VEL"][10:15] * np.sqrt(A), rtol=1e-12)
    np.testing.assert_array_equal(galaxy.stars.metallicity, raw["Z"][6:])


def test_masses_of_the_header_and_metals_by_element(tmp_path):
    blocks = make_blocks()
    counts, masses = (0, 0, 3, 0, 2, 0), (0, 0, 0.5, 0, 0, 0)
    n = 5
    few = {"POS ": blocks["POS "][:n], "VEL ": blocks["VEL "][:n], "ID  ": np.arange(n), "MASS": np.array([0.1, 0.2])}
    few |= {"AGE ": np.array([0.1, 0.2]), "Z   ": np.arange(22.0).reshape(2, 11)}
    write(tmp_path / "snap", few, width=8, head=header(counts=counts, masses=masses, omega=0.0, h=1.0))
    with open_gadget(tmp_path / "snap") as container:
        assert container.shape("PartType4", "Metallicity") == (2, 11)
        np.testing.assert_array_equal(container.read("PartType4", "Metallicity", 1, 2), few["Z   "][1:])
        np.testing.assert_array_equal(container.read("PartType4", "Masses", 0, 2), [0.1, 0.2])
        assert "Masses" not in container.datasets("PartType2")


def test_disc_and_bulge_of_an_isolated_galaxy(tmp_path):
    rng = np.random.default_rng(2)
    head = header(counts=(0, 5, 7, 3, 0, 0), masses=(0, 2, 0.5, 0, 0, 0), flags=(0,) * 4, time=0.0, omega=0.0, h=1.0)
    blocks = {"POS ": rng.normal(size=(15, 3)), "VEL ": rng.normal(size=(15, 3)), "ID  ": np.arange(15)}
    raw = write(tmp_path / "snap", blocks | {"MASS": np.array([0.1, 0.2, 0.3])}, form=1, width=8, head=head)
    galaxy, info = reader_of(path=tmp_path / "snap", center=(0, 0, 0), ages="recipe").load()
    assert info.redshift is None
    np.testing.assert_allclose(galaxy.stars.position, raw["POS"][5:], rtol=1e-12)
    np.testing.assert_allclose(galaxy.stars.mass, [5e9] * 7 + [1e9, 2e9, 3e9], rtol=1e-12)


def test_only_the_rows_asked_for_are_read(tmp_path):
    n = 200_000
    head = header(counts=(0, 0, n, 0, 0, 0), flags=(0,) * 4, omega=0.0, h=1.0)
    blocks = {"POS ": np.arange(3.0 * n).reshape(n, 3), "VEL ": np.zeros((n, 3)), "ID  ": np.arange(n)}
    write(tmp_path / "snap", blocks | {"MASS": np.ones(n)}, width=8, head=head)
    tracemalloc.start()
    with open_gadget(tmp_path / "snap") as container:
        rows = container.read("PartType2", "Coordinates", n - 10, n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(rows.reshape(-1), np.arange(3.0 * n)[-30:])
    assert peak < 100_000


def damaged(path, change):
    content = bytearray(path.read_bytes())
    content = change(content) or content
    path.write_bytes(bytes(content))


def flip(position, value):
    def change(content):
        content[position] = value

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda content: content[: len(content) // 2], r"record at byte \d+: expected it within the \d+ bytes"),
        (lambda content: content[:-2], "record at byte"),
        (lambda content: content[:200], r"record at byte 0: expected it within the 200 bytes, got 256 bytes"),
        (flip(260, 7), "expected the same marker before and after it, got 256 and 263"),
        (flip(264, 7), r"record at byte 264"),
        (flip(264 + 3, 0x7F), r"record at byte 264: expected it within the \d+ bytes, got \d{10} bytes"),
        (flip(4 + 19, 0x7F), r"block POS: expected \d+ or \d+ bytes \(\d{10} particles.*got 192 bytes"),
        (flip(4 + 16, 6), r"block POS: expected 204 or 408 bytes"),
        (flip(4 + 24 + 8 * 4 + 7, 0x3F), r"block MASS"),
        (flip(4 + 24 + 7, 0xBF), r"MassTable: expected masses >= 0"),
    ],
)
def test_damaged_files_end_in_a_message(tmp_path, change, text):
    """Byte flips in markers, counts (1e9 particles) and masses of the header, and ends of the file."""
    path = tmp_path / "snap"
    write(path, make_blocks(), form=1)
    damaged(path, change)
    start = time.perf_counter()
    with pytest.raises(ValueError, match=text):
        reader_of(path=path).load()
    assert time.perf_counter() - start < 2


def test_files_of_zeros_and_without_particles(tmp_path):
    path = tmp_path / "snap"
    path.write_bytes(record(header()) + bytes(400_000))
    with pytest.raises(ValueError, match="expected at most 500 blocks"):
        reader_of(path=path).load()
    path.write_bytes(record(header(counts=(0,) * 6)))
    with pytest.raises(ValueError, match="NumPart_ThisFile: expected particles, got none"):
        reader_of(path=path).load()
    path.write_bytes(record(header()))
    with pytest.raises(ValueError, match="expected the blocks POS, VEL, ID, MASS, got no POS"):
        reader_of(path=path).load()


def test_other_fortran_records_are_not_recognised(tmp_path):
    path = tmp_path / "snap"
    path.write_bytes(record(b"HEAR" + bytes(4)) + record(header()))
    with pytest.raises(OSError, match="not an HDF5 file, nor another one that is recognised"):
        reader_of(path=path).load()


def test_format_1_names_blocks_as_far_as_their_sizes_agree(tmp_path):
    """Initial conditions have no density: what follows U has another size and stays unnamed."""
    blocks = make_blocks()
    blocks["RHO "] = blocks["RHO "][:2]
    write(tmp_path / "snap", blocks, form=1)
    with open_gadget(tmp_path / "snap") as container:
        assert set(container.datasets("PartType0")) == {
            "Coordinates",
            "InternalEnergy",
            "Masses",
            "ParticleIDs",
            "Velocities",
        }
        with pytest.raises(ValueError, match="PartType0/Density is missing; PartType0 has"):
            container.read("PartType0", "Density", 0, 1)
    write(tmp_path / "snap", blocks, form=2)
    with pytest.raises(ValueError, match=r"block RHO: expected 24 or 48 bytes \(6 particles of type 0\), got 8 bytes"):
        reader_of(path=tmp_path / "snap").load()


def test_a_simulation_of_another_kind_of_file_is_refused(tmp_path):
    write(tmp_path / "snap", make_blocks())
    with pytest.raises(ConfigError, match=r"for files of kind gadget-binary.*'eagle' for hdf5"):
        reader_of(path=tmp_path / "snap", reader="eagle").load()
    with pytest.raises(ConfigError, match="to hold tables, got a file of kind gadget-binary"):
        reader_of(path=tmp_path / "snap", reader="table").load()


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("SimSpin_example_Gadget", (1000, 1500)),
        pytest.param("SimSpin_S0_vignette.gadget", (50000, 75000), marks=pytest.mark.slow),
    ],
)
def test_real_snapshots(real_data, name, counts):
    path = real_data / "galaxies" / name
    n = sum(counts)
    position = np.fromfile(path, "<f4", 3 * n, offset=268).reshape(n, 3).astype(float)
    velocity = np.fromfile(path, "<f4", 3 * n, offset=276 + 12 * n).reshape(n, 3).astype(float)
    mass = np.fromfile(path, "<f4", n, offset=292 + 28 * n).astype(float)
    galaxy, info = reader_of(path=path, center=(0, 0, 0), ages="recipe").load()
    assert info.n_stars == n
    assert float(galaxy.stars.mass.sum()) == pytest.approx(mass.sum() * 1e10, rel=1e-12)
    np.testing.assert_allclose(galaxy.stars.position, position, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(galaxy.stars.velocity) + info.bulk_velocity, velocity, rtol=1e-9, atol=1e-9)
    radius = np.linalg.norm(position, axis=1)
    order = np.argsort(radius)
    half = radius[order][np.searchsorted(np.cumsum(mass[order]), mass.sum() / 2)]
    ours = np.sort(np.linalg.norm(galaxy.stars.position, axis=1))
    assert ours[np.searchsorted(np.cumsum(mass[order]), mass.sum() / 2)] == pytest.approx(half, rel=1e-9)

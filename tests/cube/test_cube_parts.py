"""Cubes in parts along wavelength: the same files as of whole cubes, whoever writes them, and never half of one."""

import gzip
import os
import re
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from building import REGISTRIES
from jax.sharding import NamedSharding, PartitionSpec
from small import fibre_spectra, full_cube, make_cube
from thread_team import run_team, values_of

from rubix_like import ConfigError, Cube
from rubix_like.config.file_layouts import check_several
from rubix_like.cube import cube_parts
from rubix_like.cube.cube_parts import Part, ShardedCube, check_complete, cut_out, noiseless, parts_of, sums_of
from rubix_like.cube.files.cube_files import writing_bytes
from rubix_like.cube.files.default import META_CARDS, default_members
from rubix_like.cube.files.fits_images import VoxelImage, plan_file, write_fits
from rubix_like.cube.files.scenes import hsim_members, scopesim_members
from rubix_like.cube.survey_files.survey_cubes import manga_members
from rubix_like.extend import Meta, in_parts, write_cube
from rubix_like.runs.run_summary import summary_lines
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

N_Y, N_X, N_WAVE = 3, 5, 13


def whole_cube(dtype=np.float32, sampling="linear", **changes) -> Cube:
    """A cube with noise, truth, values that are not finite, and the mask that a pipeline makes."""
    random = np.random.default_rng(5)
    flux, truth = random.normal(size=(2, N_Y, N_X, N_WAVE)).astype(dtype)
    flux[0, 0, 0], flux[1, 2, 3] = np.nan, np.inf
    variance = random.uniform(0, 2, flux.shape).astype(dtype)
    variance[2, 4, 5] = 0
    same = full_cube()
    fields = {
        "flux": flux,
        "truth": truth,
        "variance": variance,
        "mask": spaxel_bits() | wave_bits(),
        "medium": "vacuum",
        "lsf_fwhm": np.linspace(2.5, 2.6, N_WAVE),
        "mean_v_los": random.normal(size=(N_Y, N_X)),
        "counters": same.counters,
        "meta": same.meta,
        **changes,
    }
    return make_cube(N_Y, N_X, N_WAVE, sampling=sampling, **fields)


def spaxel_bits():
    return np.where(np.arange(N_Y * N_X).reshape(N_Y, N_X, 1) % 4 == 3, 2, 0).astype(np.int32)


def wave_bits():
    return np.where(np.arange(N_WAVE) < 2, 1, np.where(np.arange(N_WAVE) == 12, 4, 0)).astype(np.int32)[None, None]


def cut(cube: Cube, ranges, n_padded=0) -> ShardedCube:
    """The cube in parts of bins (first, last), with `n_padded` bins of nonsense after the cube's last."""

    def piece(values, first, last):
        padding = ((0, 0), (0, 0), (0, n_padded))
        return np.pad(np.asarray(values), padding, constant_values=777)[:, :, first:last]

    parts = [
        Part(first, *(piece(values, first, last) for values in (cube.flux, cube.variance, cube.truth)))
        for first, last in ranges
    ]
    return replace(in_parts(cube), parts=tuple(parts), mask_bits=(spaxel_bits(), wave_bits()))


@pytest.fixture(autouse=True)
def one_moment(monkeypatch):
    """All files are written in the same second."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def content(path: Path) -> bytes:
    """Bytes of a file, uncompressed."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if path.suffix == ".gz" else raw


def assert_same_file(one: Path, other: Path) -> None:
    if one.suffix == ".h5":
        first, second = Cube.read(one), Cube.read(other)
        assert jax.tree.structure(first) == jax.tree.structure(second)
        for left, right in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)
    else:
        assert content(one) == content(other)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of two bins of the cubes of this module."""
    monkeypatch.setattr(cube_parts, "BLOCK_BYTES", 4 * 2 * N_Y * N_X)


# ---------------------------------------------------------------- one process


@pytest.mark.parametrize(
    ("build", "dtype"),
    [
        (default_members, np.float32),
        (default_members, np.float64),
        (manga_members, np.float32),
        (hsim_members, np.float64),
        (scopesim_members, np.float32),
    ],
)
def test_bytes_are_those_of_astropy(tmp_path, build, dtype, small_blocks):
    """The images put together whole, with their checksums, and written by astropy."""
    cube = whole_cube(dtype)
    layout = build.__name__.removesuffix("_members")
    path = cube.write(tmp_path / "cube.fits", layout)
    assert len(list(in_parts(cube).blocks())) > 2
    hdus = fits.HDUList()
    for member in build(in_parts(cube)):
        if isinstance(member, VoxelImage):
            blocks = [(block.bins.start, member.values(block)) for block in in_parts(cube).blocks()]
            values = np.concatenate([values for _, values in sorted(blocks, key=lambda block: block[0])], axis=2)
            assert values.shape == cube.flux.shape
            member.hdu.data = np.ascontiguousarray(values.astype(member.dtype).transpose(2, 0, 1))
            hdus.append(member.hdu)
        else:
            hdus.append(member)
    hdus.update_extend()
    for hdu in hdus:
        hdu.add_checksum(when="FITS standard 4.0, appendix J")
    hdus.writeto(tmp_path / "astropy.fits")
    assert content(path) == content(tmp_path / "astropy.fits")
    assert path.stat().st_size == plan_file(build(in_parts(cube))).size


@pytest.mark.parametrize(
    ("layout", "name", "n_values"),
    [
        ("default", "a.fits", 1),
        ("default", "a.fits", 7),
        ("default", "a.fits", 10**6),
        ("default", "a.fits.gz", 40),
        ("default", "a.h5", 1),
        ("default", "a.h5", 40),
        ("manga", "a.fits", 7),
        ("hsim", "a.fits", 40),
    ],
)
def test_parts_and_blocks_of_any_size_make_the_same_file(tmp_path, monkeypatch, layout, name, n_values):
    """Parts out of order, of odd sizes, with padding; blocks of one row up to all."""
    cube = whole_cube(np.float64)
    expected = cube.write(tmp_path / f"whole-{name}", layout)
    monkeypatch.setattr(cube_parts, "BLOCK_BYTES", 8 * n_values)
    parts = cut(cube, [(8, 16), (0, 1), (1, 8), (16, 20)], n_padded=7)
    largest = max(np.prod(block.shape) for rows in (True, False) for block in parts.blocks(whole_rows=rows))
    assert largest <= max(n_values, N_X)
    written = write_cube(parts, tmp_path / f"parts-{name}", layout)
    assert_same_file(written, expected)
    assert sorted(os.listdir(tmp_path)) == [f"parts-{name}", f"whole-{name}"]


def test_parts_of_a_cube_on_devices(tmp_path, small_blocks):
    """Spread over 8 devices with 3 bins of padding; copied to each; spread in columns."""
    cube = whole_cube()
    devices = jax.make_mesh((2, 4), ("wave", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    expected = cube.write(tmp_path / "whole.fits")

    def placed(values, *axes):
        return jax.device_put(values, NamedSharding(devices, PartitionSpec(*axes)))

    padded = [np.pad(values, ((0, 0), (0, 0), (0, 3))) for values in (cube.flux, cube.variance, cube.truth)]
    parts = parts_of(*(placed(values, None, None, ("wave", "data")) for values in padded))
    assert [part.first for part in parts] == list(range(0, 16, 2))
    spread = replace(in_parts(cube), parts=parts)
    assert content(write_cube(spread, tmp_path / "spread.fits")) == content(expected)
    (one,) = parts_of(placed(cube.flux))
    assert one.flux.devices() == {devices.devices.flat[0]}
    halves = parts_of(placed(padded[0], None, None, "wave"))
    assert [(part.first, part.flux.shape[2]) for part in halves] == [(0, 8), (8, 8)]
    (whole,) = parts_of(placed(cube.flux[:, :4], None, "data"))
    np.testing.assert_array_equal(whole.flux, cube.flux[:, :4])


def test_what_is_cut_out_on_a_device():
    values = np.arange(60.0).reshape(3, 4, 5)
    np.testing.assert_array_equal(cut_out(jnp.asarray(values), 1, 2, 2, 2), values[1:3, :, 2:4])


@pytest.mark.parametrize(
    ("name", "ranges", "words"),
    [
        ("a.fits", [(0, 5), (6, 13)], "starts with bin 5, got one that starts with 6"),
        ("a.fits.gz", [(0, 6), (5, 13)], "starts with bin 6, got one that starts with 5"),
        ("a.h5", [(0, 12)], r"up to bin 13 \(exclusive\), got them up to 12"),
        ("a.fits", [], r"up to bin 13 \(exclusive\), got them up to 0"),
    ],
)
def test_parts_that_are_not_the_whole_cube(tmp_path, name, ranges, words):
    (tmp_path / name).write_text("old")
    with pytest.raises(ValueError, match=words):
        write_cube(cut(whole_cube(), ranges), tmp_path / name, overwrite=True)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "old"
    check_complete([(6, 13), (0, 6)], 13)


def test_parts_without_all_spaxels():
    cube = in_parts(whole_cube())
    with pytest.raises(ValueError, match=r"expected all spaxels \(3, 5\).*got flux \(2, 5, 13\)"):
        replace(cube, parts=(Part(0, np.zeros((2, 5, 13), np.float32)),))


def test_the_truth_of_parts(tmp_path):
    cube = whole_cube()
    clean = write_cube(noiseless(cut(cube, [(0, 4), (4, 13)])), tmp_path / "a.fits")
    assert content(clean) == content(write_cube(noiseless(cube), tmp_path / "b.fits"))
    again = Cube.read(clean)
    assert again.variance is None
    np.testing.assert_array_equal(again.flux, cube.truth)
    with pytest.raises(ValueError, match="keep_truth: true"):
        noiseless(replace(cube, truth=None))


def test_writing_takes_no_more_than_some_blocks():
    assert writing_bytes(1000) == 1000
    assert writing_bytes(10**12) == 8 * cube_parts.BLOCK_BYTES


# ---------------------------------------------------------------- several processes


@pytest.mark.parametrize("layout", list(REGISTRIES["layouts"].names()))
def test_a_team_writes_one_file(tmp_path, layout, small_blocks):
    """One of the four has two parts, one has none but padding; headers are as process 0 has them."""
    cube = whole_cube()
    cube = replace(cube, fibres=fibre_spectra(cube) if layout == "sami" else None)
    expected = cube.write(tmp_path / "whole.fits", layout)
    shares = [[(0, 3), (9, 13)], [(3, 4)], [(4, 9)], [(13, 16)]]

    def write(team):
        parts = cut(cube, shares[team.number], n_padded=3)
        if team.number:
            other = {key: 1 for _, key, _ in META_CARDS if key != "lsf_includes_pixel"}  # which LSFPOST goes by
            parts = replace(parts, meta=Meta(other))
        return write_cube(parts, tmp_path / "a.fits", layout, team)

    assert values_of(run_team(4, write)) == [tmp_path / "a.fits"] * 4
    assert content(tmp_path / "a.fits") == content(expected)
    assert sorted(os.listdir(tmp_path)) == ["a.fits", "whole.fits"]


def test_where_one_of_a_team_cannot_write_nothing_is_left(tmp_path):
    """Process 2 has another view of the file system; then bins are missing; then the disk is full."""
    cube, path = whole_cube(), tmp_path / "a.fits"
    path.write_text("old")

    def elsewhere(team):
        parts = cut(cube, [(4 * team.number, 4 * team.number + 4)])
        folder = tmp_path / "none" if team.number == 2 else tmp_path
        return write_cube(parts, folder / "a.fits", team=team, overwrite=True)

    def of_two(*ranges):
        """What becomes of two processes with these bins."""
        parts = [cut(cube, [bins]) for bins in ranges]
        return run_team(2, lambda team: write_cube(parts[team.number], path, team=team, overwrite=True))

    failed = run_team(4, elsewhere)
    assert isinstance(failed[2], OSError)
    assert re.match(r"cannot write .*none/a\.fits: the folder .* does not exist; create it", str(failed[2]))
    assert [str(error) for number, error in enumerate(failed) if number != 2] == [f"process 2 failed: {failed[2]}"] * 3
    incomplete = of_two((0, 5), (7, 9))
    assert ["starts with bin 5, got one that starts with 7" in str(error) for error in incomplete] == [True, True]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        full = of_two((0, 5), (5, 13))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert re.match(r"cannot write .*a\.fits: .* is full .*free some space", str(full[0]))
    assert "process 0 failed: cannot write" in str(full[1])
    assert os.listdir(tmp_path) == ["a.fits"]
    assert path.read_text() == "old"


class Watching(AbstractProcessGroup):
    """One process that notes how much room on the disk a file has after every exchange."""

    number, size = 0, 1

    def __init__(self, path):
        self.path = path
        self.taken = []

    def exchange(self, work):
        values = [work()]
        self.taken.append(512 * self.path.stat().st_blocks)
        return values


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system cannot set room on a disk apart")
def test_the_room_of_a_file_is_set_apart_before_a_voxel_is_written(tmp_path):
    shape = (40, 40, 200)
    cube = in_parts(make_cube(*shape, flux=np.ones(shape, np.float32), mask=np.zeros(shape, np.int32)))
    plan, team = plan_file(default_members(cube)), Watching(tmp_path / "a.fits")
    write_fits(plan, cube, team.path, team)
    assert team.taken[0] >= plan.size > 1e6


def test_what_a_team_cannot_write(tmp_path):
    for name in ("cube.fits.gz", "cube.h5"):
        for error in run_team(2, lambda team, name=name: write_cube(whole_cube(), tmp_path / name, team=team)):
            assert isinstance(error, ConfigError)
            assert "ends in .fits where 2 processes write one file" in str(error)
            assert "write 'cube.fits' and convert it afterwards, or run in one process" in str(error)
        check_several(tmp_path / name, 1)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- what is said of a cube


def test_sums_of_parts_are_those_of_the_whole(small_blocks):
    cube = whole_cube(np.float64)
    whole = sums_of(cube)
    good = np.asarray(cube.mask) == 0
    flux = np.where(good, np.asarray(cube.flux), 0)
    np.testing.assert_allclose(whole.light, np.sum(1.25 * flux, axis=2), rtol=1e-12)
    assert whole.brightest == flux.max()
    assert whole.is_noisy
    np.testing.assert_array_equal(whole.outside_ssp, np.arange(N_WAVE) < 2)
    np.testing.assert_array_equal(whole.spread, np.arange(N_WAVE) == 12)
    np.testing.assert_array_equal(whole.outside_aperture, spaxel_bits()[:, :, 0] == 2)
    shares = [(0, 6), (6, 7), (7, 20)]
    found = values_of(run_team(3, lambda team: sums_of(cut(cube, [shares[team.number]], n_padded=7), team)))
    for sums in found:
        np.testing.assert_allclose(sums.light, whole.light, rtol=1e-12)
        for name in ("brightest", "is_noisy", "outside_ssp", "missing", "spread", "outside_aperture"):
            np.testing.assert_array_equal(getattr(sums, name), getattr(whole, name))
    one = cut(cube, shares[:1])
    lines = summary_lines(one, "a.fits", {}, sums=found[0])
    assert lines == summary_lines(cube, "a.fits", {})
    assert summary_lines(one, "a.fits", {}) != lines


# ---------------------------------------------------------------- memory

PROGRAM = """
import resource, sys
from dataclasses import replace
import jax.numpy as jnp
import numpy as np
from rubix_like import Cube
from rubix_like.cube.cube_parts import sums_of
from rubix_like.cube.files.cube_files import writing_bytes
from rubix_like.extend import Footprint, WavelengthBins

shape = (300, 300, 300)
values = jnp.ones(shape, jnp.float32)
cube = Cube(
    flux=values, mask=np.zeros(shape, np.int32), variance=values,
    bins=WavelengthBins(5000.5, 1.0, 300, "linear", "vacuum"), footprint=Footprint(300, 300, 0.2),
    lsf_fwhm=np.full(300, 2.5),
)
small = {name: np.ones((2, 2, 300), value.dtype) for name, value in (("flux", values), ("mask", cube.mask))}
tiny = replace(cube, **small, variance=small["flux"], footprint=Footprint(2, 2, 0.2))

def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

sums_of(tiny)
tiny.write(sys.argv[1], sys.argv[2])
before = peak()
size = cube.write(sys.argv[1], sys.argv[2]).stat().st_size
sums_of(cube)
print(peak() - before, writing_bytes(size), size)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "name"), [("manga", "a.fits"), ("default", "a.h5")])
def test_writing_takes_little_memory(tmp_path, layout, name):
    """A cube of 108 MB with its variance: peak memory of a process of its own, over what it took before."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / name), layout]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    taken, bound, size = (int(word) for word in done.stdout.split())
    assert size > 300e6
    assert taken < bound < 0.45 * size

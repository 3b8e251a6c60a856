"""Cubes as Zarr stores: back bit for bit, opened by xarray, whole or not at all."""

import dataclasses
import gzip
import importlib
import json
import os
import resource
import shutil
import sys
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS
from command_line import main
from observed import FLUX_UNIT
from small import full_cube, make_cube
from small_results import manifest_of, some_simulations

import rubix_like as rl
from rubix_like import ConfigError, Cube
from rubix_like.cube.cube_parts import Part
from rubix_like.cube.files.cube_files import plane_facts
from rubix_like.extend import in_parts, write_cube
from rubix_like.inference.simulation.simulation_files import open_folder, write_shard
from rubix_like.runtime.files.outputs import check_writable, remove_stale
from rubix_like.runtime.files.writers import CUBE, written_by_us


@pytest.fixture(scope="session")
def zarr(client):
    return client("zarr")


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_everything_comes_back_as_it_was(zarr, tmp_path, dtype, compression):
    cube = full_cube(mean_v_los=jnp.full((3, 5), jnp.nan, dtype))
    flux = (cube.flux.astype(dtype) / 3).at[0, 0, 0].set(-0.0)
    cube = dataclasses.replace(cube, flux=flux, variance=cube.variance.astype(dtype), truth=flux)
    again = Cube.read(cube.write(tmp_path / "cube.zarr", compression=compression))
    one, other = jax.tree.flatten(cube), jax.tree.flatten(again)
    assert one[1] == other[1]
    for first, second in zip(one[0], other[0], strict=True):
        assert (first.dtype, type(first)) == (second.dtype, type(second))
        assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
    assert {key: type(value) for key, value in again.meta.items()} == {k: type(v) for k, v in cube.meta.items()}
    assert os.listdir(tmp_path) == ["cube.zarr"]
    assert plane_facts(tmp_path / "cube.zarr")["compression"] == compression


def test_a_bare_cube_and_one_in_parts(zarr, tmp_path):
    cube = make_cube(4, 5, 30, mask=np.broadcast_to(np.int32(0), (4, 5, 30)))
    again = Cube.read(cube.write(tmp_path / "cube.zarr"))
    assert (again.variance, again.lsf_fwhm, again.counters, again.mean_v_los) == (None, None, None, None)
    assert not np.any(again.mask)
    parts = tuple(Part(start, np.asarray(cube.flux)[:, :, start : start + 12]) for start in (12, 0, 24))
    write_cube(dataclasses.replace(in_parts(cube), parts=parts), tmp_path / "parts.zarr")
    np.testing.assert_array_equal(Cube.read(tmp_path / "parts.zarr").flux, cube.flux)


def test_it_describes_itself(zarr, tmp_path):
    cube = full_cube()
    group = zarr.open_group(cube.write(tmp_path / "cube.zarr"), mode="r")
    assert group.metadata.zarr_format == 3
    sizes = {"y": 3, "x": 5, "wave": 4, "edge": 5}
    for array in group.array_values():
        assert array.shape == tuple(sizes[name] for name in array.metadata.dimension_names)
        assert array.attrs["long_name"]
    assert group["wave"].attrs["units"] == "Angstrom"
    x, y = cube.footprint.centres()
    np.testing.assert_array_equal(group["x"][:], x)
    np.testing.assert_array_equal(group["y"][:], y)
    assert group.attrs["config"] == cube.meta["config"]
    header = fits.Header.fromstring(group.attrs["header"], sep="\n")
    np.testing.assert_allclose(WCS(header).wcs_pix2world(0, 0, 2, 0)[2] * 1e10, cube.wavelength[2], rtol=1e-13)
    assert written_by_us(tmp_path / "cube.zarr").kind == CUBE


@pytest.mark.parametrize("name", ["muse", "manga", "noiseless"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_xarray(zarr, client, mocks, tmp_path, name, compression):
    """Dimensions, coordinates, units and numbers, opened without an option; of the field's sky the WCS."""
    cube = mocks[name].cube
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read = client("xarray").open_zarr(cube.write(tmp_path / "cube.zarr", compression=compression))
    assert read.flux.dims == read.mask.dims == ("y", "x", "wave")
    assert units.Unit(read.flux.units) == FLUX_UNIT
    assert units.Unit(read.wave.units) == units.AA
    np.testing.assert_array_equal(read.flux, cube.flux)
    np.testing.assert_array_equal(read.mask, cube.mask)
    np.testing.assert_array_equal(read.wave, cube.wavelength)
    assert ("variance" in read) == (name != "noiseless")
    if name != "noiseless":
        assert units.Unit(read.variance.units) == FLUX_UNIT**2
        np.testing.assert_array_equal(read.variance, cube.variance)
    middle = float(cube.wavelength[40])
    np.testing.assert_array_equal(read.flux.sel(wave=middle, method="nearest"), np.asarray(cube.flux)[:, :, 40])
    sky = WCS(fits.Header.fromstring(read.attrs["header"], sep="\n"))
    for x, y in mocks[name].corners:
        np.testing.assert_allclose(sky.wcs_pix2world(x, y, 0, 0)[:2], mocks[name].sky(x, y), rtol=0, atol=1e-10)


def test_an_older_store_is_replaced_and_other_folders_are_not(zarr, tmp_path):
    cube, path = full_cube(), tmp_path / "cube.zarr"
    cube.write(path)
    dataclasses.replace(cube, flux=2 * cube.flux).write(path)
    np.testing.assert_array_equal(Cube.read(path).flux, 2 * cube.flux)
    check_writable(path, 1000)
    cube.write(tmp_path / "file.zarr").rename(tmp_path / "other.zarr")
    (tmp_path / "file.zarr").write_text("old")
    cube.write(tmp_path / "file.zarr", overwrite=True)
    assert Cube.read(tmp_path / "file.zarr").meta == cube.meta
    folder = tmp_path / "mine.zarr"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        check_writable(folder, 1000)
    with pytest.raises(OSError, match=r"cannot write .*mine\.zarr: .*it is a folder, but no Zarr store"):
        cube.write(folder)
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["cube.zarr", "file.zarr", "mine.zarr", "other.zarr"]


def test_a_full_disk_leaves_the_old_store_and_no_other(zarr, tmp_path):
    path = full_cube().write(tmp_path / "cube.zarr")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OSError, match=r"cannot write .*is full.*free some space"):
            make_cube(40, 40, 50, flux=np.ones((40, 40, 50)), mask=np.zeros((40, 40, 50), np.int32)).write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["cube.zarr"]
    assert Cube.read(path).shape == (3, 5, 4)


def test_stale_stores_are_removed(zarr, tmp_path):
    path = full_cube().write(tmp_path / "cube.zarr")
    stale = tmp_path / ".rubix-like-host-0123456789ab-cube.zarr"
    path.rename(stale)
    assert remove_stale([path]) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("damage", ["byte", "chunk", "array", "attribute", "other"])
def test_damaged_stores_are_refused(zarr, tmp_path, damage):
    path = full_cube().write(tmp_path / "cube.zarr")
    chunk = path / "flux/c/0/0/0"
    head = json.loads((path / "zarr.json").read_text())
    if damage == "byte":
        content = bytearray(chunk.read_bytes())
        content[9] ^= 1
        chunk.write_bytes(content)
    elif damage == "chunk":
        chunk.write_bytes(chunk.read_bytes()[:-9])
    elif damage == "array":
        (path / "wave_edges/zarr.json").write_text("{")
        head.pop("consolidated_metadata")
    else:
        key = {"attribute": "medium", "other": "format"}[damage]
        head["attributes"][key] = "something else"
    (path / "zarr.json").write_text(json.dumps(head))
    with pytest.raises(ValueError, match=r"not a complete cube of rubix_like \(.*\); expected a Zarr store"):
        Cube.read(path)


def remove(store, name):
    shutil.rmtree(store / name / "c")


def change(store, name, **changes):
    """Change what the store and the array say of it, alike."""
    for path in (store / "zarr.json", store / name / "zarr.json"):
        described = json.loads(path.read_text())
        array = described["consolidated_metadata"]["metadata"][name] if path.parent == store else described
        array |= changes
        path.write_text(json.dumps(described))


def lengthen(store, name):
    """1e15 numbers, as many chunks or one."""
    shape = json.loads((store / name / "zarr.json").read_text())["shape"]
    change(store, name, shape=[10**15, *shape[1:]])


def widen(store, name):
    chunks = json.loads((store / name / "zarr.json").read_text())["chunk_grid"]["configuration"]["chunk_shape"]
    shape = [10**15, *chunks[1:]]
    grid = {"name": "regular", "configuration": {"chunk_shape": shape}}
    change(store, name, shape=shape, chunk_grid=grid)


def contradict(store, name):
    described = json.loads((store / name / "zarr.json").read_text())
    (store / name / "zarr.json").write_text(json.dumps(described | {"shape": [1] * len(described["shape"])}))


def inflate(store, name):
    """The chunk becomes a gigabyte when it is unpacked, and has the right checksum."""
    packed = gzip.compress(bytes(1 << 20)) * 1000
    chunk = next(path for path in (store / name / "c").rglob("*") if path.is_file())
    chunk.write_bytes(packed + importlib.import_module("google_crc32c").Checksum(packed).digest()[::-1])
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip", "configuration": {"level": 5}}]
    change(store, name, codecs=[*codecs, {"name": "crc32c"}])


def cut(store, name):
    chunk = next(path for path in (store / name / "c").rglob("*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-5])


def end_nowhere(store, name):
    (store / name / "zarr.json").unlink()
    os.mkfifo(store / name / "zarr.json")


def write_cube_store(folder):
    """All of whose arrays are zeros somewhere, and a function that reads it."""
    cube = full_cube()
    cube = dataclasses.replace(cube, flux=jnp.zeros_like(cube.flux), mask=jnp.zeros_like(cube.mask))
    return cube.write(folder / "cube.zarr"), cube, lambda: Cube.read(folder / "cube.zarr")


def write_set_store(folder):
    made = some_simulations()
    made = dataclasses.replace(made, mask=np.zeros_like(made.mask), flux=np.zeros_like(made.flux))
    manifest = manifest_of(made, "zarr")
    manifest.write(folder)
    write_shard(made, manifest, folder, 0)
    return folder / "simulations_00000.zarr", made, lambda: rl.load_simulations(folder)


STORES = {"cube": write_cube_store, "set": write_set_store}
WRECKS = (remove, lengthen, widen, contradict, inflate, cut, end_nowhere)


@pytest.mark.parametrize("wreck", WRECKS)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("cube", name) for name in ("flux", "variance", "mask")),
        *(("set", name) for name in ("flux", "mask", "number")),
    ],
)
def test_stores_with_less_than_they_state_are_refused(zarr, kind, name, wreck, tmp_path):
    """Zarr itself reads zeros, or tries to make room for them."""
    store, made, read = STORES[kind](tmp_path)
    np.testing.assert_array_equal(read().flux, made.flux)
    wreck(store, name)
    begun = time.monotonic()
    with pytest.raises(ValueError, match=rf"not a complete .*{name.replace('.', '[.]')}"):
        read()
    assert time.monotonic() - begun < 5
    if kind == "set":
        manifest = manifest_of(made, "zarr")
        assert open_folder(tmp_path, manifest, 100) == [0]


@pytest.mark.parametrize(
    ("kind", "names", "kept"), [("cube", ["mask", "flux"], "wave"), ("set", ["mask", "galaxy"], "flux")]
)
def test_stores_of_older_versions_lack_chunks_of_zeros(zarr, kind, names, kept, tmp_path, caplog):
    """They do not say that all chunks are stored; a warning says which arrays lack some."""
    store, made, read = STORES[kind](tmp_path)
    head = json.loads((store / "zarr.json").read_text())
    del head["attributes"]["all_chunks_stored"]
    (store / "zarr.json").write_text(json.dumps(head))
    read()
    assert not caplog.messages
    for name in names:
        remove(store, name)
    np.testing.assert_array_equal(read().mask, made.mask)
    np.testing.assert_array_equal(read().flux, made.flux)
    assert all(name in caplog.messages[0] for name in names)
    assert "read as zeros" in caplog.messages[0]
    lengthen(store, "mask")
    with pytest.raises(ValueError, match=r"mask: its shape \(1000000000000000, .* chunks, but 0 are stored"):
        read()
    change(store, "mask", shape=list(made.mask.shape))
    remove(store, kept)
    with pytest.raises(ValueError, match=rf"{kept}: its shape \(.*\) takes 1 chunks, but 0 are stored"):
        read()


@pytest.mark.parametrize("kind", ["cube", "set"])
def test_a_pipe_in_place_of_a_chunk_is_refused(zarr, kind, tmp_path):
    """Also in a store of an older version, which may lack chunks; reading the pipe would never end."""
    store, _, read = STORES[kind](tmp_path)
    head = json.loads((store / "zarr.json").read_text())
    del head["attributes"]["all_chunks_stored"]
    (store / "zarr.json").write_text(json.dumps(head))
    chunk = next(path for path in (store / "flux" / "c").rglob("*") if path.is_file())
    chunk.unlink()
    os.mkfifo(chunk)
    with pytest.raises(ValueError, match=r"flux/c/.*: expected a file, got a pipe"):
        read()


def test_a_run_and_the_commands(zarr, tmp_path, capsys):
    """The run says the size; inspect and plot know the store; it is data of a fit; a catalogue resumes over stores."""
    config = {
        "galaxy": {"reader": "synthetic", "n_stars": 300},
        "observation": {"redshift": 0.05},
        "instrument": {"name": "muse", "fov": "1 arcsec", "wavelength": {"start": 5000, "stop": 5100}},
        "noise": {"signal_to_noise": 20, "keep_truth": True},
        "output": {"path": str(tmp_path / "cube.zarr"), "compression": "gzip"},
    }
    cube = rl.run(config)
    again = Cube.read(tmp_path / "cube.zarr")
    np.testing.assert_array_equal(again.truth, cube.truth)
    assert os.listdir(tmp_path) == ["cube.zarr"]
    assert main(["inspect", str(tmp_path / "cube.zarr")]) == 0
    shown = capsys.readouterr().out
    assert "cube" in shown
    assert "xarray.open_zarr" in shown
    assert main(["plot", str(tmp_path / "cube.zarr")]) == 0
    assert (tmp_path / "cube_plot.png").is_file()
    data = rl.read_observed(tmp_path / "cube.zarr")
    np.testing.assert_array_equal(data.flux, np.asarray(cube.flux, np.float64))
    views = [{"name": "a", "observation.inclination": 0}, {"name": "b", "observation.inclination": 60}]
    for expected in ((2, 0), (0, 2)):
        outcome = rl.run_catalogue(config, [{"name": "disc"}], views, output=str(tmp_path / "many"))
        assert (outcome.n_done, outcome.n_skipped) == expected
    assert {row["file"] for row in outcome.rows} == {"disc_a.zarr", "disc_b.zarr"}


def test_simulations(zarr, client, tmp_path, capsys):
    """Back bit for bit, in parts, seen by xarray as one set; damage is known, and a file in the way replaced."""
    made = some_simulations()
    manifest = dataclasses.replace(manifest_of(made, "zarr"), n=14)
    manifest.write(tmp_path)
    for number in range(2):
        write_shard(dataclasses.replace(made, number=made.number + 7 * number), manifest, tmp_path, number)
        write_shard(dataclasses.replace(made, number=made.number + 7 * number), manifest, tmp_path, number)
    assert open_folder(tmp_path, manifest, 100) == []
    found = rl.load_simulations(tmp_path, 5, 9)
    np.testing.assert_array_equal(found.flux, made.flux[[5, 6, 0, 1]], strict=True)
    np.testing.assert_array_equal(found.mask, made.mask)
    np.testing.assert_array_equal(found.wavelength, made.wavelength)
    for name, values in made.parameters.items():
        np.testing.assert_array_equal(found.parameters[name], values[[5, 6, 0, 1]])
    assert found.units == made.units
    assert rl.load_simulations(tmp_path, cubes=False).flux is None
    xarray = client("xarray")
    parts = [xarray.open_zarr(path) for path in sorted(tmp_path.glob("*.zarr"))]
    seen = xarray.concat(parts, "simulation", data_vars="minimal")
    assert seen.flux.dims == ("simulation", "y", "x", "wave")
    np.testing.assert_array_equal(seen.number, np.arange(14))
    np.testing.assert_array_equal(seen.flux[7:], made.flux)
    np.testing.assert_array_equal(seen["dust.a_v"][:7], made.parameters["dust.a_v"])
    assert main(["inspect", str(tmp_path / "simulations_00001.zarr")]) == 0
    assert "7 to 13 of their set" in capsys.readouterr().out
    chunk = next(
        path
        for path in (tmp_path / "simulations_00000.zarr/flux").rglob("*")
        if path.name != "zarr.json" and path.is_file()
    )
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete file of simulations"):
        rl.load_simulations(tmp_path)
    assert open_folder(tmp_path, manifest, 100, restart=True) == [0, 1]
    assert list(tmp_path.glob("*.zarr")) == []


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    words = r"needs the package zarr: pip install 'rubix-like\[zarr\]'"
    with pytest.raises(ConfigError, match=words):
        full_cube().write(tmp_path / "cube.zarr")
    with pytest.raises(ConfigError, match=words):
        rl.run(rl.load_config("quickstart"), tmp_path / "cube.zarr")
    assert os.listdir(tmp_path) == []

"""Cubes as tables: back bit for bit, read by pandas and pyarrow, whole or not at all."""

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet
import pytest
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.wcs import WCS
from small import full_cube, make_cube

from rubix_like.cli.main import main
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import Part, in_parts
from rubix_like.cube.files import parquet_cube
from rubix_like.cube.files.cube_files import write_cube
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.writers import CUBE, written_by_us


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_everything_comes_back_as_it_was(tmp_path, dtype, compression, monkeypatch):
    """In several groups of rows."""
    monkeypatch.setattr(parquet_cube, "BLOCK_BYTES", 200)
    cube = full_cube(mean_v_los=jnp.full((3, 5), jnp.nan, dtype))
    flux = (cube.flux.astype(dtype) / 3).at[0, 0, 0].set(-0.0)
    cube = dataclasses.replace(cube, flux=flux, variance=cube.variance.astype(dtype), truth=flux)
    again = Cube.read(cube.write(tmp_path / "cube.parquet", compression=compression))
    one, other = jax.tree.flatten(cube), jax.tree.flatten(again)
    assert one[1] == other[1]
    for first, second in zip(one[0], other[0], strict=True):
        assert (first.dtype, type(first)) == (second.dtype, type(second))
        assert np.asarray(first).tobytes() == np.asarray(second).tobytes()
    assert {key: type(value) for key, value in again.meta.items()} == {k: type(v) for k, v in cube.meta.items()}
    assert [path.name for path in tmp_path.iterdir()] == ["cube.parquet"]


def test_a_bare_cube_and_one_in_parts(tmp_path):
    cube = make_cube(4, 5, 30, mask=np.broadcast_to(np.int32(0), (4, 5, 30)))
    again = Cube.read(cube.write(tmp_path / "cube.parquet"))
    assert (again.variance, again.lsf_fwhm, again.counters, again.mean_v_los) == (None, None, None, None)
    assert not np.any(again.mask)
    parts = tuple(Part(start, np.asarray(cube.flux)[:, :, start : start + 12]) for start in (12, 0, 24))
    write_cube(dataclasses.replace(in_parts(cube), parts=parts), tmp_path / "parts.parquet")
    np.testing.assert_array_equal(Cube.read(tmp_path / "parts.parquet").flux, cube.flux)


def test_pandas_and_pyarrow_read_spectra_and_places(tmp_path):
    """A row per spaxel: its spectrum, its place on the sky by astropy, units, the header; also of rows in another
    order, as other programs write them."""
    cube = full_cube()
    path = cube.write(tmp_path / "cube.parquet")
    frame = pandas.read_parquet(path)
    assert len(frame) == 15
    row = frame[(frame.x == 3) & (frame.y == 2)].iloc[0]
    np.testing.assert_array_equal(row.flux, np.asarray(cube.flux)[2, 3])
    np.testing.assert_array_equal(row.variance, np.asarray(cube.variance)[2, 3])
    np.testing.assert_array_equal(row["mask"], np.asarray(cube.mask)[2, 3])
    table = pyarrow.parquet.read_table(path)
    known = {name.decode(): json.loads(text) for name, text in table.schema.metadata.items()}
    np.testing.assert_array_equal(known["wavelength"], cube.wavelength)
    wcs = WCS(fits.Header.fromstring(known["header"], sep="\n")).celestial
    here, there = wcs.pixel_to_world(3, 2), SkyCoord(row.ra, row.dec, unit="deg")
    assert here.separation(there).arcsec < 1e-9
    offset = SkyCoord(150.0, 40.0, unit="deg").spherical_offsets_to(there)
    np.testing.assert_allclose([own.arcsec for own in offset], [-0.2, 0.2], atol=1e-6)  # East is at small x
    assert table.schema.field("flux").metadata[b"unit"] == b"1e-20 erg s-1 cm-2 Angstrom-1"
    assert table.schema.field("flux").type == pa.list_(pa.float32(), 4)
    order = np.random.default_rng(1).permutation(15)
    pyarrow.parquet.write_table(table.take(order), tmp_path / "other.parquet")
    np.testing.assert_array_equal(Cube.read(tmp_path / "other.parquet").flux, cube.flux)
    assert written_by_us(path).kind == CUBE


@pytest.mark.parametrize("damage", ["byte", "end", "row", "other"])
def test_damaged_tables_are_refused(tmp_path, damage):
    path = make_cube(4, 5, 400, flux=np.random.default_rng(1).normal(size=(4, 5, 400)).astype(np.float32)).write(
        tmp_path / "cube.parquet"
    )
    content = bytearray(path.read_bytes())
    table = pyarrow.parquet.read_table(path)
    if damage == "byte":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "end":
        path.write_bytes(content[:-100])
    elif damage == "row":
        pyarrow.parquet.write_table(table.slice(1), path)
    else:
        pyarrow.parquet.write_table(table.replace_schema_metadata({"format": '"mine"'}), path)
    with pytest.raises(ValueError, match=r"not a complete cube of rubix_like \(.*\); expected a table"):
        Cube.read(path)


def test_inspect_knows_a_cube(tmp_path, capsys):
    path = full_cube().write(tmp_path / "cube.parquet")
    assert main(["inspect", str(path)]) == 0
    assert f"spaxels = pandas.read_parquet({str(path)!r})" in capsys.readouterr().out


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs the package pyarrow: pip install 'rubix-like\[tables\]'"):
        full_cube().write(tmp_path / "cube.parquet")
    assert list(tmp_path.iterdir()) == []

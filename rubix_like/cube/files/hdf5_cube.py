"""Cubes as HDF5 files that describe themselves: every array with its unit, axes and meaning as attributes.

Arrays at the top (names and shapes as in `Cube`, dtypes kept), the run in the group `meta` (one scalar per key, the
YAML under `meta/config`), counters in the groups `counters` (stars) and `source_counters`, spectra of
fibres, if the cube was made of any, in `fibres`, correlations of spaxels with which it was read in `correlations`;
medium, sampling and the spaxels' side are attributes.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import h5py
import jax.numpy as jnp
import numpy as np

from rubix_like.config.file_layouts import UNPACKED, Packing
from rubix_like.cube.bins import Medium, Sampling, WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, check_complete
from rubix_like.cube.fibres.fibre_files import load_correlations, load_fibres, write_correlations, write_fibres
from rubix_like.cube.files.default import checked_values, run_rows
from rubix_like.cube.footprint import Footprint, header_of
from rubix_like.cube.meta import Counters, Meta, SourceCounters, flat_counters, source_counters
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5, writing_hdf5
from rubix_like.runtime.files.outputs import date_words
from rubix_like.runtime.files.writers import CREATOR, CUBE
from rubix_like.runtime.words import reason_of

ARRAYS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "flux": (("y", "x", "wave"), "1e-20 erg s-1 cm-2 Angstrom-1", "flux of a spaxel per Angstrom"),
    "mask": (
        ("y", "x", "wave"),
        "",
        "bits: 0 good, 1 outside the SSP library, 2 outside the aperture, 4 end of the detector, 8 left out of a fit",
    ),
    "wavelength": (("wave",), "Angstrom", "centres of the bins"),
    "wave_edges": (("edge",), "Angstrom", "edges of the bins"),
    "variance": (("y", "x", "wave"), "1e-40 erg2 s-2 cm-4 Angstrom-2", "variance of the flux"),
    "truth": (("y", "x", "wave"), "1e-20 erg s-1 cm-2 Angstrom-1", "flux without its noise"),
    "lsf_fwhm": (("wave",), "Angstrom", "effective FWHM of the line spread, library and instrument together"),
    "mean_v_los": (("y", "x"), "km s-1", "light-weighted line-of-sight velocity, + receding"),
}
"""Name of an array of `Cube` -> its axes, unit and meaning."""

OF_VOXELS: tuple[str, ...] = ("flux", "mask", "variance", "truth")
"""Arrays that are written block by block."""

FIBRES: str = "fibres"
"""Group of the spectra of fibres that the cube was made of."""

CORRELATIONS: str = "correlations"
"""Group of the correlations of spaxels, of a cube that was read with some."""

_CHUNK_VALUES = 1 << 18
"""Numbers in a chunk of an array, unless a spectrum has more."""


def write_hdf5(cube: ShardedCube, path: Path, packing: Packing = UNPACKED) -> None:
    """Write `cube` to a new HDF5 file at `path`; raises OSError where it cannot be written."""
    check_complete(cube.ranges, cube.shape[2])
    with writing_hdf5(path) as file:
        write_group(cube, file, packing)
        if cube.fibres is not None:
            write_fibres(cube.fibres, file.create_group(FIBRES))
        if cube.correlations is not None:
            write_correlations(cube.correlations, file.create_group(CORRELATIONS))


def read_hdf5(path: Path) -> Cube:
    """The cube of a file made by `write_hdf5`, every array in the dtype in which it was written
    (float64 needs 64-bit numbers switched on in JAX, else float32).

    Raises ValueError if the file is not a complete cube of this package.
    """
    try:
        with opened_hdf5(path) as file:
            if file.attrs.get("format") != CUBE:
                raise ValueError(f"its attribute 'format' is {file.attrs.get('format')!r}, not {CUBE!r}")
            cube = read_group(file)
            return dataclasses.replace(
                cube,
                fibres=load_fibres(file[FIBRES]) if FIBRES in file else None,
                correlations=load_correlations(file[CORRELATIONS], cube.shape[:2]) if CORRELATIONS in file else None,
            )
    except UNREADABLE as error:
        raise ValueError(
            f"{path} is not a complete cube of rubix_like ({reason_of(error)}); expected an HDF5 file written by "
            f"Cube.write; open others with h5py"
        ) from error


def cube_attributes(cube: ShardedCube) -> dict[str, Any]:
    """The attributes of a file: what it is, and what holds for the whole cube."""
    return {
        "format": CUBE,
        "creator": CREATOR,
        "date": date_words(),
        "configuration": str(cube.meta.get("configuration") or ""),
        "pixel_scale": cube.pixel_scale,
        "pixel_scale_unit": "arcsec",
        "medium": cube.bins.medium,
        "sampling": cube.bins.sampling,
        **({"context": cube.meta["context"]} if "context" in cube.meta else {}),
        "description": "mock observation of a simulated galaxy; where the field is not turned (meta/field_angle) "
        "row y = 0 is South, column x = 0 is East",
    }


def flat_attributes(cube: ShardedCube) -> dict[str, Any]:
    """All that is known of a cube beside its arrays, for files without groups: `cube_attributes`, the YAML of the run,
    FITS cards of the world coordinates, and `cube.meta` and counters as rows of the CONFIG table."""
    cards = header_of(cube.wcs_cards).tostring(sep="\n", endcard=False, padding=False)
    rows = [list(row) for row in run_rows(cube, cube.source_counters)]
    return {**cube_attributes(cube), "config": str(cube.meta.get("config", "")), "header": cards, "rows": rows}


Run = tuple[Meta, Counters | None, dict[str, SourceCounters]]
"""The description of a run, its stars' counters, and those of other sources."""


def cube_of(arrays: Mapping[str, Any], attributes: Mapping[str, Any], run: Run) -> Cube:
    """The cube of arrays as in `ARRAYS` and of `cube_attributes`; raises ValueError for values that cannot be."""
    words: dict[str, Any] = {name: str(attributes[name]) for name in ("sampling", "medium")}
    for name, allowed in (("sampling", get_args(Sampling)), ("medium", get_args(Medium))):
        if words[name] not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got '{words[name]}'")
    on_devices: dict[str, Any] = {
        name: jnp.asarray(arrays[name]) for name in (*OF_VOXELS, "mean_v_los") if name in arrays
    }
    cube = Cube(
        **on_devices,
        bins=WavelengthBins.through(arrays["wavelength"], arrays["wave_edges"], **words),
        footprint=Footprint.of(arrays["flux"].shape, float(attributes["pixel_scale"])),
        lsf_fwhm=arrays.get("lsf_fwhm"),
        meta=run[0],
        counters=run[1],
        source_counters=run[2],
    )
    return checked_values(cube)


def write_group(cube: ShardedCube, file: Any, packing: Packing = UNPACKED) -> None:
    """Write a cube into an empty group of an open file, or into the file itself."""
    file.attrs.update(cube_attributes(cube))
    voxels = voxel_dtypes(cube)
    others = {"wavelength": cube.bins.wavelength, "wave_edges": cube.bins.edges}
    others |= {"lsf_fwhm": cube.lsf_fwhm, "mean_v_los": cube.mean_v_los}
    for name, description in ARRAYS.items():
        if name in voxels:
            stored = file.create_dataset(name, shape=cube.shape, dtype=voxels[name], **_stored(cube.shape, packing))
            _describe(stored, *description)
        elif others.get(name) is not None:
            values = np.asarray(others[name])
            _describe(file.create_dataset(name, data=values, **_stored(values.shape)), *description)
    for block in cube.blocks(whole_rows=True):
        for name in voxels:
            file[name][block.rows, :, block.bins] = getattr(block, name)
    meta = file.create_group("meta", track_order=True)
    for key, value in cube.meta.items():
        meta[key] = h5py.Empty("f") if value is None else value
    if cube.counters is not None:
        counters = file.create_group("counters")
        for name, value in vars(cube.counters).items():
            counters[name] = np.asarray(value)
    for name, value in flat_counters(cube.source_counters).items():
        file[f"source_counters/{name}"] = np.asarray(value)


def _stored(shape: tuple[int, ...], packing: Packing = UNPACKED) -> dict[str, Any]:
    """Options of h5py for an array: each chunk has a checksum (fletcher32) by which HDF5 knows a damaged one on
    reading."""
    packed = {} if packing.is_none else {"compression": packing.kind, "shuffle": True}
    return {"chunks": chunks_of(shape), "fletcher32": True, **packed}


def chunks_of(shape: tuple[int, ...], n_values: int = _CHUNK_VALUES) -> tuple[int, ...]:
    """The sizes of an array's chunks, which hold whole spectra, of at most `n_values` numbers unless one has more."""
    sizes, room = list(shape), n_values
    for axis in range(len(shape) - 2, -1, -1):
        room = max(room // sizes[axis + 1], 1)
        n_chunks = -(-shape[axis] // min(room, shape[axis]))
        sizes[axis] = -(-shape[axis] // n_chunks)  # even, for the last one takes as much room as the others
    return tuple(sizes)


def voxel_dtypes(cube: ShardedCube) -> dict[str, np.dtype]:
    """The arrays of voxels that the cube has, and what they are made of."""
    first = next(cube.blocks())
    return {name: values.dtype for name in OF_VOXELS if (values := getattr(first, name)) is not None}


def _describe(dataset: Any, axes: tuple[str, ...], unit: str, meaning: str) -> None:
    dataset.attrs.update({"unit": unit, "axes": " ".join(axes), "description": meaning})
    for axis, label in enumerate(axes):
        dataset.dims[axis].label = label


def read_group(file: Any) -> Cube:
    """The cube in a group of an open file."""
    meta = {}
    for key, stored in file["meta"].items():
        value = stored[()]
        if isinstance(value, h5py.Empty):
            meta[key] = None
        else:
            meta[key] = value.decode() if isinstance(value, bytes) else value.item()
    counters = {name: value[()] for name, value in file["counters"].items()} if "counters" in file else None
    others = source_counters(_numbers(file.get("source_counters", {})))
    run = Meta(meta), None if counters is None else Counters(**counters), others
    return cube_of({name: file[name][()] for name in ARRAYS if name in file}, file.attrs, run)


def _numbers(group: Any, path: str = "") -> dict[str, Any]:
    """The numbers in a group and the groups within it, also behind links, by their paths."""
    found: dict[str, Any] = {}
    for name, stored in group.items():
        place = f"{path}{name}"
        found |= _numbers(stored, f"{place}/") if isinstance(stored, h5py.Group) else {place: stored[()]}
    return found

"""What HDF5 hands out without complaint though it is not there: rows never written, lost chunks, absent sources."""

import importlib
import itertools
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5t, h5z  # pyright: ignore[reportAttributeAccessIssue]
from jaxtyping import Int
from numpy import ndarray

from rubix_like.runtime.files.damaged_files import DAMAGED
from rubix_like.runtime.files.hdf5_links import StorageError, sources_of, walk_sources

LARGEST_EXPANSION: int = 1100
"""Bytes that one compressed byte can stand for: deflate reaches 1032."""

SMALL_CHUNK: int = 1 << 26
"""Bytes of a chunk that are held without asking how they were packed."""

_BEYOND = 1 << 62

_OWN_FORMAT = {h5z.FILTER_NBIT, h5z.FILTER_SCALEOFFSET}

_NEVER_LEFT_OUT = (h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32)

Extents = Int[ndarray, "_ 2"]
"""First byte in the file and number of bytes of each stretch of a dataset's data."""


def check_stored(dataset: h5py.Dataset, path: Path) -> Extents:
    """Where the data of `dataset` lie, checked to be complete and within the file at `path`.

    HDF5 gives fill values for chunks that its index does not have, for contiguous data that were never written and
    for absent sources of a virtual dataset, and sizes beyond the file only fail when memory has been taken. Raises
    StorageError for any of them, and for a compression that this HDF5 cannot undo.
    """
    filters = _check_filters(dataset)
    check_type(dataset.id.get_type(), filters)
    if dataset.size in (0, None):
        return _no_extents()
    if dataset.is_virtual:
        _check_sources(dataset, path)
        return _no_extents()
    extents = _contiguous(dataset) if dataset.chunks is None else _chunked(dataset, filters)
    size = path.stat().st_size
    ends = extents.sum(axis=1)
    if extents.size and (ends.max() > size or extents.min() < 0):
        raise StorageError(f"it claims bytes {ends.max()} of a file of {size}; {DAMAGED}")
    return extents


def check_type(stored: h5t.TypeID, filters: tuple[int, ...] = ()) -> None:
    """Raise StorageError for a number of a format of its own, which only the N-bit and similar filters make on purpose.

    HDF5 converts any layout of sign, exponent and mantissa, so one damaged byte of the type changes every number.
    """
    if isinstance(stored, h5t.TypeCompoundID):
        for i in range(stored.get_nmembers()):
            check_type(stored.get_member_type(i), filters)
    elif isinstance(stored, h5t.TypeArrayID):
        check_type(stored.get_super(), filters)
    elif isinstance(stored, h5t.TypeFloatID | h5t.TypeIntegerID) and not _OWN_FORMAT & set(filters):
        _check_number(stored)


def _check_number(stored: h5t.TypeFloatID | h5t.TypeIntegerID) -> None:
    text = f"({stored.get_precision()} bits in {stored.get_size()} bytes)"
    if isinstance(stored, h5t.TypeFloatID):
        if not any(stored.equal(known) for known in _floats()):
            raise StorageError(f"its numbers are in no format of IEEE 754 {text}; {DAMAGED}")
    elif stored.get_precision() != 8 * stored.get_size() or stored.get_offset() != 0:
        raise StorageError(f"its integers do not fill their bytes {text}; {DAMAGED}")


def _floats() -> tuple[h5t.TypeFloatID, ...]:
    small = (h5t.IEEE_F16LE, h5t.IEEE_F16BE, h5t.IEEE_F32LE, h5t.IEEE_F32BE)
    return (*small, h5t.IEEE_F64LE, h5t.IEEE_F64BE, h5t.LDOUBLE_LE, h5t.LDOUBLE_BE, h5t.NATIVE_LDOUBLE)


def share_bytes(parts: Iterable[Extents]) -> bool:
    """Whether any byte of the file belongs to two stretches."""
    every = np.concatenate([_no_extents(), *parts])
    every = every[np.argsort(every[:, 0], kind="stable")]
    return bool((every[1:, 0] < every.sum(axis=1)[:-1]).any())


def _no_extents() -> Extents:
    return np.empty((0, 2), dtype=np.int64)


def _contiguous(dataset: h5py.Dataset) -> Extents:
    layout = dataset.id.get_create_plist()
    if layout.get_external_count():
        raise StorageError(
            f"its numbers are not in it but in '{text_of(layout.get_external(0)[0])}' (external raw storage), which is "
            f"not followed; repack it (h5repack old.hdf5 new.hdf5)"
        )
    if layout.get_layout() == h5d.COMPACT:
        return _no_extents()
    expected = dataset.size * dataset.id.get_type().get_size()
    stored = dataset.id.get_storage_size()
    enough = stored >= expected if dataset.dtype.hasobject else stored == expected
    if not enough:
        raise StorageError(f"its shape {dataset.shape} takes {expected} bytes, but {stored} are stored; {DAMAGED}")
    return np.array([[dataset.id.get_offset(), stored]], dtype=np.int64)


def text_of(name: str | bytes | None) -> str:
    """A name as text; h5py gives bytes for one that is not UTF-8."""
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _chunked(dataset: h5py.Dataset, filters: tuple[int, ...]) -> Extents:
    """The chunks as HDF5 finds them when it reads: by their place in the array."""
    chunks, shape = tuple(dataset.chunks or ()), tuple(dataset.shape or ())
    unpacked = prod(chunks) * dataset.id.get_type().get_size()
    n_chunks, n_stored = prod(-(-shape[i] // chunks[i]) for i in range(len(chunks))), dataset.id.get_num_chunks()
    if n_chunks > n_stored:
        raise StorageError(f"its shape {shape} takes {n_chunks} chunks, but {n_stored} are stored; {DAMAGED}")
    found: list[h5d.StoreInfo] = []
    dataset.id.chunk_iter(found.append)
    for stored in found:
        if not _is_sane(stored, filters, unpacked):
            start = tuple(stored.chunk_offset)
            raise StorageError(f"its chunk at {start} cannot be of {stored.size} bytes for {unpacked}; {DAMAGED}")
    places = {tuple(stored.chunk_offset) for stored in found}
    inside = [
        place for place in places if all(place[i] % chunks[i] == 0 and place[i] < shape[i] for i in range(len(shape)))
    ]
    if len(inside) != n_chunks:
        raise StorageError(f"the index of its chunks does not cover its shape {shape}; {DAMAGED}")
    return np.array([(min(stored.byte_offset, _BEYOND), stored.size) for stored in found], dtype=np.int64)


def check_written(dataset: h5py.Dataset, values: ndarray, start: int, field: str) -> None:
    """Raise what h5py raises where a chunk of nothing but the fill value, read from row `start` on, is not stored.

    `field` is what was read of a compound type. HDF5 may list a chunk that it then does not find by its place. Only
    such chunks are looked up here, as that reads their bytes once more.
    """
    if dataset.chunks is None or values.dtype.kind not in "fiu" or not values.size:
        return
    fill: Any = 0
    if dataset.id.get_create_plist().fill_value_defined() != h5d.FILL_VALUE_UNDEFINED:
        fill = dataset.fillvalue[field] if field in (dataset.dtype.names or ()) else dataset.fillvalue
    chunks, stop = tuple(dataset.chunks), start + len(values)
    spans = [range(start - start % chunks[0], stop, chunks[0])]
    spans += [range(0, values.shape[i], chunks[i]) for i in range(1, len(chunks))]
    for corner in itertools.product(*spans):
        ends = [corner[i] + chunks[i] for i in range(len(corner))]
        rows = slice(max(corner[0] - start, 0), ends[0] - start)
        part = values[(rows, *(slice(corner[i], ends[i]) for i in range(1, len(corner))))]
        if (part == fill).all():
            dataset.id.read_direct_chunk(corner)


def _is_sane(stored: h5d.StoreInfo, filters: tuple[int, ...], unpacked: int) -> bool:
    """Whether a chunk's bytes can stand for `unpacked` ones by these filters, of which its mask leaves some out.

    HDF5 leaves out a compression that does not pay; it never leaves out the shuffling or the check sum.
    """
    left_out = [i for i in range(32) if stored.filter_mask >> i & 1]
    if any(i >= len(filters) or filters[i] in _NEVER_LEFT_OUT for i in left_out):
        return False
    if left_out or not filters:
        return stored.size >= unpacked
    return unpacked <= SMALL_CHUNK or stored.size * LARGEST_EXPANSION >= unpacked


def _check_filters(dataset: h5py.Dataset) -> tuple[int, ...]:
    """The numbers of the filters; raises StorageError for one that neither HDF5 nor an installed hdf5plugin has."""
    layout = dataset.id.get_create_plist()
    filters = [layout.get_filter(i) for i in range(layout.get_nfilters())]
    codes = tuple(code for code, *_ in filters)
    remedy = "" if all(map(h5z.filter_avail, codes)) else _find_plugin()
    for code, _, _, name in filters:
        if not h5z.filter_avail(code):
            raise StorageError(
                f"it is compressed by filter {code} ({name.decode('utf-8', 'replace') or 'no name'}), which HDF5 does "
                f"not have here; {remedy}, or repack the file where it is known (h5repack -f GZIP=1 old.hdf5 new.hdf5)"
            )
    return codes


def _find_plugin() -> str:
    """Import hdf5plugin, which registers its filters; what else to do where that does not help."""
    try:
        importlib.import_module("hdf5plugin")
    except ImportError:
        return "install hdf5plugin (pip install hdf5plugin)"
    return "hdf5plugin does not have it either: set HDF5_PLUGIN_PATH to the filter's folder"


def _check_sources(dataset: h5py.Dataset, path: Path) -> None:
    """Raise StorageError where a virtual dataset has rows without a source, or a source is absent or not whole."""
    walk_sources(dataset, path)
    for source in sources_of(dataset, path):
        if not source.path.is_file():
            raise _absent(source.words)
        with h5py.File(source.path, "r") as file:
            if source.name not in file:
                raise _absent(source.words)
            found = file[source.name]
            if isinstance(found, h5py.Dataset):
                check_stored(found, source.path)
    mapped = sum(source.vspace.get_select_npoints() for source in dataset.virtual_sources())
    if mapped < (dataset.size or 0):
        raise StorageError(f"it is virtual and has {dataset.size} numbers, but sources for {mapped}; {DAMAGED}")


def _absent(words: str) -> StorageError:
    return StorageError(
        f"it is virtual and its source {words} is not there; keep all files of the snapshot in one folder"
    )

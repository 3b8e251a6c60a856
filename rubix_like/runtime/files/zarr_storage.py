"""Checks of Zarr stores, whose lost chunks Zarr reads as zeros without complaint."""

import json
import logging
import math
import zlib
from collections.abc import Collection, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from rubix_like.runtime.files.damaged_files import DAMAGED
from rubix_like.runtime.files.outputs import FOLDER_HEAD
from rubix_like.runtime.memory import available_memory

ALL_STORED: str = "all_chunks_stored"
"""Attribute of a store whose chunks are all written, those of nothing but zeros among them."""

_CHECKSUM_BYTES = 4
_INDEX_BYTES = 16
"""Bytes of a checksum (CRC32C), and those by which a shard says where one of its chunks lies."""

_GZIP = 31
"""zlib's window bits for a stream of gzip."""

_LOG = logging.getLogger("rubix_like")

Described = Mapping[str, Any]
"""A group or an array as its `zarr.json` describes it (Zarr format 3)."""


def check_store(path: Path, complete: Collection[str]) -> None:
    """Raise ValueError unless a store of ours holds all of the arrays that it describes, in files of the right sizes.

    Nothing is read but descriptions and, where they are packed, chunks, which are unpacked to no more than their size.
    Versions that did not write `ALL_STORED` left out chunks of zeros: such a store may lack chunks, said in a warning,
    but of the arrays that are `complete` in every version.
    """
    strange = next((file for file in path.rglob("*") if not (file.is_file() or file.is_dir())), None)
    if strange is not None:  # reading a pipe may never end
        raise ValueError(
            f"{strange.relative_to(path)}: expected a file, got a pipe, a device or a lost link; {DAMAGED}"
        )
    head = _description(path)
    folders = {folder.name for folder in path.iterdir() if folder.is_dir()}
    lacking: list[str] = []
    for name, array in head["consolidated_metadata"]["metadata"].items():
        if name not in folders or _description(path / name) != array:
            raise ValueError(f"{name}: the array is not there as the store describes it; {DAMAGED}")
        is_whole = head["attributes"].get(ALL_STORED) is True or name in complete
        if not _check_array(path / name, array, is_whole=is_whole):
            lacking.append(name)
    if lacking:
        _LOG.warning(
            "%s: chunks of %s are not stored and read as zeros, which the version that wrote it left out; if the file "
            "may be incomplete, copy it again",
            path,
            ", ".join(lacking),
        )


def _description(folder: Path) -> dict[str, Any]:
    path = folder / FOLDER_HEAD
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in {folder.name}; {DAMAGED}")
    return json.loads(path.read_bytes())


def _check_array(folder: Path, array: Described, *, is_whole: bool) -> bool:
    """Whether all chunks are stored. Raises ValueError where they must be and are not, and for other chunks than those
    of its shape, for files of another size than their numbers, and for zeros that do not fit into memory."""
    shape, chunks = array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"]
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    stored = [path for path in (folder / "c").rglob("*") if path.is_file() and path.name.isdecimal()]
    places = [[int(part) for part in path.relative_to(folder / "c").parts] for path in stored]
    if any(len(place) != len(grid) or any(np.greater_equal(place, grid)) for place in places):
        raise ValueError(f"{folder.name}: there are chunks beyond its shape {tuple(shape)}; {DAMAGED}")
    memory = available_memory()
    room = math.inf if is_whole or memory is None else memory
    if (is_whole and len(stored) != prod(grid)) or prod(shape) * np.dtype(array["data_type"]).itemsize > room:
        raise ValueError(
            f"{folder.name}: its shape {tuple(shape)} takes {prod(grid)} chunks, but {len(stored)} are stored; "
            f"{DAMAGED}"
        )
    for path in stored:
        if not _has_size(path, array, chunks, is_whole=is_whole):
            raise ValueError(
                f"{folder.name}: its chunk {path.relative_to(folder)} of {path.stat().st_size} bytes is not one of "
                f"{prod(chunks)} numbers; {DAMAGED}"
            )
    return len(stored) == prod(grid)


def _has_size(path: Path, array: Described, chunks: list[int], *, is_whole: bool) -> bool:
    """Whether a file holds as many bytes as its numbers take, packed as we pack them."""
    size, numbers = path.stat().st_size, prod(chunks) * np.dtype(array["data_type"]).itemsize
    match [codec["name"] for codec in array["codecs"]]:
        case ["bytes", "crc32c"]:
            return size == numbers + _CHECKSUM_BYTES
        case ["bytes", "gzip", "crc32c"]:
            unpacking = zlib.decompressobj(_GZIP)
            unpacked = unpacking.decompress(path.read_bytes()[:-_CHECKSUM_BYTES], numbers + 1)
            return len(unpacked) == numbers and unpacking.eof and not unpacking.unused_data
        case ["sharding_indexed"]:
            inner = array["codecs"][0]["configuration"]["chunk_shape"]
            n_inner = prod(whole // part for whole, part in zip(chunks, inner, strict=True))
            most = numbers + n_inner * (_CHECKSUM_BYTES + _INDEX_BYTES) + _CHECKSUM_BYTES
            return size == most or (not is_whole and size < most)
        case names:
            raise ValueError(f"{path}: it is packed by {', '.join(names)}, which rubix_like does not write")

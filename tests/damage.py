"""Recipes of damage to snapshots: plain data that name a source and what is done to a copy of it."""

import shutil
from pathlib import Path

import h5py
import numpy as np


def damaged_copy(recipe, folder):
    """A damaged copy of `recipe["source"]` in `folder`."""
    source = Path(recipe["source"])
    path = folder / f"damaged{source.suffix}"
    shutil.copyfile(source, path)
    path.chmod(0o600)
    if "edit" in recipe:
        with h5py.File(path, "r+") as file:
            EDITS[recipe["edit"]](file, recipe["place"])
        return path
    content = bytearray(path.read_bytes())
    for offset, mask in recipe.get("flips", ()):
        content[offset] ^= mask
    if "zero_from" in recipe:
        content[recipe["zero_from"] :] = bytes(len(content) - recipe["zero_from"])
    path.write_bytes(content[: recipe.get("length", len(content))])
    return path


def _replaced(file, place, values):
    attributes = dict(file[place].attrs)
    del file[place]
    file[place] = values
    file[place].attrs.update(attributes)


def _with(value):
    def edit(file, place):
        values = file[place][()].astype(float)
        values.reshape(-1)[values.size // 2] = value
        _replaced(file, place, values)

    return edit


def _drop(file, place):
    del file[place]


EDITS = {
    "dropped": _drop,
    "nan": _with(np.nan),
    "infinite": _with(np.inf),
    "huge": _with(1e300),
    "zero length": lambda file, place: _replaced(file, place, file[place][:0]),
    "transposed": lambda file, place: _replaced(file, place, file[place][()].T[..., None]),
    "half": lambda file, place: _replaced(file, place, file[place][: len(file[place]) // 2]),
    "one number": lambda file, place: _replaced(file, place, 1.0),
    "text": lambda file, place: _replaced(file, place, np.full(len(file[place]), b"abc")),
    "complex": lambda file, place: _replaced(file, place, file[place][()] * 1j),
}


def raw_extents(path):
    """By dataset: its stretches of raw data as (offset in the file, bytes, first row), and whether it is compressed."""
    found = {}

    def visit(name, item):
        if not isinstance(item, h5py.Dataset) or item.size == 0:
            return
        if item.chunks is None:
            found[name] = ([(item.id.get_offset(), item.id.get_storage_size())], False)
            return
        chunks = [item.id.get_chunk_info(i) for i in range(item.id.get_num_chunks())]
        found[name] = (
            [(chunk.byte_offset, chunk.size) for chunk in chunks],
            item.id.get_create_plist().get_nfilters() > 0,
        )

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def structure_offsets(path):
    """Places in the file that hold no raw data."""
    is_raw = np.zeros(path.stat().st_size, dtype=bool)
    for extents, _ in raw_extents(path).values():
        for offset, size in extents:
            is_raw[offset : offset + size] = True
    return np.flatnonzero(~is_raw)


def object_headers(path, places):
    """Where the headers of some groups and datasets are: (offset, bytes)."""
    with h5py.File(path) as file:
        found = [h5py.h5o.get_info(file[place].id) for place in places if place in file]
        return [(info.addr, 256) for info in found]

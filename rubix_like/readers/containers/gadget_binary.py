"""Gadget-1/2 binary snapshots (SnapFormat 1 and 2, either byte order), with the names of Gadget's HDF5 files."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy import ndarray

from rubix_like.readers.containers.container import ColumnContainer, Columns

MOST_BLOCKS = 500
"""Gadget writes some twenty blocks: a file with more of them than this is none of its."""

_NEEDED = ("POS", "VEL", "ID", "MASS")
_AGAIN = "the file is damaged, incomplete or no Gadget snapshot: copy it again"

N_TYPES = 6

GAS = (0,)

STARS = (4,)

ALL = tuple(range(N_TYPES))

HEADER_BYTES = 256

_HEADER = (
    ("NumPart_ThisFile", "u4", 6),
    ("MassTable", "f8", 6),
    ("Time", "f8", 1),
    ("Redshift", "f8", 1),
    ("Flag_Sfr", "i4", 1),
    ("Flag_Feedback", "i4", 1),
    ("NumPart_Total", "u4", 6),
    ("Flag_Cooling", "i4", 1),
    ("NumFilesPerSnapshot", "i4", 1),
    ("BoxSize", "f8", 1),
    ("Omega0", "f8", 1),
    ("OmegaLambda", "f8", 1),
    ("HubbleParam", "f8", 1),
    ("Flag_StellarAge", "i4", 1),
    ("Flag_Metals", "i4", 1),
    ("NumPart_Total_HighWord", "u4", 6),
    ("Flag_Entropy_ICs", "i4", 1),
    ("Flag_DoublePrecision", "i4", 1),
)


@dataclass(frozen=True)
class BlockLayout:
    """A block: the name of its dataset in Gadget's HDF5 files, its columns (0: any number), whether its numbers are
    integers, and the sets of particle types that it may hold, the usual one first."""

    dataset: str
    columns: int = 1
    integer: bool = False
    types: tuple[tuple[int, ...], ...] = (GAS,)


LAYOUTS: dict[str, BlockLayout] = {
    "POS": BlockLayout("Coordinates", 3, types=(ALL,)),
    "VEL": BlockLayout("Velocities", 3, types=(ALL,)),
    "ID": BlockLayout("ParticleIDs", integer=True, types=(ALL,)),
    "MASS": BlockLayout("Masses", types=(ALL,)),
    "U": BlockLayout("InternalEnergy"),
    "RHO": BlockLayout("Density"),
    "NE": BlockLayout("ElectronAbundance"),
    "NH": BlockLayout("NeutralHydrogenAbundance"),
    "HSML": BlockLayout("SmoothingLength"),
    "SFR": BlockLayout("StarFormationRate"),
    "AGE": BlockLayout("StellarFormationTime", types=(STARS, (4, 5))),
    "Z": BlockLayout("Metallicity", 0, types=((0, 4), GAS, STARS)),
    "Zs": BlockLayout("Zs", 0, types=((0, 4), GAS, STARS)),
    "HSMS": BlockLayout("SmoothingLength", types=(STARS,)),
    "iM": BlockLayout("InitialMass", types=(STARS,)),
    "TEMP": BlockLayout("Temperature"),
    "POT": BlockLayout("Potential", types=(ALL,)),
}
"""Blocks by their label in format 2, without its padding."""


def standard_order(header: dict[str, Any]) -> tuple[str, ...]:
    """The blocks of a file of format 1, which has no labels: the order is fixed, the header says which there are."""
    counts, masses = header["NumPart_ThisFile"], header["MassTable"]
    blocks = ["POS", "VEL", "ID", *(["MASS"] if np.any((counts > 0) & (masses == 0)) else [])]
    if counts[0]:
        blocks += ["U", "RHO", *(["NE", "NH"] if header["Flag_Cooling"] else []), "HSML"]
        blocks += ["SFR"] if header["Flag_Sfr"] else []
    blocks += ["AGE"] if header["Flag_StellarAge"] and counts[4] else []
    blocks += ["Z"] if header["Flag_Metals"] and counts[0] + counts[4] else []
    return tuple(blocks)


def fit_block(
    label: str, length: int, header: dict[str, Any], order: str, width: int
) -> tuple[dict[int, int], int, np.dtype] | None:
    """Rows by type, columns and the numbers' type of a record of `length` bytes as the block `label`; None if it is
    none.

    Bytes per number follow from the length; where several are possible, `width` (those of POS) goes first.
    """
    layout = LAYOUTS[label]
    for types in layout.types:
        counts = {kind: number for kind, number in _rows(label, types, header).items() if number}
        count = sum(counts.values())
        for size in (width, 12 - width) if count else ():
            columns = layout.columns or length // (count * size)
            if columns and length == count * size * columns:
                return counts, columns, np.dtype(f"{order}{'u' if layout.integer else 'f'}{size}")
    return None


def _rows(label: str, types: tuple[int, ...], header: dict[str, Any]) -> dict[int, int]:
    """Particles of each of these types that may be in the block; masses in the MassTable are in none."""
    kept = [kind for kind in types if label != "MASS" or header["MassTable"][kind] == 0]
    return {kind: int(header["NumPart_ThisFile"][kind]) for kind in kept}


def expected_sizes(label: str, header: dict[str, Any]) -> str:
    """The bytes that a block may have, in words."""
    layout = LAYOUTS[label]
    present = _rows(label, layout.types[0], header)
    count = sum(present.values())
    numbers = f"{count} particles of type {', '.join(map(str, present))}"
    sizes = " or ".join(str(count * size * max(layout.columns, 1)) for size in (4, 8))
    return f"{sizes} bytes ({numbers})"


@dataclass(frozen=True)
class Place:
    """The rows of one type's dataset: where they start in the file, their number, columns and the numbers' type."""

    offset: int
    rows: int
    columns: int
    dtype: np.dtype


@dataclass(frozen=True)
class _Blocks:
    """The blocks that hold one type, by dataset, in the open `file` of which messages give the name `place`."""

    file: BinaryIO
    place: str
    places: dict[str, Place]

    def shape(self, dataset: str) -> tuple[int, ...]:
        """(rows,) or (rows, columns)."""
        place = self.places[dataset]
        return (place.rows,) if place.columns == 1 else (place.rows, place.columns)

    def read(self, dataset: str, start: int, stop: int) -> ndarray:
        """The rows as stored; only they are read from the file."""
        place = self.places[dataset]
        start, stop, _ = slice(start, stop).indices(place.rows)
        row_bytes = place.columns * place.dtype.itemsize
        self.file.seek(place.offset + start * row_bytes)
        wanted = max(stop - start, 0) * row_bytes
        raw = self.file.read(wanted)
        if len(raw) != wanted:
            raise ValueError(f"{self.place}/{dataset}: expected {wanted} bytes, got {len(raw)}; {_AGAIN}")
        values = np.frombuffer(raw, dtype=place.dtype)
        return values if place.columns == 1 else values.reshape(-1, place.columns)


def byte_order(head: bytes) -> str | None:
    """ "<" or ">" where the first bytes of a file are those of a Gadget snapshot of format 1 or 2, else None."""
    for order in ("<", ">"):
        marker = _integer(head[:4], order)
        if marker == HEADER_BYTES or (marker == 8 and head[4:8] == b"HEAD"):
            return order
    return None


@contextmanager
def open_gadget(path: Path) -> Iterator[ColumnContainer]:
    """Open a binary snapshot as the groups Header and PartType0 to PartType5 of Gadget's HDF5 files.

    Raises ValueError where its records are not those of one.
    """
    with path.open("rb") as file:
        order = byte_order(file.read(8))
        if order is None:
            raise ValueError(f"{path}: expected the record markers of a Gadget snapshot (256, or 8 and HEAD); {_AGAIN}")
        records = list(_records(file, str(path), order))
        header = _read_header(file, str(path), order, records)
        places = _find_places(str(path), order, header, records[1:])
        unread = tuple(f"block {record.label}" for record in records[1:] if record.label not in {"", *LAYOUTS})
        tables: dict[str, Columns | None] = {"Header": None}
        for group, datasets in places.items():
            blocks = _Blocks(file, f"{path}: {group}", datasets)
            tables[group] = Columns(tuple(datasets), blocks.shape, blocks.read)
        yield ColumnContainer(str(path), tables, {"Header": header}, unread)


@dataclass(frozen=True)
class _Record:
    """A Fortran record: its label in format 2 (empty in format 1), the first byte of its data, and their number."""

    label: str
    offset: int
    length: int


def _records(file: BinaryIO, name: str, order: str) -> Iterator[_Record]:
    """The records with data; in format 2, which begins with a record of 8 bytes, each has its label before it."""
    size, position, label = os.fstat(file.fileno()).st_size, 0, ""
    labelled = _marker(file, order, 0) == 8
    for number in range(2 * MOST_BLOCKS):
        if position >= size:
            return
        length = _record_length(file, name, order, position, size)
        if labelled and number % 2 == 0:
            file.seek(position + 4)
            label = file.read(4).decode("ascii", "replace").strip()
        else:
            yield _Record(label, position + 4, length)
        if labelled and number % 2 == 0 and length != 8:
            raise ValueError(f"{name}: record at byte {position}: expected 8 bytes (a label), got {length}; {_AGAIN}")
        position += length + 8
    raise ValueError(f"{name}: expected at most {MOST_BLOCKS} blocks, got more; {_AGAIN}")


def _record_length(file: BinaryIO, name: str, order: str, position: int, size: int) -> int:
    """Bytes between the two markers of a record, which must agree; markers count modulo 2^32."""
    first = _marker(file, order, position)
    if first is not None:
        for length in range(first, size - position - 7, 2**32):
            if _marker(file, order, position + 4 + length) == first:
                return length
    if first is None or first > size - position - 8:
        text = "an incomplete marker" if first is None else f"{first} bytes"
        raise ValueError(
            f"{name}: record at byte {position}: expected it within the {size} bytes, got {text}; {_AGAIN}"
        )
    last = _marker(file, order, position + 4 + first)
    raise ValueError(
        f"{name}: record at byte {position}: expected the same marker before and after it, got {first} and {last}; "
        f"{_AGAIN}"
    )


def _marker(file: BinaryIO, order: str, position: int) -> int | None:
    file.seek(position)
    raw = file.read(4)
    return _integer(raw, order) if len(raw) == 4 else None


def _integer(raw: bytes, order: str) -> int:
    return int.from_bytes(raw, "little" if order == "<" else "big")


def _read_header(file: BinaryIO, name: str, order: str, records: list[_Record]) -> dict[str, Any]:
    if not records or records[0].length != HEADER_BYTES:
        came = f"{records[0].length} bytes" if records else "none"
        raise ValueError(f"{name}: Header: expected a record of {HEADER_BYTES} bytes, got {came}; {_AGAIN}")
    file.seek(records[0].offset)
    dtype = np.dtype([(entry, order + kind, (count,) if count > 1 else ()) for entry, kind, count in _HEADER])
    stored = np.frombuffer(file.read(HEADER_BYTES), dtype=dtype, count=1)[0]
    header = {entry: np.array(stored[entry]) for entry, _, _ in _HEADER}
    if not header["NumPart_ThisFile"].any():
        raise ValueError(f"{name}: Header/NumPart_ThisFile: expected particles, got none; choose another snapshot")
    masses = header["MassTable"]
    if not (np.isfinite(masses) & (masses >= 0)).all():
        raise ValueError(f"{name}: Header/MassTable: expected masses >= 0, got {masses.tolist()}; {_AGAIN}")
    return header


def _find_places(name: str, order: str, header: dict[str, Any], records: list[_Record]) -> dict[str, dict[str, Place]]:
    """Places of datasets by group: by label in format 2, else in the standard order as far as the sizes agree."""
    labelled = any(record.label for record in records)
    labels = [record.label for record in records] if labelled else standard_order(header)
    needed = _NEEDED if "MASS" in standard_order(header) else _NEEDED[:3]
    missing = [label for label in needed if label not in labels[: len(records)]]
    if missing:
        raise ValueError(f"{name}: expected the blocks {', '.join(needed)}, got no {', '.join(missing)}; {_AGAIN}")
    places: dict[str, dict[str, Place]] = {}
    width = 4
    for label, record in zip(labels, records, strict=False):
        if label not in LAYOUTS:
            continue
        found = fit_block(label, record.length, header, order, width)
        if found is None and not labelled and label not in needed:
            break
        if found is None:
            expected = expected_sizes(label, header)
            raise ValueError(f"{name}: block {label}: expected {expected}, got {record.length} bytes; {_AGAIN}")
        counts, columns, dtype = found
        width = dtype.itemsize if label == "POS" else width
        offset = record.offset
        for kind, rows in counts.items():
            place = Place(offset, rows, columns, dtype)
            places.setdefault(f"PartType{kind}", {})[LAYOUTS[label].dataset] = place
            offset += rows * columns * dtype.itemsize
    return {group: dict(sorted(places[group].items())) for group in sorted(places)}

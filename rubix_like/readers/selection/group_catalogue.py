"""Group catalogues of AREPO and Gadget-4 (SUBFIND): which rows of the snapshot a halo or subhalo has, and where it is.

Snapshots are sorted, type by type, by halo, within it by subhalo, its unbound particles last, and at the end come the
particles of no halo (tng-project.org/data/docs/specifications, "snapshot organization").
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.selection.row_ranges import SLAB_ROWS, RowRanges, row_range

_NEARBY = 1000
"""Numbers up to so far away are searched for a subhalo with particles, for messages."""


@dataclass(frozen=True)
class CatalogueEntry:
    """A halo or subhalo: first row and number of rows by particle type, and its position in the snapshot's unit.

    `whole`: the number of rows of each type that the snapshot has when the catalogue lists subhaloes only, in the order
    of the rows; None for a catalogue with haloes.
    """

    kind: Literal["halo", "subhalo"]
    number: int
    first: Int[ndarray, " type"]
    length: Int[ndarray, " type"]
    position: Float[ndarray, "3"] | None
    whole: Int[ndarray, " type"] | None = None

    @property
    def title(self) -> str:
        """The halo or subhalo in words, such as `subhalo 3`."""
        return f"{self.kind} {self.number}"

    def rows(self, group: str, n_rows: int, place: str) -> RowRanges:
        """The rows in a `group` (PartType4) of `n_rows`; raises ValueError where they do not match."""
        kind = int(group[-1]) if group[-1:].isdigit() else self.first.size
        if kind >= self.first.size:
            raise ValueError(f"{place}: the catalogue has {self.first.size} particle types, none for {group}")
        if self.whole is not None and self.whole[kind] != n_rows:
            raise ValueError(
                f"{place}: {group} has {n_rows} rows, but the subhaloes of the catalogue have {self.whole[kind]} "
                f"together; without Group/GroupLenType and Subhalo/SubhaloGrNr in the catalogue they must be the same"
            )
        first, length = int(self.first[kind]), int(self.length[kind])
        if not 0 <= first <= first + length <= n_rows:
            raise ValueError(
                f"{place}: {self.title} begins at row {first} and ends at row {first + length} of {group}, which has "
                f"{n_rows}; is the catalogue of this snapshot, and are both whole?"
            )
        return row_range(first, first + length)


def find_halo(catalogue: AbstractContainer, number: int) -> CatalogueEntry:
    """The halo `number` with all its subhaloes and unbound particles."""
    _check_number(catalogue, "halo", "Group", "GroupLenType", number)
    first = _total(catalogue, "Group", "GroupLenType", 0, number)
    length = _row(catalogue, "Group", "GroupLenType", number)
    return CatalogueEntry("halo", number, first, length, _position(catalogue, "Group", number))


def find_subhalo(catalogue: AbstractContainer, number: int) -> CatalogueEntry:
    """The subhalo `number`, of a whole catalogue or of one that lists subhaloes only, in the order of the rows."""
    _check_number(catalogue, "subhalo", "Subhalo", "SubhaloLenType", number)
    position = _position(catalogue, "Subhalo", number)
    length = _row(catalogue, "Subhalo", "SubhaloLenType", number)
    if "SubhaloOffsetType" in catalogue.datasets("Subhalo"):
        return CatalogueEntry(
            "subhalo", number, _row(catalogue, "Subhalo", "SubhaloOffsetType", number), length, position
        )
    hosts = [name for name in ("SubhaloGrNr", "SubhaloGroupNr") if name in catalogue.datasets("Subhalo")]
    if hosts and {"GroupLenType", "GroupFirstSub"} <= set(catalogue.datasets("Group")):
        host = int(catalogue.read("Subhalo", hosts[0], number, number + 1)[0])
        _check_number(catalogue, "halo", "Group", "GroupLenType", host)
        sister = int(catalogue.read("Group", "GroupFirstSub", host, host + 1)[0])
        if not 0 <= sister <= number:
            raise ValueError(
                f"{catalogue.name}: expected GroupFirstSub of halo {host} in 0 to {number}, got {sister}; is the "
                f"catalogue complete?"
            )
        first = _total(catalogue, "Group", "GroupLenType", 0, host)
        first += _total(catalogue, "Subhalo", "SubhaloLenType", sister, number)
        return CatalogueEntry("subhalo", number, first, length, position)
    first = _total(catalogue, "Subhalo", "SubhaloLenType", 0, number)
    after = _total(catalogue, "Subhalo", "SubhaloLenType", number, _count(catalogue, "Subhalo", "SubhaloLenType"))
    return CatalogueEntry("subhalo", number, first, length, position, first + after)


def nearest_with_particles(catalogue: AbstractContainer, entry: CatalogueEntry, particle_type: int) -> int | None:
    """The number nearest to the entry's that has particles of a type, None where none within 1000 of it has any."""
    group, dataset = ("Group", "GroupLenType") if entry.kind == "halo" else ("Subhalo", "SubhaloLenType")
    start = max(entry.number - _NEARBY, 0)
    stop = min(entry.number + _NEARBY, _count(catalogue, group, dataset))
    found = start + np.flatnonzero(np.asarray(catalogue.read(group, dataset, start, stop))[:, particle_type] > 0)
    return int(found[np.argmin(np.abs(found - entry.number))]) if found.size else None


def _check_number(catalogue: AbstractContainer, what: str, group: str, dataset: str, number: int) -> None:
    if dataset not in catalogue.datasets(group):
        raise ValueError(
            f"{catalogue.name}: {group}/{dataset} is missing; {catalogue.contents(group)}; expected the group "
            f"catalogue of the snapshot (TNG: fof_subhalo_tab_*.hdf5) with it included"
        )
    shape = catalogue.shape(group, dataset)
    if len(shape) != 2:
        raise ValueError(f"{catalogue.name}: {group}/{dataset}: expected shape (N, types), got {shape}")
    if number >= shape[0] or number < 0:
        raise ValueError(
            f"galaxy.{what}: expected one of the {shape[0]} of '{catalogue.name}' (0 to {shape[0] - 1}), got {number}"
        )


def _count(catalogue: AbstractContainer, group: str, dataset: str) -> int:
    return catalogue.shape(group, dataset)[0]


def _row(catalogue: AbstractContainer, group: str, dataset: str, number: int) -> Int[ndarray, " type"]:
    return np.asarray(catalogue.read(group, dataset, number, number + 1))[0].astype(np.int64)


def _total(catalogue: AbstractContainer, group: str, dataset: str, start: int, stop: int) -> Int[ndarray, " type"]:
    """The sum of the rows `start` to `stop`, by particle type."""
    total = np.zeros(catalogue.shape(group, dataset)[1], dtype=np.int64)
    for first in range(start, stop, SLAB_ROWS):
        total += np.asarray(catalogue.read(group, dataset, first, min(first + SLAB_ROWS, stop))).sum(
            axis=0, dtype=np.int64
        )
    return total


def _position(catalogue: AbstractContainer, group: str, number: int) -> Float[ndarray, "3"] | None:
    name = f"{group}Pos"
    if name not in catalogue.datasets(group):
        return None
    return np.asarray(catalogue.read(group, name, number, number + 1)[0], dtype=np.float64)

"""Find the halo or subhalo that the settings name, by the group catalogue or by the particles' numbers."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from rubix_like.config.readers.snapshot import SnapshotReader
from rubix_like.readers.containers.container import AbstractContainer, as_number
from rubix_like.readers.containers.snapshot_files import open_files
from rubix_like.readers.fields.epoch import SAME_TIME
from rubix_like.readers.fields.field_map import Family
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.selection.row_ranges import SLAB_ROWS, RowRanges, filtered, row_range
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report
from rubix_like.runtime.words import counted

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
    n_subhalo = catalogue.shape("Subhalo", "SubhaloLenType")[0]
    after = _total(catalogue, "Subhalo", "SubhaloLenType", number, n_subhalo)
    return CatalogueEntry("subhalo", number, first, length, position, first + after)


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


def _row(catalogue: AbstractContainer, group: str, dataset: str, number: int) -> Int[ndarray, " type"]:
    return np.asarray(catalogue.read(group, dataset, number, number + 1))[0].astype(np.int64)


def _total(catalogue: AbstractContainer, group: str, dataset: str, start: int, stop: int) -> Int[ndarray, " type"]:
    total = np.zeros(catalogue.shape(group, dataset)[1], dtype=np.int64)
    for first in range(start, stop, SLAB_ROWS):
        slab = catalogue.read(group, dataset, first, min(first + SLAB_ROWS, stop))
        total += slab.sum(axis=0, dtype=np.int64)
    return total


def _position(catalogue: AbstractContainer, group: str, number: int) -> Float[ndarray, "3"] | None:
    name = f"{group}Pos"
    if name not in catalogue.datasets(group):
        return None
    return np.asarray(catalogue.read(group, name, number, number + 1)[0], dtype=np.float64)


def find_entry(selection: SnapshotReader, snapshot: Snapshot) -> CatalogueEntry | None:
    """The catalogue's entry of the selected halo or subhalo, None without a catalogue.

    Raises ValueError where it is of another time, has no such number, or the halo or subhalo has no stars.
    """
    if not selection.catalogue:
        return None
    with open_files(selection.catalogue, "galaxy.catalogue") as (catalogue, _):
        time, expected = as_number(catalogue.attribute("Header", "Time")), snapshot.epoch.time
        if time is not None and expected and abs(time / expected - 1.0) > SAME_TIME:
            raise ValueError(
                f"galaxy.catalogue: '{catalogue.name}' is of time {time:.6g}, the snapshot "
                f"'{snapshot.container.name}' of {expected:.6g}; take the catalogue of the same snapshot"
            )
        halo = None if selection.halo is None else find_halo(catalogue, selection.halo)
        entry = halo if selection.subhalo is None else find_subhalo(catalogue, selection.subhalo)
        assert entry is not None
        _check_stars(catalogue, entry, snapshot)
        if halo is not None and entry is not halo:
            filled = entry.length > 0
            before = entry.first[filled] < halo.first[filled]
            beyond = entry.first[filled] + entry.length[filled] > halo.first[filled] + halo.length[filled]
            if before.any() or beyond.any():
                raise ValueError(
                    f"galaxy.halo: {entry.title} is not in {halo.title}; leave galaxy.halo out to select it"
                )
        return entry


def _check_stars(catalogue: AbstractContainer, entry: CatalogueEntry, snapshot: Snapshot) -> None:
    kinds = [int(group[-1]) for group in snapshot.groups("stars") if group[-1:].isdigit()]
    known = [kind for kind in kinds if kind < entry.length.size]
    if not known or entry.length[known].any():
        return
    group, dataset = ("Group", "GroupLenType") if entry.kind == "halo" else ("Subhalo", "SubhaloLenType")
    start = max(entry.number - _NEARBY, 0)
    stop = min(entry.number + _NEARBY, catalogue.shape(group, dataset)[0])
    having = start + np.flatnonzero(np.asarray(catalogue.read(group, dataset, start, stop))[:, known[0]] > 0)
    near = "and none near it has stars"
    if having.size:
        near = f"the nearest number with stars is {having[np.argmin(np.abs(having - entry.number))]}"
    raise ValueError(f"galaxy.{entry.kind}: {entry.title} of '{catalogue.name}' has no stars; {near}")


Kind = Literal["halo", "subhalo"]


def with_numbers(
    snapshot: Snapshot,
    family: Family,
    selection: SnapshotReader,
    rows: RowRanges,
    report: Report,
    team: AbstractProcessGroup = SINGLE,
) -> RowRanges:
    """The rows that carry the selected numbers of halo and subhalo; all of them with a catalogue.

    Together with a subhalo the halo's number counts without its sign: EAGLE marks particles outside the halo proper.
    """
    if selection.catalogue:
        return rows
    labels = snapshot.field_map.labels
    if selection.subhalo is not None and selection.halo is None and labels is not None and labels.within_halo:
        raise ValueError(
            f"galaxy.subhalo: {snapshot.field_map.title} counts subhaloes within their halo; expected galaxy.halo "
            f"beside it"
        )
    has_sign = selection.subhalo is None
    numbers: tuple[tuple[Kind, int | None], ...] = (("halo", selection.halo), ("subhalo", selection.subhalo))
    for kind, number in numbers:
        if number is not None:

            def carry(start: int, stop: int, kind: Kind = kind, number: int = number) -> Bool[ndarray, " row"]:
                stored = read_numbers(snapshot, family, kind, start, stop)
                return (stored if has_sign else np.abs(stored)) == number

            passed = filtered(rows, carry, f"{kind} numbers of {family} read", report, team)
            if family == "stars" and rows.count and not passed.count:
                raise ValueError(_no_such_number(snapshot, kind, number, rows, team))
            rows = passed
    return rows


def _no_such_number(snapshot: Snapshot, kind: Kind, number: int, rows: RowRanges, team: AbstractProcessGroup) -> str:
    def numbers_of_share() -> set[int]:
        found: set[int] = set()
        for start, stop, piece in rows.part(*team.share(rows.count)).pieces():
            stored = read_numbers(snapshot, "stars", kind, start, stop)
            found.update(np.unique(stored[piece.mask(start, stop)]).tolist())
        return found

    found = set[int]().union(*team.exchange(numbers_of_share))
    nearest = sorted(found, key=lambda value: (abs(value - number), value))[:3]
    return (
        f"galaxy.{kind}: none of the {counted(rows.count, 'star')} of '{snapshot.container.name}' has the "
        f"number {number}; they have {counted(len(found), 'number')}, the nearest of which are "
        f"{', '.join(str(value) for value in nearest)}"
    )


def read_numbers(snapshot: Snapshot, family: Family, kind: Kind, start: int, stop: int) -> ndarray:
    """The numbers of the haloes or subhaloes that the particles in these rows belong to, as stored.

    Raises ValueError where the field map names no dataset of them or a group has none.
    """
    container, labels = snapshot.container, snapshot.field_map.labels
    names: tuple[str, ...] = () if labels is None else getattr(labels, kind)
    if not names:
        raise ValueError(
            f"{container.name}: particles of {snapshot.field_map.title} carry no number of their {kind}; give the "
            f"group catalogue (galaxy.catalogue), or a sphere or box"
        )
    parts = []
    for group, _, begin, end in snapshot.stretches(family, start, stop):
        name = next((name for name in names if name in container.datasets(group)), None)
        if name is None:
            raise ValueError(
                f"{container.name}: {group}/{' or '.join(names)} (number of the {kind}) is missing; "
                f"{container.contents(group)}; download the file again with it included, or select a sphere or box"
            )
        values = container.read(group, name, begin, end)
        if values.ndim != 1 or values.dtype.kind not in "fiu":
            raise ValueError(
                f"{container.name}: {group}/{name}: expected one number of the {kind} per particle, got {values.dtype} "
                f"of shape {values.shape}; select a sphere or box instead"
            )
        parts.append(values)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

"""Find the halo or subhalo that the settings name, by the group catalogue or by the particles' own numbers."""

from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from rubix_like.config.readers.selection import AbstractSelection
from rubix_like.readers.containers.container import AbstractContainer, as_number
from rubix_like.readers.containers.snapshot_files import open_files
from rubix_like.readers.fields.epoch import SAME_TIME
from rubix_like.readers.fields.field_map import Family
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.selection.group_catalogue import CatalogueEntry, find_halo, find_subhalo, nearest_with_particles
from rubix_like.readers.selection.row_ranges import RowRanges, filtered
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report
from rubix_like.runtime.words import counted


def find_entry(selection: AbstractSelection, snapshot: Snapshot) -> CatalogueEntry | None:
    """What the catalogue says of the selected halo or subhalo, None without a catalogue.

    Raises ValueError where it is of another time, has no such number, or the halo or subhalo has no stars.
    """
    if not selection.catalogue:
        return None
    with open_files(selection.catalogue, "galaxy.catalogue") as (catalogue, _):
        _check_time(catalogue, snapshot)
        halo = None if selection.halo is None else find_halo(catalogue, selection.halo)
        if selection.subhalo is None:
            assert halo is not None
            _check_stars(catalogue, halo, snapshot)
            return halo
        entry = find_subhalo(catalogue, selection.subhalo)
        _check_stars(catalogue, entry, snapshot)
        if halo is not None:
            _check_host(entry, halo)
        return entry


def _check_time(catalogue: AbstractContainer, snapshot: Snapshot) -> None:
    """Catalogue and snapshot are of one time, where both tell it."""
    time, own = as_number(catalogue.attribute("Header", "Time")), snapshot.epoch.time
    if time is not None and own and abs(time / own - 1.0) > SAME_TIME:
        raise ValueError(
            f"galaxy.catalogue: '{catalogue.name}' is of time {time:.6g}, the snapshot '{snapshot.container.name}' of "
            f"{own:.6g}; take the catalogue of the same snapshot"
        )


def _check_stars(catalogue: AbstractContainer, entry: CatalogueEntry, snapshot: Snapshot) -> None:
    """The halo or subhalo has particles of a type that counts as stars."""
    kinds = [int(group[-1]) for group in snapshot.groups("stars") if group[-1:].isdigit()]
    own = [kind for kind in kinds if kind < entry.length.size]
    if not own or entry.length[own].any():
        return
    nearest = nearest_with_particles(catalogue, entry, own[0])
    found = f"the nearest number with stars is {nearest}" if nearest is not None else "and none near it has stars"
    raise ValueError(f"galaxy.{entry.kind}: {entry.title} of '{catalogue.name}' has no stars; {found}")


def _check_host(entry: CatalogueEntry, halo: CatalogueEntry) -> None:
    """The subhalo's rows are among the halo's."""
    filled = entry.length > 0
    before = entry.first[filled] < halo.first[filled]
    beyond = entry.first[filled] + entry.length[filled] > halo.first[filled] + halo.length[filled]
    if before.any() or beyond.any():
        raise ValueError(f"galaxy.halo: {entry.title} is not in {halo.title}; leave galaxy.halo out to select it")


Kind = Literal["halo", "subhalo"]


def with_numbers(
    snapshot: Snapshot,
    family: Family,
    selection: AbstractSelection,
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
    sign = selection.subhalo is None
    numbers: tuple[tuple[Kind, int | None], ...] = (("halo", selection.halo), ("subhalo", selection.subhalo))
    for kind, number in numbers:
        if number is not None:
            carry = partial(_carry, snapshot, family, kind, number, sign)
            passed = filtered(rows, carry, f"{kind} numbers of {family} read", report, team)
            if family == "stars" and rows.count and not passed.count:
                raise ValueError(_no_such_number(snapshot, kind, number, rows, team))
            rows = passed
    return rows


def _carry(
    snapshot: Snapshot, family: Family, kind: Kind, number: int, sign: bool, start: int, stop: int
) -> Bool[ndarray, " row"]:
    """Which of these rows carry the number."""
    stored = read_numbers(snapshot, family, kind, start, stop)
    return (stored if sign else np.abs(stored)) == number


def _no_such_number(snapshot: Snapshot, kind: Kind, number: int, rows: RowRanges, team: AbstractProcessGroup) -> str:
    def own() -> set[int]:
        found: set[int] = set()
        for start, stop, piece in rows.part(*team.share(rows.count)).pieces():
            stored = read_numbers(snapshot, "stars", kind, start, stop)
            found.update(np.unique(stored[piece.mask(start, stop)]).tolist())
        return found

    found = set[int]().union(*team.exchange(own))
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

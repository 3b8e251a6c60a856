"""The selected particles of a snapshot: their rows, found slab by slab, and their columns."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config.readers.snapshot import BoxSettings, Place, SnapshotReader, SphereSettings, to_kpc
from rubix_like.physics.centering import unwrap
from rubix_like.readers.fields.field_map import FAMILIES, VECTORS, Family, Table, Vector, Vectors
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.selection.halo_ids import CatalogueEntry, with_numbers
from rubix_like.readers.selection.row_ranges import RowRanges, chained, filtered, row_range
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent
from rubix_like.runtime.words import counted


@dataclass(frozen=True)
class Region:
    """All within `extent` of `center` in a box of sides `box_size` (kpc; None: not periodic); `key`: sphere or box.

    The extent is the radius of a sphere, and half of each side of a box.
    """

    key: Literal["sphere", "box"]
    center: Vector
    extent: float | Vector
    box_size: Vector | None

    def holds(self, position: Vectors) -> Bool[ndarray, " particle"]:
        """Which positions (kpc) lie in it."""
        if self.key == "sphere":
            return self.distance(position) <= self.extent
        return np.all(np.abs(unwrap(position, self.center, self.box_size)) <= self.extent, axis=1)

    def distance(self, position: Vectors) -> Float[ndarray, " particle"]:
        """Distances (kpc) from its centre, of the nearest periodic images."""
        return np.linalg.norm(unwrap(position, self.center, self.box_size), axis=1)


def _in_kpc(place: Place, file_unit: float) -> Vector:
    return np.array([to_kpc(value, file_unit) for value in place])


def find_regions(
    selection: SnapshotReader, center: Vector | None, length: float, box_size: Vector | None
) -> list[Region]:
    """The sphere and the box of a selection; `center` (kpc) is the galaxy's, `length` kpc per unit of the file.

    Raises ValueError where no centre is known.
    """
    regions: list[Region] = []
    sections: dict[Literal["sphere", "box"], SphereSettings | BoxSettings | None] = {
        "sphere": selection.sphere,
        "box": selection.box,
    }
    for key, given in sections.items():
        if given is None:
            continue
        middle = center if given.center is None else _in_kpc(given.center, length)
        if middle is None:
            raise ValueError(
                f"galaxy.{key}.center: expected three coordinates, as neither galaxy.center nor a catalogue gives any"
            )
        extent = _in_kpc(given.size, length) / 2 if isinstance(given, BoxSettings) else to_kpc(given.radius, length)
        regions.append(Region(key, middle, extent, box_size))
    return regions


@dataclass(frozen=True)
class Selected:
    """The selected particles of an open snapshot, without those that its field map leaves out.

    `left_out` counts the latter; `center` (kpc) is the given one or the catalogue's (`center_origin` says which), None
    where it is to be found.
    """

    snapshot: Snapshot
    rows: Mapping[Family, RowRanges]
    left_out: Mapping[Family, int]
    center: Vector | None = None
    center_origin: str = "galaxy.center"
    notes: tuple[str, ...] = ()

    def count(self, family: Family) -> int:
        """Number of selected stars or gas particles."""
        return self.rows[family].count

    def by_group(self, family: Family) -> dict[str, int]:
        """Number of selected particles in each group that has any, in the order of the rows."""
        snapshot, found = self.snapshot, {}
        for group, first, _, n_rows in snapshot.stretches(family, 0, snapshot.count(family)):
            found[group] = self.rows[family].within(first, first + n_rows).count
        return {group: count for group, count in found.items() if count}

    def count_without(self, family: Family, quantity: str | None) -> int:
        """Number of selected particles in groups that lack a quantity (None: in any group)."""
        groups = self.by_group(family).items()
        return sum(count for group, count in groups if quantity not in self.snapshot.quantities(family, group))

    def read(
        self, family: Family, start: int, stop: int, quantities: Collection[str] | None = None, report: Report = silent
    ) -> Table:
        """Columns (float64, our units) of the `start`-th to `stop`-th (exclusive) selected particles.

        Only rows between the first and the last of them are read, in slabs: the columns and one slab are held. Columns
        are what any group of the family has, of `quantities` where these are given; `row` is the row in the file.
        """
        rows = self.rows[family].part(start, stop)
        names = self.snapshot.available(family) if quantities is None else tuple(quantities)
        table = {name: np.empty((rows.count, 3) if name in VECTORS else (rows.count,)) for name in (*names, "row")}
        filled = 0
        for first, last, inside in rows.pieces():
            mask = inside.mask(first, last)
            slab = self.snapshot.read(family, first, last, names)
            for name, column in table.items():
                column[filled : filled + inside.count] = slab[name][mask]
            filled += inside.count
            report(f"{family} read", filled, rows.count)
        return table


def select(
    snapshot: Snapshot,
    selection: SnapshotReader,
    entry: CatalogueEntry | None = None,
    report: Report = silent,
    team: AbstractProcessGroup = SINGLE,
) -> Selected:
    """Find the rows of stars and gas that fulfil the whole selection; `entry` is the catalogue's halo or subhalo.

    Each process of the team tests its share of the rows, and all know which ones are found.

    Numbers of haloes, the field map's `keep` and positions are read one after the other, each only where the one before
    left any. Raises ValueError where no star is left, saying how many there are and where the nearest is.
    """
    length = snapshot.length
    from_catalogue = None if entry is None or entry.position is None else entry.position * length
    center = from_catalogue if selection.center is None else _in_kpc(selection.center, length)
    origin, notes = "galaxy.center", ()
    if entry is not None and selection.center is None and center is not None:
        origin = f"the catalogue's position of {entry.title}"
        notes = (Note("selection.centre", f"centred on {origin}"),)
    regions = find_regions(selection, center, length, snapshot.box_size)
    rows, left_out = {}, {}
    for family in FAMILIES:
        candidates = _candidates(snapshot, family, entry)
        numbered = with_numbers(snapshot, family, selection, candidates, report, team)
        kept, keep = numbered, snapshot.field_map.family(family).keep
        if keep is not None:

            def is_kept(start: int, stop: int, family: Family = family) -> Bool[ndarray, " row"]:
                return snapshot.read(family, start, stop, ("kept",))["kept"] > 0

            kept = filtered(numbered, is_kept, f"{keep.dataset} of {family} read", report, team)
            if any(keep.dataset not in snapshot.container.datasets(group) for group in snapshot.groups(family)):
                text = f"{keep.others} cannot be told from {family}: the file has no {keep.dataset}"
                notes = (*notes, Note("selection.not_told", text, WARNING))
        left_out[family] = numbered.count - kept.count
        for region in regions:

            def lie(start: int, stop: int, family: Family = family, region: Region = region) -> Bool[ndarray, " row"]:
                return region.holds(snapshot.read(family, start, stop, ("position",))["position"])

            passed = filtered(kept, lie, f"positions of {family} read", report, team)
            if family == "stars" and kept.count and not passed.count:
                raise ValueError(_nothing_in(snapshot, region, kept, team))
            kept = passed
        rows[family] = kept
    return Selected(snapshot, rows, left_out, center, origin, notes)


def _candidates(snapshot: Snapshot, family: Family, entry: CatalogueEntry | None) -> RowRanges:
    if entry is None:
        return row_range(0, snapshot.count(family))
    parts, first = [], 0
    for group, n_rows in snapshot.groups(family).items():
        within = entry.rows(group, n_rows, snapshot.container.name)
        parts.append(RowRanges(within.starts + first, within.stops + first))
        first += n_rows
    return chained(parts)


def _nothing_in(snapshot: Snapshot, region: Region, rows: RowRanges, team: AbstractProcessGroup) -> str:
    def nearest_of_share() -> tuple[float, list[float]]:
        nearest, place = np.inf, np.zeros(3)
        for start, stop, piece in rows.part(*team.share(rows.count)).pieces():
            position = snapshot.read("stars", start, stop, ("position",))["position"][piece.mask(start, stop)]
            distance = region.distance(position)
            if distance.min() < nearest:
                nearest, place = float(distance.min()), position[distance.argmin()] / snapshot.length
        return nearest, place.tolist()

    nearest, place = min(team.exchange(nearest_of_share))
    return (
        f"galaxy.{region.key}: none of the {counted(rows.count, 'star')} of '{snapshot.container.name}' lies in it; "
        f"the nearest is {nearest:.4g} kpc from its centre, at {', '.join(f'{value:.6g}' for value in place)} in the "
        f"file's own unit ({snapshot.length:.6g} kpc); choose another centre or more of a radius or size"
    )

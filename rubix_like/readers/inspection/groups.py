"""The stars or the gas of one group of a file: its rows, its quantities, what is missing and what is not used."""

from dataclasses import dataclass

import numpy as np

from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.joined import JoinedContainer
from rubix_like.readers.fields.field_map import Family
from rubix_like.readers.fields.file_parts import count_notes
from rubix_like.readers.fields.snapshot_particles import Snapshot
from rubix_like.readers.inspection.gas_light import light_of_gas
from rubix_like.readers.inspection.inspected_fields import FieldReport, GroupRows, report_fields
from rubix_like.readers.inspection.missing import missing_of_gas, missing_of_stars, unused_datasets
from rubix_like.readers.inspection.structure import stored_shape
from rubix_like.readers.selection.row_ranges import SLAB_ROWS

_COUNT = "NumPart_ThisFile"
"""Attribute of the Header in which Gadget's descendants count a file's particles by type."""


@dataclass(frozen=True)
class GroupReport:
    """Stars or gas of one group: `n_rows` stored, `n_left_out` of them not read as they are `others`.

    `light` says what light gas can make, and from which columns (`light_of_gas`; empty for stars). `notes` are what is
    missing and what follows, `needed` the keys under `galaxy:` that make up for it, `problems`
    reasons why the group is refused, `unused` the datasets that the field map does not name.
    """

    family: str
    group: str
    n_rows: int
    n_left_out: int
    others: str
    fields: tuple[FieldReport, ...]
    light: tuple[str, ...]
    notes: tuple[str, ...]
    needed: dict[str, str]
    problems: tuple[str, ...]
    unused: tuple[str, ...]


def find_rows(snapshot: Snapshot, family: Family) -> list[GroupRows]:
    """The groups of a family with their numbers of rows; raises ValueError where datasets of one group differ."""
    return [GroupRows(snapshot, family, group, count) for group, count in snapshot.groups(family).items()]


def report_group(rows: GroupRows) -> GroupReport:
    """All that can be said of a group; no value in it raises."""
    snapshot, family, group = rows.snapshot, rows.family, rows.group
    fields = report_fields(rows)
    slabs = [(start, min(start + SLAB_ROWS, rows.n_rows)) for start in range(0, rows.n_rows, SLAB_ROWS)]
    missing = missing_of_stars(snapshot, group) if family == "stars" else missing_of_gas(snapshot, group)
    return GroupReport(
        family=family,
        group=group,
        n_rows=rows.n_rows,
        n_left_out=sum(int(np.count_nonzero(~rows.kept(start, stop))) for start, stop in slabs),
        others=snapshot.others(family),
        fields=fields,
        light=light_of_gas(fields) if family == "gas" else (),
        notes=(
            *(found.text for found in missing if not found.is_refused),
            *_count_notes(snapshot.container, group, rows.n_rows),
        ),
        needed={key: value for found in missing for key, value in found.settings.items()},
        problems=(
            *(f"{group}: {found.text}" for found in missing if found.is_refused),
            *(f"{group}: {row.dataset}: {text}" for row in fields for text in row.problems),
        ),
        unused=_unused(rows),
    )


def _count_notes(container: AbstractContainer, group: str, n_rows: int) -> list[str]:
    """Where the header counts other numbers of particles than there are rows."""
    notes = [note for note in count_notes(container) if note.startswith(f"{group} ")]
    if isinstance(container, JoinedContainer) or not group[-1:].isdigit():
        return notes
    counts = np.asarray(container.attribute("Header", _COUNT)).reshape(-1)
    index = int(group[-1])
    if counts.dtype.kind in "iuf" and counts.size > index and counts[index] != n_rows:
        notes.append(f"the Header's {_COUNT} is {counts[index]}, the file has {n_rows} rows: those are read")
    return notes


def _unused(rows: GroupRows) -> tuple[str, ...]:
    """The datasets of the group that the field map does not name, with the shape of those that are no columns."""
    container = rows.snapshot.container
    names = unused_datasets(rows.snapshot, rows.family, rows.group)
    shapes = {name: stored_shape(container, rows.group, name) for name in names}
    return tuple(name if shape == f"({rows.n_rows})" else f"{name} {shape}" for name, shape in shapes.items())

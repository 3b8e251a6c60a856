"""Files that field maps read: opened, recognised or named, and their particles selected."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from rubix_like.arguments import named_arguments
from rubix_like.config.plug_ins import TABLE
from rubix_like.config.readers.snapshot import AUTO, SnapshotReader, TableSettings
from rubix_like.readers.containers.container import AbstractContainer
from rubix_like.readers.containers.snapshot_files import open_files, single_file_bytes
from rubix_like.readers.fields.epoch import read_epoch
from rubix_like.readers.fields.field_map import FieldMap, load_field_map
from rubix_like.readers.fields.recognise import check_named, recognise
from rubix_like.readers.fields.snapshot_particles import Snapshot, check_parts
from rubix_like.readers.fields.table_map import table_field_map
from rubix_like.readers.selection.halo_ids import find_entry
from rubix_like.readers.selection.selected import Selected, select
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

_LEAST_BYTES_PER_STAR = 16
"""Least bytes per star of a file, even a compressed one: a star has at least eight numbers."""


@contextmanager
def open_snapshot(settings: SnapshotReader) -> Iterator[Snapshot]:
    """The open file: `count(family)` and `read(family, start, stop)` of all its rows; no particle is read yet."""
    with open_mapped_file(settings) as (container, kind):
        field_map = find_field_map(settings, container, kind)
        check_parts(container, field_map)
        yield Snapshot(container, field_map, read_epoch(container, field_map))


def snapshot_has_more_stars(settings: SnapshotReader, limit: int) -> bool:
    """Whether the file has more than `limit` stars, selected or not; a small file is not opened for it."""
    size = single_file_bytes(settings.path)
    if size is not None and size < _LEAST_BYTES_PER_STAR * limit:
        return False
    with open_snapshot(settings) as snapshot:
        return snapshot.count("stars") > limit


def open_mapped_file(settings: SnapshotReader) -> AbstractContextManager[tuple[AbstractContainer, str]]:
    """The open file or files, whatever is in them, and their kind."""
    named = settings.reader not in {AUTO, TABLE}
    return open_files(settings.path, by_pynbody=named and load_field_map(settings.reader).container == ("pynbody",))


def find_field_map(settings: SnapshotReader, container: AbstractContainer, kind: str) -> FieldMap:
    """How this file is read: as named, as its columns say or as it is recognised; raises ConfigError."""
    if settings.reader not in {AUTO, TABLE}:
        field_map = load_field_map(settings.reader)
        check_named(field_map, container, kind)
        return field_map
    if TABLE in {kind, settings.reader} or settings.columns or settings.gas:
        return table_field_map(container, kind, settings.columns or TableSettings(), settings.gas or TableSettings())
    return recognise(container, kind)


@named_arguments
@contextmanager
def open_selected(
    settings: SnapshotReader, report: Report = silent, team: AbstractProcessGroup = SINGLE
) -> Iterator[Selected]:
    """The open file and which of its particles are selected; raises ValueError where no star is.

    Each process of the `team` looks through its share of the rows; all know which ones are selected.
    """
    with ExitStack() as stack:
        snapshot = team.each(lambda: stack.enter_context(open_snapshot(settings)))
        team.each(lambda: check_has_stars(snapshot))
        entry = team.each(lambda: find_entry(settings, snapshot))
        selected = select(snapshot, settings, entry, report, team)
        if not selected.count("stars"):
            left_out = f"only {selected.left_out['stars']} {snapshot.others('stars')}"
            raise ValueError(_no_stars(snapshot, left_out))
        yield selected


def check_has_stars(snapshot: Snapshot) -> None:
    """Raise ValueError for a file without stars, selected or not."""
    if not snapshot.count("stars"):
        raise ValueError(_no_stars(snapshot, "no particles"))


def _no_stars(snapshot: Snapshot, found: str) -> str:
    """The sentence for a file or selection without stars."""
    groups = snapshot.field_map.stars.groups
    place = f"{snapshot.container.name}: {' or '.join(groups)} (stars)"
    if not any(snapshot.container.datasets(group) for group in groups):
        return f"{place} is missing or empty; {snapshot.container.contents()}; choose a galaxy with stars"
    return f"{place}: expected at least one star, got {found}; choose a galaxy with stars"

"""Files that field maps read: opened, recognised or named, and their particles selected."""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from rubix_like.arguments import named_arguments
from rubix_like.config.plug_ins import TABLE, field_map_names
from rubix_like.config.readers.snapshot import AUTO, SnapshotReader, TableSettings
from rubix_like.errors import ConfigError
from rubix_like.readers.containers.container import AbstractContainer, as_text
from rubix_like.readers.containers.snapshot_files import open_files, single_file_bytes
from rubix_like.readers.fields.epoch import read_epoch
from rubix_like.readers.fields.field_map import (
    FieldMap,
    RecognisedBy,
    RecogniseSettings,
    load_field_map,
    load_recognised_by,
)
from rubix_like.readers.fields.snapshot_particles import Snapshot, check_parts
from rubix_like.readers.fields.table_map import table_field_map
from rubix_like.readers.selection.halo_ids import find_entry
from rubix_like.readers.selection.selected import Selected, select
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup
from rubix_like.runtime.progress import Report, silent

CATALOGUES = {
    "Subhalo/SubhaloLenType": "SUBFIND",
    "Group/GroupLenType": "SUBFIND",
    "InputHalos": "SOAP",
    "BoundSubhalo": "SOAP",
    "galaxy_data": "CAESAR",
    "halo_data": "CAESAR",
    "Mass_200crit": "VELOCIraptor",
    "Mass_200mean": "VELOCIraptor",
}
"""What tells a catalogue of haloes, which lies beside a snapshot, and the program that wrote it."""


def recognise(container: AbstractContainer, kind: str = "hdf5") -> FieldMap:
    """The one field map for this `kind` of file that fits; raises ConfigError where none or several do."""
    names = _fitting(container, kind)
    if len(names) == 1:
        return load_field_map(names[0])
    if names:
        raise ConfigError(
            f"galaxy.path: '{container.name}' fits {len(names)} kinds of simulation: {' and '.join(names)}; "
            f"name one, e.g. galaxy: {{reader: {names[0]}}}"
        )
    writer = next((writer for place, writer in CATALOGUES.items() if _is_there(place, container)), None)
    if writer is not None:
        use = "this file as galaxy.catalogue, with galaxy.subhalo or galaxy.halo"
        if writer != "SUBFIND":
            use = "the place of a halo from this file, as galaxy.center with galaxy.sphere"
        raise ConfigError(
            f"galaxy.path: '{container.name}' is a catalogue of haloes by {writer}: it has no particles; give the "
            f"snapshot as galaxy.path, and {use}"
        )
    raise ConfigError(
        f"galaxy.path: '{container.name}' is not recognised ({container.contents()}); name its simulation "
        f"(galaxy.reader: {', '.join(field_map_names())}), or give a field map of your own (galaxy.reader: "
        f"my_simulation.yaml){''.join(f'; not tried: {problem}' for problem in _usable()[1])}"
    )


def check_named(field_map: FieldMap, container: AbstractContainer, kind: str) -> None:
    """Raise ConfigError where a named simulation cannot be that of the file, saying which one fits.

    A field map from a user file is not held against the known ones.
    """
    if kind not in field_map.container:
        kinds = " or ".join(field_map.container)
        raise ConfigError(
            f"galaxy.reader: expected a field map for files of kind {kind}, as '{container.name}' is, got "
            f"'{field_map.name}' for {kinds}; leave galaxy.reader out to have the file recognised"
        )
    families = [family for family in (field_map.stars, field_map.gas) if family]
    wanted = [group for family in families for group in (*family.groups, *family.isolated_groups)]
    has_groups = bool({group.partition("/")[0] for group in wanted} & set(container.groups()))
    if has_groups and field_map.name not in field_map_names():
        return
    others = _fitting(container, kind)
    if has_groups and (field_map.name in others or set(others) <= set(field_map.over)):
        return
    hint = f"; it looks like {' or '.join(others)}: leave galaxy.reader out, or name that" if others else ""
    if has_groups:
        text = f"to be of {field_map.title}, but its datasets or attributes are others"
    else:
        text = f"to have {' or '.join(wanted)} ({field_map.title}), but {container.contents()}"
    raise ConfigError(f"galaxy.reader: expected '{container.name}' {text}{hint}")


def _fitting(container: AbstractContainer, kind: str) -> list[str]:
    """The names of field maps that fit, without those that give way to another one that does."""
    fitting = {name: marks for name, marks in _usable()[0].items() if matches(marks, container, kind)}
    beaten = {loser for marks in fitting.values() for loser in marks.over}
    return [name for name in fitting if name not in beaten]


def _usable() -> tuple[dict[str, RecognisedBy | FieldMap], list[str]]:
    """Marks of the known field maps' files, and why maps of plug-ins cannot be used."""
    usable: dict[str, RecognisedBy | FieldMap] = {}
    problems: list[str] = []
    for name in field_map_names():
        try:
            usable[name] = load_recognised_by(name)
        except ConfigError as error:
            problems.append(str(error))
    return usable, problems


def matches(field_map: RecognisedBy | FieldMap, container: AbstractContainer, kind: str) -> bool:
    """Whether a field map is for this kind of file and one of its ways to recognise it holds."""
    return kind in field_map.container and any(_holds(way, container) for way in field_map.recognise)


def conditions(field_map: FieldMap, container: AbstractContainer, kind: str) -> tuple[str, ...]:
    """The conditions by which a file is recognised, in words: the first way that holds; empty where none does."""
    if kind not in field_map.container:
        return ()
    way = next((way for way in field_map.recognise if _holds(way, container)), None)
    return () if way is None else way_words(way)


def way_words(way: RecogniseSettings, mark: str = "") -> tuple[str, ...]:
    """The conditions of a way in words, with `mark` on both sides of what stands in the file."""
    has = [f"has {mark}{place}{mark}" for place in way.has]
    lacks = [f"has no {mark}{place}{mark}" for place in way.lacks]
    matches = [f"has {mark}{place}{mark} that matches {mark}{text}{mark}" for place, text in way.matches.items()]
    return (*has, *lacks, *matches)


def _holds(way: RecogniseSettings, container: AbstractContainer) -> bool:
    return (
        all(_is_there(place, container) for place in way.has)
        and not any(_is_there(place, container) for place in way.lacks)
        and all(
            re.search(pattern, as_text(container.attribute(*place.partition("@")[::2])), re.IGNORECASE)
            for place, pattern in way.matches.items()
        )
    )


def _is_there(place: str, container: AbstractContainer) -> bool:
    where, at, attribute = place.partition("@")
    if at:
        return attribute in container.attributes(where)
    group, slash, dataset = where.partition("/")
    return dataset in container.datasets(group) if slash else group in container.groups()


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
    groups = snapshot.field_map.stars.groups
    place = f"{snapshot.container.name}: {' or '.join(groups)} (stars)"
    if not any(snapshot.container.datasets(group) for group in groups):
        return f"{place} is missing or empty; {snapshot.container.contents()}; choose a galaxy with stars"
    return f"{place}: expected at least one star, got {found}; choose a galaxy with stars"

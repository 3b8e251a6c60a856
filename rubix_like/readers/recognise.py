"""Which field map fits a file."""

import re

from rubix_like.errors import ConfigError
from rubix_like.readers.container import AbstractContainer, as_text
from rubix_like.readers.field_map import FieldMap, RecogniseSettings, field_map_names, load_field_map


def recognise(container: AbstractContainer, kind: str = "hdf5") -> FieldMap:
    """The one field map for this `kind` of file that fits; raises ConfigError where none or several do."""
    fitting = {
        name: field_map for name in field_map_names() if fits(field_map := load_field_map(name), container, kind)
    }
    beaten = {loser for field_map in fitting.values() for loser in field_map.over}
    best = [name for name in fitting if name not in beaten]
    if len(best) == 1:
        return fitting[best[0]]
    known = ", ".join(field_map_names())
    if best:
        raise ConfigError(
            f"galaxy.path: '{container.name}' fits {len(best)} kinds of simulation: {' and '.join(best)}; "
            f"name one, e.g. galaxy: {{reader: {best[0]}}}"
        )
    raise ConfigError(
        f"galaxy.path: '{container.name}' is not recognised ({container.contents()}); name its simulation "
        f"(galaxy.reader: {known}), or give a field map of your own (galaxy.reader: my_simulation.yaml)"
    )


def check_named(field_map: FieldMap, container: AbstractContainer, kind: str) -> None:
    """Raise ConfigError where a named simulation cannot be that of the file, saying which one fits."""
    if field_map.container != kind:
        raise ConfigError(
            f"galaxy.reader: expected a field map for files of kind {kind}, as '{container.name}' is, got "
            f"'{field_map.name}' for {field_map.container}; leave galaxy.reader out to have the file recognised"
        )
    groups = container.groups()
    wanted = [group for family in (field_map.stars, field_map.gas) if family for group in family.groups]
    if not set(wanted) & set(groups):
        fitting = [name for name in field_map_names() if fits(load_field_map(name), container, kind)]
        hint = f"; it looks like {' or '.join(fitting)}" if fitting else ""
        raise ConfigError(
            f"galaxy.reader: expected '{container.name}' to have {' or '.join(wanted)} ({field_map.title}), but "
            f"{container.contents()}{hint}"
        )


def fits(field_map: FieldMap, container: AbstractContainer, kind: str) -> bool:
    """Whether a field map is for this kind of file and one of its ways to recognise it holds."""
    return field_map.container == kind and any(_holds(way, container) for way in field_map.recognise)


def conditions(field_map: FieldMap, container: AbstractContainer, kind: str) -> tuple[str, ...]:
    """What a file is recognised by, in words: the first way of the field map that holds; empty where none does."""
    if field_map.container != kind:
        return ()
    way = next((way for way in field_map.recognise if _holds(way, container)), None)
    return () if way is None else way_words(way)


def way_words(way: RecogniseSettings) -> tuple[str, ...]:
    """The conditions of a way in words."""
    matches = [f"has {place} that matches '{pattern}'" for place, pattern in way.matches.items()]
    return (*(f"has {place}" for place in way.has), *(f"has no {place}" for place in way.lacks), *matches)


def _holds(way: RecogniseSettings, container: AbstractContainer) -> bool:
    return (
        all(_is_there(place, container) for place in way.has)
        and not any(_is_there(place, container) for place in way.lacks)
        and all(_matches(place, pattern, container) for place, pattern in way.matches.items())
    )


def _is_there(place: str, container: AbstractContainer) -> bool:
    where, at, attribute = place.partition("@")
    if at:
        return attribute in container.attributes(where)
    group, slash, dataset = where.partition("/")
    return dataset in container.datasets(group) if slash else group in container.groups()


def _matches(place: str, pattern: str, container: AbstractContainer) -> bool:
    where, _, attribute = place.partition("@")
    return re.search(pattern, as_text(container.attribute(where, attribute)), re.IGNORECASE) is not None

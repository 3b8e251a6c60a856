"""Reading and writing YAML, and finding a configuration file by its path or by the name of a packaged one.

YAML 1.2's core schema is used, in which `1e5` is a number, `12:30` and `no` are text, and a key comes once.
"""

import contextlib
import copy
import functools
import itertools
import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml

from rubix_like.errors import ConfigError, nearest
from rubix_like.runtime.files.outputs import check_regular
from rubix_like.runtime.resources import resource, resource_names
from rubix_like.runtime.words import reason_of

SUFFIXES: tuple[str, ...] = (".yaml", ".yml")

_PATTERNS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)",
    "float": r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
}
_NUMBER = re.compile(f"^(?:{_PATTERNS['int']}|{_PATTERNS['float']})$")
_RESOLVERS = {None: [(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{text})$")) for tag, text in _PATTERNS.items()]}

MOST_BYTES: int = 1 << 20
"""Longest YAML text that is read; the longest that the package writes have some 30,000."""

MOST_NODES: int = 20_000
"""Values, lists and sections of a text, those that an alias repeats counted each time."""

DEEPEST: int = 40
"""Lists and sections within each other."""

LONGEST_NUMBER: int = 40
"""Characters of a number."""


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars; a key given twice is an error."""

    yaml_implicit_resolvers = _RESOLVERS

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        _check_keys(node)
        return yaml.SafeLoader.construct_mapping(self, node, deep=deep)


_QUICKEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""By libyaml, where PyYAML has it: a tenth of the time, but other words for what is wrong."""


class _QuickLoader(_QUICKEST):
    """`_Loader` for text in which nothing is wrong."""

    yaml_implicit_resolvers = _RESOLVERS

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        _check_keys(node)
        return yaml.constructor.SafeConstructor.construct_mapping(self, node, deep=deep)


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        if key.value in seen:
            raise yaml.MarkedYAMLError(problem=f"the key '{key.value}' is given twice", problem_mark=key.start_mark)
        seen.add(key.value)


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would not read as text."""

    yaml_implicit_resolvers = _RESOLVERS


_FAULTS = (
    yaml.YAMLError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that PyYAML raises for text that is not YAML, and for YAML that it cannot convert."""


_FORM = "'key: value' pairs, indented by spaces, every bracket and quote closed"


def parse_yaml(text: str, place: str) -> Any:
    """The plain data in YAML `text`.

    Its nodes are counted before any of them is made. Raises ConfigError with `place`, line and column where it is not
    YAML, or longer, deeper or of more values than any configuration.
    """
    with contextlib.suppress(ConfigError, *_FAULTS):
        return copy.deepcopy(_quickly_parsed(text))
    try:
        return _parsed(text, place, _Loader)
    except ConfigError:
        raise
    except yaml.MarkedYAMLError as error:
        words = " ".join(str(error.problem or error.context).split())
        raise ConfigError(f"{place}{_where(error.problem_mark)}: expected YAML ({_FORM}): {words}") from error
    except _FAULTS as error:
        raise ConfigError(f"{place}: expected YAML ({_FORM}): {reason_of(error)}") from error


@functools.lru_cache(maxsize=64)
def _quickly_parsed(text: str) -> Any:
    """The data of a text in which nothing is wrong; presets and pipelines are read again and again."""
    return _parsed(text, "", _QuickLoader)


def _parsed(text: str, place: str, loader: type[Any]) -> Any:
    _count(yaml.parse(_limited(text, place), Loader=loader), place)
    return yaml.load(text, Loader=loader)


def _where(mark: Any) -> str:
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def count_nodes(text: str, place: str, *, tags: bool = False) -> None:
    """Raise ConfigError where text is not YAML, is too long, has too many or too deep nodes, or too long a number.

    Nothing is made of the nodes. `tags`: whether values may have one.
    """
    try:
        _count(yaml.parse(_limited(text, place), Loader=_Loader), place, tags=tags)
    except yaml.YAMLError as error:
        raise ConfigError(f"{place}: expected YAML, but {reason_of(error)}") from error


def _limited(text: str, place: str) -> str:
    if len(text) > MOST_BYTES:
        raise _too_large(place, f"{MOST_BYTES} characters", f"{len(text)}")
    return text


def _count(events: Iterable[yaml.Event], place: str, *, tags: bool = False) -> None:
    begun: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    count = 0
    for event in events:
        where = f"{place}{_where(event.start_mark)}"
        if not tags:
            tag = event.tag if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) else None
            if tag not in (None, "!"):
                raise ConfigError(
                    f"{where}: expected a value without a tag, got the tag '{tag}'; write the value alone"
                )
        _check_scalar(event, where)
        _note_anchors(event, begun, sizes, count)
        count += _size_of(event, sizes, where)
        if len(begun) > DEEPEST:
            raise _too_large(where, f"{DEEPEST} levels of lists and sections", "more")
        if count > MOST_NODES:
            raise _too_large(where, f"{MOST_NODES} values, with those that aliases repeat", "more")


def _note_anchors(event: yaml.Event, begun: list[tuple[str | None, int]], sizes: dict[str, int], count: int) -> None:
    """Note lists and sections that have `begun`, and the nodes that each anchor stands for, after `count` of them."""
    if isinstance(event, yaml.CollectionStartEvent):
        begun.append((event.anchor, count))
    elif isinstance(event, yaml.CollectionEndEvent):
        anchor, before = begun.pop()
        sizes.update({anchor: count - before} if anchor else {})
    elif isinstance(event, yaml.ScalarEvent) and event.anchor:
        sizes[event.anchor] = 1


def _size_of(event: yaml.Event, sizes: dict[str, int], where: str) -> int:
    """How many nodes an event adds; an alias all that it stands for, which within the same anchor would never end."""
    if not isinstance(event, yaml.AliasEvent):
        return int(isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent))
    size = sizes.get(str(event.anchor))
    if size is None:
        raise ConfigError(
            f"{where}: expected the alias '*{event.anchor}' after the value that it repeats, got it before or within "
            f"it; write the values out"
        )
    return size


def _check_scalar(event: yaml.Event, where: str) -> None:
    """A plain number of hundreds of digits is one of no setting, and overflows in later steps."""
    if not isinstance(event, yaml.ScalarEvent) or event.style or not event.implicit[0]:
        return
    if len(event.value) > LONGEST_NUMBER and _NUMBER.match(event.value):
        raise ConfigError(
            f"{where}: expected numbers of at most {LONGEST_NUMBER} characters, got one of {len(event.value)}; write "
            f"it as 1.23e4, or in quotes if it is text"
        )


def _too_large(place: str, expected: str, came: str) -> ConfigError:
    return ConfigError(
        f"{place}: expected YAML of at most {expected}, got {came}; give a configuration, and data in files of their "
        f"own"
    )


def check_ecsv(path: Path) -> None:
    """Raise ConfigError where the YAML in the head of an ECSV file is larger than any table's."""
    with path.open(encoding="utf-8") as file:
        head = itertools.takewhile(lambda line: line.startswith("#"), iter(lambda: file.readline(MOST_BYTES), ""))
        lines = [line[2:] for line in itertools.islice(head, 1, MOST_BYTES)]
    count_nodes("".join(lines), str(path), tags=True)


def format_yaml(data: Any) -> str:
    """YAML of plain data, in the given order, in ASCII (for FITS), that `parse_yaml` reads back equal."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120)


def read_section(path: Path) -> dict[str, Any]:
    """The `key: value` pairs of a YAML file; raises ConfigError if it cannot be read or holds something else."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise _too_large(str(path), f"{MOST_BYTES} bytes", f"{size}")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: expected a readable YAML file, but {reason}") from error
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        came = "an empty file" if data is None else f"a {type(data).__name__}"
        raise ConfigError(f"{path}: expected 'key: value' pairs, got {came}")
    for key in data:
        if not isinstance(key, str):
            raise ConfigError(f"{path}: expected keys that are text, got {key!r}")
    check_regular(data, "")
    return data


def find_file(kind: str, name: str) -> Path:
    """The YAML file `name`: a path that ends in .yaml or .yml, or the name of a packaged file of `kind`.

    Raises ConfigError with the packaged names if there is no such file.
    """
    names = resource_names(kind)
    if name in names:
        return resource(kind, name)
    path = Path(name).expanduser()
    is_path = path.suffix in SUFFIXES
    if is_path and path.is_file():
        return path
    thing = kind.removesuffix("s")
    problem = f"no file '{name}'" if is_path else f"unknown {thing} '{name}'"
    remedy = f"packaged: {', '.join(names)}; or give the path of a .yaml file"
    raise ConfigError(f"{problem}{nearest(path.stem if is_path else name, names)} ({remedy})")

"""Reading and writing YAML, and finding a configuration file by its path or by the name of a packaged one.

YAML 1.2's core schema is used, in which `1e5` is a number, `12:30` and `no` are text, and a key comes once.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from rubix_like.errors import ConfigError, suggest
from rubix_like.resources import resource, resource_names

SUFFIXES: tuple[str, ...] = (".yaml", ".yml")

_PATTERNS = {
    "null": r"~|null|Null|NULL|",
    "bool": r"true|True|TRUE|false|False|FALSE",
    "int": r"[-+]?(?:0|[1-9][0-9]*)",
    "float": r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
}
_RESOLVERS = {None: [(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{text})$")) for tag, text in _PATTERNS.items()]}


class _Loader(yaml.SafeLoader):
    """YAML 1.2 scalars; a key given twice is an error."""

    yaml_implicit_resolvers = _RESOLVERS

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key '{key.value}' is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return yaml.SafeLoader.construct_mapping(self, node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would not read as text."""

    yaml_implicit_resolvers = _RESOLVERS


def parse_yaml(text: str, place: str) -> Any:
    """The plain data in YAML `text`; raises ConfigError with `place`, line and column where it is not YAML."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{place}{where}: expected YAML, but {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{place}: expected YAML, but {error}") from error


def format_yaml(data: Any) -> str:
    """YAML of plain data, in the given order, in ASCII (for FITS), that `parse_yaml` reads back equal."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120)


def read_section(path: Path) -> dict[str, Any]:
    """The `key: value` pairs of a YAML file; raises ConfigError if it cannot be read or holds something else."""
    try:
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
    hint = suggest(path.stem if is_path else name, names)
    raise ConfigError(f"{problem}{hint if 'did you mean' in hint else ''} ({remedy})")

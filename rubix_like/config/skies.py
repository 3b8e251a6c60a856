"""The skies that `noise.exposure.sky` can name: embedded ones, and tables by their path."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from rubix_like.config.quantities import as_tuple
from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.resources import resource, resource_names

SKY_SUFFIXES: tuple[str, ...] = (".fits", ".fits.gz", ".ecsv")

NO_SKY: str = "none"


def find_sky(name: str) -> Path | None:
    """The file of an embedded sky or of a table by its path; None for 'none'. Raises ConfigError if there is none."""
    known = resource_names("skies")
    if name == NO_SKY:
        return None
    if name in known:
        return resource("skies", name)
    path = Path(name).expanduser()
    if name.lower().endswith(SKY_SUFFIXES):
        if path.is_file():
            return path
        raise ConfigError(f"expected one of {', '.join(known)}, {NO_SKY} or the path of a table, got no file '{name}'")
    raise ConfigError(
        f"expected one of {', '.join(known)}, {NO_SKY}, or a path ending in {', '.join(SKY_SUFFIXES)}, got '{name}'"
        f"{suggest(name, (*known, NO_SKY))}"
    )


def _texts(value: object) -> object:
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    if not isinstance(value, str):
        raise ValueError(f"expected text, or a list of texts, got {'null' if value is None else repr(value)}")
    return value


def _check_skies(names: str | tuple[str, ...]) -> str | tuple[str, ...]:
    found = [find_sky(name) for name in as_tuple(names)]
    if None in found and len(found) > 1:
        raise ValueError(f"expected '{NO_SKY}' alone, or a list of skies without it, got {list(names)}")
    return names


_LIST = {"type": "array", "items": {"type": "string"}, "minItems": 1}

Skies = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_texts),
    AfterValidator(_check_skies),
    WithJsonSchema({"anyOf": [{"type": "string"}, _LIST]}),
]
"""One sky, by its name or path, or a list of them; the first that covers a wavelength counts there."""

"""The base of every section of a run's configuration."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict


class AbstractSettings(BaseModel):
    """A section: immutable once checked, with no keys but its own. Settings only describe; other modules build."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


def sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The settings classes named in the type of a setting."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from sections_in(argument)

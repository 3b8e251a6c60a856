"""The interface of a file of particles in any format: groups of datasets whose rows are particles, and attributes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

_QUOTES = "\"'"


class AbstractContainer(ABC):
    """One open file, or several of one snapshot: `group/dataset` arrays of rows, read slab by slab.

    A group without rows counts as absent. `name` stands for the file in messages; `unread` names what the file has
    beside its groups and datasets, `nests` says whether a slash in a dataset's name leads into a subgroup.
    """

    name: str
    unread: tuple[str, ...] = ()
    nests: bool = False

    @abstractmethod
    def groups(self) -> tuple[str, ...]:
        """Names at the top of the file: groups of datasets or of attributes."""

    @abstractmethod
    def datasets(self, group: str) -> tuple[str, ...]:
        """Names of the datasets in `group`, nested ones as `Elements/Oxygen`; empty where there is no such group."""

    @abstractmethod
    def attributes(self, place: str) -> tuple[str, ...]:
        """Names of the attributes of a group or of a `group/dataset`; empty where there is no such place."""

    @abstractmethod
    def attribute(self, place: str, name: str) -> Any:
        """The attribute `name` of a group or a `group/dataset`, None where there is none."""

    @abstractmethod
    def shape(self, group: str, dataset: str) -> tuple[int, ...]:
        """Shape of a dataset, rows first."""

    @abstractmethod
    def read(self, group: str, dataset: str, start: int, stop: int) -> ndarray:
        """The rows `start` to `stop` of a dataset as stored; raises ValueError where they cannot be read."""

    def contents(self, group: str = "") -> str:
        """The datasets of `group`, or the groups of the file, in words for messages."""
        found = self.datasets(group) if group else ()
        if found:
            unread = f"; not read: {', '.join(self.unread)}" if self.unread else ""
            return f"{group} has {', '.join(found)}{unread}"
        return f"the file has {', '.join(self.groups()) or 'nothing'}"

    def missing(self, group: str, dataset: str) -> ValueError:
        """The error for a dataset that is not there, which says what is."""
        return ValueError(f"{self.name}: {group}/{dataset} is missing; {self.contents(group)}")


@dataclass(frozen=True)
class Columns:
    """The datasets of a group: their names, and functions for the shape of one and for rows of it."""

    names: tuple[str, ...]
    shape: Callable[[str], tuple[int, ...]]
    read: Callable[[str, int, int], ndarray]


@dataclass(frozen=True)
class ColumnContainer(AbstractContainer):
    """Groups of columns that whoever opens a file puts together; `stated` has attributes by place, `tables` by group.

    A group of attributes only is None in `tables`.
    """

    name: str
    tables: Mapping[str, Columns | None]
    stated: Mapping[str, Mapping[str, Any]]
    unread: tuple[str, ...] = ()

    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(self.tables)

    def datasets(self, group: str) -> tuple[str, ...]:
        """Names of the columns."""
        columns = self.tables.get(group)
        return () if columns is None else columns.names

    def attributes(self, place: str) -> tuple[str, ...]:
        """Names of what is stated there."""
        return tuple(self.stated.get(place, ()))

    def attribute(self, place: str, name: str) -> Any:
        """The value stated there."""
        return self.stated.get(place, {}).get(name)

    def shape(self, group: str, dataset: str) -> tuple[int, ...]:
        """Shape of the column, rows first."""
        return self._columns(group, dataset).shape(dataset)

    def read(self, group: str, dataset: str, start: int, stop: int) -> ndarray:
        """The rows as stored; what is masked is NaN."""
        return self._columns(group, dataset).read(dataset, start, stop)

    def _columns(self, group: str, dataset: str) -> Columns:
        columns = self.tables.get(group)
        if columns is None or dataset not in columns.names:
            raise self.missing(group, dataset)
        return columns


def scalar(value: Any) -> Any:
    """The first element of an attribute stored as an array; the attribute itself where it is none."""
    array = np.asarray(value)
    return None if array.size == 0 else array.reshape(-1)[0]


def as_text(value: Any) -> str:
    """An attribute as text, empty where there is none; without the quotes that some writers begin it with."""
    first = None if value is None else scalar(value)
    if first is None:
        return ""
    text = first.decode("utf-8", "replace").strip() if isinstance(first, bytes) else str(first).strip()
    return text.strip(_QUOTES).strip() if text.startswith(tuple(_QUOTES)) else text


def as_number(value: Any) -> float | None:
    """An attribute as a finite float, None where there is none or it is no number."""
    first = None if value is None else scalar(value)
    try:
        number = None if first is None or np.iscomplexobj(first) else float(first)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and np.isfinite(number) else None

"""Columns of one table, read by rows from a file or from arrays, with units as astropy writes them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from astropy.table import meta
from numpy import ndarray

from rubix_like.config.yaml_files import count_nodes

ASTROPY_META = ".__table_column_meta__"
"""Ending of the dataset beside a table in HDF5 in which astropy keeps the columns' units."""


class AbstractColumns(ABC):
    """The interface of one table of a file: named columns, read by rows."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""

    @abstractmethod
    def unit(self, name: str) -> str | None:
        """The unit that the file states for a column, None where it states none."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a column, rows first."""

    @abstractmethod
    def read(self, name: str, start: int, stop: int) -> ndarray:
        """Rows of a column."""


@dataclass(frozen=True)
class ArrayColumns(AbstractColumns):
    """A table in memory: one array per column."""

    arrays: dict[str, ndarray]
    units: dict[str, str] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.arrays)

    def unit(self, name: str) -> str | None:
        """The stated unit."""
        return self.units.get(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of the array."""
        return self.arrays[name].shape

    def read(self, name: str, start: int, stop: int) -> ndarray:
        """Rows of the array."""
        return self.arrays[name][start:stop]


def yaml_units(lines: list[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Units and meta data in the YAML that astropy adds to tables in Parquet and HDF5."""
    count_nodes("\n".join(lines), "the table's meta data", tags=True)
    header = meta.get_header_from_yaml(lines)
    columns = {column["name"]: str(column["unit"]) for column in header["datatype"] if column.get("unit") is not None}
    return columns, dict(header.get("meta", {}))

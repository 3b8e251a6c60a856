"""Columns of one table, read by rows, and those that are held as arrays."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from numpy import ndarray


class AbstractColumns(ABC):
    """One table of a file."""

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
    """A table in memory."""

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

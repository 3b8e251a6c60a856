"""Several files of one snapshot as one container: their rows follow each other, group by group."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.readers.containers.container import AbstractContainer


@dataclass(frozen=True)
class JoinedContainer(AbstractContainer):
    """Open files whose rows are concatenated per group; what holds for all particles is that of the first file.

    `rows`: by group the number of rows of each part (0 where a part has none of it); `shapes`: of datasets that were
    asked for.
    """

    name: str
    parts: tuple[AbstractContainer, ...]
    rows: dict[str, tuple[int, ...]]
    unread: tuple[str, ...] = ()
    nests: bool = False
    shapes: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    @staticmethod
    def from_parts(name: str, parts: tuple[AbstractContainer, ...]) -> "JoinedContainer":
        """Join the parts; raises ValueError where a group's datasets are not the same in all that have rows of it."""
        groups = dict.fromkeys(group for part in parts for group in part.groups())
        rows = {group: tuple(_row_count(part, group) for part in parts) for group in groups}
        for group, counts in rows.items():
            having = [part for part, count in zip(parts, counts, strict=True) if count]
            for part in having[1:]:
                differing = set(part.datasets(group)) ^ set(having[0].datasets(group))
                if differing:
                    raise ValueError(
                        f"{part.name}: expected the datasets that {group} has in {having[0].name}; only one of them "
                        f"has {', '.join(sorted(differing))}; are they parts of one snapshot?"
                    )
        return JoinedContainer(name, parts, rows, parts[0].unread, parts[0].nests)

    def groups(self) -> tuple[str, ...]:
        """The groups of all parts."""
        return tuple(self.rows)

    def datasets(self, group: str) -> tuple[str, ...]:
        """The datasets of the parts that have rows of the group."""
        return next((part.datasets(group) for part, _, _ in self._having(group)), ())

    def attributes(self, place: str) -> tuple[str, ...]:
        """Names of the attributes, in the first part that has rows of the group."""
        return self._first_at(place).attributes(place)

    def attribute(self, place: str, name: str) -> Any:
        """The attribute, in the first part that has rows of the group."""
        return self._first_at(place).attribute(place, name)

    def shape(self, group: str, dataset: str) -> tuple[int, ...]:
        """Shape of the dataset in all parts together."""
        if (group, dataset) not in self.shapes:
            self.shapes[group, dataset] = self._joined_shape(group, dataset)
        return self.shapes[group, dataset]

    def _joined_shape(self, group: str, dataset: str) -> tuple[int, ...]:
        shapes = {self._own_shape(part, group, dataset, count)[1:] for part, count, _ in self._having(group)}
        if len(shapes) > 1:
            text = " and ".join(str(("N", *shape)).replace("'", "") for shape in sorted(shapes))
            raise ValueError(f"{self.name}: {group}/{dataset}: expected one shape in all files, got {text}")
        return (sum(self.rows.get(group, ())), *next(iter(shapes), ()))

    def read(self, group: str, dataset: str, start: int, stop: int) -> ndarray:
        """The rows from `start` to `stop`; each part reads only its own."""
        pieces = []
        for part, count, first in self._having(group):
            begin, end = max(start - first, 0), min(stop - first, count)
            if begin < end:
                self._own_shape(part, group, dataset, count)
                pieces.append(part.read(group, dataset, begin, end))
        return np.concatenate(pieces) if pieces else np.zeros((0, *self.shape(group, dataset)[1:]))

    def _own_shape(self, part: AbstractContainer, group: str, dataset: str, count: int) -> tuple[int, ...]:
        shape = part.shape(group, dataset)
        if shape[:1] != (count,):
            raise ValueError(
                f"{part.name}: {group}: expected as many rows in every dataset, got {count} and {dataset} {shape}; the "
                f"file is damaged or was cut out wrongly"
            )
        return shape

    def _having(self, group: str) -> list[tuple[AbstractContainer, int, int]]:
        """(part, its number of rows, its first row) of the parts that have rows of the group."""
        counts = self.rows.get(group, ())
        firsts = np.concatenate([[0], np.cumsum(counts)]).astype(int).tolist()
        return [(part, count, first) for part, count, first in zip(self.parts, counts, firsts, strict=False) if count]

    def _first_at(self, place: str) -> AbstractContainer:
        """The part to ask for attributes: the first with rows of the group, else the first."""
        return next((part for part, _, _ in self._having(place.partition("/")[0])), self.parts[0])


def _row_count(container: AbstractContainer, group: str) -> int:
    """Rows of a group by its first dataset; 0 where it has none."""
    shape = next((container.shape(group, name) for name in container.datasets(group)), ())
    return shape[0] if shape else 0

"""All stars of a galaxy gone through slab by slab, each process its share: for what is found before they are placed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from rubix_like.progress import Report, silent
from rubix_like.readers.columns import Table, row_count, stacked
from rubix_like.team import ALONE, AbstractTeam

SLAB_STARS: int = 1 << 18
"""Stars whose columns are held at once."""


ReadStars = Callable[[int, int, Collection[str]], Table]
"""Columns of the stars from a first to a last (exclusive) one."""


class AbstractStars(ABC):
    """The stars of a galaxy; every process of the `team` goes through its share of them."""

    team: AbstractTeam

    @property
    @abstractmethod
    def n_stars(self) -> int:
        """Number of stars, in all shares."""

    @abstractmethod
    def slabs(self, names: Collection[str], what: str) -> Iterator[Table]:
        """These columns of this process's stars, one slab after the other; `what` is being done, for the progress."""

    @abstractmethod
    def every(self, step: int, names: Collection[str]) -> Table:
        """These columns of every `step`-th star of all, from the first, in every process."""


@dataclass(frozen=True)
class HeldStars(AbstractStars):
    """Stars that every process holds, as `table`."""

    table: Table
    team: AbstractTeam = ALONE

    @property
    def n_stars(self) -> int:
        """Number of stars."""
        return row_count(self.table)

    def slabs(self, names: Collection[str], what: str) -> Iterator[Table]:
        """All stars: there is nothing to share."""
        del what
        for start in range(0, self.n_stars, SLAB_STARS):
            yield {name: self.table[name][start : start + SLAB_STARS] for name in names}

    def every(self, step: int, names: Collection[str]) -> Table:
        """Views of the table."""
        return {name: self.table[name][::step] for name in names}


@dataclass(frozen=True)
class StoredStars(AbstractStars):
    """The `count` selected stars of a file; nothing is read but what is gone through."""

    count: int
    read: ReadStars
    team: AbstractTeam = ALONE
    report: Report = silent

    @property
    def n_stars(self) -> int:
        """Number of selected stars."""
        return self.count

    def slabs(self, names: Collection[str], what: str) -> Iterator[Table]:
        """Columns of this process's share of the stars."""
        for _, table in self._numbered(names, what):
            yield table

    def every(self, step: int, names: Collection[str]) -> Table:
        """The sample, gathered from all processes."""

        def own() -> Table:
            parts = [
                {name: table[name][-start % step :: step].copy() for name in names}
                for start, table in self._numbered(names, "stars for the centre read")
            ]
            return stacked(parts or [self.read(0, 0, names)])

        return stacked(self.team.exchange(own))

    def _numbered(self, names: Collection[str], what: str) -> Iterator[tuple[int, Table]]:
        """Slabs with the number of their first star."""
        first, last = self.team.share(self.n_stars)
        for start in range(first, last, SLAB_STARS):
            stop = min(start + SLAB_STARS, last)
            yield start, self.read(start, stop, names)
            self.report(what, stop - first, last - first)

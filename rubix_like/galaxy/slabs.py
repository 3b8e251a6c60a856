"""A galaxy in slabs: cut, read ahead and placed, so that it never is in memory all at once."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from jax.sharding import Mesh
from jax.tree_util import keystr, tree_leaves_with_path

from rubix_like.galaxy.galaxy_parts import GalaxyParts
from rubix_like.galaxy.particles import Galaxy, expect_galaxy
from rubix_like.galaxy.placing import place_rows
from rubix_like.runtime.mesh.mesh import DATA_AXIS, pad_on_host, process_count, size_class
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup

Item = TypeVar("Item")


@dataclass(frozen=True)
class SlabCuts:
    """Where a process's own share of a galaxy is cut into `n_slab` slabs, all of the same size but for one particle.

    Every process has as many slabs, so some may be empty. `size`: particles of one kind in the largest slab of any
    process; `stars`, `gas`: first and last (exclusive) of the share; None where the slabs have no gas.
    """

    n_slab: int
    size: int
    stars: tuple[int, int]
    gas: tuple[int, int] | None

    @classmethod
    def of(cls, parts: GalaxyParts, size: int, *, with_gas: bool, team: AbstractProcessGroup = SINGLE) -> "SlabCuts":
        """Slabs of at most `size` stars and as much gas (none without `with_gas`)."""
        n_gas = parts.n_gas if with_gas else 0
        most = -(-max(parts.n_stars, n_gas) // team.size)
        n_slab = max(1, -(-most // size))
        gas = team.share(n_gas) if n_gas else None
        return cls(n_slab, -(-most // n_slab), team.share(parts.n_stars), gas)

    def read(self, parts: GalaxyParts) -> Iterator[Galaxy]:
        """The slabs, each read when it is asked for."""
        for number in range(self.n_slab):
            gas = None if self.gas is None else parts.read_gas(*self._range(self.gas, number))
            yield Galaxy(stars=parts.read_stars(*self._range(self.stars, number)), gas=gas)

    def sample(self, parts: GalaxyParts) -> Galaxy:
        """The first particle of each kind, or none of an empty share, with the columns of all slabs."""

        def first(share: tuple[int, int]) -> tuple[int, int]:
            return share[0], min(share[0] + 1, share[1])

        gas = None if self.gas is None else parts.read_gas(*first(self.gas))
        return Galaxy(stars=parts.read_stars(*first(self.stars)), gas=gas)

    def _range(self, share: tuple[int, int], number: int) -> tuple[int, int]:
        first, n = share[0], share[1] - share[0]
        return first + n * number // self.n_slab, first + n * (number + 1) // self.n_slab


def place_slabs(slabs: Iterable[Galaxy], dtype: str, mesh: Mesh, *, with_gas: bool, size: int = 0) -> Iterator[Galaxy]:
    """The slabs on the mesh, each padded to the size class of `size` particles, or of the largest slab so far.

    On a mesh of several processes each gives its own slabs, as many in all, and `size` is the same in all. Raises
    ValueError where slabs have different columns: they are parts of one galaxy.
    """
    n_process = process_count(mesh)
    if n_process > 1 and not size:
        raise ValueError(
            f"slabs: expected a mesh of one process's devices, got one of {n_process} processes, whose slabs must have "
            f"one size; use rubix_like.runs.run with engine.slab"
        )
    columns, n_rows = "", 0
    for number, whole in enumerate(slabs, start=1):
        expect_galaxy(whole, f"slabs[{number - 1}]")
        slab = whole if with_gas else Galaxy(stars=whole.stars)
        found = columns_of(slab)
        if found != (columns := columns or found):
            raise ValueError(f"slab {number}: expected the columns of the slabs before, {columns}, got {found}")
        largest = max(size, *(len(kind.position) for kind in (slab.stars, slab.gas) if kind is not None))
        n_rows = max(n_rows, size_class(largest, mesh.shape[DATA_AXIS] // n_process))
        placed = _placed(slab, n_rows, dtype, mesh)
        del whole, slab  # the next one is read while this one waits here
        yield placed
        del placed


def columns_of(slab: Galaxy) -> str:
    """The names of the columns of stars and gas."""
    return ", ".join(keystr(path).lstrip(".") for path, _ in tree_leaves_with_path(slab))


def _placed(slab: Galaxy, n_rows: int, dtype: str, mesh: Mesh) -> Galaxy:
    """The slab on the mesh like `shard`, but assembled on the host: no device holds more than its own particles."""
    gas = None if slab.gas is None else pad_on_host(slab.gas, n_rows, dtype)
    padded = Galaxy(stars=pad_on_host(slab.stars, n_rows, dtype), gas=gas)
    return place_rows(padded, mesh)


@contextmanager
def read_ahead(items: Iterator[Item]) -> Iterator[Iterator[Item]]:
    """The items, each made in a background thread while the one before is used; at most two exist."""

    def next_item() -> list[Item]:
        return list(islice(items, 1))

    def coming() -> Iterator[Item]:
        waiting = pool.submit(next_item)
        while found := waiting.result():
            waiting = pool.submit(next_item)
            yield found.pop()

    with ThreadPoolExecutor(1, thread_name_prefix="slab") as pool:
        yield coming()

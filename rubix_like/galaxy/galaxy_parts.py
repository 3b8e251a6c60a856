"""Galaxies that are read in parts, by readers or from memory, and slabs of them, of which few are held at a time."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from numbers import Integral
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
from jax.sharding import Mesh
from jax.tree_util import keystr, tree_leaves_with_path

from rubix_like.errors import expect
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars, expect_galaxy
from rubix_like.galaxy.placing import place_rows
from rubix_like.runtime.mesh.mesh import DATA_AXIS, pad_on_host, process_count, size_class
from rubix_like.runtime.processes.process_group import SINGLE, AbstractProcessGroup

Item = TypeVar("Item")


@runtime_checkable
class GalaxyParts(Protocol):
    """A galaxy that can be read in any ranges of stars or gas particles; the parts together are the whole."""

    @property
    def info(self) -> GalaxyInfo:
        """All that is known of the whole galaxy."""
        ...

    @property
    def n_stars(self) -> int:
        """Number of stars."""
        ...

    @property
    def n_gas(self) -> int:
        """Number of gas particles."""
        ...

    def read_stars(self, start: int, stop: int) -> Stars:
        """The stars `start` to `stop` (exclusive)."""
        ...

    def read_gas(self, start: int, stop: int) -> Gas | None:
        """The gas particles `start` to `stop` (exclusive); None where the galaxy has none."""
        ...


@runtime_checkable
class SlabReader(Protocol):
    """A reader that can leave the particles in the file and tells how far it is."""

    open_galaxy: Callable[..., AbstractContextManager[GalaxyParts]]
    load: Callable[..., tuple[Galaxy, GalaxyInfo]]


@runtime_checkable
class CountingReader(Protocol):
    """A reader that tells roughly how large its file is before any particle is read."""

    def has_more_stars(self, limit: int) -> bool:
        """Whether the file has more than `limit` stars, selected or not."""
        ...


@dataclass(frozen=True)
class GalaxyInMemory:
    """The parts of a galaxy that is held as a whole."""

    galaxy: Galaxy
    info: GalaxyInfo

    @property
    def n_stars(self) -> int:
        """Number of stars."""
        return len(self.galaxy.stars.initial_mass)

    @property
    def n_gas(self) -> int:
        """Number of gas particles."""
        return 0 if self.galaxy.gas is None else len(self.galaxy.gas.mass)

    def read_stars(self, start: int, stop: int) -> Stars:
        """The stars `start` to `stop` (exclusive)."""
        return _part(self.galaxy.stars, start, stop)

    def read_gas(self, start: int, stop: int) -> Gas | None:
        """The gas particles `start` to `stop` (exclusive); None where the galaxy has none."""
        return None if self.galaxy.gas is None else _part(self.galaxy.gas, start, stop)


def _part(particles: Any, start: int, stop: int) -> Any:
    check_range(start, stop, len(particles.position))
    return jax.tree.map(lambda leaf: leaf[start:stop], particles)


def check_range(start: int, stop: int, n_particle: int) -> None:
    """Raise ValueError unless `start` to `stop` (exclusive) are rows of a galaxy of `n_particle`."""
    expect(start, Integral, "start", "a whole number")
    expect(stop, Integral, "stop", "a whole number")
    if not 0 <= start <= stop <= n_particle:
        raise ValueError(f"expected 0 <= start <= stop <= {n_particle}, got start {start} and stop {stop}")


@dataclass(frozen=True)
class SlabCuts:
    """Cuts of a process's share of a galaxy into `n_slab` slabs, all of the same size but for one particle.

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

    On a mesh of several processes each gives its slabs, as many in all, and `size` is the same in all. Raises
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
        gas = None if slab.gas is None else pad_on_host(slab.gas, n_rows, dtype)
        # assembled on the host, unlike by `shard`: no device holds more than its particles
        placed = place_rows(Galaxy(stars=pad_on_host(slab.stars, n_rows, dtype), gas=gas), mesh)
        del whole, slab, gas  # the next one is read while this one waits here
        yield placed
        del placed


def columns_of(slab: Galaxy) -> str:
    """The names of the columns of stars and gas."""
    return ", ".join(keystr(path).lstrip(".") for path, _ in tree_leaves_with_path(slab))


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

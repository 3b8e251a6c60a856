"""Slabs: parts of a galaxy that are read, one after the other, while the one before is painted."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jax.tree_util import keystr, tree_leaves_with_path

from rubix_like.galaxy import Galaxy, Gas, Stars
from rubix_like.readers.parts import GalaxyParts
from rubix_like.sharding import DATA_AXIS, particle_shardings, size_class
from rubix_like.stages.base import AbstractComponent
from rubix_like.team import AbstractTeam, Alone

Item = TypeVar("Item")


@dataclass(frozen=True)
class SlabCuts:
    """Where a process's own share of a galaxy is cut into `n_slab` slabs, all of the same size but for one particle.

    Every process has as many slabs, so some may be empty. `stars`, `gas`: first and last (exclusive) of the share; None
    where the slabs have no gas.
    """

    n_slab: int
    stars: tuple[int, int]
    gas: tuple[int, int] | None

    @classmethod
    def of(cls, parts: GalaxyParts, size: int, *, with_gas: bool, team: AbstractTeam | None = None) -> "SlabCuts":
        """Slabs of at most `size` stars and as much gas (none without `with_gas`)."""
        team = team or Alone()
        n_gas = parts.n_gas if with_gas else 0
        most = -(-max(parts.n_stars, n_gas) // team.size)
        gas = team.share(n_gas) if n_gas else None
        return cls(max(1, -(-most // size)), team.share(parts.n_stars), gas)

    @property
    def size(self) -> int:
        """Particles of one kind in the largest slab."""
        return max(-(-(last - first) // self.n_slab) for first, last in (self.stars, self.gas or (0, 0)))

    def read(self, parts: GalaxyParts) -> Iterator[Galaxy]:
        """The slabs, each read when it is asked for."""
        for number in range(self.n_slab):
            gas = None if self.gas is None else parts.read_gas(*self._range(self.gas, number))
            yield Galaxy(stars=parts.read_stars(*self._range(self.stars, number)), gas=gas)

    def sample(self, parts: GalaxyParts) -> Galaxy:
        """The first particle of each kind, which has the columns of all slabs."""
        return Galaxy(stars=parts.read_stars(0, 1), gas=None if self.gas is None else parts.read_gas(0, 1))

    def _range(self, share: tuple[int, int], number: int) -> tuple[int, int]:
        first, n = share[0], share[1] - share[0]
        return first + n * number // self.n_slab, first + n * (number + 1) // self.n_slab


def paints_gas(components: Sequence[AbstractComponent]) -> bool:
    """Whether any component looks at the gas."""
    one, place = np.ones(1), np.ones((1, 3))
    stars = Stars(place, place, one, one, one, one, one)

    def particles(gas: Gas) -> list[Any]:
        return [component.particles(Galaxy(stars=stars, gas=gas)) for component in components]

    jaxpr = jax.make_jaxpr(particles)(Gas(place, place, *[one] * 10)).jaxpr
    looked_at = {id(x) for equation in jaxpr.eqns for x in equation.invars} | {id(x) for x in jaxpr.outvars}
    return any(id(x) in looked_at for x in jaxpr.invars)


def place_slabs(slabs: Iterable[Galaxy], dtype: str, mesh: Mesh, *, with_gas: bool, size: int = 0) -> Iterator[Galaxy]:
    """The slabs on the mesh, each padded to the size class of `size` particles, or of the largest slab so far.

    Raises ValueError where slabs have different columns: they are parts of one galaxy.
    """
    columns, n_rows = "", 0
    for number, whole in enumerate(slabs, start=1):
        slab = whole if with_gas else Galaxy(stars=whole.stars)
        found = _columns(slab)
        if found != (columns := columns or found):
            raise ValueError(f"slab {number}: expected the columns of the slabs before, {columns}, got {found}")
        largest = max(size, *(len(kind.position) for kind in (slab.stars, slab.gas) if kind is not None))
        n_rows = max(n_rows, size_class(largest, mesh.shape[DATA_AXIS]))
        placed = _placed(slab, n_rows, dtype, mesh)
        del whole, slab  # the next one is read while this one waits here
        yield placed
        del placed


def _columns(slab: Galaxy) -> str:
    return ", ".join(keystr(path).lstrip(".") for path, _ in tree_leaves_with_path(slab))


def _placed(slab: Galaxy, n_rows: int, dtype: str, mesh: Mesh) -> Galaxy:
    """As `sharding.shard`, put together on the host, so that no device ever holds more than its own particles."""
    gas = None if slab.gas is None else _padded(slab.gas, n_rows, dtype)
    padded = Galaxy(stars=_padded(slab.stars, n_rows, dtype), gas=gas)
    return jax.device_put(padded, particle_shardings(padded, mesh))


def _padded(particles: Any, n_rows: int, dtype: str) -> Any:
    """Particles of one kind with `n_rows` rows: those that are not there are like the last one, with a weight of 0.

    Where there is none at all they are 1 in everything: no number is broken, no logarithm infinite.
    """
    n_particles = len(particles.position)

    def pad(leaf: Any) -> np.ndarray:
        values = np.empty((n_rows, *np.shape(leaf)[1:]), dtype)
        values[:n_particles] = leaf
        values[n_particles:] = values[n_particles - 1] if n_particles else 1
        return values

    weight = np.ones(n_particles) if particles.weight is None else particles.weight
    weighted = eqx.tree_at(lambda p: p.weight, particles, weight, is_leaf=lambda leaf: leaf is None)
    padded = jax.tree.map(pad, weighted)
    padded.weight[n_particles:] = 0
    return padded


@contextmanager
def read_ahead(items: Iterator[Item]) -> Iterator[Iterator[Item]]:
    """The items, of which each is made in a background thread while the one before is used: two at most are there."""

    def one() -> list[Item]:
        return list(islice(items, 1))

    def coming() -> Iterator[Item]:
        waiting = pool.submit(one)
        while made := waiting.result():
            waiting = pool.submit(one)
            yield made.pop()

    with ThreadPoolExecutor(1, thread_name_prefix="slab") as pool:
        yield coming()

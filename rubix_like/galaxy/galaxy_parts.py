"""Galaxies that are read in parts: the interface that readers offer, and the same for a galaxy in memory."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import jax

from rubix_like.errors import expect
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo, Gas, Stars


@runtime_checkable
class GalaxyParts(Protocol):
    """A galaxy that can be read in any ranges of stars or gas particles; the parts together are the whole."""

    @property
    def info(self) -> GalaxyInfo:
        """What is known of the whole galaxy."""
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

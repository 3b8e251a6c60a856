"""The parameters of every simulation: drawn from priors by the simulation's number, or given."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.parameters import Declaration
from rubix_like.errors import ConfigError
from rubix_like.inference.posterior.fit_model import Free, many_values, read_values
from rubix_like.inference.posterior.free_parameters import find_parameter, settings_of
from rubix_like.runtime.arrays_on_disk import key_of

DRAWS: str = "draws"
"""The place that errors name for parameters whose values are given."""

_BLOCK = 64
"""Draws whose values are computed by one call. Blocks begin at multiples of it whatever is asked for, so that the bits
of a draw do not depend on its neighbours."""

_TURN = 360.0

_ROOM = 1e-6
"""Relative width of the range that stands for equal draws."""

Values = Mapping[str, Float[ndarray, "simulation ..."]]
"""Dotted name -> values of all simulations at hand, in the unit of the configuration's key."""


class AbstractDraws(ABC):
    """A source of the parameters of simulations."""

    @abstractmethod
    def drawn(self, start: int, stop: int) -> dict[str, ndarray]:
        """The values of the simulations `start` to `stop` (exclusive)."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Something that is different where the draws are."""


@dataclass(frozen=True, eq=False)
class PriorDraws(AbstractDraws):
    """Drawn from the priors of free parameters: those of number i depend on the seed and on i alone."""

    free: Free
    seed: int

    def drawn(self, start: int, stop: int) -> dict[str, ndarray]:
        """The priors' values of standard normal latents, numpy's default generator of (seed, number)."""
        first, last = start // _BLOCK, -(-stop // _BLOCK)
        blocks = [many_values(self.free, self._latents(block)) for block in range(first, last)]
        cut = slice(start - first * _BLOCK, stop - first * _BLOCK)
        return {name: np.concatenate([np.asarray(block[name]) for block in blocks])[cut] for name in self.free.names}

    def fingerprint(self) -> str:
        """The key of the priors and their names; the seed has another."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.free)]
        return key_of(jax.tree.structure(self.free), *leaves)

    def _latents(self, block: int) -> Float[ndarray, "draw latent"]:
        numbers = range(block * _BLOCK, (block + 1) * _BLOCK)
        rows = [np.random.default_rng([self.seed, number]).standard_normal(self.free.n_latent) for number in numbers]
        return np.stack(rows).astype(jax.dtypes.canonicalize_dtype(float))


@dataclass(frozen=True, eq=False)
class GivenDraws(AbstractDraws):
    """Parameters that are given, one value per simulation."""

    given: Values

    def drawn(self, start: int, stop: int) -> dict[str, ndarray]:
        """A part of what was given."""
        return {name: values[start:stop] for name, values in self.given.items()}

    def fingerprint(self) -> str:
        """The key of names and numbers."""
        return key_of(*(part for name, values in self.given.items() for part in (name, values)))


@dataclass(frozen=True, eq=False)
class ObservationDraws(AbstractDraws):
    """The parameters of one of several observations, of draws for all; `names`: its name -> the name in all."""

    every: AbstractDraws
    names: Mapping[str, str]

    def drawn(self, start: int, stop: int) -> dict[str, ndarray]:
        """The observation's among all values."""
        values = self.every.drawn(start, stop)
        return {name: values[full] for name, full in self.names.items()}

    def fingerprint(self) -> str:
        """The key of all draws and the observation's names."""
        return key_of(self.every.fingerprint(), *(part for names in self.names.items() for part in names))


def read_draws(draws: Mapping[str, Any]) -> dict[str, ndarray]:
    """Checked draws: arrays with one row per simulation, in the unit of the parameter (or quantities).

    Raises ConfigError for unknown names, numbers of rows that differ, and values that are not finite.
    """
    if not draws:
        raise ConfigError("draws: expected at least one parameter with its values, got none")
    for name, values in draws.items():
        if not (isinstance(values, list | tuple) or np.ndim(values)) or not len(values):
            remedy = "; give priors as priors={...}" if isinstance(values, Mapping) else ""
            raise ConfigError(f"draws.{name}: expected an array with one value per simulation, got {values!r}{remedy}")
    found = dict[str, ndarray]()
    with named_in(DRAWS):
        for name, values in draws.items():
            given = values if isinstance(values, list | tuple | ndarray) else np.asarray(values, np.float64)
            found[name] = np.asarray(read_values(f"draws.{name}", given, find_parameter(name).unit), np.float64)
    first, n = next((name, len(values)) for name, values in found.items())
    for name, values in found.items():
        if len(values) != n or n < 1:
            raise ConfigError(
                f"draws.{name}: expected one value per simulation, as many as {first} has ({n}) and at least 1, got "
                f"{len(values)}"
            )
        if not np.isfinite(values).all():
            raise ConfigError(f"draws.{name}: expected finite numbers, got others; leave these draws out")
        _check_limits(find_parameter(name), values)
    return found


def _check_limits(declared: Declaration, values: ndarray) -> None:
    """Raise ConfigError for values that a parameter cannot have."""
    unit = f" {declared.unit}" if declared.unit else ""
    for extreme in (np.asarray(values.min(axis=0)), np.asarray(values.max(axis=0))):
        for setting in settings_of(declared.name, extreme):
            fault = declared.fault(setting.tolist())
            if fault is not None:
                raise ConfigError(
                    f"draws.{declared.name}: expected values within the parameter's limits, got {setting.flat[0]:.4g}"
                    f"{unit}: {fault}; leave it out, or check its unit"
                )
    if declared.unit == "deg" and np.ptp(values, axis=0).max() > _TURN:
        raise ConfigError(
            f"draws.{declared.name}: expected angles within {_TURN:g} deg of each other, got {values.min():.4g} to "
            f"{values.max():.4g} deg; take them modulo {_TURN:g} deg"
        )


def spanned_priors(draws: Values) -> dict[str, Any]:
    """Uniform priors between the extremes of given draws, for which a model is then planned and checked."""
    found = {}
    for name, values in draws.items():
        low, high = values.min(axis=0), values.max(axis=0)
        room = np.where(high > low, 0.0, _ROOM * np.maximum(np.abs(high), 1.0))  # equal draws are moved apart a little
        if find_parameter(name).fault(np.asarray(high + room).tolist()) is None:
            high = high + room
        else:
            low = low - room
        found[name] = {"uniform": [np.asarray(low).tolist(), np.asarray(high).tolist()]}
    return found


@contextmanager
def named_in(place: str):
    """Errors inside that name a parameter under `fit.free` name it under `place`."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(words_for(place, str(error))) from error


def words_for(place: str, text: str) -> str:
    """An error or a note on parameters under `fit.free` for those under `place`: given draws have no prior."""
    text = text.replace("fit.free", place)
    return re.sub(r"\b(a|its|the) prior\b", r"\1 range of draws", text) if place == DRAWS else text

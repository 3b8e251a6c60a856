"""What is free in a fit: dotted names with priors and shapes, and one flat vector of latents for all of them."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from rubix_like.config.quantities import parse_number, parse_quantity
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.priors import PRIORS, AbstractPrior

Latent = Float[Array, " latent"]
Values = Mapping[str, Float[Array, "..."]]
"""Dotted name -> value of each free parameter, in the unit of the configuration's key."""


class FreeParameter(eqx.Module):
    """One name with its prior, the shape of its value, and its unit (empty: a number)."""

    prior: AbstractPrior
    name: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True, default=())
    unit: str = eqx.field(static=True, default="")

    @property
    def size(self) -> int:
        """How many latents it has."""
        return math.prod(self.shape)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each latent: that of the parameter, with an index where it has several."""
        indices = [",".join(map(str, index)) for index in np.ndindex(self.shape)]
        return tuple(f"{self.name}[{index}]" if index else self.name for index in indices)


class Free(eqx.Module):
    """All free parameters, in the order of their latents."""

    parameters: tuple[FreeParameter, ...]

    @property
    def n_latent(self) -> int:
        """Length of the vector of latents."""
        return sum(parameter.size for parameter in self.parameters)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each latent."""
        return tuple(label for parameter in self.parameters for label in parameter.labels)

    @property
    def names(self) -> tuple[str, ...]:
        """The dotted names."""
        return tuple(parameter.name for parameter in self.parameters)

    def values(self, latent: Latent) -> dict[str, Array]:
        """The value of every parameter; differentiable."""
        values, start = {}, 0
        for parameter in self.parameters:
            own = latent[start : start + parameter.size].reshape(parameter.shape)
            values[parameter.name] = parameter.prior.value(own)
            start += parameter.size
        return values

    def latent(self, values: Mapping[str, ArrayLike]) -> Latent:
        """The latents of the values of all parameters, each broadcast to its shape; concrete only.

        Raises ValueError outside a prior's support.
        """
        parts = []
        for parameter in self.parameters:
            value = jnp.broadcast_to(jnp.asarray(values[parameter.name], _dtype()), parameter.shape)
            own = parameter.prior.latent(value)
            if not bool(jnp.isfinite(own).all()):
                raise ValueError(
                    f"{parameter.name}: expected a value inside its prior, {parameter.prior}, got {value}; widen the "
                    f"prior or start elsewhere"
                )
            parts.append(own.reshape(-1))
        return jnp.concatenate(parts)

    def draw(self, seed: int, count: int) -> Float[Array, "count latent"]:
        """Latents drawn from the prior on the host (numpy's default generator)."""
        return jnp.asarray(np.random.default_rng(seed).standard_normal((count, self.n_latent)), _dtype())


def _dtype() -> Any:
    return jax.dtypes.canonicalize_dtype(float)


def read_prior(name: str, prior: AbstractPrior | Mapping[str, Any], unit: str) -> AbstractPrior:
    """The prior that `{kind: numbers}` describes, quantities in `unit` (empty: plain numbers); ConfigError if none."""
    chosen = prior if isinstance(prior, AbstractPrior) else _parse_prior(name, prior, unit)
    fault = chosen.fault()
    if fault is not None:
        raise ConfigError(f"fit.free.{name}: {fault}")
    return chosen


def _parse_prior(name: str, prior: Mapping[str, Any], unit: str) -> AbstractPrior:
    if not isinstance(prior, Mapping) or len(prior) != 1:
        raise ConfigError(f"fit.free.{name}: expected one prior, e.g. {{uniform: [0, 1]}}, got {prior!r}")
    (kind, numbers), *_ = prior.items()
    if kind not in PRIORS:
        raise ConfigError(f"fit.free.{name}: unknown prior '{kind}'{suggest(str(kind), PRIORS)}")
    made, in_unit = PRIORS[kind]
    if len(numbers) != len(in_unit):
        raise ConfigError(f"fit.free.{name}: expected {len(in_unit)} numbers after '{kind}', got {list(numbers)}")
    try:
        parsed = [
            parse_quantity(value, unit) if has_unit and unit else parse_number(value)
            for value, has_unit in zip(numbers, in_unit, strict=True)
        ]
    except ValueError as error:
        raise ConfigError(f"fit.free.{name}: {error}") from error
    return made(*parsed)

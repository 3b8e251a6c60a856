"""The free parameters of a fit: dotted names with priors and shapes, and one flat vector of latents for all of them."""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from rubix_like.config.quantities import parse_number, parse_quantity
from rubix_like.errors import ConfigError
from rubix_like.inference.posterior.priors import (
    CENTRES,
    MIXTURE,
    PURE,
    AbstractPrior,
    Isotropic,
    Mixture,
    as_float,
    check_kind,
    checked_parts,
    find_kind,
    section_of,
)
from rubix_like.physics.units import plain_numbers

Latent = Float[Array | np.ndarray, " latent"]
Values = Mapping[str, Float[Array | np.ndarray | np.floating, "..."]]
"""Dotted name -> value of each free parameter, in the unit of the configuration's key."""

OF_GALAXY: str = "galaxy"
"""Stands in a configuration for the values that the galaxy has."""

NOISE_SCALE: str = "noise_scale"
"""Name of the factor on the standard deviations of the data, where it is free."""


LIKELIHOOD: str = "likelihood."
"""Beginning of the names of the likelihood's own parameters."""

OF_DATA: str = "data."
"""Beginning of the names of what is not known of one of several sets of data: data.NAME.scale."""


class FreeParameter(eqx.Module):
    """One name with its prior, the shape of its value, its unit (empty: a number) and what it means."""

    prior: AbstractPrior
    name: str = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True, default=())
    unit: str = eqx.field(static=True, default="")
    meaning: str = eqx.field(static=True, default="")

    @property
    def size(self) -> int:
        """How many latents it has."""
        return math.prod(self.shape)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each latent: that of the parameter, with an index where it has several."""
        indices = [",".join(map(str, index)) for index in np.ndindex(self.shape)]
        return tuple(f"{self.name}[{index}]" if index else self.name for index in indices)


class Correlated(eqx.Module):
    """Parameters whose priors are correlated: `half` half^T is the correlation matrix of their own normal variables."""

    half: Float[Array | np.ndarray, "own own"]
    names: tuple[str, ...] = eqx.field(static=True)


class Free(eqx.Module):
    """All free parameters, in the order of their latents.

    The latents are independent. A parameter's prior maps a standard normal variable of its own to its value: its latent
    or, of `correlated` parameters, a sum of the latents of several.
    """

    parameters: tuple[FreeParameter, ...]
    correlated: tuple[Correlated, ...] = ()

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

    @property
    def places(self) -> dict[str, slice]:
        """The slice of each parameter among the latents, by its name."""
        ends = np.cumsum([parameter.size for parameter in self.parameters]).tolist()
        return {own.name: slice(end - own.size, end) for own, end in zip(self.parameters, ends, strict=True)}

    def has(self, *beginnings: str) -> bool:
        """Whether a parameter is free whose name begins with one of these."""
        return any(name.startswith(beginnings) for name in self.names)

    def values(self, latent: Float[Array | np.ndarray, "*n latent"]) -> dict[str, Any]:
        """The value of every parameter; differentiable. Of latents on the host numpy's arrays."""
        return self._values_of(self.own_normals(latent))

    def _values_of(self, normals: Float[Array | np.ndarray, "*n latent"]) -> dict[str, Any]:
        places, before = self.places, normals.shape[:-1]
        return {
            own.name: own.prior.value(normals[..., places[own.name]].reshape((*before, *own.shape)))
            for own in self.parameters
        }

    def own_normals(self, latent: Float[Array | np.ndarray, "*n latent"]) -> Any:
        """The standard normal variable of each value: its latent, but for correlated parameters."""
        return self._mixed(latent, lambda half, own: own @ half.T)

    def of_own_normals(self, normals: Float[Array | np.ndarray, "*n latent"]) -> Any:
        """The latents of the values' own standard normal variables: the inverse of `own_normals`."""
        return self._mixed(
            normals,
            lambda half, own: own @ (np.linalg.inv(half) if isinstance(half, np.ndarray) else jnp.linalg.inv(half)).T,
        )

    def _mixed(self, vector: Any, change: Any) -> Any:
        for group in self.correlated:
            places = np.array([self.places[name].start for name in group.names])
            changed = change(
                np.asarray(group.half) if isinstance(vector, np.ndarray) else group.half, vector[..., places]
            )
            if isinstance(vector, np.ndarray):
                vector = np.array(vector)
                vector[..., places] = changed
            else:
                vector = vector.at[..., places].set(changed)
        return vector

    @property
    def mixing(self) -> Float[np.ndarray, "latent latent"]:
        """M with own_normals(x) = M x."""
        return np.asarray(self.own_normals(np.eye(self.n_latent))).T

    def value(self, name: str, latent: Latent) -> Any | None:
        """The value of one parameter; None where it is not free."""
        return self.values(latent).get(name)

    def split(self, flat: Shaped[np.ndarray, "*n latent"]) -> dict[str, np.ndarray]:
        """Numbers in the order of the labels as arrays of the parameters' shapes, by name."""
        places, before = self.places, flat.shape[:-1]
        return {
            parameter.name: flat[..., places[parameter.name]].reshape((*before, *parameter.shape))
            for parameter in self.parameters
        }

    def join(self, values: Mapping[str, Shaped[np.ndarray, "..."]]) -> Shaped[np.ndarray, "*n latent"]:
        """Arrays by name as numbers in the order of the labels: what `split` has split."""
        pairs = [(np.asarray(values[parameter.name]), parameter) for parameter in self.parameters]
        rows = [
            value.reshape((*value.shape[: value.ndim - len(parameter.shape)], parameter.size))
            for value, parameter in pairs
        ]
        return np.concatenate(rows, axis=-1)

    def flat(self, latent: Float[Array | np.ndarray, "*n latent"]) -> Float[Array | np.ndarray, "*n latent"]:
        """The values in the order of the labels."""
        return self.flat_of(self.own_normals(latent))

    def flat_of(self, normals: Float[Array | np.ndarray, "*n latent"]) -> Float[Array | np.ndarray, "*n latent"]:
        """The values of their own standard normal variables, each of which makes one value."""
        rows = [value.reshape((*normals.shape[:-1], -1)) for value in self._values_of(normals).values()]
        return np.concatenate(rows, axis=-1) if isinstance(normals, np.ndarray) else jnp.concatenate(rows, axis=-1)

    def slopes(self, latent: Latent) -> Float[np.ndarray, " latent"]:
        """Derivatives of the values by their own standard normal variables, in the order of the labels; concrete."""
        return np.asarray(_slopes(self, np.asarray(self.own_normals(np.asarray(latent, _dtype())))))

    def latent(self, values: Mapping[str, ArrayLike]) -> Float[np.ndarray, " latent"]:
        """The latents of the values of all parameters, each broadcast to its shape; concrete only.

        Raises ValueError outside a prior's support.
        """
        parts = []
        for parameter in self.parameters:
            value = np.asarray(values[parameter.name], _dtype())
            if value.shape not in {(), parameter.shape}:
                raise ValueError(f"{parameter.name}: expected shape {parameter.shape}, got {value.shape}")
            value = np.broadcast_to(value, parameter.shape)
            with np.errstate(divide="ignore", invalid="ignore"):
                latent = np.asarray(parameter.prior.latent(value))
            outside = np.asarray(~np.isfinite(latent))
            if outside.any():
                share = f" ({np.count_nonzero(outside)} of {outside.size} values)" if outside.size > 1 else ""
                raise ValueError(
                    f"{parameter.name}: expected a value inside its prior, {shown(parameter.prior)}, got "
                    f"{np.asarray(value)[outside].flat[0]:g}{share}; widen the prior or start elsewhere"
                )
            parts.append(latent.reshape(-1))
        return self.of_own_normals(np.concatenate(parts))

    def traced_latent(self, values: Mapping[str, Any]) -> Latent:
        """The latents of values that may be traced, unchecked: not finite outside a prior's support."""
        rows = [jnp.broadcast_to(jnp.asarray(values[parameter.name]), parameter.shape) for parameter in self.parameters]
        parts = [parameter.prior.latent(row).reshape(-1) for parameter, row in zip(self.parameters, rows, strict=True)]
        return self.of_own_normals(jnp.concatenate(parts))

    def draw(self, seed: int, count: int) -> Float[np.ndarray, "count latent"]:
        """Latents drawn from the prior on the host (numpy's default generator)."""
        return np.random.default_rng(seed).standard_normal((count, self.n_latent)).astype(_dtype())


@jax.jit
def _slopes(free: Free, normals: Latent) -> Latent:
    return jax.jvp(free.flat_of, (normals,), (jnp.ones_like(normals),))[1]


@jax.jit
def many_values(free: Free, latents: Float[Array | np.ndarray, "draw latent"]) -> dict[str, Array]:
    """The values of every parameter for many vectors of latents."""
    return jax.vmap(free.values)(jnp.asarray(latents))


def shown(prior: AbstractPrior) -> str:
    """A prior as a configuration has it; of an array of numbers the range."""

    def text(numbers: Any) -> str:
        if isinstance(numbers, Mapping):
            return f"{{{', '.join(f'{key}: {text(own)}' for key, own in numbers.items())}}}"
        if isinstance(numbers, tuple):
            return f"[{', '.join(map(text, numbers))}]"
        values = np.asarray(numbers, np.float64)
        return f"{values:g}" if values.ndim == 0 else f"{values.min():g} to {values.max():g}"

    return text(section_of(prior))


def _dtype() -> Any:
    return jax.dtypes.canonicalize_dtype(float)


def read_prior(name: str, prior: AbstractPrior | Mapping[str, Any], unit: str, own: Any = None) -> AbstractPrior:
    """The prior that `{kind: numbers}` describes, quantities in `unit` (empty: plain numbers); ConfigError if none.

    A number is given once for all values of a parameter, or as an array; `galaxy` stands for `own`, the values that the
    galaxy has.
    """
    chosen = prior if isinstance(prior, AbstractPrior) else _parse_prior(name, prior, unit, own)
    try:
        chosen = jax.tree.map(lambda leaf: as_float(leaf) if isinstance(leaf, float | int) else leaf, chosen)
        fault = chosen.fault()
    except ValueError as error:
        raise ConfigError(f"fit.free.{name}: {error}") from error
    if fault is not None:
        raise ConfigError(f"fit.free.{name}: {fault}")
    return chosen


def _parse_prior(name: str, prior: Mapping[str, Any], unit: str, own: Any) -> AbstractPrior:
    if not isinstance(prior, Mapping) or len(prior) != 1:
        raise ConfigError(f"fit.free.{name}: expected one prior, e.g. {{uniform: [0, 1]}}, got {prior!r}")
    (kind, numbers), *_ = prior.items()
    check_kind(name, str(kind))
    if kind == MIXTURE:
        parts = checked_parts(name, numbers)
        weights = tuple(_number(f"fit.free.{name}: {MIXTURE}", weight, "weight", unit, None) for weight, _ in parts)
        return Mixture(weights, tuple(_parse_prior(name, part, unit, own) for _, part in parts))
    made, meanings = find_kind(name, str(kind))
    if made is Isotropic and unit != "deg":
        raise ConfigError(
            f"fit.free.{name}: expected an angle with the prior 'isotropic', which is flat in its cosine, got a "
            f"parameter in {unit or 'bare numbers'}; take uniform"
        )
    if len(numbers) != len(meanings):
        raise ConfigError(
            f"fit.free.{name}: expected {len(meanings)} numbers after '{kind}', {kind}: [{', '.join(meanings)}], got "
            f"{len(numbers)}"
        )
    place = f"fit.free.{name}: {kind}"
    pairs = zip(numbers, meanings, strict=True)
    return made(*[_number(place, value, meaning, unit, own) for value, meaning in pairs])


def _number(place: str, value: object, meaning: str, unit: str, own: Any) -> Any:
    """One number of a prior, or an array of them."""
    if isinstance(value, str) and value.strip() == OF_GALAXY:
        if own is None or meaning not in CENTRES:
            raise ConfigError(
                f"{place}: expected a number for {meaning}, got '{OF_GALAXY}', which stands for the galaxy's own "
                f"values, as {' or '.join(CENTRES)} of parameters galaxy.* and stars.*"
            )
        return own
    return read_values(place, value, "" if meaning in PURE else unit)


def read_values(place: str, value: Any, unit: str) -> Any:
    """A number or an array of them, each a quantity in `unit` (empty: plain numbers)."""
    if isinstance(value, list | tuple):
        parts = [np.asarray(read_values(place, own, unit)) for own in value]
        if len({part.shape for part in parts}) != 1:
            raise ConfigError(f"{place}: expected numbers or lists of one length, got {len(parts)} of several lengths")
        return np.stack(parts)
    try:
        if isinstance(value, jax.Array) or (isinstance(value, np.ndarray) and value.ndim):
            return np.asarray(plain_numbers(value, unit, ""), np.float64)
        return parse_quantity(value, unit) if unit else parse_number(value)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}") from error

"""Priors made of other parts: mixtures, quantile functions of one's own; and every kind of prior by its name."""

import dataclasses
import functools
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.config.plug_ins import PRIOR_KINDS
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.posterior.priors import PRIORS, AbstractPrior, Values, as_float

MIXTURE: str = "mixture"
"""Name of a prior that is a weighted sum of others."""

WEIGHT: str = "weight"
"""Key of a part's share in a mixture."""

_FURTHEST = 8.2
"""|latent| up to which a quantile function is inverted; beyond it Phi is 1 to rounding."""

_CLAMPED = 38.0
"""|latent| beyond which Phi is 0 to rounding."""

_HALVINGS = 64
"""Of the interval in which a value is looked for: its ends agree to rounding afterwards."""


def _as_floats(values: Any) -> tuple[Values, ...]:
    return tuple(map(as_float, values))


class Mixture(AbstractPrior):
    """A weighted sum of priors: the density is sum_k weight_k p_k(value), the weights being normalised to 1.

    The value of a latent solves sum_k weight_k F_k(value) = Phi(latent), by halving the interval of the parts' own
    values; it is differentiated by the theorem of implicit functions, with respect to the latent alone.
    """

    weights: tuple[Values, ...] = eqx.field(converter=_as_floats)
    parts: tuple[AbstractPrior, ...] = eqx.field(converter=tuple)

    def value(self, latent: Values) -> Values:
        """The value below which the mixture has the probability Phi(latent)."""
        found = _compiled_value(self, jnp.asarray(latent, jax.dtypes.canonicalize_dtype(float)))
        return found if isinstance(latent, jax.Array) else np.asarray(found)

    def latent(self, value: Values) -> Values:
        """Phi^-1 of the sum of the parts' probabilities, by the smaller of both tails."""
        below, above = _tails(self, jnp.asarray(value, jax.dtypes.canonicalize_dtype(float)))
        inside = (below > 0) & (above > 0)
        found = jnp.where(below < above, ndtri(below), -ndtri(above))
        found = jnp.where(inside, found, jnp.nan)
        return found if isinstance(value, jax.Array) else np.asarray(found)

    def fault(self) -> str | None:
        """Unless each part is right, the weights are positive, and no gap separates the parts."""
        if len(self.parts) < 2:
            return f"expected at least two parts of a mixture, got {len(self.parts)}"
        if not all(bool(np.all(np.asarray(own) > 0)) for own in self.weights):
            return f"expected weights above 0, got {', '.join(f'{np.min(own):g}' for own in self.weights)}"
        fault = next(filter(None, (own.fault() for own in self.parts)), None)
        if fault is not None:
            return fault
        if _is_connected(self.parts):
            return None
        return "expected parts of a mixture that overlap, got a gap between them; widen them, or fit each alone"


@jax.jit
def _tails(mixture: Mixture, value: Array) -> tuple[Array, Array]:
    """Probabilities below and above a value, each without loss near 0."""
    total = sum(mixture.weights)
    latents = [_part_latent(part, value) for part in mixture.parts]

    def tail(sign: int) -> Array:
        parts = [weight / total * ndtr(sign * own) for weight, own in zip(mixture.weights, latents, strict=True)]
        return jnp.asarray(functools.reduce(jnp.add, parts))

    return tail(1), tail(-1)


def _part_latent(part: AbstractPrior, value: Array) -> Array:
    """The latent of a part, of values beyond its ends far out; differentiable."""
    low, high = (jnp.asarray(part.value(jnp.asarray(end, value.dtype))) for end in (-jnp.inf, jnp.inf))
    inside = (value > low) & (value < high)
    found = part.latent(jnp.where(inside, value, part.value(jnp.zeros((), value.dtype))))
    return jnp.clip(jnp.where(inside, found, jnp.where(value <= low, -_CLAMPED, _CLAMPED)), -_CLAMPED, _CLAMPED)


@jax.custom_jvp
def _mixed_value(mixture: Mixture, latent: Array) -> Array:
    values = jnp.stack([jnp.broadcast_to(part.value(latent), latent.shape) for part in mixture.parts])
    target = ndtr(latent), ndtr(-latent)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        below, above = _tails(mixture, middle)
        short = jnp.where(latent < 0, below < target[0], above > target[1])
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = lax.fori_loop(0, _HALVINGS, halve, (values.min(axis=0), values.max(axis=0)))
    return 0.5 * (low + high)


_compiled_value = jax.jit(_mixed_value)
"""Compiled once per kinds of the parts and shape of the latents; all numbers are arguments."""


@_mixed_value.defjvp
def _mixed_jvp(primals: tuple[Mixture, Array], tangents: tuple[Any, Array]) -> tuple[Array, Array]:
    mixture, latent = primals
    value = _mixed_value(mixture, latent)
    return value, _slope_at(mixture, latent, value) * tangents[1]


def _slope_at(mixture: Mixture, latent: Array, value: Array) -> Array:
    """dv/dx = phi(x) / sum_k w_k phi(x_k) / (dv_k/dx_k), x_k the part's own latent of v."""
    total = sum(mixture.weights)
    density = jnp.zeros_like(latent)
    for weight, part in zip(mixture.weights, mixture.parts, strict=True):
        own = _part_latent(part, value)
        inside = jnp.abs(own) < _CLAMPED
        safe = jnp.where(inside, own, 0.0)
        slope = jax.jvp(part.value, (safe,), (jnp.ones_like(safe),))[1]
        density = density + jnp.where(inside, weight / total * jnp.exp(0.5 * (latent**2 - safe**2)) / slope, 0.0)
    return 1 / density


def _is_connected(parts: tuple[AbstractPrior, ...]) -> bool:
    """Whether no gap is between the parts, up to far out in their tails."""
    ends = [
        [float(np.min(part.value(np.asarray(-_FURTHEST)))), float(np.max(part.value(np.asarray(_FURTHEST))))]
        for part in parts
    ]
    ends.sort()
    reached = ends[0][1]
    for low, high in ends[1:]:
        if low >= reached:
            return False
        reached = max(reached, high)
    return True


class AbstractQuantile(AbstractPrior):
    """A prior of one's own by its quantile function, to be announced as `rubix_like.priors` or used from Python.

    `kind` is its name in a configuration, `{kind: [numbers]}`, `numbers` what they are: the fields, in their order.

    ```python
    class Triangular(AbstractQuantile):
        # the density rises in proportion to value - low, up to high
        kind: ClassVar = "triangular"
        numbers: ClassVar = ("low", "high")
        low: float
        high: float

        def quantile(self, probability):
            return self.low + (self.high - self.low) * jnp.sqrt(probability)
    ```
    """

    kind: ClassVar[str] = ""
    numbers: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def quantile(self, probability: Any) -> Any:
        """The value below which the prior has this probability: rising and smooth, written with jax.numpy."""

    def value(self, latent: Values) -> Values:
        """The quantile at Phi(latent)."""
        if isinstance(latent, jax.Array):
            with plug_in_named(f"prior '{self.kind}': `quantile`", self):
                return jnp.asarray(self.quantile(ndtr(latent)))
        return np.asarray(self.quantile(scipy.special.ndtr(latent)))

    def latent(self, value: Values) -> Values:
        """By halving the interval of latents up to 8.2, its derivative one over the slope of `value`; NaN beyond the
        quantiles of 0 and 1."""
        found = _quantile_latent(self, jnp.asarray(value, jax.dtypes.canonicalize_dtype(float)))
        return found if isinstance(value, jax.Array) else np.asarray(found)

    def fault(self) -> str | None:
        """Unless the quantiles rise."""
        shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(self)))
        call, found = f"prior '{self.kind}': `quantile`", np.zeros(())
        for latents in (np.zeros(()), np.linspace(-4.0, 4.0, 33).reshape(-1, *(1 for _ in shape))):
            values = self.quantile(scipy.special.ndtr(latents))
            found = np.asarray(returned(values, (jax.Array, np.ndarray, np.generic, float), call, "an array"))
            check_returned_shapes(call, {"values": (found, np.broadcast_shapes(latents.shape, shape))})
        if np.isfinite(found).all() and bool(np.all(np.diff(found, axis=0) > 0)):
            return None
        return f"expected numbers with which the quantiles of '{self.kind}' rise, got others"


@jax.jit
def _quantile_latent(prior: AbstractQuantile, target: Array) -> Array:
    low, high = (jnp.asarray(prior.quantile(jnp.asarray(end, target.dtype))) for end in (0.0, 1.0))

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = 0.5 * (ends[0] + ends[1])
        short = prior.quantile(ndtr(middle)) < target
        return jnp.where(short, middle, ends[0]), jnp.where(short, ends[1], middle)

    first = (jnp.full_like(target, -_FURTHEST), jnp.full_like(target, _FURTHEST))
    end = lax.stop_gradient(lax.fori_loop(0, _HALVINGS, halve, first)[0])
    slope = jax.jvp(prior.value, (end,), (jnp.ones_like(end),))[1]
    end = end + (target - lax.stop_gradient(target)) / slope  # the end, with its derivative
    return jnp.where((target >= low) & (target <= high), end, jnp.nan)


def check_kind(name: str, kind: str) -> None:
    """Raise ConfigError for a prior of one's own that is called as one of the package."""
    defined = _defined().get(kind)
    if defined is not None and kind in (*PRIORS, MIXTURE):
        place = f"{defined.__module__}.{defined.__qualname__}"
        raise ConfigError(
            f"fit.free.{name}: the prior '{kind}' is one of rubix_like's and also {place}; give your class another kind"
        )


def find_kind(name: str, kind: str) -> tuple[type[AbstractPrior], tuple[str, ...]]:
    """The class of a kind of prior, and what its numbers are; raises ConfigError with the nearest name for none.

    Of this package, of an installed one, or an `AbstractQuantile` that has been defined in this process.
    """
    if kind in PRIORS:
        return PRIORS[kind]
    prior = _defined().get(kind)
    if prior is None and kind in PRIOR_KINDS:
        prior = PRIOR_KINDS.find(kind)
    if prior is None:
        known = (*PRIORS, MIXTURE, *PRIOR_KINDS.names(), *_defined())
        raise ConfigError(f"fit.free.{name}: unknown prior '{kind}'{suggest(kind, known)}")
    return prior, _fields_of(prior)


def _fields_of(prior: type[Any]) -> tuple[str, ...]:
    """The names of the numbers of a prior of one's own; ConfigError where they are not its fields."""
    fields = tuple(field.name for field in dataclasses.fields(prior))
    if tuple(prior.numbers) != fields:
        raise ConfigError(
            f"{prior.__name__}.numbers: expected its fields in their order, {fields}, got {prior.numbers!r}"
        )
    return fields


def _defined() -> dict[str, type[AbstractQuantile]]:
    """Quantile functions of one's own that this process knows, by their names; the last of a name."""
    found, left = {}, [AbstractQuantile]
    while left:
        prior = left.pop()
        left += prior.__subclasses__()
        if prior.kind:
            found[prior.kind] = prior
    return found


def section_of(prior: AbstractPrior) -> dict[str, tuple[Any, ...]]:
    """The prior as a configuration has it, {kind: numbers}, in the unit of the parameter."""
    if isinstance(prior, Mixture):
        pairs = zip(prior.weights, prior.parts, strict=True)
        return {MIXTURE: tuple({WEIGHT: float(weight), **section_of(part)} for weight, part in pairs)}
    if isinstance(prior, AbstractQuantile):
        names, place = _fields_of(type(prior)), f"prior '{prior.kind}'"
        return {prior.kind: tuple(as_float(getattr(prior, name), f"{place}: {name}").tolist() for name in names)}
    (kind,) = [kind for kind, (made, _) in PRIORS.items() if isinstance(prior, made)]
    return {kind: tuple(np.asarray(leaf, np.float64).tolist() for leaf in jax.tree.leaves(prior))}


def checked_parts(name: str, numbers: Any) -> list[tuple[Any, Mapping[str, Any]]]:
    """Weight and prior of each part of a mixture in a configuration; raises ConfigError for anything else."""
    found = []
    for part in numbers:
        rest = {key: value for key, value in part.items() if key != WEIGHT} if isinstance(part, Mapping) else {}
        if len(rest) != 1 or WEIGHT not in part:
            raise ConfigError(
                f"fit.free.{name}: {MIXTURE}: expected parts with a weight and a prior each, e.g. [{{weight: 0.7, "
                f"normal: [30 deg, 5 deg]}}, {{weight: 0.3, normal: [50 deg, 9 deg]}}], got {part!r}"
            )
        found.append((part[WEIGHT], rest))
    return found

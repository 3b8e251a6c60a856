"""Prior distributions, each a smooth map from a standard normal latent to the value of a parameter.

A value is F^-1(Phi(latent)), F the prior's cumulative distribution and Phi the standard normal's: the latent has the
density exp(-latent^2 / 2) whatever the prior, so that optimisers and samplers see one scale and no bounds.

Arrays of the host stay there: of numpy's arrays numpy's functions are taken, so that nothing is compiled for them.
"""

import dataclasses
import functools
import itertools
from abc import abstractmethod
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.arguments import check_returned_shapes, plug_in_named, returned
from rubix_like.config.plug_ins import PRIOR_KINDS
from rubix_like.errors import ConfigError, suggest
from rubix_like.physics.units import as_quantity, plain_numbers

Values = Float[Array | ndarray | np.floating, "..."]

_NAMES = ("log", "log10", "exp", "power", "sqrt", "sin", "cos", "arctan2", "where")
_ON_HOST = SimpleNamespace(
    ndtr=scipy.special.ndtr, ndtri=scipy.special.ndtri, **{name: getattr(np, name) for name in _NAMES}
)
_ON_DEVICE = SimpleNamespace(ndtr=ndtr, ndtri=ndtri, **{name: getattr(jnp, name) for name in _NAMES})

_HALF_ANGLE = 360.0 / np.pi
"""deg per radian of half an angle."""

_HALF_TURN = 180.0

_LEAST_PROBABILITY = 1e-3
"""Least probability of a normal distribution between the ends where it is cut off."""


def text_of(values: Values) -> str:
    """A number, or the range of several."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:g}" if low == high or np.isnan(low) else f"{low:g} to {high:g}"


def _unless(holds: Any, expected: str, *numbers: Values) -> str | None:
    """The fault of numbers for which a condition does not hold everywhere; None where it does."""
    return None if bool(np.all(holds)) else f"expected {expected}, got {' and '.join(map(text_of, numbers))}"


def as_float(value: object, place: str = "") -> Values:
    """An array of the host; what is traced, or on a device, stays as it is. Raises ValueError for quantities and for
    what is no number; `place` is where it came from."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    if as_quantity(value) is not None:
        raise ValueError(
            f"expected the numbers of a prior in the unit of its parameter, got {value!r}; give "
            f"the prior as {{kind: [numbers with units]}}"
        )
    if isinstance(value, jax.Array):
        return jnp.asarray(value, dtype)
    return np.asarray(plain_numbers(value, "", place), dtype)


def _functions(*values: Values) -> Any:
    """numpy's, where none of the values is traced or on a device."""
    return _ON_DEVICE if any(isinstance(value, jax.Array) for value in values) else _ON_HOST


def _leaf() -> Any:
    return eqx.field(converter=as_float)


class AbstractPrior(eqx.Module):
    """The prior of a parameter; an array of values shares it, each with a separate latent.

    Its numbers (scalars, or arrays that broadcast with the values) are leaves.
    """

    @abstractmethod
    def value(self, latent: Values) -> Values:
        """The values of standard normal latents."""

    @abstractmethod
    def latent(self, value: Values) -> Values:
        """The latents of values; not finite outside the prior's support."""

    @abstractmethod
    def fault(self) -> str | None:
        """The fault of the prior's numbers, which are concrete; None if there is none."""


class Uniform(AbstractPrior):
    """Uniform between `low` and `high`."""

    low: Values = _leaf()
    high: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """low + (high - low) Phi(latent)."""
        return self.low + (self.high - self.low) * _functions(latent).ndtr(latent)

    def latent(self, value: Values) -> Values:
        """Phi^-1((value - low) / (high - low))."""
        share = (value - self.low) / (self.high - self.low)
        return _functions(share).ndtri(share)

    def fault(self) -> str | None:
        """Unless low < high."""
        return _unless(self.low < self.high, "low < high", self.low, self.high)


class LogUniform(AbstractPrior):
    """Uniform in the logarithm between `low` and `high`, both positive."""

    low: Values = _leaf()
    high: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """low (high / low)^Phi(latent)."""
        ratio = self.high / self.low
        power = _functions(ratio).log(ratio) * _functions(latent).ndtr(latent)
        return self.low * _functions(power).exp(power)

    def latent(self, value: Values) -> Values:
        """Phi^-1(ln(value / low) / ln(high / low))."""
        functions = _functions(value, self.low, self.high)
        return functions.ndtri(functions.log(value / self.low) / functions.log(self.high / self.low))

    def fault(self) -> str | None:
        """Unless 0 < low < high."""
        return _unless((self.low > 0) & (self.low < self.high), "0 < low < high", self.low, self.high)


class Normal(AbstractPrior):
    """Normal with `mean` and standard deviation `sigma`."""

    mean: Values = _leaf()
    sigma: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """mean + sigma latent."""
        return self.mean + self.sigma * latent

    def latent(self, value: Values) -> Values:
        """(value - mean) / sigma."""
        return (value - self.mean) / self.sigma

    def fault(self) -> str | None:
        """Unless sigma > 0."""
        return _unless(self.sigma > 0, "sigma > 0", self.sigma)


class LogNormal(AbstractPrior):
    """Normal in the logarithm: `median` (positive) times a factor whose log10 has the standard deviation `dex`."""

    median: Values = _leaf()
    dex: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """median 10^(dex latent)."""
        exponent = self.dex * latent
        return self.median * _functions(exponent).power(10.0, exponent)

    def latent(self, value: Values) -> Values:
        """log10(value / median) / dex."""
        ratio = value / self.median
        return _functions(ratio).log10(ratio) / self.dex

    def fault(self) -> str | None:
        """Unless median > 0 and dex > 0."""
        return _unless((self.median > 0) & (self.dex > 0), "median > 0 and dex > 0", self.median, self.dex)


class TruncatedNormal(AbstractPrior):
    """Normal with `mean` and standard deviation `sigma`, cut off below `low` and above `high`."""

    mean: Values = _leaf()
    sigma: Values = _leaf()
    low: Values = _leaf()
    high: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """mean + sigma Phi^-1(p), p from Phi of the lower end to Phi of the upper end as Phi(latent) from 0 to 1."""
        lowest, width = self._probabilities()
        functions = _functions(latent, lowest)
        inside = self.mean + self.sigma * functions.ndtri(lowest + width * functions.ndtr(latent))
        return inside.clip(self.low, self.high)

    def latent(self, value: Values) -> Values:
        """Phi^-1((Phi((value - mean) / sigma) - Phi of the lower end) / difference)."""
        lowest, width = self._probabilities()
        place = (value - self.mean) / self.sigma
        functions = _functions(place, lowest)
        return functions.ndtri((functions.ndtr(place) - lowest) / width)

    def fault(self) -> str | None:
        """Unless sigma > 0 and low < high with a part of the normal distribution between them."""
        holds, numbers = (self.sigma > 0) & (self.low < self.high), (self.sigma, self.low, self.high)
        if fault := _unless(holds, "sigma > 0 and low < high", *numbers):
            return fault
        if bool(np.all(self._probabilities()[1] > _LEAST_PROBABILITY)):
            return None
        ends = f"{text_of(self.low)} and {text_of(self.high)}"
        return f"expected a mean near or between low and high, got {text_of(self.mean)} for {ends}"

    def _probabilities(self) -> tuple[Values, Values]:
        low, high = ((end - self.mean) / self.sigma for end in (self.low, self.high))
        functions = _functions(low, high)
        return functions.ndtr(low), functions.ndtr(high) - functions.ndtr(low)


class Isotropic(AbstractPrior):
    """Flat in the cosine of an angle between `low` and `high`, in deg from 0 to 180: of axes that point anywhere.

    cos(value) = cos(low) - (cos(low) - cos(high)) Phi(latent), by the squares of sine and cosine of the half angle,
    which are exact at both ends.
    """

    low: Values = _leaf()
    high: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """2 arctan(sine / cosine of the half angle), each by its share of the range of its square."""
        functions = _functions(latent, self.low, self.high)
        (low_sine, low_cosine), (high_sine, high_cosine) = (
            _half_squares(functions, end) for end in (self.low, self.high)
        )
        sine = low_sine + (high_sine - low_sine) * functions.ndtr(latent)
        cosine = high_cosine + (low_cosine - high_cosine) * functions.ndtr(-latent)
        return functions.arctan2(functions.sqrt(sine), functions.sqrt(cosine)) * _HALF_ANGLE

    def latent(self, value: Values) -> Values:
        """Phi^-1((cos(low) - cos(value)) / (cos(low) - cos(high)))."""
        functions = _functions(value, self.low, self.high)
        low, high, sine = (_half_squares(functions, angle)[0] for angle in (self.low, self.high, value))
        share = functions.where((value >= self.low) & (value <= self.high), (sine - low) / (high - low), np.nan)
        return functions.ndtri(share)

    def fault(self) -> str | None:
        """Unless 0 <= low < high <= 180."""
        holds = (self.low >= 0) & (self.low < self.high) & (self.high <= _HALF_TURN)
        return _unless(holds, "0 <= low < high <= 180 deg", self.low, self.high)


def _half_squares(functions: Any, angle: Values) -> tuple[Values, Values]:
    """sin^2 and cos^2 of half an angle in deg."""
    half = angle / _HALF_ANGLE
    return functions.sin(half) ** 2, functions.cos(half) ** 2


PRIORS: Mapping[str, tuple[type[AbstractPrior], tuple[str, ...]]] = {
    "uniform": (Uniform, ("low", "high")),
    "log_uniform": (LogUniform, ("low", "high")),
    "normal": (Normal, ("mean", "sigma")),
    "log_normal": (LogNormal, ("median", "dex")),
    "truncated_normal": (TruncatedNormal, ("mean", "sigma", "low", "high")),
    "isotropic": (Isotropic, ("low", "high")),
}
"""Names in a configuration, and what their numbers are."""

_LIMITED = (Uniform, LogUniform, TruncatedNormal, Isotropic)

JOINABLE: tuple[type[AbstractPrior], ...] = (Normal, LogNormal)
"""Priors that can be correlated with others."""

PURE: tuple[str, ...] = ("dex", "weight")
"""Which of these numbers never have the parameter's unit."""

CENTRES: tuple[str, ...] = ("mean", "median")
"""Which of these numbers say where the prior is centred."""


def is_limited(prior: AbstractPrior) -> bool:
    """Whether the prior has limits, near which a value hardly changes with its latent."""
    if isinstance(prior, (*_LIMITED, *JOINABLE)):
        return isinstance(prior, _LIMITED)
    return any(bool(np.isfinite(np.asarray(prior.value(np.asarray(end)))).all()) for end in (-np.inf, np.inf))


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


class Mixture(AbstractPrior):
    """A weighted sum of priors: the density is sum_k weight_k p_k(value), the weights being normalised to 1.

    The value of a latent solves sum_k weight_k F_k(value) = Phi(latent), by halving the interval of the parts'
    values; it is differentiated by the theorem of implicit functions, with respect to the latent alone.
    """

    weights: tuple[Values, ...] = eqx.field(converter=lambda weights: tuple(map(as_float, weights)))
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
        if not all(bool(np.all(np.asarray(weight) > 0)) for weight in self.weights):
            return f"expected weights above 0, got {', '.join(f'{np.min(weight):g}' for weight in self.weights)}"
        fault = next(filter(None, (part.fault() for part in self.parts)), None)
        if fault is not None:
            return fault
        far = (np.asarray(-_FURTHEST), np.asarray(_FURTHEST))
        ends = sorted((float(np.min(part.value(far[0]))), float(np.max(part.value(far[1])))) for part in self.parts)
        reached = itertools.accumulate((high for _, high in ends), max)
        if all(low < before for (low, _), before in zip(ends[1:], reached, strict=False)):
            return None
        return "expected parts of a mixture that overlap, got a gap between them; widen them, or fit each alone"


@jax.jit
def _tails(mixture: Mixture, value: Array) -> tuple[Array, Array]:
    """Probabilities below and above a value, each without loss near 0."""
    total = sum(mixture.weights)
    latents = [_part_latent(part, value) for part in mixture.parts]

    def tail(sign: int) -> Array:
        parts = [weight / total * ndtr(sign * latent) for weight, latent in zip(mixture.weights, latents, strict=True)]
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
    """dv/dx = phi(x) / sum_k w_k phi(x_k) / (dv_k/dx_k), x_k the latent of v by part k."""
    mixture, latent = primals
    value, total = _mixed_value(mixture, latent), sum(mixture.weights)
    density = jnp.zeros_like(latent)
    for weight, part in zip(mixture.weights, mixture.parts, strict=True):
        of_part = _part_latent(part, value)
        inside = jnp.abs(of_part) < _CLAMPED
        safe = jnp.where(inside, of_part, 0.0)
        slope = jax.jvp(part.value, (safe,), (jnp.ones_like(safe),))[1]
        density = density + jnp.where(inside, weight / total * jnp.exp(0.5 * (latent**2 - safe**2)) / slope, 0.0)
    return value, 1 / density * tangents[1]


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
        """The latent, by halving the interval of latents up to 8.2, its derivative one over the slope of `value`; NaN
        beyond the quantiles of 0 and 1."""
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


def find_kind(kind: str) -> tuple[type[AbstractPrior], tuple[str, ...]]:
    """The class of a kind of prior, and what its numbers are; raises ConfigError with the nearest name for none.

    Of this package, of an installed one, or an `AbstractQuantile` that has been defined in this process.
    """
    prior = _defined().get(kind)
    if kind in (*PRIORS, MIXTURE):
        if prior is not None:
            place = f"{prior.__module__}.{prior.__qualname__}"
            raise ConfigError(
                f"the prior '{kind}' is one of rubix_like's and also {place}; give your class another kind"
            )
        return (Mixture, ()) if kind == MIXTURE else PRIORS[kind]
    if prior is None and kind in PRIOR_KINDS:
        prior = PRIOR_KINDS.find(kind)
    if prior is None:
        known = (*PRIORS, MIXTURE, *PRIOR_KINDS.names(), *_defined())
        raise ConfigError(f"unknown prior '{kind}'{suggest(kind, known)}")
    return prior, _fields_of(prior)


def _fields_of(prior: type[Any]) -> tuple[str, ...]:
    """The names of the numbers of a user prior; ConfigError where they are not its fields."""
    fields = tuple(field.name for field in dataclasses.fields(prior))
    if tuple(prior.numbers) != fields:
        raise ConfigError(
            f"{prior.__name__}.numbers: expected its fields in their order, {fields}, got {prior.numbers!r}"
        )
    return fields


def _defined() -> dict[str, type[AbstractQuantile]]:
    """User quantile functions that this process knows, by their names; the last of a name."""
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


Priors = Mapping[str, AbstractPrior | Mapping[str, Any]]
"""Dotted name -> prior, as an object or as in a configuration ({kind: numbers})."""


def as_sections(place: str, priors: Priors) -> dict[str, Mapping[str, Any]]:
    """Priors as {kind: numbers}; ConfigError, which begins with `place`, for what is no number."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, prior in priors.items():
        try:
            found[name] = section_of(prior) if isinstance(prior, AbstractPrior) else prior
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{place}.{name}: {error}") from error
    return found

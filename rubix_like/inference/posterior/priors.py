"""Prior distributions, each a smooth map from a standard normal latent to the value of a parameter.

A value is F^-1(Phi(latent)), F the prior's cumulative distribution and Phi the standard normal's: the latent has the
density exp(-latent^2 / 2) whatever the prior, so that optimisers and samplers see one scale and no bounds.

Arrays of the host stay there: of numpy's arrays numpy's functions are taken, so that nothing is compiled for them.
"""

from abc import abstractmethod
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax.scipy.special import ndtr, ndtri
from jaxtyping import Array, Float
from numpy import ndarray

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


def _text(values: Values) -> str:
    """A number, or the range of several."""
    low, high = float(np.min(values)), float(np.max(values))
    return f"{low:g}" if low == high or np.isnan(low) else f"{low:g} to {high:g}"


def as_float(value: object, place: str = "") -> Values:
    """An array of the host; what is traced, or on a device, stays as it is. Raises ValueError for quantities and for
    what is no number; `place` is where it came from."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    if as_quantity(value) is not None:
        raise ValueError(
            f"expected the numbers of a prior in the unit of its parameter, got {value!r}; give "
            f"the prior as {{kind: [numbers with units]}}"
        )
    return (
        jnp.asarray(value, dtype)
        if isinstance(value, jax.Array)
        else np.asarray(plain_numbers(value, "", place), dtype)
    )


def _functions(*values: Values) -> Any:
    """numpy's, where none of the values is traced or on a device."""
    return _ON_DEVICE if any(isinstance(value, jax.Array) for value in values) else _ON_HOST


def _leaf() -> Any:
    return eqx.field(converter=as_float)


class AbstractPrior(eqx.Module):
    """The prior of a parameter; an array of values shares it, each with a latent of its own.

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
        """What is wrong with the prior's numbers, which are concrete; None if nothing is."""


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
        return (
            None
            if bool(np.all(self.low < self.high))
            else f"expected low < high, got {_text(self.low)} and {_text(self.high)}"
        )


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
        own = _functions(value, self.low, self.high)
        return own.ndtri(own.log(value / self.low) / own.log(self.high / self.low))

    def fault(self) -> str | None:
        """Unless 0 < low < high."""
        if bool(np.all(self.low > 0)) and bool(np.all(self.low < self.high)):
            return None
        return f"expected 0 < low < high, got {_text(self.low)} and {_text(self.high)}"


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
        return None if bool(np.all(self.sigma > 0)) else f"expected sigma > 0, got {_text(self.sigma)}"


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
        if bool(np.all(self.median > 0)) and bool(np.all(self.dex > 0)):
            return None
        return f"expected median > 0 and dex > 0, got {_text(self.median)} and {_text(self.dex)}"


class TruncatedNormal(AbstractPrior):
    """Normal with `mean` and standard deviation `sigma`, cut off below `low` and above `high`."""

    mean: Values = _leaf()
    sigma: Values = _leaf()
    low: Values = _leaf()
    high: Values = _leaf()

    def value(self, latent: Values) -> Values:
        """mean + sigma Phi^-1(p), p from Phi of the lower end to Phi of the upper end as Phi(latent) from 0 to 1."""
        lowest, width = self._probabilities()
        own = _functions(latent, lowest)
        inside = self.mean + self.sigma * own.ndtri(lowest + width * own.ndtr(latent))
        return inside.clip(self.low, self.high)

    def latent(self, value: Values) -> Values:
        """Phi^-1((Phi((value - mean) / sigma) - Phi of the lower end) / difference)."""
        lowest, width = self._probabilities()
        place = (value - self.mean) / self.sigma
        own = _functions(place, lowest)
        return own.ndtri((own.ndtr(place) - lowest) / width)

    def fault(self) -> str | None:
        """Unless sigma > 0 and low < high with a part of the normal distribution between them."""
        if not (bool(np.all(self.sigma > 0)) and bool(np.all(self.low < self.high))):
            return (
                f"expected sigma > 0 and low < high, got {_text(self.sigma)}, {_text(self.low)} and {_text(self.high)}"
            )
        if bool(np.all(self._probabilities()[1] > _LEAST_PROBABILITY)):
            return None
        ends = f"{_text(self.low)} and {_text(self.high)}"
        return f"expected a mean near or between low and high, got {_text(self.mean)} for {ends}"

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
        own = _functions(latent, self.low, self.high)
        (low_sine, low_cosine), (high_sine, high_cosine) = (_half_squares(own, end) for end in (self.low, self.high))
        sine = low_sine + (high_sine - low_sine) * own.ndtr(latent)
        cosine = high_cosine + (low_cosine - high_cosine) * own.ndtr(-latent)
        return own.arctan2(own.sqrt(sine), own.sqrt(cosine)) * _HALF_ANGLE

    def latent(self, value: Values) -> Values:
        """Phi^-1((cos(low) - cos(value)) / (cos(low) - cos(high)))."""
        own = _functions(value, self.low, self.high)
        low, high, sine = (_half_squares(own, angle)[0] for angle in (self.low, self.high, value))
        share = own.where((value >= self.low) & (value <= self.high), (sine - low) / (high - low), np.nan)
        return own.ndtri(share)

    def fault(self) -> str | None:
        """Unless 0 <= low < high <= 180."""
        if bool(np.all(self.low >= 0)) and bool(np.all(self.low < self.high)) and bool(np.all(self.high <= _HALF_TURN)):
            return None
        return f"expected 0 <= low < high <= 180 deg, got {_text(self.low)} and {_text(self.high)}"


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

_LIMITED: tuple[type[AbstractPrior], ...] = (Uniform, LogUniform, TruncatedNormal, Isotropic)
_UNLIMITED: tuple[type[AbstractPrior], ...] = (Normal, LogNormal)

JOINABLE: tuple[type[AbstractPrior], ...] = (Normal, LogNormal)
"""Priors that can be correlated with others."""

PURE: tuple[str, ...] = ("dex", "weight")
"""Which of these numbers never have the parameter's unit."""

CENTRES: tuple[str, ...] = ("mean", "median")
"""Which of these numbers say where the prior is centred."""


def is_limited(prior: AbstractPrior) -> bool:
    """Whether the prior has limits, near which a value hardly changes with its latent."""
    if isinstance(prior, _LIMITED + _UNLIMITED):
        return isinstance(prior, _LIMITED)
    return any(bool(np.isfinite(np.asarray(prior.value(np.asarray(end)))).all()) for end in (-np.inf, np.inf))

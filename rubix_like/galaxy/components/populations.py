"""Populations of a component: ages and metallicities of its stars by mass at birth."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.galaxy.limits import LARGEST_LOG_AGE

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]

YOUNGEST: float = 6.0
"""log10(age / yr) of the youngest stars of a history; younger ones shine as these."""

SMALLEST_LOG_METALLICITY: float = -8.0
LARGEST_LOG_METALLICITY: float = -1.0
"""Limits of log10 of metal mass fractions."""

_EDGE = 1e-6


class Born(NamedTuple):
    """log10(age / yr), metal mass fractions, and the mass at birth in each (any unit)."""

    log_age: Places
    metallicity: Places
    weight: Places


class AbstractPopulation(eqx.Module):
    """Which stars were born."""

    @abstractmethod
    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:
        """The stars at places in (0, 1) on the axes of age and of metallicity, at these radii (kpc)."""


class SingleStars(AbstractPopulation):
    """One age; log10 Z linear in the radius."""

    log_age: Scalar
    metallicity: Scalar
    metallicity_gradient: Scalar

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """The same age everywhere."""
        log_z = _log_metallicity(self.metallicity, self.metallicity_gradient, radius)
        return Born(jnp.broadcast_to(self.log_age, radius.shape), 10**log_z, jnp.ones_like(radius))


class LogNormalStars(AbstractPopulation):
    """Normal in log10 age and in log10 Z, the mean of this linear in the radius."""

    log_age: Scalar
    age_scatter: Scalar
    metallicity: Scalar
    metallicity_scatter: Scalar
    metallicity_gradient: Scalar

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:
        """Quantiles of both distributions."""
        log_z = _log_metallicity(self.metallicity, self.metallicity_gradient, radius)
        log_z = log_z + self.metallicity_scatter * ndtri(jnp.clip(metallicity, _EDGE, 1 - _EDGE))
        log_age = self.log_age + self.age_scatter * ndtri(jnp.clip(age, _EDGE, 1 - _EDGE))
        return Born(jnp.clip(log_age, YOUNGEST, LARGEST_LOG_AGE), 10 ** _limited(log_z), jnp.ones_like(radius))


class Tau(AbstractPopulation):
    """Star formation that falls as exp(-t / tau), t being the time since `oldest` (log10 yr ago)."""

    oldest: Scalar
    tau: Scalar
    metallicity: Scalar
    metallicity_gradient: Scalar

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """Even steps of log10 age, weighted by the mass that was born in them."""
        return _of_history(self, age, radius, lambda time: jnp.exp(-time))


class DelayedTau(AbstractPopulation):
    """Star formation that goes as t exp(-t / tau), t being the time since `oldest` (log10 yr ago)."""

    oldest: Scalar
    tau: Scalar
    metallicity: Scalar
    metallicity_gradient: Scalar

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """Even steps of log10 age, weighted by the mass that was born in them."""
        return _of_history(self, age, radius, lambda time: time * jnp.exp(-time))


class Continuity(AbstractPopulation):
    """Constant star formation in bins of age (Leja et al. 2019, ApJ 876, 3): ln of the rate of each bin over that of
    the next older one; the edges are log10 yr ago."""

    log_ratios: Float[Array, " ratio"]
    metallicity: Scalar
    metallicity_gradient: Scalar
    edges: tuple[float, ...] = eqx.field(static=True)

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """Even steps of log10 age, weighted by the mass that was born in them."""
        log_age = self.edges[0] + (self.edges[-1] - self.edges[0]) * age
        inner = jnp.asarray(self.edges[1:-1], log_age.dtype)
        older = jnp.cumsum(self.log_ratios[::-1])[::-1]
        rate = jnp.exp(jnp.concatenate([older, jnp.zeros_like(older[:1])]))
        log_z = _log_metallicity(self.metallicity, self.metallicity_gradient, radius)
        weight = rate[jnp.searchsorted(inner, log_age, side="right")] * 10 ** (log_age - self.edges[-1])
        return Born(log_age, 10**log_z, weight)


class FreeFormStars(AbstractPopulation):
    """Stars at the nodes of a grid, with a mass for each: those of the lowest metallicity first, age fastest.

    Without weights (`is_solved`) a fit solves for them; elsewhere all nodes have the same mass.
    """

    weights: Float[Array | ndarray, " weight"]
    log_ages: tuple[float, ...] = eqx.field(static=True)
    metallicities: tuple[float, ...] = eqx.field(static=True)
    smoothness: float | None = eqx.field(static=True, default=None)

    @property
    def is_solved(self) -> bool:
        """Whether a fit solves for the weights."""
        return self.weights.shape[0] == 0

    @property
    def nodes(self) -> tuple[Float[ndarray, " weight"], Float[ndarray, " weight"]]:
        """log10(age / yr) and metal mass fraction of every node, in the order of the weights."""
        metallicity, log_age = np.meshgrid(self.metallicities, self.log_ages, indexing="ij")
        return log_age.reshape(-1), metallicity.reshape(-1)

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """The same number of points at every node, weighted by its mass."""
        n_age, n_metal = len(self.log_ages), len(self.metallicities)
        node = _cell(metallicity, n_metal) * n_age + _cell(age, n_age)
        log_age, own = (jnp.asarray(nodes, age.dtype)[node] for nodes in self.nodes)
        weights = jnp.ones_like(age) if self.is_solved else jnp.asarray(self.weights, age.dtype)[node]
        return Born(log_age, own, weights)


def _cell(place: Places, number: int) -> Int[Array, " point"]:
    return jnp.clip(jnp.floor(place * number).astype(jnp.int32), 0, number - 1)


def _of_history(own: Tau | DelayedTau, age: Places, radius: Places, rate: Callable[[Places], Places]) -> Born:
    """Stars of a rate of star formation over (time since the first star) / tau."""
    log_age = YOUNGEST + (own.oldest - YOUNGEST) * age
    since = (10 ** (own.oldest - 9) - 10 ** (log_age - 9)) / own.tau
    weight = rate(since) * 10 ** (log_age - own.oldest)
    log_z = _log_metallicity(own.metallicity, own.metallicity_gradient, radius)
    return Born(log_age, 10**log_z, weight)


def _log_metallicity(metallicity: Scalar, gradient: Scalar, radius: Places) -> Places:
    return _limited(jnp.log10(metallicity) + gradient * radius)


def _limited(log_z: Places) -> Places:
    return jnp.clip(log_z, SMALLEST_LOG_METALLICITY, LARGEST_LOG_METALLICITY)

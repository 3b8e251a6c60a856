"""Populations of a component: ages and metallicities of its stars by mass at birth."""

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.galaxy.components.declared import fixed, parameter
from rubix_like.galaxy.limits import LARGEST_LOG_AGE

Scalar = Float[Array | ndarray, ""]
Places = Float[Array | ndarray, " point"]

YOUNGEST: float = 6.0
"""log10(age / yr) of the youngest stars of a history; younger ones shine as these."""

SMALLEST_LOG_METALLICITY: float = -8.0
LARGEST_LOG_METALLICITY: float = -1.0
"""Limits of log10 of metal mass fractions."""

_EDGE = 1e-6

_AGES: dict[str, Any] = {"ge": YOUNGEST, "le": LARGEST_LOG_AGE}
_METALLICITIES: dict[str, Any] = {"gt": 0, "le": 0.1}

_log_age = functools.partial(parameter, "", axis="age", **_AGES)
_median_age = functools.partial(_log_age, "log10(age / yr), e.g. 9.5 for 3.2 Gyr; the median where ages scatter.")
_oldest = functools.partial(_log_age, "log10(age / yr) of the first stars.")
_timescale = functools.partial(parameter, "Gyr", "Timescale of the star formation.", gt=0)
_scatter = functools.partial(parameter, "dex", ge=0)
_metallicity = functools.partial(
    parameter,
    "",
    "Metal mass fraction Z at the centre, e.g. 0.02; the median where it scatters.",
    axis="metallicity",
    **_METALLICITIES,
)
_gradient = functools.partial(parameter, "dex / kpc", "Slope of log10 Z along the radius.", default=0.0)


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
    """One age, one metallicity at each radius."""

    history: ClassVar[str] = "single"
    log_age: Scalar = _median_age()
    metallicity: Scalar = _metallicity()
    metallicity_gradient: Scalar = _gradient()

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """The same age everywhere."""
        log_z = _log_metallicity(self.metallicity, self.metallicity_gradient, radius)
        return Born(jnp.broadcast_to(self.log_age, radius.shape), 10**log_z, jnp.ones_like(radius))


class LogNormalStars(AbstractPopulation):
    """Normal distributions of log10 age and log10 Z."""

    history: ClassVar[str] = "log_normal"
    log_age: Scalar = _median_age()
    age_scatter: Scalar = _scatter("Standard deviation of log10 age.", default=0.1)
    metallicity: Scalar = _metallicity()
    metallicity_scatter: Scalar = _scatter("Standard deviation of log10 Z.", default=0.0)
    metallicity_gradient: Scalar = _gradient()

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:
        """Quantiles of both distributions."""
        log_z = _log_metallicity(self.metallicity, self.metallicity_gradient, radius)
        log_z = log_z + self.metallicity_scatter * ndtri(jnp.clip(metallicity, _EDGE, 1 - _EDGE))
        log_age = self.log_age + self.age_scatter * ndtri(jnp.clip(age, _EDGE, 1 - _EDGE))
        return Born(jnp.clip(log_age, YOUNGEST, LARGEST_LOG_AGE), 10 ** _limited(log_z), jnp.ones_like(radius))


class Tau(AbstractPopulation):
    """Star formation that falls as exp(-t / tau).

    t is the time since `oldest`.
    """

    history: ClassVar[str] = "tau"
    oldest: Scalar = _oldest()
    tau: Scalar = _timescale()
    metallicity: Scalar = _metallicity()
    metallicity_gradient: Scalar = _gradient()

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """Even steps of log10 age, weighted by the mass that was born in them."""
        return _of_history(self, age, radius, lambda time: jnp.exp(-time))


class DelayedTau(AbstractPopulation):
    """Star formation that goes as t exp(-t / tau).

    t is the time since `oldest`.
    """

    history: ClassVar[str] = "delayed_tau"
    oldest: Scalar = _oldest()
    tau: Scalar = _timescale()
    metallicity: Scalar = _metallicity()
    metallicity_gradient: Scalar = _gradient()

    def born(self, age: Places, metallicity: Places, radius: Places) -> Born:  # noqa: ARG002
        """Even steps of log10 age, weighted by the mass that was born in them."""
        return _of_history(self, age, radius, lambda time: time * jnp.exp(-time))


class Continuity(AbstractPopulation):
    """Constant star formation in bins of age; the logarithms of ratios between neighbours are the parameters.

    Leja et al. (2019, ApJ 876, 3).
    """

    history: ClassVar[str] = "continuity"
    edges: tuple[float, ...] = fixed("", "log10(age / yr) of the edges of the bins, increasing.", shortest=3, **_AGES)
    log_ratios: Float[Array | ndarray, " ratio"] = parameter(
        "",
        "Natural logarithm of the star formation rate of each bin over that of the next older one; one fewer than "
        "bins.",
        shortest=0,
    )
    metallicity: Scalar = _metallicity()
    metallicity_gradient: Scalar = _gradient()

    def __check_init__(self) -> None:
        if len(self.log_ratios) != len(self.edges) - 2 or np.any(np.diff(self.edges) <= 0):
            raise ValueError(
                f"expected increasing edges and a ratio for each two neighbouring bins, got edges {list(self.edges)} "
                f"and {len(self.log_ratios)} log_ratios"
            )

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
    """The mass of stars at every node of a grid of age and metallicity.

    Nodes are those of the lowest metallicity first, age fastest.
    """

    history: ClassVar[str] = "free_form"
    log_ages: tuple[float, ...] = fixed(
        "",
        "log10(age / yr) of the nodes, increasing.",
        default=(7.0, 7.5, 8.0, 8.4, 8.7, 9.0, 9.2, 9.4, 9.6, 9.8, 10.0, 10.1),
        shortest=1,
        **_AGES,
    )
    metallicities: tuple[float, ...] = fixed(
        "",
        "Metal mass fractions Z of the nodes, increasing.",
        default=(0.004, 0.008, 0.02, 0.05),
        shortest=1,
        **_METALLICITIES,
    )
    weights: Float[Array | ndarray, " weight"] = parameter(
        "",
        "Mass at birth at each node (only ratios matter), those of the lowest metallicity first; left out: a fit "
        "solves for them, and a run has the same mass at every node.",
        default=(),
        shortest=0,
        ge=0,
    )
    smoothness: float | None = fixed(
        "",
        "Strength of the smoothness prior on weights that a fit solves for; null: from the data, draws by ratios.",
        default=None,
        gt=0,
    )

    def __check_init__(self) -> None:
        for name, nodes in (("log_ages", self.log_ages), ("metallicities", self.metallicities)):
            if np.any(np.diff(nodes) <= 0):
                raise ValueError(f"expected increasing {name}, got {list(nodes)}")
        n_age, n_metal, n_weight = len(self.log_ages), len(self.metallicities), len(self.weights)
        if n_weight not in (0, n_age * n_metal):
            raise ValueError(
                f"expected a weight for each of {n_age * n_metal} nodes ({n_metal} metallicities of {n_age} log_ages "
                f"each), got {n_weight}"
            )
        if isinstance(self.weights, ndarray) and n_weight and np.all(self.weights == 0):
            raise ValueError("expected weights of which at least one is above 0, got zeros alone")

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
        log_ages, metallicities = (jnp.asarray(nodes, age.dtype)[node] for nodes in self.nodes)
        weights = jnp.ones_like(age) if self.is_solved else jnp.asarray(self.weights, age.dtype)[node]
        return Born(log_ages, metallicities, weights)


def _cell(place: Places, number: int) -> Int[Array, " point"]:
    return jnp.clip(jnp.floor(place * number).astype(jnp.int32), 0, number - 1)


def _of_history(history: Tau | DelayedTau, age: Places, radius: Places, rate: Callable[[Places], Places]) -> Born:
    """Stars of a rate of star formation over (time since the first star) / tau."""
    log_age = YOUNGEST + (history.oldest - YOUNGEST) * age
    since = (10 ** (history.oldest - 9) - 10 ** (log_age - 9)) / history.tau
    weight = rate(since) * 10 ** (log_age - history.oldest)
    log_z = _log_metallicity(history.metallicity, history.metallicity_gradient, radius)
    return Born(log_age, 10**log_z, weight)


def _log_metallicity(metallicity: Scalar, gradient: Scalar, radius: Places) -> Places:
    return _limited(jnp.log10(metallicity) + gradient * radius)


def _limited(log_z: Places) -> Places:
    return jnp.clip(log_z, SMALLEST_LOG_METALLICITY, LARGEST_LOG_METALLICITY)

"""Values at the edge of their priors: what the posterior says of each, where a standard deviation says nothing.

A prior with limits is flat in its latent where that is large: the value hardly changes, so that its slope, and with it
a standard deviation from derivatives, is near 0 whatever the data say. So the posterior is followed along the latent t,

    ln p(t) = -loss(t, x(t)) - 1/2 ln det A(t) + constant,

the other latents x(t) where the loss is lowest for this t, and A(t) = J^T J + 1 of them there: Laplace's approximation
in the others (Tierney & Kadane 1986, J. Am. Stat. Assoc. 81, 82).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from rubix_like.inference.free import Free
from rubix_like.inference.laplace import Laplace
from rubix_like.inference.linearise import losses, normal_forms
from rubix_like.inference.optimisers import SquaredLoss

EDGE: float = 2.0
"""|latent| from which on a value is at the edge of its prior: 4.6 % of the prior lies there."""

LIMIT: float = 0.95
"""Probability of a limit where none is asked for."""

MOST_FOLLOWED: int = 4
"""Values whose posterior is followed: those nearest to their edges."""

MOST_LATENTS: int = 100
"""Of a fit in which that is done: each step along a latent costs as much as a step of the search."""

NODES: int = 201
"""At which a posterior is kept."""

_KNOWN = 0.02
"""Standard deviation of a latent below which its normal approximation is right at an edge, too."""

_DEEP = 8.0
"""Below the highest ln p the posterior is followed no further."""

_FURTHEST = 6.0
"""|latent| beyond which there is nothing of a prior."""

_MOST_NODES = 14
"""On each side of the best fit."""

_SMALL_GAIN = 0.02
"""Of the loss, which a step in the other latents is not taken for."""

_MOST_STEPS = 6

_LONGEST = 0.7
"""Change of a latent in a step, in units of the prior's standard deviation."""

_PART = 0.7
"""Of a standard deviation between two nodes."""


class Reach(NamedTuple):
    """An interval of values, or a limit: `sign` "<" (up to `high`) or ">" (from `low` on), or "" of an interval."""

    sign: str
    low: float
    high: float

    def words(self, probability: float = LIMIT) -> str:
        """With the probability that it holds."""
        share = f"({100 * probability:g} %)"
        if self.sign:
            return f"{self.sign} {self.high if self.sign == '<' else self.low:.3g} {share}"
        size = max(abs(self.high), abs(self.low), np.finfo(float).tiny)
        digits = max(3, 2 - int(np.floor(np.log10(max((self.high - self.low) / size, 1e-9)))))
        return f"{self.low:.{digits}g} to {self.high:.{digits}g} {share}"


@dataclass(frozen=True, eq=False)
class Edges:
    """Of some latents, `index` in the order of the labels, the density `density` at the latents `latent`, rising.

    `lower_loss`: by how much the loss is lower elsewhere along the latent than at the best fit, and `lower_at` where.
    """

    index: Int[ndarray, " edge"]
    latent: Float[ndarray, "edge node"]
    density: Float[ndarray, "edge node"]
    lower_loss: Float[ndarray, " edge"]
    lower_at: Float[ndarray, " edge"]

    @classmethod
    def none(cls) -> "Edges":
        """Of no latent."""
        nothing = np.zeros((0, NODES))
        return cls(np.zeros(0, np.int64), nothing, nothing, np.zeros(0), np.zeros(0))

    def quantile(self, number: int, share: float) -> float:
        """The latent below which this share of the posterior of one of them lies."""
        at, density = self.latent[number], self.density[number]
        cumulative = np.append(0.0, np.cumsum(0.5 * (density[1:] + density[:-1]) * np.diff(at)))
        rising = np.append(True, np.diff(cumulative) > 0)
        return float(np.interp(share, cumulative[rising] / cumulative[-1], at[rising]))

    def reach(self, free: Free, number: int, probability: float) -> Reach:
        """The values that hold this probability: up to the prior's end where the posterior lies against it, else with
        as much below as above."""
        own = int(self.index[number])
        low, middle, high = (_value(free, own, self.quantile(number, share)) for share in (0.1587, 0.5, 0.8413))
        ends = ends_of(free, own)
        sign = sign_of(low, middle, high, ends)
        tail = (1 - probability) / (1 if sign else 2)
        first = ends[0] if sign == "<" else _value(free, own, self.quantile(number, tail))
        last = ends[1] if sign == ">" else _value(free, own, self.quantile(number, 1 - tail))
        return Reach(sign, first, last)


def sign_of(low: float, middle: float, high: float, ends: tuple[float, float]) -> str:
    """Whether a posterior with these values at 16, 50 and 84 % lies against an end of its prior: "<" the lower one,
    ">" the upper one, "" neither. Against it: the end is nearer to its own side's value than the middle is."""
    gaps = low - ends[0], ends[1] - high
    if gaps[0] < middle - low and gaps[0] <= gaps[1]:
        return "<"
    return ">" if gaps[1] < high - middle else ""


def edges_of(posterior: SquaredLoss, free: Free, best: Float[ndarray, " latent"], laplace: Laplace | None) -> Edges:
    """The posterior of every value at an edge of its prior; of none where there is no approximation.

    It is followed where the normal approximation cannot be right, for up to `MOST_FOLLOWED` values; of others it is
    that approximation, in the latent, within the prior.
    """
    if laplace is None:
        return Edges.none()
    best = np.asarray(best, np.float64)
    found = at_edge(free, best)
    if not len(found):
        return Edges.none()
    doubtful = [own for own in found[np.argsort(-np.abs(best[found]))] if laplace.sigma[own] > _KNOWN]
    followed = doubtful[:MOST_FOLLOWED] if len(best) <= MOST_LATENTS else []
    rows = [
        _followed(posterior, best, int(own))
        if own in followed
        else _normal(float(best[own]), float(laplace.sigma[own]))
        for own in found
    ]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Edges(found, *columns)


def at_edge(free: Free, latent: Float[ndarray, " latent"]) -> Int[ndarray, " edge"]:
    """Which latents are at an edge: |latent| from `EDGE` on, where the prior has an end on that side."""
    far = np.flatnonzero(np.abs(latent) >= EDGE)
    return np.array([own for own in far if np.isfinite(_value(free, int(own), np.copysign(np.inf, latent[own])))], int)


def ends_of(free: Free, index: int) -> tuple[float, float]:
    """The values between which a prior lies."""
    return _value(free, index, -np.inf), _value(free, index, np.inf)


def notes_on_edges(free: Free, edges: Edges, furthest: float) -> list[str]:
    """Of false maxima: where along a latent the loss is lower by more than `furthest` than at the best fit."""
    return [
        f"the loss is lower by {gap:.3g} with {free.labels[own]} at {_value(free, int(own), at):.4g}: the search has "
        f"ended in a false maximum at the edge of its prior; begin there (fit.start), or with more starts"
        for own, gap, at in zip(edges.index, edges.lower_loss, edges.lower_at, strict=True)
        if gap > furthest
    ]


def _value(free: Free, index: int, latent: float) -> float:
    """Of one latent."""
    at = jnp.zeros(free.n_latent).at[index].set(latent)
    return float(jnp.concatenate([jnp.ravel(own) for own in free.values(at).values()])[index])


Row = tuple[Float[ndarray, " node"], Float[ndarray, " node"], float, float]
"""Latents, density, by how much the loss is lower elsewhere, and where."""


def _normal(mean: float, sigma: float) -> Row:
    at = mean + sigma * np.linspace(-6, 6, NODES)
    return at, _normalised(at, -0.5 * ((at - mean) / sigma) ** 2), 0.0, mean


def _normalised(at: Float[ndarray, " node"], log_density: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    density = np.exp(log_density - log_density.max())
    return density / np.trapezoid(density, at)


class _Node(NamedTuple):
    """Of the posterior along a latent: where, the other latents with it, the loss with its slope along the latent and
    the standard deviation there, and ln det A of the others."""

    at: float
    latent: Float[ndarray, " latent"]
    loss: float
    slope: float
    sigma: float
    log_determinant: float

    @property
    def log_density(self) -> float:
        """ln p(t)."""
        return -self.loss - 0.5 * self.log_determinant


def _followed(posterior: SquaredLoss, best: Float[ndarray, " latent"], index: int) -> Row:
    """From the best fit to both sides; the loss between the nodes by its slopes, too."""
    begin = _node(posterior, best, index, float(best[index]))
    sides = [list(_walk(posterior, begin, index, way)) for way in (-1.0, 1.0)]
    nodes = sorted([begin, *sides[0], *sides[1]], key=lambda node: node.at)
    places, loss, slope, determinant = (
        np.array([getattr(node, name) for node in nodes]) for name in ("at", "loss", "slope", "log_determinant")
    )
    at = np.linspace(places[0], places[-1], NODES)
    lowest = min(nodes, key=lambda node: node.loss)
    log_density = -CubicHermiteSpline(places, loss, slope)(at) - 0.5 * PchipInterpolator(places, determinant)(at)
    return at, _normalised(at, log_density), begin.loss - lowest.loss, lowest.at


def _walk(posterior: SquaredLoss, begin: _Node, index: int, way: float) -> Iterator[_Node]:
    """Node by node in one direction, until there is nothing left of the posterior.

    A step is a part of the standard deviation there; uphill, half the way to where the loss is lowest, if that is more.
    """
    node, highest = begin, begin.log_density
    for _ in range(_MOST_NODES):
        uphill = max(-way * node.slope, 0.0) * node.sigma**2
        step = min(max(_PART * node.sigma, 0.5 * uphill), _LONGEST)
        at = float(np.clip(node.at + way * step, -_FURTHEST, _FURTHEST))
        if at == node.at:
            return
        node = _node(posterior, node.latent, index, at)
        if not np.isfinite(node.log_density):
            return
        yield node
        highest = max(highest, node.log_density)
        if highest - node.log_density > _DEEP:
            return


def _node(posterior: SquaredLoss, latent: Float[ndarray, " latent"], index: int, at: float) -> _Node:
    """The lowest loss with one latent held, by Gauss-Newton steps in the others, halved where they lead up."""
    others = np.delete(np.arange(len(latent)), index)
    own = np.array(latent, np.float64)
    own[index] = at
    loss = _loss(posterior, own)
    for count in range(_MOST_STEPS):
        matrix, gradient = _normal_equations(posterior, own)
        inner, cross = matrix[np.ix_(others, others)], matrix[others, index]
        full = -np.linalg.solve(inner, gradient[others])
        gain = -0.5 * float(full @ gradient[others])
        if gain < _SMALL_GAIN or count == _MOST_STEPS - 1:
            break
        step = full * min(1.0, _LONGEST / float(np.max(np.abs(full))))
        trial, lower = _lowered(posterior, own, others, step, loss)
        if not lower < loss:
            break
        own, loss = trial, lower
    information = float(matrix[index, index] - cross @ np.linalg.solve(inner, cross))
    slope = float(gradient[index] + cross @ full)
    determinant = float(np.linalg.slogdet(inner)[1])
    return _Node(at, own, loss - gain, slope, 1 / np.sqrt(max(information, 1.0)), determinant)


def _lowered(
    posterior: SquaredLoss, latent: ndarray, others: ndarray, step: ndarray, loss: float
) -> tuple[Float[ndarray, " latent"], float]:
    """The first of a step and its halves that lowers the loss, or the last."""
    for half in range(4):
        trial = np.array(latent)
        trial[others] += step * 0.5**half
        found = _loss(posterior, trial)
        if found < loss:
            break
    return trial, found


def _loss(posterior: SquaredLoss, latent: Float[ndarray, " latent"]) -> float:
    return float(losses(posterior, jnp.asarray(latent)[None])[0])


def _normal_equations(
    posterior: SquaredLoss, latent: Float[ndarray, " latent"]
) -> tuple[Float[ndarray, "latent latent"], Float[ndarray, " latent"]]:
    """J^T J with the prior's 1, and the gradient of the loss."""
    form = normal_forms(posterior, jnp.asarray(latent)[None])
    factor = np.asarray(form.factor[0], np.float64)
    return factor.T @ factor, np.asarray(form.gradient[0], np.float64)

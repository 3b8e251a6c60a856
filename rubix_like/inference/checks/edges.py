"""Values at the edge of their priors: their posterior, where a standard deviation says nothing.

A prior with limits is flat in its latent where that is large: the value hardly changes, so that its slope, and with it
a standard deviation from derivatives, is near 0 whatever the data say. So the posterior is followed along the latent t,
by Laplace's approximation in the others, and the value has a limit or an interval:

    ln p(t) = -loss(t, x(t)) - 1/2 ln det A(t) + constant,

the others x(t) where the loss is lowest for this t, and A(t) = J^T J + 1 of them there (Tierney & Kadane 1986, J. Am.
Stat. Assoc. 81, 82).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.interpolate import CubicHermiteSpline, PchipInterpolator

from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.posterior.fit_model import Free, FreeParameter
from rubix_like.inference.posterior.free_parameters import declarations_of, settings_of
from rubix_like.inference.posterior.posterior import SquaredLoss
from rubix_like.inference.posterior.priors import Isotropic, LogUniform, Uniform, is_limited
from rubix_like.inference.search.library_cells import LONGEST, Node, node_at

NODES: int = 201
"""At which a posterior is kept."""

_DEEP = 8.0
"""Below the highest ln p the posterior is followed no further."""

_ROUGH = 10 * NODES
"""Places by which it is found how far that is."""

_FURTHEST = 6.0
"""|latent| beyond which there is nothing of a prior."""

_MOST_NODES = 14
"""Largest number of nodes on each side of the best fit."""

_PART = 0.7
"""Distance of two nodes, in standard deviations."""

Row = tuple[Float[ndarray, " node"], Float[ndarray, " node"], float, float]
"""Latents, density, by how much the loss is lower elsewhere, and where."""


def normalised(at: Float[ndarray, " node"], log_density: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
    """The density whose logarithm is known up to a constant."""
    density = np.exp(log_density - log_density.max())
    return density / np.trapezoid(density, at)


def follow(posterior: SquaredLoss, best: Float[ndarray, " latent"], index: int) -> Row:
    """The posterior along one latent, from the best fit to both sides, where there is something of it."""
    begin = node_at(posterior, best, index, float(best[index]))
    sides = [list(_walk(posterior, begin, index, way)) for way in (-1.0, 1.0)]
    nodes = sorted([begin, *sides[0], *sides[1]], key=lambda node: node.at)
    places, loss, slope, determinant = (
        np.array([getattr(node, name) for node in nodes]) for name in ("at", "loss", "slope", "log_determinant")
    )
    losses_between, determinants_between = (
        CubicHermiteSpline(places, loss, slope),
        PchipInterpolator(places, determinant),
    )

    def log_density(at: Float[ndarray, " node"]) -> Float[ndarray, " node"]:
        """Between the nodes the loss follows its slopes."""
        return -losses_between(at) - 0.5 * determinants_between(at)

    rough = np.linspace(places[0], places[-1], _ROUGH)
    known = log_density(rough)
    there = rough[known > known.max() - _DEEP]
    at = np.linspace(there[0], there[-1], NODES)
    lowest = min(nodes, key=lambda node: node.loss)
    return at, normalised(at, log_density(at)), begin.loss - lowest.loss, lowest.at


def _walk(posterior: SquaredLoss, begin: Node, index: int, way: float) -> Iterator[Node]:
    """Node by node in one direction, until there is nothing left of the posterior.

    A step is a part of the standard deviation there; uphill, half the way to where the loss is lowest, if that is more.
    """
    node, highest = begin, begin.log_density
    for _ in range(_MOST_NODES):
        uphill = max(-way * node.slope, 0.0) * node.sigma**2
        step = min(max(_PART * node.sigma, 0.5 * uphill), LONGEST)
        at = float(np.clip(node.at + way * step, -_FURTHEST, _FURTHEST))
        if at == node.at:
            return
        node = node_at(posterior, node.followed_to(at), index, at)
        if not np.isfinite(node.log_density):
            return
        yield node
        highest = max(highest, node.log_density)
        if highest - node.log_density > _DEEP:
            return


EDGE: float = 2.0
"""|latent| from which on a value is at the edge of its prior: 4.6 % of the prior lies there."""

FAR: float = 3.0
"""The same of a prior without limits, or that fades away towards one: 0.3 % of it lies there."""

LIMIT: float = 0.95
"""Probability of a limit where none is asked for."""

MOST_FOLLOWED: int = 4
"""Values whose posterior is followed: those nearest to their edges."""

MOST_LATENTS: int = 100
"""Largest number of latents of a fit whose edges are followed: a step along a latent costs a step of the search."""

_KNOWN = 0.02
"""Standard deviation of a latent below which its normal approximation is right at an edge, too."""

_FADED = 0.5
"""A prior fades away towards an end that at |latent| = 2 is further away than this times the step from 1 to 2."""

_BEYOND = 1e-6
"""Step beyond an end of a prior, relative to the end, or to the prior's width where the end is 0."""

_OF_AXES = (0.0, 90.0, 180.0)
"""Inclinations (deg) beyond which the same ones come again, seen from the other side."""

_SAME_ANGLE = 1e-3
"""deg."""

_TURN = 360.0
"""deg."""

_Which = Bool[ndarray | np.bool_, "..."]
"""Whether each value of a parameter is at an edge of its prior."""


class Reach(NamedTuple):
    """An interval of values, or a limit: `sign` "<" (up to `high`) or ">" (from `low` on), or "" of an interval."""

    sign: str
    low: float
    high: float

    def words(self, probability: float = LIMIT) -> str:
        """The limit in words, with its probability."""
        share = f"({100 * probability:g} %)"
        if self.sign:
            return f"{self.sign} {self.high if self.sign == '<' else self.low:.3g} {share}"
        size = max(abs(self.high), abs(self.low), np.finfo(float).tiny)
        digits = max(3, 2 - int(np.floor(np.log10(max((self.high - self.low) / size, 1e-9)))))
        return f"{self.low:.{digits}g} to {self.high:.{digits}g} {share}"


@dataclass(frozen=True, eq=False)
class Edges:
    """Posteriors of some latents: `index` in the order of the labels, the density `density` at the latents `latent`,
    rising.

    `lower_loss`: by how much the loss is lower elsewhere along the latent than at the best fit, and `lower_at` where.
    """

    index: Int[ndarray, " edge"] = field(
        metadata=described_as("places among the labels of the values at the edge of their priors")
    )
    latent: Float[ndarray, "edge node"] = field(
        metadata=described_as("latents at which the posterior of each is tabulated")
    )
    density: Float[ndarray, "edge node"] = field(metadata=described_as("its density there"))
    lower_loss: Float[ndarray, " edge"] = field(
        metadata=described_as("by how much the loss is lower elsewhere along the latent")
    )
    lower_at: Float[ndarray, " edge"] = field(metadata=described_as("at which latent that is"))

    @classmethod
    def none(cls) -> "Edges":
        """The edges of a fit without any."""
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
        return reach_by(lambda share: _value(free, own, self.quantile(number, share)), ends_of(free, own), probability)


def check_probability(place: str, probability: float) -> None:
    """Raise ValueError for what is no probability, such as 68 of a percentage."""
    if not 0 < probability < 1:
        raise ValueError(f"{place}: expected a probability between 0 and 1, got {probability!r}; e.g. 0.95")


def reach_by(quantile: Callable[[float], float], ends: tuple[float, float], probability: float) -> Reach:
    """The reach of a posterior with these quantiles, of a prior that lies between `ends`."""
    low, middle, high = (quantile(share) for share in (0.1587, 0.5, 0.8413))
    sign = sign_of(low, middle, high, ends)
    tail = (1 - probability) / (1 if sign else 2)
    first = ends[0] if sign == "<" else quantile(tail)
    return Reach(sign, first, ends[1] if sign == ">" else quantile(1 - tail))


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
    doubtful = [index for index in found[np.argsort(-np.abs(best[found]))] if laplace.sigma[index] > _KNOWN]
    followed = doubtful[:MOST_FOLLOWED] if len(best) <= MOST_LATENTS else []
    rows = [
        follow(posterior, best, int(index))
        if index in followed
        else _normal(float(best[index]), float(laplace.sigma[index]))
        for index in found
    ]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Edges(found, *columns)


def at_edge(free: Free, latent: Float[ndarray, " latent"]) -> Int[ndarray, " edge"]:
    """Which latents are at an edge (`edges_from`), where the prior has a limit on that side.

    The 0 of a log-normal prior is none: there a value changes with its latent as it does everywhere.
    """
    limited = np.concatenate([np.full(parameter.size, is_limited(parameter.prior)) for parameter in free.parameters])
    beyond = np.abs(latent) >= np.where(latent < 0, edges_from(free, -1), edges_from(free, 1))
    far = np.flatnonzero(limited & beyond)
    return np.array([own for own in far if np.isfinite(_value(free, int(own), np.copysign(np.inf, latent[own])))], int)


def edges_from(free: Free, sign: int) -> Float[ndarray, " latent"]:
    """|latent| from which on each value is at the lower (-1) or upper (1) edge of its prior: `EDGE` where that is a
    limit against which a value can lie, else `FAR`."""
    return np.concatenate(
        [np.broadcast_to(_edge_from(parameter, sign), parameter.shape).ravel() for parameter in free.parameters]
    )


def _edge_from(parameter: FreeParameter, sign: int) -> Float[ndarray, "..."]:
    """|latent| from which on a value is at the lower (-1) or upper (1) edge of one parameter's prior.

    Whether a prior fades away is judged by distances in the value, or in its logarithm between ends above 0.
    """
    if isinstance(parameter.prior, Uniform | LogUniform | Isotropic):
        return np.asarray(EDGE)
    if not is_limited(parameter.prior):
        return np.asarray(FAR)
    far, inner, outer, end = (
        np.asarray(parameter.prior.value(np.full(parameter.shape, sign * at)), np.float64)
        for at in (-np.inf, 1.0, EDGE, np.inf)
    )
    if np.isfinite([far, end]).all() and np.all(np.minimum(far, end) > 0):
        inner, outer, end = np.log(inner), np.log(outer), np.log(end)
    return np.where(np.abs(end - outer) <= _FADED * np.abs(outer - inner), EDGE, FAR)


def ends_of(free: Free, index: int) -> tuple[float, float]:
    """The values between which a prior lies."""
    return _value(free, index, -np.inf), _value(free, index, np.inf)


def advice_at_edge(parameter: FreeParameter, below: _Which, above: _Which) -> str:
    """How a sentence on values at the lower, or the upper, edge of their prior ends: with the advice to widen it,
    unless nothing is possible beyond that end."""
    if np.any(below & ~_is_last(parameter, -1)) or np.any(above & ~_is_last(parameter, 1)):
        return "; widen it if it need not be there"
    return ", the end of what is possible"


def _is_last(parameter: FreeParameter, sign: int) -> _Which:
    """Whether beyond the lower (-1) or upper (1) end of a prior its parameter cannot be, or comes again."""
    if not is_limited(parameter.prior):
        return np.zeros(parameter.shape, bool)
    low, high = (
        np.asarray(parameter.prior.value(np.full(parameter.shape, at)), np.float64) for at in (-np.inf, np.inf)
    )
    end = high if sign > 0 else low
    last = np.full(parameter.shape, parameter.unit == "deg") & (high - low >= _TURN)
    if parameter.name == "observation.inclination" or isinstance(parameter.prior, Isotropic):
        last = last | np.any(np.abs(end[..., None] - np.array(_OF_AXES)) < _SAME_ANGLE, axis=-1)
    declared = declarations_of([parameter.name]).get(parameter.name)
    if declared is None or not np.isfinite(end).all():
        return last
    beyond = np.asarray(end + sign * _BEYOND * np.where(end == 0, high - low, np.abs(end)))
    return last | any(declared.fault(value.tolist()) is not None for value in settings_of(parameter.name, beyond))


def notes_on_edges(free: Free, edges: Edges, furthest: float) -> list[str]:
    """Notes on false maxima: where along a latent the loss is lower by more than `furthest` than at the best fit."""
    return [
        f"the loss is lower by {gap:.3g} with {free.labels[index]} at {_value(free, int(index), at):.4g}: the search "
        f"has ended in a false maximum at the edge of its prior; begin there (fit.start), or with more starts"
        for index, gap, at in zip(edges.index, edges.lower_loss, edges.lower_at, strict=True)
        if gap > furthest
    ]


def _value(free: Free, index: int, latent: float) -> float:
    """The value of one latent."""
    for parameter in free.parameters:
        if index < parameter.size:
            return float(np.ravel(parameter.prior.value(np.full(parameter.shape, latent)))[index])
        index -= parameter.size
    raise IndexError(f"expected a place among {free.n_latent} latents, got one beyond")


def _normal(mean: float, sigma: float) -> Row:
    at = mean + sigma * np.linspace(-6, 6, NODES)
    return at, normalised(at, -0.5 * ((at - mean) / sigma) ** 2), 0.0, mean

"""Ages and metallicities between the nodes of an SSP library, where a posterior has kinks and several maxima.

Spectra are linear between neighbouring ages of a library, and so is the model of a component whose stars have one age
and metallicity: smooth within a cell of the library, with other slopes in the next one. Where cells are not much wider
than the errors, a search can be caught in one of them, and the curvature there says nothing of the others. So the
lowest loss of each cell near the best place is looked for with the value held, and the loss along the value is a
parabola in each cell: the posterior of the value is that of all cells, each with Laplace's approximation of the rest.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.forward.sources.stars import STAR_SOURCE
from rubix_like.galaxy.components.populations import SingleStars
from rubix_like.inference.posterior.fit_model import GALAXY, ComponentsSource, Free
from rubix_like.inference.posterior.posterior import Posterior, SquaredLoss, group_of, losses_and_forms_at
from rubix_like.runtime.notes import Note
from rubix_like.runtime.words import listed

LONGEST: float = 0.7
"""Change of a latent in a step, in units of the prior's standard deviation."""

_LEAST_GAIN = 0.02
"""Gain of the loss below which no step in the other latents is made."""

_MOST_STEPS = 6

_HALVES = 3
"""Times a step that leads up is halved."""


class NormalEquations(NamedTuple):
    """The loss at a place, J^T J and J^T r."""

    latent: Float[ndarray, " latent"]
    loss: float
    matrix: Float[ndarray, "latent latent"]
    gradient: Float[ndarray, " latent"]


class Node(NamedTuple):
    """A node of the posterior along a latent: where, the other latents with it, the loss with its slope along the
    latent and the standard deviation there, ln det A of the others, and how all latents follow this one."""

    at: float
    latent: Float[ndarray, " latent"]
    loss: float
    slope: float
    sigma: float
    log_determinant: float
    response: Float[ndarray, " latent"]

    @property
    def log_density(self) -> float:
        """ln of the latent's posterior density by Laplace's method, but for a constant."""
        return -self.loss - 0.5 * self.log_determinant

    def followed_to(self, at: float) -> Float[ndarray, " latent"]:
        """About where the lowest loss is with the latent held elsewhere."""
        return self.latent + _capped(self.response * (at - self.at))


class _Slopes(NamedTuple):
    """At a place: the best step of all latents but the one that is held, and by how much it would lower the loss; slope
    and second derivative of the loss along the latent once that step is made; ln det A of the others; d latent / d held
    latent of the lowest loss."""

    step: Float[ndarray, " latent"]
    gain: float
    slope: float
    information: float
    log_determinant: float
    response: Float[ndarray, " latent"]


def _capped(step: Float[ndarray, " latent"]) -> Float[ndarray, " latent"]:
    """No latent's step longer than `LONGEST`."""
    return step * min(1.0, LONGEST / max(float(np.max(np.abs(step))), LONGEST))


def normal_at(posterior: SquaredLoss, latent: Float[ndarray, " latent"]) -> NormalEquations:
    """The normal equations at a place, from one evaluation."""
    loss, form = losses_and_forms_at(posterior, group_of(posterior, latent))
    factor, projected = (np.asarray(array, np.float64)[0] for array in (form.factor, form.projected))
    return NormalEquations(
        np.array(latent, np.float64), float(np.asarray(loss)[0]), factor.T @ factor, factor.T @ projected
    )


def node_at(
    posterior: SquaredLoss,
    latent: Float[ndarray, " latent"],
    index: int,
    at: float,
    small: float = _LEAST_GAIN,
    known: NormalEquations | None = None,
) -> Node:
    """The lowest loss with one latent held, by Gauss-Newton steps in the others, halved where they lead up, until one
    would gain less than `small`; `known`: of the latents, where it is."""
    begin = np.array(latent, np.float64)
    begin[index] = at
    normal = known if known is not None and np.array_equal(known.latent, begin) else normal_at(posterior, begin)
    slopes = _slopes(normal, index)
    for _ in range(_MOST_STEPS):
        if slopes.gain < small:
            break
        step = _capped(slopes.step)
        trials = (normal_at(posterior, normal.latent + step * 0.5**half) for half in range(_HALVES + 1))
        lower = next((trial for trial in trials if trial.loss < normal.loss), None)
        if lower is None:
            break
        normal, slopes = lower, _slopes(lower, index)
    sigma = 1 / np.sqrt(max(slopes.information, 1.0))
    loss = normal.loss - slopes.gain
    lowest = normal.latent + _capped(slopes.step)
    return Node(at, lowest, loss, slopes.slope, sigma, slopes.log_determinant, slopes.response)


def _slopes(normal: NormalEquations, index: int) -> _Slopes:
    others = np.delete(np.arange(len(normal.gradient)), index)
    inner, cross = normal.matrix[np.ix_(others, others)], normal.matrix[others, index]
    gradient = normal.gradient[others]
    both = -np.linalg.solve(inner, np.stack([gradient, cross], axis=1))
    step, response = np.zeros(len(normal.gradient)), np.zeros(len(normal.gradient))
    step[others], response[others] = both.T
    response[index] = 1.0
    return _Slopes(
        step=step,
        gain=-0.5 * float(both[:, 0] @ gradient),
        slope=float(normal.gradient[index] + cross @ both[:, 0]),
        information=float(normal.matrix[index, index] + cross @ both[:, 1]),
        log_determinant=float(np.linalg.slogdet(inner)[1]),
        response=response,
    )


_REACH = 4.0
"""Standard deviations within which an end of the best place's cell must lie for others to be looked at."""

_DEEP = 4.0
"""Loss above the lowest of all cells from which on a cell ends the search on its side."""

_CLOSE = 2.0
"""The same from which on a cell is not looked at once more nearer to its lowest place."""

_SMALL_GAIN = 100.0
"""Gain of the loss that is taken from the slopes, without a look at the place: they tell it to about a thousandth."""

_MOST_CELLS = 12
"""On each side."""

_LOWER = 0.5
"""By how much the loss of another cell must be lower for a search to go on there."""

_FURTHEST = 6.0
"""|latent| beyond which there is nothing of a prior."""

_WITHIN, _NEAR, _BEYOND = 0.1, 0.5, 2.0
"""Of a cell's width, and standard deviations, from its ends; standard deviations beyond the end of the last cell where
the next one is seen."""

_LONGEST = 5.0
"""Standard deviations to the lowest place of a cell, at the most."""

_PLACES = 64
"""Of the posterior in each cell."""

_WIDER = 1.1
"""Least factor by which a standard deviation is enlarged."""


class Cell(NamedTuple):
    """The loss along the value between two nodes of the library, `low` to `high`, by its slopes at one place."""

    low: float
    high: float
    node: Node

    def loss(self, at: float | Float[ndarray, " place"]) -> Float[ndarray | np.floating, "*place"]:
        """The parabola."""
        apart = np.asarray(at) - self.node.at
        return self.node.loss + self.node.slope * apart + 0.5 * (apart / self.node.sigma) ** 2

    @property
    def lowest(self) -> float:
        """The latent where the parabola is lowest within the cell."""
        return float(np.clip(self.node.at - self.node.slope * self.node.sigma**2, self.low, self.high))

    @property
    def least(self) -> float:
        """The loss there."""
        return float(self.loss(self.lowest))


class Spread(NamedTuple):
    """The posterior of one value over all cells: the root of its mean square distance from the best place over the
    standard deviation there, and between which latents 95 % of it lie."""

    place: int
    factor: float
    ends: tuple[float, float]


def library_nodes(posterior: Posterior) -> dict[int, Float[ndarray, " edge"]]:
    """Ages and metallicities of components of one age and metallicity that are free, by their places among the latents,
    with the latents of the library's nodes within the prior, and the ends of the prior."""
    source = posterior.forward.source
    if not isinstance(source, ComponentsSource):
        return {}
    main = posterior.forward.main
    painted = dict(zip(main.plan.sources, main.tables.paint, strict=True))
    if STAR_SOURCE not in painted:
        return {}
    library = painted[STAR_SOURCE].painter.axes
    axes = {name: np.asarray(nodes, np.float64) for name, nodes in zip(library.names, library.nodes, strict=False)}
    known: dict[str, ndarray] = {}
    for name, component in zip(source.base.names, source.base.components, strict=True):
        population = getattr(component, "population", None)
        if not isinstance(population, SingleStars) or not {"age", "metallicity"} <= set(axes):
            continue
        beginning = f"{GALAXY}{name}.population."
        known[f"{beginning}log_age"] = axes["age"]
        if not posterior.free.has(f"{beginning}metallicity_gradient") and float(population.metallicity_gradient) == 0:
            known[f"{beginning}metallicity"] = 10 ** axes["metallicity"]
    correlated = {name for group in posterior.free.correlated for name in group.names}
    found = {}
    for parameter in posterior.free.parameters:
        if parameter.name not in known or parameter.size != 1 or parameter.name in correlated:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            latents = np.ravel(np.asarray(parameter.prior.latent(known[parameter.name])))
        inside = latents[np.isfinite(latents) & (np.abs(latents) < _FURTHEST)]
        found[posterior.free.places[parameter.name].start] = np.concatenate(
            [[-_FURTHEST], np.sort(inside), [_FURTHEST]]
        )
    return found


class CellsSeen:
    """The cells near the best place of a posterior: what is found in a search serves its errors."""

    def __init__(self) -> None:
        self._best: Float[ndarray, " latent"] | None = None
        self._cells: dict[int, list[Cell]] = {}
        self._is_held = False

    def hold(self, best: Float[ndarray, " latent"]) -> None:
        """Cells about this place, if they were seen, also serve places near it from now on, as those to which a search
        with more quadrature points leads."""
        self._is_held = self._best is not None and np.array_equal(self._best, best)

    def near(
        self, posterior: Posterior, best: Float[ndarray, " latent"]
    ) -> tuple[Mapping[int, list[Cell]], Float[ndarray, " latent"]]:
        """The cells by the places of ages and metallicities among the latents, and the place about which they were
        looked for.

        Unless they are held always to be called with the same posterior.
        """
        if self._best is None or not (self._is_held or np.array_equal(self._best, best)):
            self._cells, self._best = cells_near(posterior, best, library_nodes(posterior)), np.array(best)
        return self._cells, self._best


def cells_near(
    posterior: SquaredLoss, best: Float[ndarray, " latent"], nodes: Mapping[int, Float[ndarray, " edge"]]
) -> dict[int, list[Cell]]:
    """The cells near the best place along each value, in their order, the one that holds it among them; none where it
    is far from the ends of that. `nodes`: as of `library_nodes`."""
    if not nodes:
        return {}
    normal, found = normal_at(posterior, best), dict[int, list[Cell]]()
    variance = np.diag(np.linalg.inv(normal.matrix))
    for index, edges in nodes.items():
        at, sigma = float(normal.latent[index]), float(np.sqrt(variance[index]))
        number = int(np.clip(np.searchsorted(edges, at) - 1, 0, len(edges) - 2))
        low, high = float(edges[number]), float(edges[number + 1])
        if min(at - low, high - at) > _REACH * sigma:
            found[index] = []
            continue
        margin = min(_WITHIN * (high - low), _NEAR * sigma)
        at = float(np.clip(at, low + margin, high - margin))
        begin = Cell(low, high, node_at(posterior, normal.latent, index, at, _SMALL_GAIN, normal))
        before, after = (list(_beyond(posterior, begin, index, edges, number, way)) for way in (-1, 1))
        found[index] = [*reversed(before), begin, *after]
    return found


def _beyond(
    posterior: SquaredLoss, begin: Cell, index: int, edges: Float[ndarray, " edge"], best: int, way: int
) -> Iterator[Cell]:
    """Cell by cell in one direction, until the loss is too high."""
    cell, lowest = begin, begin.least
    for number in range(best + way, best + way * (_MOST_CELLS + 1), way):
        if not 0 <= number < len(edges) - 1:
            return
        low, high = float(edges[number]), float(edges[number + 1])
        into = min(0.5 * (high - low), _BEYOND * cell.node.sigma)
        at = low + into if way > 0 else high - into
        node = node_at(posterior, cell.node.followed_to(at), index, at, _SMALL_GAIN)
        cell = Cell(low, high, node)
        if abs(cell.lowest - node.at) > node.sigma and cell.least < lowest + _CLOSE:
            reach = _LONGEST * node.sigma
            at = float(np.clip(cell.lowest, node.at - reach, node.at + reach))
            cell = Cell(low, high, node_at(posterior, node.followed_to(at), index, at, _SMALL_GAIN))
        if not np.isfinite(cell.least):
            return
        yield cell
        lowest = min(lowest, cell.least)
        if cell.least > lowest + _DEEP:
            return


def lower_elsewhere(
    cells: Mapping[int, list[Cell]], best: Float[ndarray, " latent"], loss: float
) -> Float[ndarray, " latent"] | None:
    """The place where a search is to go on: the lowest one of another cell of a value, if the loss is lower there."""
    found = [
        (cell.least, index, cell)
        for index, every in cells.items()
        for cell in every
        if not cell.low <= best[index] <= cell.high
    ]
    if not found:
        return None
    least, _, cell = min(found, key=lambda place: place[:2])
    return cell.node.followed_to(cell.lowest) if least < loss - _LOWER else None


def spreads(
    cells: Mapping[int, list[Cell]], best: Float[ndarray, " latent"], sigma: Float[ndarray, " latent"]
) -> list[Spread]:
    """The ages and metallicities whose posterior over all cells is wider than `sigma`, those at the best place."""
    found = (
        spread_over(every, index, float(best[index]), float(sigma[index]))
        for index, every in cells.items()
        if len(every) > 1
    )
    return [spread for spread in found if spread.factor > _WIDER]


def spread_over(cells: list[Cell], index: int, best: float, sigma: float) -> Spread:
    """The spread of one value, over two cells at least."""
    places, log_density, width = [], [], []
    for cell in cells:
        reach = 8 * cell.node.sigma
        ends = np.linspace(max(cell.low, cell.lowest - reach), min(cell.high, cell.lowest + reach), _PLACES + 1)
        middle = 0.5 * (ends[1:] + ends[:-1])
        places.append(middle)
        log_density.append(-cell.loss(middle) - 0.5 * cell.node.log_determinant)
        width.append(np.diff(ends))
    at, density = np.concatenate(places), np.concatenate(log_density)
    weight = np.exp(density - density.max()) * np.concatenate(width)
    weight = weight / weight.sum()
    factor = float(np.sqrt(weight @ (at - best) ** 2)) / sigma
    below = np.cumsum(weight)
    low, high = (float(at[np.searchsorted(below, share)]) for share in (0.025, 0.975))
    return Spread(index, factor, (low, high))


def with_spreads(covariance: Float[ndarray, "latent latent"], found: list[Spread]) -> Float[ndarray, "latent latent"]:
    """The covariance with standard deviations of some values times their factors; the rest, given these, as it was."""
    for spread in found:
        column = covariance[:, spread.place]
        covariance = covariance + (spread.factor**2 - 1) * np.outer(column, column) / column[spread.place]
    return covariance


def notes_on_spreads(free: Free, found: list[Spread]) -> list[Note]:
    """Notes on values whose sigma was enlarged, and why."""
    labels, values = free.labels, []
    for spread in found:
        ends = [np.zeros(free.n_latent) + spread.ends[side] for side in (0, 1)]
        low, high = (float(np.asarray(free.flat_of(end))[spread.place]) for end in ends)
        values.append(f"{labels[spread.place]} ({spread.factor:.2g} times, 95 % from {low:.4g} to {high:.4g})")
    if not values:
        return []
    text = (
        f"spectra are linear between ages and metallicities of the SSP library, so that the posterior has a kink at "
        f"each and may have a maximum between any two: the standard deviation of {listed(values)} was enlarged to hold "
        f"all of these; it says little of the posterior's shape"
    )
    return [Note("fit.between_nodes", text)]

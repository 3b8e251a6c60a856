"""Draws about a best fit, of a model that is linear in the values, between the ends of their priors.

A fit knows the best latents x_best, their covariance C and the maps v(x) of the priors. Near the end of a uniform prior
a value hardly changes with its latent, and a posterior that is nearly normal in the values is bent in the latents. So
what is taken as linear is the model as a function of the values: with u = (v - v_best) / (dv / dx), which is about
x - x_best, and K = C^-1 - 1, what the data say,

    -ln P(x) = x^2 / 2 - x_best u + u K u / 2 + constant.

At the best place the data's gradient is that of the prior, x_best. Priors are exact, and no draw lies outside of one.
Values that are linear in their latents (normal priors) are normal given the rest; the others are drawn by Hamiltonian
Monte Carlo (Neal 2011, arXiv:1206.1901), a chain for each draw, so that draws are independent. It takes no model.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.interpolate import CubicSpline

from rubix_like.inference.posterior.free import Free

_BENT = 0.02
"""Departure of a value's map from a straight line within `_REACH`, in standard deviations, from which it counts."""

_REACH = 4.0
_FURTHEST = 9.0
"""Normal variables up to which maps are tabulated: beyond is 1e-19 of a prior."""

_SPACING = 0.01

_ROUNDS, _TRAJECTORIES = 4, 12
"""Of the chains: after each round but the last the steps are chosen anew."""

_STEP, _LEAST_ACCEPTED, _MOST_ACCEPTED = 0.35, 0.7, 0.9
_QUARTER = 0.5 * np.pi
"""Longest trajectory: a quarter of the period of a normal posterior."""

_MOST_TOGETHER = 64
"""Bent values up to which the chains' own covariance is measured; more have that of the approximation."""


def drawn_latents(
    free: Free, best: Float[ndarray, " latent"], covariance: Float[ndarray, "latent latent"], seed: int, count: int
) -> Float[ndarray, "count latent"]:
    """Independent draws of the latents; `covariance`: as of a model that is linear in these."""
    generator = np.random.default_rng(seed)
    bent = _bent(free, best, covariance)
    if not bent.any():
        return best + generator.standard_normal((count, len(best))) @ np.linalg.cholesky(covariance).T
    target = _Target.of(free, best, covariance, bent)
    chains = max(count, 4 * target.size) if target.size <= _MOST_TOGETHER else count
    own = _chains(target, _first(target, chains, generator), generator)[:count]
    return _with_rest(best, covariance, bent, (own, target.scaled(own)[0]), generator)


def _bent(
    free: Free, best: Float[ndarray, " latent"], covariance: Float[ndarray, "latent latent"]
) -> Bool[ndarray, " latent"]:
    """Whose maps are bent within the reach of the posterior, and what is correlated with them in the prior."""
    own = np.asarray(free.own_normals(best))
    mixing = free.mixing
    sigma = np.sqrt(np.diag(mixing @ covariance @ mixing.T))
    slope, middle = free.slopes(best), np.asarray(free.flat_of(own))
    found = np.zeros(len(best), bool)
    for side in (-_REACH, -0.5 * _REACH, 0.5 * _REACH, _REACH):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            scaled = (np.asarray(free.flat_of(own + side * sigma)) - middle) / slope
        found |= np.abs(scaled - side * sigma) > _BENT * sigma
    found &= slope > 0
    return (np.abs(mixing) + np.abs(mixing.T)) @ found > 0 if free.correlated else found


@dataclass(frozen=True)
class _Target:
    """The density of the bent latents alone.

    `table`: cubic pieces (power, piece, bent) of u by the values' own normal variables, from `-reach` on; `mixing`:
    own = mixing x; `unmixing`: its inverse; `of_data`: K, the rest being integrated over; `half`: of the
    approximation's covariance.
    """

    best: Float[ndarray, " bent"]
    mixing: Float[ndarray, "bent bent"]
    unmixing: Float[ndarray, "bent bent"]
    of_data: Float[ndarray, "bent bent"]
    half: Float[ndarray, "bent bent"]
    table: Float[ndarray, "power piece bent"]
    reach: float

    @classmethod
    def of(
        cls,
        free: Free,
        best: Float[ndarray, " latent"],
        covariance: Float[ndarray, "latent latent"],
        bent: Bool[ndarray, " latent"],
    ) -> "_Target":
        """From what a fit knows."""
        own, inner = np.asarray(free.own_normals(best)), covariance[np.ix_(bent, bent)]
        reach = float(max(_FURTHEST, np.abs(own).max() + 1))
        grid = np.linspace(-reach, reach, round(2 * reach / _SPACING) + 1)
        values = np.asarray(free.flat_of(np.tile(grid[:, None], len(best))))[:, bent]
        middle, slope = np.asarray(free.flat_of(own))[bent], free.slopes(best)[bent]
        eigenvalues, axes = np.linalg.eigh(np.linalg.inv(inner) - np.eye(len(inner)))
        mixing = free.mixing[np.ix_(bent, bent)]
        return cls(
            best[bent],
            mixing,
            np.linalg.inv(mixing),
            (axes * np.maximum(eigenvalues, 0)) @ axes.T,
            np.linalg.cholesky(inner),
            CubicSpline(grid, (values - middle) / slope).c,
            reach,
        )

    @property
    def size(self) -> int:
        """How many."""
        return len(self.best)

    def scaled(self, latent: Float[ndarray, "chain bent"]) -> tuple[ndarray, ndarray]:
        """u, unmixed like the latents, and the derivatives of the mixed one by the values' own normal variables."""
        n_piece = self.table.shape[1]
        spacing = 2 * self.reach / n_piece
        place = latent @ self.mixing.T + self.reach
        piece = np.clip((place / spacing).astype(int), 0, n_piece - 1)
        cube, square, line, constant = self.table[:, piece, np.arange(self.size)]
        rest = place - piece * spacing
        value = ((cube * rest + square) * rest + line) * rest + constant
        return value @ self.unmixing.T, (3 * cube * rest + 2 * square) * rest + line

    def loss(self, latent: Float[ndarray, "chain bent"]) -> tuple[ndarray, ndarray]:
        """-ln P up to a constant, and its gradient."""
        scaled, slope = self.scaled(latent)
        pushed = scaled @ self.of_data
        loss = 0.5 * np.sum(latent**2, axis=1) - scaled @ self.best + 0.5 * np.sum(scaled * pushed, axis=1)
        by_own = (pushed - self.best) @ self.unmixing * slope
        return loss, latent + by_own @ self.mixing


def _first(target: _Target, chains: int, generator: np.random.Generator) -> Float[ndarray, "chain bent"]:
    """Starts of chains: normal in the values, or in the latents where that is outside a prior."""
    normal = generator.standard_normal((chains, target.size)) @ target.half.T
    wanted, grid = normal @ target.mixing.T, np.linspace(-target.reach, target.reach, target.table.shape[1] + 1)[:-1]
    pairs = zip(wanted.T, target.table[3].T, strict=True)
    own = np.stack([np.interp(one, nodes, grid, left=np.nan, right=np.nan) for one, nodes in pairs], axis=1)
    bent = own @ target.unmixing.T
    usable = np.asarray((np.isfinite(bent) & (np.abs(bent) < 0.5 * target.reach)).all(axis=1))
    return np.where(usable[:, None], bent, target.best + normal)


def _chains(
    target: _Target, latent: Float[ndarray, "chain bent"], generator: np.random.Generator
) -> Float[ndarray, "chain bent"]:
    """Ends of chains that began at these latents."""
    half, step = target.half, _STEP
    for number in range(_ROUNDS):
        if number and target.size <= _MOST_TOGETHER:
            half = np.linalg.cholesky(np.atleast_2d(np.cov(latent, rowvar=False)))
        for _ in range(_TRAJECTORIES):
            length = _QUARTER * generator.uniform(0.3, 1)
            latent, accepted = _moved(target, latent, half, (length, step), generator)
            if number < _ROUNDS - 1:
                step *= 0.8 if accepted < _LEAST_ACCEPTED else 1.1 if accepted > _MOST_ACCEPTED else 1
    return latent


def _moved(
    target: _Target,
    latent: Float[ndarray, "chain bent"],
    half: Float[ndarray, "bent bent"],
    chosen: tuple[float, float],
    generator: np.random.Generator,
) -> tuple[Float[ndarray, "chain bent"], float]:
    """The end of one trajectory of each chain (leapfrog in coordinates in which `half` half^T is 1), and the share of
    them that is accepted; `chosen`: its length and the longest step."""
    count = int(np.ceil(chosen[0] / chosen[1]))
    step, place = chosen[0] / count, latent
    loss, slope = target.loss(place)
    momentum = generator.standard_normal(latent.shape)
    energy = loss + 0.5 * np.sum(momentum**2, axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        momentum = momentum - 0.5 * step * slope @ half
        for number in range(count):
            place = place + step * momentum @ half.T
            loss, slope = target.loss(np.nan_to_num(place))
            momentum = momentum - (step if number < count - 1 else 0.5 * step) * slope @ half
        change = energy - loss - 0.5 * np.sum(momentum**2, axis=1)
    accepted = np.asarray(np.log(generator.random(len(latent))) < change)
    return np.where(accepted[:, None], place, latent), float(accepted.mean())


def _with_rest(
    best: Float[ndarray, " latent"],
    covariance: Float[ndarray, "latent latent"],
    bent: Bool[ndarray, " latent"],
    drawn: tuple[Float[ndarray, "count bent"], Float[ndarray, "count bent"]],
    generator: np.random.Generator,
) -> Float[ndarray, "count latent"]:
    """All latents of the bent ones and their u: the others are normal given these."""
    latent, scaled = drawn
    found = np.empty((len(latent), len(best)))
    found[:, bent] = latent
    if bent.all():
        return found
    regression = np.linalg.solve(covariance[np.ix_(bent, bent)], covariance[np.ix_(bent, ~bent)])
    rest = covariance[np.ix_(~bent, ~bent)] - covariance[np.ix_(~bent, bent)] @ regression
    noise = generator.standard_normal((len(latent), len(rest))) @ np.linalg.cholesky(rest).T
    found[:, ~bent] = best[~bent] + scaled @ regression + noise
    return found

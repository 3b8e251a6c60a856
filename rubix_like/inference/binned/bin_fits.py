"""The fit of one spectrum: two moments of the velocities by variable projection, and the populations with draws."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rubix_like.inference.binned.bin_templates import LARGEST_SIGMA, LARGEST_VELOCITY, BinTemplates
from rubix_like.inference.populations.nonnegative import nonnegative_least_squares, response
from rubix_like.inference.populations.ratio_prior import Neighbours, draw_by_ratios
from rubix_like.inference.populations.weight_draws import Reduced, draw_weights

_LEAST_SIGMA = 5.0
_FIRST_VELOCITIES = (-600.0, -400.0, -250.0, -125.0, 0.0, 125.0, 250.0, 400.0, 600.0)
_FIRST_SIGMA = 100.0
_STEPS = 40
_CONVERGED = 1e-5
_WARM = 100
"""Draws that are left out."""

_ROUNDS = 2
_TRIAL_DRAWS = 100


class BinSpectrum(NamedTuple):
    """Flux and the inverse of its standard deviation (0: not used) of one bin."""

    flux: Float[Array, " wave"]
    inverse_sigma: Float[Array, " wave"]


class BinFit(NamedTuple):
    """What is found of one bin: (V, sigma) in km/s with their covariance, weights (those of the highest posterior for a
    given strength, else the means of the draws), draws of them, the strength that V and sigma were found with, and the
    spectrum of the weights with its chi^2."""

    motion: Float[Array, "2"]
    covariance: Float[Array, "2 2"]
    weights: Float[Array, " node"]
    draws: Float[Array, "draw node"]
    strength: Float[Array, ""]
    model: Float[Array, " wave"]
    chi_square: Float[Array, ""]


class Profile(NamedTuple):
    """The objective at one place of (V, sigma), the weights being the best: residuals, their slopes, the weights."""

    residual: Float[Array, " row"]
    slopes: Float[Array, "row 2"]
    weights: Float[Array, " node"]

    @property
    def objective(self) -> Float[Array, ""]:
        """Half of chi^2 and the penalty together."""
        return 0.5 * jnp.sum(self.residual**2)


def profile_at(
    templates: BinTemplates,
    spectrum: BinSpectrum,
    smoothness: Float[Array, "difference node"],
    strength: Float[Array, ""],
    motion: Float[Array, "2"],
    first: Float[Array, " node"] | None = None,
) -> Profile:
    """The variable projection at (V, sigma): `Profile.slopes` are those of the residuals whose weights follow
    (Kaufman's form), so that slopes^T residual is the gradient of the objective. `first`: weights to begin at."""
    problem, orthogonal = _reduced(templates, spectrum, smoothness, motion)
    rows, target = problem.stacked(strength)
    found = nonnegative_least_squares(rows, target, first)
    mixed = found.weights @ templates.coefficients

    def seen(at: Array) -> Array:
        return (mixed @ templates.basis(at[0], at[1])) * spectrum.inverse_sigma

    model, moved = seen(motion), jax.jacfwd(seen)(motion)
    none = jnp.zeros((len(smoothness), 2), moved.dtype)
    change = jnp.concatenate([orthogonal.T @ moved, none])
    follow = jax.vmap(lambda own: response(rows, found.free, own), 1, 1)(change)
    design = jnp.concatenate([_design(templates, spectrum, motion), jnp.sqrt(strength) * smoothness])
    slopes = design @ follow - jnp.concatenate([moved, none])
    penalty = -jnp.sqrt(strength) * smoothness @ found.weights
    residual = jnp.concatenate([spectrum.flux * spectrum.inverse_sigma - model, penalty])
    return Profile(residual, slopes, found.weights)


def reduced_at(
    templates: BinTemplates,
    spectrum: BinSpectrum,
    smoothness: Float[Array, "difference node"],
    motion: Float[Array, "2"],
    moved: Float[Array, "wave 2"] | None = None,
) -> Reduced:
    """The linear problem of the weights in as many rows as there are basis spectra; `moved`: slopes of the model that
    are projected out, which is to integrate over small changes of (V, sigma)."""
    return _reduced(templates, spectrum, smoothness, motion, moved)[0]


def _reduced(
    templates: BinTemplates, spectrum: BinSpectrum, smoothness: Array, motion: Array, moved: Array | None = None
) -> tuple[Reduced, Float[Array, "wave rank"]]:
    """The same, and the orthonormal columns that span the basis spectra."""
    basis = (templates.basis(motion[0], motion[1]) * spectrum.inverse_sigma[None, :]).T
    target = spectrum.flux * spectrum.inverse_sigma
    if moved is not None:
        along = jnp.linalg.qr(moved)[0]
        basis, target = basis - along @ (along.T @ basis), target - along @ (along.T @ target)
    orthogonal, upper = jnp.linalg.qr(basis)
    return Reduced(upper @ templates.coefficients.T, orthogonal.T @ target, smoothness), orthogonal


def _design(templates: BinTemplates, spectrum: BinSpectrum, motion: Array) -> Float[Array, "wave node"]:
    coefficients = jnp.asarray(templates.coefficients)
    return (coefficients @ templates.basis(motion[0], motion[1]) * spectrum.inverse_sigma[None, :]).T


def fit_bin(
    templates: BinTemplates,
    spectrum: BinSpectrum,
    smoothness: Float[Array, "difference node"],
    neighbours: Neighbours,
    strength: Float[Array, ""] | None,
    motion: Float[Array, "2"] | None,
    key: PRNGKeyArray,
    n_draw: int,
) -> BinFit:
    """Everything of one bin; without a `motion` that is given V and sigma are fitted, without a `strength` weights are
    drawn by the prior on ratios of `neighbours`, and V and sigma found with the strength that the data ask for.

    The smoothness prior is of light in units of the mean of all nodes, that of the best weights without a prior.
    """
    start = _first_motion(templates, spectrum, smoothness) if motion is None else motion
    rows = smoothness / _mean_light(templates, spectrum, start)
    keys = jax.random.split(key, _ROUNDS + 1)
    start, own = _search(templates, spectrum, rows, strength, motion, start, keys[:-1])
    profile = profile_at(templates, spectrum, rows, own, start)
    mixed = profile.weights @ templates.coefficients

    def model(at: Array) -> Array:
        return mixed @ templates.basis(at[0], at[1])

    moved = jax.jacfwd(model)(start) * spectrum.inverse_sigma[:, None] if motion is None else None
    problem = reduced_at(templates, spectrum, rows, start, moved)
    if strength is None:
        draws = draw_by_ratios(problem, profile.weights, neighbours, keys[-1], _WARM, n_draw)
        weights = draws.mean(axis=0)
    else:
        draws = _smooth_draws(problem, profile.weights, strength, keys[-1], n_draw)
        weights = profile.weights
    covariance = jnp.linalg.inv(profile.slopes.T @ profile.slopes) if motion is None else jnp.zeros((2, 2))
    seen = weights @ templates.coefficients @ templates.basis(start[0], start[1])
    chi_square = jnp.sum(((spectrum.flux - seen) * spectrum.inverse_sigma) ** 2)
    return BinFit(start, covariance, weights, draws, own, seen, chi_square)


def _search(
    templates: BinTemplates,
    spectrum: BinSpectrum,
    rows: Array,
    strength: Array | None,
    motion: Array | None,
    start: Array,
    keys: Array,
) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    """(V, sigma) and the strength of the smoothness prior, in turn, where they are not given."""
    own = jnp.ones(()) if strength is None else strength
    for key in keys:
        start = _best_motion(templates, spectrum, rows, own, start) if motion is None else motion
        if strength is None:
            own = _median_strength(templates, spectrum, rows, own, start, key)
    return (_best_motion(templates, spectrum, rows, own, start) if motion is None else motion), own


def _smooth_draws(
    problem: Reduced, first: Array, strength: Float[Array, ""], key: PRNGKeyArray, n_draw: int
) -> Float[Array, "draw node"]:
    """Draws by the smoothness prior of a strength that is given."""
    groups = jnp.zeros(len(problem.smoothness), jnp.int32)
    return draw_weights(problem, first, strength[None], groups, key, _WARM, n_draw, held=(True,)).weights


def _median_strength(
    templates: BinTemplates, spectrum: BinSpectrum, rows: Array, strength: Array, motion: Array, key: PRNGKeyArray
) -> Float[Array, ""]:
    """The strength that half of a few draws exceed."""
    first = profile_at(templates, spectrum, rows, strength, motion).weights
    groups = jnp.zeros(len(rows), jnp.int32)
    problem = reduced_at(templates, spectrum, rows, motion)
    tried = draw_weights(problem, first, strength[None], groups, key, _WARM, _TRIAL_DRAWS)
    return jnp.median(tried.strength[:, 0])


def _mean_light(templates: BinTemplates, spectrum: BinSpectrum, motion: Array) -> Float[Array, ""]:
    design = _design(templates, spectrum, motion)
    found = nonnegative_least_squares(design, spectrum.flux * spectrum.inverse_sigma).weights
    light = templates.coefficients[:, 0]
    mean = (found * light).mean() / light.mean()
    return jnp.where(mean > 0, mean, 1.0)


def _first_motion(templates: BinTemplates, spectrum: BinSpectrum, smoothness: Array) -> Float[Array, "2"]:
    """The best of a few velocities."""

    def misfit(velocity: Array) -> Array:
        motion = jnp.stack([velocity, jnp.full_like(velocity, _FIRST_SIGMA)])
        problem = reduced_at(templates, spectrum, smoothness, motion)
        found = nonnegative_least_squares(problem.design, problem.target).weights
        model = found @ templates.coefficients @ templates.basis(motion[0], motion[1])
        return jnp.sum(((spectrum.flux - model) * spectrum.inverse_sigma) ** 2)

    velocities = jnp.array(_FIRST_VELOCITIES)
    best = velocities[jnp.argmin(lax.map(misfit, velocities))]
    return jnp.stack([best, jnp.asarray(_FIRST_SIGMA)])


class _Search(NamedTuple):
    motion: Float[Array, "2"]
    objective: Float[Array, ""]
    gradient: Float[Array, "2"]
    matrix: Float[Array, "2 2"]
    weights: Float[Array, " node"]
    damping: Float[Array, ""]
    number: Int[Array, ""]
    gain: Float[Array, ""]


def _best_motion(
    templates: BinTemplates, spectrum: BinSpectrum, smoothness: Array, strength: Array, first: Array
) -> Float[Array, "2"]:
    """Levenberg and Marquardt's method on the variable projection, within the limits of the tables."""
    low = jnp.array([-LARGEST_VELOCITY, _LEAST_SIGMA])
    high = jnp.array([LARGEST_VELOCITY, LARGEST_SIGMA])

    def evaluate(motion: Array, weights: Array | None = None) -> tuple[Array, Array, Array, Array]:
        profile = profile_at(templates, spectrum, smoothness, strength, motion, weights)
        slopes = profile.slopes
        return profile.objective, slopes.T @ profile.residual, slopes.T @ slopes, profile.weights

    def step(now: _Search) -> _Search:
        damped = now.matrix + now.damping * jnp.diag(jnp.diagonal(now.matrix))
        trial = jnp.clip(now.motion - jnp.linalg.solve(damped, now.gradient), low, high)
        objective, gradient, matrix, weights = evaluate(trial, now.weights)
        better = objective < now.objective
        gain = jnp.where(better, now.objective - objective, jnp.where(now.damping > 1e6, 0.0, jnp.inf))
        return _Search(
            motion=jnp.where(better, trial, now.motion),
            objective=jnp.where(better, objective, now.objective),
            gradient=jnp.where(better, gradient, now.gradient),
            matrix=jnp.where(better, matrix, now.matrix),
            weights=jnp.where(better, weights, now.weights),
            damping=jnp.where(better, 0.2 * now.damping, 10 * now.damping),
            number=now.number + 1,
            gain=gain,
        )

    begin = _Search(first, *evaluate(first), jnp.asarray(1e-3), jnp.zeros((), jnp.int32), jnp.asarray(jnp.inf))
    return lax.while_loop(lambda now: (now.gain > _CONVERGED) & (now.number < _STEPS), step, begin).motion

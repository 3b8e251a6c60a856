"""Searches on both sides of a galaxy whose rotation the cube does not show: which one recedes, the fits decide."""

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.inference.posterior.fit_model import GALAXY
from rubix_like.inference.posterior.free import Free
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.search.search_state import SearchState
from rubix_like.inference.search.sketch import Sketch, sketch_of

_SIDE = 90.0
"""Difference of two position angles, deg, beyond which other sides recede."""

_CERTAIN = 10.0
"""Velocity of one half of the galaxy against the other, in units of its error, up to which a search goes to both."""

_FURTHEST = 3.0
"""Largest latent of an angle or a speed that is turned."""

_AS_GOOD = 4.5
"""Loss above that of the best place, up to which one on the other side counts as found (`checks.optima`)."""


def sketched(problem: Problem) -> Sketch:
    """What the cube of a fit shows."""
    frame, observation = problem.pipeline.frame, problem.posterior.forward.main.parameters.observation
    likelihood = problem.posterior.likelihood
    rows = (likelihood.flux, likelihood.inverse_sigma_of_data)
    flux, inverse_sigma = (np.asarray(problem.shown(own), np.float64) for own in rows)
    turn = 0.0 if observation.field_angle is None else float(observation.field_angle)
    return sketch_of(flux, inverse_sigma, frame.bins.wavelength, frame.footprint, turn)


def is_looked_at(problem: Problem) -> bool:
    """Whether guesses go by what a cube shows."""
    first = problem.first_cube
    return problem.settings.starts_from == "cube" and (first is None or first.kind == "cube")


def is_unsure(problem: Problem) -> bool:
    """Whether the cube does not show beyond doubt which side recedes, and both are to be looked at."""
    return problem.settings.starts > 1 and is_looked_at(problem) and sketched(problem).certainty < _CERTAIN


def with_both_sides(
    free: Free,
    chosen: Float[ndarray, "chosen latent"],
    ordered: Float[ndarray, "candidate latent"],
    count: int,
) -> Float[ndarray, "chosen latent"]:
    """The chosen candidates, with one among the first `count` for which the other side of the galaxy recedes, in place
    of the last of them, if all have the same and there is another. `ordered`: all of them, the best first."""
    sides, known = _as_first(free, chosen), _as_first(free, ordered)
    others = np.flatnonzero(~known)
    if count < 2 or not len(others) or not sides[:count].all():
        return chosen
    with_other = np.concatenate([chosen[: count - 1], ordered[others[:1]], chosen[count - 1 :]])
    return with_other[: len(chosen)]


def with_other_side(found: SearchState, free: Free, problem: Problem | None) -> SearchState:
    """A search that has ended, going on from the best place turned to the other side, where the cube does not show
    which one recedes and no start has ended there at a loss about as low; any other search as it is."""
    if not found.finished or problem is None or found.failed.all():
        return found
    turned = other_side(free, found.latent[found.best])
    if turned is None or bool(np.any(np.all(np.isclose(found.start, turned, rtol=0, atol=1e-9), axis=1))):
        return found
    near = found.converged & (found.loss <= found.loss[found.best] + _AS_GOOD)
    if len(found.start) > 2 * problem.settings.starts + 1 or not is_unsure(problem):
        return found
    ends = np.concatenate([found.latent[found.best][None], found.latent[near]])
    return found if not _as_first(free, ends).all() else found.with_starts(turned[None], found.reserve)


def other_side(free: Free, latent: Float[ndarray, " latent"]) -> Float[ndarray, " latent"] | None:
    """Latents for which the other side recedes: the position angle turned by 180 deg or, where it is not free, all
    speeds with the other sign; None where nothing is free, or the priors have no other side."""
    normals = np.array(free.own_normals(np.asarray(latent)))
    values = free.split(np.asarray(free.flat(np.asarray(latent))))
    angles = [own for own in free.parameters if own.name == "observation.position_angle"]
    speeds = [own for own in free.parameters if _is_speed(own.name)]
    for own in angles or speeds:
        value = values[own.name]
        tries = (value - 180.0, value + 180.0) if angles else (-value,)
        found = [np.ravel(own.prior.latent(np.asarray(other))) for other in tries]
        inside = [other for other in found if np.isfinite(other).all() and (np.abs(other) < _FURTHEST).all()]
        if not inside:
            return None
        normals[free.places[own.name]] = min(inside, key=lambda other: float(np.max(np.abs(other))))
    return np.asarray(free.of_own_normals(normals)) if angles or speeds else None


def _as_first(free: Free, latent: Float[ndarray, "candidate latent"]) -> Bool[ndarray, " candidate"]:
    """Whether the side that recedes is that of the first candidate, by position angles and signs of speeds."""
    same = np.ones(len(latent), bool)
    for own, values in free.split(np.asarray(free.flat(latent))).items():
        if own.endswith("position_angle"):
            same ^= np.abs((values - values[:1] + 180.0) % 360.0 - 180.0) > _SIDE
        elif _is_speed(own):
            signs = np.sign(values.reshape(len(values), -1).sum(axis=1))
            same ^= signs != signs[:1]
    return same


def _is_speed(name: str) -> bool:
    return name.endswith(("rotation.velocity", "rotation.speeds")) or name == GALAXY + "rotation_velocity"

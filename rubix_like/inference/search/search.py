"""The search from all starts, resumable after every step, and the latents that it begins with.

Many latents are tried, by one model each, and the best are started from. A fit of stars begins with each spaxel's for
itself, by differential evolution of draws from the prior. Every spaxel's spectrum depends, but for the light of its
neighbours, on the stars in it alone. So one model tries as many spectra as there are spaxels: of many draws of all
stars, those of each spaxel are compared, mixed and kept by themselves. That crosses the kinks and minima along ages and
metallicities, at which a descent ends.

A start is given up for the next candidate far above a better one, or at the limits of priors. A prior with limits is
flat where latents are large: a search that gets there finds no slope that leads back, however wrong the place is.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.config.sections.fit import FitSettings
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.forward.model import scene_before_fields
from rubix_like.inference.posterior.fit_model import (
    STARS,
    ComponentsSource,
    Forward,
    Free,
    HeldSource,
    Latent,
)
from rubix_like.inference.posterior.posterior import (
    Latents,
    Posterior,
    SquaredLoss,
    losses_at,
    models,
    on_mesh,
    over_starts,
    placed_starts,
    scores,
)
from rubix_like.inference.posterior.priors import is_limited
from rubix_like.inference.posterior.problem import Problem
from rubix_like.inference.search.guesses import (
    SHOWN,
    Pose,
    Sketch,
    Surroundings,
    component_of,
    guesses,
    role_of,
    shift_of,
    sketch_of,
)
from rubix_like.inference.search.library_cells import CellsSeen, lower_elsewhere
from rubix_like.inference.search.optimisers import (
    FAILED,
    GIVEN_UP,
    AbstractOptimiser,
    State,
    Status,
    make_optimiser,
)
from rubix_like.inference.search.search_state import AS_LIKELY, SearchState
from rubix_like.runtime.mesh.mesh import SAMPLE_AXIS
from rubix_like.runtime.progress import Report, silent

STAR_MASS: str = STARS + "initial_mass"
"""The light of a spaxel is proportional to the masses of its stars."""

FEWEST: int = 4
"""Members that one step of the evolution needs."""

_FARTHEST = 6.0
"""Largest latent to which a mass is scaled."""

_LENGTHS = (0.4, 1.0)
"""Shortest and longest part of the difference of two members that is added to a third."""

_CROSSED = 0.9
"""Part of the latents that a trial has from other members."""


class Patches(eqx.Module):
    """Which spaxel every latent belongs to, from 0, row by row; their number for stars outside the field.

    `owner` is -1 for latents that are of no star; `count`: one more than the number of spaxels.
    """

    spaxel: Int[Array, " star"]
    owner: Int[Array, " latent"]
    count: int = eqx.field(static=True)


class Trials(NamedTuple):
    """Latents, and each patch's part of the loss there."""

    latent: Float[ndarray, "member latent"]
    loss: Float[ndarray, "member patch"]


def evolved(
    posterior: Posterior, settings: FitSettings, mesh: Mesh, drawn: Float[ndarray, "candidate latent"]
) -> Float[ndarray, "start latent"]:
    """One start from every `settings.candidates` of the draws; none where no parameter of stars is free.

    Parameters that are not of stars are those of the draw with the lowest loss.
    """
    patches = patches_of(posterior, jnp.asarray(drawn[0])) if len(drawn) else None
    if patches is None or settings.candidates < FEWEST or settings.generations == 0:
        return drawn[:0]
    n_slot, sharding = mesh.shape[SAMPLE_AXIS], NamedSharding(mesh, PartitionSpec(None, SAMPLE_AXIS))

    def evaluate(latent: Float[ndarray, "member latent"]) -> Trials:
        filled = np.concatenate([latent, np.repeat(latent[-1:], -len(latent) % n_slot, axis=0)])
        groups = jax.device_put(filled.reshape(-1, n_slot, latent.shape[1]), sharding)
        found = _scaled_groups(posterior, patches, groups)
        return Trials(*(np.asarray(rows).reshape(len(filled), -1)[: len(latent)] for rows in found))

    owner, ends = np.asarray(patches.owner), []
    for number, population in enumerate(drawn.reshape(-1, settings.candidates, drawn.shape[1])):
        generator = np.random.default_rng([settings.seed, number])
        ends.append(evolve(evaluate, owner, patches.count, population, settings.generations, generator))
    return np.stack(ends)


def evolve(
    evaluate: Callable[[Float[ndarray, "member latent"]], Trials],
    owner: Int[ndarray, " latent"],
    count: int,
    population: Float[ndarray, "member latent"],
    generations: int,
    generator: np.random.Generator,
) -> Float[ndarray, " latent"]:
    """The best of every patch after differential evolution of each for itself.

    A trial is x1 + F (x2 - x3) of three other members; where it has a lower loss it takes the member's place
    (Storn & Price 1997, J. Global Optim. 11, 341, DE/rand/1/bin).
    """
    members, loss = evaluate(population)
    of_star, patch = owner >= 0, np.maximum(owner, 0)
    members = np.where(of_star, members, members[np.argmin(loss.sum(axis=1))])
    members, loss = evaluate(members)
    n_member, column = len(members), np.arange(len(owner))
    itself = 2 * np.eye(n_member)[:, :, None]
    for _ in range(generations):
        others = np.argsort(generator.random((n_member, n_member, count)) + itself, axis=1)[:, :3, patch]
        first, second, third = (members[others[:, number], column] for number in range(3))
        length = generator.uniform(*_LENGTHS, (n_member, count))[:, patch]
        crossed = of_star & (generator.random(members.shape) < _CROSSED)
        trial, trial_loss = evaluate(np.where(crossed, first + length * (second - third), members))
        better = trial_loss < loss
        members = np.where(better[:, patch] & of_star, trial, members)
        loss = np.where(better, trial_loss, loss)
    return members[np.argmin(loss, axis=0)[patch], column]


def patches_of(posterior: Posterior, latent: Latent) -> Patches | None:
    """The patches of stars for these latents; None where no parameter of stars is free."""
    free, forward = posterior.free, posterior.forward
    if not (isinstance(forward, Forward) and isinstance(forward.source, HeldSource) and free.has(STARS)):
        return None
    spaxel = _spaxels(posterior, latent)
    owners = [
        jnp.repeat(spaxel, parameter.size // len(spaxel))
        if parameter.name.startswith(STARS)
        else jnp.full(parameter.size, -1, jnp.int32)
        for parameter in free.parameters
    ]
    return Patches(spaxel, jnp.concatenate(owners), forward.tables.footprint.n_element + 1)


@jax.jit
def _spaxels(posterior: Posterior, latent: Latent) -> Int[Array, " star"]:
    """Flat index of the spaxel whose middle is nearest to each star."""
    forward = posterior.forward.main
    galaxy, parameters = posterior.at(latent)
    scene = scene_before_fields(forward.tables, parameters, "stars", galaxy.stars)
    return SpaxelGrid(forward.tables.footprint, "nearest").weights(scene.position)[0][:, 0]


@jax.jit
def _scaled_groups(
    posterior: Posterior, patches: Patches, groups: Float[Array, "group start latent"]
) -> tuple[Float[Array, "group start latent"], Float[Array, "group start patch"]]:
    """`scaled` for groups of as many latents as are computed at once."""
    return lax.map(
        lambda group: over_starts(lambda posterior, latent: scaled(posterior, patches, latent), posterior, group),
        groups,
    )


def scaled(
    posterior: Posterior, patches: Patches, latent: Float[Array, " latent"]
) -> tuple[Float[Array, " latent"], Float[Array, " patch"]]:
    """The latents with the masses of each patch's stars scaled to fit best, and each patch's part of the loss then.

    The part of a patch is half of chi^2 in its spaxel and half the squares of its stars' latents.
    """
    likelihood = dataclasses.replace(posterior.likelihood, model_error=None)
    model = posterior.model(latent).astype(latent.dtype)
    free = posterior.free
    if STAR_MASS in free.names:
        weight = likelihood.inverse_sigma**2
        square = jnp.sum(model * model * weight, axis=2)
        best = jnp.sum(model * likelihood.flux * weight, axis=2) / jnp.where(square > 0, square, 1.0)
        factor = jnp.append(jnp.where(best > 0, best, 1.0).reshape(-1), 1.0)
        prior, place = free.parameters[free.names.index(STAR_MASS)].prior, free.places[STAR_MASS]
        old = latent[place]
        new = prior.latent(prior.value(old) * factor[patches.spaxel])
        outside = (~(jnp.abs(new) < _FARTHEST)).astype(jnp.int32)
        kept = jax.ops.segment_max(outside, patches.spaxel, patches.count) > 0  # the prior has no such masses
        latent = latent.at[place].set(jnp.where(kept[patches.spaxel], old, new))
        factor = jnp.where(kept, 1.0, factor)
        model = model * factor[:-1].reshape(model.shape[:2])[:, :, None]
    residuals = dataclasses.replace(posterior, likelihood=likelihood).residuals_of(model, latent)
    square = jnp.sum(residuals.voxels**2, axis=2)
    if residuals.coefficients is not None:
        square = square + jnp.sum(residuals.coefficients**2, axis=2)
    prior = jax.ops.segment_sum(latent**2, patches.owner, patches.count)
    loss = 0.5 * (prior + jnp.append(square.reshape(-1), 0.0))
    return latent, jnp.where(jnp.isfinite(loss), loss, jnp.inf)


_PSF = "instrument.psf.fwhm"

_HEAVIEST = 3.0
"""Largest latent to which the mass is scaled."""

_SAME = 0.3
"""Largest difference of the latents of two places of which one is not tried as well."""

_STREAM = 1
"""Of the random numbers of guesses, beside that of draws from the prior."""


class ChosenStarts(NamedTuple):
    """The latents of the starts, and of those that take the place of starts that are given up, the best first."""

    starts: Float[ndarray, "start latent"]
    reserve: Float[ndarray, "spare latent"]


class Graded(NamedTuple):
    """Latents with the mass that fits best, the loss there, and the sum of the model's spectra over the spaxels."""

    latent: Float[ndarray, "start latent"]
    loss: Float[ndarray, " start"]
    spectrum: Float[ndarray, "start wave"]


def choose_starts(
    posterior: SquaredLoss,
    free: Free,
    settings: FitSettings,
    mesh: Mesh,
    start: Latent | None = None,
    problem: Problem | None = None,
    report: Report = silent,
) -> ChosenStarts:
    """The starts of a search: the lowest losses among guesses by the cube, or draws from the prior, and stars' that
    evolved from them, no two at the same place, and before them the one given.

    `problem`: whose cube is looked at; None: all are drawn from the prior.
    """
    first = np.empty((0, free.n_latent)) if start is None else np.asarray(start)[None]
    count = settings.starts - len(first)
    total = count * settings.candidates
    drawn = np.asarray(free.draw(settings.seed, total))
    if count and problem is not None and is_looked_at(problem) and any(role_of(name) in SHOWN for name in free.names):
        sketch, generator = sketched(problem), np.random.default_rng([settings.seed, _STREAM])
        drawn = guesses(sketch, _surroundings(posterior, problem, mesh, sketch), free, generator, total)
    if isinstance(posterior, Posterior):
        drawn = np.concatenate([evolved(posterior, settings, mesh, drawn), drawn])
    if settings.candidates > 1 and count:
        size, groups = mesh.shape[SAMPLE_AXIS], []
        for begin in range(0, total := len(drawn), size):
            report("candidates", begin, total)
            groups.append(_grade(posterior, mesh, drawn[begin : begin + size]))
        loss = np.concatenate([group.loss for group in groups])[:total]
        order = np.argsort(np.where(np.isfinite(loss), loss, np.inf), kind="stable")
        ordered = np.concatenate([group.latent for group in groups])[order]
        drawn = _apart(ordered, 2 * count)
        if problem is not None and is_unsure(problem):
            drawn = with_both_sides(free, drawn, ordered, count)
    spare = 0 if settings.starts == 1 else count
    return ChosenStarts(np.concatenate([first, drawn[:count]]), drawn[count : count + spare])


def _surroundings(posterior: SquaredLoss, problem: Problem, mesh: Mesh, sketch: Sketch) -> Surroundings:
    """The surroundings of a sketch, by the model at the medians of all priors."""
    free, forward = problem.posterior.free, problem.posterior.forward
    middle, parameters = np.zeros(free.n_latent), forward.main.parameters
    psf, seeing = parameters.instrument.psf, free.value(_PSF, middle)
    if seeing is None and psf is not None:
        seeing = psf.fwhm
    width = 0.0 if seeing is None else float(np.mean(np.asarray(seeing)))
    reference = _grade(posterior, mesh, np.zeros((1, free.n_latent)))
    spectrum = reference.spectrum[0]
    if problem.sets:
        spectrum = problem.shown(spectrum[None, None]).sum(axis=(0, 1))
    shift = shift_of(sketch, spectrum, problem.pipeline.frame.bins.wavelength)
    offset = free.value("observation.velocity_offset", middle)
    systemic = float(parameters.observation.velocity_offset if offset is None else offset) + shift
    pose = Pose.of(parameters, forward.source)
    return Surroundings(float(forward.main.tables.arcsec_per_kpc), width / FWHM_PER_SIGMA, systemic, pose)


def _grade(posterior: SquaredLoss, mesh: Mesh, group: Float[ndarray, "candidate latent"]) -> Graded:
    """The losses of as many as are computed at once, or fewer."""
    placed = placed_starts(
        np.concatenate([group, np.repeat(group[-1:], mesh.shape[SAMPLE_AXIS] - len(group), axis=0)]), mesh
    )
    filled = np.asarray(placed)
    if not isinstance(posterior, Posterior):
        return Graded(filled, np.asarray(losses_at(posterior, placed)), np.zeros((len(filled), 0)))
    modelled = models(posterior.forward, posterior.free, placed)
    flux = np.asarray(modelled.flux)
    rows = [_scaled(posterior, latent, model) for latent, model in zip(filled, flux, strict=True)]
    latent, factor = np.stack([row for row, _ in rows]), np.array([row for _, row in rows], flux.dtype)
    loss = scores(posterior, placed_starts(latent, mesh), modelled.flux, factor, modelled.roughness).loss
    return Graded(latent, np.asarray(loss), flux.sum(axis=(1, 2)) * factor[:, None])


def _scaled(
    posterior: Posterior, latent: Float[ndarray, " latent"], model: Float[ndarray, "y x wave"]
) -> tuple[Float[ndarray, " latent"], float]:
    """Latents with the masses that the cube is proportional to, where they are free, times a = sum(m d / sigma^2) /
    sum(m^2 / sigma^2), m the model and d the data: of all factors that with the least chi^2; and the factor on the
    model that this is."""
    free, likelihood, source = posterior.free, posterior.likelihood, posterior.forward.source
    masses = [parameter for parameter in free.parameters if role_of(parameter.name) == "mass"]
    n_mass = len(source.base.names) if isinstance(source, ComponentsSource) else 1
    if len(masses) != n_mass:
        return latent, 1.0
    flux, inverse_sigma = np.asarray(likelihood.flux), np.asarray(likelihood.inverse_sigma)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled_model = model * inverse_sigma
        square, product = np.vdot(scaled_model, scaled_model), np.vdot(scaled_model, flux * inverse_sigma)
        best = product / square if square > 0 else product
    if not best > 0:
        return latent, 1.0
    normals = np.array(free.own_normals(np.asarray(latent)))
    places = [free.places[mass.name].start for mass in masses]
    old = [float(mass.prior.value(normals[place])) for mass, place in zip(masses, places, strict=True)]
    heaviest = np.asarray([-_HEAVIEST, _HEAVIEST])
    ends = [np.asarray(mass.prior.value(heaviest)) / value for mass, value in zip(masses, old, strict=True)]
    factor = float(np.clip(best, max(low for low, _ in ends), min(high for _, high in ends)))
    for mass, place, value in zip(masses, places, old, strict=True):
        normals[place] = mass.prior.latent(np.asarray(value * factor))
    if not np.isfinite(normals[places]).all():
        return latent, 1.0
    return np.asarray(free.of_own_normals(normals)), float(masses[0].prior.value(normals[places[0]])) / old[0]


def _apart(ordered: Float[ndarray, "candidate latent"], count: int) -> Float[ndarray, "chosen latent"]:
    """The first `count` of them that are not at the same place as one before; where there are too few, others too."""
    chosen: list[int] = []
    for number, latent in enumerate(ordered):
        if len(chosen) < count and not any(np.max(np.abs(latent - ordered[other])) < _SAME for other in chosen):
            chosen.append(number)
    rest = [number for number in range(len(ordered)) if number not in chosen]
    return ordered[[*chosen, *rest][:count]]


_SIDE = 90.0
"""Difference of two position angles, deg, beyond which other sides recede."""

_CERTAIN = 10.0
"""Velocity of one half of the galaxy against the other, in units of its error, up to which a search goes to both."""

_FURTHEST = 3.0
"""Largest latent of an angle or a speed that is turned."""


def sketched(problem: Problem) -> Sketch:
    """The sketch of the cube of a fit."""
    frame, observation = problem.pipeline.frame, problem.posterior.forward.main.parameters.observation
    likelihood = problem.posterior.likelihood
    rows = (likelihood.flux, likelihood.inverse_sigma_of_data)
    flux, inverse_sigma = (np.asarray(problem.shown(row), np.float64) for row in rows)
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


def other_side(free: Free, latent: Float[ndarray, " latent"]) -> Float[ndarray, " latent"] | None:
    """Latents for which the other side recedes: the position angle turned by 180 deg or, where it is not free, all
    speeds with the other sign; None where nothing is free, or the priors have no other side."""
    normals = np.array(free.own_normals(np.asarray(latent)))
    values = free.split(np.asarray(free.flat(np.asarray(latent))))
    by_role = {
        role: [parameter for parameter in free.parameters if role_of(parameter.name) == role]
        for role in ("position_angle", "rotation")
    }
    angles = [parameter for parameter in by_role["position_angle"] if not component_of(parameter.name)]
    turned = angles or by_role["rotation"]
    for parameter in turned:
        value = values[parameter.name]
        tries = (value - 180.0, value + 180.0) if angles else (-value,)
        found = [np.ravel(parameter.prior.latent(np.asarray(other))) for other in tries]
        inside = [other for other in found if np.isfinite(other).all() and (np.abs(other) < _FURTHEST).all()]
        if not inside:
            return None
        normals[free.places[parameter.name]] = min(inside, key=lambda other: float(np.max(np.abs(other))))
    return np.asarray(free.of_own_normals(normals)) if turned else None


def _as_first(free: Free, latent: Float[ndarray, "candidate latent"]) -> Bool[ndarray, " candidate"]:
    """Whether the side that recedes is that of the first candidate, by position angles and signs of speeds."""
    same = np.ones(len(latent), bool)
    for name, values in free.split(np.asarray(free.flat(latent))).items():
        if role_of(name) == "position_angle":
            same ^= np.abs((values - values[:1] + 180.0) % 360.0 - 180.0) > _SIDE
        elif role_of(name) == "rotation":
            signs = np.sign(values.reshape(len(values), -1).sum(axis=1))
            same ^= signs != signs[:1]
    return same


SATURATED: float = 3.5
"""|latent| from which on a uniform prior has less than 0.3 % of its slope in the middle."""

_FLAT = 0.05
"""Slope of a prior, in units of that in its middle, below which it is flat."""

_BETTER = 1.0
"""Least difference of the losses of two starts for one to count as better."""

_WATCHED, _GAIN = 5, 0.01
"""A saturated start is given up that has gained less than this part of its loss (of its distance to a better one:
ten times) in so many steps."""

_CREPT, _LITTLE = 8, 0.01
"""Any start is given up that has gained less than this part of its distance to a better one in so many steps."""

_FAR_ABOVE, _LEADS_THERE, _SLOW = 10.0, 0.5, 0.1
"""A start is given up that is so far above a better one if its loss, were residuals linear, would fall by less than
this part of the distance, and has fallen by less than the last part in its last two steps; and put aside, while others
wait, that would fall by more than the first and has gained less than the last part of that in `_CREPT` steps."""

_ENOUGH = 2
"""Starts that have ended at the best place, from which on none that was given up is replaced."""

_FRUITLESS: frozenset[Status] = FAILED | GIVEN_UP | {Status.STALLED}
"""Ends for which the next candidate begins."""


def reviewed(
    before: SearchState, after: SearchState, free: Free, falls: Mapping[int, float] | None = None, asked: int = 0
) -> SearchState:
    """A search after a step, without the starts that are given up, and with candidates in their place, until two of the
    starts have ended at the best place. `falls`: by how much losses would fall if residuals were linear; `asked`: how
    many starts the settings ask for.

    Where all have ended and the best was given up, that one is taken up again, and goes on to its end.
    """
    falls, running = falls or {}, after.slots[after.running].tolist()
    after = after.with_status({start: _verdict(after, start, free, falls.get(start, np.inf)) for start in running})
    went_on = before.status == int(Status.RUNNING)
    ended = after.status[: len(went_on)]
    lost = np.count_nonzero(went_on & np.isin(ended, [int(status) for status in _FRUITLESS]))
    best = after.best
    if np.count_nonzero(after.converged & (after.loss <= after.loss[best] + _BETTER)) >= _ENOUGH:
        after = after.without_waiting(asked)
    else:
        after = after.with_starts(after.reserve[:lost], after.reserve[lost:])
    taken_up = np.all(after.start == after.latent[best], axis=1).any()
    if after.finished and after.given_up[best] and not taken_up:
        after = after.with_starts(after.latent[best : best + 1], after.reserve)
    return after


def _verdict(found: SearchState, start: int, free: Free, fall: float) -> Status:
    loss = found.loss[start]
    others = np.where(found.failed | (np.arange(len(found.loss)) == start), np.inf, found.loss)
    behind = float(loss - np.min(others))
    waiting = int(np.count_nonzero(found.status == int(Status.WAITING)))
    if _creeps(found, start, behind, fall, has_others=waiting > 0):
        return Status.CREEPING
    needed = 10 * _GAIN * behind if behind > _BETTER else _GAIN * loss
    if _gain(found, start, _WATCHED) >= needed or not is_saturated(free, found.latent[start]):
        return Status.RUNNING
    alternatives = len(found.reserve) + waiting
    ends = [found.latent[end] for end in np.flatnonzero(found.given_up) if end != start]
    again = any(np.array_equal(end, found.start[start]) for end in ends)  # where another was given up
    return Status.SATURATED if behind > _BETTER or (alternatives and not again) else Status.RUNNING


def _creeps(found: SearchState, start: int, behind: float, fall: float, *, has_others: bool) -> bool:
    """Whether a start hardly gets on: far above a better one, or away from its predicted end while others wait.

    Residuals that were linear would fall by as much as the start is behind where it leads to the better place.
    """
    gain = _gain(found, start, _CREPT)
    if behind > _BETTER:
        losses = found.trace_loss[start, : int(found.n_step[start])]
        losses = losses[np.flatnonzero(np.diff(losses, prepend=np.inf) < 0)]
        accepted = float(losses[-3] - losses[-1]) if len(losses) > 2 else np.inf  # fall in the last two accepted steps
        ends_above = behind > _FAR_ABOVE and fall < _LEADS_THERE * behind and accepted < _SLOW * behind
        return bool(ends_above or gain < _LITTLE * behind)
    return has_others and _FAR_ABOVE < fall < np.inf and gain < _SLOW * fall


def _gain(found: SearchState, start: int, steps: int) -> float:
    """How much the loss of a start fell in its last steps; infinite where it has not made as many."""
    last = int(found.n_step[start]) - 1
    if last < steps:
        return np.inf
    return float(found.trace_loss[start, last - steps] - found.trace_loss[start, last])


def is_saturated(free: Free, latent: ndarray) -> bool:
    """Whether the prior of any latent is flat there: of those with limits; those of single stars do not count."""
    limited = [
        np.full(parameter.size, is_limited(parameter.prior) and not parameter.name.startswith(STARS))
        for parameter in free.parameters
    ]
    far = np.concatenate(limited) & (np.abs(latent) > SATURATED)
    return bool(far.any()) and bool(np.any(far & (free.slopes(latent) < _FLAT * free.slopes(np.zeros_like(latent)))))


_MOST_ADDED = 4
"""Starts beyond twice those that were asked for, up to which more are added."""

_VALUES_SHOWN = 12
"""Most values of a start that failed that are shown."""


def search(
    problem: Problem,
    resume: SearchState | None = None,
    starts: Float[ndarray, "start latent"] | None = None,
    cells: CellsSeen | None = None,
    report: Report = silent,
) -> Iterator[SearchState]:
    """Yields a snapshot before the first step and after every step; in the last one all starts have ended. `starts`:
    latents to begin at; None: they are chosen; `cells`: keeps the cells of the SSP library about the best place;
    `report` is told of what is done between steps.

    As many starts are computed at once as the mesh of the problem's pipeline has devices along "sample"; where one
    ends, the next begins. A search resumed from any of its snapshots goes on as if it had not stopped. Raises
    ValueError, after the last snapshot, where every start has failed, with the reasons.
    """
    posterior, settings, free = problem.posterior, problem.settings, problem.posterior.free
    flux, inverse_sigma = np.asarray(posterior.likelihood.flux), np.asarray(posterior.likelihood.inverse_sigma)
    ratio = float(np.sqrt(np.mean((flux * inverse_sigma) ** 2)))
    rounding = ratio * float(jnp.finfo(posterior.forward.main.plan.dtype).eps)
    optimiser = make_optimiser(settings.optimiser, free.n_latent, flux.size, rounding)
    mesh = problem.pipeline.mesh
    return search_with(
        optimiser, posterior, free, settings, mesh, resume, problem.start, problem, starts, cells, report
    )


def search_with(
    optimiser: AbstractOptimiser,
    posterior: SquaredLoss,
    free: Free,
    settings: FitSettings,
    mesh: Mesh,
    resume: SearchState | None = None,
    start: Latent | None = None,
    problem: Problem | None = None,
    starts: Float[ndarray, "start latent"] | None = None,
    cells: CellsSeen | None = None,
    report: Report = silent,
) -> Iterator[SearchState]:
    """The search for any residuals, on a mesh with the axis "sample"; `problem`: its cube is looked at."""
    placed = on_mesh(posterior, mesh)
    n_slot, sharding = mesh.shape[SAMPLE_AXIS], NamedSharding(mesh, PartitionSpec(SAMPLE_AXIS))
    idle = _begun(optimiser, np.zeros((0, free.n_latent)), n_slot)
    snapshot = resume
    if snapshot is None:
        if starts is None:
            chosen = choose_starts(placed, free, settings, mesh, start, problem, report)
        else:
            chosen = ChosenStarts(starts, starts[:0])
        snapshot = SearchState.begin(*chosen, settings.optimiser.steps, idle)
    expected = (settings.optimiser.steps, *[leaf.shape for leaf in jax.tree.leaves(idle)])
    steps, found = snapshot.trace_loss.shape[1] - 1, [leaf.shape for leaf in snapshot.state]
    if expected != (steps, *found) or len(snapshot.start) < settings.starts:
        raise ValueError(
            f"fit: expected to go on with a search of {settings.starts} starts, at most {settings.optimiser.steps} "
            f"steps each and {len(idle.status)} at once, got one of {len(snapshot.start)} starts, {steps} steps and "
            f"{len(snapshot.slots)} at once, or with another optimiser; use the settings and devices it was begun with"
        )
    yield snapshot
    looked_at, cells = placed if starts is None else None, cells or CellsSeen()
    while not (snapshot := _with_further_start(snapshot, free, problem, looked_at, cells, report)).finished:
        if not snapshot.running.all():
            snapshot = snapshot.with_next(_begun(optimiser, snapshot.start[snapshot.next_starts], n_slot))
        state = jax.device_put(jax.tree.unflatten(jax.tree.structure(idle), snapshot.state), sharding)
        state = jax.tree.map(np.asarray, optimiser.step(placed, state))
        falls = dict(zip(snapshot.slots.tolist(), optimiser.predicted_fall(state).tolist(), strict=True))
        snapshot = reviewed(snapshot, snapshot.after(state), free, falls, settings.starts)
        yield snapshot
    check_any_left(snapshot, free)


def _with_further_start(
    found: SearchState,
    free: Free,
    problem: Problem | None,
    posterior: SquaredLoss | None,
    cells: CellsSeen,
    report: Report,
) -> SearchState:
    """A search that has ended, with another start where there is one; as it is where one start is to be the only one.

    It begins on the other side of the galaxy, where the cube does not show which one recedes and no start has ended
    there at a loss about as low, or where the loss is lower between other ages or metallicities of the SSP library
    (without a posterior, that was seen to before).
    """
    if problem is None or problem.settings.starts == 1 or not found.finished or found.failed.all():
        return found

    def has_begun(at: Float[ndarray, " latent"], apart: float) -> bool:
        return bool(np.any(np.all(np.isclose(found.start, at, rtol=0, atol=apart), axis=1)))

    best, n_added = found.latent[found.best], len(found.start) - 2 * problem.settings.starts
    turned = other_side(free, best)
    if turned is not None and not has_begun(turned, 1e-9) and n_added <= 1 and is_unsure(problem):
        near = found.converged & (found.loss <= found.loss[found.best] + AS_LIKELY)
        if _as_first(free, np.concatenate([best[None], found.latent[near]])).all():
            return found.with_starts(turned[None], found.reserve)
    if not isinstance(posterior, Posterior) or n_added > _MOST_ADDED:
        return found
    report("other ages and metallicities", 0, 1)
    near_cells = cells.near(posterior, np.asarray(best, np.float64))
    other = lower_elsewhere(*near_cells, float(found.loss[found.best]))
    if other is None or has_begun(other, 1e-6):
        return found
    return found.with_starts(other[None].astype(found.start.dtype), found.reserve)


def check_any_left(snapshot: SearchState, free: Free) -> None:
    """Raise ValueError where all starts have failed."""
    if not snapshot.failed.all():
        return
    reasons = []
    for number, (reason, values) in enumerate(zip(snapshot.reasons(), free.flat(snapshot.latent), strict=True)):
        shown = [f"{label} = {value:.6g}" for label, value in zip(free.labels, np.asarray(values), strict=True)]
        if len(shown) > _VALUES_SHOWN:
            shown[_VALUES_SHOWN:] = ["..."]
        reasons.append(f"  start {number + 1}: {reason} ({', '.join(shown)})")
    raise ValueError(
        "\n".join(
            [
                f"fit: expected at least one of {len(reasons)} starts to get to a best fit, got failures only:",
                *reasons,
                "narrow the priors of fit.free to where the model is defined, or check the data",
            ]
        )
    )


@jax.jit
def _init(optimiser: AbstractOptimiser, latent: Latents, count: Array) -> State:
    """The states of a group, the first `count` of which run."""
    state = optimiser.init(latent)
    status = jnp.where(jnp.arange(latent.shape[0]) < count, state.status, jnp.int32(int(Status.WAITING)))
    return dataclasses.replace(state, status=status)


def _begun(optimiser: AbstractOptimiser, latent: Float[ndarray, "start latent"], n_slot: int) -> State:
    """States of some starts, as many as there are slots: those that are missing do not run."""
    filling = latent[-1:] if len(latent) else np.zeros((1, latent.shape[1]))
    slots = np.concatenate([latent, np.repeat(filling, n_slot - len(latent), axis=0)])
    state = _init(optimiser, slots, np.asarray(len(latent)))
    return jax.tree.map(np.asarray, state)

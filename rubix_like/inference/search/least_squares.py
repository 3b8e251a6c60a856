"""Levenberg-Marquardt by the library optimistix: its searches and descents, on linearised residuals.

A step computes the loss at a trial latent, and only where that is accepted the Jacobian there, once. Of the Jacobian
J^T J and J^T r are kept: a trial after one that was rejected needs nothing else.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.linearise import NormalForm, losses_at, normal_forms_at
from rubix_like.inference.posterior.posterior import Latents, SquaredLoss, half_square
from rubix_like.inference.posterior.start_groups import over_starts
from rubix_like.inference.search.optimisers import AbstractOptimiser, State, Status, chosen, status_after
from rubix_like.runtime.optional_packages import import_optional

_SHORTEST = 1e-9
"""A step that changes no latent by more is none."""

_GOOD = 0.75
"""Part of the expected fall of the loss from which on the next step is damped less."""

_FIRST_DAMPING = 1e-2
"""Squared, in units of the product of the prior's information, 1, and the Jacobian's."""

_LONGEST = 0.7
"""No damped step changes a latent by more, in standard deviations of its prior or, beyond one, of its own size. Priors
with limits are flat where latents are large: a long step there ends at a false maximum."""

_ROUNDINGS = 8.0
"""How many roundings a loss may be off by."""

_SOLVED = 1e-3
"""Relative residual at which the iterative solution of a step's linear system ends."""

_ITERATIONS = 200
"""Most products with the Jacobian and its transpose for one step."""

_PURPOSE = "fit.optimiser.name: levenberg_marquardt"


class LeastSquaresMemory(eqx.Module):
    """`trial`: where the loss is computed next; `gain`: by how much it would fall there if the residuals were linear;
    `search`: the state of the search; `form`: the residuals at the state's latent, where they are kept.
    """

    trial: Float[Array, "*start latent"]
    gain: Float[Array, "*start"]
    search: Any
    form: NormalForm | None


class _Verdict(eqx.Module):
    """About trials: whether they are accepted, how long the next step may be, and the state of the search."""

    accept: Bool[Array, "*start"]
    step_size: Any
    search: Any


class LeastSquares(AbstractOptimiser):
    """Steps -(J^T J + damping)^-1 J^T r: by the matrix J^T J itself, or by products with J and its transpose.

    `rounding`: of a residual, where the model is computed with fewer digits than the latents.
    The damping follows how well the last step was predicted. `dense`: the matrix is made, at a cost of one product with
    J for each latent; otherwise the system is solved by conjugate gradients.
    """

    tolerance: Float[Array | ndarray, ""]
    steps: Int[Array | ndarray, ""]
    rounding: Float[Array | ndarray, ""]
    dense: bool = eqx.field(static=True)

    def init(self, latent: Latents) -> State:
        """Every start's own latents are its first trial."""
        count, size = latent.shape
        form = None
        if self.dense:
            form = NormalForm(jnp.zeros((count, size, size), latent.dtype), jnp.zeros_like(latent))
        search = jax.vmap(lambda own: self._search().init(own, None))(latent)
        return State.begin(latent, LeastSquaresMemory(latent, jnp.zeros(count, latent.dtype), search, form))

    def step(self, posterior: SquaredLoss, state: State) -> State:
        """The loss at the trials, and a linearisation where one is accepted."""
        loss = losses_at(posterior, state.memory.trial)
        verdict = _judge(self, state, loss)
        if not self.dense:
            return _iterate(self, posterior, state, loss, verdict)
        form = state.memory.form
        if np.any(np.asarray(verdict.accept)):
            form = normal_forms_at(posterior, state.memory.trial)
        return _solve(self, state, loss, verdict, form)

    def _search(self) -> Any:
        """How optimistix judges a trial."""
        optx = import_optional("optimistix", _PURPOSE)
        return optx.ClassicalTrustRegion(high_cutoff=_GOOD)


@jax.jit
def _judge(optimiser: LeastSquares, state: State, loss: Float[Array, " start"]) -> _Verdict:
    """Which trials are accepted."""
    return jax.vmap(lambda own, trial_loss: _judged(optimiser, own, trial_loss))(state, loss)


def _judged(optimiser: LeastSquares, own: State, loss: Float[Array, ""]) -> _Verdict:
    """A step judged by the residuals along it alone: from 0 to 1 they would fall from sqrt(2 gain) to 0."""
    optx = import_optional("optimistix", _PURPOSE)
    gain = own.memory.gain
    change = jnp.where(jnp.isfinite(loss), loss - own.loss, jnp.inf)
    along = jnp.sqrt(2 * gain)[None]
    begin, end = jnp.zeros_like(along), jnp.ones_like(along)
    step_size, accept, _, search = optimiser._search().step(
        own.n_step == 0,
        begin,
        end,
        _info(along, -along[:, None]),
        optx.FunctionInfo.Eval(gain + change),
        own.memory.search,
    )
    running = own.status == int(Status.RUNNING)
    return _Verdict(accept & jnp.isfinite(loss) & running, step_size, search)


@jax.jit
def _solve(
    optimiser: LeastSquares, state: State, loss: Float[Array, " start"], verdict: _Verdict, form: NormalForm
) -> State:
    """The next trials by the matrix."""

    def solve(state: State, loss: Array, verdict: _Verdict, new: NormalForm) -> State:
        form = jax.tree.map(lambda accepted, old: jnp.where(verdict.accept, accepted, old), new, state.memory.form)
        unit = _units(form)
        factor = form.factor / unit[None, :]
        latent = jnp.where(verdict.accept, state.memory.trial, state.latent)
        step = _step(optimiser, verdict.step_size, _info(form.projected, factor, triangular=True))
        longest = _LONGEST * jnp.maximum(1, jnp.abs(latent))
        step = step * jnp.minimum(1, 1 / jnp.max(jnp.abs(step / unit) / longest))
        left = form.projected + factor @ step
        gain = form.excess - 0.5 * left @ left
        memory = LeastSquaresMemory(latent + step / unit, gain, verdict.search, form)
        return _advanced(optimiser, state, loss, verdict, memory, form.gradient, form.excess)

    return chosen(state.status == int(Status.RUNNING), jax.vmap(solve)(state, loss, verdict, form), state)


def _units(form: NormalForm) -> Latent:
    """Square roots of what optimistix's damping by 1 is to be: halfway between that of the prior and the Jacobian's.

    In units of the prior alone latents that are well determined would be damped least, in those of the Jacobian's
    columns the others; either takes three times as many steps along a curved valley.
    """
    squares = jnp.sum(form.factor**2, axis=0)
    return jnp.where(squares > 0, _FIRST_DAMPING * squares, 1.0) ** 0.25


@jax.jit
def _iterate(
    optimiser: LeastSquares, posterior: SquaredLoss, state: State, loss: Float[Array, " start"], verdict: _Verdict
) -> State:
    """The next trials by conjugate gradients, on the residuals linearised at the state's latents or accepted trials."""

    def iterate(posterior: SquaredLoss, own: State, loss: Array, verdict: _Verdict) -> State:
        lx = import_optional("lineax", _PURPOSE)
        latent = jnp.where(verdict.accept, own.memory.trial, own.latent)
        residuals, along = jax.linearize(posterior.residuals, latent)
        operator = lx.FunctionLinearOperator(along, jax.eval_shape(lambda: latent))
        step = _step(optimiser, verdict.step_size, _info(residuals, operator))
        left = jax.tree.map(jnp.add, residuals, along(step))
        gain = half_square(residuals) - half_square(left)
        gradient = operator.transpose().mv(residuals)
        memory = LeastSquaresMemory(latent + step, jnp.maximum(gain, 0), verdict.search, None)
        return _advanced(optimiser, own, loss, verdict, memory, gradient, (1 + 1 / verdict.step_size) * gain)

    stepped = over_starts(iterate, posterior, state, loss, verdict)
    return chosen(state.status == int(Status.RUNNING), stepped, state)


def _advanced(
    optimiser: LeastSquares,
    state: State,
    loss: Float[Array, ""],
    verdict: _Verdict,
    memory: LeastSquaresMemory,
    gradient: Latent,
    excess: Float[Array, ""],
) -> State:
    """The state of one start with its next trial; `excess`: what its loss could still fall by, at most.

    It has converged when the loss would fall by less than the tolerance if the residuals were linear, and the last
    trial has changed it by no more than that, or was rejected. Of a rejected trial that changed the loss by no more
    than rounding does, nothing more can be learnt: then rounding is the tolerance.
    """
    latent = jnp.where(verdict.accept, state.memory.trial, state.latent)
    first = state.n_step == 0
    finite = jnp.isfinite(loss)
    change, noise = jnp.abs(loss - state.loss), _rounding_of(optimiser, state.loss)
    rejected = ~(verdict.accept | first)
    calm = ((change < optimiser.tolerance) | rejected) & (excess < optimiser.tolerance)
    calm = calm | (rejected & (change < noise) & (excess < noise))
    short = jnp.max(jnp.abs(memory.trial - latent)) < _SHORTEST
    status = status_after(
        first=first,
        finite=finite | ~first,
        smooth=jnp.isfinite(memory.trial).all(),
        converged=calm,
        stalled=short & ~verdict.accept,
        exhausted=state.n_step >= optimiser.steps,
    )
    return State(
        latent=latent,
        loss=jnp.where(verdict.accept | first, loss, state.loss),
        gradient_norm=jnp.linalg.norm(gradient),
        n_step=state.n_step + 1,
        status=status,
        memory=memory,
    )


def _rounding_of(optimiser: LeastSquares, loss: Float[Array, ""]) -> Float[Array, ""]:
    """Rounding of a loss L: eps L as a sum, and sqrt(2 L) d by residuals r that are off by d each, as sum(r d)
    scatters."""
    summed = jnp.finfo(loss.dtype).eps * loss
    return _ROUNDINGS * (summed + optimiser.rounding * jnp.sqrt(2 * jnp.abs(loss)))


def _step(optimiser: LeastSquares, step_size: Any, info: Any) -> Latent:
    """The step that optimistix's descent adds to a latent."""
    lx, optx = import_optional("lineax", _PURPOSE), import_optional("optimistix", _PURPOSE)
    iterative = lx.Normal(lx.CG(rtol=_SOLVED, atol=0.0, max_steps=_ITERATIONS))
    descent = optx.DampedNewtonDescent(linear_solver=lx.QR() if optimiser.dense else iterative)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info.jac.in_structure())
    step, _ = descent.step(step_size, descent.query(zero, info, descent.init(zero, info)))
    return step


def _info(residuals: Any, jacobian: Any, *, triangular: bool = False) -> Any:
    """Residuals with their Jacobian, an array or an operator, as optimistix takes them."""
    lx = import_optional("lineax", _PURPOSE)
    optx = import_optional("optimistix", _PURPOSE)
    if isinstance(jacobian, jax.Array):
        jacobian = lx.MatrixLinearOperator(jacobian, lx.upper_triangular_tag if triangular else ())
    return optx.FunctionInfo.ResidualJac(residuals, jacobian)

"""Optimisers: their interface, L-BFGS by the library optax, and Levenberg-Marquardt by the library optimistix.

A step of Levenberg-Marquardt computes the loss at a trial latent, and only where that is accepted the Jacobian there,
once. Of the Jacobian J^T J and J^T r are kept: a trial after one that was rejected needs nothing else.
"""

from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.config.sections.fit import OptimiserSettings
from rubix_like.inference.posterior.fit_model import Latent
from rubix_like.inference.posterior.posterior import (
    Latents,
    NormalForm,
    SquaredLoss,
    half_square,
    is_dense,
    losses_at,
    normal_forms_at,
    over_starts,
)
from rubix_like.runtime.optional_packages import import_optional


class Status(IntEnum):
    """State of a start: running, or why it ended."""

    RUNNING = 0
    CONVERGED = 1
    LOSS_NOT_FINITE = 2
    GRADIENT_NOT_FINITE = 3
    STALLED = 4
    STEPS_USED_UP = 5
    WAITING = 6
    DIVERGED = 7
    SATURATED = 8
    CREEPING = 9
    INTERRUPTED = 10


REASONS: Mapping[Status, str] = {
    Status.RUNNING: "it is still running",
    Status.CONVERGED: "it converged",
    Status.LOSS_NOT_FINITE: "the loss is not a finite number where it starts",
    Status.GRADIENT_NOT_FINITE: "the derivatives of the residuals are not finite numbers, although the loss is one",
    Status.STALLED: "no step lowers the loss any more, however short, although it should: it is not smooth there",
    Status.STEPS_USED_UP: "it made as many steps as fit.optimiser.steps allows",
    Status.WAITING: "it has not begun",
    Status.DIVERGED: "a step led to where the loss is not a finite number; try levenberg_marquardt",
    Status.SATURATED: "it was given up at the limits of its priors, where no slope leads back, for another candidate",
    Status.CREEPING: "it was put aside where its loss hardly fell, far above a better start or while others waited",
    Status.INTERRUPTED: "it was interrupted; the same command goes on from there",
}
"""Where a start is, in words."""

FAILED: frozenset[Status] = frozenset({Status.LOSS_NOT_FINITE, Status.GRADIENT_NOT_FINITE, Status.DIVERGED})
"""Ends that are no result."""

GIVEN_UP: frozenset[Status] = frozenset({Status.SATURATED, Status.CREEPING})
"""Ends of starts that could have gone on."""


class State(eqx.Module):
    """A group of starts, each at a separate step: arrays, with the axis `start` first, that are all there is to know.

    `loss` and `gradient_norm` are those at `latent` (infinite before the first step); `n_step`: how many steps it has
    made, of which the first only computes what is at the start; `status`: a `Status`; `memory`: what else its
    optimiser needs to go on.
    """

    latent: Float[Array, "*start latent"]
    loss: Float[Array, "*start"]
    gradient_norm: Float[Array, "*start"]
    n_step: Int[Array, "*start"]
    status: Int[Array, "*start"]
    memory: Any

    @classmethod
    def begin(cls, latent: Latents, memory: Any) -> "State":
        """Starts that are about to run. No type of an array is weak, so that what follows is compiled once."""
        count = latent.shape[0]
        infinite = jnp.full(count, jnp.inf, latent.dtype)
        return cls(
            latent=latent,
            loss=infinite,
            gradient_norm=infinite,
            n_step=jnp.zeros(count, jnp.int32),
            status=jnp.full(count, int(Status.RUNNING), jnp.int32),
            memory=jax.tree.map(lambda leaf: leaf.astype(leaf.dtype), memory),
        )


class AbstractOptimiser(eqx.Module):
    """A way to minimise; a pytree of its numbers, that knows nothing of what is minimised."""

    @abstractmethod
    def init(self, latent: Latents) -> State:
        """The state of starts at these latents; nothing of the posterior is computed."""

    @abstractmethod
    def step(self, posterior: SquaredLoss, state: State) -> State:
        """Every running start a step further, the others as they are.

        Not to be traced: it runs programs that are compiled once for all groups of this size and data of these shapes.
        """

    def predicted_fall(self, state: State) -> Float[ndarray, " start"]:
        """The fall of the loss of each start if its residuals were linear; infinite where that is not known."""
        return np.full(len(state.status), np.inf)


def chosen(pick: Array, these: Any, others: Any) -> Any:
    """For each start the one or the other of two pytrees of arrays with the axis `start` first."""

    def choose(this: Array, other: Array) -> Array:
        return jnp.where(pick.reshape(pick.shape + (1,) * (this.ndim - 1)), this.astype(other.dtype), other)

    return jax.tree.map(choose, these, others)


def status_after(
    first: Array, finite: Array, smooth: Array, converged: Array, stalled: Array, exhausted: Array
) -> Int[Array, ""]:
    """The status after a step, `first`: it was that of the start; the first fault that is found counts."""
    ends = (
        (~finite & first, Status.LOSS_NOT_FINITE),
        (~finite, Status.DIVERGED),
        (~smooth, Status.GRADIENT_NOT_FINITE),
        (converged, Status.CONVERGED),
        (stalled, Status.STALLED),
        (exhausted, Status.STEPS_USED_UP),
    )
    return jnp.select(
        [end for end, _ in ends], [jnp.int32(int(status)) for _, status in ends], jnp.int32(int(Status.RUNNING))
    )


_CALM_STEPS = 3
"""After how many steps on end that change the loss by less than the tolerance a start has converged."""

_LBFGS = "fit.optimiser.name: lbfgs"


class GradientMemory(eqx.Module):
    """`trial`: where the loss is computed next; `inner`: optax's state; `calm`: steps on end with little change."""

    trial: Float[Array, "*start latent"]
    inner: Any
    calm: Int[Array, "*start"]


class GradientDescent(AbstractOptimiser):
    """L-BFGS, which searches along a line for the length of its steps."""

    tolerance: Float[Array | ndarray, ""]
    steps: Int[Array | ndarray, ""]

    def init(self, latent: Latents) -> State:
        """Every start's latents are its first trial."""
        inner = jax.vmap(_lbfgs().init)(latent)
        return State.begin(latent, GradientMemory(latent, inner, jnp.zeros(latent.shape[0], jnp.int32)))

    def step(self, posterior: SquaredLoss, state: State) -> State:
        """The next state, by as many gradients as the search along a line needs."""
        return _gradient_step(self, posterior, state)


def _lbfgs() -> Any:
    return import_optional("optax", _LBFGS).lbfgs()


@jax.jit
def _gradient_step(optimiser: GradientDescent, posterior: SquaredLoss, state: State) -> State:
    optax = import_optional("optax", _LBFGS)

    def stepped(posterior: SquaredLoss, start: State) -> State:
        latent, inner = start.memory.trial, start.memory.inner
        loss, gradient = optax.value_and_grad_from_state(posterior.loss)(latent, state=inner)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            update, inner = _lbfgs().update(gradient, inner, latent, value=loss, grad=gradient, value_fn=posterior.loss)
        trial = latent + jnp.asarray(update)
        calm = jnp.where(jnp.abs(loss - start.loss) < optimiser.tolerance, start.memory.calm + 1, 0)
        status = status_after(
            first=start.n_step == 0,
            finite=jnp.isfinite(loss),
            smooth=jnp.isfinite(trial).all(),
            converged=calm >= _CALM_STEPS,
            stalled=jnp.zeros((), bool),
            exhausted=start.n_step >= optimiser.steps,
        )
        return State(
            latent=latent,
            loss=jnp.asarray(loss),
            gradient_norm=jnp.linalg.norm(jnp.asarray(gradient)),
            n_step=start.n_step + 1,
            status=status,
            memory=GradientMemory(trial, inner, calm),
        )

    return chosen(state.status == int(Status.RUNNING), over_starts(stepped, posterior, state), state)


_SHORTEST = 1e-9
"""A step that changes no latent by more is none."""

_GOOD = 0.75
"""Part of the expected fall of the loss from which on the next step is damped less."""

_FIRST_DAMPING = 1e-2
"""Squared, in units of the product of the prior's information, 1, and the Jacobian's."""

_LONGEST = 0.7
"""No damped step changes a latent by more, in standard deviations of its prior or, beyond one, of its size. Priors
with limits are flat where latents are large: a long step there ends at a false maximum."""

_ROUNDINGS = 8.0
"""How many roundings a loss may be off by."""

_SOLVED = 1e-3
"""Relative residual at which the iterative solution of a step's linear system ends."""

_ITERATIONS = 200
"""Most products with the Jacobian and its transpose for one step."""

_LEVENBERG_MARQUARDT = "fit.optimiser.name: levenberg_marquardt"


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
        """Every start's latents are its first trial."""
        count, size = latent.shape
        form = None
        if self.dense:
            form = NormalForm(jnp.zeros((count, size, size), latent.dtype), jnp.zeros_like(latent))
        search = jax.vmap(lambda start: self._search().init(start, None))(latent)
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

    def predicted_fall(self, state: State) -> Float[ndarray, " start"]:
        """Half the square of what the residuals' matrix projects; infinite where no matrix is kept."""
        form = state.memory.form
        if form is None:
            return np.full(len(state.status), np.inf)
        return 0.5 * np.sum(np.asarray(form.projected) ** 2, axis=1)

    def _search(self) -> Any:
        """How optimistix judges a trial."""
        optx = import_optional("optimistix", _LEVENBERG_MARQUARDT)
        return optx.ClassicalTrustRegion(high_cutoff=_GOOD)


@jax.jit
def _judge(optimiser: LeastSquares, state: State, loss: Float[Array, " start"]) -> _Verdict:
    """Which trials are accepted, by the residuals along a step: from 0 to 1 they would fall from sqrt(2 gain) to 0."""
    optx = import_optional("optimistix", _LEVENBERG_MARQUARDT)

    def judged(start: State, loss: Float[Array, ""]) -> _Verdict:
        gain = start.memory.gain
        change = jnp.where(jnp.isfinite(loss), loss - start.loss, jnp.inf)
        along = jnp.sqrt(2 * gain)[None]
        step_size, accept, _, search = optimiser._search().step(
            start.n_step == 0,
            jnp.zeros_like(along),
            jnp.ones_like(along),
            _info(along, -along[:, None]),
            optx.FunctionInfo.Eval(gain + change),
            start.memory.search,
        )
        running = start.status == int(Status.RUNNING)
        return _Verdict(accept & jnp.isfinite(loss) & running, step_size, search)

    return jax.vmap(judged)(state, loss)


@jax.jit
def _solve(
    optimiser: LeastSquares, state: State, loss: Float[Array, " start"], verdict: _Verdict, form: NormalForm
) -> State:
    """The next trials by the matrix."""

    def solve(state: State, loss: Array, verdict: _Verdict, new: NormalForm) -> State:
        form = jax.tree.map(lambda accepted, old: jnp.where(verdict.accept, accepted, old), new, state.memory.form)
        # what a damping by 1 is to be: halfway between that of the prior and that of the Jacobian's columns, either of
        # which takes three times as many steps along a curved valley
        squares = jnp.sum(form.factor**2, axis=0)
        unit = jnp.where(squares > 0, _FIRST_DAMPING * squares, 1.0) ** 0.25
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


@jax.jit
def _iterate(
    optimiser: LeastSquares, posterior: SquaredLoss, state: State, loss: Float[Array, " start"], verdict: _Verdict
) -> State:
    """The next trials by conjugate gradients, on the residuals linearised at the state's latents or accepted trials."""

    def iterate(posterior: SquaredLoss, start: State, loss: Array, verdict: _Verdict) -> State:
        lx = import_optional("lineax", _LEVENBERG_MARQUARDT)
        latent = jnp.where(verdict.accept, start.memory.trial, start.latent)
        residuals, along = jax.linearize(posterior.residuals, latent)
        operator = lx.FunctionLinearOperator(along, jax.eval_shape(lambda: latent))
        step = _step(optimiser, verdict.step_size, _info(residuals, operator))
        left = jax.tree.map(jnp.add, residuals, along(step))
        gain = half_square(residuals) - half_square(left)
        gradient = operator.transpose().mv(residuals)
        memory = LeastSquaresMemory(latent + step, jnp.maximum(gain, 0), verdict.search, None)
        return _advanced(optimiser, start, loss, verdict, memory, gradient, (1 + 1 / verdict.step_size) * gain)

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
    summed = jnp.finfo(state.loss.dtype).eps * state.loss
    change = jnp.abs(loss - state.loss)
    noise = _ROUNDINGS * (summed + optimiser.rounding * jnp.sqrt(2 * jnp.abs(state.loss)))
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


def _step(optimiser: LeastSquares, step_size: Any, info: Any) -> Latent:
    """The step that optimistix's descent adds to a latent."""
    lx, optx = import_optional("lineax", _LEVENBERG_MARQUARDT), import_optional("optimistix", _LEVENBERG_MARQUARDT)
    iterative = lx.Normal(lx.CG(rtol=_SOLVED, atol=0.0, max_steps=_ITERATIONS))
    descent = optx.DampedNewtonDescent(linear_solver=lx.QR() if optimiser.dense else iterative)
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), info.jac.in_structure())
    step, _ = descent.step(step_size, descent.query(zero, info, descent.init(zero, info)))
    return step


def _info(residuals: Any, jacobian: Any, *, triangular: bool = False) -> Any:
    """Residuals with their Jacobian, an array or an operator, as optimistix takes them."""
    lx = import_optional("lineax", _LEVENBERG_MARQUARDT)
    optx = import_optional("optimistix", _LEVENBERG_MARQUARDT)
    if isinstance(jacobian, jax.Array):
        jacobian = lx.MatrixLinearOperator(jacobian, lx.upper_triangular_tag if triangular else ())
    return optx.FunctionInfo.ResidualJac(residuals, jacobian)


LEAST_SQUARES: str = "levenberg_marquardt"
"""Name of the optimiser that goes by residuals."""


def make_optimiser(
    settings: OptimiserSettings, n_latent: int, n_residual: int, rounding: float = 0.0
) -> AbstractOptimiser:
    """The optimiser of the settings; ConfigError where its packages are missing.

    `rounding`: of a residual, where the model is computed with fewer digits than the latents.
    """
    for package in ("optimistix", "lineax") if settings.name == LEAST_SQUARES else ("optax",):
        import_optional(package, f"fit.optimiser.name: '{settings.name}'")
    dtype = jax.dtypes.canonicalize_dtype(float)
    tolerance, steps = np.asarray(settings.tolerance, dtype), np.asarray(settings.steps, np.int32)
    if settings.name == LEAST_SQUARES:
        dense, off = is_dense(n_latent, n_residual), np.asarray(rounding, dtype)
        return LeastSquares(tolerance, steps, off, dense=dense)
    return GradientDescent(tolerance, steps)

"""Non-negative least squares inside compiled functions, and how the solution follows what it depends on."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_ROUNDINGS = 50.0
"""A slope of the objective below this many roundings is none."""

_STEPS_PER_WEIGHT = 5
"""Most steps of the active set for each weight."""


class NonNegative(NamedTuple):
    """The weights, which of them are not held at 0, and whether the search for these has ended; if not, weights are
    NaN, which no fit takes."""

    weights: Float[Array, " weight"]
    free: Bool[Array, " weight"]
    converged: Bool[Array, ""]


class _Step(NamedTuple):
    weights: Float[Array, " weight"]
    free: Bool[Array, " weight"]
    refused: Bool[Array, " weight"]
    added: Int[Array, ""]
    number: Int[Array, ""]
    ended: Bool[Array, ""]


def nonnegative_least_squares(
    design: Float[Array, "row weight"], target: Float[Array, " row"], first: Float[Array, " weight"] | None = None
) -> NonNegative:
    """The weights w >= 0 with the least |design w - target|^2, by an active set (Lawson & Hanson 1974, chapter 23).

    Columns are scaled to length 1, and each step solves a QR factorisation of the free columns, so that the condition
    of the design is not squared. Columns of zeros have the weight 0. `first`: weights >= 0 to begin at, such as those
    of a problem that is nearly the same; the solution does not depend on them. Derivatives are not those of the
    solution: `response` has them.
    """
    if design.shape[0] > design.shape[1]:
        orthogonal, design = jnp.linalg.qr(design)
        target = orthogonal.T @ target
    length = jnp.linalg.norm(design, axis=0)
    scale = jnp.where(length > 0, length, 1.0)
    n_weight = design.shape[1]
    problem = _Scaled(design / scale[None, :], target, length > 0)
    begun = jnp.zeros(n_weight, design.dtype) if first is None else jnp.maximum(first, 0.0) * scale
    none, nobody = jnp.zeros(n_weight, bool), jnp.asarray(n_weight, jnp.int32)
    begin = _Step(begun, begun > 0, none, nobody, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    most = _STEPS_PER_WEIGHT * n_weight + 10
    end = lax.while_loop(lambda now: ~now.ended & (now.number < most), problem.step, begin)
    return NonNegative(jnp.where(end.ended, end.weights / scale, jnp.nan), end.free, end.ended)


class _Scaled(NamedTuple):
    """The problem with columns of length 1; `lit`: those that are not 0."""

    design: Float[Array, "row weight"]
    target: Float[Array, " row"]
    lit: Bool[Array, " weight"]

    def step(self, now: _Step) -> _Step:
        """The free weights solved; those that would fall below 0 are held, or where none would the next is freed."""
        number = jnp.arange(len(self.lit), dtype=jnp.int32)
        found = _solve_free(self.design, self.target, now.free)
        below = now.free & (found <= 0)
        any_below = below.any()
        refused = now.refused | (below & (number == now.added))  # only rounding does that: its slope said otherwise
        share = jnp.where(below, now.weights / jnp.where(below, now.weights - found, 1.0), jnp.inf)
        stopped = now.weights + jnp.minimum(share.min(), 1.0) * (found - now.weights)
        kept = now.free & ~(below & (share <= share.min() * (1 + 1e-12)))

        slope = self.design.T @ (self.target - self.design @ found)
        slope = jnp.where(now.free | refused | ~self.lit, -jnp.inf, slope)
        best = jnp.argmax(slope).astype(jnp.int32)
        least = _ROUNDINGS * jnp.finfo(self.design.dtype).eps * jnp.linalg.norm(self.target)
        ended = slope[best] <= least
        return _Step(
            weights=jnp.where(any_below, jnp.where(kept, jnp.maximum(stopped, 0.0), 0.0), found),
            free=jnp.where(any_below, kept, now.free | ((number == best) & ~ended)),
            refused=refused,
            added=jnp.where(any_below | ended, jnp.int32(len(self.lit)), best),
            number=now.number + 1,
            ended=~any_below & ended,
        )


def response(
    design: Float[Array, "row weight"], free: Bool[Array, " weight"], change: Float[Array, " row"]
) -> Float[Array, " weight"]:
    """How the weights follow a change of the target: those that are free by least squares, the others not at all.

    With a model A(t) w that changes by (dA/dt) w at fixed weights, `response(A, free, -(dA/dt) w)` is dw/dt without the
    term of the residual (dA/dt)^T r (Kaufman 1975, BIT 15, 49). The gradient of the objective is exact without it.
    """
    length = jnp.linalg.norm(design, axis=0)
    scale = jnp.where(length > 0, length, 1.0)
    return _solve_free(design / scale[None, :], change, free) / scale


def _solve_free(
    design: Float[Array, "row weight"], target: Float[Array, " row"], free: Bool[Array, " weight"]
) -> Float[Array, " weight"]:
    """Least squares of the free columns; 0 for the others, which have a row of their own each."""
    dtype = design.dtype
    others = jnp.diag((~free).astype(dtype))
    rows = jnp.concatenate([design * free.astype(dtype)[None, :], others])
    orthogonal, upper = jnp.linalg.qr(rows)
    known = jnp.concatenate([target, jnp.zeros(len(free), dtype)])
    found = jax.scipy.linalg.solve_triangular(upper, orthogonal.T @ known)
    return jnp.where(free, found, 0.0)

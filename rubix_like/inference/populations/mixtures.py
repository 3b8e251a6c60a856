"""Variable projection: weights of free-form populations by non-negative least squares inside a compiled model."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from rubix_like.engine.basis import BasisPainter
from rubix_like.forward.model import Observed
from rubix_like.forward.tables import Tables
from rubix_like.inference.populations.weight_draws import Reduced

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
    even, lit, number = design / scale[None, :], length > 0, jnp.arange(n_weight, dtype=jnp.int32)

    def step(now: _Step) -> _Step:
        """The free weights solved; those that would fall below 0 are held, or where none would the next is freed."""
        found = _solve_free(even, target, now.free)
        below = now.free & (found <= 0)
        any_below = below.any()
        refused = now.refused | (below & (number == now.added))  # only rounding does that: its slope said otherwise
        share = jnp.where(below, now.weights / jnp.where(below, now.weights - found, 1.0), jnp.inf)
        stopped = now.weights + jnp.minimum(share.min(), 1.0) * (found - now.weights)
        kept = now.free & ~(below & (share <= share.min() * (1 + 1e-12)))

        slope = even.T @ (target - even @ found)
        slope = jnp.where(now.free | refused | ~lit, -jnp.inf, slope)
        best = jnp.argmax(slope).astype(jnp.int32)
        least = _ROUNDINGS * jnp.finfo(even.dtype).eps * jnp.linalg.norm(target)
        ended = slope[best] <= least
        return _Step(
            weights=jnp.where(any_below, jnp.where(kept, jnp.maximum(stopped, 0.0), 0.0), found),
            free=jnp.where(any_below, kept, now.free | ((number == best) & ~ended)),
            refused=refused,
            added=jnp.where(any_below | ended, jnp.int32(n_weight), best),
            number=now.number + 1,
            ended=~any_below & ended,
        )

    begun = jnp.zeros(n_weight, design.dtype) if first is None else jnp.maximum(first, 0.0) * scale
    none, nobody = jnp.zeros(n_weight, bool), jnp.asarray(n_weight, jnp.int32)
    begin = _Step(begun, begun > 0, none, nobody, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
    most = _STEPS_PER_WEIGHT * n_weight + 10
    end = lax.while_loop(lambda now: ~now.ended & (now.number < most), step, begin)
    return NonNegative(jnp.where(end.ended, end.weights / scale, jnp.nan), end.free, end.ended)


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
    """Least squares of the free columns; 0 for the others, which have a separate row each."""
    dtype = design.dtype
    others = jnp.diag((~free).astype(dtype))
    rows = jnp.concatenate([design * free.astype(dtype)[None, :], others])
    orthogonal, upper = jnp.linalg.qr(rows)
    known = jnp.concatenate([target, jnp.zeros(len(free), dtype)])
    found = jax.scipy.linalg.solve_triangular(upper, orthogonal.T @ known)
    return jnp.where(free, found, 0.0)


Paint = Callable[[tuple[int, ...], Array | None], Observed]
"""The cube of some components: with one spectrum for all of their stars, given by its coefficients on the basis,
or (None) with their populations."""


class Solved(NamedTuple):
    """The weights, which of them are above 0, and the linear problem that they solve, in few rows.

    `basis`: cubes of the components with one basis spectrum each, in 1e-20 erg/s/cm2/Angstrom per unit of weight.
    """

    weights: Float[Array, " weight"]
    free: Bool[Array, " weight"]
    problem: Reduced
    orthogonal: Float[Array, "voxel row"]
    basis: Float[Array, "row y x wave"]


class Mixtures(eqx.Module):
    """All that it takes to solve for the weights of some components' populations.

    With the basis spectra b_r of method `basis` and the coefficients C of a node's template, the cube of component c is
    sum_k w_ck sum_r C_kr B_cr, where B_cr is its cube with all stars shining as b_r. These few cubes are painted once
    for each place of the other parameters; their QR factorisation leaves as many rows as there are basis spectra, of
    which `nonnegative_least_squares` finds the weights, with the smoothness prior as further rows.

    Derivatives are those of the variable projection (Golub & Pereyra 1973, SIAM J. Numer. Anal. 10, 413) in Kaufman's
    form (1975, BIT 15, 49): the weights follow the model (`response`). The gradient of the posterior is exact, by the
    envelope theorem, and J^T J is the information with the weights integrated over.

    `coefficients`: C of each component's nodes; `smoothness`: rows S of the prior of all weights together; `strength`:
    of the prior of each component, `of_row` says of which a row is; `solved`, `others`: numbers of the components whose
    weights are solved for, and of those with separate populations.
    """

    coefficients: tuple[Float[Array, "node rank"], ...]
    smoothness: Float[Array, "difference weight"]
    strength: Float[Array, " mixture"]
    flux: Float[Array, "y x wave"]
    inverse_sigma: Float[Array, "y x wave"]
    of_row: tuple[int, ...] = eqx.field(static=True)
    solved: tuple[int, ...] = eqx.field(static=True)
    others: tuple[int, ...] = eqx.field(static=True)

    @property
    def rows(self) -> Float[Array, "difference weight"]:
        """S of the prior, times the root of the strength."""
        return jnp.sqrt(self.strength)[jnp.asarray(self.of_row, jnp.int32)][:, None] * self.smoothness

    def parts(self, weights: Float[Array, "*n weight"]) -> list[Float[Array, "*n node"]]:
        """The weights of each component."""
        ends = [sum(len(table) for table in self.coefficients[:number]) for number in range(1, len(self.coefficients))]
        return jnp.split(weights, ends, axis=-1)

    def solve(self, paint: Paint) -> Solved:
        """The best weights at one place of the other parameters."""
        known = paint(self.others, None).voxels.flux if self.others else jnp.zeros_like(self.flux)
        return self._solve(paint, known)

    def observed(self, paint: Paint, paint_held: Paint) -> tuple[Observed, Float[Array, " difference"]]:
        """The cube with the best weights, and the residuals of their prior; differentiable.

        `paint_held`: the same as `paint`, of constants.
        """
        others = [paint(self.others, None)] if self.others else []
        found = self._solve(paint_held, others[0].voxels.flux if others else jnp.zeros_like(self.flux))
        mixed = zip(self.solved, self.parts(found.weights), self.coefficients, strict=True)
        painted = [paint((number,), weights @ table) for number, weights, table in mixed]
        whole = jax.tree.map(lambda *leaves: sum(leaves[1:], start=leaves[0]), *others, *painted)

        flux = whole.voxels.flux
        change = (flux - lax.stop_gradient(flux)).astype(self.flux.dtype) * self.inverse_sigma
        rows = jnp.concatenate([found.problem.design, self.rows])
        seen = jnp.concatenate([found.orthogonal.T @ change.reshape(-1), jnp.zeros(len(self.of_row), rows.dtype)])
        follow = -response(rows, found.free, seen)
        on_basis = jnp.concatenate(
            [weights @ table for weights, table in zip(self.parts(follow), self.coefficients, strict=True)]
        )
        flux = flux + jnp.tensordot(on_basis, found.basis, 1).astype(flux.dtype)
        whole = whole._replace(voxels=whole.voxels._replace(flux=flux))
        return whole, self.rows @ (found.weights + follow)

    def _solve(self, paint: Paint, known: Float[Array, "y x wave"]) -> Solved:
        dtype = self.flux.dtype
        each = []
        for number, coefficients in zip(self.solved, self.coefficients, strict=True):
            units = jnp.eye(coefficients.shape[1])
            each.append(lax.map(lambda unit, number=number: paint((number,), unit).voxels.flux, units))
        basis = jnp.concatenate(each).astype(dtype)
        target = (self.flux - lax.stop_gradient(known).astype(dtype)) * self.inverse_sigma
        seen = (basis * self.inverse_sigma[None]).reshape(len(basis), -1).T
        orthogonal, upper = jnp.linalg.qr(seen)
        table = jax.scipy.linalg.block_diag(*(coefficients.T for coefficients in self.coefficients))
        problem = Reduced(upper @ table, orthogonal.T @ target.reshape(-1), self.smoothness)
        rows = jnp.concatenate([problem.design, self.rows])
        right = jnp.concatenate([problem.target, jnp.zeros(len(self.of_row), dtype)])
        found = nonnegative_least_squares(rows, right)
        return Solved(found.weights, found.free, problem, orthogonal, basis)


def with_one_template(tables: Tables, coefficients: Float[Array, " rank"]) -> Tables:
    """The tables of a pipeline of stars alone, with one template for all ages and metallicities."""
    painter = star_painter(tables)
    table = jnp.asarray(painter.coefficients)
    every = jnp.broadcast_to(coefficients.astype(table.dtype)[None, :], table.shape)
    return eqx.tree_at(lambda tables: tables.paint[0].painter.coefficients, tables, every)


def star_painter(tables: Tables) -> BasisPainter:
    """The painter of a pipeline that paints stars alone, by method `basis`; TypeError for others."""
    (source,) = tables.paint
    if not isinstance(source.painter, BasisPainter):
        raise TypeError(f"expected method 'basis', got a {type(source.painter).__name__}")
    return source.painter

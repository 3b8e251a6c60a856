"""Where a function of a few numbers is zero, by few evaluations of it: Broyden's method."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

_SHORTEST = 1 / 256
"""Part of a step below which none is tried."""

Vector = Float[Array, " number"]


class Root(NamedTuple):
    """The position with the smallest values found, their norm there, and how often the function was evaluated."""

    position: Vector
    error: Float[Array, ""]
    n_evaluation: Int[Array, ""]


class _Search(NamedTuple):
    """`inverse`: of the Jacobian, as it is known; `part`: how much of its step is tried next."""

    position: Vector
    values: Vector
    inverse: Float[Array, "number number"]
    part: Float[Array, ""]
    n_evaluation: Int[Array, ""]


def find_root(
    function: Callable[[Vector], Vector], values: Vector, tolerance: Float[Array, ""] | float, most: int
) -> Root:
    """Where a function is zero whose Jacobian at 0 is the unit matrix, beginning at 0, where its values are given.

    Broyden's first method (Broyden 1965, Math. Comp. 19, 577), with a shorter step in another direction, by what was
    learnt of the Jacobian, where one does not lower the norm of the values. It ends where that is below `tolerance`,
    where even short steps do not lower it, or after `most` evaluations. Traceable.
    """

    def goes_on(search: _Search) -> Bool[Array, ""]:
        wrong = jnp.linalg.norm(search.values) > tolerance
        return wrong & (search.n_evaluation < most) & (search.part >= _SHORTEST)

    def advance(search: _Search) -> _Search:
        step = -search.part * (search.inverse @ search.values)
        found = function(search.position + step)
        better = jnp.linalg.norm(found) < jnp.linalg.norm(search.values)
        inverse = _secant(search.inverse, step, found - search.values)
        usable = jnp.isfinite(inverse).all()
        return _Search(
            position=jnp.where(better, search.position + step, search.position),
            values=jnp.where(better, found, search.values),
            inverse=jnp.where(usable, inverse, search.inverse),
            part=jnp.where(better, jnp.minimum(jnp.ones_like(search.part), 4 * search.part), search.part / 2),
            n_evaluation=search.n_evaluation + 1,
        )

    unit = jnp.eye(values.shape[0], dtype=values.dtype)
    one = jnp.ones((), values.dtype)
    begin = _Search(jnp.zeros_like(values), values, unit, one, jnp.zeros((), jnp.int32))
    end = lax.while_loop(goes_on, advance, begin)
    return Root(end.position, jnp.linalg.norm(end.values), end.n_evaluation)


def _secant(inverse: Float[Array, "number number"], step: Vector, change: Vector) -> Float[Array, "number number"]:
    """The inverse nearest to the old one that turns the change of the values into the step."""
    expected = inverse @ change
    along = step @ inverse
    length = along @ change
    usable = jnp.abs(length) > 1e-3 * jnp.sum(step * step)
    update = (step - expected)[:, None] * along[None, :] / jnp.where(usable, length, jnp.ones_like(length))
    return jnp.where(usable, inverse + update, inverse)

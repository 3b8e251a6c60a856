"""How much of which template moves how fast in which spaxel: the sums over particles that `basis` needs."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.counters import no_counts
from rubix_like.engine.painter import Look, View
from rubix_like.physics import bspline
from rubix_like.physics.templates import TemplateAxes, weighted_rows
from rubix_like.runtime.mesh.accumulate import accumulate
from rubix_like.runtime.mesh.mesh import varying

_VALUES_IN_CACHE = 1 << 15
"""Numbers that are multiplied out at once before they are added: so many 64-bit ones stay in a processor's cache."""

_VALUES_ON_ACCELERATOR = 1 << 22

Spaxels = tuple[Int[Array, ""] | int, int]
"""The first of some spaxels (flat index), and their number."""


class VelocityNodes(eqx.Module):
    """Velocity nodes at whole multiples of `step` (km/s), symmetric about 0; `n_node` is odd.

    Positions from 1 to n_node - 2 on them, so velocities up to `limit`, are within the splines' support.
    """

    step: Float[Array | ndarray, ""]
    n_node: int = eqx.field(static=True)

    @property
    def limit(self) -> Float[Array, ""]:
        """Largest |v_los| in km/s that has all its nodes."""
        return jnp.asarray(self.step) * (self.n_node // 2 - 1)


class Deposit(eqx.Module):
    """What one chunk adds: amounts, and the flat cells that they go to."""

    cell: Int[Array, " part"]
    amount: Float[Array, " part"]


class Factors(eqx.Module):
    """What one chunk adds, not multiplied out: share x weight of a node x own coefficients go to the nodes' rows.

    `row` is that of the first of the four nodes in each of the spaxels.
    """

    row: Int[Array, "particle corner"]
    share: Float[Array, "particle corner"]
    node_weight: Float[Array, "particle 4"]
    own: Float[Array, "particle rank"]


def template_histogram(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    chunk: int,
) -> tuple[Float[Array, "template spaxel velocity"], SourceCounters]:
    """Amounts per template, spaxel and velocity node, of the `spaxels` = (first, number) on the grid.

    Every particle is shared among the spaxels of its deposit, four velocity nodes (cubic B-spline) and the templates
    around it; the shares are >= 0 and sum to its amount. Velocities beyond `nodes.limit` are left out. The sums are
    kept in 64 bits whatever the particles' precision: 1e7 equal masses in one cell lose nothing, and the order of the
    particles, their chunks and devices do not matter. Differentiable; the backward pass gathers what was scattered, so
    it costs about the same.
    """
    n_row = spaxels[1] * nodes.n_node

    def deposit(view: View) -> Deposit:
        row, share, node_weight = _rows(view, nodes, spaxels)
        corners = axes.corners(view.coordinates)
        pairs = list(itertools.product(range(axes.n_corner), range(bspline.SUPPORT)))
        place = jnp.stack([corners.index[:, corner] * n_row + offset for corner, offset in pairs], axis=1)
        weight = jnp.stack([corners.weight[:, corner] * node_weight[:, offset] for corner, offset in pairs], axis=1)
        cell = row[:, :, None] + place[:, None, :]
        return Deposit(cell.reshape(-1), (share[:, :, None] * weight[:, None, :]).reshape(-1))

    def add(total: Array, one: Deposit) -> Array:
        return total.at[one.cell].add(one.amount.astype(total.dtype), mode="promise_in_bounds")

    cells, counters = _summed(look, particles, deposit, add, (axes.n_template * n_row,), (axes, nodes), chunk)
    return cells.reshape(axes.n_template, spaxels[1], nodes.n_node), counters


def coefficient_histogram(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    chunk: int,
    coefficients: Float[Array, "template rank"],
) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
    """`coefficients` summed over the particles, per spaxel and velocity node.

    The same as the product of `template_histogram` with them, without an array that holds every template for every
    spaxel: for few particles, or many spaxels.
    """
    n_row = spaxels[1] * nodes.n_node
    rank = coefficients.shape[1]

    def factors(view: View) -> Factors:
        row, share, node_weight = _rows(view, nodes, spaxels)
        own = weighted_rows(coefficients, axes.corners(view.coordinates))
        return Factors(row, share, node_weight, own)

    def add(total: Array, one: Factors) -> Array:
        size = _particles_at_once(one.row.shape[1] * bspline.SUPPORT * rank)
        return lax.scan(lambda sums, piece: (_add_rows(sums, piece), None), total, _pieces(one, size))[0]

    rows, counters = _summed(look, particles, factors, add, (n_row, rank), (axes, nodes), chunk)
    return rows.reshape(spaxels[1], nodes.n_node, rank), counters


def _add_rows(total: Float[Array, "row rank"], piece: Factors) -> Float[Array, "row rank"]:
    share = (piece.share[:, :, None] * piece.node_weight[:, None, :]).reshape(len(piece.row), -1)
    amount = share[:, :, None] * piece.own[:, None, :]
    return lax.scatter_add(
        total,
        piece.row.reshape(-1, 1),
        amount.reshape(-1, bspline.SUPPORT, total.shape[1]),
        lax.ScatterDimensionNumbers((1, 2), (), (0,)),
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def _particles_at_once(n_value: int) -> int:
    """Particles, of which each adds `n_value` numbers, that are multiplied out before they are added."""
    return max(1, (_VALUES_IN_CACHE if jax.default_backend() == "cpu" else _VALUES_ON_ACCELERATOR) // n_value)


def _pieces(factors: Factors, size: int) -> Factors:
    """The particles in pieces of `size` in 64 bits, the last one filled up with nothing."""
    size = min(size, len(factors.row))
    n_piece = -(-len(factors.row) // size)

    def cut(leaf: Array) -> Array:
        missing = ((0, n_piece * size - len(leaf)), *((0, 0),) * (leaf.ndim - 1))
        filled = jnp.pad(leaf, missing).reshape(n_piece, size, *leaf.shape[1:])
        return filled.astype(jnp.float64) if jnp.issubdtype(leaf.dtype, jnp.floating) else filled

    return jax.tree.map(cut, factors)


def _summed(
    look: Look,
    particles: Any,
    deposit: Callable[[View], Any],
    add: Callable[[Array, Any], Array],
    shape: tuple[int, ...],
    grid: tuple[TemplateAxes, VelocityNodes],
    chunk: int,
) -> tuple[Array, SourceCounters]:
    """The deposits of all particles and their counters, summed in 64 bits and returned in the nodes' precision."""

    def contribute(own: Any) -> tuple[Any, SourceCounters]:
        view, counters = look(own)
        return deposit(view), counters

    def add_both(total: tuple[Array, SourceCounters], one: tuple[Any, SourceCounters]) -> tuple[Array, SourceCounters]:
        return add(total[0], one[0]), jax.tree.map(lambda a, b: a + b.astype(a.dtype), total[1], one[1])

    axes, nodes = grid
    dtype = jnp.result_type(nodes.step)
    with jax.enable_x64(True):
        start = varying((jnp.zeros(shape, jnp.float64), no_counts(axes, jnp.float64)), particles)
        sums = accumulate(contribute, add_both, start, particles, chunk, two_levels=False)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), sums)


def _rows(
    view: View, nodes: VelocityNodes, spaxels: Spaxels
) -> tuple[Int[Array, "particle corner"], Float[Array, "particle corner"], Float[Array, "particle 4"]]:
    """First (spaxel, node) row that each share of a particle touches, its amount there, and the nodes' weights.

    The amount is 0 where the share is outside, or the particle too fast (or not finite).
    """
    first, n_spaxel = spaxels
    slow = jnp.abs(view.v_los) <= nodes.limit
    seen = (view.spaxel >= first) & (view.spaxel < first + n_spaxel) & slow[:, None]
    v_los = jnp.where(slow, view.v_los, jnp.zeros_like(view.v_los))
    node, node_weight = bspline.deposit(v_los / nodes.step + nodes.n_node // 2, nodes.n_node)
    row = jnp.where(seen, view.spaxel - first, jnp.zeros_like(view.spaxel)) * nodes.n_node + node[:, None]
    share = jnp.where(seen, view.share * view.amount[:, None], jnp.zeros_like(view.share))
    return row, share, node_weight

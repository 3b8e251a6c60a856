"""Sums over particles for `basis`: the amount of each template at each velocity node in each spaxel."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.kernels.kernel import AbstractDepositKernel, AtOnce, Factors, Pieces, Spaxels, sum_pieces
from rubix_like.engine.painter import Look, View, no_counts
from rubix_like.physics import bspline
from rubix_like.physics.templates import TemplateAxes, weighted_rows
from rubix_like.runtime.mesh.mesh import accumulate, varying

_ONE_LEVEL = 1 << 21
"""Particles, at most, whose derivatives are summed in one level: a cell gets about one of them."""


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


def template_histogram(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    at_once: AtOnce,
    kernel: AbstractDepositKernel,
) -> tuple[Float[Array, "template spaxel velocity"], SourceCounters]:
    """Amounts per template, spaxel and velocity node, of the `spaxels` = (first, number) on the grid.

    Every particle is shared among the spaxels of its deposit, four velocity nodes (cubic B-spline) and the templates
    around it; the shares are >= 0 and sum to its amount. Velocities beyond `nodes.limit` are left out.
    """
    n_row = spaxels[1] * nodes.n_node
    axes, nodes, spaxels = varying((axes, nodes, spaxels), particles)

    def factors_of(view: View) -> Factors:
        row, share, node_weight = _rows(view, nodes, spaxels)
        corners = view.corners(axes)
        shape = len(row), row.shape[1] * axes.n_corner
        rows = (row[:, :, None] + n_row * corners.index[:, None, :]).reshape(shape)
        shares = (share[:, :, None] * corners.weight[:, None, :]).reshape(shape)
        return Factors(rows, shares, node_weight, jnp.ones((len(row), 1), share.dtype))

    see, shape = _seen_by(look, nodes, spaxels, at_once.added), (axes.n_template * n_row, 1)
    dtype = jnp.result_type(nodes.step)
    cells, counters = sum_pieces(
        see, factors_of, particles, kernel, shape, no_counts(axes, dtype), at_once.looked, dtype
    )
    return cells.reshape(axes.n_template, spaxels[1], nodes.n_node), counters


def _template_slopes(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    at_once: AtOnce,
) -> Float[Array, "template spaxel velocity"]:
    """`template_histogram` for its derivatives with respect to the particles, in the particles' precision.

    The backward pass looks up 4 numbers for each particle, spaxel and template around it, and is all of vectors over
    particles. Sums of derivatives in forward mode are kept in two levels (`accumulate`) where there are many.
    """
    axes, nodes, spaxels = varying((axes, nodes, spaxels), particles)
    n_row, see = spaxels[1] * nodes.n_node, _seen_by(look, nodes, spaxels, at_once.added)

    def terms(view: View) -> tuple[Int[Array, "number share"], Float[Array, "number share"]]:
        row, share, node_weights = _share_rows(view, nodes, spaxels)
        cells, amounts = [], []
        for template, weight in view.each_corner(axes):
            first, amount = row + n_row * template[:, None], share * weight[:, None]
            for number, node_weight in enumerate(node_weights):
                cells.append((first + jnp.int32(number)).reshape(-1))
                amounts.append((amount * node_weight[:, None]).reshape(-1))
        return jnp.stack(cells), jnp.stack(amounts)

    def add(total: Float[Array, " cell"], pieces: Pieces) -> Float[Array, " cell"]:
        cells, amounts = pieces.each(terms)
        return total.at[cells].add(amounts, mode="promise_in_bounds", wrap_negative_indices=False)

    empty = varying(jnp.zeros(axes.n_template * n_row, jnp.result_type(nodes.step)), particles)
    two_levels = len(particles.weight) > _ONE_LEVEL
    cells = accumulate(lambda chunk: see(chunk)[0], add, empty, particles, at_once.looked, two_levels)
    return cells.reshape(axes.n_template, spaxels[1], nodes.n_node)


def coefficient_histogram(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    at_once: AtOnce,
    kernel: AbstractDepositKernel,
    coefficients: Float[Array, "template rank"],
) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
    """`coefficients` summed over the particles, per spaxel and velocity node.

    Equals the product of `template_histogram` with them, without an array that holds every template for every spaxel:
    for few particles, or many spaxels.
    """
    axes, nodes, spaxels, coefficients = varying((axes, nodes, spaxels, coefficients), particles)

    def factors_of(view: View) -> Factors:
        row, *weights = _rows(view, nodes, spaxels)
        values = *weights, weighted_rows(coefficients, view.corners(axes))
        return Factors(row, *(value.astype(jnp.float64) for value in values))

    see, shape = _seen_by(look, nodes, spaxels, at_once.added), (spaxels[1] * nodes.n_node, coefficients.shape[1])
    dtype = jnp.result_type(nodes.step)
    rows, counters = sum_pieces(
        see, factors_of, particles, kernel, shape, no_counts(axes, dtype), at_once.looked, dtype
    )
    return rows.reshape(spaxels[1], nodes.n_node, -1), counters


def coefficients_and_slopes(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    at_once: AtOnce,
    kernel: AbstractDepositKernel,
    coefficients: Float[Array, "template rank"],
) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
    """`coefficient_histogram` with the derivatives of `_template_slopes`: for gradients with respect to many particles.

    Its own backward pass goes through all coefficients of each particle again, at each of its nodes.
    """

    def held(chunk: Any) -> tuple[View, SourceCounters]:
        return lax.stop_gradient(look(chunk))

    values, counters = coefficient_histogram(held, particles, axes, nodes, spaxels, at_once, kernel, coefficients)
    slopes = _template_slopes(look, particles, axes, nodes, spaxels, at_once)
    return values + _only_slopes(ranked(slopes, coefficients)), counters


def ranked(
    amounts: Float[Array, "template spaxel velocity"], coefficients: Float[Array, "template rank"]
) -> Float[Array, "spaxel velocity rank"]:
    """The coefficients of so much of each template."""
    n_template, n_spaxel, n_node = amounts.shape
    summed = jnp.matmul(coefficients.T, amounts.reshape(n_template, -1), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(summed.reshape(-1, n_spaxel, n_node), 0, 2)


@jax.custom_jvp
def _only_slopes(value: Array) -> Array:
    """0, with the derivatives of `value`, which is not computed where these are not asked for."""
    return jnp.zeros_like(value)


@_only_slopes.defjvp
def _slopes(value: tuple[Array], slope: tuple[Array]) -> tuple[Array, Array]:
    return _only_slopes(*value), *slope


def _seen_by(
    look: Look, nodes: VelocityNodes, spaxels: Spaxels, piece: int
) -> Callable[[Any], tuple[Pieces, SourceCounters]]:
    """Function from a chunk of particles to the view of those that are seen, in pieces, and the counters of all."""

    def see(chunk: Any) -> tuple[Pieces, SourceCounters]:
        view, counters = look(chunk)
        return Pieces.of(view, _seen(view, nodes, spaxels).any(axis=1), piece), counters

    return see


def _seen(view: View, nodes: VelocityNodes, spaxels: Spaxels) -> Bool[Array, "particle corner"]:
    """Which shares of particles lie in the `spaxels` and move within the nodes."""
    first, n_spaxel = spaxels
    slow = jnp.abs(view.v_los) <= nodes.limit
    return (view.spaxel >= first) & (view.spaxel < first + n_spaxel) & slow[:, None]


def _rows(
    view: View, nodes: VelocityNodes, spaxels: Spaxels
) -> tuple[Int[Array, "particle corner"], Float[Array, "particle corner"], Float[Array, "particle 4"]]:
    row, share, node_weights = _share_rows(view, nodes, spaxels)
    return row, share, jnp.stack(node_weights, axis=1)


def _share_rows(
    view: View, nodes: VelocityNodes, spaxels: Spaxels
) -> tuple[Int[Array, "particle corner"], Float[Array, "particle corner"], tuple[Float[Array, " particle"], ...]]:
    """First (spaxel, node) row that each share of a particle touches, its amount there, and the nodes' weights.

    The amount is 0 where the share is outside, or the particle too fast (or not finite).
    """
    seen, slow = _seen(view, nodes, spaxels), jnp.abs(view.v_los) <= nodes.limit
    v_los = jnp.where(slow, view.v_los, jnp.zeros_like(view.v_los))
    node, node_weights = bspline.shares(v_los / nodes.step + nodes.n_node // 2, nodes.n_node)
    row = jnp.where(seen, view.spaxel - spaxels[0], jnp.zeros_like(view.spaxel)) * nodes.n_node + node[:, None]
    share = jnp.where(seen, view.share * view.amount[:, None], jnp.zeros_like(view.share))
    return row, share, node_weights

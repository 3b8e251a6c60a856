"""Sums over particles for `basis`: the amount of each template at each velocity node in each spaxel."""

from collections.abc import Callable
from typing import Any, NamedTuple

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


class Deposit(NamedTuple):
    """The sums that particles are added to: by templates on `axes`, velocity `nodes`, and `spaxels` = (first, number)
    on the grid, as `look` sees the particles.

    Every particle is shared among the spaxels of its deposit, four velocity nodes (cubic B-spline) and the templates
    around it; the shares are >= 0 and sum to its amount. Velocities beyond `nodes.limit` are left out.
    """

    look: Look
    axes: TemplateAxes
    nodes: VelocityNodes
    spaxels: Spaxels
    at_once: AtOnce
    kernel: AbstractDepositKernel

    def summed(
        self, factors_of: Callable[[View], Factors], particles: Any, shape: tuple[int, int]
    ) -> tuple[Float[Array, "row column"], SourceCounters]:
        """Sums of this `shape` (rows, columns), and the counters."""
        dtype = jnp.result_type(self.nodes.step)
        counters = no_counts(self.axes, dtype)
        return sum_pieces(self.see, factors_of, particles, self.kernel, shape, counters, self.at_once.looked, dtype)

    def see(self, chunk: Any) -> tuple[Pieces, SourceCounters]:
        """The view of those of a chunk that are seen, in pieces, and the counters of all."""
        view, counters = self.look(chunk)
        return Pieces.of(view, self.seen(view).any(axis=1), self.at_once.added), counters

    def seen(self, view: View) -> Bool[Array, "particle corner"]:
        """The shares of particles that lie in the `spaxels` and move within the nodes."""
        first, n_spaxel = self.spaxels
        slow = jnp.abs(view.v_los) <= self.nodes.limit
        return (view.spaxel >= first) & (view.spaxel < first + n_spaxel) & slow[:, None]

    def rows(
        self, view: View
    ) -> tuple[Int[Array, "particle corner"], Float[Array, "particle corner"], tuple[Float[Array, " particle"], ...]]:
        """First (spaxel, node) row that each share of a particle touches, its amount there, and the nodes' weights.

        The amount is 0 where the share is outside, or the particle too fast (or not finite).
        """
        nodes, seen = self.nodes, self.seen(view)
        slow = jnp.abs(view.v_los) <= nodes.limit
        v_los = jnp.where(slow, view.v_los, jnp.zeros_like(view.v_los))
        node, weights = bspline.shares(v_los / nodes.step + nodes.n_node // 2, nodes.n_node)
        row = jnp.where(seen, view.spaxel - self.spaxels[0], jnp.zeros_like(view.spaxel)) * nodes.n_node + node[:, None]
        share = jnp.where(seen, view.share * view.amount[:, None], jnp.zeros_like(view.share))
        return row, share, weights

    def varying(self, particles: Any) -> "Deposit":
        """The deposit inside of a sum over particles that differ from device to device."""
        axes, nodes, spaxels = varying((self.axes, self.nodes, self.spaxels), particles)
        return self._replace(axes=axes, nodes=nodes, spaxels=spaxels)


def template_histogram(
    deposit: Deposit, particles: Any
) -> tuple[Float[Array, "template spaxel velocity"], SourceCounters]:
    """Amounts per template, spaxel and velocity node."""
    n_row = deposit.spaxels[1] * deposit.nodes.n_node
    deposit = deposit.varying(particles)

    def factors_of(view: View) -> Factors:
        row, share, weights = deposit.rows(view)
        corners = view.corners(deposit.axes)
        shape = len(row), row.shape[1] * deposit.axes.n_corner
        rows = (row[:, :, None] + n_row * corners.index[:, None, :]).reshape(shape)
        shares = (share[:, :, None] * corners.weight[:, None, :]).reshape(shape)
        return Factors(rows, shares, jnp.stack(weights, axis=1), jnp.ones((len(row), 1), share.dtype))

    cells, counters = deposit.summed(factors_of, particles, (deposit.axes.n_template * n_row, 1))
    return cells.reshape(deposit.axes.n_template, deposit.spaxels[1], deposit.nodes.n_node), counters


def _template_slopes(deposit: Deposit, particles: Any) -> Float[Array, "template spaxel velocity"]:
    """`template_histogram` for its derivatives with respect to the particles, in the particles' precision.

    The backward pass looks up 4 numbers for each particle, spaxel and template around it, and is all of vectors over
    particles. Sums of derivatives in forward mode are kept in two levels (`accumulate`) where there are many.
    """
    deposit = deposit.varying(particles)
    axes, n_row = deposit.axes, deposit.spaxels[1] * deposit.nodes.n_node

    def terms(view: View) -> tuple[Int[Array, "number share"], Float[Array, "number share"]]:
        row, share, node_weights = deposit.rows(view)
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

    empty = varying(jnp.zeros(axes.n_template * n_row, jnp.result_type(deposit.nodes.step)), particles)
    two_levels = len(particles.weight) > _ONE_LEVEL
    cells = accumulate(lambda chunk: deposit.see(chunk)[0], add, empty, particles, deposit.at_once.looked, two_levels)
    return cells.reshape(axes.n_template, deposit.spaxels[1], deposit.nodes.n_node)


def coefficient_histogram(
    deposit: Deposit, particles: Any, coefficients: Float[Array, "template rank"]
) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
    """`coefficients` summed over the particles, per spaxel and velocity node.

    Equals the product of `template_histogram` with them, without an array that holds every template for every spaxel:
    for few particles, or many spaxels.
    """
    deposit, coefficients = deposit.varying(particles), varying(coefficients, particles)

    def factors_of(view: View) -> Factors:
        row, share, weights = deposit.rows(view)
        values = share, jnp.stack(weights, axis=1), weighted_rows(coefficients, view.corners(deposit.axes))
        return Factors(row, *(value.astype(jnp.float64) for value in values))

    n_row = deposit.spaxels[1] * deposit.nodes.n_node
    rows, counters = deposit.summed(factors_of, particles, (n_row, coefficients.shape[1]))
    return rows.reshape(deposit.spaxels[1], deposit.nodes.n_node, -1), counters


def coefficients_and_slopes(
    deposit: Deposit, particles: Any, coefficients: Float[Array, "template rank"]
) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
    """`coefficient_histogram` with the derivatives of `_template_slopes`: for gradients with respect to many particles.

    The backward pass of that one goes through all coefficients of each particle again, at each of its nodes.
    """

    def held(chunk: Any) -> tuple[View, SourceCounters]:
        return lax.stop_gradient(deposit.look(chunk))

    values, counters = coefficient_histogram(deposit._replace(look=held), particles, coefficients)
    return values + _only_slopes(ranked(_template_slopes(deposit, particles), coefficients)), counters


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

"""The sums over particles behind dust: tiles of particles of one spaxel, multiplied as matrices.

Scattered one by one, a particle behind dust would add several times as many numbers as one without. Here particles are
sorted by spaxel and velocity, cut into tiles of equal size that each lie in one spaxel, and the products over a tile
become small matrix products.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.cube.meta import SourceCounters
from rubix_like.engine.histogram import VelocityNodes
from rubix_like.engine.kernels.kernel import Spaxels
from rubix_like.engine.painter import Look, View, corners_of, no_counts
from rubix_like.engine.spectra.attenuation import DustFactors
from rubix_like.physics import bspline
from rubix_like.physics.templates import TemplateAxes, weighted_rows
from rubix_like.runtime.mesh.mesh import accumulate, varying

_SHARES_AT_ONCE = 1 << 20
"""Shares of particles in spaxels that are sorted at once."""

_MOST_PER_TILE = 128
_ROWS_AT_ONCE = 4096
"""Places of tiles that are multiplied at once."""

_WIDEST = 11
"""Velocity nodes that one tile may span; where there are more, tiles span `_WINDOW` of them."""

_WINDOW = 6

_exact = lax.Precision.HIGHEST


class DustColours(eqx.Module):
    """The colours of light behind dust in the basis: functions of A(V), and their products with templates.

    A particle's coefficient q of the basis is sum_{r, s} f_r(A(V)) own_s `reduction`[(r, s), q], where own_s are the
    coefficients of its template without dust, the first `kept`[r] of them for the function r.
    """

    factors: DustFactors
    reduction: Float[Array | ndarray, "product rank"]
    kept: tuple[int, ...] = eqx.field(static=True)


class Shares(eqx.Module):
    """Shares of particles in spaxels, as a tile needs them.

    `amount`: amount of a template that the share shines, 0 at empty places; `coordinates`: in the template table, and
    A(V); `node_weight`: of its four velocity nodes; `local`: the first of them, counted from the tile's first node.
    """

    amount: Float[Array, "*place"]
    coordinates: tuple[Float[Array, "*place"], ...]
    node_weight: Float[Array, "*place 4"]
    local: Int[Array, "*place"]


class Tiles(eqx.Module):
    """Shares in tiles, each of one `cell`: a spaxel and a window of velocity nodes; the number of cells where there
    is no tile."""

    shares: Shares
    cell: Int[Array, "step tile"]
    filled: Bool[Array, " step"]


def dusty_histogram(
    look: Look,
    particles: Any,
    axes: TemplateAxes,
    nodes: VelocityNodes,
    spaxels: Spaxels,
    coefficients: Float[Array, "template own"],
    colours: DustColours,
) -> tuple[Float[Array, "spaxel velocity rank"], SourceCounters]:
    """Coefficients of the basis, summed over particles that are each dimmed by their A(V), per spaxel and node.

    Sums over a tile have the precision of the particles, those over tiles 64 bits.
    """
    n_spaxel, n_node, rank = spaxels[1], nodes.n_node, colours.reduction.shape[1]
    width = n_node if n_node <= _WIDEST else _WINDOW
    n_window = -(-(n_node - 3) // (width - 3))
    dtype = jnp.result_type(nodes.step)

    def contribute(chunk: Any) -> tuple[Tiles, SourceCounters]:
        view, counters = look(chunk)
        used = lax.stop_gradient(chunk.weight) > 0
        return _tiles(view, used, nodes, spaxels, width, n_window), counters

    def add(total: tuple[Any, Any], part: tuple[Tiles, SourceCounters]) -> tuple[Any, Any]:
        cells = _added(total[0], part[0], axes, coefficients, colours, width)
        return cells, jax.tree.map(lambda a, b: a + b.astype(a.dtype), total[1], part[1])

    with jax.enable_x64(True):
        empty = jnp.zeros((n_spaxel * n_window, width, rank), jnp.float64)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float64), no_counts(axes, dtype))
        start = varying((empty, zeros), particles)
        at_once = max(1, _SHARES_AT_ONCE // jax.eval_shape(look, particles)[0].spaxel.shape[1])
        cells, counters = accumulate(contribute, add, start, particles, at_once, two_levels=False)
        cells = _joined(cells.reshape(n_spaxel, n_window, width, rank), n_node)
        return cells.astype(dtype), jax.tree.map(lambda leaf: leaf.astype(dtype), counters)


def _joined(cells: Float[Array, "spaxel window width rank"], n_node: int) -> Float[Array, "spaxel velocity rank"]:
    """Windows of nodes, which overlap by three nodes, added up."""
    n_spaxel, n_window, width, rank = cells.shape
    step = width - 3
    total = jnp.zeros((n_spaxel, n_window * step + 3, rank), cells.dtype)
    for window in range(n_window):
        total = total.at[:, window * step : window * step + width].add(cells[:, window])
    return total[:, :n_node]


def _tiles(
    view: View, used: Bool[Array, " particle"], nodes: VelocityNodes, spaxels: Spaxels, width: int, n_window: int
) -> Tiles:
    """The shares of some particles, sorted into tiles; those outside, too fast or of no particle are in none."""
    first, n_spaxel = spaxels
    n_cell, n_corner = n_spaxel * n_window, view.spaxel.shape[1]
    slow = (jnp.abs(view.v_los) <= nodes.limit) & used
    seen = (view.spaxel >= first) & (view.spaxel < first + n_spaxel) & slow[:, None]
    v_los = jnp.where(slow, view.v_los, jnp.zeros_like(view.v_los))
    node, node_weight = bspline.deposit(v_los / nodes.step + nodes.n_node // 2, nodes.n_node)
    window, local = node // (width - 3), node % (width - 3)
    cell = jnp.where(seen, (view.spaxel - first) * n_window + window[:, None], n_cell).reshape(-1).astype(jnp.int32)
    source, filled, owner = _sorted(cell, n_cell)
    n_step, n_tile, _n_place = source.shape
    particle = source // n_corner
    amount = jnp.where(filled, (view.share * view.amount[:, None]).reshape(-1)[source], jnp.zeros((), view.share.dtype))
    coordinates = tuple(coordinate[particle] for coordinate in view.coordinates)
    shares = Shares(amount, coordinates, node_weight[particle], local[particle])
    return Tiles(shares, owner.reshape(n_step, n_tile), filled.any(axis=(1, 2)))


def _sorted(
    cell: Int[Array, " share"], n_cell: int
) -> tuple[Int[Array, "step tile place"], Bool[Array, "step tile place"], Int[Array, "step tile"]]:
    """Which share lies at each place of the tiles, whether one does, and the cell of each tile (`n_cell`: none)."""
    number = len(cell)
    half = min(_MOST_PER_TILE, number // (2 * n_cell))
    size = 1 << max(0, half.bit_length() - 1)  # a power of two, about half of the shares in a cell
    n_tile = min(-(-number // size) + n_cell, number)
    per_step = max(1, min(_ROWS_AT_ONCE // size, n_tile))
    n_step = -(-n_tile // per_step)
    packed = jnp.sort((cell.astype(jnp.int64) << 32) | jnp.arange(number, dtype=jnp.int64))
    order = (packed & 0xFFFFFFFF).astype(jnp.int32)
    count = jnp.zeros(n_cell + 1, jnp.int32).at[cell].add(1, mode="promise_in_bounds")
    tiles = (-(-count // size)).at[n_cell].set(0)
    last, start = jnp.cumsum(tiles), jnp.cumsum(count) - count
    tile = jnp.arange(n_step * per_step, dtype=jnp.int32)
    owner = jnp.searchsorted(last, tile, side="right").astype(jnp.int32)
    owner = jnp.minimum(owner, n_cell)
    within = (tile - (last - tiles)[owner])[:, None] * size + jnp.arange(size, dtype=jnp.int32)[None, :]
    used = (within < count[owner][:, None]) & (owner < n_cell)[:, None]
    source = order[jnp.clip(start[owner][:, None] + within, 0, number - 1)]
    shape = n_step, per_step, size
    return source.reshape(shape), used.reshape(shape), owner.reshape(shape[:2])


def _added(
    total: Float[Array, "cell width rank"],
    tiles: Tiles,
    axes: TemplateAxes,
    coefficients: Float[Array, "template own"],
    colours: DustColours,
    width: int,
) -> Float[Array, "cell width rank"]:
    """`total` with all tiles added, some at a time; steps without any share cost nothing."""
    axes, coefficients, colours = varying((axes, coefficients, colours), tiles)

    def add(total: Float[Array, "cell width rank"], tile: tuple[Shares, Any]) -> Float[Array, "cell width rank"]:
        shares, cell = tile
        light = _tile_sums(shares, axes, coefficients, colours, width)
        return total.at[cell].add(light.astype(total.dtype), mode="drop")

    @jax.checkpoint
    def step(total: Float[Array, "cell width rank"], tile: tuple[Shares, Any, Any]) -> tuple[Any, None]:
        shares, cell, filled = tile
        return lax.cond(filled, add, lambda total, _: total, total, (shares, cell)), None

    return lax.scan(step, total, (tiles.shares, tiles.cell, tiles.filled))[0]


def _tile_sums(
    shares: Shares,
    axes: TemplateAxes,
    coefficients: Float[Array, "template own"],
    colours: DustColours,
    width: int,
) -> Float[Array, "tile width rank"]:
    """The coefficients of each tile at its velocity nodes."""
    n_tile, n_place = shares.amount.shape
    flat = jax.tree.map(lambda leaf: leaf.reshape(n_tile * n_place, *leaf.shape[2:]), shares)
    light = weighted_rows(coefficients, corners_of(axes, flat.amount, flat.coordinates)) * flat.amount[:, None]
    a_v = axes.a_v(flat.coordinates)
    assert a_v is not None
    dust = colours.factors(a_v)
    place = jnp.arange(width, dtype=flat.local.dtype)[None, :] - flat.local[:, None]
    nodes = jnp.zeros(place.shape, light.dtype)
    for k in range(bspline.SUPPORT):
        nodes = jnp.where(place == k, flat.node_weight[:, k, None], nodes)
    n_factor, n_own = dust.shape[1], light.shape[1]
    if n_place < width:
        parts = [dust[:, r, None] * light[:, :last] for r, last in enumerate(colours.kept)]
        products = jnp.concatenate(parts, axis=1)
        joint = jnp.matmul(products, colours.reduction, precision=_exact).reshape(n_tile, n_place, -1)
        return jnp.einsum("tpj,tpq->tjq", nodes.reshape(n_tile, n_place, width), joint, precision=_exact)
    both = (nodes[:, :, None] * dust[:, None, :]).reshape(n_tile, n_place, width * n_factor)
    sums = jnp.einsum("tpj,tpk->tjk", both, light.reshape(n_tile, n_place, n_own), precision=_exact)
    sums = sums.reshape(n_tile * width, n_factor, n_own)
    products = jnp.concatenate([sums[:, r, :last] for r, last in enumerate(colours.kept)], axis=1)
    return jnp.matmul(products, colours.reduction, precision=_exact).reshape(n_tile, width, -1)

"""Sums over particles per template, spaxel and velocity node, against a numpy loop over particles."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float
from numpy import ndarray
from scipy.interpolate import BSpline

from rubix_like import make_mesh
from rubix_like.engine.histogram import (
    Deposit,
    VelocityNodes,
    coefficient_histogram,
    coefficients_and_slopes,
    template_histogram,
)
from rubix_like.engine.kernels.kernel import AtOnce, build_kernel
from rubix_like.engine.painter import View, no_counts
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.extend import Footprint, TemplateAxes

AXES = TemplateAxes((np.log10([1e-3, 0.01, 0.04]), np.array([6.0, 7.5, 9.0, 10.2])), ("metallicity", "age"))
N_Y, N_X, SCALE, STEP, N_NODE = 3, 5, 0.4, 50.0, 9
N_SPAXEL, LIMIT, N_POINT = N_Y * N_X, 150.0, 300
COEFFICIENTS = np.random.default_rng(1).normal(size=(AXES.n_template, 3))
FIELDS = ("x", "y", "velocity", "mass", "log_z", "log_age")
BOTH = "values by coefficients, slopes by template"
EITHER = [False, pytest.param(True, marks=pytest.mark.slow)]
_ELEMENT = BSpline.basis_element(np.arange(-2.0, 3.0), extrapolate=False)

Numbers = Float[Array | ndarray, " particle"]


class Points(eqx.Module):
    """Particles: arcsec, km/s, Msun, dex."""

    x: Numbers
    y: Numbers
    velocity: Numbers
    mass: Numbers
    log_z: Numbers
    log_age: Numbers
    weight: Numbers


def points(n=N_POINT, seed=0, **given):
    """A crowd with some beyond the field, the velocity nodes and the templates."""
    rng = np.random.default_rng(seed)
    ranges = {"x": (-1.3, 1.3), "y": (-0.8, 0.8), "velocity": (-180.0, 180.0), "mass": (0.5, 2.0)}
    ranges |= {"log_z": (-3.5, -1.2), "log_age": (5.5, 10.5)}
    values = {name: rng.uniform(*ends, n) for name, ends in ranges.items()}
    values |= {name: np.full(n, value) for name, value in given.items()}
    return Points(**values, weight=np.ones(n))


def as_device_arrays(particles, dtype="float64"):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), particles)


def look_through(grid):
    def look(chunk):
        dtype = chunk.mass.dtype
        position = jnp.stack([chunk.x, chunk.y, jnp.zeros_like(chunk.x)], axis=1)
        spaxel, share = grid.weights(position)
        view = View(chunk.mass * chunk.weight, (chunk.log_z, chunk.log_age), chunk.velocity, spaxel, share)
        counters = eqx.tree_at(lambda c: c.n_particles, no_counts(AXES, dtype), chunk.weight.sum())
        return view, eqx.tree_at(lambda c: c.amount_total, counters, view.amount.sum())

    return look


@functools.partial(jax.jit, static_argnames=("deposit", "size", "chunk", "ranked", "n_devices"))
def summed(particles, deposit="cic", first=0, size=N_SPAXEL, chunk=64, ranked=False, n_devices=1):
    """(histogram, counters), added up over devices (0: without a mesh)."""
    dtype = particles.mass.dtype
    look = look_through(SpaxelGrid(Footprint(N_Y, N_X, jnp.asarray(SCALE, dtype)), deposit))
    nodes, axes = VelocityNodes(jnp.asarray(STEP, dtype), N_NODE), jax.tree.map(lambda x: jnp.asarray(x, dtype), AXES)

    def sums(shard, first):
        at_once = AtOnce(chunk, -(-chunk // 4))
        deposit = Deposit(look, axes, nodes, (first, size), at_once, build_kernel("auto"))
        if ranked:
            histogram = coefficients_and_slopes if ranked == BOTH else coefficient_histogram
            return histogram(deposit, shard, jnp.asarray(COEFFICIENTS, dtype))
        return template_histogram(deposit, shard)

    def added(shard, first):
        return lax.psum(sums(shard, first), "data")

    if not n_devices:
        return sums(particles, first)

    split, whole = PartitionSpec("data"), PartitionSpec()
    mesh, first = make_mesh(n_devices), jnp.asarray(first, jnp.int32)
    return jax.shard_map(added, mesh=mesh, in_specs=(split, whole), out_specs=whole)(particles, first)


def template_shares(value, nodes):
    """Weight of every node of one axis."""
    return np.array([np.interp(value, nodes, one) for one in np.eye(len(nodes))])


def spaxel_shares(x, y, deposit):
    """Weight of every spaxel: rows of a column and a row of tents or boxes."""
    column, row = (N_X - 1) / 2 - x / SCALE, (N_Y - 1) / 2 + y / SCALE
    both = []
    for coordinate, size in ((row, N_Y), (column, N_X)):
        distance = coordinate - np.arange(size)
        box = (distance >= -0.5) & (distance < 0.5)
        both.append(box.astype(float) if deposit == "nearest" else np.maximum(1 - np.abs(distance), 0.0))
    return np.outer(*both).ravel()


def of_one(x, y, velocity, mass, log_z, log_age, deposit):
    """(template, spaxel, velocity) of one particle."""
    if abs(velocity) > LIMIT:
        return np.zeros((AXES.n_template, N_SPAXEL, N_NODE))
    nodes = np.nan_to_num(_ELEMENT(velocity / STEP + N_NODE // 2 - np.arange(N_NODE)))
    metal, age = (template_shares(*pair) for pair in zip((log_z, log_age), AXES.nodes, strict=True))
    return mass * np.einsum("m,a,s,v->masv", metal, age, spaxel_shares(x, y, deposit), nodes).reshape(
        AXES.n_template, N_SPAXEL, N_NODE
    )


def by_loop(particles, deposit):
    columns = [np.asarray(getattr(particles, name), np.float64) for name in FIELDS]
    return sum(of_one(*values, deposit) for values in zip(*columns, strict=True))


@pytest.mark.parametrize(("deposit", "ranked"), [("nearest", False), ("cic", False), ("cic", True)])
def test_sums_are_those_of_a_loop(deposit, ranked):
    """Of all but the padding at the end, which adds nothing; nor does that which fills the last chunk."""
    particles, n = points(), N_POINT - 14
    padded = eqx.tree_at(lambda p: p.weight, particles, np.repeat([1.0, 0.0], [n, 14]))
    found, counters = summed(as_device_arrays(padded), deposit, ranked=ranked)
    particles = jax.tree.map(lambda leaf: leaf[:n], particles)
    expected = by_loop(particles, deposit)
    expected = np.einsum("ksv,kr->svr", expected, COEFFICIENTS) if ranked else expected
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-12)
    assert float(counters.n_particles) == n
    np.testing.assert_allclose(float(counters.amount_total), particles.mass.sum())
    assert 0 < (np.abs(particles.velocity) > LIMIT).sum() < n / 3


@pytest.mark.parametrize("ranked", [False, True])
def test_beyond_the_limit_nothing_is_left_and_at_it_all(ranked):
    """The velocity limit itself still has its four nodes; one number further a particle is gone, not moved."""
    gone = (np.nextafter(LIMIT, 999), -150.01, 1e30, np.inf, np.nan)
    for velocity, share in ((LIMIT, 1), (-LIMIT, 1), *((fast, 0) for fast in gone)):
        crowd = points(x=0.0, y=0.0, velocity=velocity, log_z=-2.0, log_age=6.0)
        found = np.asarray(summed(as_device_arrays(crowd), ranked=ranked)[0])
        expected = share * crowd.mass.sum() * (COEFFICIENTS[4] if ranked else 1.0)
        np.testing.assert_allclose(found.sum(axis=(0, 1) if ranked else None), expected, rtol=1e-12)


@pytest.mark.parametrize("ranked", EITHER)
def test_blocks_of_spaxels_are_the_whole_cut(ranked):
    """Also a last block that reaches beyond the grid."""
    particles, axis = as_device_arrays(points(seed=2)), 0 if ranked else 1
    whole = np.asarray(summed(particles, ranked=ranked)[0])
    blocks = [summed(particles, first=first, size=4, ranked=ranked) for first in (0, 4, 8, 12)]
    joined = np.concatenate([np.asarray(block) for block, _ in blocks], axis=axis)
    np.testing.assert_allclose(np.take(joined, np.arange(N_SPAXEL), axis=axis), whole, atol=1e-13)
    assert [float(counters.n_particles) for _, counters in blocks] == [N_POINT] * 4


@pytest.mark.parametrize("ranked", EITHER)
def test_order_chunk_and_devices_do_not_matter(ranked):
    """In float32, to the last bits: the sums are kept in 64 bits, but for that over devices."""
    particles = points(2400, seed=3)
    order = np.random.default_rng(4).permutation(2400)
    shuffled = jax.tree.map(lambda leaf: leaf[order], particles)
    first, again = (
        summed(as_device_arrays(stars, "float32"), chunk=chunk, ranked=ranked, n_devices=n_devices)
        for stars, chunk, n_devices in ((particles, 8192, 1), (shuffled, 7, 4))
    )
    one, other = np.asarray(first[0]), np.asarray(again[0])
    assert one.dtype == np.float32
    np.testing.assert_allclose(other, one, rtol=3e-7, atol=1e-7 * np.abs(one).max() * ranked)
    assert float(first[1].n_particles) == float(again[1].n_particles) == 2400


N_EQUAL = 500_000


@pytest.mark.parametrize(
    ("ranked", "x64"), [(False, False), (True, False), pytest.param(False, True, marks=pytest.mark.slow)]
)
def test_equal_masses_in_one_cell_lose_nothing_in_float32(ranked, x64):
    """Half a million masses of 0.1 in the same cells, 64 at a time, with 64-bit numbers off as on the command line."""
    one = {"x": 0.0, "y": 0.0, "velocity": 13.0, "mass": 0.1, "log_z": -2.3, "log_age": 8.1}
    expected = N_EQUAL * float(np.float32(0.1))
    with jax.enable_x64(x64):
        particles = as_device_arrays(points(N_EQUAL, **one), "float32")
        found, counters = summed(particles, "nearest", ranked=ranked)
        found = np.asarray(found)
    assert found.dtype == np.float32
    coefficients = np.kron(template_shares(-2.3, AXES.nodes[0]), template_shares(8.1, AXES.nodes[1])) @ COEFFICIENTS
    total = expected * (coefficients if ranked else 1.0)
    summed_up = found.sum(axis=(0, 1) if ranked else None, dtype=np.float64)
    np.testing.assert_allclose(summed_up, total, rtol=0, atol=1e-6 * np.abs(total).max())
    assert float(counters.n_particles) == N_EQUAL
    assert float(counters.amount_total) == pytest.approx(expected, rel=1e-6)
    running = np.cumsum(np.full(N_EQUAL, 0.1, np.float32), dtype=np.float32)[-1]
    assert abs(running / expected - 1) > 1e-5


@functools.partial(jax.jit, static_argnames=("ranked", "n_devices"))
@functools.partial(jax.grad, argnums=0)
def slopes(particles, weight, ranked, n_devices=1):
    return (summed(particles, ranked=ranked, n_devices=n_devices)[0] * weight).sum()


def random_weight(ranked):
    return np.random.default_rng(8).normal(size=(N_SPAXEL, N_NODE, 3) if ranked else (12, N_SPAXEL, N_NODE))


@pytest.mark.parametrize("ranked", [False, True, BOTH])
def test_gradients_are_those_of_the_loop(ranked):
    """Central differences of the numpy loop, one particle and one number at a time."""
    particles, weight, n = points(seed=7), random_weight(ranked), 30
    found = slopes(as_device_arrays(particles), jnp.asarray(weight), ranked)
    by_template = np.einsum("svr,kr->ksv", weight, COEFFICIENTS) if ranked else weight
    columns = {name: getattr(particles, name) for name in FIELDS}
    for name, step in zip(FIELDS, (1e-6, 1e-6, 1e-3, 1e-4, 1e-6, 1e-6), strict=True):
        expected = np.zeros(n)
        for star in range(n):
            values = [{key: column[star] for key, column in columns.items()} for _ in range(2)]
            for sign, moved in zip((-1, 1), values, strict=True):
                moved[name] += sign * step
            low, high = ((of_one(**moved, deposit="cic") * by_template).sum() for moved in values)
            expected[star] = (high - low) / (2 * step)
        scale = np.abs(expected).max()
        assert scale > 0
        np.testing.assert_allclose(np.asarray(getattr(found, name))[:n], expected, atol=1e-7 * scale, err_msg=name)


@pytest.mark.parametrize("ranked", [pytest.param(False, marks=pytest.mark.slow), True, BOTH])
def test_gradient_with_64_bit_numbers_off(ranked):
    """float32 in and out, close to that of float64, and zero for what is left out."""
    particles, weight = points(seed=9), random_weight(ranked)
    exact = slopes(as_device_arrays(particles), jnp.asarray(weight), ranked)
    with jax.enable_x64(False):
        rounded = slopes(as_device_arrays(particles, "float32"), jnp.asarray(weight, "float32"), ranked)
        rounded = jax.tree.map(np.asarray, rounded)
    gone = np.abs(particles.velocity) > LIMIT
    assert gone.any()
    for name in FIELDS:
        one, other = np.asarray(getattr(rounded, name)), np.asarray(getattr(exact, name))
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, other, atol=1e-4 * np.abs(other).max(), err_msg=name)
        np.testing.assert_array_equal(one[gone], 0.0)


@pytest.mark.long
def test_slopes_by_template_forwards_backwards_at_once_and_on_devices():
    """Slopes along a direction, of two galaxies at once, on four devices, and the slope of a slope, are those of the
    sums of coefficients."""
    particles, weight = as_device_arrays(points(120, seed=10)), jnp.asarray(random_weight(True))
    two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1]]), particles)

    @functools.partial(jax.jit, static_argnames="ranked")
    def found(particles, two, ranked):
        def along(galaxy):
            return jax.jvp(
                lambda galaxy: (summed(galaxy, ranked=ranked)[0] ** 2 * weight).sum(), (galaxy,), (particles,)
            )[1]

        return (
            along(particles),
            jax.grad(along)(particles),
            jax.vmap(lambda galaxy: slopes(galaxy, weight, ranked, 0))(two),
        )

    for one, other in zip(*(jax.tree.leaves(found(particles, two, ranked)) for ranked in (BOTH, True)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11 * np.abs(other).max())
    alone, shared = (jax.tree.leaves(slopes(particles, weight, BOTH, n_devices=n)) for n in (1, 4))
    for one, other in zip(shared, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())


@pytest.mark.slow(2)
@pytest.mark.parametrize("ranked", [False, True, BOTH])
def test_two_galaxies_at_once_in_pieces_on_two_devices(ranked):
    """Under `jax.vmap` pieces are chosen from, not passed over: the sums of each galaxy are those of it alone."""
    one, other = (as_device_arrays(points(60, seed=seed)) for seed in (11, 12))
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), one, other)
    found, _ = jax.jit(jax.vmap(lambda galaxy: summed(galaxy, chunk=16, ranked=ranked, n_devices=2)))(both)
    for histogram, galaxy in zip(found, (one, other), strict=True):
        expected, _ = summed(galaxy, chunk=16, ranked=ranked, n_devices=2)
        np.testing.assert_allclose(histogram, expected, rtol=0, atol=1e-12 * np.abs(np.asarray(expected)).max())

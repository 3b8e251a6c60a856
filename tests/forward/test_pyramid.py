"""Columns of a pyramid of grids against sums over spline kernels in numpy, slabs, and differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_columns import exact_columns
from scipy.spatial import cKDTree

from rubix_like.extend import Footprint
from rubix_like.forward.fields.dust_column import Pyramid

N, SIDE, CELLS = 1000, 16.0, 64
FIELD = Footprint(8, 8, jnp.asarray(SIDE / 8))
A_V = 30.0
"""mag per unit of column: 1 mag through the middle of the cloud."""


@functools.cache
def cloud():
    """Positions, gas, masses and lengths (64th neighbour) of a flattened cloud with a mass of about 1."""
    rng = np.random.default_rng(3)
    gas = rng.normal(size=(N, 3)) * [2.5, 2.0, 1.2]
    length = np.maximum(cKDTree(gas).query(gas, k=65)[0][:, -1], 4 * SIDE / CELLS)
    return rng.normal(size=(N, 3)) * [2.0, 2.0, 1.2], gas, rng.uniform(0.5, 1.5, N) / N, length


@functools.partial(jax.jit, static_argnames=("cells", "field", "shared"))
def _in_front(gas, length, mass, *, cells=CELLS, field=(8, 8), shared="cic"):
    pyramid = Pyramid.over(Footprint(*field, jnp.asarray(SIDE / max(field))), cells, shared)
    cell, amount = pyramid.parts(gas, length, mass)
    return pyramid.in_front(jnp.zeros(pyramid.levels.n_cell + 1).at[cell].add(amount)[:-1])


@functools.partial(jax.jit, static_argnames="shared")
def _columns(position, gas, mass, length, shared="cic"):
    return _in_front(gas, length, mass, shared=shared).at(position)


def columns(position, gas, mass, length, shared="cic"):
    """Of any numbers of stars and gas by few programs: gas without mass and equal stars are added."""
    stars = np.pad(position, ((0, (4096 if len(position) <= 4096 else 65536) - len(position)), (0, 0)), mode="edge")
    more = (0, 8192 - len(gas))
    data = stars, np.pad(gas, (more, (0, 0)), mode="edge"), np.pad(mass, more), np.pad(length, more, mode="edge")
    return np.asarray(_columns(*(jnp.asarray(own, dtype=jnp.float64) for own in data), shared))[: len(position)]


@pytest.mark.parametrize("shared", ["cic", "tsc"])
def test_columns_are_those_of_the_kernels(shared):
    """Gas at least four cells wide: A(V) to 5 % in the median, its mean to 2 %, the transmission to 0.015."""
    found, truth = A_V * columns(*cloud(), shared), A_V * exact_columns(*cloud())
    dim = truth > 0.05
    ratio = found[dim] / truth[dim]
    assert truth.max() > 0.7
    assert np.median(ratio) == pytest.approx(1, abs=0.03)
    assert np.median(np.abs(ratio - 1)) < 0.05
    assert found[dim].mean() == pytest.approx(truth[dim].mean(), rel=0.02)
    assert np.abs(10 ** (-0.4 * found) - 10 ** (-0.4 * truth)).mean() < 0.015


STEP = SIDE / CELLS


def clouds(least, most, z=0.0):
    """Single clouds anywhere on their cells, of lengths (cells) between these, equal at their centres; stars behind."""
    rng, n = np.random.default_rng(4), int(CELLS // (2 * most + 2))
    line = (np.arange(n) - 0.5 * (n - 1)) * (2 * most + 2) * STEP
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2) + rng.uniform(-STEP, STEP, (n**2, 2))
    length = STEP * np.exp(rng.uniform(np.log(least), np.log(most), n**2))
    radius, angle = length[:, None] * rng.uniform(0, 1, (n**2, 400)) ** 0.5, rng.uniform(0, 2 * np.pi, (n**2, 400))
    x, y = places[:, :1] + radius * np.cos(angle), places[:, 1:] + radius * np.sin(angle)
    stars = np.stack([x, y, np.full_like(x, 90.0)], axis=-1).reshape(-1, 3)
    return stars, np.insert(places, 2, z, axis=1), length**2, length


def lattice(length, spacing):
    """A slab of six layers of gas on a lattice that reaches beyond the field, and stars behind it."""
    rng, between = np.random.default_rng(5), length * spacing * STEP
    n = int(1.5 * SIDE / between)
    line = (np.arange(n) - 0.5 * (n - 1)) * between
    gas = np.stack(np.meshgrid(line, line, (np.arange(6) - 2.5) * between), axis=-1).reshape(-1, 3)
    stars = np.insert(rng.uniform(-0.5 * SIDE, 0.5 * SIDE, (4000, 2)), 2, 90.0, axis=1)
    return stars, gas, np.ones(len(gas)), np.full(len(gas), length * STEP)


def sparse():
    """Sixty particles that are 6 to 12 cells long, some beside the field, and stars among and behind them."""
    rng = np.random.default_rng(1)
    gas, length = rng.normal(size=(60, 3)) * [4, 4, 1], rng.uniform(6, 12, 60) * STEP
    return rng.uniform(-0.5 * SIDE, 0.5 * SIDE, (4000, 3)) + np.array([0, 0, 5]), gas, np.full(60, 1.0), length


@pytest.mark.parametrize(
    ("shared", "case", "rms", "worst"),
    [
        ("cic", clouds(4, 8), 0.025, 0.10),
        ("tsc", clouds(4, 8), 0.020, 0.06),
        ("cic", clouds(8, 16), 0.025, 0.10),
        ("cic", clouds(4, 8, z=1.5 * SIDE), 0.025, 0.10),
        ("cic", lattice(5.0, 0.675), 0.035, 0.10),
        ("cic", lattice(11.8, 0.675), 0.035, 0.10),
        ("tsc", lattice(4.0, 0.675), 0.035, 0.10),
        ("cic", sparse(), 0.035, 0.10),
    ],
)
def test_columns_of_wide_gas_wherever_it_lies(shared, case, rms, worst):
    """Errors over the largest column: rms where it is above a tenth of that, and the worst of all stars."""
    truth = exact_columns(*case)
    error = (columns(*case, shared) - truth) / truth.max()
    assert np.sqrt((error[truth > 0.1 * truth.max()] ** 2).mean()) < rms
    assert np.abs(error).max() < worst


@pytest.mark.parametrize("width", [4.0, 5.0, 7.0, 9.0])
def test_kernels_have_the_variance_of_a_spline(width):
    """0.075 of the square of the length, on the sky to 10 %, along the line of sight to 16 %.

    Two lengths are mixed such that the kernel's shape is right, which makes the variance up to 9 % larger.
    """
    step, rng = SIDE / CELLS, np.random.default_rng(7)
    gas, mass, length = rng.uniform(-4 * step, 4 * step, (N, 3)), np.full(N, 1 / N), np.full(N, width * step)
    line = (np.arange(36) - 17.5) * step
    places = np.stack(np.meshgrid(line, line, line, indexing="ij"), axis=-1).reshape(-1, 3)
    front = columns(places, gas, mass, length).reshape(36, 36, 36) * step**2
    before = front.sum(axis=(0, 1))
    assert before[-1] == pytest.approx(1, rel=0.01)
    across = (front[:, :, -1].sum(axis=1) * line**2).sum()
    along = 2 * (np.abs(line) * np.where(line > 0, before[-1] - before, before)).sum() * step
    own = (gas**2).mean(axis=0)
    assert across - own[0] == pytest.approx(0.075 * (width * step) ** 2, rel=0.10)
    assert along - own[2] == pytest.approx(0.075 * (width * step) ** 2, rel=0.16)


def test_nothing_is_in_front_of_the_first_and_everything_in_front_of_the_last():
    """Also far beyond the grids, and beside gas that is off the field; the whole column is the mass of the cloud."""
    position, gas, mass, length = cloud()
    far = np.array([0, 0, 1e3])
    assert (columns(position - far, gas, mass, length) == 0).all()
    behind = columns(position + far, gas, mass, length)
    np.testing.assert_allclose(behind, columns(position + 50 * far, gas, mass, length), rtol=1e-12)
    np.testing.assert_allclose(columns(position, gas - far, mass, length), behind, atol=0.06 * behind.max())
    aside = gas + np.array([40 * SIDE, 0, 0])
    assert columns(position + far, aside, mass, np.full(N, 0.5)).max() == 0
    through = _in_front(*(jnp.asarray(own) for own in (0.5 * gas, 0.5 * length, mass))).through(FIELD)
    assert float(through.sum() * (SIDE / 8) ** 2) == pytest.approx(mass.sum(), rel=1e-6)


def test_gas_sees_half_of_its_own_column():
    _, gas, mass, length = cloud()
    one = np.zeros(N)
    one[7] = mass[7]
    before, behind = (columns(gas + np.array([0, 0, z]), gas, one, length)[7] for z in (0.0, 100.0))
    assert before == pytest.approx(0.5 * behind, rel=0.15)
    ends = [columns(gas + np.array([0, 0, z]), gas, mass, length).mean() for z in (0.0, 100.0)]
    assert ends[0] == pytest.approx(0.5 * ends[1], rel=0.02)


@pytest.mark.parametrize("tau", [0.3, 3.0])
def test_stars_mixed_with_a_uniform_slab(tau):
    """Their mean transmission is (1 - exp(-tau)) / tau, to 0.5 %."""
    step, rng = SIDE / CELLS, np.random.default_rng(4)
    plane, depth = (np.arange(5) - 2) * 4 * step, 56 * step
    gas = np.stack(np.meshgrid(plane, plane, ((np.arange(40) + 0.5) / 40 - 0.5) * depth), axis=-1).reshape(-1, 3)
    stars = rng.uniform(-2 * step, 2 * step, (N, 3))
    stars[:, 2] = ((np.arange(N) + 0.5) / N - 0.5) * depth
    mass, length = np.full(N, tau / A_V * (4 * step) ** 2 / 40), np.full(N, 8 * step)
    found = np.exp(-A_V * columns(stars, gas, mass, length)).mean()
    np.testing.assert_allclose(A_V * columns(stars + np.array([0, 0, 100.0]), gas, mass, length), tau, rtol=0.02)
    assert found == pytest.approx((1 - np.exp(-tau)) / tau, rel=0.005)


def test_wide_and_heavy_gas():
    """A cell wider than the field is as thin as its kernel; one cell of any mass is as dense as the grid resolves."""
    _, gas, mass, _ = cloud()
    wide = np.full(N, 5 * SIDE)
    one = np.zeros(N)
    one[0] = 1.0
    centre = np.zeros((N, 3))
    behind = centre + np.array([0, 0, 200.0])
    expected = exact_columns(behind[:1], centre[:1], one[:1], wide[:1])
    np.testing.assert_allclose(columns(behind, centre, one, wide)[:1], expected, rtol=0.35)
    dense = columns(gas + np.array([0, 0, 1.0]), gas, 1e8 * N * mass, np.zeros(N))
    assert np.isfinite(dense).all()
    assert 0 < dense.max() < 1e8 * 1.5 * N / (SIDE / CELLS) ** 2


def test_gradients_are_those_of_differences():
    """Of a weighted sum of columns, with steps that cross no cell's edge."""
    data = tuple(jnp.asarray(own) for own in cloud())
    weight = jnp.cos(jnp.arange(N, dtype=jnp.float64))

    def total(*data):
        return (weight * _columns(*data)).sum()

    slopes = jax.jit(jax.grad(total, argnums=(0, 1, 2, 3)))(*data)
    rng = np.random.default_rng(5)
    for number, slope in enumerate(slopes):
        towards = jnp.asarray(rng.normal(size=slope.shape)) * (jnp.abs(data[number]) if number > 1 else 1.0)
        step = 1e-8
        ends = ((*data[:number], data[number] + sign * step * towards, *data[number + 1 :]) for sign in (1, -1))
        up, down = (float(total(*own)) for own in ends)
        assert abs((slope * towards).sum()) > 1e-4
        assert float((slope * towards).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-3)


def test_an_oblong_field_is_covered():
    """Twice as wide as high, and an odd number of cells: the same columns, to the width of the cells."""
    _, gas, mass, length = (jnp.asarray(own) for own in cloud())
    front = _in_front(gas, length, mass, cells=CELLS - 1, field=(4, 8))
    stars = np.array([[x, y, 9.0] for x in (-7.5, 0.0, 6.0) for y in (-3.9, 0.0, 2.0)])
    expected = exact_columns(stars, *(np.asarray(own) for own in (gas, mass, length)))
    np.testing.assert_allclose(front.at(jnp.asarray(stars)), expected, atol=0.035 * expected.max())

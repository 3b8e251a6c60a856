"""Deposit kernels against numpy's sums and slopes, written from the formula; particles in pieces."""

import functools
import inspect
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import REGISTRIES
from installed_package import write_dist_info

from rubix_like import ConfigError, Galaxy, Pipeline, Stars, load_config, make_mesh
from rubix_like.engine.cost import RATES, rates_here
from rubix_like.engine.kernels.kernel import Pieces, build_kernel, in_blocks, sum_deposits
from rubix_like.extend import AbstractDepositKernel, Factors

KERNELS = REGISTRIES["kernels"]
PLUG_IN = "one-by-one"

CASES = {
    "no particle": (0, 7, 2, 4, 3),
    "one particle": (1, 4, 1, 4, 3),
    "templates of nearest": (300, 60, 4, 4, 1),
    "coefficients of tsc": (37, 90, 9, 4, 40),
    "maps of cic": (200, 15, 4, 1, 14),
    "velocity bins": (200, 60, 1, 2, 1),
    "more than fits into a cache": (20_000, 30, 1, 4, 5),
}
"""Numbers of particles, rows, corners, adjacent rows and columns."""

BITS = [*((case, "float64") for case in CASES), *((case, "float32") for case in list(CASES)[2:5:2])]
EVERY = [*((name, *bits) for name in KERNELS.names() for bits in BITS), (PLUG_IN, "coefficients of tsc", "float64")]


@pytest.fixture(scope="module", autouse=True)
def one_by_one(tmp_path_factory):
    """The kernel of the interface's docstring, installed by a distribution of its own."""
    (source,) = re.findall(r"```python\n(.*?)```", inspect.getdoc(AbstractDepositKernel), re.S)
    folder = tmp_path_factory.mktemp("one_by_one")
    (folder / "one_by_one.py").write_text(source)
    write_dist_info(folder, "one-by-one", f"[{KERNELS.group}]\n{PLUG_IN} = one_by_one:OneByOneKernel\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("one_by_one", None)


def factors_of(case, dtype, row=None, nowhere=0.2):
    """Random factors, of which a part `nowhere` of the shares is 0, at random rows or all in one; and a total."""
    n_particle, n_row, n_corner, n_adjacent, n_column = CASES[case]
    rng = np.random.default_rng(3)
    rows = rng.integers(0, n_row - n_adjacent + 1, (n_particle, n_corner)) if row is None else row
    share = rng.uniform(0.1, 1.0, (n_particle, n_corner)) * (rng.random((n_particle, n_corner)) >= nowhere)
    window, own = rng.uniform(0.0, 1.0, (n_particle, n_adjacent)), rng.normal(size=(n_particle, n_column))
    rows = jnp.asarray(np.broadcast_to(rows, share.shape), jnp.int32)
    return Factors(rows, *(jnp.asarray(x, dtype) for x in (share, window, own))), rng.normal(size=(n_row, n_column))


def places_and_amounts(factors):
    """Row (particle, corner, adjacent), and amounts with the columns as a further axis, in 64 bits."""
    share, window, own = (np.asarray(x, np.float64) for x in (factors.share, factors.window, factors.own))
    place = np.asarray(factors.row)[:, :, None] + np.arange(window.shape[1])
    return place, np.einsum("pc,pj,pk->pcjk", share, window, own)


def by_numpy(total, factors):
    result = total.copy()
    np.add.at(result, *places_and_amounts(factors))
    return result


def slopes_by_numpy(factors, weight):
    """Of the sum of weight x total: with respect to share, window and own."""
    share, window, own = (np.asarray(x, np.float64) for x in (factors.share, factors.window, factors.own))
    there = weight[places_and_amounts(factors)[0]]
    formulas = ("pcjk,pj,pk->pc", window, own), ("pcjk,pc,pk->pj", share, own), ("pcjk,pc,pj->pk", share, window)
    return [np.einsum(formula, there, *others) for formula, *others in formulas]


@jax.jit
def value_and_slopes(kernel, total, factors, weight):
    value, pull_back = jax.vjp(kernel.add, total, factors)
    return value, *pull_back(weight)


def check(name, factors, total):
    rounding = float(np.finfo(factors.share.dtype).eps)
    weight = np.random.default_rng(4).normal(size=total.shape)
    kernel = KERNELS.find(name)()
    value, of_total, of_factors = value_and_slopes(kernel, jnp.asarray(total), factors, jnp.asarray(weight))
    assert value.dtype == jnp.float64
    largest = by_numpy(np.abs(total), jax.tree.map(jnp.abs, factors)).max()
    np.testing.assert_allclose(value, by_numpy(total, factors), rtol=0, atol=3 * rounding * largest)
    np.testing.assert_allclose(of_total, weight, rtol=1e-12)
    found = of_factors.share, of_factors.window, of_factors.own
    for slope, expected in zip(found, slopes_by_numpy(factors, weight), strict=True):
        assert slope.dtype == factors.share.dtype
        np.testing.assert_allclose(slope, expected, rtol=0, atol=100 * rounding * np.abs(expected).max(initial=1.0))


@pytest.mark.parametrize(("name", "case", "dtype"), EVERY)
def test_values_and_slopes_are_those_of_numpy(name, case, dtype):
    check(name, *factors_of(case, dtype))


@pytest.mark.parametrize("name", KERNELS.names())
def test_all_in_one_row_or_nowhere(name):
    case = "templates of nearest"
    check(name, *factors_of(case, "float64", row=56))
    check(name, *factors_of(case, "float64", nowhere=1.0))


N_SPAXEL, N_POINT = 11, 500


@pytest.mark.parametrize("n_block", [1, 3])
@pytest.mark.parametrize("name", KERNELS.names())
def test_sums_over_all_particles_in_one_block_of_spaxels_and_in_many(name, n_block):
    """With 64-bit numbers off as on the command line, 50 at a time, and the slope; some particles are beyond the grid.

    Factors of 64 bits. Counts are those of each block.
    """
    rng = np.random.default_rng(5)
    spaxel, amount = rng.integers(-2, N_SPAXEL + 3, N_POINT), rng.uniform(0.5, 2.0, (N_POINT, 2)).astype(np.float32)
    weight, kernel = rng.normal(size=(N_SPAXEL, 2)).astype(np.float32), KERNELS.find(name)()

    def sums(particles, spaxels):
        def contribute(part):
            place, amount = part
            inside = ((place >= spaxels[0]) & (place < spaxels[0] + spaxels[1]))[:, None]
            row = jnp.where(inside, place[:, None] - spaxels[0], 0)
            one = jnp.ones(row.shape, jnp.float64)
            return (Factors(row, inside.astype(jnp.float64), one, amount.astype(jnp.float64)),), one.sum()

        return sum_deposits(contribute, particles, kernel, ((spaxels[1], 2),), jnp.zeros(()), 50, jnp.float32)

    @jax.jit
    def value_and_slope(place, amount):
        def weighted(amount):
            (found,), number = in_blocks(functools.partial(sums, (place, amount)), N_SPAXEL, n_block)
            return (found * weight).sum(), (found, number)

        return jax.grad(weighted, has_aux=True)(amount)

    with jax.enable_x64(False):
        slope, (found, number) = value_and_slope(jnp.asarray(spaxel, jnp.int32), jnp.asarray(amount))
    inside, expected = (spaxel >= 0) & (spaxel < N_SPAXEL), np.zeros((N_SPAXEL, 2))
    np.add.at(expected, spaxel[inside], amount[inside])
    assert found.dtype == slope.dtype == jnp.float32
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    np.testing.assert_allclose(slope, np.where(inside[:, None], weight[spaxel * inside], 0.0), rtol=1e-7)
    assert float(number) == N_POINT


def observed(kernel):
    rng = np.random.default_rng(6)
    values = rng.uniform(1.0, 2.0, 60), rng.uniform(6.0, 9.5, 60), rng.uniform(0.004, 0.02, 60)
    galaxy = Galaxy(Stars(rng.normal(size=(60, 3)), 100 * rng.normal(size=(60, 3)), *values))
    config = load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": {
                "name": "muse",
                "fov": 1.0,
                "wavelength": {"start": 5000.0, "stop": 5050.0, "step": 1.25},
                "psf": None,
            },
            "engine": {"method": "basis", "kernel": kernel, "deposit": "cic", "precision": "float64"},
            "products": {"losvd": None},
        }
    )
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))
    return pipeline, pipeline(galaxy)


@pytest.mark.slow
def test_a_kernel_from_outside_paints_the_same_cube_and_maps():
    """By its name in the configuration; `auto` is the built-in one."""
    (built_in, expected), (pipeline, found) = observed("auto"), observed(PLUG_IN)
    assert type(built_in.tables.kernel).__name__ == "ScatterKernel"
    kernels = pipeline.tables.paint[0].painter.kernel, pipeline.tables.kernel
    assert [type(kernel).__name__ for kernel in kernels] == ["OneByOneKernel"] * 2
    images = [(cube.flux, cube.maps.before.light, cube.maps.before.mass) for cube in (found, expected)]
    for image, other in zip(*images, strict=True):
        np.testing.assert_allclose(image, other, rtol=0, atol=1e-12 * np.max(other))


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ConfigError, match=r"engine\.kernel: expected one of auto, scatter, one-by-one, got 'scater'"):
        load_config({"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}, "engine": {"kernel": "scater"}})


def test_auto_is_the_kernel_of_the_platform():
    """Every platform of the table has one that exists."""
    assert rates_here() is RATES["cpu"]
    assert {rates.kernel for rates in RATES.values()} <= set(KERNELS.builtin)
    assert type(build_kernel("auto")) is KERNELS.find(RATES["cpu"].kernel)


N = 150
VALUES = np.random.default_rng(7).normal(size=(N, 2))
WANTED = {
    "some": np.random.default_rng(8).random(N) < 0.3,
    "none": np.zeros(N, bool),
    "all": np.ones(N, bool),
    "the last": np.arange(N) == N - 1,
}
"""Which particles are wanted; each selection is cut into pieces of 32."""

cut = jax.jit(functools.partial(Pieces.of, size=32))


@pytest.mark.parametrize("case", WANTED)
def test_wanted_particles_come_first_in_their_own_order(case):
    wanted = WANTED[case]
    pieces = cut(jnp.asarray(VALUES), jnp.asarray(wanted))
    expected = np.zeros((160, 2))
    expected[: wanted.sum()] = VALUES[wanted]
    np.testing.assert_array_equal(pieces.particles.reshape(160, 2), expected)
    np.testing.assert_array_equal(pieces.filled, np.arange(0, 160, 32) < wanted.sum())


def test_particles_that_fit_into_one_piece_stay_as_they_are():
    pieces = Pieces.of(jnp.asarray(VALUES), jnp.asarray(WANTED["some"]), N)
    assert pieces.filled is None
    np.testing.assert_array_equal(pieces.particles, VALUES)


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def squares(values, wanted):
    """The sum of the squares of the wanted values; a piece without any would add nan."""

    def add(total, piece):
        return total + jnp.where(jnp.any(piece != 0), (piece**2).sum(axis=0), jnp.nan)

    found = cut(values, wanted).added(jnp.zeros(2), add)
    return found.sum(), found


def test_pieces_without_a_particle_are_passed_over_and_have_no_slope():
    for wanted in WANTED.values():
        (_, found), slope = squares(jnp.asarray(VALUES), jnp.asarray(wanted))
        np.testing.assert_allclose(found, wanted @ VALUES**2, rtol=1e-12)
        np.testing.assert_allclose(slope, 2 * VALUES * wanted[:, None], rtol=1e-12)


def test_many_selections_at_once():
    wanted = np.stack(list(WANTED.values()))

    def total(chosen):
        return cut(jnp.asarray(VALUES), chosen).added(jnp.zeros(2), lambda total, piece: total + piece.sum(axis=0))

    np.testing.assert_allclose(jax.jit(jax.vmap(total))(jnp.asarray(wanted)), wanted @ VALUES, rtol=0, atol=1e-12)

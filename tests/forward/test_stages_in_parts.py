"""Cube stages on devices that hold a part of the bins each: cube, noise and gradients of one that holds them all."""

import functools
from collections import Counter
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import build_stage
from hlo import collectives
from jax.sharding import AxisType, PartitionSpec
from jaxtyping import Array, Bool, Float
from scipy import stats
from small import BLUR, muse

from rubix_like import ConfigError, Parameters, load_config
from rubix_like.extend import BinSplit, Footprint, PaintedCube, make_setup, per_bin, resolve
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.runtime.mesh.bin_split import WHOLE, padded, wave_specs

N_WAVE = {"even": 40, "uneven, one part empty": 33, "fewer than devices": 5}
TOLERANCE = {"float32": 5e-6, "float64": 1e-12}
GRADIENT_TOLERANCE = {"float32": 5e-5, "float64": 1e-11}
MESHES = {"data": {"data": 8}, "wave and data": {"wave": 2, "data": 4}}
MOFFAT = {"kind": "moffat", "wavelength": [4700, 5100], "fwhm": [0.5, 0.3], "beta": [2.5, 2.8], "enclosed": 0.7}
ONE_MOFFAT = {"kind": "moffat", "fwhm": 0.4, "beta": 2.8, "enclosed": 0.8}
EXPOSURE = {"exposure": {"time": "20 min", "sky": "none"}, "keep_truth": True}
RING = {"signal_to_noise": 20, "wavelength": 4840, "width": 60, "radius": 0.4}
RUNS = {
    "Gaussian, brightest spaxel": {},
    "Moffat of wavelength, ring": {"instrument.psf": MOFFAT, "noise": RING},
    "Moffat, exposure": {"instrument.psf": ONE_MOFFAT, "noise": EXPOSURE},
}
FAST_COMPILER = {"xla_backend_optimization_level": 0}
STAGES = ("psf", "dust", "degrade_lsf", "aperture", "noise")
OPTIONS = {"degrade_lsf": {"fwhm": "26 Angstrom"}}


def config(n_wave, precision, changes):
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": muse(
                4800, 4800 + 5 * (n_wave - 1), "5 Angstrom", fov="1.6 arcsec", aperture={"shape": "circle"}, **BLUR
            ),
            "engine": {"method": "direct", "precision": precision, "velocity_range": 500},
            "dust": {"a_v": 0.5},
            "noise": {"signal_to_noise": 30},
        },
        changes,
    )


@functools.cache
def run_for(run, n_wave, precision):
    """The stages on the whole detector by their names, and the parameters."""
    settings = config(n_wave, precision, RUNS[run])
    setup = make_setup(settings, resolve(settings), None)
    assert setup.instrument.bins.n_wave == n_wave
    names = STAGES if n_wave > 8 else tuple(name for name in STAGES if name != "degrade_lsf")
    built = {name: build_stage("cube", name, setup, OPTIONS.get(name), precision) for name in names}
    return built, Parameters.build(settings, precision)


def stages_for(run, n_wave, precision, *names):
    stages, parameters = run_for(run, n_wave, precision)
    return tuple(stages[name] for name in names or STAGES if name in stages), parameters


def painted(n_wave, margin, precision):
    """A field with a clump that is not in its middle; no two spaxels of one brightness."""
    rng, side = np.random.default_rng(5), 8 + 2 * margin
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    image = np.exp(-((y - 0.7) ** 2 + (x + 1.2) ** 2) / 8) + 0.01 * rng.uniform(size=(side, side))
    flux = 50 * image[:, :, None] * rng.uniform(0.5, 1.5, (side, side, n_wave))
    moments = np.stack([image, 100 * image * x], axis=2)
    return jnp.asarray(flux, precision), jnp.asarray(moments, precision)


def through(split, stages, parameters, flux, moments, key):
    """What a device makes of its part."""
    footprint = Footprint.of(flux.shape, jnp.asarray(0.2, flux.dtype))
    cube = PaintedCube(footprint.elements(flux), footprint.elements(moments), footprint, split=split)
    for number, stage in enumerate(stages):
        cube = stage(cube, parameters, jax.random.fold_in(key, number))
    assert cube.split == split
    values = {"flux": cube.flux, "variance": cube.variance, "truth": cube.truth, "moments": cube.moments}
    return jax.tree.map(cube.footprint.images, values)


def split_over(n_wave, axes):
    sizes = MESHES[axes]
    return BinSplit(n_wave, int(np.prod(list(sizes.values()))), tuple(sizes))


def mesh_for(axes):
    sizes = MESHES[axes]
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axis_types=(AxisType.Auto,) * len(sizes))


CUBE_SPEC = {axes: PartitionSpec(None, None, tuple(MESHES[axes])) for axes in MESHES}


def on_devices(split, axes, stages, parameters, flux, moments, key):
    """The same on eight devices, each with its own bins, of padded tables and a padded cube."""
    whole, cube = PartitionSpec(), CUBE_SPEC[axes]
    inner = jax.shard_map(
        functools.partial(through, split),
        mesh=mesh_for(axes),
        in_specs=(wave_specs(stages, split.axes), whole, cube, whole, whole),
        out_specs={"flux": cube, "variance": cube, "truth": cube, "moments": whole},
    )
    return inner(stages, parameters, flux, moments, key)


def with_padding(flux, split, fill=np.nan):
    """`fill` in the bins beyond the detector's."""
    return jnp.pad(flux, [(0, 0), (0, 0), (0, split.n_padded - split.n_wave)], constant_values=fill)


def cut(cube, n_wave):
    """Without the padding."""
    return {name: leaf if name == "moments" or leaf is None else leaf[:, :, :n_wave] for name, leaf in cube.items()}


def relative_difference(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert np.isfinite(found).all()
    scale = np.abs(expected).max()
    return np.abs(found - expected).max() / (scale if scale > 0 else 1.0)


def compared(run, n_wave, precision, axes):
    """Cubes on one device and on eight, gradients of a sum in which no two voxels count the same, and the program."""
    stages, parameters = stages_for(run, n_wave, precision)
    flux, moments = painted(n_wave, sum(stage.margin for stage in stages), precision)
    key, split = jax.random.key(4), split_over(n_wave, axes)
    weights = jnp.asarray(np.random.default_rng(6).normal(size=(8, 8, n_wave)), precision)

    def loss(arguments, apply, stages):
        cube = cut(apply(stages, *arguments, key), n_wave)
        return (weights * cube["flux"]).sum() + cube["moments"].sum(), cube

    def parts(stages, parameters, flux, *others):
        padding = with_padding(flux, split, 1e3)  # finite: times a gradient of 0 it shall be 0
        return on_devices(split, axes, stages, parameters, padding, *others)

    found = []
    for apply, tables in ((parts, padded(stages, split)), (functools.partial(through, WHOLE), stages)):
        gradient = jax.value_and_grad(functools.partial(loss, apply=apply, stages=tables), has_aux=True)
        found.append(jax.jit(gradient, compiler_options=FAST_COMPILER)((parameters, flux, moments)))
    return found


ROWS = (
    *((run, "even", "float32", "data") for run in RUNS if run != "Moffat of wavelength, ring"),
    *((run, "uneven, one part empty", "float64", "wave and data") for run in RUNS),
    ("Moffat, exposure", "fewer than devices", "float64", "data"),
)


QUICKEST = "Moffat of wavelength, ring"
LONG = [row for row in ROWS if row[2] == "float32" or row[0] != QUICKEST]
"""The same stages in single precision along one axis; kernels and references whose sums are those of the others."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "size", "precision", "axes"),
    [pytest.param(*row, marks=[pytest.mark.long] if row in LONG else []) for row in ROWS],
)
def test_all_stages_on_eight_devices_are_those_on_one(run, size, precision, axes):
    """Flux, variance, truth, moments, and gradients in parameters, flux and moments."""
    ((_, found), gradient), ((_, expected), gradient_1) = compared(run, N_WAVE[size], precision, axes)
    for name in ("flux", "variance", "moments"):
        assert relative_difference(found[name], expected[name]) < TOLERANCE[precision], name
    assert (found["truth"] is None) == ("exposure" not in run)
    leaves = [jax.tree.leaves(own) for own in (gradient, gradient_1)]
    assert any(np.abs(leaf).max() > 0 for leaf in leaves[1])
    for leaf, leaf_1 in zip(*leaves, strict=True):
        assert relative_difference(leaf, leaf_1) < GRADIENT_TOLERANCE[precision]


def compiled_stage(name, run, axes, n_wave=33):
    """One stage on eight devices, with no number in the padding: what it makes of a field, and its program's text."""
    stages, parameters = stages_for(run, n_wave, "float64", name)
    flux, moments = painted(n_wave, stages[0].margin, "float64")
    split, key = split_over(n_wave, axes), jax.random.key(4)
    arguments = padded(stages, split), parameters, with_padding(flux, split), moments, key
    program = jax.jit(functools.partial(on_devices, split, axes)).lower(*arguments).compile(FAST_COMPILER)
    whole = jax.jit(functools.partial(through, WHOLE), compiler_options=FAST_COMPILER)
    kinds = Counter(kind for kind, _ in collectives(program.as_text()))
    return cut(program(*arguments), n_wave), whole(stages, parameters, flux, moments, key), kinds, flux


@pytest.mark.parametrize(
    ("run", "tells"),
    [
        ("Gaussian, brightest spaxel", {"all-reduce": 1, "all-gather": 1}),
        pytest.param("Moffat of wavelength, ring", {"all-reduce": 1}, marks=pytest.mark.slow),
        ("Moffat, exposure", {}),
    ],
)
def test_every_device_draws_the_noise_of_its_bins(run, tells):
    """The same noise; a target's reference takes one sum of an image or of numbers, and one vector of bins."""
    found, expected, kinds, flux = compiled_stage("noise", run, "wave and data")
    noise, noise_1 = (np.asarray(cube["flux"] - flux) for cube in (found, expected))
    assert np.abs(noise_1).min(axis=(0, 1)).max() > 0
    assert relative_difference(noise, noise_1) < 1e-12
    assert relative_difference(found["variance"], expected["variance"]) < 1e-12
    assert kinds == tells


@pytest.mark.parametrize(
    "run", [pytest.param(run, marks=() if "of wavelength" in run else pytest.mark.slow) for run in RUNS]
)
def test_the_psf_tells_other_devices_nothing(run):
    found, expected, kinds, _ = compiled_stage("psf", run, "data")
    assert relative_difference(found["flux"], expected["flux"]) < 1e-12
    assert relative_difference(found["moments"], expected["moments"]) < 1e-12
    assert not kinds


@pytest.mark.parametrize(
    "axes", ["data", pytest.param("wave and data", marks=pytest.mark.slow)], ids=lambda axes: axes.replace(" ", "-")
)
@pytest.mark.parametrize("n_wave", [33, pytest.param(40, marks=pytest.mark.slow)])
def test_the_line_spread_crosses_borders_by_two_exchanges(n_wave, axes):
    """There and back: the program, the values, and <A x, y> = <x, A^T y>."""
    stages, parameters = stages_for("Gaussian, brightest spaxel", n_wave, "float64", "degrade_lsf")
    assert 2 < len(stages[0].weights) // 2 <= split_over(n_wave, axes).n_own
    flux, _ = painted(n_wave, 0, "float64")
    split = split_over(n_wave, axes)
    whole = functools.partial(spread_by, functools.partial(through, WHOLE), stages, parameters)
    parts = functools.partial(spread_by, functools.partial(on_devices, split, axes), padded(stages, split), parameters)
    x, y = (with_padding(own, split, 0.0) for own in (flux, np.random.default_rng(8).normal(size=flux.shape)))
    there = jax.jit(parts).lower(x).compile(FAST_COMPILER)
    back = jax.jit(lambda x, y: jax.vjp(parts, x)[1](y)[0]).lower(x, y).compile(FAST_COMPILER)
    for program in (there, back):
        assert Counter(kind for kind, _ in collectives(program.as_text())) == {"collective-permute": 2}
    ours, theirs = there(with_padding(flux, split)), whole(flux)
    assert relative_difference(ours[:, :, :n_wave], theirs) < 1e-12
    assert np.abs(np.asarray(theirs - flux)).max() > 1
    forward, backward = (there(x) * y).sum(), (x * back(x, y)).sum()
    assert abs(float(forward - backward)) < 1e-12 * float(jnp.linalg.norm(x) * jnp.linalg.norm(y))
    assert relative_difference(back(x, y)[:, :, :n_wave], jax.vjp(whole, flux)[1](y[:, :, :n_wave])[0]) < 1e-12


def spread_by(apply, stages, parameters, flux):
    return apply(stages, parameters, flux, jnp.zeros((8, 8, 2)), jax.random.key(0))["flux"]


@pytest.mark.parametrize(("n_wave", "reach"), [(40, 5), (33, 5), (33, 1), (9, 2), (5, 1), (1, 1), (7, 0)])
def test_the_neighbours_of_a_part(n_wave, reach):
    """Bins on both sides, the detector's ends continued; whatever the padding holds."""
    split = split_over(n_wave, "wave and data")
    own = jnp.pad(jnp.arange(1.0, n_wave + 1), (0, split.n_padded - n_wave), constant_values=np.nan)
    spec = PartitionSpec(split.axes)
    exchange = jax.shard_map(
        lambda own: split.with_neighbours(own, reach), mesh=mesh_for("wave and data"), in_specs=spec, out_specs=spec
    )
    found = np.asarray(jax.jit(exchange)(own)).reshape(split.n_shard, split.n_own + 2 * reach)
    n_parts = -(-n_wave // split.n_own)  # those beyond hold no bin
    bins = np.arange(n_parts)[:, None] * split.n_own + np.arange(-reach, split.n_own + reach)[None, :]
    expected = np.clip(bins, 0, n_wave - 1) + 1.0
    used = slice(None) if reach else bins < n_wave  # with no reach nothing is asked of what follows
    np.testing.assert_array_equal(found[:n_parts][used], expected[used])


def test_a_line_spread_beyond_the_next_part_is_refused():
    stages, parameters = stages_for("Gaussian, brightest spaxel", 33, "float64", "degrade_lsf")
    flux, split = painted(33, 0, "float64")[0], BinSplit(33, 11, ("data",))
    with pytest.raises(ConfigError, match=r"parts of at least 4 bins.*got 3 \(33 bins on 11 devices\); use fewer"):
        spread_by(functools.partial(through, split), stages, parameters, flux)


class Inner(eqx.Module):
    """A table along the bins, one that is not, and one that may be missing."""

    response: Float[Array | np.ndarray, "wave part"] = eqx.field(metadata=per_bin(0, pad="zero"))
    nodes: Float[Array | np.ndarray, " node"]
    curve: Float[Array | np.ndarray, " wave"] | None = eqx.field(metadata=per_bin(), default=None)


class Outer(eqx.Module):
    """Modules in a tuple."""

    window: Bool[Array | np.ndarray, " wave"] = eqx.field(metadata=per_bin(pad="zero"))
    inner: tuple[Inner, ...]


def outer(n_wave=5):
    inner = Inner(np.ones((n_wave, 2)), np.arange(3.0)), Inner(np.ones((n_wave, 1)), np.ones(1), jnp.arange(5.0))
    return Outer(np.ones(n_wave, bool), inner)


def test_specs_and_padding_of_tables():
    axes = ("wave", "data")
    specs = wave_specs(outer(), axes)
    assert specs.window == specs.inner[0].response == specs.inner[1].curve == PartitionSpec(axes)
    assert specs.inner[0].nodes == specs.inner[1].nodes == PartitionSpec()
    assert specs.inner[0].curve is None
    assert set(jax.tree.leaves(wave_specs(outer(), ()))) == {PartitionSpec()}
    long = padded(outer(), BinSplit(5, 8, axes))
    assert [type(leaf) for leaf in jax.tree.leaves(long)] == [type(leaf) for leaf in jax.tree.leaves(outer())]
    np.testing.assert_array_equal(long.window, [True] * 5 + [False] * 3)
    np.testing.assert_array_equal(long.inner[0].response, np.repeat([[1.0, 1.0], [0.0, 0.0]], [5, 3], axis=0))
    np.testing.assert_array_equal(long.inner[1].curve, [0, 1, 2, 3, 4, 4, 4, 4])
    assert eqx.tree_equal(padded(outer(), BinSplit(5, 5, axes)), outer())
    with pytest.raises(ValueError, match=r"Outer.window: expected 6 bins along axis 0, got shape \(5,\)"):
        padded(outer(), BinSplit(6, 3, axes))
    scalar = eqx.tree_at(lambda own: own.inner[0].response, outer(), np.ones(()))
    with pytest.raises(ValueError, match=r"Inner.response: expected an axis 0 along the bins, got shape \(\)"):
        wave_specs(scalar, axes)


class Named(NamedTuple):
    """Neither a module nor a plain tuple."""

    inner: Inner
    number: np.ndarray


def test_tables_in_named_tuples_and_dictionaries():
    specs = wave_specs({"own": Named(outer().inner[0], np.ones(5))}, ("data",))
    assert specs["own"].inner.response == PartitionSpec(("data",))
    assert specs["own"].inner.nodes == specs["own"].number == PartitionSpec()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_numbered_normal_numbers_are_normal(precision):
    """Moments, tails and independence of neighbours, in five standard errors; a part of them is a part of them."""
    n, dtype = 50_000, jnp.dtype(precision)
    draw = jax.jit(functools.partial(numbered_normal, dtype=dtype), compiler_options=FAST_COMPILER)
    x = np.asarray(draw(jax.random.key(3), jnp.arange(n)), np.float64)
    assert draw(jax.random.key(3), jnp.arange(3)).dtype == precision
    np.testing.assert_array_equal(
        np.asarray(draw(jax.random.key(3), jnp.arange(1000, 1010).reshape(5, 2))).ravel(), x[1000:1010]
    )
    assert stats.kstest(x, "norm").pvalue > 1e-3
    for power, moment, scatter in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((x**power).mean() - moment) < 5 * np.sqrt(scatter / n)
    for lag in (1, 2, 40):
        assert abs((x[lag:] * x[:-lag]).mean()) < 5 / np.sqrt(n)
    other = np.asarray(draw(jax.random.key(4), jnp.arange(n)), np.float64)
    assert abs((x * other).mean()) < 5 / np.sqrt(n)
    assert len(np.unique(x)) > (0.9 if precision == "float32" else 0.9999) * n

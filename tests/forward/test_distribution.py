"""Particles over devices: the same cube and gradient on any number of them, by one sum.

By both methods; what takes longer by `basis` runs with --slow. What each run's program must be: `test_one_program`.
"""

import functools
import logging

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hlo import collectives, constant_bytes
from jax.sharding import AxisType
from small import BLUR, muse

from rubix_like import Galaxy, Pipeline, Stars, load_config, make_mesh, shard

CHUNK = 4
WHOLE = 1_000_000
SIZES = {
    "divisible by devices and chunk": 96,
    "divisible by devices": 80,
    "divisible by the chunk": 92,
    "divisible by neither": 77,
    "fewer than devices": 5,
    "one": 1,
}
"""96 and 92, 80 and 77 are of one size class, on one device and on eight: they share their compilations."""

LARGEST, N_DRAWN = max(SIZES.values()), 200
CUBE_TOLERANCE = {"float32": 5e-6, "float64": 1e-12}
GRADIENT_TOLERANCE = {"float32": 1e-3, "float64": 1e-10}
"""The flux's slope in velocity is a difference of neighbouring bins: it has 3 digits less than the flux."""

STAR_FIELDS = ("position", "velocity", "initial_mass", "log_age", "metallicity")
METHODS = ("direct", "basis")
DIRECT_IS_QUICK = ("direct", pytest.param("basis", marks=pytest.mark.long))
FAST_COMPILER = {"xla_backend_optimization_level": 0}


def disc(n):
    """`n` stars of a thick disc, tilted by 50 degrees, sorted by position, partly outside the field.

    Those of a smaller disc are among those of a larger one: what is planned for many is right for few.
    """
    rng = np.random.default_rng(7)
    position = rng.normal(size=(N_DRAWN, 3)) * [0.6, 0.5, 0.15]
    velocity = 120 * np.stack([-position[:, 1], position[:, 0], 0 * position[:, 0]], axis=1)
    velocity += 40 * rng.normal(size=(N_DRAWN, 3))
    cosine, sine = np.cos(np.deg2rad(50)), np.sin(np.deg2rad(50))
    tilt = np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
    stars = Stars(
        position=position @ tilt.T,
        velocity=velocity @ tilt.T,
        initial_mass=rng.uniform(0.5, 2.0, N_DRAWN) * 1e6,
        log_age=rng.uniform(8.0, 10.0, N_DRAWN),
        metallicity=rng.uniform(0.004, 0.04, N_DRAWN),
    )
    chosen = rng.permutation(N_DRAWN)[:n]
    chosen = chosen[np.argsort(stars.position[chosen, 0])]
    return Galaxy(stars=jax.tree.map(lambda values: values[chosen], stars))


def disc_with_fast_stars():
    """Three of 200 stars at 2500 km/s; the 64 fastest hold next to no light, so `basis` paints them one by one."""
    stars = disc(N_DRAWN).stars
    velocity, mass = stars.velocity.copy(), stars.initial_mass.copy()
    velocity[[3, 90, 199]] = np.array([[1500.0, 0.0, 2000.0], [0.0, 1500.0, -2000.0], [2500.0, 0.0, 0.0]])
    mass[np.argsort(np.linalg.norm(velocity, axis=1))[-64:]] *= 1e-4
    return Galaxy(stars=eqx.tree_at(lambda s: (s.velocity, s.initial_mass), stars, (velocity, mass)))


def config(method="direct", precision="float64", chunk=CHUNK):
    """Face-on, with PSF, LSF (wider than the library's) and noise; `cic` so that positions have gradients.

    One star has no disc to align.
    """
    return load_config(
        {
            "observation": {"redshift": 0.05, "align": "stars", "inclination": 0, "position_angle": 0},
            "instrument": muse(4800, 4950, "5 Angstrom", fov="1.2 arcsec", **BLUR),
            "engine": {"method": method, "precision": precision, "chunk": chunk, "deposit": "cic"},
            "noise": {"signal_to_noise": 30, "seed": 3},
        }
    )


@functools.cache
def pipeline_for(method, n_devices, chunk=CHUNK, precision="float64"):
    """For discs of all sizes."""
    return Pipeline.from_config(config(method, precision, chunk), disc(LARGEST), mesh=make_mesh(n_devices))


@functools.cache
def cube_of(method, n, n_devices, chunk, precision="float64"):
    return pipeline_for(method, n_devices, chunk, precision)(disc(n))


def weighted_sum(flux):
    """A scalar of a cube in which no two voxels count the same."""
    return (flux * jnp.asarray(np.random.default_rng(1).normal(size=flux.shape), flux.dtype)).sum()


@functools.cache
def compiled_gradient(method, n_devices, chunk, precision):
    """Of a weighted sum of the cube with respect to stars and parameters; compiled once per size class."""
    pipeline = pipeline_for(method, n_devices, chunk, precision)
    gradient = jax.grad(lambda arguments: weighted_sum(pipeline(*arguments).flux))
    return jax.jit(gradient, compiler_options=FAST_COMPILER)


@functools.cache
def gradient_of(method, n, n_devices, chunk, precision="float64"):
    """With respect to a disc of `n` stars that lies on the mesh, and the parameters; padding has no gradient."""
    pipeline = pipeline_for(method, n_devices, chunk, precision)
    placed = shard(jax.tree.map(lambda leaf: jnp.asarray(leaf, precision), disc(n)), pipeline.mesh)
    gradient = compiled_gradient(method, n_devices, chunk, precision)
    own, of_parameters = jax.tree.map(np.asarray, gradient((placed, pipeline.parameters)))
    np.testing.assert_array_equal(own.stars.weight, 0.0)
    for name in STAR_FIELDS:
        np.testing.assert_array_equal(getattr(own.stars, name)[n:], 0.0)
    return {name: getattr(own.stars, name)[:n] for name in STAR_FIELDS}, of_parameters


def relative_difference(found, expected):
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    scale = np.nanmax(np.abs(expected))
    assert scale > 0
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    return np.nanmax(np.abs(found - expected)) / scale


def rows(*quick):
    """All sizes in both precisions by both methods; those that are not `quick` run with --long, since stars are shared
    among devices before they are painted."""
    every = [(method, size, precision) for method in METHODS for size in SIZES for precision in CUBE_TOLERANCE]
    assert set(quick) <= set(every)
    return [pytest.param(*row, marks=() if row in quick else pytest.mark.long) for row in every]


@pytest.mark.parametrize(
    ("method", "size", "precision"),
    rows(
        ("direct", "divisible by neither", "float64"),
        ("direct", "fewer than devices", "float32"),
        ("basis", "divisible by neither", "float64"),
    ),
)
def test_cube_of_eight_devices_in_small_chunks_is_that_of_one_in_one(method, size, precision):
    """Face-on alignment, PSF, LSF and noise on: flux, variance and mean velocity."""
    tolerance = CUBE_TOLERANCE[precision]
    found, expected = (cube_of(method, SIZES[size], *how, precision) for how in ((8, CHUNK), (1, WHOLE)))
    assert_same_cube(found, expected, tolerance)
    assert found.flux.dtype == np.dtype(precision)


def assert_same_cube(found, expected, tolerance):
    for name, times in (("flux", 1), ("variance", 2), ("mean_v_los", 20)):
        assert relative_difference(getattr(found, name), getattr(expected, name)) < times * tolerance, name
    for name, count in vars(expected.counters).items():
        np.testing.assert_allclose(getattr(found.counters, name), count, rtol=tolerance, err_msg=name)


def assert_same_gradient(found, expected, tolerance):
    for leaf, leaf_1 in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(leaf).all()
        assert relative_difference(leaf, leaf_1) < tolerance
        np.testing.assert_allclose((leaf * leaf_1).sum() / (leaf_1**2).sum(), 1.0, rtol=tolerance)


@functools.cache
def pipeline_with_fast_stars(method, n_devices, chunk, precision="float64"):
    return Pipeline.from_config(config(method, precision, chunk), disc_with_fast_stars(), mesh=make_mesh(n_devices))


@pytest.mark.slow
@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.long), "float64"])
def test_stars_too_fast_for_the_velocity_nodes(precision):
    """What `basis` paints one by one: the same cube on eight devices as on one, in the same single sum.

    Each device has 64 places for them; more on one device are refused.
    """
    galaxy = disc_with_fast_stars()
    split, whole = (pipeline_with_fast_stars("basis", *how, precision) for how in ((8, CHUNK), (1, WHOLE)))
    painter = whole.tables.paint[0].painter
    assert painter.capacity == 64
    speed = np.linalg.norm(galaxy.stars.velocity, axis=1)
    assert 3 <= (speed > float(painter.nodes.limit)).sum() <= 64
    found, expected = split(galaxy), whole(galaxy)
    assert_same_cube(found, expected, CUBE_TOLERANCE[precision])
    assert float(found.counters.n_beyond_velocity) == float(found.counters.n_overflow) == 0
    faster = galaxy.stars.velocity.copy()
    faster[:100] = [0.0, 0.0, 2000.0]
    crowd = eqx.tree_at(lambda g: g.stars.velocity, galaxy, faster)
    n_fast = (np.abs(faster @ np.asarray(whole.tables.alignment)[2]) > float(painter.nodes.limit)).sum()
    assert n_fast > 64
    with pytest.raises(ValueError, match=rf"{n_fast - 64} of 200 stars more"):
        whole(crowd)
    assert float(split(crowd).counters.n_overflow) == 0
    assert_one_sum_outside_any_loop(split.lower(galaxy).compile().as_text())
    assert constant_bytes(split.trace(galaxy).jaxpr) < 1000


@pytest.mark.parametrize("method", METHODS)
def test_alignment_and_noise_are_at_work(method):
    """What the comparison above is made of: a tilted disc, turned face-on, with noise."""
    pipeline = pipeline_for(method, 8)
    assert pipeline.plan.method == method
    alignment = np.asarray(pipeline.tables.alignment)
    np.testing.assert_allclose(abs(alignment[2] @ [0, -np.sin(np.deg2rad(50)), np.cos(np.deg2rad(50))]), 1, atol=0.02)
    painter = pipeline.tables.paint[0].painter
    if method == "direct":
        assert painter.response.n_fine > 2 * pipeline.plan.n_wave
    else:
        assert painter.nodes.n_node > 4
        assert 1 < painter.rank < painter.axes.n_template
    assert pipeline.plan.margin > 0
    cube = cube_of(method, 77, 8, CHUNK)
    assert (np.asarray(cube.variance) > 0).all()
    assert 0 < float(cube.counters.n_outside) < 77


@pytest.mark.parametrize("method", DIRECT_IS_QUICK)
def test_the_callers_mesh_of_three_devices(method):
    """The last three devices (not a power of two), on a mesh made without us."""
    devices = jax.devices()[-3:]
    mesh = jax.make_mesh((3,), ("data",), axis_types=(AxisType.Auto,), devices=devices)
    cube = Pipeline.from_config(config(method), disc(LARGEST), mesh=mesh)(disc(77))
    assert cube.flux.sharding.device_set == set(devices)
    assert relative_difference(cube.flux, cube_of(method, 77, 1, WHOLE).flux) < CUBE_TOLERANCE["float64"]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_noise_on_any_number_of_devices(method):
    """Noise is drawn once on the sum: the difference of two keys is the same, and sqrt(2) sigma wide."""
    differences = []
    for n_devices, chunk in ((1, WHOLE), (8, CHUNK)):
        pipeline = pipeline_for(method, n_devices, chunk)
        cubes = [pipeline(disc(77), key=jax.random.key(seed)) for seed in (10, 11)]
        differences.append(np.asarray(cubes[0].flux - cubes[1].flux))
        sigma = float(jnp.sqrt(cubes[0].variance[0, 0, 0]))
    assert relative_difference(differences[1], differences[0]) < CUBE_TOLERANCE["float64"]
    np.testing.assert_allclose(differences[0].std() / sigma, np.sqrt(2), rtol=0.05)


def assert_one_sum_outside_any_loop(text):
    assert " while(" in text
    assert collectives(text) == [("all-reduce", "ENTRY")]
    assert "while/body" not in "".join(line for line in text.splitlines() if " all-reduce(" in line)


def compilations(caplog, function):
    """How often the model was compiled while `function()` ran."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        function()
    return sum("Finished XLA compilation of jit(observe)" in record.getMessage() for record in caplog.records)


def test_what_shares_a_compilation(caplog):
    """A galaxy of the same size class, other parameters, another key, another pipeline with the same plan, spaxels a
    little larger. By `basis`: what each source shares by other methods, `test_stages`."""
    own = config("basis", chunk=5)
    pipeline = Pipeline.from_config(own, disc(77), mesh=make_mesh(2))
    parameters = eqx.tree_at(lambda p: p.observation.inclination, pipeline.parameters, jnp.asarray(33.0))
    narrower = eqx.tree_at(lambda p: p.instrument.psf.fwhm, pipeline.parameters, jnp.asarray(0.3))
    turned = load_config(own, {"observation.inclination": "20 deg", "observation.offset": [0.1, 0]})
    larger = load_config(own, {"instrument.pixel_scale": 0.202, "instrument.fov": 1.212})
    assert compilations(caplog, lambda: pipeline(disc(77))) == 1
    again = {
        "the same galaxy": lambda: pipeline(disc(77)),
        "a galaxy of the same size class": lambda: pipeline(disc(76)),
        "a changed inclination": lambda: pipeline(disc(77), parameters),
        "a changed PSF": lambda: pipeline(disc(77), narrower),
        "another noise key": lambda: pipeline(disc(77), key=jax.random.key(9)),
        "an equal plan": lambda: Pipeline.from_config(turned, disc(75), mesh=make_mesh(2))(disc(77)),
        "another pixel scale": lambda: Pipeline.from_config(larger, disc(77), mesh=make_mesh(2))(disc(77)),
    }
    assert {what: compilations(caplog, call) for what, call in again.items()} == dict.fromkeys(again, 0)


@pytest.mark.parametrize("as_array", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_the_callers_objects_are_unchanged(as_array):
    galaxy, pipeline = jax.tree.map(as_array, disc(77)), pipeline_for("direct", 8)
    parameters = pipeline.parameters
    leaves = jax.tree.leaves((galaxy, parameters))
    before = [np.asarray(leaf).tobytes() for leaf in leaves]
    if as_array is np.asarray:
        Pipeline.from_config(config(), galaxy, mesh=make_mesh(8))
    pipeline(galaxy, parameters)
    after = jax.tree.leaves((galaxy, parameters))
    assert all(now is then for now, then in zip(after, leaves, strict=True))
    assert [np.asarray(leaf).tobytes() for leaf in after] == before
    assert galaxy.stars.weight is None


@pytest.mark.parametrize("method", METHODS)
def test_gradient_of_a_pipeline_and_a_galaxy_from_the_host(method):
    """jit and grad over the pipeline itself, a pytree, and over particles that are padded and placed inside.

    What padding repeats (the last particle) gets no gradient from it.
    """
    pipeline = pipeline_for(method, 8)
    assert len(shard(disc(77), pipeline.mesh).stars.initial_mass) == 80
    gradient = eqx.filter_grad(lambda both: weighted_sum(both[0](both[1]).flux))
    galaxy = jax.tree.map(jnp.asarray, disc(77))
    of_pipeline, of_galaxy = eqx.filter_jit(gradient, compiler_options=FAST_COMPILER)((pipeline, galaxy))
    expected, of_parameters = gradient_of(method, 77, 1, WHOLE)
    parameters = (of_pipeline.parameters, of_parameters)
    for leaf, leaf_1 in zip(*map(jax.tree.leaves, parameters), strict=True):
        assert relative_difference(leaf, leaf_1) < GRADIENT_TOLERANCE["float64"]
    for name in STAR_FIELDS:
        found = getattr(of_galaxy.stars, name)
        assert found.shape == expected[name].shape
        assert relative_difference(found, expected[name]) < GRADIENT_TOLERANCE["float64"]

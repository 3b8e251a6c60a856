"""What every registered stage, source and reader must do; a newcomer is tested on arrival.

No light is made or lost, gradients are finite, other numbers need no other compilation, shards are the whole.
Sources are painted by every method.
"""

import functools

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import REGISTRIES, build_stage
from jax.sharding import PartitionSpec
from small import BLUR, muse

from rubix_like import (
    ConfigError,
    Galaxy,
    Gas,
    Parameters,
    Pipeline,
    Plan,
    Stars,
    Tables,
    load_config,
    load_galaxy,
    load_galaxy_info,
    make_mesh,
    shard,
    validate,
)
from rubix_like.engine.kernels.kernel import build_kernel
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.extend import Footprint, PaintedCube, make_setup, resolve, to_scene
from rubix_like.forward.model import observe
from rubix_like.physics.templates import weighted_rows
from rubix_like.runtime.mesh.mesh import DeviceLayout

N_STARS = 48
GENERATOR = np.random.default_rng(12)


def run(**changes):
    """Everything switched on: PSF, LSF, aperture, noise, an oblique view."""
    return load_config(
        {
            "observation": {
                "redshift": 0.05,
                "distance": "220 Mpc",
                "align": "none",
                "inclination": 40,
                "position_angle": 20,
                "offset": [0.1, -0.1],
                "velocity_offset": 50,
            },
            "instrument": muse(4800, 4900, "5 Angstrom", fov="1.8 arcsec", aperture={"shape": "circle"}, **BLUR),
            "engine": {"method": "direct", "precision": "float64", "velocity_range": 1000},
            "dust": {"a_v": 0.5},
            "noise": {"signal_to_noise": 30},
        },
        changes,
    )


OTHER_NUMBERS = {
    "observation.distance": 221,
    "observation.inclination": 41,
    "observation.position_angle": 21,
    "observation.offset": [0.11, -0.11],
    "observation.velocity_offset": 51,
    "instrument.psf.fwhm": 0.401,
    "instrument.lsf": {"fwhm": 25.1},
    "dust": {"a_v": 0.6, "r_v": 3.9},
    "noise.signal_to_noise": 31,
}


OF_SOURCES = {
    "lines": {
        "pipeline": "lines",
        "lines": {"wavelengths": [4610, 4630], "particles": "stars", "velocity_dispersion": 150},
        "instrument.lsf": {"fwhm": "8 Angstrom"},
    },
    "nebulae": {
        "pipeline": "nebular",
        "nebular": {"velocity_dispersion": 150, "oldest": "20 Gyr"},
        "instrument.lsf": {"fwhm": "8 Angstrom"},
        "instrument.wavelength": {"start": 5160, "stop": 5360, "step": "10 Angstrom"},
    },
}
"""What runs need for a source beside those of `stellar`, well within the detector; every source here reads stars."""

OF_GAS = "nebulae of gas"
OF_SOURCES[OF_GAS] = {**OF_SOURCES["nebulae"], "nebular": {"velocity_dispersion": 150, "source": "star_forming_gas"}}
STAGES = {OF_GAS: "nebulae"}
"""The stage of a source that is tested in more than one way."""


@functools.cache
def setups_for(method, name="stars"):
    """The same run twice, every continuous number a little different: (setup, parameters) of both."""
    own = {"engine.method": method, **OF_SOURCES.get(name, {})}
    configs = [run(**{**numbers, **own}) for numbers in ({}, OTHER_NUMBERS)]
    return [(make_setup(config, resolve(config), None), Parameters.build(config, "float64")) for config in configs]


@pytest.fixture(scope="module")
def setups():
    """For stages that do not depend on the method."""
    return setups_for("direct")


OPTIONS = {"degrade_lsf": {"fwhm": "40 Angstrom"}}
"""Of stages that do nothing without any."""


def build(kind, name, setup):
    name = STAGES.get(name, name)
    return build_stage(kind, name, setup, OPTIONS.get(name))


def some_stars(n=N_STARS):
    """Stars inside the field and outside, at the limits of ages and metallicities and beyond them (kpc = arcsec)."""
    rng = np.random.default_rng(1)
    columns = {
        "position": rng.uniform(-1.5, 1.5, (n, 3)),
        "velocity": rng.normal(size=(n, 3)) * 150,
        "initial_mass": rng.uniform(1e5, 1e6, n),
        "log_age": np.concatenate([[0.0, 10.3], rng.uniform(6.0, 10.0, n - 2)]),
        "metallicity": np.concatenate([[0.02, 0.02, 0.0, 0.9], rng.uniform(1e-4, 0.04, n - 4)]),
        "weight": np.ones(n),
    }
    return Stars(**{name: jnp.asarray(values) for name, values in columns.items()})


def gas_like(stars):
    """Gas in the places of stars, which forms stars in proportion to their mass."""
    return Gas(
        position=stars.position,
        velocity=stars.velocity,
        mass=stars.initial_mass,
        metallicity=stars.metallicity,
        star_formation_rate=1e-6 * stars.initial_mass,
        weight=stars.weight,
    )


def some_scene():
    stars = some_stars()
    return to_scene(stars, stars.initial_mass, {"age": stars.log_age}, None, jnp.asarray(1.0))


def assert_finite(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    assert leaves
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves)


def assert_close(found, expected, tolerance=1e-12):
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        scale = np.abs(np.asarray(other)).max()
        np.testing.assert_allclose(np.asarray(leaf), np.asarray(other), atol=tolerance * scale, rtol=0)


def weighted(tree):
    """A scalar in which no two numbers count the same."""
    rng = np.random.default_rng(3)
    leaves = [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
    return sum((leaf * jnp.asarray(rng.normal(size=leaf.shape))).sum() for leaf in leaves)


def over_devices(function, sharded):
    """`function(sharded)` on 8 devices, each with its part of `sharded`; results put together again."""
    split = PartitionSpec("data")
    return jax.jit(jax.shard_map(function, mesh=make_mesh(8), in_specs=split, out_specs=split))(sharded)


KINDS = ("fields", "scene", "paint", "cube")


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in REGISTRIES[kind].names()])
def test_every_stage_is_a_documented_module_that_refuses_unknown_options(kind, name, setups):
    stage = REGISTRIES[kind].find(name)
    assert issubclass(stage, eqx.Module)
    assert stage.__doc__
    refuses = stage.plan if kind == "paint" else stage.build
    with pytest.raises(ConfigError, match=f"stage '{name}' has no option 'no_such_option'"):
        refuses(setups[0][0], {"no_such_option": 1})


@pytest.mark.parametrize("name", REGISTRIES["scene"].names())
def test_every_scene_stage(name, setups):
    (setup, parameters), (other_setup, other_parameters) = setups
    stage, before, traces = build("scene", name, setup), some_scene(), []

    @jax.jit
    def apply(stage, parameters, scene):
        traces.append(1)
        return stage(scene, parameters)

    after = apply(stage, parameters, before)
    assert jax.tree.structure(after) == jax.tree.structure(before)
    assert_finite(after)
    assert (after.amount >= 0).all()
    assert (after.amount <= before.amount * (1 + 1e-12)).all()
    np.testing.assert_array_equal(np.asarray(after.weight), np.asarray(before.weight))
    slope = jax.jit(jax.grad(lambda everything: weighted(apply(*everything)), allow_int=True))
    assert_finite(slope((stage, parameters, before)))
    traces.clear()
    changed = apply(build("scene", name, other_setup), other_parameters, before)
    assert traces == []
    assert np.abs(np.asarray(changed.position - after.position)).max() > 0
    assert_close(over_devices(lambda scene: stage(scene, parameters), before), after)


def painted(source, before, deposit="nearest", n_devices=1, chunk=N_STARS):
    """Flux (spaxel, wave) and moments (spaxel, 2) of stars, in a model of this source and no other stage."""
    plan = Plan(sources=("own",), method="", deposit=deposit, dtype="float64", margin=0, n_wave=21, chunk=chunk)
    footprint = Footprint(9, 9, jnp.asarray(0.2))
    tables = Tables(
        alignment=None,
        arcsec_per_kpc=jnp.asarray(1.0),
        footprint=footprint,
        grid=SpaxelGrid(footprint, deposit),
        scene=(),
        paint=(source,),
        cube=(),
        kernel=build_kernel("auto"),
    )
    galaxy = Galaxy(stars=before, gas=gas_like(before) if source.kind == "gas" else None)
    layout = DeviceLayout.build(make_mesh(n_devices), plan.n_wave, sharded=False)
    parameters = Parameters.build(run(**OF_SOURCES["lines"], nebular={"velocity_dispersion": 150}), "float64")
    observed = observe(plan, layout, tables, parameters, galaxy, None)
    return observed.voxels.flux.reshape(81, -1), observed.moments.reshape(81, 2)


paint = eqx.filter_jit(painted, compiler_options={"xla_backend_optimization_level": 0})

SLOW_SOURCES = {"nebulae": pytest.mark.slow(5), OF_GAS: pytest.mark.long}
"""They have two painters."""

SHARING = {"agn"}
"""Sources whose particles share a given light by a field: tested with it (tests/forward/test_narrow_lines.py)."""

OWN_LIGHT = (*(name for name in REGISTRIES["paint"].names() if name not in SHARING), OF_GAS)

SOURCE_NAMES = [pytest.param(name, marks=SLOW_SOURCES.get(name, ())) for name in OWN_LIGHT]

SOURCES = [
    pytest.param(
        *(name, method),
        marks=pytest.mark.long if (name, method) == ("nebulae", "direct") else SLOW_SOURCES.get(name, ()),
    )
    for name in OWN_LIGHT
    for method in REGISTRIES["methods"].names()
]


def source_for(name, method, which=0):
    return build("paint", name, setups_for(method, name)[which][0])


@pytest.mark.parametrize(("name", "method"), SOURCES)
def test_every_source_keeps_the_light(name, method):
    """However it is shared among spaxels; light outside is dropped; light follows mass."""
    source, before = source_for(name, method), some_stars()
    small = eqx.tree_at(lambda s: s.position, before, before.position * 0.3)
    totals = [np.asarray(paint(source, small, deposit)[0]).sum(axis=0) for deposit in ("nearest", "tsc")]
    assert totals[0].max() > 0
    assert totals[0].min() > -1e-5 * totals[0].max()  # between lines, by splines between velocity nodes
    assert_close(totals[1], totals[0])
    heavier = eqx.tree_at(lambda s: s.initial_mass, small, small.initial_mass * 3)
    assert_close(np.asarray(paint(source, heavier, "nearest")[0]).sum(axis=0), 3 * totals[0])
    inside = (np.abs(np.asarray(before.position[:, :2])) < 0.9).all(axis=1)
    assert 0 < inside.sum() < N_STARS
    shining = eqx.tree_at(lambda s: s.initial_mass, before, jnp.where(inside, before.initial_mass, 0.0))
    assert_close(paint(source, before), paint(source, shining))


@pytest.mark.parametrize(("name", "method"), SOURCES)
def test_every_source_sums_over_particles(name, method):
    """Chunks and devices add up; the sums of light and of light times velocity belong together."""
    source, before = source_for(name, method), some_stars()
    whole = paint(source, before)
    assert_close(paint(source, before, n_devices=8, chunk=2), whole)
    moving = eqx.tree_at(lambda s: s.velocity, before, jnp.full_like(before.velocity, 70.0))
    _, moments = paint(source, moving)
    assert_close(moments[:, 1], 70.0 * moments[:, 0], 1e-12 if method == "direct" else 1e-5)


@pytest.mark.parametrize("name", SOURCE_NAMES)
@pytest.mark.parametrize("method", [method for method in REGISTRIES["methods"].names() if method != "direct"])
def test_every_source_looks_the_same_by_every_method(name, method):
    """Every spaxel's spectrum within the tolerance of its mean (rms), without a line spread; its light and velocity."""
    fine = {"instrument.lsf": None, "instrument.wavelength.step": "2.5 Angstrom"}
    cubes, before = {}, some_stars()
    before = eqx.tree_at(lambda s: s.position, before, before.position * 0.5)
    for own in (method, "direct"):
        config = run(**{"engine.method": own, **OF_SOURCES.get(name, {}), **fine})
        setup = make_setup(config, resolve(config), None)
        cubes[own] = paint(build("paint", name, setup), before, "cic")
    lit = np.asarray(cubes["direct"][0]).max(axis=1) > 0
    assert 30 < lit.sum() < 81
    assert (np.asarray(cubes[method][0])[~lit] == 0).all()
    found, expected = (np.asarray(flux)[lit] for flux, _ in cubes.values())
    error = np.sqrt(((found - expected) ** 2).mean(axis=1)) / expected.mean(axis=1)
    assert 0 < error.max() < setup.config.engine.tolerance
    np.testing.assert_allclose(found.sum(axis=1), expected.sum(axis=1), rtol=1e-4)
    velocity, expected_velocity = (np.asarray(moments[lit, 1] / moments[lit, 0]) for _, moments in cubes.values())
    np.testing.assert_allclose(velocity, expected_velocity, atol=1.0)


@pytest.mark.parametrize(("name", "method"), SOURCES)
def test_every_source_has_finite_gradients_and_one_compilation(name, method):
    traces = []

    @eqx.filter_jit
    def gradient(source, before):
        traces.append(1)
        return jax.grad(lambda stars: weighted(painted(source, stars, "cic")))(before)

    found = gradient(source_for(name, method), some_stars())
    assert_finite(found)
    assert np.abs(np.asarray(found.velocity[:, 2])).max() > 0
    gradient(source_for(name, method, 1), some_stars())
    assert traces == [1]


def source(margin, n=9):
    """A point source in the middle of a field with a margin, over a faint background."""
    side, n_wave = n + 2 * margin, 21
    image = jnp.zeros((side, side)).at[side // 2, side // 2].set(1e4)
    spectrum = jnp.linspace(1.0, 2.0, n_wave)
    moments = jnp.stack([image * 1.5, image * 150.0], axis=2)
    footprint = Footprint(side, side, jnp.asarray(0.2))
    return PaintedCube(
        footprint.elements(image[:, :, None] * spectrum[None, None, :]), footprint.elements(moments), footprint
    )


DIMMING = {"dust"}
"""Cube stages that are meant to take light away."""


@pytest.mark.parametrize("name", REGISTRIES["cube"].names())
def test_every_cube_stage(name, setups):
    (setup, parameters), (other_setup, other_parameters) = setups
    stage, traces = build("cube", name, setup), []
    before, key = source(stage.margin), jax.random.key(0)

    @eqx.filter_jit
    def apply(stage, parameters, cube):
        traces.append(1)
        return stage(cube, parameters, key)

    after = apply(stage, parameters, before)
    assert after.footprint.shape == (9, 9)
    assert after.flux.shape == (81, 21)
    assert after.moments.shape == (81, 2)
    noise = 0.0 if after.variance is None else 6 * np.sqrt(np.asarray(after.variance).sum(axis=0))
    axes = (0, 1) if name == "degrade_lsf" else 0  # which moves light along wavelength
    gained = np.asarray(after.flux.sum(axis=axes) - before.flux.sum(axis=axes))
    difference = gained if name in DIMMING else np.abs(gained)
    assert (difference <= 1e-10 * np.asarray(before.flux).sum(axis=axes) + noise).all()
    assert_close(after.moments.sum(axis=0), before.moments.sum(axis=0))
    bits = stage.report().spaxel_bits
    assert bits is None or (bits.shape == (9, 9) and bits.dtype == np.int32)
    spatial = stage.spatial(parameters)
    if spatial is not None:
        assert_close(spatial(before.footprint.images(before.flux)), after.footprint.images(after.flux))
    slope = eqx.filter_jit(eqx.filter_grad(lambda everything: weighted(apply(*everything))))
    assert_finite(slope((stage, parameters, before)))
    traces.clear()
    apply(build("cube", name, other_setup), other_parameters, before)
    assert traces == []
    on_eight = jax.device_put(before, jax.NamedSharding(make_mesh(8), PartitionSpec()))
    assert_close(apply(stage, parameters, on_eight), after)


def test_cube_stages_without_their_section_do_nothing(setups):
    config = run(**{"instrument.psf": None, "instrument.aperture": None, "dust": None, "noise": None})
    setup, parameters = make_setup(config, resolve(config), None), Parameters.build(config, "float64")
    for name in set(REGISTRIES["cube"].names()) - set(OPTIONS):
        stage = build("cube", name, setup)
        assert stage.margin == 0
        after = stage(source(0), parameters, None)
        assert eqx.tree_equal(after, source(0)), name


def cutout(folder):
    """A cut-out of a snapshot at z = 0 as the TNG API makes it, without gas; the last particle is wind."""
    n = N_STARS + 1
    path = folder / "cutout.hdf5"
    table = {
        "Coordinates": 500.0 + GENERATOR.normal(size=(n, 3)),
        "Velocities": GENERATOR.normal(size=(n, 3)) * 60,
        "Masses": GENERATOR.uniform(1e-5, 2e-5, n),
        "GFM_InitialMass": GENERATOR.uniform(2e-5, 4e-5, n),
        "GFM_Metallicity": GENERATOR.uniform(0.001, 0.04, n),
        "GFM_StellarFormationTime": np.append(GENERATOR.uniform(0.1, 0.99, N_STARS), -0.5),
    }
    header = {"BoxSize": 75000.0, "HubbleParam": 0.7, "Omega0": 0.3, "OmegaLambda": 0.7, "Redshift": 0.0, "Time": 1.0}
    with h5py.File(path, "w") as file:
        file.create_group("Header").attrs.update(header)
        file.create_group("PartType4")
        for name, values in table.items():
            file[f"PartType4/{name}"] = values
    return {"reader": "auto", "path": str(path)}


DISC = {
    "name": "disc",
    "mass": "1e10 Msun",
    "light": {"profile": "exponential", "scale_length": "1.5 kpc"},
    "rotation": {"curve": "arctan", "velocity": "200 km/s", "turnover_radius": "1 kpc"},
    "dispersion": "50 km/s",
    "population": {"log_age": 9.5, "metallicity": 0.02},
}

READER_EXAMPLES = {
    "synthetic": lambda folder: {"reader": "synthetic", "n_stars": N_STARS, "n_gas": 5},
    "auto": cutout,
    "components": lambda folder: {"reader": "components", "components": [DISC]},
}
"""A section `galaxy:` that each reader can load, with N_STARS stars (or as many points as they take); give a new reader
one."""


@pytest.mark.parametrize("name", REGISTRIES["readers"].names())
def test_every_reader(name, tmp_path):
    assert name in READER_EXAMPLES, f"add an example of a galaxy that the reader '{name}' loads"
    config = run(galaxy=READER_EXAMPLES[name](tmp_path), noise=None)
    galaxy, info = load_galaxy(config), load_galaxy_info(config)
    assert len(galaxy.stars.initial_mass) == info.n_stars
    assert info.n_stars == N_STARS or name == "components"
    assert {leaf.dtype for leaf in jax.tree.leaves(galaxy)} == {np.dtype("float64")}
    assert eqx.tree_equal(validate(galaxy, info.universe_age), galaxy)
    assert info.name
    assert info.reader == ("illustris" if name == "auto" else name)
    assert eqx.tree_equal(load_galaxy(config), galaxy)
    placed = shard(galaxy, make_mesh(8)).stars
    total = np.asarray(galaxy.stars.initial_mass).sum()
    np.testing.assert_allclose(float((placed.initial_mass * placed.weight).sum()), total, rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("name", REGISTRIES["readers"].names())
def test_the_gradient_of_what_every_reader_gives(name, tmp_path):
    config = run(galaxy=READER_EXAMPLES[name](tmp_path), noise=None)
    galaxy, results = load_galaxy(config), []
    for n_devices in (1, 8):
        pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(n_devices))
        slope = jax.value_and_grad(lambda galaxy, pipeline=pipeline: weighted(pipeline(galaxy).flux))
        results.append(jax.jit(slope, compiler_options={"xla_backend_optimization_level": 0})(galaxy))
    assert_finite(results)
    assert_close(results[1], results[0], 1e-10)


def test_light_has_gradients_at_the_ends_of_the_library(setups):
    """Of age and metallicity, beyond the ends, too."""
    stars = build("paint", "stars", setups[0][0])
    painter = stars.painter

    @jax.jit
    def light(particles):
        coordinates = stars.scene(particles, None, jnp.asarray(1.0)).coordinates
        corners = painter.axes.corners(tuple(coordinates[name] for name in painter.axes.names))
        return weighted_rows(jnp.asarray(painter.spectra), corners).sum()

    before, log_age, metallicity = some_stars(5), [0.0, 6.0, 8.0, 9.18, 10.3], [0.0, 1e-4, 0.01, 0.05, 1.0]
    edge_cases = eqx.tree_at(
        lambda s: (s.log_age, s.metallicity), before, (jnp.asarray(log_age), jnp.asarray(metallicity))
    )
    assert_finite(jax.grad(light)(edge_cases))

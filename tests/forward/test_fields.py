"""Fields: sums over all particles of a kind before painting, against numpy, as maps and as what stages read."""

import functools
from dataclasses import replace
from types import SimpleNamespace

import equinox as eqx
import field_plug_ins
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from hlo import collectives
from independent import arcsec_per_kpc, luminosity_distance, sky_rotation, spaxel_coordinates
from small import mock_data, muse

from rubix_like import ConfigError, Galaxy, Gas, Pipeline, Stars, list_fields, load_config, log_posterior, make_mesh
from rubix_like.extend import AbstractField, Footprint, PaintedField, Progress
from rubix_like.forward.model import sum_fields
from rubix_like.runs.run import prepare

N_STARS, N_GAS, N_X, N_Y, PIXEL, REDSHIFT = 90, 40, 6, 4, 0.2, 0.05
INCLINATION, POSITION_ANGLE, OFFSET = 50.0, 20.0, (0.1, -0.05)
SCALE = arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT))
AREA = (PIXEL / SCALE) ** 2
"""Of a spaxel, kpc^2."""

BY_DENSITY, BY_GAS, LIFT = 4e-9, 1e-8, 5e-9
"""The plug-ins' strengths: per Msun/kpc^2, per Msun, per Msun/kpc^2."""

EVERYTHING = f"""fields: [surface_density, gas_mass]
scene: [orient, point, {{dim: {{by: surface_density, strength: {BY_DENSITY}}}}}]
paint: [stars, {{shaded: {{strength: {BY_GAS}}}}}]
cube: [{{lift: {{strength: {LIFT}}}}}]
"""


@functools.cache
def galaxy():
    """Stars of one age and metallicity at rest, some outside the field, so that all have one spectrum; and gas."""
    rng = np.random.default_rng(8)
    stars = Stars(
        position=rng.normal(size=(N_STARS, 3)) * [0.5, 0.4, 0.3],
        velocity=np.zeros((N_STARS, 3)),
        initial_mass=rng.uniform(0.5, 2.0, N_STARS) * 1e7,
        log_age=np.full(N_STARS, 9.0),
        metallicity=np.full(N_STARS, 0.02),
        mass=rng.uniform(0.2, 0.5, N_STARS) * 1e7,
    )
    gas = Gas(
        position=rng.normal(size=(N_GAS, 3)) * 0.5,
        velocity=np.random.default_rng(9).normal(size=(N_GAS, 3)) * 100.0,
        mass=rng.uniform(0.5, 2.0, N_GAS) * 1e7,
        metallicity=rng.uniform(0.01, 0.03, N_GAS),
        smoothing_length=rng.uniform(0.05, 0.5, N_GAS),
    )
    return Galaxy(stars=stars, gas=gas)


@pytest.fixture(scope="module")
def configuration(tmp_path_factory):
    """`configuration(pipeline)`: a run of the pipeline in this text; the plug-ins are announced."""
    folder = tmp_path_factory.mktemp("plug_ins")
    field_plug_ins.announce(folder)

    def of(pipeline, deposit="nearest", slab="auto", **sections):
        path = folder / "own.yaml"
        path.write_text(pipeline)
        return load_config(
            {
                "pipeline": str(path),
                "observation": {
                    "redshift": REDSHIFT,
                    "align": "none",
                    "inclination": INCLINATION,
                    "position_angle": POSITION_ANGLE,
                    "offset": OFFSET,
                },
                "instrument": muse(5000, 5040, 10, fov=(N_X * PIXEL, N_Y * PIXEL), pixel_scale=PIXEL),
                "engine": {
                    "method": "direct",
                    "precision": "float64",
                    "deposit": deposit,
                    "velocity_range": 500,
                    "slab": slab,
                },
                **sections,
            }
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield of


@pytest.fixture(scope="module")
def everything(configuration):
    """All plug-ins and maps, compiled once for four devices: the pipeline, its program, its cube."""
    config = configuration(EVERYTHING, products={"losvd": None, "gas": True, "extra": [{"metals": {"unit": 1e3}}]})
    pipeline = Pipeline.from_config(config, galaxy(), mesh=make_mesh(4))
    arguments = pipeline.arguments(galaxy())
    compiled = pipeline.compiled(*arguments).lower(*arguments).compile()
    return pipeline, compiled, arguments, pipeline.to_cube(compiled(*arguments))


def seen(position):
    """Row and column of the spaxel of each particle, from the formula, or -1 outside the field; no array of ours."""
    sky = position @ sky_rotation(INCLINATION, POSITION_ANGLE).T * SCALE
    shifted = SimpleNamespace(position=(sky + np.array([*OFFSET, 0])) / SCALE)
    column, row = (np.floor(own + 0.5).astype(int) for own in spaxel_coordinates(shifted, SCALE, PIXEL, N_X, N_Y))
    inside = (row >= 0) & (row < N_Y) & (column >= 0) & (column < N_X)
    return np.where(inside, row, -1), np.where(inside, column, -1)


def image_of(position, amount):
    """The sums of an amount in spaxels."""
    edges = (np.arange(N_Y + 1) - 0.5, np.arange(N_X + 1) - 0.5)
    return np.histogram2d(*seen(position), bins=edges, weights=amount)[0]


def density():
    return image_of(galaxy().stars.position, galaxy().stars.mass) / AREA


def gas_mass():
    return image_of(galaxy().gas.position, galaxy().gas.mass)


def expected_light(by_density=BY_DENSITY, by_gas=BY_GAS, lift=LIFT):
    """Birth mass in each spaxel, dimmed and lifted as the plug-ins do, once as `stars` and once as `shaded`."""
    stars = galaxy().stars
    born = image_of(stars.position, stars.initial_mass)
    return born * np.exp(-by_density * density()) * (1 + np.exp(-by_gas * gas_mass())) * (1 + lift * density())


def test_the_surface_density_is_the_mass_now_over_the_area(everything):
    """Without a PSF, before it is after it."""
    maps = everything[3].maps
    assert (density() > 0).sum() > 15
    for images in (maps.before, maps.after):
        np.testing.assert_allclose(images.fields["surface_density"], density(), rtol=1e-6)
        np.testing.assert_allclose(images.fields["gas_mass"], gas_mass(), rtol=1e-6)
    assert [tuple(label) for label in maps.fields] == [
        ("surface_density", "solMass kpc-2", "surface density of stars, mass now"),
        ("gas_mass", "solMass", "mass of gas"),
        ("metal_mass", "solMass", "mass of metals"),
        ("metal_v", "km s-1", "velocity"),
    ]


def test_maps_of_gas_are_those_of_all_gas_also_where_stages_dim_light(everything):
    """Gas that forms no stars, so far as is known, has no map of that."""
    gas, images = galaxy().gas, everything[3].maps.before
    metals = image_of(gas.position, gas.mass * gas.metallicity)
    np.testing.assert_allclose(images.gas_mass, gas_mass(), rtol=1e-12)
    np.testing.assert_allclose(
        images.metallicity_gas * images.gas_mass, np.where(metals > 0, metals, np.nan), rtol=1e-9
    )
    assert images.star_formation_rate is None


def test_maps_of_a_plug_in_are_sums_over_its_particles(everything, tmp_path):
    """Its masses, and their mean velocity along the line of sight, by numpy; the file holds them with their units."""
    gas, maps = galaxy().gas, everything[3].maps
    mass = gas.mass * gas.metallicity / 1e3
    v_los = gas.velocity @ sky_rotation(INCLINATION, POSITION_ANGLE)[2]
    expected = image_of(gas.position, mass)
    lit = expected > 0
    assert lit.sum() > 10
    for images in (maps.before, maps.after):
        np.testing.assert_allclose(images.fields["metal_mass"], expected, rtol=1e-12)
        found = np.asarray(images.fields["metal_v"])
        np.testing.assert_allclose(found[lit], (image_of(gas.position, mass * v_los)[lit] / expected[lit]), rtol=1e-9)
        assert np.isnan(found[~lit]).all()
    with fits.open(maps.write(tmp_path / "maps.fits")) as hdus:
        np.testing.assert_allclose(hdus["FIELD_METAL_MASS"].data, expected, rtol=1e-6)
        assert hdus["FIELD_METAL_V"].header["BUNIT"] == "km s-1"


def test_stages_and_sources_read_fields_of_all_particles(everything):
    """Each spaxel's spectrum is that of one star times what numpy makes of the masses; every star has the same."""
    _, compiled, (tables, *others), cube = everything

    def strengths(tables):
        return [tables.scene[2].strength, tables.paint[1].strength, tables.cube[0].strength]

    off = eqx.tree_at(strengths, tables, [jnp.zeros_like(own) for own in strengths(tables)])
    clear = np.asarray(compiled(off, *others).voxels.flux)
    expected, without = expected_light(), expected_light(0, 0, 0)
    lit = without > 0
    ratio = (np.asarray(cube.flux)[lit] / clear[lit]).T
    assert ratio.min() < 0.6
    np.testing.assert_allclose(ratio, np.broadcast_to(expected[lit] / without[lit], ratio.shape), rtol=1e-9)
    spectrum = clear[lit] / without[lit][:, None]
    np.testing.assert_allclose(spectrum, np.broadcast_to(spectrum[0], spectrum.shape), rtol=1e-9)


def test_each_pass_has_one_sum_over_devices(everything):
    assert collectives(everything[1].as_text()) == [("all-reduce", "ENTRY")] * 2


def test_slabs_make_the_same_in_two_passes(everything):
    """From a list of slabs; one that can be gone through only once is refused."""
    pipeline, *_, whole = everything
    slabs = [jax.tree.map(lambda leaf, part=part: leaf[part::2], galaxy()) for part in (0, 1)]
    cube = pipeline.observe_slabs(slabs)
    np.testing.assert_allclose(cube.flux, whole.flux, rtol=1e-12)
    for name, image in whole.maps.after.fields.items():
        np.testing.assert_allclose(cube.maps.after.fields[name], image, rtol=1e-12)
    for name in ("gas_mass", "metallicity_gas"):
        np.testing.assert_allclose(getattr(cube.maps.after, name), getattr(whole.maps.after, name), rtol=1e-12)
    with pytest.raises(ValueError, match=r"slabs: expected a list.*surface_density, gas_mass, take a pass.*generator"):
        pipeline.observe_slabs(slab for slab in slabs)


@pytest.mark.slow
def test_a_run_by_slabs_sums_the_fields_of_every_pointing_first(configuration):
    """Two pointings in one pass or two, bins painted apart: the cubes and maps of all particles at once."""
    pointings = [{"offset": [0, 0]}, {"offset": [0.2, 0]}]
    own = {"observation": {"redshift": REDSHIFT, "align": "none", "pointings": pointings}}
    text = f"fields: [surface_density]\nscene: [point, {{dim: {{by: surface_density, strength: {BY_DENSITY}}}}}]\n"
    synthetic = {"galaxy": {"reader": "synthetic", "n_stars": 100}, "products": {"losvd": None}, **own}
    cubes = {}
    apart = {"data": 4, "wave": 2, "output": "replicated"}
    for slab, devices in (("all", {"data": 8}), (15, apart)):
        config = configuration(text + "paint: [stars]\n", slab=slab, devices=devices, **synthetic)
        with prepare(config, Progress()) as prepared:
            cubes[slab] = [cube for _, cube in prepared.observer.cubes(Progress())]
            observer, program = prepared.observer, prepared.observer.program
    assert program.n_pass == 2
    assert [collectives(programs.add.as_text()) for programs in program.programs] == [[], []]
    assert collectives(program.programs[0].finish.as_text()) == [("all-reduce", "ENTRY")]
    one, two = (replace(program, n_pass=count).need(0).device for count in (1, 2))
    sums = program.programs[-1].rounded.memory_analysis().output_size_in_bytes
    assert two - one >= sums + cubes["all"][0].maps.before.fields["surface_density"].nbytes
    cubes["apart"] = [cube for _, cube in replace(observer, program=replace(program, n_pass=1)).cubes(Progress())]
    for way in (15, "apart"):
        for found, whole in zip(cubes[way], cubes["all"], strict=True):
            np.testing.assert_allclose(found.flux, whole.flux, rtol=1e-11)
            density = (cube.maps.before.fields["surface_density"] for cube in (found, whole))
            np.testing.assert_allclose(*density, rtol=1e-12)


def field_alone(pipeline, stars, parameters):
    """The surface density of one pipeline, by none but its own code."""
    sums = sum_fields(pipeline.plan, pipeline.tables, parameters, (stars,))
    return pipeline.tables.fields[0].finish(sums, pipeline.tables.grid).values


DIMMED_BY_GAS = "fields: [gas_mass]\nscene: [orient, point, {dim: {by: gas_mass, strength: 1e-9}}]\npaint: [stars]\n"


def posed(configuration, pipeline, *free, n_gas=30):
    """The posterior of a fit of a synthetic galaxy to a mock of one flux."""
    own = {"reader": "synthetic", "n_stars": 40, "n_gas": n_gas, "disc_scale_length": 0.3, "gas_scale_length": 0.4}
    fit = {"free": {f"galaxy.{name}": {"uniform": [0.1, 100]} for name in free}}
    config = configuration(pipeline, "tsc", galaxy=own, devices={"data": 1}, fit=fit)
    return log_posterior(config, mock_data((N_Y, N_X, 5))).problem.posterior


@pytest.mark.slow
def test_a_fit_draws_the_gas_that_is_read(configuration):
    """Otherwise it draws none, and no parameter of the gas can be free."""
    assert posed(configuration, DIMMED_BY_GAS, "rotation_velocity").forward.source.draws.gas is not None
    stellar = "scene: [orient, point]\npaint: [stars]\n"
    assert posed(configuration, stellar, "rotation_velocity").forward.source.draws.gas is None
    with pytest.raises(ConfigError, match=r"galaxy.gas_scale_length: expected a galaxy with gas .* does not read it"):
        posed(configuration, stellar, "gas_scale_length")
    with pytest.raises(ConfigError, match=r"galaxy.gas_scale_length: expected a galaxy with gas .*n_gas"):
        posed(configuration, DIMMED_BY_GAS, "gas_scale_length", n_gas=0)
    with pytest.raises(ConfigError, match=r"galaxy.gas_rotation_velocity, got none: it is null"):
        posed(configuration, DIMMED_BY_GAS, "gas_rotation_velocity")


@pytest.mark.slow
def test_a_fits_model_has_the_gradient_of_its_gas(configuration):
    """Of the light that gas leaves, with respect to the gas disc's length and mass."""
    names = ("galaxy.gas_scale_length", "galaxy.gas_fraction")
    forward = posed(configuration, DIMMED_BY_GAS, *(name.removeprefix("galaxy.") for name in names)).forward

    @jax.jit
    def light(forward, values):
        flux = forward.observed(dict(zip(names, values, strict=True))).voxels.flux
        return (flux * jnp.cos(jnp.arange(flux.size, dtype=flux.dtype)).reshape(flux.shape)).sum()

    at = jnp.asarray([0.4, 0.1])
    slope = jax.jit(jax.grad(light, argnums=1))(forward, at)
    for number, step in enumerate((1e-5, 1e-6)):
        up, down = (float(light(forward, at.at[number].add(sign * step))) for sign in (1, -1))
        assert abs(float(slope[number])) > 0
        assert float(slope[number]) == pytest.approx((up - down) / (2 * step), rel=1e-5)


def test_a_field_has_the_gradient_of_its_deposit(configuration):
    """With respect to the inclination and to masses, against differences; smooth with `tsc`. A stage looks at ages."""
    config = configuration("fields: [surface_density]\nscene: [orient, fade, point]\npaint: [stars]\n", "tsc")
    pipeline = jax.device_put(Pipeline.from_config(config, galaxy(), mesh=make_mesh(1)), jax.devices()[0])
    stars = jax.tree.map(jnp.asarray, replace(galaxy().stars, weight=np.ones(N_STARS)))
    pattern = np.random.default_rng(2).normal(size=(N_Y, N_X))

    @jax.jit
    def loss(inclination, mass):
        parameters = eqx.tree_at(lambda p: p.observation.inclination, pipeline.parameters, inclination)
        return (field_alone(pipeline, replace(stars, mass=mass), parameters) * pattern).sum() / 1e9

    point = (jnp.asarray(INCLINATION), stars.mass)
    of_angle, of_mass = jax.grad(loss, argnums=(0, 1))(*point)
    step = 1e-4
    difference = (loss(point[0] + step, stars.mass) - loss(point[0] - step, stars.mass)) / (2 * step)
    assert abs(difference) > 1e-4
    assert float(of_angle) == pytest.approx(float(difference), rel=1e-5)
    heavier = stars.mass.at[7].add(1e6)
    assert float(of_mass[7]) == pytest.approx(float(loss(point[0], heavier) - loss(*point)) / 1e6, rel=1e-6)


@pytest.mark.slow
def test_a_cube_has_the_gradient_of_what_its_stages_read(configuration):
    """Gas shines nowhere: its masses act through the field alone. On eight devices."""
    text = (
        f"fields: [gas_mass]\nscene: [orient, point, {{dim: {{by: gas_mass, strength: {BY_GAS}}}}}]\npaint: [stars]\n"
    )
    pipeline = Pipeline.from_config(configuration(text, "tsc"), galaxy(), mesh=make_mesh(8))

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(1, 2))
    def loss(pipeline, own, inclination):
        chosen = eqx.tree_at(lambda p: p.observation.inclination, pipeline.parameters, inclination)
        flux = pipeline(own, chosen).flux
        return (flux * jnp.cos(jnp.arange(flux.size, dtype=flux.dtype)).reshape(flux.shape)).sum()

    own, angle = jax.tree.map(jnp.asarray, galaxy()), jnp.asarray(INCLINATION)
    _, (of_galaxy, of_angle) = loss(pipeline, own, angle)
    heavier = [eqx.tree_at(lambda g: g.gas.mass, own, own.gas.mass.at[3].add(step)) for step in (1e3, -1e3)]
    difference = (loss(pipeline, heavier[0], angle)[0] - loss(pipeline, heavier[1], angle)[0]) / 2e3
    assert abs(difference) > 0
    assert float(of_galaxy.gas.mass[3]) == pytest.approx(float(difference), rel=1e-4)
    difference = (loss(pipeline, own, angle + 1e-4)[0] - loss(pipeline, own, angle - 1e-4)[0]) / 2e-4
    assert float(of_angle) == pytest.approx(float(difference), rel=1e-4)


@pytest.mark.parametrize("cells", [1, 2])
def test_a_field_between_its_cells(cells):
    """`at` interpolates per spaxel as `cic` deposits; beyond the grid there is nothing; cells of a spaxel add up."""
    values = np.arange(16.0 * 24).reshape(16, 24)
    field = PaintedField(jnp.asarray(values), Footprint(16, 24, 0.5), cells, "cic")
    column, row = np.array([3.0, 3.5, 40.0]), np.array([2.0, 4.25, 2.0])
    position = np.stack([(11.5 - column) * 0.5, (row - 7.5) * 0.5, np.zeros(3)], axis=1)
    expected = cells**2 * np.array([2 * 24 + 3, 4.25 * 24 + 3.5, 0.0])
    np.testing.assert_allclose(eqx.filter_jit(field.at)(jnp.asarray(position)), expected, rtol=1e-12)
    image = values[4:12, 6:18].reshape(8 // cells, cells, 12 // cells, cells).sum(axis=(1, 3))
    inner = Footprint(8 // cells, 12 // cells, 0.5 * cells)
    np.testing.assert_array_equal(inner.images(field.on(inner)), image)


@pytest.mark.parametrize("name", list(list_fields()))
def test_every_field(name, configuration):
    """Parts of the particles add up, padding adds nothing; what it holds and its gradient are finite."""
    agn = {"log_luminosity": 44, "radius": 0.8}
    dust = {"kind": "particles", "cold": None, "cells": 8}
    text = f"fields: [{name}]\nscene: [orient, point]\npaint: [stars]\n"
    config = configuration(text, "cic", nebular={"agn": agn}, dust=dust)
    pipeline = jax.device_put(Pipeline.from_config(config, galaxy(), mesh=make_mesh(1)), jax.devices()[0])
    (field,) = pipeline.tables.fields
    assert isinstance(field, AbstractField)
    weight = np.ones(N_STARS if field.kind == "stars" else N_GAS)
    weight[-9:] = 0
    padded = jax.tree.map(jnp.asarray, replace(getattr(galaxy(), field.kind), weight=weight))

    @jax.jit
    def sums(particles):
        return sum_fields(pipeline.plan, pipeline.tables, pipeline.parameters, (particles,))

    whole = sums(padded)
    parts = [jax.tree.map(lambda leaf, cut=cut: leaf[cut], padded) for cut in (slice(40), slice(40, -9))]
    np.testing.assert_allclose(sum(map(sums, parts)), whole, rtol=1e-12)
    finished = eqx.filter_jit(field.finish)(whole, pipeline.tables.grid)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(finished))
    slope = jax.jit(jax.grad(lambda own: (sums(own) ** 2).sum()))(padded)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))


@pytest.mark.parametrize(
    ("pipeline", "words"),
    [
        ("fields: [surface_density, surface_density]\npaint: [stars]\n", "each field once, got surface_density, surf"),
        (
            "fields: [surface_densty]\npaint: [stars]\n",
            r"pipeline: .*\.yaml: fields: unknown field 'surface_densty'; did you mean 'surface_density'",
        ),
        (
            EVERYTHING.replace(", gas_mass]", "]"),
            r"expected 'gas_mass' \(stage 'shaded' reads it\), got surface_density",
        ),
        (EVERYTHING.replace("fields: [surface_density, gas_mass]", ""), r"expected 'surface_density' .*got none; add"),
        (
            "fields: [surface_density]\npaint: [stars]\nscene: [{dim: {by: surface_density, strength: 1}}, orient]\n",
            r"pipeline.scene: expected 'orient' before 'dim' \(which reads fields",
        ),
    ],
)
def test_a_pipeline_whose_fields_cannot_be_is_refused(configuration, pipeline, words):
    with pytest.raises(ConfigError, match=words):
        Pipeline.from_config(configuration(pipeline), galaxy())


def test_a_field_of_gas_needs_gas(everything):
    with pytest.raises(ValueError, match=r"galaxy\.gas: expected particles for a field of the pipeline, got none"):
        everything[0](Galaxy(stars=galaxy().stars))

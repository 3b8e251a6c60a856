"""Field `dust_column`: which gas has dust and how much, its map, devices, slabs, and what a run without it costs."""

import dataclasses
import functools

import equinox as eqx
import field_plug_ins
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from dust_extinction.parameter_averages import CCM89
from hlo import collectives
from independent import arcsec_per_kpc, luminosity_distance, sky_rotation
from kernel_columns import exact_columns
from observing import configuration, galaxy_of, observe

from rubix_like import ConfigError, Cube, Galaxy, Gas, Pipeline, make_mesh
from rubix_like.extend import make_setup, resolve
from rubix_like.forward.fields.dust_column import DustColumn, check_dust, counters_of
from rubix_like.forward.model import scene_before_fields
from rubix_like.runs.run_summary import dust_lines

REDSHIFT, N_GAS, N_STARS, INCLINATION, OPACITY = 0.05, 300, 60, 50.0, 0.25
SCALE = arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT))
SMALL = {"wavelength": {"start": 5000, "stop": 5010, "step": 5}, "fov": 3.0, "pixel_scale": 0.2}


@functools.cache
def galaxy():
    """A disc of cold gas, and stars of one kind within it."""
    rng = np.random.default_rng(2)
    gas = Gas(
        position=rng.normal(size=(N_GAS, 3)) * [0.4, 0.4, 0.1],
        velocity=np.zeros((N_GAS, 3)),
        mass=rng.uniform(0.5, 1.5, N_GAS) * 1e6,
        metallicity=rng.uniform(0.01, 0.03, N_GAS),
        temperature=np.full(N_GAS, 100.0),
        smoothing_length=rng.uniform(0.2, 0.4, N_GAS),
    )
    stars = galaxy_of(rng.normal(size=(N_STARS, 3)) * [0.3, 0.3, 0.1]).stars
    return Galaxy(stars=stars, gas=gas)


@pytest.fixture(scope="module")
def dimmed():
    """`dimmed(n_devices)`: stars behind their columns, with the map of all columns, for `galaxy()`."""

    def of(n_devices, **sections):
        config = configuration(
            dust={"kind": "particles", "cells": 32, "opacity": OPACITY},
            observation={"inclination": INCLINATION, "position_angle": 0.0, "redshift": REDSHIFT},
            instrument=SMALL,
            products={"losvd": None},
            **sections,
        )
        return Pipeline.from_config(config, galaxy(), mesh=make_mesh(n_devices))

    return of


@pytest.fixture(scope="module")
def on_eight(dimmed):
    """The pipeline on eight devices, its compiled program, its cube, and the light without dust."""
    pipeline = dimmed(8)
    arguments = pipeline.arguments(galaxy())
    compiled = pipeline.compiled(*arguments).lower(*arguments).compile()
    clear = compiled(*pipeline.arguments(galaxy(), {"dust.opacity": 0}))
    return pipeline, compiled, pipeline.to_cube(compiled(*arguments)), float(np.sum(clear.voxels.flux))


def seen(position):
    return np.asarray(position) @ sky_rotation(INCLINATION, 0.0).T


def test_stars_are_dimmed_by_the_columns_of_the_kernels(on_eight):
    """The light of all stars to 1.5 %, and the whole map's mass to 2 %; the columns alone in test_pyramid."""
    _, compiled, cube, bare = on_eight
    gas, stars = galaxy().gas, galaxy().stars
    dust = 0.4 * gas.metallicity * gas.mass
    columns = exact_columns(seen(stars.position), seen(gas.position), dust, gas.smoothing_length) / 1e6
    a_lambda = OPACITY * columns * float(CCM89(Rv=3.1)(5005 / (1 + REDSHIFT) * units.AA))
    assert np.median(a_lambda) > 0.2
    assert float(np.asarray(cube.flux).sum() / bare) == pytest.approx(np.mean(10 ** (-0.4 * a_lambda)), rel=0.015)
    image = cube.maps.before.fields["dust_column"]
    assert image.sum() * (0.2 / SCALE * 1e3) ** 2 == pytest.approx(dust.sum(), rel=0.02)
    assert collectives(compiled.as_text()) == [("all-reduce", "ENTRY")] * 2


def test_a_run_says_which_gas_has_dust(on_eight, tmp_path):
    """In its counters, its summary and the header of its file."""
    cube, gas = on_eight[2], galaxy().gas
    own, dust = cube.source_counters["dust_column"], 0.4 * gas.metallicity * gas.mass
    assert (int(own.n_particles), int(own.n_outside), int(own.n_clamped["line_of_sight"])) == (N_GAS, 0, 0)
    assert float(own.amount_total) == pytest.approx(dust.sum(), rel=1e-12)
    said = [f"Dust of the gas: curve cardelli, R(V) 3.1; {dust.sum():.3g} Msun in 300 gas particles"]
    assert dust_lines(cube) == said
    three, tenth = jnp.asarray(3.0), 0.1 * own.amount_total
    some = dataclasses.replace(own, n_outside=three, amount_outside=tenth, n_clamped={"line_of_sight": three})
    assert dust_lines(dataclasses.replace(cube, source_counters={"dust_column": some})) == [
        *said,
        "3 of these gas particles (10 % of their dust) are beside the painted field: not in the columns",
        "3 of these gas particles (0 % of their dust) are in front of the grids of the columns or behind them: put at "
        "their ends",
    ]
    path = cube.write(tmp_path / "cube.fits")
    header = fits.getheader(path)
    assert (header["NDUSTGAS"], header["NDUSTOUT"], header["NDUSTFAR"]) == (N_GAS, 0, 0)
    assert header["DUSTMASS"] == pytest.approx(dust.sum())
    cards = "DUSTKIND", "DUSTGCRV", "DUSTGRV", "DUSTDTM", "DUSTOPAC", "DUSTCOLD", "DUSTBAGE", "DUSTMAX"
    assert [header[name] for name in cards] == ["particles", "cardelli", 3.1, 0.4, OPACITY, 8000.0, 10.0, 10.0]
    assert "DUSTGSLP" not in header
    read = Cube.read(path)
    assert jax.tree.all(jax.tree.map(np.array_equal, read.source_counters, cube.source_counters))


def test_gas_beyond_the_ends_of_the_grids_and_broken_gas_are_counted(pipeline):
    """The ends are 2 x 1.15 times as far as the field is wide: 6.9 arcsec from the middle."""
    tables, (field,) = pipeline.tables, pipeline.tables.fields
    place = np.zeros((N_GAS, 3))
    place[:4, 2] = np.array([6.8, 7.0, -7.0, 0.0]) / SCALE
    place[4:6, 1] = np.array([1.4, 1.6]) / SCALE
    mass = galaxy().gas.mass.copy()
    mass[3] = np.nan
    gas = dataclasses.replace(galaxy().gas, position=place, mass=mass)
    counts = field.count(gas, scene_before_fields(tables, pipeline.parameters, "gas", gas), tables.grid)
    dust = np.nan_to_num(0.4 * gas.metallicity * mass)
    np.testing.assert_allclose(counts, [N_GAS - 1, 1, 2, dust.sum(), dust[5], dust[1:3].sum(), 1], rtol=1e-12)
    with pytest.raises(ValueError, match=r"galaxy\.gas: expected finite masses.* for its dust, got 1 particles"):
        check_dust(counters_of(counts))


@pytest.mark.slow(10)
def test_gradients_are_those_of_differences(dimmed):
    """With respect to the dust-to-metal ratio, the inclination and a mass of gas; tsc also over 1 deg, to 1 %."""
    pipeline = dimmed(1, engine={"deposit": "tsc"})
    own = jax.tree.map(jnp.asarray, galaxy())

    def light(ratio, inclination, mass):
        parameters = eqx.tree_at(
            lambda p: (p.dust.dust_to_metal, p.observation.inclination), pipeline.parameters, (ratio, inclination)
        )
        flux = pipeline(eqx.tree_at(lambda g: g.gas.mass, own, mass), parameters).flux
        return flux.sum() / 1e3

    light = jax.jit(light)
    point = (jnp.asarray(0.4), jnp.asarray(INCLINATION), own.gas.mass)
    slopes = jax.jit(jax.grad(light, argnums=(0, 1, 2)))(*point)

    def difference(number, step):
        up, down = (light(*point[:number], point[number] + s, *point[number + 1 :]) for s in (step, -step))
        return float(up - down) / 2

    assert float(slopes[0]) == pytest.approx(difference(0, 1e-5) / 1e-5, rel=1e-4)
    assert float(slopes[1]) == pytest.approx(difference(1, 1e-6) / 1e-6, rel=1e-3)
    one = jnp.zeros(N_GAS).at[5].set(1e2)
    assert float(slopes[2][5]) == pytest.approx(difference(2, one) / 1e2, rel=1e-4)
    assert float(slopes[1]) == pytest.approx(difference(1, 1.0), rel=0.01)


def run_of(engine=None, fit=None, **dust):
    return configuration(dust={"kind": "particles", **dust}, engine=engine, fit=fit, instrument=SMALL)


def field_of(**sections):
    """The field of a run without a galaxy."""
    config = run_of(**sections)
    return DustColumn.build(make_setup(config, resolve(config), None), {})


def test_which_gas_has_dust():
    """Gas that is cold or forms stars, or has cooled by Torrey et al. (2012); the file's own dust where it has any."""
    hot = dataclasses.replace(
        galaxy().gas,
        temperature=np.resize([100.0, 2e4, 2e4, 1e6], N_GAS),
        star_formation_rate=np.resize([0.0, 0.0, 1e-3, 0.0], N_GAS),
        density=np.full(N_GAS, 1e6),
    )
    metals = hot.metallicity * hot.mass
    for dust, dusty in [
        ({}, [1, 0, 1, 0]),
        ({"cold": None}, [1, 1, 1, 1]),
        ({"cold": 3e4}, [1, 1, 1, 0]),
        ({"hot_dust": "torrey"}, [1, 1, 1, 0]),  # 1e6 K (1e6 / (1e10 0.677^2))^0.25 = 1.2e5 K
    ]:
        np.testing.assert_allclose(field_of(**dust).mass(hot), 0.4 * metals * np.resize(dusty, N_GAS), rtol=1e-12)
    own = dataclasses.replace(hot, dust_mass=np.arange(N_GAS) * 1.0)
    np.testing.assert_array_equal(field_of().mass(own), own.dust_mass)
    with pytest.raises(ValueError, match=r"gas.density: expected densities .* set dust.hot_dust: none"):
        field_of(hot_dust="torrey").mass(galaxy().gas)


@pytest.mark.parametrize(
    ("gas", "message"),
    [
        ({"temperature": None}, r"gas.temperature: expected temperatures .* got none; give .*dust.cold: null"),
        ({"metallicity": None}, r"gas.metallicity: expected metals .* neither metallicity nor dust_mass"),
        ({"smoothing_length": None}, r"gas.smoothing_length: expected the widths .* neither .* nor density"),
    ],
)
def test_gas_that_is_refused(pipeline, gas, message):
    with pytest.raises(ValueError, match=message):
        pipeline.trace(with_gas(**gas))


def test_a_density_stands_for_a_width():
    """Twice the radius of a sphere of the cell's volume, without bounds where the density is 0."""
    gas = dataclasses.replace(galaxy().gas, smoothing_length=None, density=np.full(N_GAS, 1e7))
    expected = 2 * np.cbrt(3 * gas.mass / 1e7 / (4 * np.pi))
    field = field_of()
    np.testing.assert_allclose(field.lengths(gas), expected * SCALE, rtol=1e-9)
    gas = dataclasses.replace(gas, density=np.zeros(N_GAS))
    assert (np.asarray(field.lengths(gas)) > 1e5 * SCALE).all()


@pytest.fixture(scope="module")
def pipeline():
    """Of any galaxy of so many stars and gas particles, planned from `galaxy()`."""
    config = configuration(dust={"kind": "particles", "cells": 16}, instrument=SMALL)
    return Pipeline.from_config(config, galaxy(), mesh=make_mesh(1))


def with_gas(**columns):
    return dataclasses.replace(galaxy(), gas=dataclasses.replace(galaxy().gas, **columns))


EVERY = np.ones(N_GAS)
BEHIND, IN_FRONT = (galaxy().gas.position + np.array([[0.0, 0.0, z]]) for z in (50.0, -50.0))
LUMP = {"position": EVERY[:, None] * [[0.0, 0.0, -1.0]], "mass": EVERY * 1e8 / N_GAS}
EDGES = {
    "zero metals": ({"metallicity": 0 * EVERY}, 1.0, 1.0),
    "gas only behind": ({"position": BEHIND}, 1.0, 1.0),
    "gas only in front": ({"position": IN_FRONT}, 1e-12, 0.05),
    "gas too hot for dust": ({"temperature": 1e6 * EVERY}, 1.0, 1.0),
    "cells larger than the field": ({"smoothing_length": 1e3 * EVERY}, 0.5, 0.999),
    "points": ({"smoothing_length": 0 * EVERY}, 0.0, 0.5),
    "1e8 Msun in one cell": (LUMP, 0.05, 0.99),
}


@pytest.mark.parametrize("case", EDGES)
def test_edges_of_gas(case, pipeline):
    """What is left of the light of all stars lies between two numbers; nothing is negative or not finite."""
    columns, least, most = EDGES[case]
    clear = eqx.tree_at(lambda p: p.dust.opacity, pipeline.parameters, jnp.asarray(0.0))
    flux, bare = np.asarray(pipeline(with_gas(**columns)).flux), np.asarray(pipeline(galaxy(), clear).flux)
    assert np.isfinite(flux).all()
    assert (flux >= 0).all()
    assert least * (1 - 1e-12) <= flux.sum() / bare.sum() <= most * (1 + 1e-12)


@pytest.mark.parametrize(
    ("column", "value"), [("mass", -1.0), ("mass", 1e25), ("metallicity", -0.1), ("metallicity", 2)]
)
def test_dust_of_impossible_gas_is_refused(pipeline, column, value):
    words = rf"galaxy\.gas: expected .* masses from 0 .* for its dust, got {N_GAS} particles"
    with pytest.raises(ValueError, match=words):
        pipeline(with_gas(**{column: value * EVERY}))


def test_stars_beyond_the_field_and_gas_that_is_not_finite(pipeline):
    """The first are counted; the second is refused in a call, too, where only stars are looked at."""
    moved = eqx.tree_at(lambda g: g.stars.position, galaxy(), galaxy().stars.position + np.array([[1e3, 0.0, 0.0]]))
    cube = pipeline(moved)
    assert int(cube.counters.n_outside) == N_STARS
    assert (np.asarray(cube.flux) == 0).all()
    with pytest.raises(ValueError, match=r"expected finite .* got \d+ of 60 stars with others; rubix_like.validate"):
        pipeline(with_gas(mass=np.nan * EVERY))


def test_a_run_without_such_dust_has_no_field():
    """The packaged pipelines list it; a screen leaves it out of the program."""
    pipeline = Pipeline.from_config(configuration(dust={"a_v": 0.3}, instrument=SMALL), galaxy(), mesh=make_mesh(1))
    assert (pipeline.plan.fields, pipeline.tables.fields) == ((), ())


def test_a_pipeline_without_the_field_says_so(tmp_path, monkeypatch):
    path = tmp_path / "bare.yaml"
    path.write_text("paint: [stars]\n")
    config = configuration(pipeline=str(path), dust={"kind": "particles"}, instrument=SMALL)
    notes = Pipeline.from_config(config, galaxy(), mesh=make_mesh(1)).notes
    assert "the pipeline 'bare' has no field 'dust_column': the section dust has no effect" in notes
    field_plug_ins.announce(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path.write_text("fields: [dust_column]\nscene: [{dim: {by: dust_column, strength: 1}}]\npaint: [stars]\n")
    config = configuration(pipeline=str(path), instrument=SMALL)
    with pytest.raises(ConfigError, match=r"expected a 'dust_column' that holds something \(stage 'dim' reads it\)"):
        Pipeline.from_config(config, galaxy(), mesh=make_mesh(1))


def test_a_galaxy_without_gas_behind_a_foreground(caplog):
    """It has no dust of its own, which is said; the foreground is that of a screen."""
    stars = Galaxy(stars=galaxy().stars)
    screen = {"a_v": 0.3, "curve": "gordon"}
    dusts = {**screen, "place": "foreground"}, {"kind": "particles", "cells": 4, "foreground": screen}
    only, both = (
        observe(configuration(dust=dust, instrument=SMALL, products=products), stars)
        for dust, products in zip(dusts, (None, {"losvd": None}), strict=True)
    )
    np.testing.assert_allclose(both.flux, only.flux, rtol=1e-12)
    assert (both.maps.before.fields["dust_column"] == 0).all()
    assert "dust of kind particles: none but that of birth clouds (there is no gas, or none of it has" in caplog.text
    said, foreground = dust_lines(both)
    assert said.startswith(
        "Dust of the gas: curve cardelli, R(V) 3.1; none: there is no gas, or none of it has dust (no"
    )
    assert [foreground] == dust_lines(only)
    assert foreground == "Dust: a screen in the foreground, A(V) 0.3 mag, curve gordon, R(V) 3.1"
    assert (both.meta["dust_a_v"], both.meta["dust_place"]) == (0.3, "foreground")
    assert (both.meta["dust_kind"], both.meta["dust_to_metal"], both.meta["dust_gas_curve"]) == (
        "particles",
        0.4,
        "cardelli",
    )


@pytest.mark.parametrize(
    ("deposit", "free", "shared"),
    [
        ("cic", (), "cic"),
        ("tsc", (), "tsc"),
        ("cic", ("dust.dust_to_metal",), "cic"),
        ("cic", ("observation.inclination",), "tsc"),
    ],
)
def test_fits_of_places_take_a_smooth_deposit(deposit, free, shared):
    fit = {"free": {name: {"uniform": [0.1, 0.9]} for name in free}} if free else None
    sections = {"engine": {"deposit": deposit}, "fit": fit}
    assert run_of(**sections).frees_places == ("observation.inclination" in free)
    assert field_of(**sections).shared == shared

"""Lines against an independent sum in numpy: scipy's error function at every bin's borders, in 64 bits."""

import dataclasses
import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import REGISTRIES
from hlo import collectives
from scipy.interpolate import RegularGridInterpolator
from scipy.special import erf
from small import few_stars

from rubix_like import ConfigError, Galaxy, Gas, Pipeline, load_config, load_nebular, make_mesh
from rubix_like.engine.lines.line_planning import FAINT_LINE, find_ratios, reference_light
from rubix_like.extend import (
    AbstractSource,
    LineTemplates,
    build_line_painter,
    fixed,
    line_grid,
    plan_lines,
    refuse_options,
    to_scene,
    with_dispersion,
)
from rubix_like.nebular import LINES as KNOWN_LINES

SPEED_OF_LIGHT = 299792.458
REDSHIFT, DISTANCE = 0.01, 40.0
LUMINOSITY = 3.828e33 / (4 * np.pi * (3.0856775814913673e24) ** 2) * 1e20 / DISTANCE**2
"""Flux of 1 Lsun in 1e-20 erg/s/cm2."""
LIMIT = 400.0

LINES = {"Hb": 4862.691, "[O III] 4959": 4960.295, "[O III] 5007": 5008.240}
RATIOS = (1.0, 0.5, 1.5)
LINEAR = {
    "wavelength": {"sampling": "linear", "medium": "air", "start": 4910, "stop": 5090, "step": "1.25 Angstrom"},
    "lsf": {"polynomial": [6.040, -9.187e-4, 5.866e-8], "includes_pixel": True},
}
LOG = {
    "wavelength": {"sampling": "log", "medium": "vacuum", "start": 4911.0, "stop": 5100, "step": "1e-4 dex"},
    "lsf": {"wavelength": [4800, 5000, 5200], "resolving_power": [1800, 2000, 1900]},
}
NARROW = {**LINEAR, "lsf": None}
TABLE = {
    "wavelength": {"medium": "air", "edges": (4910 + np.cumsum(np.linspace(0.7, 2.9, 101))).tolist()},
    "lsf": {"fwhm": 2.6},
}
CASES = {"linear": LINEAR, "log": LOG, "narrow": NARROW, "table": TABLE}
DISPERSION = {"linear": 30.0, "log": 0.0, "narrow": 60.0, "table": 40.0}


def galaxy(n=9):
    """Gas, one particle in the middle of each of 3 x 3 spaxels of 1 arcsec, at velocities that no node has."""
    rng = np.random.default_rng(5)
    row, column = np.divmod(np.arange(n) % 9, 3)
    place = np.stack([1.0 - column, row - 1.0, np.zeros(n)], axis=1)
    place /= 3600 * np.degrees((1 + REDSHIFT) ** 2 / (1e3 * DISTANCE))  # by the angular-diameter distance in kpc
    velocity = rng.normal(0, 50, (n, 3))
    velocity[:, 2] = rng.uniform(-LIMIT + 20, LIMIT - 20, n)
    gas = Gas(position=place, velocity=velocity, mass=rng.uniform(1.0, 3.0, n), metallicity=np.full(n, 0.02))
    return Galaxy(stars=few_stars(2, 0.01).stars, gas=gas)


def config_of(case, method, **changes):
    return load_config(
        {
            "pipeline": "lines",
            "observation": {"redshift": REDSHIFT, "distance": f"{DISTANCE} Mpc", "align": "none"},
            "instrument": {"name": "muse", "fov": "3 arcsec", "pixel_scale": "1 arcsec", "psf": None, **CASES[case]},
            "lines": {
                "wavelengths": list(LINES),
                "ratios": list(RATIOS),
                "luminosity": 2.0,
                "velocity_dispersion": DISPERSION[case],
            },
            "engine": {"method": method, "precision": "float64", "velocity_range": LIMIT},
        },
        changes,
    )


@functools.cache
def pipeline_of(case, method, n_devices=1):
    return Pipeline.from_config(config_of(case, method), galaxy(), mesh=make_mesh(n_devices))


@functools.cache
def spectra_of(case, method):
    cube = pipeline_of(case, method)(galaxy())
    return cube, np.asarray(cube.flux).reshape(9, -1)


def in_air(vacuum):
    """Ciddor 1996, eq. 1."""
    square = (1e4 / vacuum) ** 2
    return vacuum / (1 + 1e-8 * (5792105.0 / (238.0185 - square) + 167917.0 / (57.362 - square)))


def sigma_of_instrument(case, centre, step):
    if case == "narrow":
        return np.zeros_like(centre)
    if case == "table":
        return np.full_like(centre, 2.6 / np.sqrt(8 * np.log(2)))
    if case == "log":
        return centre / np.interp(centre, [4800, 5000, 5200], [1800, 2000, 1900]) / np.sqrt(8 * np.log(2))
    fwhm = 6.040 - 9.187e-4 * centre + 5.866e-8 * centre**2
    return np.sqrt(fwhm**2 / (8 * np.log(2)) - step**2 / 12)


def by_numpy(case, edges, dispersion=None, gas=None):
    """(particle, line, wave): each particle's light in each bin, over the bin's width."""
    gas, wavelength = galaxy().gas if gas is None else gas, np.array(list(LINES.values()))
    centre = wavelength * (1 + REDSHIFT) * np.exp(gas.velocity[:, 2, None] / SPEED_OF_LIGHT)
    centre = centre if case == "log" else in_air(centre)
    intrinsic = centre * (DISPERSION[case] if dispersion is None else dispersion) / SPEED_OF_LIGHT
    sigma = np.hypot(sigma_of_instrument(case, centre, 1.25), intrinsic)
    flux = 2.0 * LUMINOSITY * gas.mass[:, None] * np.array(RATIOS)
    return flux[:, :, None] * erf_bins(centre, sigma, edges)


def erf_bins(centre, sigma, edges):
    """(particle, line, wave): means over bins of Gaussians of a flux of 1."""
    passed = 0.5 * (1 + erf((edges - centre[:, :, None]) / (np.sqrt(2) * sigma[:, :, None])))
    return np.diff(passed, axis=2) / np.diff(edges)


def shape_of(spectrum, edges):
    """Flux, centre and standard deviation of lines on their bins."""
    width, centre = np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    flux = spectrum @ width
    mean = spectrum @ (width * centre) / flux
    return flux, mean, np.sqrt((spectrum * (centre - mean[..., None]) ** 2) @ width / flux)


def shape_near(spectrum, cube):
    """`shape_of` about [O III] 5007."""
    near = np.flatnonzero(np.abs(cube.wavelength - 5008.24 * (1 + REDSHIFT)) < 20)
    return shape_of(spectrum[:, near], cube.wave_edges[near[0] : near[-1] + 2])


@pytest.mark.parametrize("case", CASES)
def test_every_line_of_every_particle_is_exact_by_direct(case):
    """Air and vacuum, linear, logarithmic and uneven bins, any line spread, a line that leaves the detector."""
    cube, spectra = spectra_of(case, "direct")
    expected = by_numpy(case, cube.wave_edges)
    assert (expected.sum(axis=2)[:, 0] > 0).all()
    seen = (expected * np.diff(cube.wave_edges)).sum(axis=2) / (2.0 * LUMINOSITY * np.array(RATIOS))
    if case == "log":
        assert (seen[:, 0] / galaxy().gas.mass).min() < 0.5, "Hb is partly outside"
    np.testing.assert_allclose(spectra, expected.sum(axis=1), atol=1e-7 * expected.max())
    np.testing.assert_allclose(np.asarray(cube.mean_v_los).reshape(-1), galaxy().gas.velocity[:, 2], rtol=1e-6)
    assert (np.asarray(cube.mask) == 0).all()


@pytest.mark.parametrize("case", ["linear", "log", "table"])
def test_nodes_keep_flux_velocity_and_width_of_every_line(case):
    """[O III] 5007 to 1e-7 of its flux, 0.001 km/s and 1e-5 of its width; in any bin to 3e-3 of its highest.

    On uneven bins errors of single bins do not cancel in the centre and the width: 0.03 km/s and 1e-3 there.
    """
    of_velocity, of_width = (0.03, 1e-3) if case == "table" else (1e-3, 1e-5)
    cube, spectra = spectra_of(case, "basis")
    expected = by_numpy(case, cube.wave_edges)
    highest = expected.max(axis=2).max(axis=1, keepdims=True)
    assert (np.abs(spectra - expected.sum(axis=1)) / highest).max() < 3e-3
    found, true = (shape_near(each, cube) for each in (spectra, expected.sum(axis=1)))
    np.testing.assert_allclose(found[0], true[0], rtol=1e-7)
    assert (np.abs(found[1] - true[1]) / 5058 * SPEED_OF_LIGHT).max() < of_velocity
    np.testing.assert_allclose(found[2], true[2], rtol=of_width)
    assert cube.meta["basis_line_flux_error"] == 0
    assert 0 < cube.meta["basis_line_profile_error"] < 3e-3


@pytest.mark.parametrize("method", ["direct", "basis"])
def test_gradients_are_those_of_finite_differences(method):
    """Of a sum in which no two voxels count the same: place, velocity, mass, luminosity and width of the lines; none
    of them is compiled anew."""
    before = eqx.tree_at(lambda g: g.gas.position, galaxy(), galaxy().gas.position + 0.03)
    pipeline = Pipeline.from_config(config_of("linear", method, **{"engine.deposit": "cic"}), before, make_mesh(1))
    weight = np.random.default_rng(2).normal(size=(3, 3, pipeline.plan.n_wave))

    def scalar(galaxy, parameters):
        return (pipeline(galaxy, parameters).flux * weight).sum()

    value_and_slopes = jax.jit(jax.value_and_grad(scalar, (0, 1)))
    _, (galaxy_slope, slope) = value_and_slopes(before, pipeline.parameters)

    def value(galaxy, parameters):
        return value_and_slopes(galaxy, parameters)[0]

    for name in ("velocity_dispersion", "luminosity"):
        found = float(getattr(slope.lines, name))
        _assert_slope(lambda step, name=name: value(before, changed(pipeline.parameters, name, step)), found, 1e-3)
    for leaf, place in (("position", (4, 0)), ("velocity", (4, 2)), ("mass", (4,))):
        start = np.array(getattr(before.gas, leaf))

        def moved(step, leaf=leaf, start=start, place=place):
            values = start.copy()
            values[place] += step
            return value(eqx.tree_at(lambda g: getattr(g.gas, leaf), before, values), pipeline.parameters)

        _assert_slope(moved, float(getattr(galaxy_slope.gas, leaf)[place]), 1e-3)
    assert value_and_slopes._cache_size() == 1


def changed(parameters, name, step):
    leaf = getattr(parameters.lines, name)
    return eqx.tree_at(lambda p: getattr(p.lines, name), parameters, leaf + step)


def _assert_slope(value, slope, step):
    difference = (value(step) - value(-step)) / (2 * step)
    assert abs(slope) > 0
    assert slope == pytest.approx(float(difference), rel=1e-4)


def test_any_width_follows_without_another_compilation():
    """Also a width that was not planned; one beyond its limits is refused, and gives NaN where it is traced."""
    pipeline = pipeline_of("linear", "basis")
    wide = changed(pipeline.parameters, "velocity_dispersion", 120.0)
    cube = pipeline(galaxy(), wide)
    expected = by_numpy("linear", cube.wave_edges, 150.0).sum(axis=1)
    found = np.asarray(cube.flux).reshape(9, -1)
    np.testing.assert_allclose(found, expected, atol=1e-3 * expected.max())
    np.testing.assert_allclose(found.sum(axis=1), expected.sum(axis=1), rtol=1e-5)
    beyond = changed(pipeline.parameters, "velocity_dispersion", 600.0)
    with pytest.raises(ConfigError, match="within the parameter's limits, got 6"):
        pipeline(galaxy(), beyond)
    flux = jax.jit(lambda chosen: pipeline(galaxy(), chosen).flux)(beyond)
    assert np.isnan(np.asarray(flux)).all(axis=2).any()


@pytest.mark.parametrize("method", [pytest.param("direct", marks=pytest.mark.slow(5)), "basis"])
def test_eight_devices_and_slabs_give_the_same(method):
    """Stars add nothing; one sum over the devices."""
    whole, eight = np.asarray(spectra_of("linear", method)[0].flux), pipeline_of("linear", method, 8)
    np.testing.assert_allclose(eight(galaxy()).flux, whole, atol=1e-12 * whole.max())
    assert collectives(eight.lower(galaxy()).compile().as_text()) == [("all-reduce", "ENTRY")]
    slabs = [jax.tree.map(lambda leaf, half=half: leaf[half::2], galaxy()) for half in (0, 1)]
    np.testing.assert_allclose(eight.observe_slabs(slabs).flux, whole, atol=1e-12 * whole.max())


ROWS, PARTS = {"data": 8, "output": "sharded"}, {"data": 2, "wave": 4}


@pytest.mark.slow(3)
@pytest.mark.parametrize(("method", "devices"), [("basis", ROWS), ("basis", PARTS), ("direct", PARTS)])
def test_parts_of_the_bins_give_the_same(method, devices):
    """Coefficients by rows, bins that cannot be cut evenly, lines across the parts' borders."""
    many = galaxy(200)
    whole = np.asarray(pipeline_of("linear", method)(many).flux)
    config = config_of("linear", method, devices=devices)
    apart = Pipeline.from_config(config, many)(many)
    np.testing.assert_allclose(apart.flux, whole, atol=1e-12 * whole.max())


def test_a_fast_particle_is_painted_apart():
    """Beyond the nodes, by `direct`: as exact as there."""
    many = galaxy(300)
    velocity, mass = np.array(many.gas.velocity), np.array(many.gas.mass)
    velocity *= 0.2
    velocity[7, 2], mass[7] = 1900.0, 0.1
    gas = dataclasses.replace(many.gas, velocity=velocity, mass=mass)
    fast = Galaxy(stars=many.stars, gas=gas)
    pipeline = Pipeline.from_config(config_of("linear", "basis", **{"engine.velocity_range": None}), fast)
    painter, cube = pipeline.tables.paint[0].painter, pipeline(fast)
    assert painter.capacity >= 1
    assert float(painter.nodes.limit) < 1000
    lines, expected = by_numpy("linear", cube.wave_edges, gas=gas).sum(axis=1), np.zeros((9, cube.shape[2]))
    np.add.at(expected, np.arange(300) % 9, lines)
    found = np.asarray(cube.flux).reshape(9, -1)
    np.testing.assert_allclose(found, expected, atol=2e-3 * expected.max())
    np.testing.assert_allclose(found.sum(axis=1), expected.sum(axis=1), rtol=2e-5)
    mean = np.bincount(np.arange(300) % 9, lines.sum(axis=1) * velocity[:, 2]) / expected.sum(axis=1)
    np.testing.assert_allclose(np.asarray(cube.mean_v_los).reshape(-1), mean, atol=5e-3)


def test_each_line_has_its_share_of_its_own_flux():
    """A random table of faint and bright lines, compared line by line; at full rank it is exact."""
    rng = np.random.default_rng(1)
    table = np.exp(rng.normal(0, 1, (300, 2)) @ rng.normal(0, 0.3, (2, 30)) - 6 * rng.uniform(0, 1, 30))
    lines = ("Hb", *(f"line {number}" for number in range(29)))
    reference = reference_light(table, lines)
    np.testing.assert_array_equal(reference, table[:, 0])
    for tolerance in (1e-2, 1e-3):
        found = find_ratios(table, reference, tolerance)
        again = found.coefficients @ found.loading
        error = np.abs(again - table) / np.maximum(table, FAINT_LINE * reference[:, None])
        assert error.max() == pytest.approx(found.error, rel=1e-6)
        assert error.max() < tolerance
        assert found.loading.shape[0] < 30
    exact = find_ratios(table, reference, 1e-12)
    np.testing.assert_allclose(exact.coefficients @ exact.loading, table, rtol=1e-14)
    np.testing.assert_array_equal(reference_light(table, ("Ha", *lines[1:])), table.max(axis=1))


def test_what_cannot_be_painted_is_refused():
    with pytest.raises(ConfigError, match=r"instrument\.wavelength: expected the detector to see one of the lines of"):
        Pipeline.from_config(config_of("linear", "direct", lines={"wavelengths": "Ha"}), galaxy())
    still = {"wavelengths": "Hb", "velocity_dispersion": 0}
    with pytest.raises(ConfigError, match=r"engine\.method: expected lines wide enough for velocity nodes"):
        Pipeline.from_config(config_of("narrow", "basis", lines=still), galaxy())
    automatic = Pipeline.from_config(config_of("narrow", "auto", lines=still), galaxy())
    assert automatic.plan.method == "direct"


def test_lines_in_32_bits_are_within_the_tolerance():
    """1e-3 of each line's flux and 0.1 km/s, also far from the first bin."""
    config = config_of("linear", "basis", **{"engine.precision": "float32"})
    cube = Pipeline.from_config(config, galaxy())(galaxy())
    expected = by_numpy("linear", cube.wave_edges).sum(axis=1)
    found, true = (shape_near(each, cube) for each in (np.asarray(cube.flux, np.float64).reshape(9, -1), expected))
    np.testing.assert_allclose(found[0], true[0], rtol=1e-5)
    assert (np.abs(found[1] - true[1]) / 5058 * SPEED_OF_LIGHT).max() < 0.01


class TableLines(AbstractSource):
    """Gas that shines as a table says, at the O/H and log U that its metallicity and temperature stand for."""

    painter: object
    kind: ClassVar = "gas"

    @classmethod
    def plan(cls, setup, options):
        refuse_options("table", options)
        grid = nebular_grid()
        templates = LineTemplates(
            name="the table",
            axes=grid.axes,
            lines=grid.lines,
            wavelength=table_lines()[0],
            table=1e12 * np.asarray(grid.per_photon),
            thermal=table_lines()[1],
        )
        return plan_lines(setup, templates, cls.kind, narrowest=20.0)

    @classmethod
    def build(cls, setup, plan, options):
        return cls(build_line_painter(plan, setup))

    def scene(self, particles, alignment, arcsec_per_kpc):
        place = {"oxygen_abundance": 10 * particles.metallicity + 7, "log_u": particles.temperature - 5}
        return to_scene(particles, particles.mass, place, alignment, arcsec_per_kpc)

    def painter_for(self, parameters):
        return with_dispersion(self.painter, jnp.asarray(20.0, parameters.observation.velocity_offset.dtype))


@functools.cache
def nebular_grid():
    return line_grid(fixed(load_nebular("mappings-hii"), log_pressure=5.8))


def table_lines():
    """Wavelengths and thermal widths at 1e4 K."""
    known = [KNOWN_LINES[name] for name in nebular_grid().lines]
    return np.array([line.wavelength for line in known]), np.array([9.1 / np.sqrt(line.mass) for line in known])


@pytest.mark.slow(8)
def test_every_line_of_a_table_is_within_the_tolerance_of_its_own_flux(monkeypatch, tmp_path):
    """In 32 bits, from Hb to [S II]: lines above 1e-2 of Hb to 1e-3, 0.1 km/s, by fewer sums than lines."""
    monkeypatch.setitem(REGISTRIES["paint"].builtin, "table", f"{__name__}:TableLines")
    path = tmp_path / "table.yaml"
    path.write_text("scene: [orient]\npaint: [table]\n")
    changes = {
        "pipeline": str(path),
        "lines": None,
        "engine.precision": "float32",
        "instrument.wavelength": {"start": 4850, "stop": 7200},
        "observation.redshift": 0.0,
    }
    config, gas_galaxy = config_of("linear", "basis", **changes), galaxy()
    grid, rng = nebular_grid(), np.random.default_rng(8)
    place = (1 + REDSHIFT) ** 2
    abundance, log_u = rng.uniform(7.2, 9.2, 9), rng.uniform(-3.9, -2.1, 9)
    gas = dataclasses.replace(
        gas_galaxy.gas,
        position=place * gas_galaxy.gas.position,
        velocity=0.15 * gas_galaxy.gas.velocity,
        metallicity=(abundance - 7) / 10,
        temperature=log_u + 5,
    )
    gas_galaxy = dataclasses.replace(gas_galaxy, gas=gas)
    pipeline = Pipeline.from_config(config, gas_galaxy)
    cube = pipeline(gas_galaxy)
    assert pipeline.tables.paint[0].painter.rank < pipeline.tables.paint[0].painter.coefficient_map.loading.shape[1]
    coordinates = {"oxygen_abundance": abundance, "log_u": log_u}
    shape = *(len(nodes) for nodes in grid.axes.nodes), -1
    look_up = RegularGridInterpolator(grid.axes.nodes, np.asarray(grid.per_photon).reshape(shape))
    strength = 1e12 * look_up(np.stack([coordinates[name] for name in grid.axes.names], axis=1))
    spectra, compared = np.asarray(cube.flux, np.float64).reshape(9, -1), 0
    wavelength, thermal = table_lines()
    centre = in_air(wavelength * np.exp(gas.velocity[:, 2, None] / SPEED_OF_LIGHT))
    sigma = np.hypot(sigma_of_instrument("linear", centre, 1.25), centre / SPEED_OF_LIGHT * np.hypot(20.0, thermal))
    true = (erf_bins(centre, sigma, cube.wave_edges) * (LUMINOSITY * gas.mass[:, None] * strength)[:, :, None]).sum(1)
    for number in np.flatnonzero((wavelength > 4875) & (wavelength < 7180)):
        near = np.abs(cube.wavelength - wavelength[number]) < 7
        bright = strength[:, number] > 1e-2 * strength[:, grid.lines.index("Hb")]
        if np.sort(np.abs(wavelength - wavelength[number]))[1] < 14 or not bright.any():
            continue
        borders = cube.wave_edges[np.flatnonzero(near)[0] : np.flatnonzero(near)[-1] + 2]
        found, expected = (shape_of(particles[bright][:, near], borders) for particles in (spectra, true))
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-3)
        assert np.abs(found[1] - expected[1]).max() / wavelength[number] * SPEED_OF_LIGHT < 0.1
        compared += 1
    assert compared >= 8

"""Method `basis` against sums over particles in float64: the stated accuracy, at its limits and beyond them."""

import functools
import subprocess
import sys
from pathlib import Path

import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from independent import SpectrumTable, errors
from observing import central_difference, configuration, galaxy_of, gaussian, observe, write_library
from test_independent_sum import ILLUSTRIS_1, ILLUSTRIS_2, LINEAR_AIR, TNG, require_library, sum_of_stars
from test_independent_sum import configuration as real_galaxy

from rubix_like import Pipeline, load_config, load_galaxy, load_ssp, make_mesh
from rubix_like.engine import basis as basis_module
from rubix_like.runtime.compiled_programs import HELD

REDSHIFT = 0.05
N_X, N_Y, SPAXEL = 40, 25, 2.0
TARGETS = {1e-3: (4e-4, 1.2e-3), 1e-4: (5e-5, 2e-4)}
"""Tolerance: largest median, and largest of all, of the rms error of a spectrum relative to its mean."""

MUSE = {"start": 4750.0, "stop": 9350.0, "step": 1.25}
NARROW = {"start": 5000.0, "stop": 5400.0, "step": 1.25}


def one_star_per_spaxel(library, n=N_X * N_Y, sigma=150.0, seed=5):
    """Stars over the whole library, each alone in its spaxel."""
    rng = np.random.default_rng(seed)
    arcsec = SPAXEL / independent.arcsec_per_kpc(REDSHIFT, independent.luminosity_distance(REDSHIFT))
    column, row = np.arange(n) % N_X, np.arange(n) // N_X
    position = np.stack([((N_X - 1) / 2 - column) * arcsec, (row - (N_Y - 1) / 2) * arcsec, np.zeros(n)], axis=1)
    return galaxy_of(
        position,
        rng.normal(0, sigma, n),
        initial_mass=rng.uniform(0.5, 2, n) * 1e6,
        log_age=rng.uniform(library.log_age[0], min(library.log_age[-1], 10.3), n),
        metallicity=10 ** rng.uniform(*np.log10(library.metallicity[[0, -1]]), n),
    )


def grid_of_spaxels(wavelength, **instrument):
    return {"pixel_scale": SPAXEL, "fov": [SPAXEL * N_X, SPAXEL * N_Y], "wavelength": wavelength, **instrument}


@functools.cache
def thousand_stars(name):
    library = load_ssp(name)
    galaxy = one_star_per_spaxel(library)
    edges = independent.linear_edges(**MUSE)
    return galaxy, independent.spectra_of_stars(galaxy.stars, SpectrumTable.of(library), edges, REDSHIFT)


CASES = [("popstar", 1e-3, "float32"), ("popstar", 1e-4, "float64")]
SLOW_CASES = [(name, tolerance, "float32") for name in ("bc03-lr", "bc03-miles") for tolerance in TARGETS]
LONGEST = {("bc03-miles", 1e-4, "float32"), ("bc03-lr", 1e-3, "float32")}


@pytest.mark.parametrize(
    ("name", "tolerance", "precision"),
    [
        *CASES,
        *(pytest.param(*case, marks=pytest.mark.long if case in LONGEST else pytest.mark.slow) for case in SLOW_CASES),
    ],
)
def test_a_thousand_spectra_are_within_the_stated_accuracy(name, tolerance, precision):
    """Random stars over the whole library and MUSE's whole range, against exact sums in float64."""
    if name != "popstar":
        require_library(name)
    galaxy, expected = thousand_stars(name)
    engine = {"method": "basis", "tolerance": tolerance, "precision": precision}
    cube = observe(configuration(instrument=grid_of_spaxels(MUSE), engine=engine, ssp={"library": name}), galaxy)
    assert cube.flux.dtype == np.dtype(precision)
    found = np.asarray(cube.flux, dtype=np.float64).reshape(expected.shape)
    error = errors(found, expected)
    assert np.median(error) <= TARGETS[tolerance][0]
    assert error.max() <= TARGETS[tolerance][1]
    assert error.max() <= 1.01 * cube.meta["basis_spectrum_error"]
    assert (np.abs(found - expected) / expected.mean(axis=1, keepdims=True)).max() <= 2 * cube.meta["basis_local_error"]
    assert (found.min(axis=1) >= -tolerance * expected.mean(axis=1)).all()
    total = found.sum(axis=1) / expected.sum(axis=1) - 1
    assert np.abs(total).max() <= 2 * cube.meta["basis_flux_error"] + 1e-5
    np.testing.assert_allclose(
        np.asarray(cube.mean_v_los).reshape(-1), np.asarray(galaxy.stars.velocity)[:, 2], atol=0.01
    )


@pytest.mark.parametrize(
    "instrument",
    [
        {"name": "manga", "aperture": None, "psf": None},
        pytest.param({"name": "muse", "lsf": {"fwhm": 30.0}, "psf": None}, marks=pytest.mark.long),
    ],
    ids=["log bins, LSF", "broad LSF"],
)
def test_with_a_line_spread_it_is_direct_within_the_tolerance(instrument):
    galaxy = one_star_per_spaxel(load_ssp("popstar"), n=200)
    cubes = {}
    for method in ("direct", "basis"):
        settings = {"pixel_scale": SPAXEL, "fov": [SPAXEL * N_X, SPAXEL * N_Y], **instrument}
        config = {
            "observation": {"redshift": REDSHIFT, "align": "none"},
            "instrument": settings,
            "engine": {"method": method, "precision": "float64"},
        }
        cubes[method] = observe(load_config(config), galaxy)
    found, expected = (np.asarray(cubes[m].flux).reshape(N_X * N_Y, -1)[:200] for m in ("basis", "direct"))
    good = np.asarray(cubes["basis"].mask)[0, 0] == 0
    assert expected.mean() > 0
    assert errors(found[:, good], expected[:, good]).max() <= 1.2e-3


@pytest.mark.parametrize(
    ("start", "width", "velocity_range"),
    [
        (4850.0, 30.0, 4000.0),
        pytest.param(6550.0, 30.0, 3000.0, marks=pytest.mark.long),
        pytest.param(3990.0, 20.0, 1500.0, marks=pytest.mark.long),
        pytest.param(5000.0, 1.25, 500.0, marks=pytest.mark.slow),
    ],
)
def test_a_detector_narrower_than_the_velocities(start, width, velocity_range):
    """Every part of the library that it sees at some velocity counts, not only what it sees at the limits."""
    settings = {"instrument": {"wavelength": {"start": start, "stop": start + width, "step": 1.25}}}
    engine = {"method": "basis", "velocity_range": velocity_range}
    found = observe(configuration(engine=engine, **settings), crowd(300))
    compare(found, observe(configuration(**settings), crowd(300)))


def crowd(n, seed=2, sigma=150.0):
    rng = np.random.default_rng(seed)
    return galaxy_of(
        rng.normal(0, 0.5, (n, 3)),
        rng.normal(0, sigma, (n, 3)),
        initial_mass=rng.uniform(0.5, 2, n) * 1e6,
        log_age=rng.uniform(6.0, 10.2, n),
        metallicity=10 ** rng.uniform(-3.5, -1.4, n),
    )


def compare(found, expected, share=1.2e-3):
    """Spectra of all spaxels with light within `share` of their mean."""
    found, expected = (np.asarray(cube.flux, np.float64).reshape(-1, cube.flux.shape[2]) for cube in (found, expected))
    lit = expected.sum(axis=1) > 0
    assert lit.any()
    assert errors(found[lit], expected[lit]).max() <= share
    np.testing.assert_allclose(found[~lit], 0, atol=1e-6 * expected.max())


def test_the_limits_of_the_velocity_grid_are_as_accurate():
    """Two stars at them, in spaxels of their own; velocities beyond are refused."""
    settings, place = {"instrument": {"wavelength": MUSE}}, [(-0.3, 0.0, 0.0), (0.3, 0.0, 0.0)]
    galaxy = galaxy_of(place, velocity=[300.0, -300.0], log_age=7.2)
    config = configuration(engine={"method": "basis", "velocity_range": 300.0}, **settings)
    pipeline = Pipeline.from_config(config, mesh=make_mesh(1))
    compare(pipeline(galaxy), observe(configuration(**settings), galaxy))
    with pytest.raises(ValueError, match="within 300 km/s"):
        pipeline(galaxy_of(place, velocity=[301.0, 0.0]))


def test_the_end_of_the_library(tmp_path):
    """Where the library ends inside the detector, unflagged bins are right and flagged ones are not negative."""
    rest = np.arange(4000.0, 5001.0, 1.0)
    ssp = write_library(tmp_path / "short.h5", rest, 1 + 0.5 * np.sin(rest / 7) + 50 * gaussian(rest, 4900.0, 3.0))
    galaxy = crowd(300)
    settings = {"instrument": {"wavelength": {"start": 5000.0, "stop": 5400.0, "step": 1.25}}, "ssp": ssp}
    found, expected = (observe(configuration(engine={"method": m}, **settings), galaxy) for m in ("basis", "direct"))
    good = np.asarray(found.mask)[0, 0] == 0
    assert 0.3 < good.mean() < 0.9
    flux, exact = (np.asarray(cube.flux).reshape(25, -1) for cube in (found, expected))
    lit = exact.sum(axis=1) > 0
    assert errors(flux[lit][:, good], exact[lit][:, good]).max() <= 1.2e-3
    assert (flux[lit].min(axis=1) >= -1e-3 * exact[lit].mean(axis=1)).all()


def test_a_library_of_few_templates_is_taken_whole(tmp_path):
    """No more basis spectra than templates; then only the velocity nodes err."""
    rest = np.arange(4000.0, 6000.0, 1.0)
    ssp = write_library(tmp_path / "few.h5", rest, 1 + 0.3 * np.sin(rest / 40))
    settings = {"instrument": {"wavelength": NARROW}, "ssp": ssp}
    found = observe(configuration(engine={"method": "basis", "tolerance": 1e-5}, **settings), crowd(300))
    assert 1 <= found.meta["basis_rank"] <= 4
    assert found.meta["basis_residual"] < 1e-9
    compare(found, observe(configuration(**settings), crowd(300)), 1e-5)


@pytest.mark.parametrize(
    ("deposit", "step"),
    [("nearest", 20.0), *(pytest.param(*row, marks=pytest.mark.long) for row in (("nearest", 1.25), ("tsc", 20.0)))],
)
def test_blocks_of_spaxels_make_the_same_cube(deposit, step, monkeypatch):
    """A field that does not fit into memory at once; more coefficients than bins, and fewer."""
    galaxy = crowd(500)
    wavelength = {**NARROW, "step": step}
    config = configuration(instrument={"wavelength": wavelength}, engine={"method": "basis", "deposit": deposit})
    whole = observe(config, galaxy)
    monkeypatch.setattr(basis_module, "_LEAST_ROOM", 1)
    monkeypatch.setattr(basis_module.BasisPainter, "_by_template", lambda *_: True)
    HELD.programs.clear()
    blocks = observe(config, galaxy)
    HELD.programs.clear()
    np.testing.assert_allclose(blocks.flux, whole.flux, rtol=1e-10, atol=1e-12 * whole.flux.max())
    np.testing.assert_allclose(blocks.mean_v_los, whole.mean_v_los, rtol=1e-9, atol=1e-9)
    assert int(blocks.counters.n_particles) == 500


@pytest.mark.parametrize(
    ("name", "library"),
    [
        (ILLUSTRIS_1, "popstar"),
        pytest.param(ILLUSTRIS_2, "bc03-miles", marks=pytest.mark.slow),
        pytest.param(TNG, "popstar", marks=pytest.mark.slow),
    ],
)
def test_real_galaxies(real_data, name, library):
    """Every spaxel of a real galaxy against the sum over its stars in numpy."""
    if library != "popstar":
        require_library(library)
    wavelength = {**LINEAR_AIR, "stop": 5500.0}
    config = load_config(
        real_galaxy(real_data, name, wavelength, library=library), overrides={"engine.method": "basis"}
    )
    galaxy = load_galaxy(config)
    expected = sum_of_stars(independent.Particles.of(galaxy.stars), library, name, wavelength)
    cube = observe(config, galaxy)
    assert cube.meta["basis_spectrum_error"] <= 1.2e-3
    compare(cube, expected)
    lit = expected.flux.sum(axis=2) > 0
    np.testing.assert_allclose(np.asarray(cube.mean_v_los)[lit], expected.mean_v_los[lit], atol=1.0)


FIELDS = ("position", "velocity", "initial_mass", "log_age", "metallicity")


@functools.cache
def gradient_by(method, tolerance=1e-3, n_devices=1):
    """Of a score of the cube (relative flux squared, as a fit has) with respect to stars and parameters."""
    galaxy = crowd(40)
    config = configuration(
        observation={"inclination": 40.0, "position_angle": 25.0},
        instrument={"wavelength": {**NARROW, "step": 5.0}, "psf": {"fwhm": 0.4}, "lsf": {"fwhm": 12.0}, "fov": 2.0},
        engine={"method": method, "deposit": "tsc", "tolerance": tolerance, "velocity_range": 800.0},
    )
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(n_devices))

    def score(galaxy, parameters):
        flux = pipeline(galaxy, parameters).flux
        weights = np.random.default_rng(3).uniform(size=flux.shape[:2])[:, :, None]
        return jnp.sum(weights * (flux / 1e3) ** 2)

    valued = jax.jit(jax.value_and_grad(score, argnums=(0, 1)))
    return pipeline, galaxy, valued, valued(galaxy, pipeline.parameters)[1]


@pytest.mark.slow
@pytest.mark.parametrize("n_devices", [pytest.param(1, marks=pytest.mark.long), 8])
def test_gradients_by_lookup_are_those_of_the_sums_of_coefficients(n_devices, monkeypatch):
    """Of stars and parameters, on one device and on many."""
    expected = gradient_by("basis")[3]
    monkeypatch.setattr(basis_module.BasisPainter, "_slopes_by_template", lambda *_: True)
    monkeypatch.setattr(basis_module.BasisPainter, "_by_template", lambda *_: False)
    HELD.programs.clear()
    found = gradient_by.__wrapped__("basis", n_devices=n_devices)[3]
    HELD.programs.clear()
    for slope, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-9, atol=1e-11 * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize("field", FIELDS)
def test_gradients_are_finite_differences(field):
    pipeline, galaxy, valued, (slopes, _) = gradient_by("basis")
    where = lambda g: getattr(g.stars, field)  # noqa: E731
    slope = np.asarray(where(slopes))
    step = {"position": 1e-5, "velocity": 1e-2, "initial_mass": 1e3, "log_age": 1e-6, "metallicity": 1e-8}[field]
    for star in range(0, 40, 13):
        index = (star, star % 3) if slope.ndim == 2 else (star,)
        expected = central_difference(lambda g: valued(g, pipeline.parameters)[0], galaxy, where, step, index)
        assert slope[index] == pytest.approx(expected, rel=1e-4, abs=1e-6 * np.abs(slope).max())


@pytest.mark.long
def test_gradients_are_those_of_direct():
    """Plain autodiff of the direct sum in float64; they converge with the tolerance."""
    expected = gradient_by("direct")[3]
    worst = {}
    for tolerance in (1e-3, 1e-5):
        pairs = zip(jax.tree.leaves(gradient_by("basis", tolerance)[3]), jax.tree.leaves(expected), strict=True)
        worst[tolerance] = [float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in pairs]
    assert max(worst[1e-3]) < 1e-2, worst
    assert max(worst[1e-5]) < 1e-4, worst


WITHOUT_X64 = """
import jax, jax.numpy as jnp, numpy as np, sys
sys.path[:0] = {folders}
from observing import galaxy_of
from rubix_like import Pipeline, load_config
assert not jax.config.read("jax_enable_x64")
n = {n}
rng = np.random.default_rng(1)
position = np.where(np.arange(n)[:, None] % 2 == 0, 0.0, rng.normal(0, 1.5, (n, 3)))
galaxy = galaxy_of(position, 40.0, initial_mass=1.1e4)
config = load_config({{"observation": {{"redshift": 0.05, "align": "none"}}, "instrument": {{"name": "muse",
    "pixel_scale": 1.0, "fov": 9.0, "wavelength": {{"start": 5000.0, "stop": 5100.0, "step": 1.25}}, "psf": None,
    "lsf": None}}, "engine": {{"method": "basis"}}}})
pipeline = Pipeline.from_config(config, galaxy)
cube = pipeline(galaxy)
assert cube.flux.dtype == jnp.float32
alone = pipeline(galaxy_of(np.zeros((1, 3)), 40.0, initial_mass=1.1e4))
one = np.asarray(alone.flux, np.float64).sum(axis=(0, 1))
inside = n - int(cube.counters.n_outside)
flux = np.asarray(cube.flux, np.float64)
ratio = flux[4, 4] / one
print(abs(flux.sum(axis=(0, 1)) / (one * inside) - 1).max(), abs(ratio / round(ratio.mean()) - 1).max())
gradient = jax.jit(jax.grad(lambda g: pipeline(g).flux.sum()))(galaxy)
mass = np.asarray(gradient.stars.initial_mass, np.float64)
print(abs(mass[::2] / (one.sum() / 1.1e4) - 1).max(), gradient.stars.velocity.dtype)
"""


@pytest.mark.slow
@pytest.mark.parametrize("n", [100_000, pytest.param(10_000_000, marks=pytest.mark.long)])
def test_equal_stars_in_float32_without_64_bit_mode_lose_nothing(n):
    """Half of them in one spaxel, all in one cell of the histogram; JAX as users have it."""
    folders = [str(folder) for folder in Path(__file__).parents[:2]]
    script = WITHOUT_X64.format(folders=folders, n=n)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cube_line, gradient_line = done.stdout.splitlines()
    total, crowded = (float(word) for word in cube_line.split())
    assert total < 1e-5
    assert crowded < 1e-5
    assert float(gradient_line.split()[0]) < 1e-5
    assert gradient_line.split()[1] == "float32"

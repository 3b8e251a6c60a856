"""Stars beyond the velocity nodes of method `basis`, in few spaxels and in many, behind every kind of PSF: against
`direct`, the sum of all spectra."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from independent import errors
from observing import configuration, galaxy_of
from small import muse

from rubix_like import Pipeline, make_mesh

CHROMATIC = {"kind": "moffat", "wavelength": [4750, 9350], "fwhm": [0.9, 0.7], "beta": 2.8, "enclosed": 0.8}
NARROW = (5000.0, 5400.0, 1.25)
WIDE = (4750.0, 9350.0, 10.0)
N, SPEED = 1500, 1990.0

WAYS = {
    "without a PSF": ({"psf": None}, {}, 5),
    "few": ({"psf": {"fwhm": 0.8}}, {}, 5),
    "shared": ({"psf": {"fwhm": 0.8}}, {"deposit": "tsc", "oversampling": 1}, 5),
    "in every spaxel": ({"psf": None}, {"deposit": "tsc"}, 60),
    "chromatic": ({"psf": CHROMATIC}, {"tolerance": 1e-3}, 5),
    "chromatic, shared": ({"psf": CHROMATIC}, {"deposit": "tsc", "tolerance": 1e-3}, 5),
}
"""Settings of the instrument and the engine, and the number of fast stars: in few spaxels; each shared among nine, in
more spaxels than are seen at once; in more than rows are kept for."""


def config_of(way, method):
    instrument, engine, _ = WAYS[way]
    range_ = WIDE if instrument["psf"] is CHROMATIC else NARROW
    section = muse(*range_, fov=2.4, **instrument)
    return configuration(instrument=section, engine={"method": method, **engine})


@functools.cache
def galaxy(n_fast):
    """Old faint stars at +-1990 km/s first, then many slow ones."""
    rng = np.random.default_rng(5)
    velocity = rng.normal(0, 150, N)
    velocity[:n_fast] = SPEED * (-1.0) ** np.arange(n_fast)
    log_age = rng.uniform(6.0, 10.2, N)
    log_age[:n_fast] = 10.1
    mass = rng.uniform(0.5, 2, N) * 1e6
    mass[:n_fast] *= 0.02
    return galaxy_of(rng.uniform(-1.3, 1.3, (N, 3)), velocity, mass, log_age, 10 ** rng.uniform(-3, -1.5, N))


def only_fast(n_fast):
    masses = galaxy(n_fast).stars.initial_mass.at[n_fast:].set(0.0)
    return eqx.tree_at(lambda g: g.stars.initial_mass, galaxy(n_fast), masses)


@functools.cache
def pipeline_of(way, method, n_devices=1):
    return Pipeline.from_config(config_of(way, method), galaxy(WAYS[way][2]), mesh=make_mesh(n_devices))


def flux(cube):
    return np.asarray(cube.flux)


def error_of_sums(way):
    """Largest error of the outliers' light over the brightest voxel: that of the PSF's terms where it has any."""
    return 1e-4 if "chromatic" in way else 1e-11


@pytest.mark.parametrize(
    "way",
    [
        "without a PSF",
        *(pytest.param(way, marks=pytest.mark.slow(5)) for way in [*WAYS][1:-1]),
        pytest.param([*WAYS][-1], marks=pytest.mark.long),
    ],
)
def test_outliers_are_seen_as_by_the_sum_of_all_spectra(way):
    """Alone exactly, or to the error of the PSF's terms; among all others to the tolerance of `basis`. They are neither
    lost nor allowed to multiply the velocity nodes; too many of them are refused."""
    n_fast = WAYS[way][2]
    pipeline, direct = pipeline_of(way, "basis"), pipeline_of(way, "direct")
    painter = pipeline.tables.paint[0].painter
    assert painter.capacity >= n_fast
    assert float(painter.nodes.limit) < 1200.0
    assert painter.by_terms == ("chromatic" in way)
    found, expected = (flux(each(only_fast(n_fast))) for each in (pipeline, direct))
    assert expected.max() > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=error_of_sums(way) * expected.max())
    cubes = [each(galaxy(n_fast)) for each in (pipeline, direct)]
    found, expected = map(flux, cubes)
    lit = expected.sum(axis=2) > 0
    assert errors(found[lit], expected[lit]).max() < (1.2e-3 if way == "without a PSF" else 2e-3)
    np.testing.assert_allclose(found[~lit], 0, atol=1e-6 * expected.max())
    np.testing.assert_allclose(*(np.asarray(cube.mean_v_los)[lit] for cube in cubes), atol=1.0)
    assert int(cubes[0].counters.n_beyond_velocity) == 0
    if way == "without a PSF":
        with pytest.raises(ValueError, match=r"velocity_range|galaxy"):
            pipeline(galaxy(600))


@pytest.mark.parametrize(
    ("way", "n_devices"),
    [
        pytest.param("without a PSF", 3, marks=pytest.mark.long),
        pytest.param("few", 8, marks=pytest.mark.slow(5)),
        pytest.param("chromatic", 8, marks=pytest.mark.long),
        pytest.param("shared", 8, marks=pytest.mark.long),
        pytest.param("in every spaxel", 8, marks=pytest.mark.long),
    ],
)
def test_any_number_of_devices_sees_the_same(way, n_devices):
    stars = galaxy(WAYS[way][2])
    found, expected = (flux(pipeline_of(way, "basis", n)(stars)) for n in (n_devices, 1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())


@pytest.mark.slow(5)
def test_slabs_add_up_to_the_same():
    """Of stars in parts, each with outliers of its own, the sums are those of every spaxel."""
    stars = galaxy(5)
    parts = [jax.tree.map(lambda leaf, part=part: leaf[part], stars) for part in np.split(np.arange(N), 3)]
    parts = [parts[1], parts[0], parts[2]]
    pipeline = pipeline_of("few", "basis")
    found, expected = flux(pipeline.observe_slabs(parts)), flux(pipeline(stars))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * expected.max())


@pytest.mark.slow(5)
def test_derivatives_are_those_of_the_sum_of_all_spectra():
    """Of the outliers' light with the PSF's width and each star's mass."""
    stars = only_fast(5)

    def total(pipeline):
        weights = jnp.asarray(np.random.default_rng(1).random(flux(pipeline(stars)).shape))

        def of(width, mass):
            parameters = eqx.tree_at(lambda p: p.instrument.psf.fwhm, pipeline.parameters, width)
            heavier = eqx.tree_at(lambda g: g.stars.initial_mass, stars, stars.stars.initial_mass * mass)
            return (pipeline(heavier, parameters).flux * weights).sum()

        return jax.grad(of, argnums=(0, 1))(jnp.asarray(0.8), jnp.ones(N))

    found, expected = (total(pipeline_of("few", method)) for method in ("basis", "direct"))
    for slope, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())


@pytest.mark.slow(4)
def test_without_outliers_nothing_is_painted_apart():
    """Another view, or galaxy, may have none: their tables are not even read. Beside one that has some, under vmap,
    each is as it is alone."""
    fast, calm = galaxy(5), eqx.tree_at(lambda g: g.stars.velocity, galaxy(5), 0.2 * galaxy(0).stars.velocity)
    pipeline = pipeline_of("without a PSF", "basis", 3)
    expected = [np.asarray(pipeline(stars).flux) for stars in (fast, calm)]
    factor = lambda tables: tables.paint[0].painter.outliers.flux_factor  # noqa: E731
    broken = dataclasses.replace(pipeline, tables=eqx.tree_at(factor, pipeline.tables, np.asarray(np.nan)))
    np.testing.assert_array_equal(broken(calm).flux, expected[1])
    with pytest.raises(ValueError, match=r"NaN or inf .* the source 'stars' .* makes them first"):
        broken(fast)
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), fast, calm)
    both = jax.jit(jax.vmap(lambda stars: pipeline(stars).flux))(stack)
    for found, alone in zip(both, expected, strict=True):
        np.testing.assert_allclose(found, alone, rtol=0, atol=1e-12 * alone.max())

"""Look-up in (log Z, log age) against scipy's bilinear interpolation, and the coordinates that stars have there."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import build_stage
from scipy.interpolate import RegularGridInterpolator

from rubix_like import Stars, load_config, load_ssp
from rubix_like.extend import TemplateAxes, make_setup, resolve
from rubix_like.physics.templates import bracket, weighted_rows

GENERATOR = np.random.default_rng(8)
LOG_AGE = np.array([6.0, 6.5, 8.0, 9.3, 10.1])
LOG_Z = np.log10([1e-4, 4e-3, 0.02, 0.05])
SPECTRA = GENERATOR.random((4, 5, 7))
AXES = TemplateAxes((LOG_Z, LOG_AGE), ("metallicity", "age"))
TABLE = SPECTRA.reshape(20, 7), AXES


@jax.jit
def look_up(table, coordinates):
    rows, axes = table
    return weighted_rows(jnp.asarray(rows), axes.corners(coordinates))


def spectra_at(*coordinates, table=TABLE):
    return look_up(table, tuple(jnp.asarray(values) for values in coordinates))


def outside(name, log_z, log_age, axes=AXES):
    return np.asarray(axes.outside(name, (jnp.asarray(log_z), jnp.asarray(log_age))))


def test_bilinear():
    """At the nodes, between them, and beyond the table, where its edge is taken."""
    metal, age = np.meshgrid(LOG_Z, LOG_AGE, indexing="ij")
    log_z = np.concatenate([metal.ravel(), GENERATOR.uniform(-9.0, 0.0, 278), [-300.0, -0.05]])
    log_age = np.concatenate([age.ravel(), GENERATOR.uniform(3.0, 12.0, 278), [0.0, 3.0]])
    inside = np.stack([log_z.clip(LOG_Z[0], LOG_Z[-1]), log_age.clip(LOG_AGE[0], LOG_AGE[-1])], axis=1)
    expected = RegularGridInterpolator((LOG_Z, LOG_AGE), SPECTRA)(inside)
    np.testing.assert_allclose(np.asarray(spectra_at(log_z, log_age)), expected, rtol=1e-12)


@pytest.mark.parametrize("sizes", [(6,), (3, 1), (2, 3, 4)])
def test_any_number_of_axes_and_nodes(sizes):
    """One axis, one of a single node, three."""
    nodes = [np.cumsum(GENERATOR.uniform(0.1, 1.0, size)) for size in sizes]
    names = ("first", "second", "third")[: len(sizes)]
    values, axes = GENERATOR.random((*sizes, 2)), TemplateAxes(tuple(nodes), names)
    assert (axes.n_template, axes.n_corner) == (np.prod(sizes), 2 ** len(sizes))
    where = [GENERATOR.uniform(axis[0], axis[-1], 50) for axis in nodes]
    several = [axis for axis, size in enumerate(sizes) if size > 1]
    function = RegularGridInterpolator([nodes[axis] for axis in several], values.reshape(*np.array(sizes)[several], 2))
    expected = function(np.stack([where[axis] for axis in several], axis=1))
    found = spectra_at(*where, table=(values.reshape(-1, 2), axes))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


def test_weights_are_shares():
    log_z, log_age = GENERATOR.uniform(-6.0, 0.0, 300), GENERATOR.uniform(0.0, 12.0, 300)
    corners = eqx.filter_jit(AXES.corners)((jnp.asarray(log_z), jnp.asarray(log_age)))
    assert (AXES.n_template, AXES.n_corner) == (20, 4)
    assert corners.index.shape == corners.weight.shape == (300, 4)
    assert np.asarray(corners.weight).min() >= 0
    np.testing.assert_allclose(np.asarray(corners.weight).sum(axis=1), 1.0, rtol=1e-14)
    assert 0 <= np.asarray(corners.index).min() <= np.asarray(corners.index).max() < 20


def test_what_is_counted_as_outside():
    """Each axis by itself, whatever the other says; up to 1e-6 dex beyond the last node is rounding."""
    log_age = [5.9, 6.0, 8.0, 10.1, 10.11, 6.0 - 9e-7, 6.0 - 1.1e-6, 10.1 + 9e-7, 10.1 + 1.1e-6]
    expected = [True, False, False, False, True, False, True, False, True]
    for log_z in (-9.0, -2.0, 0.0):
        np.testing.assert_array_equal(outside("age", np.full(9, log_z), log_age), expected)
    log_z = np.log10([1e-12, 9e-5, 1e-4, 0.02, 0.05, 0.0501])
    log_z = [*log_z, LOG_Z[0] - 9e-7, LOG_Z[0] - 1.1e-6, LOG_Z[-1] + 9e-7, LOG_Z[-1] + 1.1e-6]
    expected = [True, True, False, False, False, True, False, True, False, True]
    for log_age in (0.0, 8.0, 11.0):
        np.testing.assert_array_equal(outside("metallicity", log_z, np.full(10, log_age)), expected)


def test_gradient_is_the_slope_between_templates():
    """Beyond the table it is 0."""
    log_age, log_z = 8.7, -2.0
    slope = jax.jit(jax.grad(lambda z, age: spectra_at(z, age).sum(), argnums=(0, 1)))
    found = slope(jnp.asarray([log_z, -12.0, -0.05, -9.0]), jnp.asarray([log_age, 0.0, 10.3, 5.0]))
    (by_z, *beyond_z), (by_age, *beyond_age) = np.asarray(found)
    t, s = (log_z - LOG_Z[1]) / (LOG_Z[2] - LOG_Z[1]), (log_age - 8.0) / 1.3
    light = SPECTRA.sum(axis=-1)
    expected_age = ((1 - t) * (light[1, 3] - light[1, 2]) + t * (light[2, 3] - light[2, 2])) / 1.3
    slope = (1 - s) * (light[2, 2] - light[1, 2]) + s * (light[2, 3] - light[1, 3])
    np.testing.assert_allclose(by_age, expected_age, rtol=1e-10)
    np.testing.assert_allclose(by_z, slope / (LOG_Z[2] - LOG_Z[1]), rtol=1e-10)
    assert [*beyond_z, *beyond_age] == [0.0] * 6


def test_bracket():
    index, fraction = bracket(jnp.asarray([-1.0, 0.0, 1.0, 2.5, 4.0, 9.0]), jnp.asarray([0.0, 1.0, 4.0]))
    np.testing.assert_array_equal(np.asarray(index), [0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(np.asarray(fraction), [0.0, 0.0, 0.0, 0.5, 1.0, 1.0])


# ---------------------------------------------------------------- the coordinates of stars


@pytest.fixture(scope="module")
def stars():
    config = load_config(
        {
            "observation": {"redshift": 0, "distance": "10 Mpc", "align": "none"},
            "instrument": {"name": "muse", "fov": "1 arcsec", "wavelength": {"start": 5000, "stop": 5020}},
            "engine": {"method": "direct", "precision": "float64"},
        }
    )
    setup = make_setup(config, resolve(config), None)
    return build_stage("paint", "stars", setup)


def coordinates_of(stars, metallicity, log_age, dtype="float64"):
    """In the order of the axes."""
    n = len(metallicity)
    particles = Stars(
        position=jnp.zeros((n, 3), dtype),
        velocity=jnp.zeros((n, 3), dtype),
        initial_mass=jnp.ones(n, dtype),
        log_age=jnp.asarray(log_age, dtype),
        metallicity=jnp.asarray(metallicity, dtype),
    )
    seen = stars.scene(particles, None, jnp.ones((), dtype))
    return tuple(seen.coordinates[name] for name in stars.painter.axes.names)


def test_stars_lie_at_their_log_metallicity_and_log_age(stars):
    assert stars.painter.axes.names == ("metallicity", "age")
    found = coordinates_of(stars, [1e-4, 0.02, 0.05], [6.0, 8.0, 10.0])
    np.testing.assert_allclose(np.asarray(found), [np.log10([1e-4, 0.02, 0.05]), [6.0, 8.0, 10.0]], rtol=1e-14)


def test_the_edges_of_the_library_are_inside_in_float32(stars):
    """log10 and back must not push a star at the last node out, nor float32."""
    library = load_ssp("popstar")
    metal, age = (x.ravel() for x in np.meshgrid(library.metallicity, library.log_age))
    axes = jax.tree.map(lambda leaf: jnp.asarray(leaf, "float32"), stars.painter.axes)
    coordinates = coordinates_of(stars, metal, age, "float32")
    assert not any(np.asarray(axes.outside(name, coordinates)).any() for name in axes.names)
    beyond = coordinates_of(stars, metal * 1.001, age + 1e-3, "float32")
    counted = [np.asarray(axes.outside(name, beyond)).sum() for name in axes.names]
    assert counted == [len(library.log_age), len(library.metallicity)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stars_without_metals_are_outside_with_finite_spectra_and_gradients(stars, dtype):
    """log10 of Z = 0 and its slope are finite; the star shines like the library's lowest Z, and its Z has no slope."""
    painter = stars.painter
    table = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), (painter.spectra, painter.axes))

    @jax.jit
    def light(metallicity, log_age):
        return spectra_at(*coordinates_of(stars, metallicity, log_age, dtype), table=table).sum()

    lowest = load_ssp("popstar").metallicity[0]
    coordinates = coordinates_of(stars, [0.0, lowest], [8.0, 8.0], dtype)
    assert np.isfinite(np.asarray(coordinates)).all()
    np.testing.assert_array_equal(np.asarray(table[1].outside("metallicity", coordinates)), [True, False])
    where = jnp.asarray([0.0], dtype), jnp.asarray([8.03], dtype)
    np.testing.assert_allclose(light(*where), light(jnp.asarray([lowest], dtype), where[1]), rtol=1e-6)
    slopes = jax.jit(jax.grad(light, argnums=(0, 1)))
    by_metallicity, by_age = slopes(*where)
    assert float(by_metallicity[0]) == 0
    assert np.isfinite(float(by_age[0]))
    assert float(by_age[0]) != 0
    inside = float(slopes(jnp.asarray([0.01], dtype), where[1])[0][0])
    assert np.isfinite(inside)
    assert inside != 0

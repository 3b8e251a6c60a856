"""Look-up in (log age, log Z) against scipy's bilinear interpolation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from rubix_like.lookup import TemplateTable, bracket

GENERATOR = np.random.default_rng(8)
LOG_AGE = np.array([6.0, 6.5, 8.0, 9.3, 10.1])
METALLICITY = np.array([1e-4, 4e-3, 0.02, 0.05])
SPECTRA = GENERATOR.random((4, 5, 7))
TABLE = TemplateTable(SPECTRA, LOG_AGE, np.log10(METALLICITY))


def spectra_at(log_age, metallicity, table=TABLE):
    return table.spectra_at(table.corners(jnp.asarray(log_age), jnp.asarray(metallicity)))


def test_bilinear_in_log_age_and_log_metallicity():
    log_age, log_z = GENERATOR.uniform(6.0, 10.1, 300), GENERATOR.uniform(-4.0, np.log10(0.05), 300)
    expected = RegularGridInterpolator((np.log10(METALLICITY), LOG_AGE), SPECTRA)(np.stack([log_z, log_age], axis=1))
    np.testing.assert_allclose(np.asarray(spectra_at(log_age, 10**log_z)), expected, rtol=1e-12)


def test_nodes_are_exact():
    metal, age = np.meshgrid(np.arange(4), np.arange(5), indexing="ij")
    found = spectra_at(LOG_AGE[age.ravel()], METALLICITY[metal.ravel()])
    np.testing.assert_allclose(np.asarray(found), SPECTRA.reshape(20, 7), rtol=1e-12)


@pytest.mark.parametrize(
    ("log_age", "metallicity", "corner"),
    [(0.0, 1e-9, (0, 0)), (3.0, 0.9, (3, 0)), (10.3, 1e-9, (0, 4)), (10.3, 0.9, (3, 4)), (0.0, 0.0, (0, 0))],
)
def test_beyond_the_table_its_edge_is_taken(log_age, metallicity, corner):
    np.testing.assert_allclose(np.asarray(spectra_at([log_age], [metallicity]))[0], SPECTRA[corner], rtol=1e-12)


def test_what_is_counted_as_outside():
    np.testing.assert_array_equal(
        np.asarray(TABLE.outside_age(jnp.asarray([5.9, 6.0, 8.0, 10.1, 10.11]))), [True, False, False, False, True]
    )
    np.testing.assert_array_equal(
        np.asarray(TABLE.outside_metallicity(jnp.asarray([0.0, 9e-5, 1e-4, 0.02, 0.05, 0.0501]))),
        [True, True, False, False, False, True],
    )


def test_the_edges_of_the_table_are_inside_in_float32():
    """log10 and back must not push a star at the last node out."""
    table = jax.tree.map(lambda leaf: jnp.asarray(leaf, "float32"), TABLE)
    assert not np.asarray(table.outside_metallicity(jnp.asarray(METALLICITY, "float32"))).any()
    assert not np.asarray(table.outside_age(jnp.asarray(LOG_AGE, "float32"))).any()


def test_gradient_is_the_slope_between_templates():
    log_age, metallicity = 8.7, 0.01

    def total(age, z):
        return spectra_at(age[None], z[None]).sum()

    by_age, by_z = jax.grad(total, argnums=(0, 1))(jnp.asarray(log_age), jnp.asarray(metallicity))
    t = (np.log10(metallicity) - np.log10(4e-3)) / np.log10(0.02 / 4e-3)
    s = (log_age - 8.0) / 1.3
    light = SPECTRA.sum(axis=-1)
    expected_age = ((1 - t) * (light[1, 3] - light[1, 2]) + t * (light[2, 3] - light[2, 2])) / 1.3
    slope = ((1 - s) * (light[2, 2] - light[1, 2]) + s * (light[2, 3] - light[1, 3])) / np.log10(0.02 / 4e-3)
    np.testing.assert_allclose(float(by_age), expected_age, rtol=1e-10)
    np.testing.assert_allclose(float(by_z), slope / (metallicity * np.log(10)), rtol=1e-10)


def test_gradient_beyond_the_table_is_zero_and_finite():
    gradient = jax.grad(lambda age, z: spectra_at(age, z).sum(), argnums=(0, 1))(
        jnp.asarray([0.0, 10.3, 5.0]), jnp.asarray([0.0, 0.9, 1e-9])
    )
    np.testing.assert_array_equal(np.asarray(gradient), 0.0)


def test_bracket():
    index, fraction = bracket(jnp.asarray([-1.0, 0.0, 1.0, 2.5, 4.0, 9.0]), jnp.asarray([0.0, 1.0, 4.0]))
    np.testing.assert_array_equal(np.asarray(index), [0, 0, 1, 1, 1, 1])
    np.testing.assert_allclose(np.asarray(fraction), [0.0, 0.0, 0.0, 0.5, 1.0, 1.0])

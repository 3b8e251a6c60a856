"""The Jacobian by columns, and residuals whose derivatives are products with it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rubix_like.inference.jacobian import jacobian, normal_equations, residuals


class Curve(eqx.Module):
    """Residuals of a curve in two parts."""

    data: jax.Array

    def residuals(self, latent):
        scale, rate, shift = latent
        place = jnp.arange(4.0)
        return {"curve": scale * jnp.exp(-rate * place) + shift - self.data, "prior": latent}

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(self.residuals(latent)))


@pytest.fixture
def curve():
    return Curve(jnp.asarray([2.0, 1.0, 0.7, 0.1]))


LATENT = jnp.asarray([1.5, 0.4, -0.2])


def test_columns_are_those_of_the_whole_jacobian(curve):
    values, columns = jax.jit(lambda curve, latent: jacobian(curve.residuals, latent))(curve, LATENT)
    expected = jax.jacfwd(curve.residuals)(LATENT)
    for name, value in curve.residuals(LATENT).items():
        np.testing.assert_allclose(values[name], value, rtol=1e-15)
        np.testing.assert_allclose(columns[name].T, expected[name], rtol=1e-14)


def test_normal_equations_hold_the_gradient_of_the_loss(curve):
    matrix, vector = normal_equations(*jacobian(curve.residuals, LATENT))
    np.testing.assert_allclose(vector, jax.grad(curve.loss)(LATENT), rtol=1e-14)
    rows = np.concatenate(list(jax.jacfwd(curve.residuals)(LATENT).values()))
    np.testing.assert_allclose(matrix, rows.T @ rows, rtol=1e-14)


def test_derivatives_of_residuals_in_both_directions(curve):
    direction = jnp.asarray([0.3, -1.0, 2.0])
    value, along = jax.jvp(lambda latent: residuals(curve, latent), (LATENT,), (direction,))
    expected_value, expected = jax.jvp(curve.residuals, (LATENT,), (direction,))
    jax.tree.map(lambda own, wanted: np.testing.assert_allclose(own, wanted, rtol=1e-14), value, expected_value)
    jax.tree.map(lambda own, wanted: np.testing.assert_allclose(own, wanted, rtol=1e-14), along, expected)
    gradient = jax.grad(lambda latent: jnp.sum(residuals(curve, latent)["curve"] ** 2))(LATENT)
    np.testing.assert_allclose(
        gradient, jax.grad(lambda latent: jnp.sum(curve.residuals(latent)["curve"] ** 2))(LATENT), rtol=1e-14
    )


def test_after_the_first_derivative_each_one_is_a_product(curve):
    """The linear map of `residuals` is a product with the Jacobian, that of the function itself is not."""

    def steps(function):
        along = jax.linearize(function, LATENT)[1]
        return str(jax.make_jaxpr(along)(LATENT))

    found = steps(lambda latent: residuals(curve, latent))
    assert "dot_general" in found
    assert "scan" not in found
    assert "dot_general" not in steps(curve.residuals)

"""The model about a place, to first order, and the normal equations of a fit from that alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.likelihood import Residuals
from rubix_like.inference.posterior.linearise import products
from rubix_like.inference.posterior.posterior import Posterior, half_square


class Tangent(eqx.Module):
    """Flux (1e-20 erg/s/cm2/Angstrom) of a model, without the continuum's polynomial, and its slopes by the latents.

    Models of parts of the particles add up, and so do their tangents, whatever the likelihood does with the sum.
    """

    flux: Float[Array, "y x wave"]
    slopes: Float[Array, "latent y x wave"]

    def plus(self, other: "Tangent") -> "Tangent":
        """The sum of two, of the same latents."""
        return jax.tree.map(jnp.add, self, other)

    def over(self, count: int) -> "Tangent":
        """The tangent divided by a number."""
        return jax.tree.map(lambda leaf: leaf / count, self)


@jax.jit
def tangent_of(posterior: Posterior, latent: Latent) -> Tangent:
    """The tangent of the posterior's model; the slopes one after the other, as in `linearise.jacobian`."""
    dtype = posterior.likelihood.flux.dtype
    flux, along = jax.linearize(lambda at: posterior.model(at).astype(dtype), latent)
    return Tangent(flux, lax.map(along, jnp.eye(latent.shape[0], dtype=latent.dtype)))


@jax.jit
def normal_equations_at(
    posterior: Posterior, latent: Latent, tangent: Tangent
) -> tuple[Float[Array, "latent latent"], Latent, Float[Array, ""]]:
    """J^T J, J^T r and the loss of a posterior at these latents, if its model has this tangent there."""

    def residuals(flux: Float[Array, "y x wave"], latent: Latent) -> Residuals:
        return posterior.likelihood.residuals(flux, posterior.free.values(latent))._replace(prior=latent)

    here, along = jax.linearize(residuals, tangent.flux, latent)
    unit = jnp.eye(latent.shape[0], dtype=latent.dtype)
    matrix, gradient = products(here, lax.map(lambda own: along(*own), (tangent.slopes, unit)))
    return matrix, gradient, half_square(here)

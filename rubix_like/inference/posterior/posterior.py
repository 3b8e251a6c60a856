"""The function that is maximised and sampled: the posterior of the latents, as a sum of squared residuals."""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.forward.model import Observed
from rubix_like.forward.parameters import Parameters
from rubix_like.galaxy.particles import Galaxy
from rubix_like.inference.likelihoods.voxel_errors import AbstractErrorDistribution, Weighted, information_of_location
from rubix_like.inference.populations.mixtures import Solved
from rubix_like.inference.posterior.fit_model import GALAXY, STARS, AbstractForward, Forward
from rubix_like.inference.posterior.free import LIKELIHOOD, NOISE_SCALE, Free, Latent
from rubix_like.inference.posterior.likelihood import Likelihood, NoiseScale, Residuals


class Posterior(eqx.Module):
    """Model, free parameters and likelihood of one fit; a pytree, to be passed to jitted functions as an argument."""

    forward: AbstractForward
    free: Free
    likelihood: Likelihood

    def at(self, latent: Latent) -> tuple[Galaxy, Parameters]:
        """The particles and parameters of the model."""
        return self.forward.at(self.free.values(latent))

    def named_values(self, latent: Float[Array | ndarray, "*n latent"]) -> dict[str, Any]:
        """The values of all free parameters, by name."""
        return self.free.values(latent)

    def of_host(self, latent: Float[ndarray, " latent"]) -> tuple[Galaxy | None, Parameters]:
        """The same as host arrays, the particles None where nothing of them is free; not to be traced."""
        values = self.free.values(latent)
        galaxy = self.forward.particles_of(values) if self.free.has(GALAXY, STARS) else None
        return galaxy, self.forward.parameters_of(values)

    def observed(self, latent: Latent) -> Observed:
        """The cube of the model, without the continuum's polynomial, with the counters of the particles."""
        return self.forward.observed(self.free.values(latent))

    def model(self, latent: Latent) -> Float[Array, "y x wave"]:
        """Flux (1e-20 erg/s/cm2/Angstrom) of the model, without the continuum's polynomial."""
        return self.observed(latent).voxels.flux

    def solved(self, latent: Latent) -> Solved:
        """The weights of free-form populations at these latents, and the linear problem that they solve.

        Raises ValueError where the model is that of several data sets, which has none.
        """
        if not isinstance(self.forward, Forward):
            raise ValueError("posterior.solved: expected the model of one cube, got that of several data sets")
        return self.forward.solved(self.free.values(latent))

    def noise_scale(self, latent: Latent) -> NoiseScale:
        """The factor on the standard deviations of the data; None where it is not free."""
        return self.free.value(NOISE_SCALE, latent)

    def residuals(self, latent: Latent) -> Residuals:
        """A pytree of residuals: half their squared sum is the loss. The prior's are the latents themselves."""
        observed, roughness = self.forward.modelled(self.free.values(latent))
        return self.residuals_of(observed.voxels.flux, latent, roughness)

    def residuals_of(
        self, model: Float[Array, "y x wave"], latent: Latent, roughness: Float[Array, " difference"] | None = None
    ) -> Residuals:
        """Residuals of a model whose flux is known, and the roughness of populations that were solved for."""
        known = self.likelihood_at(latent).residuals(model, self.noise_scale(latent))
        return known._replace(prior=latent, roughness=roughness)

    def likelihood_at(self, latent: Latent) -> Likelihood:
        """The likelihood with the values of its own parameters."""
        return self.likelihood.at(self.free.values(latent)) if self.free.has(LIKELIHOOD) else self.likelihood

    def as_normal(self, latent: Latent) -> "Posterior":
        """The posterior with normal errors that say as much of the model as the likelihood's own distribution does at
        these latents; itself where errors have none."""
        errors = self.likelihood_at(latent).errors
        if not isinstance(errors, AbstractErrorDistribution):
            return self
        weighted = Weighted(jnp.sqrt(information_of_location(errors)))
        return eqx.tree_at(lambda posterior: posterior.likelihood.errors, self, weighted)

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """-ln(posterior density of the latents) up to a constant."""
        return half_square(self.residuals(latent))


def half_square(residuals: Any) -> Float[Array, ""]:
    """Half the sum of squares of a pytree of residuals."""
    squares = [jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(residuals)]
    return 0.5 * sum(squares[1:], start=squares[0])


Latents = Float[Array, "start latent"]
Group = Float[Array | ndarray, "start latent"]
"""The same, on the host or on devices."""


@runtime_checkable
class SquaredLoss(Protocol):
    """The function that is minimised: half the squared sum of residuals that depend on a vector of latents; a
    pytree."""

    def residuals(self, latent: Latent) -> Any:
        """A pytree of residuals."""

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """Half their squared sum."""
        ...

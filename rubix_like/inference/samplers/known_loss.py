"""Losses that are known at one place, with their gradients: what a chain begins with.

They come from the program that a fit compiles as well, so that none of the whole model is compiled for starts alone.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.linearise import linear_of
from rubix_like.inference.posterior.posterior import Posterior
from rubix_like.inference.posterior.start_groups import group_of
from rubix_like.inference.posterior.tangent import tangents_at


class KnownLoss(eqx.Module):
    """The loss at the one place where it is asked for, and its gradient there; maybe of several places, stacked."""

    value: Float[Array | ndarray, "*place"]
    gradient: Float[Array | ndarray, "*place latent"]

    def residuals(self, latent: Latent) -> Any:
        """Not known: raises TypeError."""
        raise TypeError(f"expected a posterior with residuals, got its loss at one place ({latent.shape} latents)")

    def loss(self, latent: Latent) -> Float[Array, ""]:
        """The value; differentiated, the gradient."""
        return jnp.asarray(self.value) + jnp.sum(self.gradient * (latent - lax.stop_gradient(latent)))


def known_losses(posterior: Posterior, latent: Float[ndarray, "place latent"]) -> KnownLoss:
    """The losses at several places, by the slopes of the model there; host arrays, not to be traced."""
    groups = [group_of(posterior, own) for own in latent]
    found = [
        linear_of(posterior, group, tangents_at(posterior, own)) for own, group in zip(latent, groups, strict=True)
    ]
    rows = [(np.asarray(own.loss)[0], np.asarray(own.gradient)[0]) for own in found]
    return KnownLoss(*map(np.stack, zip(*rows, strict=True)))

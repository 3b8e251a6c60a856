"""Coordinates in which a posterior is nearly a standard normal distribution: where samplers move."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.posterior import SquaredLoss

White = Float[Array, " latent"]
"""Coordinates z with latents = centre + half z: about N(0, 1), uncorrelated, where Laplace's approximation holds."""

_SPACING = 2.0**-16
"""Spacing of the lattice on which chains move, in standard deviations of the posterior."""

_FINE = 2.0**-24
"""Spacing without Laplace's approximation, in standard deviations of the prior."""


class Whitening(eqx.Module):
    """Latents = centre + half z; `half` half^T is the covariance of Laplace's approximation, or None for the prior's.

    `spacing`: of the lattice in z.
    """

    centre: Latent
    half: Float[Array, "latent latent"] | None
    spacing: Float[Array, ""]

    @classmethod
    def about(cls, best: Float[ndarray, " latent"], laplace: Laplace | None) -> "Whitening":
        """The coordinates about the best fit and the approximation there (None: there are too many latents)."""
        return cls.of(best, None if laplace is None else np.linalg.cholesky(laplace.covariance))

    @classmethod
    def of(cls, centre: Float[ndarray, " latent"], half: Float[ndarray, "latent latent"] | None) -> "Whitening":
        """The coordinates from arrays on the host."""
        if half is None:
            return cls(jnp.asarray(centre), None, jnp.asarray(_FINE))
        return cls(jnp.asarray(centre), jnp.asarray(half), jnp.asarray(_SPACING))

    def latent(self, white: White) -> Latent:
        """The latents of coordinates."""
        return self.centre + (white if self.half is None else self.half @ white)

    def log_density(self, posterior: SquaredLoss, white: White) -> Float[Array, ""]:
        """ln(posterior density) up to a constant."""
        return -posterior.loss(self.latent(white))

    def rounded(self, white: White) -> White:
        """The nearest point of the lattice."""
        return jnp.round(white / self.spacing) * self.spacing


def normal_starts(keys: ndarray, n_latent: int, spread: float) -> Float[ndarray, "chain latent"]:
    """Coordinates drawn from N(0, spread^2), one set for each key."""
    draw = jax.vmap(lambda key: jax.random.normal(key, (n_latent,), jax.dtypes.canonicalize_dtype(float)))
    return spread * np.asarray(draw(jnp.asarray(keys)))

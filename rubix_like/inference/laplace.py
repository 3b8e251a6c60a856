"""The Laplace approximation: a normal posterior about its maximum, by the Gauss-Newton matrix."""

from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray

from rubix_like.inference.free import Free, Latent
from rubix_like.inference.posterior import Posterior


@dataclass(frozen=True)
class Laplace:
    """Normal in the latents, N(latent, covariance); host arrays in float64.

    `information`: of the data alone, J^T J of their residuals, so that the precision is information + 1 (the prior's).
    """

    free: Free
    latent: Float[ndarray, " latent"]
    information: Float[ndarray, "latent latent"]
    covariance: Float[ndarray, "latent latent"]

    @property
    def sigma(self) -> Float[ndarray, " latent"]:
        """Standard deviations of the latents."""
        raise NotImplementedError

    @property
    def correlation(self) -> Float[ndarray, "latent latent"]:
        """Correlation matrix of the latents."""
        raise NotImplementedError

    def value_covariance(self) -> Float[ndarray, "latent latent"]:
        """Covariance of the values, in the order of `free.labels`, by the slopes of the priors' maps."""
        raise NotImplementedError

    def sample(self, seed: int, count: int) -> Float[ndarray, "count latent"]:
        """Draws of the values, in the order of `free.labels`, through the priors' maps."""
        raise NotImplementedError

    def percentiles(self, seed: int = 0, count: int = 4096) -> Float[ndarray, "percentile latent"]:
        """16th, 50th and 84th percentile of the values."""
        raise NotImplementedError

    def without_effect(self) -> tuple[str, ...]:
        """Labels of latents of which the data say nothing."""
        raise NotImplementedError

    def least_determined(self) -> tuple[float, Float[ndarray, " latent"]]:
        """Standard deviation along the direction of the latents that is least determined, and that direction."""
        raise NotImplementedError


def laplace(posterior: Posterior, latent: Latent) -> Laplace | str:
    """The approximation about a maximum, or why there is none (too many latents for their matrix)."""
    raise NotImplementedError

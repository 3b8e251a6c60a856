"""The Laplace approximation: a normal posterior about its maximum, by the Gauss-Newton matrix."""

import dataclasses
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.inference.checks.laplace_draws import drawn_latents
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.posterior.free import Free, Latent
from rubix_like.inference.posterior.likelihood import with_nuisance_information, with_scale_information
from rubix_like.inference.posterior.linearise import MOST_DENSE, is_dense, linear_of, normal_equations
from rubix_like.inference.posterior.model_error import sandwich
from rubix_like.inference.posterior.posterior import Group, Posterior, SquaredLoss
from rubix_like.inference.posterior.start_groups import group_of, over_starts
from rubix_like.inference.posterior.tangent import tangents_at

_NO_EFFECT = 1e-8
"""Information (of which the prior's is 1) below which the data say nothing."""


@dataclass(frozen=True)
class Laplace:
    """The latents are normal about `latent` with `covariance`; host arrays.

    `information`: that of the data, J^T J of their residuals; the prior's is 1 for each latent. `covariance` is the
    inverse of their sum, but for a model error, ages between the nodes of an SSP library, and errors that are inflated.
    """

    free: Free
    latent: Float[ndarray, " latent"]
    information: Float[ndarray, "latent latent"] = field(metadata=described_as("Gauss-Newton matrix of the data alone"))
    covariance: Float[ndarray, "latent latent"] = field(metadata=described_as("of the latents"))

    @property
    def sigma(self) -> Float[ndarray, " latent"]:
        """Standard deviations of the latents."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def own_latent(self) -> Float[ndarray, " latent"]:
        """The values' own normal variables (`Free.own_normals`) at the maximum."""
        return np.asarray(self.free.own_normals(np.asarray(self.latent)))

    @property
    def own_covariance(self) -> Float[ndarray, "latent latent"]:
        """Covariance of the values' own normal variables."""
        return self.free.mixing @ self.covariance @ self.free.mixing.T if self.free.correlated else self.covariance

    @property
    def own_sigma(self) -> Float[ndarray, " latent"]:
        """Standard deviations of the values' own normal variables, of which that of the prior is 1."""
        return np.sqrt(np.diag(self.own_covariance))

    @property
    def correlation(self) -> Float[ndarray, "latent latent"]:
        """Correlation matrix of the values' own normal variables."""
        return self.own_covariance / np.outer(self.own_sigma, self.own_sigma)

    def value_covariance(self) -> Float[ndarray, "latent latent"]:
        """Covariance of the values, in the order of `free.labels`, by the slopes of the priors' maps."""
        slope = self.free.slopes(self.latent)
        return self.own_covariance * np.outer(slope, slope)

    def sample(self, seed: int, count: int) -> Float[ndarray, "count latent"]:
        """Draws of the values, in the order of `free.labels`: of a model that is linear in the values, with the priors
        as they are (`drawn_latents`), so that none lies outside its prior."""
        return np.asarray(self.free.flat(drawn_latents(self.free, self.latent, self.covariance, seed, count)))

    def without_effect(self) -> Bool[ndarray, " latent"]:
        """Which latents the data say nothing of."""
        return np.diag(self.information) < _NO_EFFECT


def laplace(posterior: Posterior, latent: Latent) -> Laplace | str:
    """The approximation about a maximum of the posterior, or why there is none.

    With a model error the covariance is the maximum's (`model_error.sandwich`), not the inverse of the precision.
    """
    free, likelihood = posterior.free, posterior.likelihood
    if not is_dense(free.n_latent, likelihood.flux.size):
        return (
            f"the matrix of {free.n_latent} latents and {likelihood.flux.size} voxels is too large (up to "
            f"{MOST_DENSE} latents are possible); fit fewer numbers, or fewer wavelengths, to get uncertainties"
        )
    n_voxel = np.count_nonzero(np.asarray(likelihood.inverse_sigma))
    return laplace_from(posterior, latent, information(posterior, free, latent, np.int64(n_voxel)))


def laplace_from(
    posterior: Posterior, latent: Latent, matrix: Float[Array | ndarray, "latent latent"]
) -> Laplace | str:
    """The Laplace approximation from the information of the data that is known already."""
    result = from_information(posterior.free, latent, matrix)
    if isinstance(result, str) or posterior.likelihood.model_error is None:
        return result
    covariance = sandwich(posterior, latent)
    return dataclasses.replace(result, covariance=0.5 * (covariance + covariance.T))


def from_information(free: Free, latent: Latent, information: Float[Array | ndarray, "latent latent"]) -> Laplace | str:
    """The approximation about a maximum with this information of the data, or why there is none."""
    matrix = np.asarray(information, np.float64)
    if not np.isfinite(matrix).all():
        return "the derivatives of the model at the best values are not finite"
    precision = matrix + np.eye(len(matrix))
    scale = 1 / np.sqrt(np.diag(precision))
    covariance = np.linalg.inv(precision * np.outer(scale, scale)) * np.outer(scale, scale)
    return Laplace(free, np.asarray(latent), matrix, 0.5 * (covariance + covariance.T))


def inflated(laplace: Laplace | None, factor: float) -> Laplace | None:
    """The approximation with all standard deviations times a factor; its `information` stays that of the data."""
    if laplace is None or factor == 1:
        return laplace
    return dataclasses.replace(laplace, covariance=factor**2 * laplace.covariance)


def information(
    posterior: SquaredLoss, free: Free, latent: Latent, n_voxel: Int[Array | np.integer, ""]
) -> Float[Array, "latent latent"]:
    """J^T J of all residuals but the prior's; of the noise scale, and of a distribution of errors with its parameters,
    it is Fisher's information instead."""
    if isinstance(posterior, Posterior):
        normal = posterior.as_normal(latent)
        group = linear_of(normal, group_of(posterior, latent), tangents_at(posterior, latent)).matrix
        data = _of_data(group, free, latent, n_voxel)
        return with_nuisance_information(data, free, jnp.asarray(latent), posterior.likelihood)
    group = _matrices(posterior, np.asarray(latent)[None])
    return _of_data(group, free, latent, n_voxel)


@jax.jit
def _matrices(posterior: SquaredLoss, latent: Group) -> Float[Array, "start latent latent"]:
    return over_starts(lambda own, at: normal_equations(own, at)[0], posterior, latent)


@jax.jit
def _of_data(
    group: Float[Array, "start latent latent"], free: Free, latent: Latent, n_voxel: Array
) -> Float[Array, "latent latent"]:
    data = group[0] - jnp.eye(group.shape[1], dtype=group.dtype)
    return with_scale_information(data, free, latent, n_voxel)

"""The evidence of a model: the density of the data, averaged over the priors of all that is free.

By Laplace's approximation about the best latents x, whose priors are N(0, 1) (MacKay 2003, chapter 28),

    ln Z = ln L(x) - x^2 / 2 - 1/2 ln det(A),        A = J^T J + 1,

and for each spaxel with a continuum of its own - 1/2 ln det(D^T D + 1), D by how much its coefficients change the
residuals: an integral without approximation, for the model is linear in them.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.inference.checks.laplace import Laplace
from rubix_like.inference.described_trees import described_as
from rubix_like.inference.posterior.free import Latent
from rubix_like.inference.posterior.linearise import models_at
from rubix_like.inference.posterior.posterior import Posterior

LAPLACE: str = "Laplace"
"""The method without a sampler."""


@dataclass(frozen=True)
class Evidence:
    """ln Z of the data that were fitted, each voxel a density in (1e-20 erg/s/cm2/Angstrom)^-1.

    Only differences of models of the same voxels mean something: exp of that is the Bayes factor. `error`: standard
    deviation of ln Z by the sampler; NaN by Laplace's approximation, whose error is not known.
    """

    log_evidence: float = field(metadata=described_as("ln of the density of the fitted voxels, over the priors"))
    error: float = field(metadata=described_as("its standard deviation; NaN where it is not known"))
    method: str = field(metadata=described_as("Laplace, or the name of a sampler"))

    @property
    def sentence(self) -> str:
        """A line of a summary."""
        error = f" +- {self.error:.2g}" if np.isfinite(self.error) else ""
        return f"ln evidence {self.log_evidence:.8g}{error} ({self.method})"


def laplace_evidence(posterior: Posterior, laplace: Laplace | None, loss: float) -> Evidence | None:
    """The evidence by the Gauss-Newton matrix at the best latents, where the loss is known; None without a matrix, and
    for populations that are solved for, whose weights are not integrated over."""
    if laplace is None or solves_for_populations(posterior):
        return None
    precision = laplace.information + np.eye(len(laplace.latent))
    sign, log_determinant = np.linalg.slogdet(precision)
    if not sign > 0:
        return None
    found = normalisation_at(posterior, laplace.latent) - loss - 0.5 * float(log_determinant)
    return Evidence(found, float("nan"), LAPLACE)


def solves_for_populations(posterior: Posterior) -> bool:
    """Whether the loss is that of the best weights of free-form populations, which is no density of the latents."""
    return posterior.forward.main.mixtures is not None


def normalisation_at(posterior: Posterior, latent: Float[ndarray, " latent"]) -> float:
    """The sum that makes minus the loss ln(likelihood) - latent^2 / 2, not to be traced. Continua D are integrated over
    at these latents: -1/2 ln det(D^T D + 1) of each spaxel."""
    likelihood, constant = posterior.likelihood, float(_constant(posterior, jnp.asarray(latent)))
    if likelihood.polynomial is None:
        return constant
    scale = posterior.noise_scale(jnp.asarray(latent))
    design = np.asarray(likelihood.design(models_at(posterior, latent).flux[0], scale), np.float64)
    normal = np.einsum("yxwi,yxwj->yxij", design, design, optimize=True) + np.eye(design.shape[-1])
    return constant - 0.5 * float(np.linalg.slogdet(normal)[1].sum())


@jax.jit
def _constant(posterior: Posterior, latent: Latent) -> Float[Array, ""]:
    return posterior.likelihood_at(latent).log_normalisation(posterior.noise_scale(latent))

"""The particle noise of a synthetic galaxy in a fit: what other base draws would change.

A model with N particles differs from the mean over all base draws, and so do data that were made of particles, by noise
that is the same at all wavelengths of a particle's spectrum and that the PSF spreads over spaxels: it is no matter of
single voxels. At a first best fit K models with other draws, c_k in units of the data's sigma, are computed. Those of
even k tell

    offset      m = mean(c) - c_0          (c_0 the fit's model: its particle noise is taken off)
    covariance  1 + (1 + 1 / n) S,         S = 1 / (n - 1) sum_k (c_k - mean(c)) (c_k - mean(c))^T,   n = K / 2

(1: photon noise; 1 / n: of the mean), and the fit is repeated with them. S has n - 1 directions, and particle noise
has more, so the weights W = (1 + ...)^-1 are not quite the best, nor is A^-1, A = J^T W J + 1, the covariance of the
maximum in the latents. It is, for any W, that of White (1982, Econometrica 50, 1; the "sandwich")

    A^-1 B A^-1,   B = J^T W (1 + S') W J + 1,   S' = 1 / n' sum_k d_k d_k^T,   d_k = c_k - mean(c) of odd k,

the 1 in A and B being the prior's. S' comes from draws of which W and m know nothing: with the same draws B would be
too small (as in Dodelson & Schneider 2013, Phys. Rev. D 88, 063537, for covariances from mocks).
"""

import dataclasses
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config.sections.fit import ModelErrorSettings
from rubix_like.errors import ConfigError
from rubix_like.inference.posterior.fit_model import Latent, SyntheticSource
from rubix_like.inference.posterior.posterior import (
    ModelError,
    Posterior,
    Tangent,
    columns_at,
    factor_of,
    flux_in_sigma,
    on_mesh,
    tangents_at,
    with_draws,
    with_scale_information,
)
from rubix_like.inference.posterior.problem import Problem
from rubix_like.runtime.memory import available_memory
from rubix_like.runtime.words import format_bytes

_COPIES = 3
"""Times all deviations are in memory at the most, while they are taken apart."""


def with_model_error(problem: Problem, latent: Latent) -> Problem:
    """The fit with the particle noise about a first best fit, to be begun again there; raises ConfigError for a galaxy
    that is not synthetic, MemoryError where the deviations (draws x voxels) do not fit."""
    settings, posterior = problem.settings, problem.posterior
    if settings.model_error is None:
        return problem
    model_error = find_model_error(posterior, latent, settings.model_error)
    posterior = eqx.tree_at(
        lambda p: p.likelihood.model_error, posterior, model_error, is_leaf=lambda leaf: leaf is None
    )
    posterior = on_mesh(posterior, problem.pipeline.mesh)
    return dataclasses.replace(
        problem, posterior=posterior, start=latent, settings=settings.model_copy(update={"starts": 1})
    )


def find_model_error(posterior: Posterior, latent: Latent, settings: ModelErrorSettings) -> ModelError:
    """Offset, modes and held-out deviations from `settings.draws` models with other base draws at these latents."""
    source = posterior.forward.source
    if not isinstance(source, SyntheticSource):
        raise ConfigError(
            "fit.model_error: expected a synthetic galaxy, whose base draws can be others, got the particles of a "
            "given one; set it to null"
        )
    needed = _COPIES * settings.draws * posterior.likelihood.flux.nbytes
    free = available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"fit.model_error: expected room for {settings.draws} cubes at a time and what is made of them, "
            f"{format_bytes(needed)}, got {format_bytes(free)}; set fit.model_error.draws lower, or fit fewer bins"
        )
    cubes = np.stack(list(other_cubes(posterior, latent, settings)))
    known, unknown = cubes[::2], cubes[1::2]
    mean = known.mean(axis=0)
    modes, strength = _modes(known - mean)
    return ModelError(
        offset=jnp.asarray(mean - flux_in_sigma(posterior, latent)),
        modes=jnp.asarray(modes),
        strength=jnp.asarray(strength * (1 + 1 / len(known))),
        held_out=jnp.asarray(unknown - mean),
    )


def other_cubes(
    posterior: Posterior, latent: Latent, settings: ModelErrorSettings
) -> Iterator[Float[ndarray, "y x wave"]]:
    """Models with the base draws of the seeds from `settings.seed` on, in units of the data's sigma."""
    source = posterior.forward.source
    if not isinstance(source, SyntheticSource):
        raise TypeError(f"expected a synthetic source, got {type(source).__name__}")
    for number in range(settings.draws):
        yield flux_in_sigma(with_draws(posterior, source.draws.others(settings.seed + number)), latent)


def sandwich(posterior: Posterior, latent: Latent) -> Float[ndarray, "latent latent"]:
    """Covariance A^-1 B A^-1 of the latents at the maximum of a posterior that has a model error."""
    bread, filling = map(np.asarray, _bread_and_filling(posterior, latent, tangents_at(posterior, latent)))
    half = np.linalg.solve(bread, filling)
    covariance = np.linalg.solve(bread, half.T)
    return 0.5 * (covariance + covariance.T)


@jax.jit
def _bread_and_filling(
    posterior: Posterior, latent: Latent, group: Tangent
) -> tuple[Float[Array, "latent latent"], Float[Array, "latent latent"]]:
    """A and B of residuals that are whitened already, A = J^T J + 1; in both the noise scale's of Fisher."""
    model_error = posterior.likelihood.model_error
    if model_error is None:
        raise ValueError("expected a posterior with a model error, got one without")
    scale = factor_of(posterior.noise_scale(latent))
    slopes = columns_at(posterior, latent, jax.tree.map(lambda leaf: leaf[0], group))[1].voxels
    n_voxel = jnp.sum(posterior.likelihood.inverse_sigma > 0)

    def product(left: Float[Array, "n y x wave"], right: Float[Array, "m y x wave"]) -> Float[Array, "n m"]:
        return jnp.einsum("nyxw,myxw->nm", left, right)

    twice = jax.vmap(lambda cube: model_error.whiten(cube, scale))(slopes)
    along = product(twice, model_error.held_out / scale)
    filling = product(twice, twice) + along @ along.T / len(model_error.held_out)
    prior = jnp.eye(len(latent), dtype=latent.dtype)
    bread, filling = (
        with_scale_information(matrix, posterior.free, latent, n_voxel) + prior
        for matrix in (product(slopes, slopes), filling)
    )
    return bread, filling


def _modes(
    deviation: Float[ndarray, "draw y x wave"],
) -> tuple[Float[ndarray, "mode y x wave"], Float[ndarray, " mode"]]:
    """Principal directions, orthonormal over the voxels, and the variances along them, by the matrix of products."""
    flat = deviation.reshape(len(deviation), -1)
    squares, vectors = np.linalg.eigh(flat @ flat.T)
    squares, vectors = squares[1:], vectors[:, 1:]  # the mean was taken off: one is 0
    kept = squares > 1e-12 * max(squares[-1], np.finfo(float).tiny)
    modes = (vectors[:, kept] / np.sqrt(squares[kept])).T @ flat
    return modes.reshape(-1, *deviation.shape[1:]), squares[kept] / (len(deviation) - 1)

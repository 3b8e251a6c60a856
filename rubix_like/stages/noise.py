"""Stage `noise`: Gaussian noise at a target signal-to-noise ratio, and its variance."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.parameters import Parameters
from rubix_like.setup import Setup
from rubix_like.stages.base import AbstractCubeStage, PaintedCube, StageReport, refuse_options

DEFINITION = "median flux over wavelength of the brightest spaxel / sigma per voxel; the same sigma in all voxels"
"""What `noise.signal_to_noise` means; written to the header."""


class Noise(AbstractCubeStage):
    """White noise as of a background-limited exposure: one sigma for all voxels.

    sigma = (median over the covered wavelengths of the flux of the spaxel with the most light) / signal_to_noise.
    Identity, without a variance, when the run has no noise section.
    """

    signal_to_noise: Float[Array | ndarray, ""] | None
    covered: Bool[Array | ndarray, " wave"]
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "Noise":
        """The target of the run's noise section; no options."""
        refuse_options("noise", options)
        noise = setup.config.noise
        ratio = None if noise is None else np.asarray(noise.signal_to_noise)
        return cls(signal_to_noise=ratio, covered=setup.covered)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The cube with noise and variance; sigma is constant under differentiation."""
        if self.signal_to_noise is None:
            return cube
        if key is None:
            raise ConfigError("noise: expected a random key, got none; set noise.seed or pass key=jax.random.key(...)")
        flux = cube.flux
        covered = jnp.where(jnp.asarray(self.covered), jnp.ones((), flux.dtype), jnp.full((), jnp.nan, flux.dtype))
        spectra = flux.reshape(-1, flux.shape[2])
        brightest = spectra[jnp.argmax(spectra.sum(axis=1))]
        reference = lax.stop_gradient(jnp.nanmedian(brightest * covered))
        sigma = reference / self.signal_to_noise
        noise = sigma * jax.random.normal(key, flux.shape, flux.dtype)
        return PaintedCube(flux=flux + noise, moments=cube.moments, variance=jnp.full_like(flux, 1.0) * sigma**2)

    def spatial(self, parameters: Parameters) -> None:  # noqa: ARG002
        """Not linear."""
        return

    def report(self) -> StageReport:
        """Nothing."""
        return StageReport()

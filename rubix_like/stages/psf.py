"""Stage `psf`: the point-spread function, on a field with a painted margin."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.gaussian import gaussian_weights
from rubix_like.parameters import Parameters
from rubix_like.setup import Setup
from rubix_like.stages.base import AbstractCubeStage, PaintedCube, refuse_options


class PSF(AbstractCubeStage):
    """A circular Gaussian of width `instrument.psf.fwhm`; its variance is added to that of the painted image.

    Separable: a banded matrix along each axis, which also takes the margin off. The margin holds 99.9 % of the light of
    a point source at the configured width; what lies beyond is given back to the spaxels within. Identity for null.
    """

    pixel_scale: Float[Array | ndarray, ""]
    margin: int = eqx.field(static=True)

    @classmethod
    def build(cls, setup: Setup, options: Mapping[str, Any]) -> "PSF":
        """The margin for the configured width; no options."""
        refuse_options("psf", options)
        instrument = setup.instrument
        return cls(pixel_scale=instrument.pixel_scale, margin=instrument.psf_reach)

    def __call__(self, cube: PaintedCube, parameters: Parameters, key: PRNGKeyArray | None) -> PaintedCube:  # noqa: ARG002
        """The field without its margin, convolved."""
        if self.margin == 0:
            return cube
        psf = parameters.instrument.psf
        sigma = jnp.zeros((), cube.flux.dtype) if psf is None else psf.fwhm / FWHM_PER_SIGMA / self.pixel_scale
        weights = gaussian_weights(sigma, self.margin)
        return eqx.tree_at(
            lambda c: (c.flux, c.moments), cube, (convolve(cube.flux, weights), convolve(cube.moments, weights))
        )

    def quality(self) -> None:
        """No mask bits."""
        return


def convolve(image: Float[Array, "y x wave"], weights: Float[Array, " offset"]) -> Float[Array, "inner_y inner_x wave"]:
    """Separable convolution over the two image axes; only spaxels that see the whole kernel are kept."""
    exact = lax.Precision.HIGHEST
    rows = _band(weights, image.shape[0])
    columns = _band(weights, image.shape[1])
    image = jnp.einsum("ij,jxw->ixw", rows, image, precision=exact)
    return jnp.einsum("ij,yjw->yiw", columns, image, precision=exact)


def _band(weights: Float[Array, " offset"], size: int) -> Float[Array, "inner outer"]:
    """Matrix with `weights` along the diagonals, shape (size - len(weights) + 1, size)."""
    inner = size - len(weights) + 1
    offset = jnp.arange(size)[None, :] - jnp.arange(inner)[:, None]
    inside = (offset >= 0) & (offset < len(weights))
    return jnp.where(inside, weights[jnp.clip(offset, 0, len(weights) - 1)], jnp.zeros((), weights.dtype))

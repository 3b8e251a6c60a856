"""Random functions that are smooth in wavelength."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.errors import ConfigError
from rubix_like.physics.numbered_random import numbered_normal
from rubix_like.runtime.mesh.bin_split import per_bin

_STEPS_PER_WIDTH = 2.0
"""Nodes per width of the kernel: the variance between them differs by 1e-16 of that at them."""

_REACH = 6.0
"""Widths of the kernel that it reaches: exp(-18) of its peak is cut off."""

_LEAST_BINS = 2.0


class SmoothErrors(eqx.Module):
    """Normal errors of mean 0 and of one rms, with the correlation exp(-d^2 / (2 L^2)) over wavelength.

    White noise at nodes is convolved with a Gaussian of width L / sqrt(2): error(wave) = sum_n z_n shape_n(wave), where
    sum_n shape_n^2 = rms^2 at every wavelength. Without a length all wavelengths share one number.
    """

    shapes: Float[Array | ndarray, "node wave"] = eqx.field(metadata=per_bin())

    @classmethod
    def build(
        cls, rms: float, correlation: float | None, wavelength: Float[ndarray, " wave"], name: str
    ) -> "SmoothErrors":
        """`rms` of the errors, `correlation` L in Angstrom; raises ConfigError for one shorter than two bins."""
        if correlation is None:
            return cls(np.full((1, len(wavelength)), rms))
        widest = float(np.max(np.diff(wavelength))) if len(wavelength) > 1 else 0.0
        if correlation < _LEAST_BINS * widest:
            raise ConfigError(
                f"systematics.{name}.correlation: expected at least {_LEAST_BINS:g} bins "
                f"({_LEAST_BINS * widest:.4g} Angstrom), got {correlation:g} Angstrom"
            )
        width = correlation / np.sqrt(2)
        step = width / _STEPS_PER_WIDTH
        first, last = wavelength[0] - _REACH * width, wavelength[-1] + _REACH * width
        nodes = first + step * np.arange(int(np.ceil((last - first) / step)) + 1)
        shapes = np.exp(-0.5 * ((wavelength[None, :] - nodes[:, None]) / width) ** 2)
        return cls(rms * shapes / np.sqrt(np.sum(shapes**2, axis=0)))

    def scaled(self, factor: float | Float[ndarray, " wave"]) -> "SmoothErrors":
        """The errors times a factor, which may depend on wavelength."""
        return SmoothErrors(self.shapes * factor)

    def draw(self, key: PRNGKeyArray, number: Int[Array | ndarray, " element"]) -> Float[Array, "element wave"]:
        """The errors of spectra; those of one number are the same."""
        shapes = jnp.asarray(self.shapes)
        n_node = shapes.shape[0]
        numbers = jnp.asarray(number, jnp.int32)[:, None] * n_node + jnp.arange(n_node, dtype=jnp.int32)[None, :]
        normal = numbered_normal(key, numbers, shapes.dtype)
        return jnp.einsum("en,nw->ew", normal, shapes, precision=lax.Precision.HIGHEST)

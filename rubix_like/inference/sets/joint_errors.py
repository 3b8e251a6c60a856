"""Errors of several sets of data: correlated within some sets, independent between them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from rubix_like.inference.likelihoods.voxel_errors import AbstractCorrelation, AbstractErrors, Voxels


class JointErrors(AbstractErrors):
    """The correlations of each set (None: independent errors), whose voxels lie in one row (1, 1, voxel)."""

    sets: tuple[AbstractCorrelation | None, ...]
    shapes: tuple[tuple[int, int, int], ...] = eqx.field(static=True)

    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """Those of each set whitened by its own correlations."""
        del data, model, inverse_sigma
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = []
        for errors, shape, end in zip(self.sets, self.shapes, ends, strict=True):
            own = residual[0, 0, end - int(np.prod(shape)) : end].reshape(shape)
            whitened = own if errors is None else errors.residuals(own, own, own, own)
            parts.append(whitened.reshape(-1))
        return jnp.concatenate(parts)[None, None]

    def excess(self) -> Any:
        """None."""
        return 0.0

    def log_constant(self) -> Any:
        """-ln det(R) / 2 of all sets."""
        return sum((own.log_constant() for own in self.sets if own is not None), start=0.0)

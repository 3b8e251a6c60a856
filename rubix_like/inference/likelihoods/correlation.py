"""Correlated errors: between spaxels, between wavelengths, or between all voxels, by a matrix."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from numpy.lib.format import MAGIC_PREFIX, read_array

from rubix_like.config.data_sets import CovarianceSettings
from rubix_like.errors import ConfigError
from rubix_like.inference.likelihoods.voxel_errors import AbstractCorrelation, Voxels
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.words import format_bytes, reason_of

_LARGEST = 2e9
"""Bytes of factors that are kept."""


class Correlation(AbstractCorrelation):
    """Normal errors with the covariance D^1/2 R D^1/2, D the data's variances, R blocks of correlations.

    A block is the voxels of one wavelength (`between` spaxels), of one spaxel (wavelengths), or all voxels. `inverse`:
    inverse Cholesky factors, 0 for voxels that are left out, one for each pattern of them; `pattern`: that of a block.
    """

    inverse: Float[Array, "pattern own own"]
    pattern: Int[Array, " block"]
    log_determinant: Float[Array, ""]
    between: str = eqx.field(static=True)

    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """L^-1 r with L L^T = R, block by block."""
        del data, model, inverse_sigma
        rows = _blocks(residual, self.between)
        if self.inverse.shape[0] == 1:
            found = jnp.matmul(rows, self.inverse[0].T, precision=Precision.HIGHEST)
        else:
            found = jnp.einsum("bij,bj->bi", self.inverse[self.pattern], rows, precision=Precision.HIGHEST)
        return found.T.reshape(residual.shape) if self.between == "spaxels" else found.reshape(residual.shape)


def _blocks(cube: Any, between: str) -> Any:
    """The voxels of each block as a row."""
    if between == "voxels":
        return cube.reshape(1, -1)
    rows = cube.reshape(-1, cube.shape[-1])
    return rows.T if between == "spaxels" else rows


def make_correlation(settings: CovarianceSettings, used: Bool[ndarray, "y x wave"]) -> Correlation:
    """The correlations of a matrix, a covariance or correlations, for the voxels that are used; ConfigError for a
    matrix of another size, or one that is no covariance."""
    blocks = _blocks(used, settings.between)
    matrix = _read_matrix(settings, blocks.shape[1])
    patterns, pattern = np.unique(blocks, axis=0, return_inverse=True)
    needed = 8.0 * (len(patterns) if len(patterns) == 1 else len(patterns) + len(blocks)) * matrix.size
    if needed > _LARGEST:
        raise ConfigError(
            f"fit.likelihood.covariance: expected factors of at most {format_bytes(int(_LARGEST))}, got "
            f"{format_bytes(int(needed))} for {len(blocks)} blocks of {matrix.shape[0]} voxels; fit fewer wavelengths "
            f"or spaxels, or leave out the same voxels in each"
        )
    inverse, log_root = np.zeros((len(patterns), *matrix.shape)), np.zeros(len(patterns))
    for number, own in enumerate(patterns):
        kept = np.flatnonzero(own)
        lower = np.linalg.cholesky(matrix[np.ix_(kept, kept)])
        inverse[number][np.ix_(kept, kept)] = np.linalg.inv(lower)
        log_root[number] = np.sum(np.log(np.diag(lower)))
    pattern = pattern.reshape(-1).astype(np.int32)
    total = 2 * np.sum(log_root[pattern])
    return Correlation(
        inverse=jnp.asarray(inverse),
        pattern=jnp.asarray(pattern),
        log_determinant=jnp.asarray(total),
        between=settings.between,
    )


def _read_matrix(settings: CovarianceSettings, size: int) -> Float[ndarray, "own own"]:
    """The correlation matrix."""
    place = "fit.likelihood.covariance.matrix"
    matrix = _load(settings.matrix, place) if isinstance(settings.matrix, Path) else np.array(settings.matrix, float)
    if matrix.shape != (size, size):
        raise ConfigError(
            f"{place}: expected shape ({size}, {size}), one row for each of the {settings.between} that are read (up "
            f"to the ends of fit.windows, y before x before wavelength), got {matrix.shape}"
        )
    _check_matrix(matrix, place)
    diagonal = np.diag(matrix)
    correlation = matrix / np.sqrt(np.outer(diagonal, diagonal))
    if not np.min(np.linalg.eigvalsh(correlation)) > 0:
        raise ConfigError(f"{place}: expected a positive definite matrix, got none; add a little to its diagonal")
    return correlation


def _check_matrix(matrix: Float[ndarray, "own own"], place: str) -> None:
    """Raise ConfigError for what cannot be a covariance: numbers that are not finite, halves that differ, variances
    that are not above 0."""
    finite, diagonal = np.isfinite(matrix), np.diag(matrix)
    if not finite.all():
        (row, column), *_ = np.argwhere(~finite)
        raise ConfigError(
            f"{place}: expected finite numbers, got {matrix[row, column]:g} in row {row}, column {column} (from 0); "
            f"leave voxels without a variance out of the data, and give them a diagonal of 1 here"
        )
    if not np.allclose(matrix, matrix.T, rtol=1e-6):
        largest = np.abs(matrix - matrix.T).max()
        raise ConfigError(
            f"{place}: expected a symmetric matrix, got halves that differ by up to {largest:.3g}; use (C + C.T) / 2"
        )
    if not (diagonal > 0).all():
        row = int(np.argmin(diagonal))
        raise ConfigError(f"{place}: expected a diagonal above 0, got {diagonal[row]:g} in row {row} (from 0)")


def _load(path: Path, place: str) -> ndarray:
    expected = f"{place}: expected a file of numpy (.npy) with a matrix, got {path}"
    try:
        with path.expanduser().open("rb") as file:
            is_numpy = file.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
            file.seek(0)
            matrix = read_array(file, allow_pickle=False) if is_numpy else None
    except OSError as error:
        raise ConfigError(f"{expected}: {error.strerror or reason_of(error)}") from error
    except UNREADABLE as error:
        raise ConfigError(f"{expected}, which is damaged, or holds objects") from error
    if matrix is None:
        raise ConfigError(f"{expected}, which is none; write it by numpy.save")
    if matrix.dtype.kind not in "biuf":
        raise ConfigError(f"{expected}, which holds no real numbers but the type {matrix.dtype}")
    return np.asarray(matrix, float)

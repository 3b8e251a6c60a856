"""Errors of spaxels that are correlated as the data say, where there are more spaxels than independent spectra.

Cubes of MaNGA and SAMI are sums of the spectra of fewer fibres, so the correlation matrix R of their spaxels has no
inverse. A Cholesky factorisation with pivots chooses spaxels, each that with the largest variance given those before,
until no spaxel is left whose variance given all of these is above a small fraction of its own: the noise of the others
follows from theirs. Only the chosen ones enter the likelihood, with their rows and columns of R.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from scipy.linalg import get_lapack_funcs, solve_triangular

from rubix_like.cube.fibres.covariance import SpaxelCorrelations
from rubix_like.errors import ConfigError
from rubix_like.inference.likelihoods.voxel_errors import AbstractCorrelation, Voxels
from rubix_like.runtime.words import format_bytes

SMALLEST_SHARE: float = 0.05
"""Share of a spaxel's variance that does not follow from other spaxels, below which it is left out: above the 2 % by
which correlations differ between the wavelengths at which a file keeps them."""

MOST_SPAXELS: int = 6000
"""Spaxels with data whose correlations are factorised: 290 MB a matrix for the most, and a few at once."""

_MOST_PARTS = 32
"""Factors of different wavelengths and masks; of more, masks are joined."""

_LARGEST = 2e9
"""Bytes of factors that are kept, on every device."""

_BIN_OR_CUT = "cut a part out of the cube (Cube.cut), bin its spaxels, or set covariance: null"


class CorrelatedBins(eqx.Module):
    """Some bins whose spaxels are correlated alike: L^-1 with L L^T the correlations of the chosen spaxels."""

    inverse: Float[Array, "own own"]
    spaxel: Int[Array, " own"]
    bins: Int[Array, " bin"]


class DataCovariance(AbstractCorrelation):
    """Normal errors with the covariance D^1/2 R D^1/2, D the data's variances, R their spaxels' correlations in a bin.

    `parts`: of different bins; residuals of spaxels that are not chosen are 0, their `inverse_sigma` is to be 0 too.
    """

    parts: tuple[CorrelatedBins, ...]
    log_determinant: Float[Array, ""]

    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """L^-1 r of the chosen spaxels, bin by bin."""
        del data, model, inverse_sigma
        rows = residual.reshape(-1, residual.shape[-1])
        found = jnp.zeros_like(rows)
        for part in self.parts:
            place = (part.spaxel[:, None], part.bins[None, :])
            whitened = jnp.matmul(part.inverse.astype(rows.dtype), rows[place], precision=Precision.HIGHEST)
            found = found.at[place].set(whitened)
        return found.reshape(residual.shape)


class ChosenSpaxels(NamedTuple):
    """The errors, which voxels they are of, and those that say nothing more: their noise follows from the others'.

    `used`: all voxels; those that are neither are left out, as their correlations are not known, or masks differ.
    """

    errors: DataCovariance
    chosen: Bool[ndarray, "y x wave"]
    dependent: Bool[ndarray, "y x wave"]
    used: Bool[ndarray, "y x wave"]

    @property
    def note(self) -> str:
        """How many spaxels are fitted, and what is left out."""
        most = int(self.chosen.sum(axis=(0, 1)).max())
        left_out = 1 - (self.chosen | self.dependent).sum() / self.used.sum()
        lost = (
            f"; {100 * left_out:.2g} % of the voxels are left out, as masks differ between bins, or as the data give "
            f"no correlations of a spaxel"
        )
        return (
            f"errors are correlated between spaxels as the data say: of {self.used.any(axis=2).sum()} spaxels at most "
            f"{most} are fitted at a wavelength, the noise of the others follows from theirs"
            f"{lost if left_out else ''}; the verdict tests whitened residuals"
        )


class _Part(NamedTuple):
    """Bins with the same spaxels."""

    wavelength: float
    bins: Int[ndarray, " bin"]
    used: Bool[ndarray, " spaxel"]


def make_data_covariance(
    correlations: SpaxelCorrelations, wavelength: Float[ndarray, " wave"], used: Bool[ndarray, "y x wave"]
) -> ChosenSpaxels:
    """The errors of the voxels that are used, with a file's correlations at the nearest of its wavelengths and the
    middles between these.

    Spaxels without a pair at any wavelength are left out where most have some: their correlations are not known. Raises
    ConfigError for another grid of spaxels, for too many of them, and if none is left.
    """
    if correlations.shape != used.shape[:2]:
        raise ConfigError(f"expected correlations of {used.shape[:2]} rows and columns, got {correlations.shape}")
    most = int(used.any(axis=2).sum())
    if most > MOST_SPAXELS:
        raise ConfigError(f"expected at most {MOST_SPAXELS} spaxels with data, got {most}; {_BIN_OR_CUT}")
    rows = used.reshape(-1, used.shape[2]) & _known(correlations, used)[:, None]
    chosen, dependent = np.zeros_like(rows), np.zeros_like(rows)
    parts, log_determinant, size = list[CorrelatedBins](), 0.0, 0.0
    for part in _parts(np.asarray(correlations.wavelength), wavelength, rows):
        seen = np.flatnonzero(part.used)
        lower, order = _factor(correlations.at(part.wavelength)[seen][:, seen].toarray())
        size += 8.0 * lower.size
        if size > _LARGEST:
            raise ConfigError(f"expected factors of at most {format_bytes(int(_LARGEST))}, got more; {_BIN_OR_CUT}")
        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True)
        parts.append(CorrelatedBins(jnp.asarray(inverse), jnp.asarray(seen[order]), jnp.asarray(part.bins)))
        dependent[np.ix_(seen, part.bins)] = True
        chosen[np.ix_(seen[order], part.bins)] = True
        log_determinant += 2 * len(part.bins) * float(np.sum(np.log(np.diag(lower))))
    if not chosen.any():
        raise ConfigError(f"expected spaxels with data in neighbouring bins, got masks without any; {_BIN_OR_CUT}")
    errors = DataCovariance(parts=tuple(parts), log_determinant=jnp.asarray(log_determinant))
    return ChosenSpaxels(errors, chosen.reshape(used.shape), (dependent & ~chosen).reshape(used.shape), used)


def _known(correlations: SpaxelCorrelations, used: Bool[ndarray, "y x wave"]) -> Bool[ndarray, " spaxel"]:
    """Spaxels with a pair; all where most spaxels with data have none."""
    paired = np.zeros(used.shape[0] * used.shape[1], bool)
    paired[np.asarray(correlations.first)] = paired[np.asarray(correlations.second)] = True
    seen = used.any(axis=2).reshape(-1)
    return paired if 2 * paired[seen].sum() > seen.sum() else np.ones_like(paired)


def _factor(matrix: Float[ndarray, "own own"]) -> tuple[Float[ndarray, "kept kept"], Int[ndarray, " kept"]]:
    """The lower Cholesky factor of the chosen spaxels, in the order in which they were chosen, and their numbers.

    Raises ConfigError for a matrix that is far from positive semi-definite: one that no noise can have.
    """
    (factorise,) = get_lapack_funcs(("pstrf",), (matrix,))
    found, order, rank, _ = factorise(matrix, lower=1, tol=SMALLEST_SHARE)
    lowest = np.min(1 - np.sum(found[rank:, :rank] ** 2, axis=1), initial=0.0)
    if lowest < -SMALLEST_SHARE:
        raise ConfigError(
            f"expected correlations that noise can have, got spaxels with {lowest:.2g} of it left given others; "
            f"the file leaves out pairs that are correlated; take the cube in layout 'manga' or HDF5"
        )
    return np.tril(found[:rank, :rank]), order[:rank] - 1


def _parts(
    planes: Float[ndarray, " plane"], wavelength: Float[ndarray, " wave"], rows: Bool[ndarray, "spaxel wave"]
) -> list[_Part]:
    """Bins with data by the wavelength of their correlations and by their masks."""
    nodes = np.sort(np.concatenate([planes, 0.5 * (planes[1:] + planes[:-1])]))
    nearest = np.argmin(np.abs(wavelength[:, None] - nodes[None, :]), axis=1)
    seen = rows.any(axis=0)
    groups = [(float(node), np.flatnonzero(seen & (nearest == number))) for number, node in enumerate(nodes)]
    groups = [(node, bins) for node, bins in groups if len(bins)]
    parts = [part for node, bins in groups for part in _by_mask(node, bins, rows)]
    if len(parts) <= _MOST_PARTS:
        return parts
    n_run = max(1, _MOST_PARTS // len(groups))
    runs = [(node, run) for node, bins in groups for run in np.array_split(bins, min(n_run, len(bins)))]
    return [_joined(node, run, rows) for node, run in runs]


def _by_mask(node: float, bins: Int[ndarray, " bin"], rows: Bool[ndarray, "spaxel wave"]) -> list[_Part]:
    """Bins with the same spaxels together."""
    masks, number = np.unique(rows[:, bins].T, axis=0, return_inverse=True)
    return [_Part(node, bins[number.reshape(-1) == index], mask) for index, mask in enumerate(masks)]


def _joined(node: float, bins: Int[ndarray, " bin"], rows: Bool[ndarray, "spaxel wave"]) -> _Part:
    """Bins with the spaxels that all of them have; those with less than half as many as others are left out."""
    counts = rows[:, bins].sum(axis=0)
    kept = bins[2 * counts > counts.max()]
    return _Part(node, kept, np.all(rows[:, kept], axis=1))

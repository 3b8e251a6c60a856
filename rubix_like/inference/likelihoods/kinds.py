"""The likelihood that `fit.likelihood` asks for: by its name, with its parameters and correlations.

Errors are correlated between spaxels, wavelengths or all voxels, by a matrix or as the data give them, set by set.
Cubes of MaNGA and SAMI are sums of the spectra of fewer fibres, so the correlation matrix R of their spaxels has no
inverse. A Cholesky factorisation with pivots chooses spaxels, each that with the largest variance given those before,
until no spaxel is left whose variance given all of these is above a small fraction of its own: the noise of the others
follows from theirs. Only the chosen ones enter the likelihood, with their rows and columns of R.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray
from numpy.lib.format import MAGIC_PREFIX, read_array
from scipy.linalg import get_lapack_funcs, solve_triangular

from rubix_like.config.data_sets import CovarianceSettings
from rubix_like.config.plug_ins import LIKELIHOODS
from rubix_like.config.sections.fit import LikelihoodSettings
from rubix_like.cube.fibres.covariance import SpaxelCorrelations
from rubix_like.cube.observed import ObservedCube
from rubix_like.errors import ConfigError, suggest
from rubix_like.inference.likelihoods.voxel_errors import (
    AbstractCorrelation,
    AbstractErrorDistribution,
    AbstractErrors,
    AbstractResiduals,
    StudentT,
    Voxels,
)
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.notes import WARNING, Note
from rubix_like.runtime.words import format_bytes, reason_of

_LARGEST = 2e9
"""Bytes of factors that are kept."""


class Correlation(AbstractCorrelation):
    """Normal errors with the covariance D^1/2 R D^1/2, D the data's variances, R blocks of correlations.

    A block is the voxels of one wavelength (`between` spaxels), of one spaxel (wavelengths), or all voxels. `inverse`:
    inverse Cholesky factors, 0 for voxels that are left out, one for each pattern of them; `pattern`: that of a block.
    """

    inverse: Float[Array, "pattern voxel voxel"]
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
    if between == "voxels":
        return cube.reshape(1, -1)
    rows = cube.reshape(-1, cube.shape[-1])
    return rows.T if between == "spaxels" else rows


def make_correlation(settings: CovarianceSettings, used: Bool[ndarray, "y x wave"]) -> Correlation:
    """The correlations of a matrix, a covariance or correlations, for the voxels that are used; ConfigError for a
    matrix of another size, or one that is no covariance."""
    blocks = _blocks(used, settings.between)
    size = blocks.shape[1]
    place = "fit.likelihood.covariance.matrix"
    matrix = _load(settings.matrix, place) if isinstance(settings.matrix, Path) else np.array(settings.matrix, float)
    if matrix.shape != (size, size):
        raise ConfigError(
            f"{place}: expected shape ({size}, {size}), one row for each of the {settings.between} that are read (up "
            f"to the ends of fit.windows, y before x before wavelength), got {matrix.shape}"
        )
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
    matrix = matrix / np.sqrt(np.outer(diagonal, diagonal))
    if not np.min(np.linalg.eigvalsh(matrix)) > 0:
        raise ConfigError(f"{place}: expected a positive definite matrix, got none; add a little to its diagonal")
    patterns, pattern = np.unique(blocks, axis=0, return_inverse=True)
    needed = 8.0 * (len(patterns) if len(patterns) == 1 else len(patterns) + len(blocks)) * matrix.size
    if needed > _LARGEST:
        raise ConfigError(
            f"fit.likelihood.covariance: expected factors of at most {format_bytes(int(_LARGEST))}, got "
            f"{format_bytes(int(needed))} for {len(blocks)} blocks of {matrix.shape[0]} voxels; fit fewer wavelengths "
            f"or spaxels, or leave out the same voxels in each"
        )
    inverse, log_root = np.zeros((len(patterns), *matrix.shape)), np.zeros(len(patterns))
    for number, used_voxels in enumerate(patterns):
        kept = np.flatnonzero(used_voxels)
        lower = np.linalg.cholesky(matrix[np.ix_(kept, kept)])
        inverse[number][np.ix_(kept, kept)] = np.linalg.inv(lower)
        log_root[number] = np.sum(np.log(np.diag(lower)))
    pattern = pattern.reshape(-1).astype(np.int32)
    log_determinant = jnp.asarray(2 * np.sum(log_root[pattern]))
    return Correlation(jnp.asarray(inverse), jnp.asarray(pattern), log_determinant, settings.between)


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


SMALLEST_SHARE: float = 0.05
"""Share of a spaxel's variance that does not follow from other spaxels, below which it is left out: above the 2 % by
which correlations differ between the wavelengths at which a file keeps them."""

MOST_SPAXELS: int = 6000
"""Spaxels with data whose correlations are factorised: 290 MB a matrix for the most, and a few at once."""

_MOST_PARTS = 32
"""Factors of different wavelengths and masks; of more, masks are joined."""


_BIN_OR_CUT = "cut a part out of the cube (Cube.cut), bin its spaxels, or set covariance: null"


class CorrelatedBins(eqx.Module):
    """Some bins whose spaxels are correlated alike: L^-1 with L L^T the correlations of the chosen spaxels."""

    inverse: Float[Array, "spaxel spaxel"]
    spaxel: Int[Array, " spaxel"]
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
    paired, seen = np.zeros(used[:, :, 0].size, bool), used.any(axis=2).reshape(-1)
    paired[np.asarray(correlations.first)] = paired[np.asarray(correlations.second)] = True
    rows = used.reshape(-1, used.shape[2])
    if 2 * paired[seen].sum() > seen.sum():  # else the file gives almost none, and spaxels are taken as independent
        rows = rows & paired[:, None]
    chosen, dependent = np.zeros_like(rows), np.zeros_like(rows)
    parts, log_determinant, size = list[CorrelatedBins](), 0.0, 0.0
    for part in _parts(np.asarray(correlations.wavelength), wavelength, rows):
        known = np.flatnonzero(part.used)
        lower, order = _factor(correlations.at(part.wavelength)[known][:, known].toarray())
        size += 8.0 * lower.size
        if size > _LARGEST:
            raise ConfigError(f"expected factors of at most {format_bytes(int(_LARGEST))}, got more; {_BIN_OR_CUT}")
        inverse = solve_triangular(lower, np.eye(len(lower)), lower=True)
        parts.append(CorrelatedBins(jnp.asarray(inverse), jnp.asarray(known[order]), jnp.asarray(part.bins)))
        dependent[np.ix_(known, part.bins)] = True
        chosen[np.ix_(known[order], part.bins)] = True
        log_determinant += 2 * len(part.bins) * float(np.sum(np.log(np.diag(lower))))
    if not chosen.any():
        raise ConfigError(f"expected spaxels with data in neighbouring bins, got masks without any; {_BIN_OR_CUT}")
    errors = DataCovariance(parts=tuple(parts), log_determinant=jnp.asarray(log_determinant))
    return ChosenSpaxels(errors, chosen.reshape(used.shape), (dependent & ~chosen).reshape(used.shape), used)


def _factor(matrix: Float[ndarray, "spaxel spaxel"]) -> tuple[Float[ndarray, "kept kept"], Int[ndarray, " kept"]]:
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
    """Bins with data by the wavelength of their correlations and by their masks; where there are many masks runs of
    bins, with the spaxels that all of a run have."""
    nodes = np.sort(np.concatenate([planes, 0.5 * (planes[1:] + planes[:-1])]))
    nearest = np.argmin(np.abs(wavelength[:, None] - nodes[None, :]), axis=1)
    seen = rows.any(axis=0)
    groups = [(float(node), np.flatnonzero(seen & (nearest == number))) for number, node in enumerate(nodes)]
    groups = [(node, bins) for node, bins in groups if len(bins)]
    parts = []
    for node, bins in groups:
        masks, number = np.unique(rows[:, bins].T, axis=0, return_inverse=True)
        parts += [_Part(node, bins[number.reshape(-1) == index], mask) for index, mask in enumerate(masks)]
    if len(parts) <= _MOST_PARTS:
        return parts
    joined, n_run = [], max(1, _MOST_PARTS // len(groups))
    for node, bins in groups:
        for run in np.array_split(bins, min(n_run, len(bins))):
            counts = rows[:, run].sum(axis=0)
            kept = run[2 * counts > counts.max()]  # not those with less than half as many spaxels as others
            joined.append(_Part(node, kept, np.all(rows[:, kept], axis=1)))
    return joined


class JointErrors(AbstractErrors):
    """The correlations of each set (None: independent errors), whose voxels lie in one row (1, 1, voxel)."""

    sets: tuple[AbstractCorrelation | None, ...]
    shapes: tuple[tuple[int, int, int], ...] = eqx.field(static=True)

    def residuals(self, residual: Voxels, data: Voxels, model: Voxels, inverse_sigma: Voxels) -> Voxels:
        """The residuals of each set, whitened by its correlations."""
        del data, model, inverse_sigma
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = []
        for errors, shape, end in zip(self.sets, self.shapes, ends, strict=True):
            of_set = residual[0, 0, end - int(np.prod(shape)) : end].reshape(shape)
            whitened = of_set if errors is None else errors.residuals(of_set, of_set, of_set, of_set)
            parts.append(whitened.reshape(-1))
        return jnp.concatenate(parts)[None, None]

    def log_constant(self) -> Any:
        """-ln det(R) / 2 of all sets."""
        return sum((errors.log_constant() for errors in self.sets if errors is not None), start=0.0)


GAUSSIAN: str = "gaussian"

_USUAL_DEGREES = 4.0

_WHICH = (
    "files of MaNGA and SAMI, those of the layouts 'manga' and 'sami' and HDF5 files of cubes of fibres have some; "
    "take auto, or give a matrix"
)

_IN_VAIN = "the data give the covariance of spaxels, which this fit does not use: errors are too small"

_LOST = (
    "the model has fibres, but the data give no correlations of spaxels, which count as independent: if the data come "
    "from fibres too, errors are too small; HDF5 and the layouts 'manga' and 'sami' keep correlations"
)


def make_errors(settings: LikelihoodSettings) -> AbstractErrors | None:
    """The errors that a section describes; None: normal ones. ConfigError for an unknown kind or parameter."""
    if settings.kind == GAUSSIAN:
        return None
    if settings.kind == StudentT.kind:
        return StudentT(np.float64(settings.degrees_of_freedom or _USUAL_DEGREES))
    defined = {subclass.kind: subclass for subclass in _below(AbstractErrors)}
    if settings.kind not in defined and settings.kind not in LIKELIHOODS:
        near = suggest(settings.kind, (GAUSSIAN, *LIKELIHOODS.names(), *defined))
        raise ConfigError(f"fit.likelihood.kind: unknown likelihood '{settings.kind}'{near}")
    errors_type = defined.get(settings.kind) or LIKELIHOODS.find(settings.kind)
    known = {part.name: part for part in dataclasses.fields(errors_type)}
    for name in settings.parameters:
        if name not in known:
            raise ConfigError(
                f"fit.likelihood.parameters: unknown parameter '{name}' of '{settings.kind}'{suggest(name, known)}"
            )
    given = {name: settings.parameters.get(name, part.default) for name, part in known.items()}
    left_out = [name for name, value in given.items() if value is dataclasses.MISSING]
    if left_out:
        raise ConfigError(f"fit.likelihood.parameters: expected {', '.join(left_out)} of '{settings.kind}', got none")
    errors = errors_type(**{name: jnp.asarray(value, float) for name, value in given.items()})
    fault = errors.fault() if isinstance(errors, AbstractErrorDistribution) else None
    if fault is not None:
        raise ConfigError(f"fit.likelihood: {fault}; check its log_density")
    return errors


def with_covariance_of_data(
    likelihood: Any,
    observed: ObservedCube,
    covariance: Literal["auto", "data"] | None,
    place: str,
    against: str | None,
    *,
    of_fibres: bool,
) -> tuple[Any, tuple[str, ...]]:
    """The likelihood of a cube with the correlations that the data give, and a note on them.

    `place`: name of the setting; `against`: what they do not go with, None for nothing; `of_fibres`: whether the
    model's spaxels are made of fibres. Raises ConfigError where `data` are asked for that are not there, or cannot be
    used.
    """

    def left_out(text: str) -> tuple[Any, tuple[str, ...]]:
        return likelihood, (Note("errors.correlations_left_out", text, WARNING),)

    if observed.correlations is None:
        if covariance == "data":
            raise ConfigError(f"{place}: expected data that give correlations of their spaxels, got none; {_WHICH}")
        is_lost = of_fibres and observed.variance is not None and covariance is not None
        return left_out(_LOST) if is_lost else (likelihood, ())
    if against is not None:
        if covariance == "data":
            raise ConfigError(f"{place}: expected auto or null beside {against}, got data; leave one of them out")
        return left_out(f"{_IN_VAIN}; it does not go with {against}")
    if covariance is None:
        return left_out(f"{_IN_VAIN}; set {place}: auto")
    sigma = np.asarray(likelihood.inverse_sigma)
    try:
        found = make_data_covariance(observed.correlations, observed.wavelength, sigma > 0)
    except ConfigError as error:
        if covariance == "data":
            raise ConfigError(f"{place}: {error}") from error
        return left_out(f"{_IN_VAIN}: {error}")
    kept, dependent = (jax.device_put(np.where(spaxels, sigma, 0)) for spaxels in (found.chosen, found.dependent))
    changed = {"errors": found.errors, "inverse_sigma": kept, "dependent": dependent}
    return dataclasses.replace(likelihood, **changed), (Note("errors.correlations", found.note),)


def notes_on_errors(errors: AbstractErrors | None) -> tuple[str, ...]:
    """Notes on what the tests of a result mean, where errors are not normal and independent."""
    if isinstance(errors, Correlation):
        text = f"errors are correlated between {errors.between}: the verdict tests whitened residuals"
        return (Note("errors.correlated", text),)
    if isinstance(errors, AbstractErrorDistribution):
        text = (
            f"errors are distributed as '{errors.kind}': chi^2 of the residuals is no test of the model, so chi^2 and "
            f"the verdict are those of their normal scores Phi^-1(F(r)), standard normal if the model is true"
        )
    elif isinstance(errors, AbstractResiduals):
        text = (
            f"residuals are those of '{errors.kind}': chi^2 and the verdict's tests hold only if they are independent "
            f"and standard normal where the model is true"
        )
    else:
        return ()
    return (Note("errors.kind", text),)


def _below(kind: type) -> Iterator[Any]:
    for subclass in kind.__subclasses__():
        if getattr(subclass, "kind", ""):
            yield subclass
        yield from _below(subclass)

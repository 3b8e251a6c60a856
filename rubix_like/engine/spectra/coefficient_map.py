"""The linear map from coefficients per spaxel to the detector's bins."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.engine.spaxels import Images, exact_product
from rubix_like.runtime.mesh.bin_split import per_bin
from rubix_like.runtime.mesh.mesh import DeviceLayout

Projection = Callable[[Float[Array, "spaxel coefficient"]], Float[Array, "spaxel bin"]]
"""Function from the coefficients of some spaxels to their flux density in bins (1e-20 erg/s/cm2/Angstrom)."""


class AbstractCoefficientMap(eqx.Module):
    """The linear map from coefficients, (velocity node, basis spectrum) flattened to one axis, to the detector's bins.

    Inside the model each device's map holds only the bins of its part of the layout.
    """

    @property
    @abstractmethod
    def n_coefficient(self) -> int:
        """Columns that are kept for each spaxel: velocity nodes times basis spectra, or fewer."""

    @property
    @abstractmethod
    def n_wave(self) -> int:
        """Bins that it holds."""

    @abstractmethod
    def kept(self, coefficients: Float[Array, "spaxel coefficient"]) -> Float[Array, "spaxel kept"]:
        """The columns that `spectra` projects, `n_coefficient` of them, from painted coefficients."""

    @abstractmethod
    def spectra(self) -> Projection:
        """The function that projects coefficients onto the bins; its tables are computed once, in this call."""

    @abstractmethod
    def moments(self) -> Float[Array | ndarray, "coefficient 2"]:
        """Each coefficient's flux on the whole detector (1e-20 erg/s/cm2), and that flux times v_los (km/s)."""

    @abstractmethod
    def seen(
        self, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
    ) -> Float[Array, "seen own_bin"]:
        """The spectra of the spaxels that are seen, in the bins that it holds.

        Where `spatial` depends on wavelength, it acts on what is kept if `by_terms`, else on each bin's image.
        """

    @abstractmethod
    def of_own_bins(self, layout: DeviceLayout) -> "AbstractCoefficientMap":
        """The map to the bins that this device finishes."""

    @abstractmethod
    def padded(self, n_padded: int) -> "AbstractCoefficientMap":
        """The map with bins appended up to `n_padded` (on the host)."""


def projected(
    projection: Projection, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
) -> Float[Array, "seen own_bin"]:
    """`AbstractCoefficientMap.seen` by a projection of what is kept."""
    if spatial.by_wavelength is None or by_terms:
        return spatial.projected(kept, projection)
    return spatial.of_bins(projection(kept))


TABLES = ("reduction", "mixing", "matrix", "sizes", "error")


class MatrixMap(AbstractCoefficientMap):
    """F(lambda) = H M(lambda) by one product with a matrix; or, for a PSF with the terms w_k, A_k (`PSFTerms`), the sum
    over terms k of w_k(lambda) (A_k * H) M(lambda).

    H are the coefficients of a spaxel, M the projection matrix. Its rows are far from independent (neighbouring
    velocity nodes look alike), and w_k A_k is small for k > 0, so that H w_k M is needed with few digits only: w_k M
    is replaced by a product U_k V_k of as few columns as the tolerance takes. H U_0 is kept of the coefficients; the
    other U_k are products of U_0 with `mixing`. `matrix` holds all V_k, one below the other, `sizes` of each.

    `reduction`: U_0, or None where all coefficients are kept. For a PSF that is one for all wavelengths, and without
    one, there is one term. `moment_matrix` takes the coefficients to their moments.
    """

    matrix: Float[Array | ndarray, "column wave"] = eqx.field(metadata=per_bin(1, pad="zero"))
    moment_matrix: Float[Array | ndarray, "coefficient 2"]
    sizes: tuple[int, ...] = eqx.field(static=True)
    reduction: Float[Array | ndarray, "coefficient kept"] | None = None
    mixing: Float[Array | ndarray, "kept mixed"] | None = None

    @property
    def n_coefficient(self) -> int:
        """Columns that are kept."""
        return self.sizes[0]

    @property
    def n_wave(self) -> int:
        """Columns of the matrix."""
        return self.matrix.shape[1]

    def kept(self, coefficients: Float[Array, "spaxel coefficient"]) -> Float[Array, "spaxel kept"]:
        """H U_0."""
        return coefficients if self.reduction is None else exact_product(coefficients, self.reduction)

    def spectra(self) -> Projection:
        """The product with V_0."""
        return lambda kept: exact_product(kept, jnp.asarray(self.matrix)[: self.n_coefficient])

    def moments(self) -> Float[Array | ndarray, "coefficient 2"]:
        """`moment_matrix`."""
        return self.moment_matrix

    def seen(
        self, kept: Float[Array, "spaxel kept"], spatial: Images, *, by_terms: bool
    ) -> Float[Array, "seen own_bin"]:
        """One product with the matrix, of the columns of all terms after each is seen through its image."""
        if spatial.by_wavelength is None or not by_terms or self.mixing is None:
            return projected(self.spectra(), kept, spatial, by_terms=by_terms)
        images = spatial.grid.images(kept)
        every = jnp.concatenate([images, exact_product(images, self.mixing)], axis=2)
        return exact_product(spatial.by_wavelength.terms(every, self.sizes), self.matrix)

    def beside(self, rows: Float[Array, "few wave"]) -> "MatrixMap":
        """The map of more columns, after those it has, that stand for these rows; for a map of one term."""
        (size,) = self.sizes
        matrix = jnp.concatenate([jnp.asarray(self.matrix), rows])
        return dataclasses.replace(self, matrix=matrix, sizes=(size + len(rows),))

    def of_own_bins(self, layout: DeviceLayout) -> "MatrixMap":
        """The map with the columns of these bins only."""
        return dataclasses.replace(self, matrix=layout.own_bins(jnp.asarray(self.matrix)))

    def padded(self, n_padded: int) -> "MatrixMap":
        """The map with columns of 0 appended."""
        missing = ((0, 0), (0, n_padded - self.n_wave))
        return dataclasses.replace(self, matrix=np.pad(np.asarray(self.matrix), missing))


_WORTH = 0.7
"""Coefficients are reduced where no more than this share of them is left."""

_HALVINGS = 24

_LEAST = (0.03, 0.004, 0.0005)
"""Spectra that add less than this share of the tolerance to the rms over all templates are left out from the start: the
first share that suffices for the worst template."""

_AT_ONCE = 4
"""Sets of spectra that are reduced together."""

_N_CHECKED = 9
"""Velocity nodes, at most, at which errors are measured."""


class TermWeights(NamedTuple):
    """w_k in the detector's bins; how large each w_k A_k is at most, and the error of their sum, relative to the PSF's
    peak."""

    weights: Float[ndarray, "wave term"]
    size: Float[ndarray, " term"]
    error: float


def find_term_tables(
    matrix: Float[ndarray, "coefficient wave"],
    templates: Float[ndarray, "template rank"],
    terms: TermWeights,
    tolerance: float,
) -> dict[str, ndarray]:
    """`reduction` (no columns where there is none), `mixing`, `matrix` and `sizes` of a `MatrixMap`, and its `error`.

    `templates`: coefficients of the templates on the basis, of which the matrix has one row for each velocity node.
    `error` is a bound of the rms error of any template at any node, seen through the PSF, relative to its mean and in
    any spaxel to the PSF's peak: the sum over terms of `size` times the error of U_k V_k, and what the terms leave out.
    It is within the tolerance unless that alone is larger.
    """
    found: dict[str, ndarray] = {}
    for share in _LEAST:
        found = _tables(_Seen.of(matrix, templates, share * tolerance), terms, tolerance)
        if found["error"] <= tolerance:
            break
    return found


def _tables(seen: "_Seen", terms: TermWeights, tolerance: float) -> dict[str, ndarray]:
    matrix = seen.matrix
    left_out = terms.error * seen.steepest
    within = max(tolerance - left_out, 0.0)
    first, *others = (seen.reduced(weights, size) for weights, size in zip(terms.weights.T, terms.size, strict=True))
    sizes = _fewest([first, *others], within)
    kept, reduction = first.spectra[:, : sizes[0]].T, matrix @ first.spectra[:, : sizes[0]]
    errors = [first.error[sizes[0]]]
    if sizes[0] > _WORTH * len(matrix):
        sizes = [len(matrix), *_fewest(others, within)]
        kept, reduction, errors = matrix, np.zeros((len(matrix), 0)), []
    spectra = [other.spectra[:, :size] for other, size in zip(others, sizes[1:], strict=True)]
    mixing = [(kept * weights) @ columns for weights, columns in zip(terms.weights.T[1:], spectra, strict=True)]
    errors += [other.error[size] for other, size in zip(others, sizes[1:], strict=True)]
    return {
        "reduction": reduction,
        "mixing": np.concatenate([np.zeros((len(kept), 0)), *mixing], axis=1),
        "matrix": np.concatenate([kept, *(columns.T for columns in spectra)]),
        "sizes": np.asarray(sizes),
        "error": np.asarray(left_out + sum(errors)),
    }


class _Reduced(NamedTuple):
    """Orthonormal spectra, the most important ones first; the `amount` that each adds; the error of a term that keeps
    so many of them, from 0 on."""

    spectra: Float[ndarray, "wave spectrum"]
    amount: Float[ndarray, " spectrum"]
    error: Float[ndarray, " number"]


class _Seen(NamedTuple):
    """The matrix, the templates' coefficients over their means, a few spectra that have the second moments of all
    templates at all nodes (rms over templates, down to `least`), and the largest rms of a template over its mean."""

    matrix: Float[ndarray, "coefficient wave"]
    templates: Float[ndarray, "template rank"]
    moments: Float[ndarray, "few wave"]
    steepest: float
    least: float

    @staticmethod
    def of(
        matrix: Float[ndarray, "coefficient wave"], templates: Float[ndarray, "template rank"], least: float
    ) -> "_Seen":
        matrix, rank = matrix.astype(np.float64), templates.shape[1]
        at_nodes = matrix.reshape(-1, rank, matrix.shape[1])
        middle = templates @ at_nodes[len(at_nodes) // 2]
        mean = middle.mean(axis=1)
        shining = mean > 0
        relative = templates[shining] / mean[shining, None]
        size = np.linalg.qr(relative, mode="r") / np.sqrt(len(relative))
        steepest = np.sqrt((middle[shining] ** 2).mean(axis=1)) / mean[shining]
        sets = [size @ spectra for spectra in at_nodes]
        while True:
            groups = [sets[start : start + _AT_ONCE] for start in range(0, len(sets), _AT_ONCE)]
            sets = [_moments(np.concatenate(group), least) for group in groups]
            if len(sets) == 1:
                return _Seen(matrix, relative, sets[0], float(steepest.max(initial=1.0)), least)

    def reduced(self, weights: Float[ndarray, " wave"], size: float) -> _Reduced:
        """The spectra that the product with these weights needs at most, for a term of this size."""
        n_wave, rank = self.matrix.shape[1], self.templates.shape[1]
        useful = _moments(self.moments * weights, self.least / size)
        amount = size * np.sqrt((useful**2).mean(axis=1))
        spectra = np.linalg.qr(useful.T)[0]
        at_nodes = (self.matrix * weights).reshape(-1, rank, n_wave)
        worst = np.zeros(len(amount) + 1)
        for node in np.unique(np.linspace(0, len(at_nodes) - 1, _N_CHECKED).round().astype(int)):
            whole = ((self.templates @ at_nodes[node]) ** 2).sum(axis=1, keepdims=True)
            parts = np.cumsum((self.templates @ (at_nodes[node] @ spectra)) ** 2, axis=1)
            worst = np.maximum(worst, np.concatenate([whole, whole - parts], axis=1).max(axis=0))
        return _Reduced(spectra, amount, size * np.sqrt(np.maximum(worst, 0.0) / n_wave))


def _moments(spectra: Float[ndarray, "row wave"], least: float) -> Float[ndarray, "few wave"]:
    """Orthogonal spectra with the second moments of these, the largest first, down to an rms of `least`."""
    squares, vectors = np.linalg.eigh(spectra @ spectra.T)
    useful = squares[::-1] > spectra.shape[1] * least**2
    return vectors[:, ::-1][:, useful].T @ spectra


def _fewest(terms: list[_Reduced], tolerance: float) -> list[int]:
    """How many spectra of each term: those that add more than a limit, the largest at which the errors' sum is within
    the tolerance."""

    def above(limit: float) -> list[int]:
        return [int(np.count_nonzero(term.amount > limit)) for term in terms]

    def error(sizes: list[int]) -> float:
        return sum(float(term.error[size]) for term, size in zip(terms, sizes, strict=True))

    if not terms:
        return []
    high = max(float(term.amount.max(initial=0.0)) for term in terms)
    low = 1e-9 * high
    for _ in range(_HALVINGS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if error(above(middle)) <= tolerance else (low, middle)
    return above(low)

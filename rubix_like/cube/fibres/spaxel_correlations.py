"""Correlations of the spaxels of a cube as a file keeps them, and the covariance that they give with the variances.

A file has them at a few wavelengths: MaNGA's at those of the bands griz (Law et al. 2016, AJ 152, 83, section 9.3),
SAMI's local covariance at some bins (Sharp et al. 2015, MNRAS 446, 1551, section 5.7). With the spaxels' variances in a
bin they are the covariance there, rho_ij sqrt(var_i var_j), as MaNGA's analysis takes them (Westfall et al. 2019,
AJ 158, 231, section 6): they change slowly with wavelength.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.cube.fibres.covariance import MOST_DECOMPOSED, AbstractCovariance
from rubix_like.runtime.places import found_at

_ROUNDING = 1e-4
"""Negative eigenvalues up to this fraction of the largest are rounding errors of the file."""

_NO_MAP = (
    "got the correlations that a file keeps of some bins: these are rounded, and the matrix is singular or close to "
    "it; take the cube as the run returned it, or chi^2 of the fibres (fit.data.NAME.fibres, the row-stacked spectra)"
)


class SpaxelCorrelations(eqx.Module):
    """Correlation coefficients of pairs of spaxels, which are numbered row after row, at some wavelengths; a pytree.

    | field | shape | |
    |---|---|---|
    | first, second | (pair,) | numbers of the two spaxels; every pair stands once |
    | values | (plane, pair) | their correlation; that of pairs that are missing is 0 |
    | wavelength | (plane,) | Angstrom, in ascending order |
    | shape | static | rows and columns of spaxels |
    """

    first: Int[Array | ndarray, " pair"]
    second: Int[Array | ndarray, " pair"]
    values: Float[Array | ndarray, "plane pair"]
    wavelength: Float[Array | ndarray, " plane"]
    shape: tuple[int, int] = eqx.field(static=True)

    @classmethod
    def of_planes(
        cls, planes: Any, wavelength: Float[ndarray, " plane"], shape: tuple[int, int]
    ) -> "SpaxelCorrelations":
        """Of sparse matrices (spaxel, spaxel), one for each wavelength; their lower halves do not count.

        A spaxel that has neither a diagonal nor a pair in a plane had no data there, which says nothing of its
        correlations at other wavelengths: its pairs are those of the nearest plane that has both spaxels. Raises
        ValueError for a coefficient that is not finite, or beyond 1.
        """
        n_spaxel = shape[0] * shape[1]
        upper = [found_at("scipy.sparse:triu")(plane, k=1).tocoo() for plane in planes]
        known = np.stack([plane.diagonal() != 0 for plane in planes])
        numbers = [own.row.astype(np.int64) * n_spaxel + own.col for own in upper]
        every = np.unique(np.concatenate(numbers))
        values = np.zeros((len(upper), len(every)))
        for row, own, number in zip(values, upper, numbers, strict=True):
            row[np.searchsorted(every, number)] = own.data
        if not (np.abs(values) <= 1 + _ROUNDING).all():
            raise ValueError("expected correlations from -1 to 1, got others")
        for own, one in zip(known, upper, strict=True):
            own[one.row] = own[one.col] = True
        first, second = np.divmod(every, n_spaxel)
        order = np.argsort(wavelength)
        places = np.asarray(wavelength, np.float64)[order]
        values = _from_nearest(values[order], (known[:, first] & known[:, second])[order], places)
        return cls(first, second, values, places, shape)

    def at(self, wavelength: float) -> Any:
        """The correlations at a wavelength as a scipy CSR array (spaxel, spaxel), 1 on the whole diagonal.

        Linear between two planes, which keeps them non-negative; those of the nearest plane beyond the first and last.
        """
        planes = np.asarray(self.wavelength)
        share = np.array([np.interp(wavelength, planes, own) for own in np.eye(len(planes))])
        values = share @ np.asarray(self.values, np.float64)
        first, second = np.asarray(self.first), np.asarray(self.second)
        number = np.arange(self.shape[0] * self.shape[1])
        rows, columns = np.concatenate([first, second, number]), np.concatenate([second, first, number])
        entries = np.concatenate([values, values, np.ones(len(number))]), (rows, columns)
        return found_at("scipy.sparse:csr_array")(entries, shape=(len(number), len(number)))

    def within(self, rows: slice, columns: slice) -> "SpaxelCorrelations":
        """Those of the spaxels in some rows and columns."""
        number = np.arange(self.shape[0] * self.shape[1]).reshape(self.shape)[rows, columns]
        return self.renumbered(number.ravel(), number.shape)

    def renumbered(self, number: Int[ndarray, " spaxel"], shape: tuple[int, int]) -> "SpaxelCorrelations":
        """Those of spaxels, in another order or fewer of them, that have these numbers here."""
        place = np.full(self.shape[0] * self.shape[1], -1)
        place[number] = np.arange(len(number))
        first, second = place[np.asarray(self.first)], place[np.asarray(self.second)]
        kept = (first >= 0) & (second >= 0)
        return SpaxelCorrelations(first[kept], second[kept], self.values[:, kept], self.wavelength, shape)

    def covariance(self, variance: Float[ndarray, "y x"], wavelength: float) -> "StoredCovariance":
        """That of spaxels with these variances at a wavelength (Angstrom); those of 0 have no noise."""
        return StoredCovariance(self.at(wavelength), np.sqrt(np.asarray(variance, np.float64)).ravel(), self.shape)

    def __repr__(self) -> str:
        rows, columns = self.shape
        planes = f"{len(self.wavelength)} planes, {self.wavelength[0]:g}-{self.wavelength[-1]:g} Angstrom"
        return f"SpaxelCorrelations({rows} x {columns} spaxels, {planes})"


def _from_nearest(
    values: Float[ndarray, "plane pair"], known: Bool[ndarray, "plane pair"], wavelength: Float[ndarray, " plane"]
) -> Float[ndarray, "plane pair"]:
    """Values that are not known in a plane taken from the nearest plane in which they are."""
    found = np.empty_like(values)
    for number, own in enumerate(wavelength):
        nearest = np.argmin(np.where(known, np.abs(wavelength - own)[:, None], np.inf), axis=0)
        found[number] = np.where(known[number], values[number], values[nearest, np.arange(values.shape[1])])
    return found


@dataclass(frozen=True, eq=False, repr=False)
class StoredCovariance(AbstractCovariance):
    """That of correlations in a file, rho_ij sigma_i sigma_j, without the map from fibres to spaxels.

    | field | shape | |
    |---|---|---|
    | coefficients | (spaxel, spaxel) | rho, a scipy CSR array |
    | sigma | (spaxel,) | standard deviations; 0 in spaxels without data |
    | shape | | rows and columns of spaxels |
    """

    coefficients: Any
    sigma: Float[ndarray, " spaxel"]
    shape: tuple[int, int]

    def whole(self) -> Any:
        """rho_ij sigma_i sigma_j as a scipy CSR array (spaxel, spaxel); rows of spaxels without data are empty."""
        found = self.coefficients.multiply(self.sigma[:, None]).multiply(self.sigma[None, :]).tocsr()
        found.eliminate_zeros()
        return found

    @property
    def rank(self) -> NoReturn:
        """Raises ValueError: rounded correlations do not say it."""
        raise ValueError(f"covariance.rank: expected the map from fibres to spaxels, {_NO_MAP}")

    def chi2(self, residual: Float[ndarray, "y x"]) -> NoReturn:
        """Raises ValueError: chi^2 of a residual needs the map from fibres to spaxels."""
        shape = np.shape(residual)
        raise ValueError(f"covariance.chi2: expected the map from fibres to spaxels of shape {shape}, {_NO_MAP}")

    def inverse(self) -> NoReturn:
        """Raises ValueError: the matrix has none."""
        raise ValueError(f"covariance.inverse: expected a matrix of full rank, {_NO_MAP}")

    def draw(self, seed: int, number: int = 1) -> Float[ndarray, "number y x"]:
        """Images of noise with this covariance, U L^(1/2) z with its eigenvectors U, eigenvalues L and normal z of
        numpy's default generator: not those that the run's own covariance draws with the same seed.

        Raises ValueError for too many spaxels, or for correlations that no noise can have, where a file leaves out some
        (those of spaxels more than two apart in SAMI's layout).
        """
        generator = self._generator(seed, number)
        good = np.flatnonzero(self.sigma > 0)
        if len(good) > MOST_DECOMPOSED:
            raise ValueError(
                f"covariance.draw: expected at most {MOST_DECOMPOSED} spaxels with data, got {len(good)}; take a part "
                f"of the cube (Cube.cut)"
            )
        squares, vectors = np.linalg.eigh(self.matrix[good][:, good].toarray())
        if len(good) and squares[0] < -_ROUNDING * squares[-1]:
            raise ValueError(
                f"covariance.draw: expected correlations that noise can have, got eigenvalues down to "
                f"{squares[0] / squares[-1]:.2g} of the largest: the file leaves out pairs that are correlated; write "
                f"the cube in layout 'manga', which keeps all"
            )
        normal = generator.standard_normal((number, len(good)))
        images = np.zeros((number, len(self.sigma)))
        images[:, good] = (normal * np.sqrt(np.maximum(squares, 0.0))) @ vectors.T
        return images.reshape(number, *self.shape)

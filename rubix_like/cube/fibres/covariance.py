"""The covariance of the spaxels of a cube that was made of fibres, or of a mosaic: W V W^T.

W is the map from fibres (of a mosaic: from the pointings' spaxels) to spaxels and V the diagonal of their variances.
There are more spaxels than fibres, so the matrix is singular: its rank is at most the number of fibre exposures with
data. Noise that can be is W times a vector; chi^2 is worked out there, by the pseudo-inverse, and has as many degrees
of freedom as the rank.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra, without_flagged
from rubix_like.errors import ConfigError, expect_count
from rubix_like.physics.units import given_numbers, plain_flags
from rubix_like.runtime.places import found_at

SMALLEST: float = 1e-5
"""Singular values of W V^(1/2) below this fraction of the largest count as 0; of surveys' cubes all are above 0.005."""

MOST_DECOMPOSED: int = 6000
"""Rows or columns of the matrix that is decomposed: 300 MB."""

_CONSISTENT = 1e-2
"""Part of a residual's norm that may lie outside the map's row space, by rounding in 32 bits."""


def standard_normals(seed: Any, number: int, *shape: int) -> Float[ndarray, "number ..."]:
    """Standard normal numbers of numpy's default generator; ConfigError that names a `number` or `seed` of another
    kind."""
    expect_count(number, "number", 0)
    if seed is None:
        raise ConfigError(
            "seed: expected a whole number of 0 or more, got None; noise without a seed cannot be repeated"
        )
    try:
        generator = np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"seed: expected a whole number of 0 or more, as numpy's generators take, {error}") from error
    return generator.standard_normal((number, *shape))


class AbstractCovariance(ABC):
    """Covariance of the spaxels in one bin, in (1e-20 erg/s/cm2/Angstrom)^2; spaxels are numbered row after row."""

    shape: tuple[int, int]
    """Rows and columns of spaxels."""

    @functools.cached_property
    @abstractmethod
    def matrix(self) -> Any:
        """The covariance as a scipy CSR array (spaxel, spaxel); rows of spaxels without noise are empty."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Rank of the matrix: the degrees of freedom of chi^2, less the parameters that were fitted."""

    @abstractmethod
    def chi2(self, residual: Float[ndarray, "y x"]) -> float:
        """r^T C^+ r of an image of data minus model, with the pseudo-inverse of the matrix."""

    @abstractmethod
    def inverse(self) -> Any:
        """The inverse of the matrix, where it has one."""

    @abstractmethod
    def draw(self, seed: int, number: int = 1) -> Float[ndarray, "number y x"]:
        """Images of noise with this covariance, from numpy's default generator."""

    @property
    def variance(self) -> Float[ndarray, "y x"]:
        """The diagonal as an image."""
        return np.asarray(self.matrix.diagonal()).reshape(self.shape)

    @functools.cached_property
    def correlation(self) -> Any:
        """The correlation coefficients as a scipy CSR array (spaxel, spaxel); 1 on the diagonal of good spaxels."""
        sigma = np.sqrt(self.matrix.diagonal())
        inverse = np.where(sigma > 0, 1.0 / np.where(sigma > 0, sigma, 1.0), 0.0)
        return self.matrix.multiply(inverse[:, None]).multiply(inverse[None, :]).tocsr()

    @named_arguments
    def binned_sigma(self, spaxels: Bool[ndarray, "y x"]) -> float:
        """Standard deviation of the sum over some spaxels."""
        chosen = self._chosen(spaxels)
        return float(np.sqrt(chosen @ (self.matrix @ chosen)))

    @named_arguments
    def calibration(self, spaxels: Bool[ndarray, "y x"]) -> float:
        """`binned_sigma` over the one without covariance, by which errors of binned spectra are multiplied.

        For MaNGA it is about 1 + 1.62 log10 N of N adjacent spaxels (Law et al. 2016, AJ 152, 83, section 9.3).
        """
        chosen = self._chosen(spaxels)
        return self.binned_sigma(spaxels) / float(np.sqrt(self.matrix.diagonal() @ chosen))

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"{type(self).__name__}({rows} x {columns} spaxels)"

    def _image(self, residual: Float[ndarray, "y x"]) -> Float[ndarray, "y x"]:
        image = np.asarray(given_numbers(residual, CUBE_FLUX_DENSITY, "residual"), dtype=np.float64)
        if image.shape != self.shape:
            raise ValueError(f"residual: expected an image of shape {self.shape}, got shape {image.shape}")
        return image

    def _chosen(self, spaxels: Bool[ndarray, "y x"]) -> Float[ndarray, " spaxel"]:
        chosen, good = plain_flags(spaxels, "spaxels"), self.matrix.diagonal() > 0
        if chosen.shape != self.shape or not (chosen.ravel() & good).any():
            raise ValueError(
                f"spaxels: expected a mask of shape {self.shape} that is true in a spaxel with noise, got shape "
                f"{chosen.shape}, {int(chosen.sum())} true"
            )
        return (chosen.ravel() & good).astype(np.float64)


@dataclass(frozen=True, eq=False, repr=False)
class SpaxelCovariance(AbstractCovariance):
    """Covariance of spaxels that a linear map makes of independent spectra: of a cube of fibres, or a mosaic.

    | field | shape | |
    |---|---|---|
    | weights | (spaxel, fibre) | the map W, a scipy CSR array |
    | fibre_variance | (fibre,) | V |
    | shape | | rows and columns of spaxels |
    """

    weights: Any
    fibre_variance: Float[ndarray, " fibre"]
    shape: tuple[int, int]

    @classmethod
    def of(cls, fibres: FibreSpectra, bin_: int) -> "SpaxelCovariance":
        """The covariance in a bin by its number; raises ValueError for spectra without noise."""
        if fibres.variance is None:
            raise ValueError(
                "covariance: expected a cube with noise, got one without variance; give the run a noise section, such "
                "as noise: {signal_to_noise: 50}"
            )
        variance = np.asarray(fibres.variance[:, bin_], dtype=np.float64)
        weights = without_flagged(fibres.weights.matrix(), fibres.good[:, bin_])
        return cls(weights, variance, fibres.weights.shape)

    @functools.cached_property
    def matrix(self) -> Any:
        """W V W^T as a scipy CSR array (spaxel, spaxel); rows of spaxels without a fibre are empty."""
        return (self._scaled @ self._scaled.T).tocsr()

    @property
    def rank(self) -> int:
        """Rank of the matrix: the degrees of freedom of chi^2, less the parameters that were fitted."""
        return len(self._decomposed[1])

    @named_arguments
    def chi2(self, residual: Float[ndarray, "y x"]) -> float:
        """r^T (W V W^T)^+ r of an image of data minus model: on average `rank` where the model is true.

        The model must have come through the same fibres, as `Cube` of the pipeline does. Raises ValueError for a
        residual that this map cannot make of any fluxes of fibres.
        """
        right, singular = self._decomposed
        rest = np.where(self._good, self._image(residual).ravel(), 0.0)
        if not np.isfinite(rest).all():
            raise ValueError("covariance.chi2: expected finite residuals in all spaxels near a fibre, got others")
        inside = right.T @ (self._scaled.T @ rest) / singular
        whole = float(rest @ rest)
        share = np.sqrt(max(whole - float(inside @ inside), 0.0) / whole) if whole > 0 else 0.0
        if share > _CONSISTENT:
            raise ValueError(
                f"covariance.chi2: expected a residual that the fibres can make, got one of which {share:.1%} lies "
                f"outside of the map's row space; make the model by the same pipeline (instrument.fibres), without "
                f"smoothing or noise of its own"
            )
        return float(np.sum((inside / singular) ** 2))

    def inverse(self) -> None:
        """Raises ValueError: the matrix has none."""
        n_good = int(self._good.sum())
        raise ValueError(
            f"covariance.inverse: expected a matrix of full rank, got {n_good} spaxels made of {self.rank} independent "
            f"spectra: it is singular, or close to it, and a numerical inverse is rounding errors; take "
            f"chi2(residual), which has rank = {self.rank} degrees of freedom, or chi^2 of the fibres "
            f"(Cube.fibres.chi2)"
        )

    def draw(self, seed: int, number: int = 1) -> Float[ndarray, "number y x"]:
        """Images of noise with this covariance, W V^(1/2) z with normal z of numpy's default generator."""
        normal = standard_normals(seed, number, len(self.fibre_variance))
        return np.asarray(self._scaled @ normal.T).T.reshape(number, *self.shape)

    @functools.cached_property
    def _scaled(self) -> Any:
        return self.weights.multiply(np.sqrt(self.fibre_variance)[None, :]).tocsr()

    @functools.cached_property
    def _good(self) -> Bool[ndarray, " spaxel"]:
        return np.diff(self.weights.indptr) > 0

    @functools.cached_property
    def _decomposed(self) -> tuple[Float[ndarray, "source rank"], Float[ndarray, " rank"]]:
        """Right singular vectors and values of W V^(1/2), those that are not 0: by its products of columns or of rows,
        of which there are fewer."""
        scaled = self._scaled
        n_row, n_column = int(self._good.sum()), int((np.diff(scaled.tocsc().indptr) > 0).sum())
        if min(n_row, n_column) > MOST_DECOMPOSED:
            raise ValueError(
                f"covariance: expected at most {MOST_DECOMPOSED} spaxels, or spectra that they are made of, to "
                f"decompose their covariance, got {n_row} and {n_column}; take a part of the cube (Cube.cut)"
            )
        if n_column <= n_row:
            squares, right = np.linalg.eigh((scaled.T @ scaled).toarray())
        else:
            rows = scaled[np.flatnonzero(self._good)]
            squares, left = np.linalg.eigh((rows @ rows.T).toarray())
            right = rows.T @ left
            right = right / np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
        singular = np.sqrt(np.maximum(squares, 0.0))
        kept = singular > SMALLEST * singular.max(initial=0.0)
        return right[:, kept], singular[kept]


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
        """Correlations of sparse matrices (spaxel, spaxel), one for each wavelength; lower halves do not count.

        A spaxel that has neither a diagonal nor a pair in a plane had no data there, which says nothing of its
        correlations at other wavelengths: its pairs are those of the nearest plane that has both spaxels. Raises
        ValueError for a coefficient that is not finite, or beyond 1.
        """
        n_spaxel = shape[0] * shape[1]
        order = np.argsort(wavelength)
        upper = [found_at("scipy.sparse:triu")(planes[number], k=1).tocoo() for number in order]
        present = np.stack([planes[number].diagonal() != 0 for number in order])
        numbers = [pairs.row.astype(np.int64) * n_spaxel + pairs.col for pairs in upper]
        every = np.unique(np.concatenate(numbers))
        values = np.zeros((len(upper), len(every)))
        for row, spaxels, pairs, number in zip(values, present, upper, numbers, strict=True):
            row[np.searchsorted(every, number)] = pairs.data
            spaxels[pairs.row] = spaxels[pairs.col] = True
        if not (np.abs(values) <= 1 + _ROUNDING).all():
            raise ValueError("expected correlations from -1 to 1, got others")
        first, second = np.divmod(every, n_spaxel)
        known, places = present[:, first] & present[:, second], np.asarray(wavelength, np.float64)[order]
        for number, place in enumerate(places):
            nearest = np.argmin(np.where(known, np.abs(places - place)[:, None], np.inf), axis=0)
            from_there = values[nearest, np.arange(len(every))]
            values[number] = np.where(known[number], values[number], from_there)
        return cls(first, second, values, places, shape)

    def at(self, wavelength: float) -> Any:
        """The correlations at a wavelength as a scipy CSR array (spaxel, spaxel), 1 on the whole diagonal.

        Linear between two planes, which keeps them non-negative; those of the nearest plane beyond the first and last.
        """
        planes = np.asarray(self.wavelength)
        share = np.array([np.interp(wavelength, planes, unit) for unit in np.eye(len(planes))])
        values = share @ np.asarray(self.values, np.float64)
        first, second = np.asarray(self.first), np.asarray(self.second)
        number = np.arange(self.shape[0] * self.shape[1])
        rows, columns = np.concatenate([first, second, number]), np.concatenate([second, first, number])
        entries = np.concatenate([values, values, np.ones(len(number))]), (rows, columns)
        return found_at("scipy.sparse:csr_array")(entries, shape=(len(number), len(number)))

    def within(self, rows: slice, columns: slice) -> "SpaxelCorrelations":
        """The correlations of the spaxels in some rows and columns."""
        number = np.arange(self.shape[0] * self.shape[1]).reshape(self.shape)[rows, columns]
        return self.renumbered(number.ravel(), number.shape)

    def renumbered(self, number: Int[ndarray, " spaxel"], shape: tuple[int, int]) -> "SpaxelCorrelations":
        """The correlations of spaxels, in another order or fewer of them, that have these numbers here."""
        place = np.full(self.shape[0] * self.shape[1], -1)
        place[number] = np.arange(len(number))
        first, second = place[np.asarray(self.first)], place[np.asarray(self.second)]
        kept = (first >= 0) & (second >= 0)
        return SpaxelCorrelations(first[kept], second[kept], self.values[:, kept], self.wavelength, shape)

    def covariance(self, variance: Float[ndarray, "y x"], wavelength: float) -> "StoredCovariance":
        """The covariance of spaxels with these variances at a wavelength (Angstrom); those of 0 have no noise."""
        return StoredCovariance(self.at(wavelength), np.sqrt(np.asarray(variance, np.float64)).ravel(), self.shape)

    def __repr__(self) -> str:
        rows, columns = self.shape
        planes = f"{len(self.wavelength)} planes, {self.wavelength[0]:g}-{self.wavelength[-1]:g} Angstrom"
        return f"SpaxelCorrelations({rows} x {columns} spaxels, {planes})"


@dataclass(frozen=True, eq=False, repr=False)
class StoredCovariance(AbstractCovariance):
    """Covariance by correlations in a file, rho_ij sigma_i sigma_j, without the map from fibres to spaxels.

    | field | shape | |
    |---|---|---|
    | coefficients | (spaxel, spaxel) | rho, a scipy CSR array |
    | sigma | (spaxel,) | standard deviations; 0 in spaxels without data |
    | shape | | rows and columns of spaxels |
    """

    coefficients: Any
    sigma: Float[ndarray, " spaxel"]
    shape: tuple[int, int]

    @functools.cached_property
    def matrix(self) -> Any:
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
        numpy's default generator: not those that the run's covariance draws with the same seed.

        Raises ValueError for too many spaxels, or for correlations that no noise can have, where a file leaves out some
        (those of spaxels more than two apart in SAMI's layout).
        """
        good = np.flatnonzero(self.sigma > 0)
        normal = standard_normals(seed, number, len(good))
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
        images = np.zeros((number, len(self.sigma)))
        images[:, good] = (normal * np.sqrt(np.maximum(squares, 0.0))) @ vectors.T
        return images.reshape(number, *self.shape)

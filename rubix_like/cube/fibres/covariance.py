"""The covariance of the spaxels of a cube that was made of fibres, or of a mosaic: W V W^T.

W is the map from fibres (of a mosaic: from the pointings' spaxels) to spaxels and V the diagonal of their variances.
There are more spaxels than fibres, so the matrix is singular: its rank is at most the number of fibre exposures with
data. Noise that can be is W times a vector; chi^2 is worked out there, by the pseudo-inverse, and has as many degrees
of freedom as the rank.
"""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.cube.fibres.cube_weights import without_flagged
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.errors import ConfigError, expect_count
from rubix_like.physics.units import given_numbers, plain_flags

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

    @abstractmethod
    def whole(self) -> Any:
        """`matrix`, worked out anew."""

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

    @functools.cached_property
    def matrix(self) -> Any:
        """The covariance as a scipy CSR array (spaxel, spaxel); rows of spaxels without noise are empty."""
        return self.whole()

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
    """That of spaxels which a linear map makes of independent spectra: of a cube of fibres, or a mosaic.

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
        """That of a bin by its number; raises ValueError for spectra without noise."""
        if fibres.variance is None:
            raise ValueError(
                "covariance: expected a cube with noise, got one without variance; give the run a noise section, such "
                "as noise: {signal_to_noise: 50}"
            )
        variance = np.asarray(fibres.variance[:, bin_], dtype=np.float64)
        weights = without_flagged(fibres.weights.matrix(), fibres.good[:, bin_])
        return cls(weights, variance, fibres.weights.shape)

    def whole(self) -> Any:
        """W V W^T as a scipy CSR array (spaxel, spaxel); rows of spaxels without a fibre are empty."""
        scaled = self.weights.multiply(np.sqrt(self.fibre_variance)[None, :]).tocsr()
        return (scaled @ scaled.T).tocsr()

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
        inside = right.T @ (np.sqrt(self.fibre_variance) * (self.weights.T @ rest)) / singular
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
        drawn = self.weights @ (normal * np.sqrt(self.fibre_variance)).T
        return np.asarray(drawn).T.reshape(number, *self.shape)

    @functools.cached_property
    def _good(self) -> Bool[ndarray, " spaxel"]:
        """Spaxels near a fibre."""
        return np.diff(self.weights.indptr) > 0

    @functools.cached_property
    def _decomposed(self) -> tuple[Float[ndarray, "source rank"], Float[ndarray, " rank"]]:
        """Right singular vectors and values of W V^(1/2), those that are not 0: by its products of columns or of rows,
        of which there are fewer."""
        scaled = self.weights.multiply(np.sqrt(self.fibre_variance)[None, :]).tocsr()
        n_row, n_column = int(self._good.sum()), int((np.diff(scaled.tocsc().indptr) > 0).sum())
        if min(n_row, n_column) > MOST_DECOMPOSED:
            raise ValueError(
                f"covariance: expected at most {MOST_DECOMPOSED} spaxels, or spectra that they are made of, to "
                f"decompose their covariance, got {n_row} and {n_column}; take a part of the cube (Cube.cut)"
            )
        if n_column <= n_row:
            squares, right = np.linalg.eigh((scaled.T @ scaled).toarray())
        else:
            seen = scaled[np.flatnonzero(self._good)]
            squares, left = np.linalg.eigh((seen @ seen.T).toarray())
            right = seen.T @ left
            right = right / np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
        singular = np.sqrt(np.maximum(squares, 0.0))
        kept = singular > SMALLEST * singular.max(initial=0.0)
        return right[:, kept], singular[kept]

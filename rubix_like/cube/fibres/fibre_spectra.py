"""The spectra of fibres that a cube was made of: row-stacked spectra (RSS)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int
from numpy import ndarray

from rubix_like.constants import CUBE_FLUX_DENSITY
from rubix_like.physics.units import given_numbers
from rubix_like.runtime.places import found_at


class CubeWeights(eqx.Module):
    """flux of a spaxel = sum over fibres of weight times the fibre's flux; row after row of spaxels.

    Only fibres near a row of spaxels count there: `near` has their numbers, filled up with fibres of weight 0.

    | field | shape | |
    |---|---|---|
    | near | (y, near) | which fibres |
    | weights | (y, x, near) | of each of them in every spaxel of the row; 0 in spaxels that no fibre is near |
    | coverage | (y, x) | sum of the recipe's weights before they are normalised: 0 where no fibre is near |
    | n_fibre | static | number of fibres, of all exposures |
    """

    near: Int[Array | ndarray, "y near"]
    weights: Float[Array | ndarray, "y x near"]
    coverage: Float[Array | ndarray, "y x"]
    n_fibre: int = eqx.field(static=True)

    @classmethod
    def of_matrix(cls, matrix: Any, shape: tuple[int, int], coverage: Float[ndarray, "y x"]) -> "CubeWeights":
        """The map of a sparse matrix (spaxel, fibre) onto a grid of this shape (y, x)."""
        n_y, n_x = shape
        rows = [matrix[row * n_x : (row + 1) * n_x] for row in range(n_y)]
        used = [np.unique(row.indices) for row in rows]
        n_near = max(1, *map(len, used))
        near = np.zeros((n_y, n_near), dtype=np.int32)
        weights = np.zeros((n_y, n_x, n_near))
        for number, (row, fibres) in enumerate(zip(rows, used, strict=True)):
            near[number, : len(fibres)] = fibres
            weights[number, :, : len(fibres)] = row[:, fibres].toarray()
        return cls(near, weights, np.asarray(coverage), matrix.shape[1])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of spaxels."""
        return self.weights.shape[0], self.weights.shape[1]

    def part(self, rows: slice, columns: slice) -> "CubeWeights":
        """The map onto some of the spaxels."""
        return CubeWeights(self.near[rows], self.weights[rows, columns], self.coverage[rows, columns], self.n_fibre)

    def matrix(self) -> Any:
        """The map as a scipy CSR array (spaxel, fibre) in 64 bits; spaxels row after row (on the host)."""
        weights, near = np.asarray(self.weights, dtype=np.float64), np.asarray(self.near)
        row, column, place = np.nonzero(weights)
        entries = weights[row, column, place], (row * self.shape[1] + column, near[row, place])
        n_spaxel = self.shape[0] * self.shape[1]
        return found_at("scipy.sparse:csr_array")(entries, shape=(n_spaxel, self.n_fibre))

    def images(self, values: Float[Array, "fibre k"]) -> Float[Array, "y x k"]:
        """The spaxels' values of those of the fibres."""
        return _through(jnp.asarray(self.weights, values.dtype), jnp.asarray(self.near), values)

    def variances(self, values: Float[Array, "fibre k"]) -> Float[Array, "y x k"]:
        """The spaxels' variances of those of the fibres, whose noise is independent."""
        return _through(jnp.asarray(self.weights, values.dtype) ** 2, jnp.asarray(self.near), values)

    def regained(self, good: Float[Array, "fibre k"]) -> Float[Array, "y x k"]:
        """The factor by which the weights of good fibres (1, of others 0) must grow in each spaxel, so that they have
        the sum of all; 0 where there is no good one."""
        before, after = self.images(jnp.ones_like(good[:, :1])), self.images(good)
        some = after > 0
        return jnp.where(some, before / jnp.where(some, after, jnp.ones_like(after)), jnp.zeros_like(after))


@jax.jit
def _through(
    weights: Float[Array, "y x near"], near: Int[Array, "y near"], values: Float[Array, "fibre k"]
) -> Float[Array, "y x k"]:
    """Row after row, so that no more memory is taken than the result; compiled once for as many fibres and bins."""

    def row(pair: tuple[Array, Array]) -> Array:
        weight, chosen = pair
        return jnp.einsum("xn,nk->xk", weight, values[chosen], precision=lax.Precision.HIGHEST)

    return lax.map(row, (weights, near))


def without_flagged(weights: Any, good: Bool[ndarray, " fibre"]) -> Any:
    """The map without fibres that are flagged, the others' weights in each spaxel with the same sum as before."""
    if good.all():
        return weights
    kept = weights.multiply(good.astype(np.float64)[None, :]).tocsr()
    kept.eliminate_zeros()
    before, after = (np.asarray(matrix.sum(axis=1)).ravel() for matrix in (weights, kept))
    return kept.multiply(np.where(after > 0, before / np.where(after > 0, after, 1.0), 0.0)[:, None]).tocsr()


class FibrePlaces(eqx.Module):
    """Fibres in the order of their spectra: exposure after exposure, the same fibres in each (float64 on the host).

    | field | shape | |
    |---|---|---|
    | x, y | (fibre,) | arcsec East and North (along the field's axes) of the field's centre |
    | number | (fibre,) | of the fibre in its bundle, from 1 |
    | exposure | (fibre,) | number of the exposure, from 1 |
    | seeing | (fibre,) | FWHM of the PSF in its exposure, relative to `instrument.psf` |
    | transparency | (fibre,) | of the sky in its exposure |
    | moved | (exposure, wave, 2) or None | arcsec (x, y) by which refraction moves the light of each bin; None: not |
    | radius | static | arcsec: of the core |
    | bundle | static | its name |
    """

    x: Float[ndarray, " fibre"]
    y: Float[ndarray, " fibre"]
    number: Int[ndarray, " fibre"]
    exposure: Int[ndarray, " fibre"]
    seeing: Float[ndarray, " fibre"]
    transparency: Float[ndarray, " fibre"]
    radius: float = eqx.field(static=True)
    bundle: str = eqx.field(static=True, default="")
    moved: Float[ndarray, "exposure wave 2"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def area(self) -> float:
        """arcsec^2 that one fibre sees."""
        return float(np.pi * self.radius**2)

    @property
    def n_exposure(self) -> int:
        """Number of exposures."""
        return int(self.exposure.max())

    def on_sky(self, field_angle: float) -> tuple[Float[ndarray, " fibre"], Float[ndarray, " fibre"]]:
        """(East, North) in arcsec on the sky, where the field's +y lies at `field_angle` (deg) from North to East."""
        return turned(self.x, self.y, field_angle)

    def on_sky_at(
        self, field_angle: float, n_wave: int
    ) -> tuple[Float[ndarray, "fibre wave"], Float[ndarray, "fibre wave"]]:
        """(East, North) on the sky of what the fibres see in each of `n_wave` bins: light that refraction moves by
        d into a fibre at p comes from p - d."""
        x, y = (np.broadcast_to(place[:, None], (len(self), n_wave)) for place in (self.x, self.y))
        if self.moved is not None:
            moved = self.moved[self.exposure - 1]
            x, y = x - moved[..., 0], y - moved[..., 1]
        return turned(x, y, field_angle)

    def part(self, bins: slice) -> "FibrePlaces":
        """The places with the displacement in some of the bins."""
        return self if self.moved is None else dataclasses.replace(self, moved=self.moved[:, bins])


def turned(
    x: Float[ndarray, "*fibre"], y: Float[ndarray, "*fibre"], angle: float
) -> tuple[Float[ndarray, "*fibre"], Float[ndarray, "*fibre"]]:
    """Places turned from +y (North) through +x (East) by an angle in deg."""
    sine, cosine = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    return x * cosine + y * sine, y * cosine - x * sine


Spectra = Float[Array | np.ndarray, "fibre wave"]


class FibreSpectra(eqx.Module):
    """One spectrum for each fibre in each exposure, and the map that made the cube of them; a pytree.

    | field | shape | |
    |---|---|---|
    | flux | (fibre, wave) | 1e-20 erg/s/cm2/Angstrom per fibre, calibrated for the sky's transparency |
    | variance | (fibre, wave) or None | square of the flux unit; the noise of different fibres is independent |
    | truth | (fibre, wave) or None | flux without noise and systematic errors, where `noise.keep_truth` is true |
    | bits | (fibre, wave) or None | mask bits of systematic errors; flagged ones are left out of the cube |
    | contributions | (fibre, wave) by name | what each systematic error adds to the truth, where that is kept |
    | places | FibrePlaces | where the fibres lie, their numbers and exposures |
    | weights | CubeWeights | the map from fibres to spaxels |
    | mask | (wave,) | bits of the bins, as in `Cube.mask` |
    | layout | static | of the file that a run writes of them: manga, sami or none |
    """

    flux: Spectra
    variance: Spectra | None
    truth: Spectra | None
    places: FibrePlaces
    weights: CubeWeights
    mask: Int[Array | np.ndarray, " wave"]
    layout: str = eqx.field(static=True, default="manga")
    bits: Int[Array | np.ndarray, "fibre wave"] | None = None
    contributions: Mapping[str, Spectra] = eqx.field(default_factory=dict)

    def chi2(self, model: Spectra) -> Float[np.ndarray, " wave"]:
        """Sum over fibres of (flux - model)^2 / variance in each bin, in 64 bits; it has as many degrees of freedom as
        there are fibres that are not flagged in the bin. `model` (fibre, wave) is that of the same pipeline, such as
        `fibres.flux` without noise.

        Raises ValueError without a variance, or for a model of another shape.
        """
        if self.variance is None:
            raise ValueError("fibres.chi2: expected spectra with noise, got no variance; give the run a noise section")
        if np.shape(model) != np.shape(self.flux):
            raise ValueError(f"fibres.chi2: expected a model of shape {np.shape(self.flux)}, got {np.shape(model)}")
        values = given_numbers(model, CUBE_FLUX_DENSITY, "model")
        rest = np.asarray(self.flux, dtype=np.float64) - np.asarray(values, dtype=np.float64)
        return np.sum(self.good * rest**2 / np.asarray(self.variance, dtype=np.float64), axis=0)

    @property
    def good(self) -> Bool[np.ndarray, "fibre wave"]:
        """Which bins of the spectra no systematic error flags."""
        return np.ones(np.shape(self.flux), bool) if self.bits is None else np.asarray(self.bits) == 0

    @property
    def usable(self) -> Bool[np.ndarray, "fibre wave"]:
        """Which bins of the spectra no bit of any kind flags."""
        return self.good & (np.asarray(self.mask) == 0)[None, :]

    def part(self, bins: slice) -> "FibreSpectra":
        """The spectra in some bins."""
        spectra = {name: getattr(self, name) for name in ("flux", "variance", "truth", "bits")}
        cut: dict[str, Any] = {name: value[:, bins] for name, value in spectra.items() if value is not None}
        cut["contributions"] = {name: value[:, bins] for name, value in self.contributions.items()}
        return dataclasses.replace(self, **cut, mask=self.mask[bins], places=self.places.part(bins))

    def within(self, rows: slice, columns: slice) -> "FibreSpectra":
        """The spectra with the map to some of the spaxels."""
        return dataclasses.replace(self, weights=self.weights.part(rows, columns))

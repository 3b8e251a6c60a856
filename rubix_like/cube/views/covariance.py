"""The covariance of a cube in one of its bins: by its fibres or pointings, by its file, or of independent spaxels."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.quantities import parse_quantity
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.cube import Cube
from rubix_like.cube.fibres.covariance import AbstractCovariance, SpaxelCorrelations, SpaxelCovariance, standard_normals
from rubix_like.cube.fibres.fibre_files import spread_bins
from rubix_like.cube.meta import Meta
from rubix_like.runtime.places import found_at

_FROM_FILES = (
    "of cubes of fibres HDF5 keeps the spectra (a name in .h5), and the layouts 'manga' and 'sami' correlations at "
    "some wavelengths (Cube.write(path, layout='manga')); otherwise take the cube that the run or make_mosaic returned"
)


@dataclass(frozen=True, eq=False, repr=False)
class IndependentCovariance(AbstractCovariance):
    """Covariance of spaxels with independent noise: a diagonal of variances, 0 in spaxels without data."""

    image: Float[ndarray, "y x"]
    shape: tuple[int, int]

    @functools.cached_property
    def matrix(self) -> Any:
        """The variances as the diagonal of a scipy CSR array (spaxel, spaxel)."""
        return found_at("scipy.sparse:diags_array")(self.image.ravel()).tocsr()

    @property
    def rank(self) -> int:
        """How many spaxels have noise: the degrees of freedom of chi^2, less the parameters that were fitted."""
        return int(np.count_nonzero(self.image))

    @named_arguments
    def chi2(self, residual: Float[ndarray, "y x"]) -> float:
        """Sum of r^2 / variance of an image of data minus model, over spaxels with noise."""
        good = self.image > 0
        return float(np.sum(self._image(residual)[good] ** 2 / self.image[good]))

    def inverse(self) -> Any:
        """The inverse on the spaxels with noise, 0 elsewhere, as a scipy CSR array."""
        inverse = np.where(self.image > 0, 1.0 / np.where(self.image > 0, self.image, 1.0), 0.0)
        return found_at("scipy.sparse:diags_array")(inverse.ravel()).tocsr()

    def draw(self, seed: int, number: int = 1) -> Float[ndarray, "number y x"]:
        """Images of noise with these variances, from numpy's default generator."""
        return np.sqrt(self.image) * standard_normals(seed, number, *self.shape)


def cube_covariance(cube: Cube, wavelength: Any) -> AbstractCovariance:
    """The covariance in the bin at a wavelength; raises as `Cube.covariance`."""
    if cube.fibres is None and cube.noise_sources is None:
        if cube.variance is None:
            raise ValueError(
                "covariance: expected a cube with noise, got one without variance; give the run a noise section, such "
                "as noise: {signal_to_noise: 50}"
            )
        why = None if cube.correlations is not None else _why_unknown(cube.meta)
        if why:
            raise ValueError(
                f"Cube.covariance: expected a cube that holds the spectra of its fibres, its pointings or its "
                f"correlations, or whose spaxels are known to have independent noise, got {why}; {_FROM_FILES}"
            )
    bin_ = bin_at(cube.bins, wavelength)
    if cube.noise_sources is not None:
        return SpaxelCovariance(*cube.noise_sources.linear_map(bin_))
    if cube.fibres is not None:
        return SpaxelCovariance.of(cube.fibres, bin_)
    assert cube.variance is not None
    variance = np.asarray(cube.variance[:, :, bin_], dtype=np.float64)
    variance = np.where(np.asarray(cube.mask[:, :, bin_]) == 0, variance, 0.0)
    if cube.correlations is None:
        return IndependentCovariance(variance, (cube.n_y, cube.n_x))
    return cube.correlations.covariance(variance, float(cube.wavelength[bin_]))


def known_correlations(cube: Cube) -> SpaxelCorrelations | None:
    """The correlations that a cube holds, or those of its fibres or pointings at some bins with data; None for none."""
    if cube.correlations is not None or cube.variance is None or (cube.fibres is None and cube.noise_sources is None):
        return cube.correlations
    lit = np.flatnonzero((np.asarray(cube.mask) == 0).any(axis=(0, 1)))
    if not len(lit):
        return None
    places = lit[spread_bins(len(lit))]
    wavelength = cube.bins.wavelength[places]
    planes = [cube_covariance(cube, float(plane)).correlation for plane in wavelength]
    return SpaxelCorrelations.of_planes(planes, wavelength, (cube.n_y, cube.n_x))


def bin_at(bins: WavelengthBins, wavelength: Any) -> int:
    """Number of the bin at a wavelength, with units or in Angstrom; raises ValueError outside."""
    place = parse_quantity(wavelength, "Angstrom", "covariance: wavelength")
    edges = bins.edges
    if not edges[0] <= place <= edges[-1]:
        raise ValueError(
            f"covariance: expected a wavelength from {edges[0]:.2f} to {edges[-1]:.2f} Angstrom ({bins.medium}), got "
            f"{place:g}"
        )
    return min(int(np.searchsorted(edges, place, side="right")) - 1, bins.n_wave - 1)


def _why_unknown(meta: Meta) -> str | None:
    """Why the noise of a cube without fibres and pointings may be correlated, in words; None where it is not."""
    if meta.get("n_pointings") is not None:
        return "a mosaic that was read from its file, or of cubes that were read with correlations"
    config = meta.get("config")
    read = yaml.safe_load(config) if isinstance(config, str) else None
    if not isinstance(read, dict) or meta.get("noise_seed") is None or meta.get("fit_image") is not None:
        return "one that does not say which run drew its noise"
    return "one of fibres that was read from a file without its correlations" if _has_fibres(read) else None


def _has_fibres(settings: Any) -> bool:
    """Whether a section of the instrument, or of one of its arms, has fibres."""
    if not isinstance(settings, Mapping):
        return False
    return settings.get("fibres") is not None or any(_has_fibres(section) for section in settings.values())

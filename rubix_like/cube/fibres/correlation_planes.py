"""The covariance of cubes of fibres as surveys keep it: MaNGA's sparse correlations, SAMI's local covariance."""

from collections.abc import Mapping

import numpy as np
from astropy.io import fits
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.covariance import SpaxelCovariance
from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.fibres.spaxel_correlations import SpaxelCorrelations
from rubix_like.runtime.places import found_at

BANDS: Mapping[str, float] = {"GCORREL": 4702.5, "RCORREL": 6176.6, "ICORREL": 7496.1, "ZCORREL": 8946.7}
"""Extension -> effective wavelength (Angstrom) of the band g, r, i or z of SDSS, where MaNGA keeps correlations."""

REACH: int = 2
"""Spaxels on each side of one for which SAMI keeps covariance (Sharp et al. 2015, MNRAS 446, 1551, section 5.7)."""

LOCAL_PLANES: int = 5
"""Planes of local covariance over the range of a cube of ours; between them it hardly changes."""

_SMALLEST = 1e-6

_PAIR_BYTES = 4 * 4 + 8
"""Of a row of MaNGA's tables: four whole numbers and the correlation."""


def correlation_tables(
    fibres: FibreSpectra | SpaxelCorrelations | None, bins: WavelengthBins
) -> list[fits.BinTableHDU]:
    """MaNGA's sparse correlation matrices: a row for each pair of spaxels (I, J), J not before I, that are correlated.

    INDXI_C1, INDXI_C2 and INDXJ_C1, INDXJ_C2 are column and row of the two spaxels, RHOIJ is their correlation (Law et
    al. 2016, AJ 152, 83, section 9.3). One table for each band within the cube's wavelengths, at its effective one.
    `fibres`: what a cube is made of, or the correlations with which it was read; None: no tables.
    """
    if fibres is None:
        return []
    return [_correlation_table(name, wave, fibres, bins) for name, wave in _bands_within(bins).items()]


def correlation_bytes(weights: CubeWeights, layout: str, bins: WavelengthBins) -> int:
    """Bytes, at most, of the correlations of a cube with these weights in the layout manga or sami; 0 in others."""
    n_spaxel = weights.shape[0] * weights.shape[1]
    if layout == "sami":
        return min(LOCAL_PLANES, bins.n_wave) * (2 * REACH + 1) ** 2 * n_spaxel * 4
    if layout != "manga":
        return 0
    matrix = weights.matrix()
    both = (matrix @ matrix.T).nnz
    alone = int(np.count_nonzero(np.diff(matrix.indptr)))
    return (both + alone) // 2 * _PAIR_BYTES * len(_bands_within(bins))


def _bands_within(bins: WavelengthBins) -> dict[str, float]:
    return {name: wave for name, wave in BANDS.items() if bins.edges[0] <= wave <= bins.edges[-1]}


def _correlation_table(
    name: str, wavelength: float, fibres: FibreSpectra | SpaxelCorrelations, bins: WavelengthBins
) -> fits.BinTableHDU:
    number = min(int(np.searchsorted(bins.edges, wavelength, side="right")) - 1, bins.n_wave - 1)
    if isinstance(fibres, SpaxelCorrelations):
        (n_y, n_x), matrix = fibres.shape, fibres.at(float(bins.wavelength[number]))
    else:
        covariance = SpaxelCovariance.of(fibres, number)
        (n_y, n_x), matrix = covariance.shape, covariance.correlation
    pairs = matrix.tocoo()
    rows, columns = np.divmod(np.stack([pairs.row, pairs.col]), n_x)
    order = columns * n_y + rows
    kept = (order[1] >= order[0]) & (np.abs(pairs.data) > _SMALLEST)
    indices = {
        "INDXI_C1": columns[0],
        "INDXI_C2": rows[0],
        "INDXJ_C1": columns[1],
        "INDXJ_C2": rows[1],
    }
    table = fits.BinTableHDU.from_columns(
        [
            *(fits.Column(key, "J", array=own[kept].astype(np.int32)) for key, own in indices.items()),
            fits.Column("RHOIJ", "D", array=pairs.data[kept]),
        ],
        name=name,
    )
    n_spaxel = n_y * n_x
    for card in (
        ("COVTYPE", "Correlation", "the diagonal of the covariance is 1 / IVAR"),
        ("COVSHAPE", f"({n_spaxel}, {n_spaxel})", "shape of the whole matrix"),
        ("COVRWSHP", f"({n_x}, {n_y})", "columns and rows of spaxels"),
        ("BBWAVE", wavelength, "[Angstrom] where the correlation holds"),
        ("BBINDEX", number, "its bin, from 0"),
    ):
        table.header[card[0]] = card[1:]
    return table


def local_covariance(covariance: SpaxelCovariance, weight: Float[ndarray, "y x"]) -> Float[ndarray, "side side y x"]:
    """Covariance of each spaxel with those at most `REACH` from it, relative to its own variance: 1 in the middle.

    It is that of flux times `weight`, the sum of the recipe's weights (SAMI's extension WEIGHT), by which SAMI's cubes
    are multiplied before they are binned (its pipeline's general/covar.py and dr/binning.py). The first two axes are
    row and column of the other spaxel, from `REACH` below and to the left; 0 where none is.
    """
    n_y, n_x = covariance.shape
    scale = found_at("scipy.sparse:diags_array")(np.asarray(weight, dtype=np.float64).ravel())
    matrix = (scale @ covariance.matrix @ scale).tocsr()
    variance = np.asarray(matrix.diagonal()).reshape(n_y, n_x)
    side = 2 * REACH + 1
    found = np.zeros((side, side, n_y, n_x))
    number = np.arange(n_y * n_x).reshape(n_y, n_x)
    for up in range(-REACH, REACH + 1):
        for right in range(-REACH, REACH + 1):
            rows, columns = (slice(max(0, -step), size - max(0, step)) for step, size in ((up, n_y), (right, n_x)))
            others = slice(max(0, up), n_y + min(0, up)), slice(max(0, right), n_x + min(0, right))
            values = np.asarray(matrix[number[rows, columns].ravel(), number[others].ravel()]).ravel()
            own = variance[rows, columns]
            ratio = np.where(own > 0, values.reshape(own.shape) / np.where(own > 0, own, 1.0), 0.0)
            found[up + REACH, right + REACH, rows, columns] = ratio
    return found


def spread_bins(n_wave: int) -> Int[ndarray, " plane"]:
    """Numbers of the bins, out of so many, at which correlations are kept: evenly, with the first and the last."""
    return np.unique(np.linspace(0, n_wave - 1, LOCAL_PLANES).astype(int))


def local_covariance_image(fibres: FibreSpectra, n_wave: int) -> fits.ImageHDU:
    """SAMI's extension COVAR: axes (plane, row and column of the other spaxel, y, x), the bins of the planes in cards
    COVARLOC_1 and so on."""
    places = spread_bins(n_wave)
    weight = np.asarray(fibres.weights.coverage)
    planes = [local_covariance(SpaxelCovariance.of(fibres, int(place)), weight) for place in places]
    image = fits.ImageHDU(np.stack(planes).astype(np.float32), name="COVAR")
    image.header["COVARMOD"] = ("optimal", "at some bins; take the nearest before")
    image.header["COVAR_N"] = (len(places), "number of planes")
    for number, place in enumerate(places, start=1):
        image.header[f"HIERARCH COVARLOC_{number}"] = int(place)
    return image

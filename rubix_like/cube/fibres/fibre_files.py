"""Fibres and covariance in files: MaNGA's sparse correlations, SAMI's local covariance, and all of them in HDF5."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from astropy.io import fits
from jaxtyping import Float, Int
from numpy import ndarray

from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.covariance import SpaxelCorrelations, SpaxelCovariance
from rubix_like.cube.fibres.fibre_spectra import CubeWeights, FibrePlaces, FibreSpectra
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
    tables = []
    for name, wavelength in _bands_within(bins).items():
        if fibres is None:
            break
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
        indices = {"INDXI_C1": columns[0], "INDXI_C2": rows[0], "INDXJ_C1": columns[1], "INDXJ_C2": rows[1]}
        stored = [fits.Column(key, "J", array=numbers[kept].astype(np.int32)) for key, numbers in indices.items()]
        stored.append(fits.Column("RHOIJ", "D", array=pairs.data[kept]))
        table = fits.BinTableHDU.from_columns(stored, name=name)
        n_spaxel = n_y * n_x
        table.header["COVTYPE"] = "Correlation", "the diagonal of the covariance is 1 / IVAR"
        table.header["COVSHAPE"] = f"({n_spaxel}, {n_spaxel})", "shape of the whole matrix"
        table.header["COVRWSHP"] = f"({n_x}, {n_y})", "columns and rows of spaxels"
        table.header["BBWAVE"] = wavelength, "[Angstrom] where the correlation holds"
        table.header["BBINDEX"] = number, "its bin, from 0"
        tables.append(table)
    return tables


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


def local_covariance(covariance: SpaxelCovariance, weight: Float[ndarray, "y x"]) -> Float[ndarray, "side side y x"]:
    """Covariance of each spaxel with those at most `REACH` from it, relative to its variance: 1 in the middle.

    It is that of flux times `weight`, the sum of the recipe's weights (SAMI's extension WEIGHT), by which SAMI's cubes
    are multiplied before they are binned (its pipeline's general/covar.py and dr/binning.py). The first two axes are
    row and column of the other spaxel, from `REACH` below and to the left; 0 where none is.
    """
    n_y, n_x = covariance.shape
    scale = np.asarray(weight, dtype=np.float64).ravel()
    matrix = covariance.matrix.multiply(scale[:, None]).multiply(scale[None, :]).tocsr()
    variance = np.asarray(matrix.diagonal()).reshape(n_y, n_x)
    side = 2 * REACH + 1
    found = np.zeros((side, side, n_y, n_x))
    number = np.arange(n_y * n_x).reshape(n_y, n_x)
    for up in range(-REACH, REACH + 1):
        for right in range(-REACH, REACH + 1):
            rows, columns = (slice(max(0, -step), size - max(0, step)) for step, size in ((up, n_y), (right, n_x)))
            others = slice(max(0, up), n_y + min(0, up)), slice(max(0, right), n_x + min(0, right))
            values = np.asarray(matrix[number[rows, columns].ravel(), number[others].ravel()]).ravel()
            here = variance[rows, columns]
            ratio = np.where(here > 0, values.reshape(here.shape) / np.where(here > 0, here, 1.0), 0.0)
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


def read_correlations(
    hdus: Any, wavelength: Float[ndarray, " wave"], shape: tuple[int, int]
) -> SpaxelCorrelations | None:
    """Spaxel correlations of an opened file of MaNGA (GCORREL ...) or SAMI (COVAR); None where it has neither.

    `wavelength`: of the file's bins in its order; `shape`: its rows and columns of spaxels. Raises ValueError for
    planes that do not belong to such a cube.
    """
    tables = [hdus[name] for name in BANDS if name in hdus]
    if tables:
        planes = [_table_plane(table, shape) for table in tables]
        numbers = [table.header["BBINDEX"] for table in tables]
    elif "COVAR" in hdus and hdus["COVAR"].header["NAXIS"] == 5:
        image = hdus["COVAR"]
        planes = [_local_plane(plane, shape) for plane in np.asarray(image.data, dtype=np.float64)]
        numbers = [image.header[f"COVARLOC_{number}"] for number in range(1, len(planes) + 1)]
    else:
        return None
    found = np.array([int(number) for number in numbers])
    if not ((found >= 0) & (found < len(wavelength))).all() or len(set(found.tolist())) < len(found):
        raise ValueError(f"expected correlations at bins from 0 to {len(wavelength) - 1}, each once, got {numbers}")
    return SpaxelCorrelations.of_planes(planes, wavelength[found], shape)


def _table_plane(table: Any, shape: tuple[int, int]) -> Any:
    """MaNGA's table of pairs (`correlation_tables`) as a sparse matrix; each pair above the diagonal."""
    n_y, n_x = shape
    columns, rows = (
        np.stack([np.asarray(table.data[f"INDX{side}_C{axis}"], dtype=np.int64) for side in "IJ"]) for axis in (1, 2)
    )
    if columns.size and not (0 <= columns.min() <= columns.max() < n_x and 0 <= rows.min() <= rows.max() < n_y):
        raise ValueError(f"{table.name}: expected spaxels of a cube with {n_y} rows and {n_x} columns, got others")
    numbers = np.sort(rows * n_x + columns, axis=0)
    entries = np.asarray(table.data["RHOIJ"], dtype=np.float64), (numbers[0], numbers[1])
    return found_at("scipy.sparse:coo_array")(entries, shape=(n_y * n_x, n_y * n_x))


def _local_plane(local: Float[ndarray, "side side y x"], shape: tuple[int, int]) -> Any:
    """SAMI's local covariance (`local_covariance`) as a sparse matrix of correlations, pairs above the diagonal.

    The covariance relative to the variances of either spaxel, of flux times weight: the two ratios' product is the
    squared correlation, in which weights and variances cancel.
    """
    if local.shape[2:] != shape or local.shape[0] != local.shape[1] or local.shape[0] % 2 == 0:
        raise ValueError(f"COVAR: expected planes of shape (side, side, {shape[0]}, {shape[1]}), got {local.shape}")
    (n_y, n_x), reach = shape, local.shape[0] // 2
    number = np.arange(n_y * n_x).reshape(shape)
    values, pairs = [], []
    for up, right in ((up, right) for up in range(reach + 1) for right in range(-reach, reach + 1)):
        if (up, right) <= (0, 0):
            continue
        here = slice(0, n_y - up), slice(max(0, -right), n_x - max(0, right))
        other = slice(up, n_y), slice(max(0, right), n_x + min(0, right))
        ratio, back = local[reach + up, reach + right][here], local[reach - up, reach - right][other]
        product = np.nan_to_num(ratio * back)
        values.append((np.sign(np.nan_to_num(ratio)) * np.sqrt(np.maximum(product, 0.0))).ravel())
        pairs.append(np.stack([number[here].ravel(), number[other].ravel()]))
    found, (first, second) = np.concatenate(values), np.concatenate(pairs, axis=1)
    kept = found != 0
    entries = np.clip(found[kept], -1.0, 1.0), (first[kept], second[kept])
    return found_at("scipy.sparse:coo_array")(entries, shape=(number.size, number.size))


_SPECTRA = ("flux", "variance", "truth", "bits")

_PAIRS = ("first", "second", "values", "wavelength")

_PARTS: dict[str, type[FibrePlaces] | type[CubeWeights]] = {"places": FibrePlaces, "weights": CubeWeights}

_PER_FIBRE = 200
"""Bytes, more than all that is kept of a fibre in an exposure beside its spectrum."""


def write_fibres(fibres: FibreSpectra, group: Any) -> None:
    """Write them into an empty group of an open file; `contributions` are left out."""
    group.attrs["layout"] = fibres.layout
    group.attrs["description"] = "spectra that the cube was made of, flux of a spaxel = sum of weights times flux"
    for name in (*_SPECTRA, "mask"):
        if getattr(fibres, name) is not None:
            _store(group, name, getattr(fibres, name))
    for part in _PARTS:
        inside = group.create_group(part)
        known = {name: value for name, value in vars(getattr(fibres, part)).items() if value is not None}
        for name, value in known.items():
            if isinstance(value, int | float | str):
                inside.attrs[name] = value
            else:
                _store(inside, name, value)


def _store(group: Any, name: str, value: Any) -> None:
    """An array in one chunk, of which it is known on reading whether it is damaged (fletcher32)."""
    values = np.asarray(value)
    group.create_dataset(name, data=values, chunks=values.shape, fletcher32=True)


def load_fibres(group: Any) -> FibreSpectra:
    """The spectra of a group that `write_fibres` filled; raises ValueError for arrays that do not go together."""
    arrays = {name: group[name][()] for name in (*_SPECTRA, "mask") if name in group}
    parts: dict[str, Any] = {}
    for part, kind in _PARTS.items():
        inside = group[part]
        values = {name: dataset[()] for name, dataset in inside.items()}
        for name, value in inside.attrs.items():
            values[name] = value.item() if isinstance(value, np.generic) else value
        parts[part] = kind(**values)
    shape, weights = arrays["flux"].shape, parts["weights"]
    spectra = {arrays[name].shape for name in _SPECTRA if name in arrays}
    if spectra != {shape} or weights.n_fibre != shape[0] or len(parts["places"]) != shape[0]:
        raise ValueError(f"fibres: expected spectra, places and weights of {shape[0]} fibres, got others")
    absent: dict[str, Any] = dict.fromkeys(_SPECTRA)
    return FibreSpectra(**{**absent, **arrays}, **parts, layout=str(group.attrs["layout"]))


def write_correlations(correlations: SpaxelCorrelations, group: Any) -> None:
    """Write them into an empty group of an open file."""
    group.attrs["description"] = "correlations of the pairs of spaxels (first, second), numbered row after row"
    for name in _PAIRS:
        _store(group, name, getattr(correlations, name))


def load_correlations(group: Any, shape: tuple[int, int]) -> SpaxelCorrelations:
    """Correlations of a group that `write_correlations` filled, of a cube with so many rows and columns; raises
    ValueError for arrays that do not go together."""
    arrays = {name: group[name][()] for name in _PAIRS}
    (n_pair,), n_plane = arrays["first"].shape, len(arrays["wavelength"])
    pairs = np.stack([arrays["first"], arrays["second"]])
    if arrays["values"].shape != (n_plane, n_pair) or not ((pairs >= 0) & (pairs < shape[0] * shape[1])).all():
        raise ValueError(f"correlations: expected pairs of {shape[0] * shape[1]} spaxels, got others")
    return SpaxelCorrelations(**arrays, shape=shape)


def fibres_bytes(weights: CubeWeights, n_wave: int, bytes_per_bin: int) -> int:
    """Bytes of such a group, at most, with so many bytes for a bin of one spectrum."""
    arrays = sum(np.asarray(array).nbytes for array in (weights.near, weights.weights, weights.coverage))
    return arrays + weights.n_fibre * (n_wave * bytes_per_bin + _PER_FIBRE)

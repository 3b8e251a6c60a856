"""Correlations of spaxels from files of MaNGA's and SAMI's layouts, our own and those of the surveys."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.fibres.correlation_planes import BANDS
from rubix_like.cube.fibres.spaxel_correlations import SpaxelCorrelations
from rubix_like.runtime.places import found_at


def read_correlations(hdus: Any, wavelength: Float[ndarray, " wave"], shape: tuple[int, int]) -> Any:
    """Those in the extensions GCORREL ... or COVAR of an opened file; None where it has neither.

    `wavelength`: of the file's bins in its order; `shape`: its rows and columns of spaxels. Raises ValueError for
    planes that do not belong to such a cube.
    """
    tables = [hdus[name] for name in BANDS if name in hdus]
    if tables:
        planes = [_table_plane(table, shape) for table in tables]
        return SpaxelCorrelations.of_planes(planes, _places(wavelength, [t.header["BBINDEX"] for t in tables]), shape)
    if "COVAR" in hdus and hdus["COVAR"].header["NAXIS"] == 5:
        image = hdus["COVAR"]
        values = np.asarray(image.data, dtype=np.float64)
        numbers = [image.header[f"COVARLOC_{number}"] for number in range(1, len(values) + 1)]
        planes = [_local_plane(own, shape) for own in values]
        return SpaxelCorrelations.of_planes(planes, _places(wavelength, numbers), shape)
    return None


def _places(wavelength: Float[ndarray, " wave"], numbers: list[Any]) -> Float[ndarray, " plane"]:
    """Wavelengths of bins by their numbers."""
    found = np.array([int(own) for own in numbers])
    if not ((found >= 0) & (found < len(wavelength))).all() or len(set(found.tolist())) < len(found):
        raise ValueError(f"expected correlations at bins from 0 to {len(wavelength) - 1}, each once, got {numbers}")
    return wavelength[found]


def _table_plane(table: Any, shape: tuple[int, int]) -> Any:
    """MaNGA's table of pairs (`correlation_tables`) as a sparse matrix; each pair above the diagonal."""
    n_y, n_x = shape
    columns, rows = (
        np.stack([np.asarray(table.data[f"INDX{own}_C{axis}"], dtype=np.int64) for own in "IJ"]) for axis in (1, 2)
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
        own = slice(0, n_y - up), slice(max(0, -right), n_x - max(0, right))
        other = slice(up, n_y), slice(max(0, right), n_x + min(0, right))
        ratio, back = local[reach + up, reach + right][own], local[reach - up, reach - right][other]
        product = np.nan_to_num(ratio * back)
        values.append((np.sign(np.nan_to_num(ratio)) * np.sqrt(np.maximum(product, 0.0))).ravel())
        pairs.append(np.stack([number[own].ravel(), number[other].ravel()]))
    found, (first, second) = np.concatenate(values), np.concatenate(pairs, axis=1)
    kept = found != 0
    entries = np.clip(found[kept], -1.0, 1.0), (first[kept], second[kept])
    return found_at("scipy.sparse:coo_array")(entries, shape=(number.size, number.size))

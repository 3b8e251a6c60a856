"""What the numbers of every cube of ours are, checked when one is read: bytes may have changed in the file."""

import numpy as np

from rubix_like.cube import Cube


def checked_values(cube: Cube) -> Cube:
    """The cube; raises ValueError for flux or variance that is no number, and for bins or spaxels that cannot be.

    Flux and variance are finite in every voxel, masked or not, variances >= 0; wavelengths are positive and ascend,
    each between the edges of its bin.
    """
    for name in ("flux", "truth", "variance"):
        values = getattr(cube, name)
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{name}: expected finite numbers, got {np.count_nonzero(~np.isfinite(values))} others")
    if cube.variance is not None and np.asarray(cube.variance).min(initial=0.0) < 0:
        raise ValueError(f"variance: expected values >= 0, got {np.asarray(cube.variance).min():g}")
    centres, edges = np.asarray(cube.wavelength), np.asarray(cube.wave_edges)
    between = (edges[:-1] < centres) & (centres < edges[1:])  # not where either is NaN
    if not (between.all() and np.isfinite(edges).all() and edges.min(initial=1.0) > 0):
        raise ValueError("wavelength: expected positive wavelengths that ascend, each between the edges of its bin")
    if not (np.isfinite(cube.pixel_scale) and cube.pixel_scale > 0):
        raise ValueError(f"pixel_scale: expected the side of a spaxel in arcsec, > 0, got {cube.pixel_scale}")
    return cube

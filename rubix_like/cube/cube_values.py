"""Check the values of a cube that is read from a file: bytes may have changed."""

import numpy as np

from rubix_like.cube.cube import Cube, n_unusable


def checked_values(cube: Cube) -> Cube:
    """The cube; raises ValueError for flux or variance that is no number, and for bins or spaxels that cannot be.

    Flux and variance are finite in every voxel that is not masked, variances >= 0; wavelengths are positive and ascend,
    each between the edges of its bin.
    """
    for name in ("flux", "truth", "variance"):
        values = getattr(cube, name)
        count = 0 if values is None else n_unusable(values, cube.mask)
        if count:
            raise ValueError(f"{name}: expected finite numbers where the mask is 0, got {count} others")
    if cube.variance is not None and np.asarray(cube.variance).min(initial=0.0) < 0:
        raise ValueError(f"variance: expected values >= 0, got {np.asarray(cube.variance).min():g}")
    centres, edges = cube.bins.wavelength, cube.bins.edges
    between = (edges[:-1] < centres) & (centres < edges[1:])  # not where either is NaN
    if not (between.all() and np.isfinite(edges).all() and edges.min(initial=1.0) > 0):
        raise ValueError("wavelength: expected positive wavelengths that ascend, each between the edges of its bin")
    if not (np.isfinite(cube.pixel_scale) and cube.pixel_scale > 0):
        raise ValueError(f"pixel_scale: expected the side of a spaxel in arcsec, > 0, got {cube.pixel_scale}")
    return cube

"""Images of a cube through filters, from its voxels."""

import numpy as np
from astropy import units
from astropy.units import Quantity
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.forward.products.bands import Band, BandWeight, load_band

_LEAST_COVERED = 0.999
"""Share of a filter's response that must lie within a cube."""


def filter_image(cube: Cube, name: str) -> Quantity:
    """Mean flux density per Hz of every spaxel (y, x) through a filter, in nJy; NaN where a bin in it is masked.

    f_nu = int F_lambda lambda R dlambda / int (c / lambda) R dlambda (Tokunaga & Vacca 2005, PASP 117, 421, eq. A6),
    F_lambda being even within a bin. Raises ConfigError for an unknown filter, and one that reaches beyond the cube.
    """
    weights = _bin_weights(cube, load_band(name, "band"))
    own = np.flatnonzero(weights)
    flux = np.asarray(cube.flux)[..., own].astype(np.float64) @ weights[own]
    good = np.all(np.asarray(cube.mask)[..., own] == 0, axis=2)
    return np.where(good, flux, np.nan) * units.nJy


def _bin_weights(cube: Cube, band: Band) -> Float[ndarray, " wave"]:
    """What the flux of each bin (1e-20 erg/s/cm2/Angstrom of its medium) adds to the flux in a filter, in nJy.

    The integral of lambda R over a bin is exact for a response that is linear between its nodes (Simpson's rule between
    nodes and edges), and both are in vacuum.
    """
    weight = BandWeight.nanojansky(band)
    edges = cube.bins.to_vacuum(cube.wave_edges)
    first, last = band.wavelength[[0, -1]]
    nodes = np.union1d(np.clip(edges, first, last), band.wavelength)
    inside = (nodes[:-1] >= edges[0]) & (nodes[1:] <= edges[-1])
    _check_within(cube, band, nodes, inside)
    low, high = nodes[:-1][inside], nodes[1:][inside]
    middle = 0.5 * (low + high)
    pieces = (high - low) / 6.0 * (weight.at(low) + 4.0 * weight.at(middle) + weight.at(high))
    owner = np.clip(np.searchsorted(edges, middle) - 1, 0, cube.bins.n_wave - 1)
    total = np.bincount(owner, pieces, cube.bins.n_wave)
    return total * np.diff(cube.wave_edges) / np.diff(edges)


def _check_within(cube: Cube, band: Band, nodes: Float[ndarray, " node"], inside: ndarray) -> None:
    response = np.interp(nodes, band.wavelength, band.response)
    areas = 0.5 * (response[1:] + response[:-1]) * np.diff(nodes)
    if areas[inside].sum() < _LEAST_COVERED * areas.sum():
        edges = cube.wave_edges
        raise ConfigError(
            f"band: expected a filter within the cube's {edges[0]:.5g}-{edges[-1]:.5g} Angstrom, got '{band.name}' "
            f"({band.wavelength[0]:.5g}-{band.wavelength[-1]:.5g}); products.filters makes images beyond the detector"
        )

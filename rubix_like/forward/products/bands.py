"""Bands: response curves of filters, and the flux of templates through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from astropy import units
from astropy.units import Quantity
from jax import lax
from jaxtyping import Array, Float, Int
from numpy import ndarray

from rubix_like.config.yaml_files import check_ecsv
from rubix_like.constants import ANGSTROM_PER_KM, SPEED_OF_LIGHT
from rubix_like.cube.cube import Cube
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.words import reason_of
from rubix_like.ssp import SSPLibrary

_NANOJANSKY_PER_CUBE_UNIT = 1e12
"""nJy of 1e-20 erg/s/cm2/Hz."""

_PART = 0.01
_LEAST_COVERED = 0.999


@dataclass(frozen=True)
class Band:
    """A response curve, linear between its nodes and 0 beyond them, by observed vacuum wavelength in Angstrom."""

    name: str
    wavelength: Float[ndarray, " node"]
    response: Float[ndarray, " node"]


def load_band(name: str, place: str = "products") -> Band:
    """A curve of speclite, by its name or from an .ecsv file in its format.

    Raises ConfigError that names `place` for an unknown curve, and where speclite is not installed.
    """
    filters = import_optional("speclite.filters", f"{place}: the curve of '{name}'")
    try:
        if name.endswith(".ecsv"):
            check_ecsv(Path(name))
        curve = filters.load_filter(name)
    except UNREADABLE as error:
        groups = ", ".join(filters.filter_group_names)
        raise ConfigError(
            f"{place}: expected a curve of speclite (such as sdss2010-r) or an .ecsv file, got '{name}' "
            f"({reason_of(error)}); groups of curves: {groups}"
        ) from error
    return Band(str(curve.name), np.asarray(curve.wavelength, np.float64), np.asarray(curve.response, np.float64))


class BandTables(eqx.Module):
    """Flux of every template through some bands, in parts of 1 % of the wavelength, so that a screen can dim them.

    `flux` is per unit of the templates' amount and of `flux_factor` (1 Lsun / (4 pi D_L^2) in 1e-20 erg/s/cm2);
    `wavelength` is the mean observed vacuum wavelength of each part in Angstrom; `owner` the number of its band.
    """

    flux: Float[Array | ndarray, "template part"]
    wavelength: Float[Array | ndarray, " part"]
    owner: Int[Array | ndarray, " part"]
    n_band: int = eqx.field(static=True)

    @classmethod
    def build(cls, library: SSPLibrary, redshift: float, weights: Sequence["BandWeight"]) -> "BandTables":
        """One column per weight, for the templates of a library in the order of its flattened table."""
        nodes = np.asarray(library.rest_wavelength)
        spectra = np.asarray(library.spectra).reshape(-1, len(nodes))
        columns = [_integrals(nodes, redshift, weight) for weight in weights]
        numbers = [np.full(len(wavelength), number, np.int32) for number, (_, _, wavelength) in enumerate(columns)]
        return cls(
            flux=np.concatenate([spectra[:, window] @ matrix for window, matrix, _ in columns], axis=1),
            wavelength=np.concatenate([wavelength for _, _, wavelength in columns]),
            owner=np.concatenate(numbers),
            n_band=len(columns),
        )

    def through(self, transmission: Float[Array, " part"] | None = None) -> Float[Array, "template band"]:
        """The flux of every template in every band, behind a screen that lets a share of each part's light through."""
        flux = jnp.asarray(self.flux)
        flux = flux if transmission is None else flux * transmission[None, :]
        of_band = jnp.asarray(self.owner)[:, None] == jnp.arange(self.n_band, dtype=jnp.int32)[None, :]
        return jnp.matmul(flux, of_band.astype(flux.dtype), precision=lax.Precision.HIGHEST)


@dataclass(frozen=True)
class BandWeight:
    """A weight of integrals over a flux density: scale x R(lambda) x lambda^power, lambda observed, vacuum Angstrom."""

    band: Band
    scale: float = 1.0
    power: int = 0

    @classmethod
    def nanojansky(cls, band: Band) -> "BandWeight":
        """The mean flux density per Hz that a photon counter sees, in nJy from F_lambda in 1e-20 erg/s/cm2/Angstrom.

        f_nu = int F_lambda lambda R dlambda / int (c / lambda) R dlambda (Tokunaga & Vacca 2005, PASP 117, 421, eq. A6;
        the AB magnitude is -2.5 log10(f_nu / 3631 Jy)), so that a source of f_nu = constant has that value.
        """
        wavelength, response = band.wavelength, band.response
        slope = np.diff(response) / np.diff(wavelength)
        start = response[:-1] - slope * wavelength[:-1]
        per_wavelength = np.sum(start * np.log(wavelength[1:] / wavelength[:-1]) + np.diff(response))
        frequencies = SPEED_OF_LIGHT * ANGSTROM_PER_KM * float(per_wavelength)
        return cls(band, scale=_NANOJANSKY_PER_CUBE_UNIT / frequencies, power=1)

    def at(self, wavelength: Float[ndarray, "*wave"]) -> Float[ndarray, "*wave"]:
        """The weight at observed vacuum wavelengths within the band."""
        response = np.interp(wavelength, self.band.wavelength, self.band.response)
        return self.scale * response * wavelength**self.power


def check_covered(band: Band, library: SSPLibrary, redshift: float) -> None:
    """Raise ConfigError where the library ends within a band (more than 0.1 % of its response lies beyond)."""
    first, last = map(float, np.asarray(library.rest_wavelength)[[0, -1]] * (1 + redshift))
    if not _is_within(band, first, last):
        raise ConfigError(
            f"products: expected bands within the SSP library '{library.name}' ({first:.5g}-{last:.5g} Angstrom at "
            f"redshift {redshift:g}), got '{band.name}' ({band.wavelength[0]:.5g}-{band.wavelength[-1]:.5g} Angstrom); "
            f"leave it out, or use a library that reaches further (rubix-like ssp list)"
        )


def _is_within(band: Band, first: float, last: float) -> bool:
    """Whether at most 0.1 % of a band's response lies beyond two wavelengths."""
    grid = np.union1d(band.wavelength, np.clip([first, last], *band.wavelength[[0, -1]]))
    response = np.interp(grid, band.wavelength, band.response)
    areas = 0.5 * (response[1:] + response[:-1]) * np.diff(grid)
    inside = (grid[:-1] >= first) & (grid[1:] <= last)
    return bool(areas[inside].sum() >= _LEAST_COVERED * areas.sum())


def _integrals(
    nodes: Float[ndarray, " rest"], redshift: float, weight: BandWeight
) -> tuple[slice, Float[ndarray, "window part"], Float[ndarray, " part"]]:
    """(window of the nodes, matrix, mean wavelengths): spectrum[window] @ matrix are the integrals over each part.

    Exact for a spectrum and a response that are linear between their nodes: on each cell between nodes of either the
    integrand is at most cubic, which Simpson's rule integrates exactly.
    """
    stretch = 1.0 + redshift
    first, last = weight.band.wavelength[[0, -1]]
    n_part = max(1, int(np.ceil(np.log(last / first) / _PART)))
    parts = np.geomspace(first, last, n_part + 1)
    grid = np.unique(np.concatenate([parts, weight.band.wavelength, stretch * nodes]))
    grid = grid[(grid >= max(first, stretch * nodes[0])) & (grid <= min(last, stretch * nodes[-1]))]
    middle = 0.5 * (grid[1:] + grid[:-1])
    points = np.stack([grid[:-1], middle, grid[1:]])
    simpson = weight.at(points) * np.diff(grid) / stretch * np.array([[1.0], [4.0], [1.0]]) / 6.0
    lower = np.clip(np.searchsorted(stretch * nodes, middle) - 1, 0, len(nodes) - 2)
    upwards = (points / stretch - nodes[lower]) / (nodes[lower + 1] - nodes[lower])
    part = np.clip(np.searchsorted(parts, middle) - 1, 0, n_part - 1)
    window = slice(int(lower[0]), int(lower[-1]) + 2)
    matrix = np.zeros((window.stop - window.start, n_part))
    np.add.at(matrix, (lower - window.start, part), (simpson * (1 - upwards)).sum(axis=0))
    np.add.at(matrix, (lower + 1 - window.start, part), (simpson * upwards).sum(axis=0))
    total = np.bincount(part, simpson.sum(axis=0), n_part)
    moment = np.bincount(part, (simpson * points).sum(axis=0), n_part)
    centre = np.sqrt(parts[1:] * parts[:-1])
    return window, matrix, np.divide(moment, total, out=centre, where=total > 0)


def filter_image(cube: Cube, name: str) -> Quantity:
    """Mean flux density per Hz of every spaxel (y, x) through a filter, in nJy; NaN where a bin in it is masked.

    It is that of `BandWeight.nanojansky`, F_lambda being even within a bin. Raises ConfigError for an unknown filter,
    and one that reaches beyond the cube.
    """
    weights = _bin_weights(cube, load_band(name, "band"))
    inside = np.flatnonzero(weights)
    flux = np.asarray(cube.flux)[..., inside].astype(np.float64) @ weights[inside]
    good = np.all(np.asarray(cube.mask)[..., inside] == 0, axis=2)
    return np.where(good, flux, np.nan) * units.nJy


def _bin_weights(cube: Cube, band: Band) -> Float[ndarray, " wave"]:
    """The weight of each bin's flux (1e-20 erg/s/cm2/Angstrom of its medium) in the flux in a filter, in nJy.

    The integral of lambda R over a bin is exact for a response that is linear between its nodes (Simpson's rule between
    nodes and edges), and both are in vacuum.
    """
    weight = BandWeight.nanojansky(band)
    edges = cube.bins.to_vacuum(cube.wave_edges)
    nodes = np.union1d(np.clip(edges, *band.wavelength[[0, -1]]), band.wavelength)
    inside = (nodes[:-1] >= edges[0]) & (nodes[1:] <= edges[-1])
    if not _is_within(band, float(edges[0]), float(edges[-1])):
        first, last = cube.wave_edges[[0, -1]]
        raise ConfigError(
            f"band: expected a filter within the cube's {first:.5g}-{last:.5g} Angstrom, got '{band.name}' "
            f"({band.wavelength[0]:.5g}-{band.wavelength[-1]:.5g}); products.filters makes images beyond the detector"
        )
    low, high = nodes[:-1][inside], nodes[1:][inside]
    middle = 0.5 * (low + high)
    pieces = (high - low) / 6.0 * (weight.at(low) + 4.0 * weight.at(middle) + weight.at(high))
    owner = np.clip(np.searchsorted(edges, middle) - 1, 0, cube.bins.n_wave - 1)
    total = np.bincount(owner, pieces, cube.bins.n_wave)
    return total * np.diff(cube.wave_edges) / np.diff(edges)

"""Images out of a cube: white light, narrow bands, images through filters, maps of the run, all with units."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from astropy import units
from astropy.units import Quantity
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.config.quantities import parse_pair
from rubix_like.constants import CUBE_FLUX_DENSITY, CUBE_FLUX_UNIT
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import sums_of
from rubix_like.cube.files.maps_file import (
    DUST_EXTENSIONS,
    EXTENSIONS,
    GAS_EXTENSIONS,
    LINE_EXTENSIONS,
    PHOTON_EXTENSION,
)
from rubix_like.cube.maps import Maps, MapSet
from rubix_like.cube.meta import OUTSIDE_APERTURE
from rubix_like.errors import expect, nearest, suggest
from rubix_like.runtime.places import found_at

_THROUGH_FILTER = "rubix_like.forward.products.bands:filter_image"
"""Filters are known where maps are made, above cubes."""

_ROUNDING = 1e-6
"""Relative difference of wavelengths that are the same."""

SHORT_NAMES: Mapping[str, str] = {
    "velocity": "v_light",
    "dispersion": "sigma_light",
    "age": "age_light",
    "metallicity": "metallicity_light",
}
"""Names of maps that people use -> fields of `MapSet`."""

_UNITS: Mapping[str, str] = {
    name: unit for name, unit, _ in (*EXTENSIONS, *GAS_EXTENSIONS, *DUST_EXTENSIONS, PHOTON_EXTENSION)
}


_MADE_BY: Mapping[str, str] = {
    **dict.fromkeys(
        ("v_fit", "sigma_fit", "h3", "h4"), "; it is in cube.maps.fitted().after, of a run with products: {losvd: {}}"
    ),
    **{name: "; give the run products: {gas: true}, and gas that states it" for name, _, _ in GAS_EXTENSIONS},
    **{name: "; give the run products: {dust: true}" for name, _, _ in DUST_EXTENSIONS},
    **dict.fromkeys(("balmer_decrement", "a_v_balmer"), "; give the run products: {dust: true, lines: [Ha, Hb]}"),
    PHOTON_EXTENSION[0]: "; give the run products: {lines: true}, and a pipeline with nebulae",
}
"""Maps that not every run has -> the remedy where they are missing."""


def image_of(cube: Cube, band: str | Sequence[Any] | None = None) -> Quantity:
    """An image (y, x) of a cube (`Cube.image`)."""
    if band is None:
        sums = sums_of(cube)
        return Quantity(np.where(sums.unlit, np.nan, sums.light), CUBE_FLUX_UNIT)
    if isinstance(band, str):
        return found_at(_THROUGH_FILTER)(cube, band)
    inside = bins_within(cube, band)
    _check_covered(cube, band)
    return Quantity(mean_of_bins(cube, inside), CUBE_FLUX_DENSITY)


def _check_covered(cube: Cube, band: Sequence[Any]) -> None:
    """Raise ValueError for a band that reaches beyond the cube, as for filters."""
    low, high = parse_pair(band, "Angstrom", "band", "(lowest, highest)")
    first, last = cube.wave_edges[[0, -1]]
    if low < first * (1 - _ROUNDING) or high > last * (1 + _ROUNDING):
        raise ValueError(
            f"band: expected one within the cube's {first:.2f} to {last:.2f} Angstrom ({cube.medium}), got {low:g} to "
            f"{high:g}; give the part that is there"
        )


def mean_of_bins(cube: Cube, inside: Bool[ndarray, " wave"]) -> Float[ndarray, "y x"]:
    """Mean flux density of every spaxel over some bins: the light of the good ones / their width; NaN without any."""
    widths = np.diff(cube.wave_edges)[inside]
    good = np.asarray(cube.mask)[..., inside] == 0
    light = np.where(good, np.asarray(cube.flux, np.float64)[..., inside], 0.0) @ widths
    width = good @ widths
    return np.where(width > 0, light / np.where(width > 0, width, 1.0), np.nan)


def bins_within(cube: Cube, band: Sequence[Any], name: str = "band") -> Bool[ndarray, " wave"]:
    """The bins whose centres lie in (lowest, highest), each with a unit or in Angstrom; raises ValueError, which calls
    them `name`, for none."""
    low, high = parse_pair(band, "Angstrom", name, "(lowest, highest)")
    inside = (cube.wavelength >= low) & (cube.wavelength <= high)
    if not inside.any():
        edges = cube.wave_edges
        raise ValueError(
            f"{name}: expected one with the centre of a bin, from {edges[0]:.2f} to {edges[-1]:.2f} Angstrom "
            f"({cube.medium}) in bins of {np.diff(edges).max():.3g}, got {low:g} to {high:g}"
        )
    return inside


def map_of(cube: Cube, name: str, *, before_psf: bool = False) -> Quantity:
    """A map (y, x) of the run's particles (`Cube.map`)."""
    field, maps = SHORT_NAMES.get(expect(name, str, "name", "the name of a map"), name), cube.maps
    if maps is None and field == "v_light" and cube.mean_v_los is not None and not before_psf:
        return np.asarray(cube.mean_v_los, np.float64) * (units.km / units.s)
    if maps is None:
        raise ValueError(
            f"map '{name}': expected a cube with the maps of its run, got one without; give the run products: {{losvd: "
            f"null}} (a cube from a file finds the maps beside it, cube_maps.fits){_other_name(name)}"
        )
    known = _maps_by_name(maps.before if before_psf else maps.after, maps)
    if field not in known:
        names = (*known, *(short for short, long in SHORT_NAMES.items() if long in known))
        raise ValueError(f"map '{name}': expected one that this run made{_MADE_BY.get(name) or suggest(name, names)}")
    values, unit = known[field]
    outside = np.asarray(maps.mask) & OUTSIDE_APERTURE != 0
    return np.where(outside, np.nan, np.asarray(values, np.float64)) * units.Unit(unit)


def _other_name(name: str) -> str:
    """The remedy for a name that no map of a run without fields has."""
    of_lines = tuple(f"{kind}_" for kind, _, _ in LINE_EXTENSIONS)
    known = {*_UNITS, *SHORT_NAMES}
    return "" if name in known or name.startswith(of_lines) else nearest(name, known)


def _maps_by_name(maps: MapSet, of: Maps) -> dict[str, tuple[Any, str]]:
    """Name -> values (y, x) and unit of every map that a run made: fields by their names, lines as `flux_Ha`."""
    found = {name: (getattr(maps, name), unit) for name, unit in _UNITS.items() if getattr(maps, name) is not None}
    found |= {label.name: (maps.fields[label.name], label.unit) for label in of.fields}
    for line, of_line in maps.lines.items():
        for name, unit, _ in LINE_EXTENSIONS:
            values = getattr(of_line, name)
            if values is not None:
                found[f"{name}_{line}"] = (values, unit)
    return found

"""Images of a cube: white light, bands, filters, maps of the run, all with units; and the table of its lines."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from astropy.units import Quantity
from jaxtyping import Bool, Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config.quantities import parse_pair
from rubix_like.constants import CUBE_FLUX_DENSITY, CUBE_FLUX_UNIT
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, sums_of
from rubix_like.cube.files.maps_file import (
    DUST_EXTENSIONS,
    EXTENSIONS,
    GAS_EXTENSIONS,
    LINE_EXTENSIONS,
    PHOTON_EXTENSION,
)
from rubix_like.cube.maps import Maps
from rubix_like.cube.meta import OUTSIDE_APERTURE
from rubix_like.errors import ConfigError, expect, nearest, suggest
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from astropy.table import Table

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
        return found_at("rubix_like.forward.products.bands:filter_image")(cube, band)
    inside = bins_within(cube, band)
    low, high = parse_pair(band, "Angstrom", "band", "(lowest, highest)")
    first, last = cube.wave_edges[[0, -1]]
    if low < first * (1 - _ROUNDING) or high > last * (1 + _ROUNDING):
        raise ValueError(
            f"band: expected one within the cube's {first:.2f} to {last:.2f} Angstrom ({cube.medium}), got {low:g} to "
            f"{high:g}; give the part that is there"
        )
    return Quantity(mean_of_bins(cube, inside), CUBE_FLUX_DENSITY)


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
        known = {*_UNITS, *SHORT_NAMES}
        of_lines = tuple(f"{kind}_" for kind, _, _ in LINE_EXTENSIONS)
        remedy = "" if name in known or name.startswith(of_lines) else nearest(name, known)
        raise ValueError(
            f"map '{name}': expected a cube with the maps of its run, got one without; give the run products: {{losvd: "
            f"null}} (a cube from a file finds the maps beside it, cube_maps.fits){remedy}"
        )
    images = maps.before if before_psf else maps.after
    known = {kind: (getattr(images, kind), unit) for kind, unit in _UNITS.items()}
    known |= {label.name: (images.fields[label.name], label.unit) for label in maps.fields}
    for line, of_line in images.lines.items():
        known |= {f"{kind}_{line}": (getattr(of_line, kind), unit) for kind, unit, _ in LINE_EXTENSIONS}
    known = {kind: (values, unit) for kind, (values, unit) in known.items() if values is not None}
    if field not in known:
        names = (*known, *(short for short, long in SHORT_NAMES.items() if long in known))
        raise ValueError(f"map '{name}': expected one that this run made{_MADE_BY.get(name) or suggest(name, names)}")
    values, unit = known[field]
    outside = np.asarray(maps.mask) & OUTSIDE_APERTURE != 0
    return np.where(outside, np.nan, np.asarray(values, np.float64)) * units.Unit(unit)


_KMS = units.km / units.s

_LINE_UNITS = {
    "wavelength": units.Angstrom,
    "observed_wavelength": units.Angstrom,
    "flux": units.Unit(CUBE_FLUX_UNIT),
    "intrinsic_flux": units.Unit(CUBE_FLUX_UNIT),
    "equivalent_width": units.Angstrom,
    "velocity": _KMS,
    "velocity_dispersion": _KMS,
}


@named_arguments
def lines(source: Cube | ShardedCube | Maps) -> "Table":
    """The lines of a cube that was made with `products.lines`, or of its maps: their true values in the whole field.

    One row per line: `name`; `wavelength` (Angstrom, at rest in vacuum); `observed_wavelength` at the redshift of the
    galaxy, in the cube's medium; sums and means of the maps after the PSF over the spaxels of the aperture: `flux`
    (1e-20 erg/s/cm2), `intrinsic_flux` before all dust, `equivalent_width` (Angstrom at rest, NaN where the
    light beside the line is not known), `velocity` and `velocity_dispersion` (km/s, relative to the redshift, without
    the instrument's line spread; NaN without light). Raises ConfigError where there are no maps of lines.
    """
    maps = source if isinstance(source, Maps) else source.maps
    if maps is None:
        raise ConfigError(
            "lines: expected a cube with the maps of its run, got one without any; set products: {lines: true}, or for "
            "a cube from a file give its maps: rl.lines(rl.Maps.read('cube_maps.fits'))"
        )
    if not maps.lines:
        raise ConfigError("lines: expected maps of emission lines, got none; set products: {lines: true} in the run")
    inside = (np.asarray(maps.mask) & OUTSIDE_APERTURE) == 0
    redshift = float(maps.meta.get("redshift") or 0.0)
    rows = []
    for label in maps.lines:
        line = maps.after.lines[label.name]
        flux, v, sigma = (np.asarray(image, np.float64)[inside] for image in (line.flux, line.v, line.sigma))
        lit = np.isfinite(v) & np.isfinite(sigma)
        total = flux[lit].sum() or np.nan
        mean = (flux[lit] * v[lit]).sum() / total
        square = (flux[lit] * (sigma[lit] ** 2 + (v[lit] - mean) ** 2)).sum() / total
        row: dict[str, Any] = {"name": label.name, "wavelength": label.wavelength}
        row |= {"observed_wavelength": label.observed, "flux": flux.sum()}
        if line.intrinsic_flux is not None:
            row["intrinsic_flux"] = np.asarray(line.intrinsic_flux, np.float64)[inside].sum()
        beside = 0.0 if line.continuum is None else np.asarray(line.continuum, np.float64)[inside].sum()
        row["equivalent_width"] = flux.sum() / beside / (1.0 + redshift) if beside > 0 else np.nan
        rows.append(row | {"velocity": mean, "velocity_dispersion": np.sqrt(square)})
    names = list(rows[0])
    return found_at("astropy.table:Table")(
        rows=rows, names=names, units={name: unit for name, unit in _LINE_UNITS.items() if name in names}
    )

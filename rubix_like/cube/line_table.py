"""The emission lines of a cube as a table: where they are, and what a perfect measurement of the field would find."""

from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from jaxtyping import Bool
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import CUBE_FLUX_UNIT
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.maps import LineMaps, Maps
from rubix_like.cube.meta import OUTSIDE_APERTURE
from rubix_like.errors import ConfigError
from rubix_like.runtime.places import found_at

if TYPE_CHECKING:
    from astropy.table import Table

_KMS = units.km / units.s

_UNITS = {
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
    galaxy, in the cube's own medium; sums and means of the maps after the PSF over the spaxels of the aperture: `flux`
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
    for line in maps.lines:
        found = {"name": line.name, "wavelength": line.wavelength, "observed_wavelength": line.observed}
        rows.append(found | _of_field(maps.after.lines[line.name], inside, redshift))
    names = list(rows[0])
    return found_at("astropy.table:Table")(
        rows=rows, names=names, units={name: unit for name, unit in _UNITS.items() if name in names}
    )


def _of_field(line: LineMaps, inside: Bool[ndarray, "y x"], redshift: float) -> dict[str, Any]:
    flux, v, sigma = (np.asarray(own, np.float64)[inside] for own in (line.flux, line.v, line.sigma))
    lit = np.isfinite(v) & np.isfinite(sigma)
    weight = np.where(lit, flux, 0.0)
    total = weight.sum() or np.nan
    mean = (weight[lit] * v[lit]).sum() / total
    square = (weight[lit] * (sigma[lit] ** 2 + (v[lit] - mean) ** 2)).sum() / total
    found = {"flux": flux.sum()}
    if line.intrinsic_flux is not None:
        found["intrinsic_flux"] = np.asarray(line.intrinsic_flux, np.float64)[inside].sum()
    beside = 0.0 if line.continuum is None else np.asarray(line.continuum, np.float64)[inside].sum()
    found["equivalent_width"] = flux.sum() / beside / (1.0 + redshift) if beside > 0 else np.nan
    return found | {"velocity": mean, "velocity_dispersion": np.sqrt(square)}

"""The night sky: its emission and the transmission of the atmosphere, as tables over wavelength."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.skies import find_sky
from rubix_like.config.yaml_files import check_ecsv
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.fits_opening import check_fits
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import reason_of

if TYPE_CHECKING:
    from astropy.table import Table

_EMBEDDED_FWHM = {"dark": 3.1, "bright": 3.1, "infrared": 1.25 * FWHM_PER_SIGMA / 12**0.5}
"""Angstrom (data/README.md): of a Gaussian, or of one as wide as a box of 1.25 Angstrom."""

_EMISSION_UNIT = "photon / (s m2 um arcsec2)"
_COLUMNS: dict[str, dict[str, str]] = {
    "wavelength": {"wavelength": "Angstrom", "lam": "nm"},
    "emission": {"emission": _EMISSION_UNIT, "flux": _EMISSION_UNIT},
    "transmission": {"transmission": "", "trans": ""},
}
"""What is read -> names of its column, each with the unit where the table states none; the second are SkyCalc's."""


@dataclass(frozen=True)
class Sky:
    """Emission and transmission at increasing vacuum wavelengths, linear between them.

    | field | shape | unit |
    |---|---|---|
    | wavelength | (sky,) | vacuum Angstrom |
    | emission | (sky,) | photons/s/m2/um/arcsec2 at the ground |
    | transmission | (sky,) | of the atmosphere, for light from outside it |
    """

    name: str
    wavelength: Float[ndarray, " sky"]
    emission: Float[ndarray, " sky"]
    transmission: Float[ndarray, " sky"]

    @property
    def fwhm(self) -> float:
        """Angstrom: width of lines in the package's own tables; 0 for others, which may be as sharp as the sky."""
        return _EMBEDDED_FWHM.get(self.name, 0.0)

    def on_bins(self, edges: Float[ndarray, " edge"]) -> tuple[Float[ndarray, " wave"], Float[ndarray, " wave"]]:
        """Mean emission and mean transmission between neighbouring `edges` (vacuum Angstrom).

        Raises ConfigError where the table does not reach the edges.
        """
        first, last = self.wavelength[[0, -1]]
        if edges[0] < first or edges[-1] > last:
            raise ConfigError(
                f"noise.exposure.sky: expected a sky that covers the detector's {edges[0]:.1f}-{edges[-1]:.1f} "
                f"Angstrom (vacuum), got '{self.name}' with {first:.1f}-{last:.1f}; change instrument.wavelength or "
                f"give the path of another table"
            )
        return bin_means(self.wavelength, self.emission, edges), bin_means(self.wavelength, self.transmission, edges)


def bin_means(
    x: Float[ndarray, " node"], y: Float[ndarray, " node"], edges: Float[ndarray, " edge"]
) -> Float[ndarray, " wave"]:
    """Exact means over bins of the function that is linear between (x, y) and constant beyond, in float64."""
    grid = np.union1d(x, edges)
    values = np.interp(grid, x, y)
    integral = np.append(0.0, np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(grid)))
    return np.diff(integral[np.searchsorted(grid, edges)]) / np.diff(edges)


def load_sky(name: str) -> Sky | None:
    """The sky by its name or path (`find_sky`); None for 'none'.

    A table has columns `wavelength` (vacuum), `emission` and, if the atmosphere absorbs, `transmission`; or `lam`,
    `flux` and `trans` as ESO's SkyCalc writes them. Units are those of its columns, or Angstrom (`lam`: nm) and
    photons/s/m2/um/arcsec2. Raises ConfigError for a table that is none.
    """
    path = find_sky(name)
    if path is None:
        return None
    try:
        (check_ecsv if path.suffix == ".ecsv" else check_fits)(path)
        table = found_at("astropy.table:Table").read(path, format="ascii.ecsv" if path.suffix == ".ecsv" else "fits")
        return _checked(Sky(name, *_columns(table)))
    except UNREADABLE as error:
        raise ConfigError(
            f"noise.exposure.sky: expected a table of the sky in {path}, but {reason_of(error)}"
        ) from error


def _columns(table: "Table") -> tuple[ndarray, ndarray, ndarray]:
    """Wavelength, emission and transmission (1 where there is no such column) in the units of `Sky`."""
    wavelength, emission, transmission = (_quantity(table, what) for what in _COLUMNS)
    if wavelength is None or emission is None:
        raise ValueError(f"it has the columns {', '.join(table.colnames)} and not wavelength and emission")
    per_spaxel = units.Quantity(emission * units.Unit("arcsec2"))
    photons = per_spaxel.to_value("photon / (s m2 um)", equivalencies=units.spectral_density(wavelength))
    fraction = np.ones(len(table)) if transmission is None else np.asarray(transmission.to_value(""))
    return np.asarray(wavelength.to_value("Angstrom")), np.asarray(photons), fraction


def _quantity(table: "Table", what: str) -> units.Quantity | None:
    """A column under any of its names, in float64, with its own or the assumed unit; None if there is none."""
    for name, assumed in _COLUMNS[what].items():
        if name in table.colnames:
            column: Any = table[name]
            return units.Quantity(np.asarray(column, dtype=np.float64), column.unit or assumed)
    return None


def _checked(sky: Sky) -> Sky:
    for name in ("wavelength", "emission", "transmission"):
        value = getattr(sky, name)
        if len(value) < 2 or not np.all(np.isfinite(value)) or np.any(value < 0):
            raise ValueError(f"its {name} is not two or more finite values >= 0")
    if np.any(np.diff(sky.wavelength) <= 0):
        raise ValueError("its wavelengths do not increase")
    if np.any(sky.transmission > 1):
        raise ValueError("its transmission is above 1")
    return sky

"""The night sky: its emission and the transmission of the atmosphere, as tables over wavelength."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.sections.noise import NO_SKY, find_sky
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

_REMEDIES = ("dark", "infrared")
"""Embedded skies that are proposed where others end."""

_OF_EXPOSURE = "noise.exposure.sky"
"""The setting of the sky that may also be none."""

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
    | fwhm | (sky,) | Angstrom: width of lines in the package's tables; 0 in others, which may be any sharp |
    """

    name: str
    wavelength: Float[ndarray, " sky"]
    emission: Float[ndarray, " sky"]
    transmission: Float[ndarray, " sky"]
    fwhm: Float[ndarray, " sky"]

    def covers(self, edges: Float[ndarray, " edge"]) -> bool:
        """Whether the table reaches over all of these wavelengths (vacuum Angstrom)."""
        return bool(self.wavelength[0] <= edges[0] and edges[-1] <= self.wavelength[-1])

    def check_covers(self, edges: Float[ndarray, " edge"], setting: str) -> None:
        """Raise ConfigError, naming `setting`, where the table does not reach the detector's edges."""
        if self.covers(edges):
            return
        first, last = self.wavelength[[0, -1]]
        in_space = f"take sky: {NO_SKY} for a telescope in space, " if setting == _OF_EXPOSURE else ""
        remedy = self._longer(edges) or in_space
        raise ConfigError(
            f"{setting}: expected a sky that covers the detector's {edges[0]:.1f}-{edges[-1]:.1f} Angstrom (vacuum), "
            f"got '{self.name}' with {first:.1f}-{last:.1f}; {remedy}change instrument.wavelength or give "
            f"the path of another table"
        )

    def _longer(self, edges: Float[ndarray, " edge"]) -> str:
        """The list with an embedded sky that would cover the edges, as the first part of a remedy; empty without."""
        for name in _REMEDIES:
            other = _table_of(name)
            with suppress(ConfigError):  # with a gap between them
                if other is not None and joined_sky([self, other]).covers(edges):
                    return f"take sky: [{self.name}, {name}], "
        return ""

    def on_bins(self, edges: Float[ndarray, " edge"]) -> tuple[Float[ndarray, " wave"], Float[ndarray, " wave"]]:
        """Mean emission and mean transmission between neighbouring `edges` (vacuum Angstrom).

        Raises ConfigError where the table does not reach the edges.
        """
        self.check_covers(edges, _OF_EXPOSURE)
        return bin_means(self.wavelength, self.emission, edges), bin_means(self.wavelength, self.transmission, edges)


def bin_means(
    x: Float[ndarray, " node"], y: Float[ndarray, " node"], edges: Float[ndarray, " edge"]
) -> Float[ndarray, " wave"]:
    """Exact means over bins of the function that is linear between (x, y) and constant beyond, in float64."""
    grid = np.union1d(x, edges)
    values = np.interp(grid, x, y)
    integral = np.append(0.0, np.cumsum(0.5 * (values[1:] + values[:-1]) * np.diff(grid)))
    return np.diff(integral[np.searchsorted(grid, edges)]) / np.diff(edges)


def load_sky(names: str | Sequence[str]) -> Sky | None:
    """The sky by its name or path (`find_sky`), or the joint of several (`joined_sky`); None for 'none'.

    A table has columns `wavelength` (vacuum), `emission` and, if the atmosphere absorbs, `transmission`; or `lam`,
    `flux` and `trans` as ESO's SkyCalc writes them. Units are those of its columns, or Angstrom (`lam`: nm) and
    photons/s/m2/um/arcsec2. Raises ConfigError for a table that is none, and for several with a gap between them.
    """
    skies = [_table_of(name) for name in ((names,) if isinstance(names, str) else names)]
    found = [sky for sky in skies if sky is not None]
    return joined_sky(found) if found else None


def joined_sky(skies: Sequence[Sky]) -> Sky:
    """One sky of several: at each wavelength the first that covers it, so that it jumps where one of them ends.

    A table without `transmission` has 1 in its part. Raises ConfigError where there is a gap between them.
    """
    ends = np.array([sky.wavelength[[0, -1]] for sky in skies])
    beyond = np.nextafter(ends, [-np.inf, np.inf]).ravel()
    nodes = np.unique(np.concatenate([*(sky.wavelength for sky in skies), beyond]))
    nodes = nodes[(nodes >= ends.min()) & (nodes <= ends.max())]
    covers = [(nodes >= first) & (nodes <= last) for first, last in ends]
    gap = nodes[~np.any(covers, axis=0)]
    names = ", ".join(sky.name for sky in skies)
    if len(gap):
        raise ConfigError(
            f"noise.exposure.sky: expected skies that overlap or touch, got '{names}' with none of them from "
            f"{gap[0]:.1f} Angstrom (vacuum); give another one for what lies between"
        )
    values = [
        np.select(covers, [np.interp(nodes, sky.wavelength, getattr(sky, column)) for sky in skies])
        for column in ("emission", "transmission", "fwhm")
    ]
    return Sky(names, nodes, *values)


def _table_of(name: str) -> Sky | None:
    path = find_sky(name)
    if path is None:
        return None
    try:
        (check_ecsv if path.suffix == ".ecsv" else check_fits)(path)
        table = found_at("astropy.table:Table").read(path, format="ascii.ecsv" if path.suffix == ".ecsv" else "fits")
        wavelength, emission, transmission = _columns(table)
        fwhm = np.full_like(wavelength, _EMBEDDED_FWHM.get(name, 0.0))
        for what, values in zip(_COLUMNS, (wavelength, emission, transmission), strict=True):
            if len(values) < 2 or not np.all(np.isfinite(values)) or np.any(values < 0):
                raise ValueError(f"its {what} is not two or more finite values >= 0")
        if np.any(np.diff(wavelength) <= 0):
            raise ValueError("its wavelengths do not increase")
        if np.any(transmission > 1):
            raise ValueError("its transmission is above 1")
        return Sky(name, wavelength, emission, transmission, fwhm)
    except UNREADABLE as error:
        raise ConfigError(
            f"noise.exposure.sky: expected a table of the sky in {path}, but {reason_of(error)}"
        ) from error


def _columns(table: "Table") -> tuple[ndarray, ndarray, ndarray]:
    found: dict[str, units.Quantity] = {}
    for what, names in _COLUMNS.items():
        for name in (name for name in names if name in table.colnames and what not in found):
            column: Any = table[name]
            found[what] = units.Quantity(np.asarray(column, dtype=np.float64), column.unit or names[name])
    if not {"wavelength", "emission"} <= set(found):
        raise ValueError(f"it has the columns {', '.join(table.colnames)} and not wavelength and emission")
    wavelength = found["wavelength"]
    per_spaxel = units.Quantity(found["emission"] * units.Unit("arcsec2"))
    photons = per_spaxel.to_value("photon / (s m2 um)", equivalencies=units.spectral_density(wavelength))
    transmission = found.get("transmission", units.Quantity(np.ones(len(table))))
    return (
        np.asarray(wavelength.to_value("Angstrom")),
        np.asarray(photons),
        np.asarray(transmission.to_value("")),
    )

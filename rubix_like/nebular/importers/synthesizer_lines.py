"""Grids of Synthesizer (Lovell et al. 2025, Open Journal of Astrophysics) with lines of Cloudy: HDF5.

Root attribute `axes`: names of the axes, in the order of the lines; group `axes`: ages (a unit of time), metallicities
(mass fractions) and ionisation_parameters; group `lines`: id ("O 3 5006.84A"), wavelength and luminosity (ages,
metallicities, ionisation_parameters, line) in erg/s per Msun at birth; log10_specific_ionising_luminosity/HI on the
same axes, or without the last: log10 of the ionising photons per second and Msun. Optionally the group `CloudyParams`
with the attributes cloudy_version and hydrogen_density.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.nebular.table_file import NebularTable, assembled, matched_lines
from rubix_like.physics import air
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_hdf5, plain_attribute, stored_unit
from rubix_like.runtime.files.hdf5_files import opened_hdf5

AXES = ("ages", "metallicities", "ionisation_parameters")

SOLAR: Mapping[str, tuple[float, float]] = {
    "GalacticConcordance": (8.76, 0.015),
    "Asplund2009": (8.69, 0.0134),
    "Gutkin2016": (8.83, 0.0152),
}
"""CloudyParams/reference_abundance -> 12 + log10(O/H), dust included, and metal mass fraction of the Sun (Nicholls
et al. 2017, MNRAS 466, 4403; Asplund et al. 2009, ARA&A 47, 481; Gutkin et al. 2016, MNRAS 462, 1757)."""

USUAL_ABUNDANCE = "GalacticConcordance"
"""Where the file names none of these; it is the default of the program that makes the grids."""

USUAL_DENSITY = 100.0
"""Hydrogen atoms per cm^3 where the file has no number."""

_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")
_ID = re.compile(r"([A-Z][a-z]?) +(\d+) +([\d.]+)([Am])")


def _is_synthesizer_lines(path: Path) -> bool:
    try:
        with opened_hdf5(path, whole=False) as file:
            return "axes" in file.attrs and "lines/luminosity" in file and "lines/id" in file
    except (ValueError, *UNREADABLE):
        return False


def read_synthesizer_lines(path: Path) -> NebularTable:
    """The lines of a grid per ionising photon; those whose id names no line of our list are left out.

    Raises ValueError for a file that is damaged, has other axes or another unit.
    """
    with open_source_hdf5(path) as file:
        return _read_open(path, file)


def _read_open(path: Path, file: Any) -> NebularTable:
    names = [str(plain_attribute(name)) for name in np.atleast_1d(file.attrs["axes"])]
    if sorted(names) != sorted(AXES):
        raise ValueError(f"{path}: axes: expected {', '.join(AXES)}, got {', '.join(names)}; reduce the grid to them")
    age, metallicity, ionisation = (np.asarray(file["axes"][name], dtype=np.float64) for name in AXES)
    age = age * stored_unit(path, file["axes/ages"], units.yr)
    order = [names.index(name) for name in AXES]
    erg = stored_unit(path, file["lines/luminosity"], units.erg / units.s)
    light = np.asarray(file["lines/luminosity"], dtype=np.float64).transpose(*order, 3) * erg
    photons = _photons(np.asarray(file["log10_specific_ionising_luminosity/HI"], dtype=np.float64), order)
    ids = [str(plain_attribute(id_)) for id_ in file["lines/id"][:]]
    given = dict(file["CloudyParams"].attrs) if "CloudyParams" in file else {}
    cloudy = {key: plain_attribute(value) for key, value in given.items()}
    lines = {name: light[..., place] / photons for name, place in _named(path, ids).items()}
    return _assembled(path, (np.log10(age), metallicity, np.log10(ionisation)), lines, cloudy)


def _photons(logarithm: ndarray, order: list[int]) -> Float[ndarray, "age metal u"]:
    """Per second and Msun; the last axis has one node where the photons do not depend on it."""
    if logarithm.ndim == 3:
        return 10.0 ** logarithm.transpose(order)
    return 10.0 ** (logarithm if order[0] < order[1] else logarithm.T)[:, :, None]


def _named(path: Path, ids: list[str]) -> dict[str, int]:
    """Line -> place of its id; Cloudy's ids are in air or all in vacuum, which Ha tells."""
    parsed = [_ID.fullmatch(id_.strip()) for id_ in ids]
    places = [place for place, found in enumerate(parsed) if found and 0 < int(found[2]) <= len(_ROMAN)]
    words = [parsed[place].groups() for place in places]  # type: ignore[union-attr]
    wavelength = np.array([float(number) * (1e4 if unit == "m" else 1.0) for *_, number, unit in words])
    ions = [f"{element} {_ROMAN[int(stage) - 1]}" for element, stage, *_ in words]
    for vacuum in (air.to_vacuum(wavelength), wavelength):
        found = matched_lines(vacuum, ions)
        if "Ha" in found:
            return {name: places[place] for name, place in found.items()}
    raise ValueError(f"{path}: lines/id: expected 'H 1 6562.80A' (air) or 'H 1 6564.62A' (vacuum), got neither")


def _assembled(path: Path, nodes: tuple[ndarray, ndarray, ndarray], lines: dict, cloudy: dict) -> NebularTable:
    lacking = {"Hb", "Brg", "[O III] 5007"} - set(lines)
    if lacking:
        raise ValueError(f"{path}: lines/id: expected also {', '.join(sorted(lacking))}, got none")
    stated = cloudy.get("hydrogen_density")
    density = USUAL_DENSITY if stated is None else float(stated)
    abundance = str(cloudy.get("reference_abundance"))
    abundance = abundance if abundance in SOLAR else USUAL_ABUNDANCE
    solar_oxygen, solar_metallicity = SOLAR[abundance]
    log_age, metallicity, log_u = nodes
    oxygen = solar_oxygen + np.log10(metallicity / solar_metallicity)
    return assembled(
        lines,
        np.full(lines["Hb"].shape, density),
        {"log_age": log_age, "oxygen_abundance": oxygen, "log_u": log_u},
        name=re.sub(r"[^\w.-]", "-", path.stem),
        citation="of the models: see the file; Synthesizer: Lovell et al. 2025, Open Journal of Astrophysics; Roper et "
        "al. 2026, arXiv:2506.15811",
        licence="not stated in the file; see the authors of the models",
        source=f"grid of Synthesizer, {path.name}, Cloudy {cloudy.get('cloudy_version', '(version not stated)')}, "
        f"{density:g} atoms per cm^3, O/H of {abundance}",
        solar_oxygen=solar_oxygen,
        solar_metallicity=solar_metallicity,
    )


SYNTHESIZER_LINES = SourceFormat(_is_synthesizer_lines, read_synthesizer_lines)

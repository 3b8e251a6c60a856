"""Grids of Synthesizer (Lovell et al. 2025, Open Journal of Astrophysics), as its program syncretize writes them: HDF5.

Root attribute `axes`: names of the axes, in the order of the spectra and lines; group `axes`: ages (`ages` in a unit of
time, or `log10ages` / `log10age` of older versions), metal mass fractions (`metallicities`, `metallicity` or their
log10) and, of grids with lines, ionisation_parameters.

Spectra: `spectra/wavelength`; `spectra/incident` (older: `spectra/stellar`), (age, metal, rest) in erg/s/Hz per Msun at
birth. Optionally `star_fraction` and `remnant_fraction` (age, metal), and the attributes of the group `Model`:
sps_name, sps_version, sps_variant, imf_type, imf_masses, imf_slopes.

Lines of Cloudy: group `lines`: id ("O 3 5006.84A") and luminosity (ages, metallicities, ionisation_parameters, line) in
erg/s per Msun at birth; log10_specific_ionising_luminosity/HI on the same axes, or without the last: log10 of the
ionising photons per second and Msun. Optionally the group `CloudyParams` with the attributes cloudy_version,
hydrogen_density and reference_abundance.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY
from rubix_like.importers.stellar_spectra import (
    FSPS_CITATION,
    MIST_SOLAR_METALLICITY,
    check_light_unit,
    measured_medium,
    node_spacing,
    per_angstrom,
    shows_lines,
)
from rubix_like.nebular.table_file import NebularTable, assembled, matched_lines
from rubix_like.physics import air
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_hdf5, plain_attribute, stored_unit
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.ssp.library_file import SSPTable

AGE_AXES = ("ages", "age", "log10ages", "log10age")
METAL_AXES = ("metallicities", "metallicity", "log10metallicities", "log10metallicity")
STELLAR_LIGHT = ("incident", "stellar")
BRIGHTEST = 1e30
"""Lsun/Angstrom/Msun that nothing reaches."""

POPULATIONS: Mapping[str, tuple[str, float]] = {
    "bpass": ("BPASS: Eldridge et al. 2017, PASA 34, e058; Stanway & Eldridge 2018, MNRAS 479, 75", 0.02),
    "bc03": ("Bruzual & Charlot 2003, MNRAS 344, 1000", 0.02),
    "fsps": (f"FSPS: {FSPS_CITATION}", MIST_SOLAR_METALLICITY),
    "maraston": ("Maraston 2005, MNRAS 362, 799; Maraston & Stromback 2011, MNRAS 418, 2785", 0.02),
}
"""Beginning of sps_name -> citation of the model, and the metal mass fraction that it calls solar."""

MODEL = ("sps_name", "sps_version", "sps_variant", "imf_type", "imf_masses", "imf_slopes")
"""Attributes of the group `Model` that are read."""

_CITATION = "Synthesizer: Lovell et al. 2025, Open Journal of Astrophysics; Roper et al. 2026, arXiv:2506.15811"
_LICENCE = "not stated in the file; see the authors of the models"


def _axes_of(file: Any) -> list[str]:
    return [str(plain_attribute(name)) for name in np.atleast_1d(file.attrs["axes"])]


def _name_of(path: Path) -> str:
    return re.sub(r"[^\w.-]", "-", path.stem)


def read_synthesizer(path: Path) -> SSPTable:
    """The stellar light of a grid with the axes age and metallicity, per Angstrom.

    L_lambda = L_nu c / lambda^2. Of two rows of one age (BC03's age 0 is set to its first age) the second is taken.
    Raises ValueError for a file that is damaged, lacks a unit or has another axis.
    """
    with open_source_hdf5(path) as file:
        given = file["Model"].attrs if "Model" in file else {}
        model = {key: plain_attribute(given[key]) for key in MODEL if key in given}
        log_age, metallicity = _nodes(path, file)
        wavelength, light = _light(path, file, (len(log_age), len(metallicity)))
        surviving = _surviving(path, file, light.shape[:2])
    spectra = light.transpose(1, 0, 2)
    check_light_unit(path.name, wavelength, log_age, metallicity, spectra)
    medium, medium_source = "vacuum", "medium not stated and the sampling too coarse to measure it, vacuum assumed"
    if shows_lines(wavelength).any():
        medium, offset = measured_medium(path.name, wavelength, log_age, metallicity, spectra)
        medium_source = f"medium not stated, {medium} measured (the Balmer lines stand {offset:+.0f} km/s from it)"
    name = str(model.get("sps_name") or path.stem)
    words = " ".join([name, *(str(model[key]) for key in ("sps_version", "sps_variant") if model.get(key))])
    known = [POPULATIONS[begin] for begin in POPULATIONS if name.lower().startswith(begin)]
    citation, solar = known[0] if known else ("not known for this model", 0.02)
    imf = str(model.get("imf_type") or "not stated in the file")
    masses = "-".join(f"{mass:g}" for mass in np.atleast_1d(model.get("imf_masses", [])) if mass)
    slopes = ", ".join(f"{slope:g}" for slope in np.atleast_1d(model.get("imf_slopes", [])) if slope)
    last = np.append(np.diff(log_age) != 0.0, True)
    return SSPTable(
        name=_name_of(path),
        medium=medium,
        imf=imf + (f", {masses} Msun" if masses else "") + (f", slopes {slopes}" if slopes else ""),
        solar_metallicity=solar,
        citation=f"{citation}; {_CITATION}",
        licence=_LICENCE,
        source=f"grid of Synthesizer, {path.name}: {words}; stellar light; {medium_source}; "
        f"resolution not stated, the sampling is taken; solar metallicity {solar:g} by convention of the model",
        spectra=spectra[:, last],
        log_age=log_age[last],
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=node_spacing(wavelength),
        surviving_fraction=None if surviving is None else surviving[:, last],
    )


def _nodes(path: Path, file: Any) -> tuple[Float[ndarray, " age"], Float[ndarray, " metal"]]:
    """log10(age / yr) and metal mass fractions."""
    names = _axes_of(file)
    if len(names) != 2 or names[0] not in AGE_AXES or names[1] not in METAL_AXES:
        raise ValueError(
            f"{path}: axes: expected an age ({', '.join(AGE_AXES)}) and a metallicity ({', '.join(METAL_AXES)}), got "
            f"{', '.join(names)}; reduce the grid to these two"
        )
    age, metal = (np.asarray(file["axes"][name], dtype=np.float64) for name in names)
    if not names[0].startswith("log10"):
        age = age * stored_unit(path, file[f"axes/{names[0]}"], units.yr)
        if not np.all(age > 0):
            raise ValueError(f"{path}: axes/{names[0]}: expected ages beyond 0, got {age.min():g} yr")
        age = np.log10(age)
    if names[1].startswith("log10"):
        metal = 10.0**metal
    if not (np.all((age > 0) & (age < 12)) and np.all((metal > 0) & (metal < 0.2))):
        raise ValueError(
            f"{path}: axes: expected log10(age/yr) of 0-12 and metal fractions of 0-0.2, got {age}, {metal}"
        )
    return age, metal


def _light(
    path: Path, file: Any, shape: tuple[int, int]
) -> tuple[Float[ndarray, " rest"], Float[ndarray, "age metal rest"]]:
    """Wavelengths in Angstrom, increasing, and Lsun/Angstrom/Msun."""
    spectra = file["spectra"]
    kind = next((name for name in STELLAR_LIGHT if name in spectra), None)
    if kind is None:
        raise ValueError(
            f"{path}: spectra: expected '{STELLAR_LIGHT[0]}', the stars' own light, got {', '.join(spectra)}"
        )
    wavelength = np.asarray(spectra["wavelength"], dtype=np.float64)
    wavelength = wavelength * stored_unit(path, spectra["wavelength"], units.Angstrom)
    luminosity = np.asarray(spectra[kind], dtype=np.float64)
    if luminosity.shape != (*shape, len(wavelength)):
        raise ValueError(f"{path}: spectra/{kind}: expected shape {(*shape, len(wavelength))}, got {luminosity.shape}")
    weight = str(plain_attribute(file.attrs.get("WeightVariable", "initial_masses")))
    if weight != "initial_masses":
        raise ValueError(f"{path}: WeightVariable: expected initial_masses, got {weight}: not light per mass of stars")
    per_hertz = stored_unit(path, spectra[kind], units.erg / units.s / units.Hz)
    order = np.argsort(wavelength)
    wavelength = wavelength[order]
    with np.errstate(all="ignore"):
        light = per_angstrom(luminosity[..., order] * (per_hertz / SOLAR_LUMINOSITY), wavelength)
    if not (np.all(wavelength > 0) and np.all(np.abs(light) < BRIGHTEST)):
        raise ValueError(f"{path}: spectra/{kind}: expected finite light at positive wavelengths, got other values")
    return wavelength, light


def _surviving(path: Path, file: Any, shape: tuple[int, ...]) -> Float[ndarray, "metal age"] | None:
    """Mass in stars and remnants; None where the grid does not have both."""
    if "star_fraction" not in file or "remnant_fraction" not in file:
        return None
    fractions = [np.asarray(file[name], dtype=np.float64) for name in ("star_fraction", "remnant_fraction")]
    if any(fraction.shape != shape for fraction in fractions):
        shapes = ", ".join(str(fraction.shape) for fraction in fractions)
        raise ValueError(f"{path}: star_fraction, remnant_fraction: expected the shape {shape}, got {shapes}")
    total = (fractions[0] + fractions[1]).T
    if not (np.all(total > 0) and np.all(total <= 1.01)):
        raise ValueError(
            f"{path}: star_fraction + remnant_fraction: expected 0 to 1, got {total.min():g}-{total.max():g}"
        )
    return np.minimum(total, 1.0)


LINE_AXES = ("ages", "metallicities", "ionisation_parameters")

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


def read_synthesizer_lines(path: Path) -> NebularTable:
    """The lines of a grid per ionising photon; those whose id names no line of our list are left out.

    Raises ValueError for a file that is damaged, has other axes or another unit.
    """
    with open_source_hdf5(path) as file:
        names = _axes_of(file)
        if sorted(names) != sorted(LINE_AXES):
            raise ValueError(
                f"{path}: axes: expected {', '.join(LINE_AXES)}, got {', '.join(names)}; reduce the grid to them"
            )
        age, metallicity, ionisation = (np.asarray(file[f"axes/{name}"], dtype=np.float64) for name in LINE_AXES)
        age = age * stored_unit(path, file["axes/ages"], units.yr)
        order = [names.index(name) for name in LINE_AXES]
        erg = stored_unit(path, file["lines/luminosity"], units.erg / units.s)
        light = np.asarray(file["lines/luminosity"], dtype=np.float64).transpose(*order, 3) * erg
        photons = 10.0 ** np.asarray(file["log10_specific_ionising_luminosity/HI"], dtype=np.float64)
        ids = [str(plain_attribute(id_)) for id_ in np.asarray(file["lines/id"])]
        parameters: Any = file["CloudyParams"].attrs if "CloudyParams" in file else {}
        cloudy = {key: plain_attribute(value) for key, value in parameters.items()}
    if photons.ndim == 2:  # the same at every ionisation parameter
        photons = (photons if order[0] < order[1] else photons.T)[:, :, None]
    else:
        photons = photons.transpose(order)
    lines = {name: light[..., place] / photons for name, place in _named(path, ids).items()}
    lacking = {"Hb", "Brg", "[O III] 5007"} - set(lines)
    if lacking:
        raise ValueError(f"{path}: lines/id: expected also {', '.join(sorted(lacking))}, got none")
    density = float(cloudy.get("hydrogen_density", USUAL_DENSITY))
    abundance = str(cloudy.get("reference_abundance"))
    abundance = abundance if abundance in SOLAR else USUAL_ABUNDANCE
    solar_oxygen, solar_metallicity = SOLAR[abundance]
    oxygen = solar_oxygen + np.log10(metallicity / solar_metallicity)
    return assembled(
        lines,
        np.full(lines["Hb"].shape, density),
        {"log_age": np.log10(age), "oxygen_abundance": oxygen, "log_u": np.log10(ionisation)},
        name=_name_of(path),
        citation=f"of the models: see the file; {_CITATION}",
        licence=_LICENCE,
        source=f"grid of Synthesizer, {path.name}, Cloudy {cloudy.get('cloudy_version', '(version not stated)')}, "
        f"{density:g} atoms per cm^3, O/H of {abundance}",
        solar_oxygen=solar_oxygen,
        solar_metallicity=solar_metallicity,
    )


def _named(path: Path, ids: list[str]) -> dict[str, int]:
    """Line -> place of its id; Cloudy's ids are in air or all in vacuum, which Ha tells."""
    places, ions, wavelengths = [], [], []
    for place, id_ in enumerate(ids):
        found = _ID.fullmatch(id_.strip())
        if found and 0 < int(found[2]) <= len(_ROMAN):
            places.append(place)
            ions.append(f"{found[1]} {_ROMAN[int(found[2]) - 1]}")
            wavelengths.append(float(found[3]) * (1e4 if found[4] == "m" else 1.0))
    wavelength = np.array(wavelengths)
    for vacuum in (air.to_vacuum(wavelength), wavelength):
        lines = matched_lines(vacuum, ions)
        if "Ha" in lines:
            return {name: places[place] for name, place in lines.items()}
    raise ValueError(f"{path}: lines/id: expected 'H 1 6562.80A' (air) or 'H 1 6564.62A' (vacuum), got neither")


def _has(path: Path, members: Collection[str], groups: Collection[str] = ()) -> bool:
    """Whether a file is a grid with these members and groups."""
    try:
        with opened_hdf5(path, whole=False) as file:
            are_groups = all(isinstance(file.get(name), h5py.Group) for name in groups)
            return "axes" in file.attrs and are_groups and all(member in file for member in members)
    except UNREADABLE:
        return False


SPECTRA_HDF5 = SourceFormat(lambda path: _has(path, (), groups=("axes", "spectra")), read_synthesizer)
LINES_HDF5 = SourceFormat(lambda path: _has(path, ("lines/luminosity", "lines/id")), read_synthesizer_lines)

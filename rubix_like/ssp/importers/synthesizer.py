"""Grids of Synthesizer (Lovell et al. 2025, Open Journal of Astrophysics), as its program syncretize writes them: HDF5.

Root attribute `axes`: names of the axes, in the order of the spectra; group `axes`: ages (`ages` in a unit of time, or
`log10ages` / `log10age` of older versions) and metal mass fractions (`metallicities`, `metallicity` or their log10);
`spectra/wavelength`; `spectra/incident` (older: `spectra/stellar`), (age, metal, rest) in erg/s/Hz per Msun at birth.
Optionally `star_fraction` and `remnant_fraction` (age, metal), and the attributes of the group `Model`: sps_name,
sps_version, sps_variant, imf_type, imf_masses, imf_slopes.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.constants import SOLAR_LUMINOSITY
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.foreign_layouts import SourceFormat, open_source_hdf5, plain_attribute, stored_unit
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.ssp.formats import FSPS_CITATION, MIST_SOLAR_METALLICITY, node_spacing, per_angstrom
from rubix_like.ssp.library_file import SSPTable
from rubix_like.ssp.measured import check_light_unit, measured_medium, shows_lines

AGE_AXES = ("ages", "age", "log10ages", "log10age")
METAL_AXES = ("metallicities", "metallicity", "log10metallicities", "log10metallicity")
STELLAR_LIGHT = ("incident", "stellar")
MODEL = ("sps_name", "sps_version", "sps_variant", "imf_type", "imf_masses", "imf_slopes")
BRIGHTEST = 1e30
"""Lsun/Angstrom/Msun that nothing reaches."""


@dataclass(frozen=True)
class PopulationModel:
    """What is known of a population model: its citation, and the metal mass fraction that it calls solar."""

    citation: str
    solar_metallicity: float


POPULATIONS: dict[str, PopulationModel] = {
    "bpass": PopulationModel(
        "BPASS: Eldridge et al. 2017, PASA 34, e058; Stanway & Eldridge 2018, MNRAS 479, 75", 0.02
    ),
    "bc03": PopulationModel("Bruzual & Charlot 2003, MNRAS 344, 1000", 0.02),
    "fsps": PopulationModel(f"FSPS: {FSPS_CITATION}", MIST_SOLAR_METALLICITY),
    "maraston": PopulationModel("Maraston 2005, MNRAS 362, 799; Maraston & Stromback 2011, MNRAS 418, 2785", 0.02),
}
"""Models by the beginning of sps_name."""


def read_synthesizer(path: Path) -> SSPTable:
    """The stellar light of a grid with the axes age and metallicity, per Angstrom.

    L_lambda = L_nu c / lambda^2. Of two rows of one age (BC03's age 0 is set to its first age) the second is taken.
    Raises ValueError for a file that is damaged, lacks a unit or has another axis.
    """
    with open_source_hdf5(path) as file:
        given = file["Model"].attrs if "Model" in file else {}
        model = {key: plain_attribute(given[key]) for key in MODEL if key in given}
        log_age, metallicity = _axes(path, file)
        wavelength, light = _light(path, file, (len(log_age), len(metallicity)))
        surviving = _surviving(path, file, light.shape[:2])
    spectra = light.transpose(1, 0, 2)
    check_light_unit(path.name, wavelength, log_age, metallicity, spectra)
    medium, medium_source = _medium(path, wavelength, log_age, metallicity, spectra)
    name = str(model.get("sps_name") or path.stem)
    words = " ".join([name, *(str(model[key]) for key in ("sps_version", "sps_variant") if model.get(key))])
    last = np.append(np.diff(log_age) != 0.0, True)
    population = next((value for key, value in POPULATIONS.items() if name.lower().startswith(key)), None)
    solar = 0.02 if population is None else population.solar_metallicity
    kind = str(model.get("imf_type") or "not stated in the file")
    masses = "-".join(f"{mass:g}" for mass in np.atleast_1d(model.get("imf_masses", [])) if mass)
    slopes = ", ".join(f"{slope:g}" for slope in np.atleast_1d(model.get("imf_slopes", [])) if slope)
    return SSPTable(
        name=re.sub(r"[^\w.-]", "-", path.stem),
        medium=medium,
        imf=kind + (f", {masses} Msun" if masses else "") + (f", slopes {slopes}" if slopes else ""),
        solar_metallicity=solar,
        citation=("not known for this model" if population is None else population.citation)
        + "; Synthesizer: Lovell et al. 2025, Open Journal of Astrophysics; Roper et al. 2026, arXiv:2506.15811",
        licence="not stated in the file; see the authors of the models",
        source=f"grid of Synthesizer, {path.name}: {words}; stellar light; {medium_source}; "
        f"resolution not stated, the sampling is taken; solar metallicity {solar:g} by convention of the model",
        spectra=spectra[:, last],
        log_age=log_age[last],
        metallicity=metallicity,
        rest_wavelength=wavelength,
        fwhm=node_spacing(wavelength),
        surviving_fraction=None if surviving is None else surviving[:, last],
    )


def _axes(path: Path, file: Any) -> tuple[Float[ndarray, " age"], Float[ndarray, " metal"]]:
    """log10(age / yr) and metal mass fractions."""
    names = [str(plain_attribute(name)) for name in np.atleast_1d(file.attrs["axes"])]
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


def _medium(
    path: Path, wavelength: ndarray, log_age: ndarray, metallicity: ndarray, spectra: ndarray
) -> tuple[str, str]:
    """The medium, and how it is known: no grid states it."""
    if not shows_lines(wavelength).any():
        return "vacuum", "medium not stated and the sampling too coarse to measure it, vacuum assumed"
    medium, offset = measured_medium(path.name, wavelength, log_age, metallicity, spectra)
    return medium, f"medium not stated, {medium} measured (the Balmer lines stand {offset:+.0f} km/s from it)"


def _is_synthesizer(path: Path) -> bool:
    try:
        with opened_hdf5(path, whole=False) as file:
            groups = all(isinstance(file.get(name), h5py.Group) for name in ("axes", "spectra"))
            return groups and "axes" in file.attrs
    except UNREADABLE:
        return False


SYNTHESIZER_HDF5 = SourceFormat(_is_synthesizer, read_synthesizer)

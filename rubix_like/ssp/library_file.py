"""The package's SSP file: one compact HDF5 with every unit and convention stated in it.

Attributes: format, format_version, name, medium ("air" or "vacuum"), flux_unit, age_unit, imf, solar_metallicity,
citation, licence, source, sha256. Datasets: spectra (metal, age, rest) float32, gzip with shuffle; log_age (age,);
metallicity (metal,) mass fraction; rest_wavelength (rest,) Angstrom in `medium`; fwhm (rest,) Angstrom; optionally
surviving_fraction (metal, age): mass in stars and remnants now over mass at birth.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from rubix_like.arguments import expect_fields, named_arguments
from rubix_like.galaxy.limits import require
from rubix_like.physics.air import Medium
from rubix_like.physics.units import plain_fields
from rubix_like.runtime.files.array_files import ArrayFileLayout
from rubix_like.runtime.files.writers import LIBRARY

FLUX_UNIT = "Lsun/Angstrom/Msun"
AGE_UNIT = "log10(yr)"
MEDIA = get_args(Medium)

_ARRAYS = ("spectra", "log_age", "metallicity", "rest_wavelength", "fwhm")
UNITS = {"spectra": "Lsun / (Angstrom Msun)", "rest_wavelength": "Angstrom", "fwhm": "Angstrom"}
UNITS |= dict.fromkeys(("log_age", "metallicity", "surviving_fraction"), "")
_TEXTS = ("name", "medium", "imf", "citation", "licence", "source")

LAYOUT = ArrayFileLayout(
    noun="SSP library",
    article="an",
    command="rubix-like ssp",
    format=LIBRARY,
    version=1,
    texts=_TEXTS,
    numbers=("solar_metallicity",),
    units={"flux_unit": FLUX_UNIT, "age_unit": AGE_UNIT},
    arrays=_ARRAYS,
    others=("surviving_fraction",),
)
"""The layout of the file."""


LIMITS = {
    "metallicity": (0.0, 0.2, "(mass fraction)"),
    "solar_metallicity": (0.0, 0.2, "(mass fraction)"),
    "log_age": (3.0, 11.0, "(log10 of years)"),
    "rest_wavelength": (0.1, 1e12, "Angstrom"),
    "fwhm": (0.0, 1e12, "Angstrom"),
    "spectra": (-1e6, 1e6, "Lsun / Angstrom / Msun"),
    "surviving_fraction": (0.0, 1.0 + 1e-5, "(mass now over mass at birth)"),
}
"""Of any population of stars: the hottest give about 1 Lsun / Angstrom / Msun; some libraries ring about zero, and
surviving fractions are rounded to 32 bits."""


@dataclass(frozen=True)
class SSPTable:
    """A library as its file states it: wavelengths, spectra (per Angstrom) and fwhm are in `medium`.

    Shapes, order, finiteness and limits of the arrays, and the sign of the light, are checked when it is built
    (ValueError); shapes and units are those of the file.
    """

    name: str
    medium: str
    imf: str
    solar_metallicity: float
    citation: str
    licence: str
    source: str
    spectra: np.ndarray
    log_age: np.ndarray
    metallicity: np.ndarray
    rest_wavelength: np.ndarray
    fwhm: np.ndarray
    surviving_fraction: np.ndarray | None = None

    def __post_init__(self) -> None:
        vars(self).update(plain_fields(self, UNITS))
        expect_fields(self)
        if self.medium not in MEDIA:
            raise ValueError(f"{self.name}: medium: expected one of {MEDIA}, got '{self.medium}'")
        check_arrays(self.name, {name: getattr(self, name) for name in (*UNITS, "solar_metallicity")})


def check_arrays(name: str, arrays: dict[str, Any]) -> None:
    """Raise ValueError unless shapes agree, axes increase strictly, values are finite and within `LIMITS`, and no
    population's light is < 0."""
    axes = {axis: np.shape(arrays[axis]) for axis in ("metallicity", "log_age", "rest_wavelength")}
    for axis, shape in axes.items():
        if len(shape) != 1 or shape[0] < 2:
            raise ValueError(f"SSP library '{name}': {axis}: expected one axis of at least 2 values, got shape {shape}")
        if not np.all(np.diff(arrays[axis]) > 0):
            raise ValueError(f"SSP library '{name}': {axis}: expected strictly increasing values")
    n_metal, n_age, n_rest = (shape[0] for shape in axes.values())
    expected = {"spectra": (n_metal, n_age, n_rest), "fwhm": (n_rest,), "surviving_fraction": (n_metal, n_age)}
    for field, shape in expected.items():
        if arrays[field] is not None and np.shape(arrays[field]) != shape:
            raise ValueError(f"SSP library '{name}': {field}: expected shape {shape}, got {np.shape(arrays[field])}")
    for field, value in arrays.items():
        if value is not None and not np.all(np.isfinite(value)):
            raise ValueError(f"SSP library '{name}': {field}: expected finite values, got NaN or infinity")
    for field, (low, high, unit) in LIMITS.items():
        values = np.asarray(low if arrays[field] is None else arrays[field])
        if values.min() < low or values.max() > high:
            raise ValueError(
                f"SSP library '{name}': {field}: expected values from {low:g} to {high:g} {unit}, got "
                f"{values.min():g} to {values.max():g}; the numbers are damaged or their unit is another"
            )
    spectra = np.asarray(arrays["spectra"])
    light = spectra @ np.gradient(arrays["rest_wavelength"]).astype(np.result_type(spectra, np.float32))
    remedy = "libraries ring about 0, but none takes light away: the sign is wrong, or the file is damaged"
    require(light >= 0, light, f"SSP library '{name}': spectra", "light >= 0 of each (metallicity, age)", remedy)


@named_arguments
def write_table(table: SSPTable, path: Path, compression: int = 4, *, overwrite: bool = True) -> None:
    """Write `table` to `path` in one step, with gzip's level `compression`; errors as of `ArrayFileLayout.write`."""
    attributes = {name: getattr(table, name) for name in (*LAYOUT.texts, *LAYOUT.numbers)}
    stored = {name: np.ascontiguousarray(getattr(table, name), dtype="<f8") for name in _ARRAYS}
    stored["spectra"] = np.ascontiguousarray(table.spectra, dtype="<f4")
    if table.surviving_fraction is not None:
        stored["surviving_fraction"] = np.ascontiguousarray(table.surviving_fraction, dtype="<f4")
    LAYOUT.write(Path(path), attributes, stored, compression, overwrite=overwrite)


@named_arguments
def read_table(path: Path) -> SSPTable:
    """Read and verify a file written by `write_table`; errors as of `ArrayFileLayout.read`."""
    return LAYOUT.read(Path(path), lambda attributes, arrays: SSPTable(**attributes, **arrays))

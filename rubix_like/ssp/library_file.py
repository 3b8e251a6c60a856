"""The package's own SSP file: one compact HDF5 with every unit and convention stated in it.

Attributes: format, format_version, name, medium ("air" or "vacuum"), flux_unit, age_unit, imf, solar_metallicity,
citation, licence, source, sha256. Datasets: spectra (metal, age, rest) float32, gzip with shuffle; log_age (age,);
metallicity (metal,) mass fraction; rest_wavelength (rest,) Angstrom in `medium`; fwhm (rest,) Angstrom; optionally
surviving_fraction (metal, age), stars and remnants. `sha256` is taken over the arrays, so that a damaged file is found
on reading.
"""

import hashlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import explained, replacing
from rubix_like.runtime.files.writers import LIBRARY

FORMAT_VERSION = 1
FLUX_UNIT = "Lsun/Angstrom/Msun"
AGE_UNIT = "log10(yr)"
MEDIA = ("air", "vacuum")

_ARRAYS = ("spectra", "log_age", "metallicity", "rest_wavelength", "fwhm")
_KNOWN_ARRAYS = (*_ARRAYS, "surviving_fraction")
_TEXTS = ("name", "medium", "imf", "citation", "licence", "source")


@dataclass(frozen=True)
class SSPTable:
    """A library as its file states it: wavelengths, spectra (per Angstrom) and fwhm are in `medium`.

    Shapes and order of the arrays are checked when it is built (ValueError); shapes and units are those of the file.
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
        if self.medium not in MEDIA:
            raise ValueError(f"{self.name}: medium: expected one of {MEDIA}, got '{self.medium}'")
        check_arrays(self.name, {name: getattr(self, name) for name in _KNOWN_ARRAYS})


def check_arrays(name: str, arrays: dict[str, Any]) -> None:
    """Raise ValueError unless the shapes agree, the axes increase strictly and every value is finite."""
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


def write_table(table: SSPTable, path: Path, compression: int = 4) -> None:
    """Write `table` to `path` in one step: a run that is interrupted leaves either the old file or none.

    `compression` is gzip's level. The file is built in memory, since the HDF5 library may crash when the disk is
    full. Raises OSError when the folder cannot be written or the disk is full.
    """
    image = _file_image(table, compression)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(image)


def _file_image(table: SSPTable, compression: int) -> bytes:
    arrays = _stored_arrays(table)
    with h5py.File(table.name, "w", driver="core", backing_store=False) as file:
        file.attrs["format"] = LIBRARY
        file.attrs["format_version"] = FORMAT_VERSION
        file.attrs["flux_unit"] = FLUX_UNIT
        file.attrs["age_unit"] = AGE_UNIT
        file.attrs["solar_metallicity"] = table.solar_metallicity
        file.attrs["sha256"] = _checksum(arrays)
        for name in _TEXTS:
            file.attrs[name] = getattr(table, name)
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip", compression_opts=compression, shuffle=True)
        file.flush()
        return file.id.get_file_image()


def read_table(path: Path) -> SSPTable:
    """Read and verify a file written by `write_table`.

    Raises FileNotFoundError without a file and ValueError when it is not HDF5, not in this layout, of a newer
    version, lacks something, states a unit that is not ours or is damaged.
    """
    if not path.is_file():
        raise FileNotFoundError(f"SSP library: no such file: {path}")
    if not is_ours(path):
        raise ValueError(
            f"{path}: expected an SSP library in rubix_like's HDF5 layout; "
            f"to convert a library of another layout: rubix-like ssp import {path}"
        )
    try:
        with opened_hdf5(path) as file:
            _check_header(path, file)
            arrays: dict[str, Any] = {name: np.asarray(file[name]) for name in file if name in _KNOWN_ARRAYS}
            header: dict[str, Any] = dict(file.attrs)
            if _checksum(arrays) != header["sha256"]:
                raise ValueError(_damaged(path))
            texts: dict[str, Any] = {name: str(header[name]) for name in _TEXTS}
            return SSPTable(solar_metallicity=float(header["solar_metallicity"]), **texts, **arrays)
    except ValueError:
        raise
    except UNREADABLE as error:
        raise ValueError(_damaged(path)) from error


def is_ours(path: Path) -> bool:
    """Whether `path` is an HDF5 file that says it is in the layout of this module."""
    if not h5py.is_hdf5(path):
        return False
    try:
        with opened_hdf5(path, whole=False) as file:
            return file.attrs.get("format") == LIBRARY
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: the HDF5 file is damaged or incomplete ({error}); fetch or import it again from its source"
        ) from error


def _check_header(path: Path, file: h5py.File) -> None:
    version = file.attrs.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(f"{path}: expected format version {FORMAT_VERSION}, got {version}: update rubix_like")
    for name in (*_TEXTS, "flux_unit", "age_unit", "solar_metallicity", "sha256"):
        if name not in file.attrs:
            raise ValueError(f"{path}: the attribute '{name}' is missing; import the library again from its source")
    for name in _ARRAYS:
        if not isinstance(file.get(name), h5py.Dataset):
            raise ValueError(f"{path}: the dataset '{name}' is missing; import the library again from its source")
    for name, expected in (("flux_unit", FLUX_UNIT), ("age_unit", AGE_UNIT)):
        if file.attrs[name] != expected:
            raise ValueError(f"{path}: {name}: expected '{expected}', got '{file.attrs[name]}'; convert the file")


def _stored_arrays(table: SSPTable) -> dict[str, np.ndarray]:
    arrays = {field.name: getattr(table, field.name) for field in fields(table)}
    stored = {name: np.ascontiguousarray(arrays[name], dtype="<f8") for name in _ARRAYS}
    with np.errstate(over="ignore"):
        stored["spectra"] = np.ascontiguousarray(table.spectra, dtype="<f4")
    if not np.all(np.isfinite(stored["spectra"])):
        raise ValueError(f"SSP library '{table.name}': spectra: expected values below 3.4e38, got more")
    if table.surviving_fraction is not None:
        stored["surviving_fraction"] = np.ascontiguousarray(table.surviving_fraction, dtype="<f4")
    return stored


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _damaged(path: Path) -> str:
    return (
        f"{path}: the file is damaged (its content does not match its checksum); "
        f"delete it and fetch or import it again (rubix-like ssp get {path.stem})"
    )

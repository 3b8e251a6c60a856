"""Files of arrays that the program writes for itself: one HDF5 with named arrays, attributes and a checksum over all.

`sha256` is taken over the arrays, so that a damaged file is found on reading.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np

from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import UNREADABLE
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.files.outputs import explained, output_bytes, replacing
from rubix_like.runtime.files.writers import OPENED_BY, written_by_us

Made = TypeVar("Made")


@dataclass(frozen=True)
class ArrayFileLayout:
    """What is in a kind of file: `format` and `version` are attributes that mark it, `texts`, `numbers` and `units`
    (with their values) attributes and `arrays` datasets that it must have; `others` are patterns of datasets that it
    may have.

    `noun` names the contents in messages ("SSP library"), with `article`; `command` is the command that gets and
    imports them ("rubix-like ssp").
    """

    noun: str
    article: str
    command: str
    format: str
    version: int
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    units: Mapping[str, str]
    arrays: tuple[str, ...]
    others: tuple[str, ...]

    def write(
        self,
        path: Path,
        attributes: Mapping[str, str | float],
        arrays: Mapping[str, np.ndarray],
        compression: int = 4,
        *,
        overwrite: bool = True,
    ) -> None:
        """Write a file in one step: a run that is interrupted leaves either the old file or none.

        `compression` is gzip's level, 0 to 9. The file is built in memory, since the HDF5 library may crash when the
        disk is full. Raises OSError when the folder cannot be written or the disk is full, and ConfigError for another
        level and where `overwrite` is False and there is a file of other arrays.
        """
        if not overwrite and output_bytes(path) and self._is_other(path, arrays):
            came = f"another {self.noun}" if self.is_one(path) else f"a file that is no {self.noun}"
            raise ConfigError(
                f"{path}: expected no file, or one of the same arrays, got {came}; to replace it give overwrite=True, "
                f"to keep it another name (name=...) for an import, else another path"
            )
        if not 0 <= compression <= 9:
            raise ConfigError(f"compression: expected a level of gzip, 0 to 9, got {compression}")
        with h5py.File(str(attributes["name"]), "w", driver="core", backing_store=False) as file:
            stated = {"format": self.format, "format_version": self.version, **self.units, **attributes}
            for name, value in {**stated, "sha256": _checksum(arrays)}.items():
                file.attrs[name] = value
            for name, array in arrays.items():
                file.create_dataset(name, data=array, compression="gzip", compression_opts=compression, shuffle=True)
            file.flush()
            image = file.id.get_file_image()
        with explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            temporary.write_bytes(image)

    def read(self, path: Path, make: Callable[[dict[str, Any], dict[str, Any]], Made]) -> Made:
        """The contents that `make` makes of the attributes (`texts` as str, `numbers` as float) and arrays of a file.

        The file is one that `write` wrote. Raises FileNotFoundError without a file and ValueError when it is not HDF5,
        not in this layout, of a newer version, lacks something, states another unit or is damaged.
        """
        if not path.is_file():
            raise FileNotFoundError(f"{self.noun}: no such file: {path}")
        if not self.is_one(path):
            written = written_by_us(path)
            if written is not None:
                raise ValueError(
                    f"{path}: expected {self.article} {self.noun}, got {OPENED_BY[written.kind][0]} that rubix-like "
                    f"wrote; give one of those that `{self.command} list` names, or the path of another file"
                )
            raise ValueError(
                f"{path}: expected {self.article} {self.noun} in rubix_like's HDF5 layout; "
                f"to convert one of another layout: {self.command} import {path}"
            )
        try:
            with opened_hdf5(path) as file:
                self._check_header(path, file)
                arrays: dict[str, Any] = {
                    name: np.asarray(file[name])
                    for name in map(str, file)
                    if (name in self.arrays or any(fnmatch(name, pattern) for pattern in self.others))
                }
                header: dict[str, Any] = dict(file.attrs)
            attributes: dict[str, Any] = {name: str(header[name]) for name in self.texts}
            attributes |= {name: float(header[name]) for name in self.numbers}  # no checksum holds these
        except ValueError:
            raise
        except UNREADABLE as error:
            raise ValueError(self.damaged(path)) from error
        if _checksum(arrays) != header["sha256"]:
            raise ValueError(self.damaged(path))
        return make(attributes, arrays)

    def _is_other(self, path: Path, arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether a file is none of arrays, or holds others; a damaged one counts as what it was to be."""
        if not h5py.is_hdf5(path):
            return True
        try:
            with opened_hdf5(path, whole=False) as file:
                return file.attrs.get("sha256") != _checksum(arrays)
        except UNREADABLE:
            return False

    def is_one(self, path: Path) -> bool:
        """Whether `path` is an HDF5 file that says it is in this layout."""
        if not h5py.is_hdf5(path):
            return False
        try:
            with opened_hdf5(path, whole=False) as file:
                return str(file.attrs.get("format")) == self.format
        except UNREADABLE as error:
            raise ValueError(
                f"{path}: the HDF5 file is damaged or incomplete ({error}); fetch or import it again from its source"
            ) from error

    def damaged(self, path: Path) -> str:
        """The sentence for a file whose content is not what was written."""
        return (
            f"{path}: the file is damaged (its content does not match its checksum); "
            f"delete it and fetch or import it again ({self.command} get {path.stem})"
        )

    def _check_header(self, path: Path, file: h5py.File) -> None:
        again = f"import the {self.noun.split()[-1]} again from its source"
        version: Any = file.attrs.get("format_version")
        if not np.ndim(version) and version != self.version:
            raise ValueError(f"{path}: expected format version {self.version}, got {version}: update rubix_like")
        for name in (*self.texts, *self.units, *self.numbers, "format_version", "sha256"):
            value: Any = file.attrs.get(name)
            if value is None:
                raise ValueError(f"{path}: the attribute '{name}' is missing; {again}")
            if np.ndim(value):
                raise ValueError(f"{path}: the attribute '{name}': expected one value, got {np.size(value)}; {again}")
        for name in self.arrays:
            if not isinstance(file.get(name), h5py.Dataset):
                raise ValueError(f"{path}: the dataset '{name}' is missing; {again}")
        for name, expected in self.units.items():
            if file.attrs[name] != expected:
                raise ValueError(f"{path}: {name}: expected '{expected}', got '{file.attrs[name]}'; convert the file")


def _checksum(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.data)
    return digest.hexdigest()

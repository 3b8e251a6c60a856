"""Files in the layouts of other programs: which layout a file has, and reading it with one clear error."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from astropy import units
from astropy.utils.exceptions import AstropyWarning

from rubix_like.arguments import expect_fields, returned
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.damaged_files import DAMAGED, UNREADABLE
from rubix_like.runtime.files.fits_opening import opened_fits
from rubix_like.runtime.files.hdf5_files import opened_hdf5
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.words import reason_of


@dataclass(frozen=True)
class SourceFormat:
    """A layout: `recognises(path)` tells whether a file has it, `read(path)` gives its contents in ours.

    With `directory` the contents are a folder of files: both functions are then called with folders only.
    """

    recognises: Callable[[Path], bool]
    read: Callable[[Path], Any]
    directory: bool = False

    def __post_init__(self) -> None:
        expect_fields(self)


def read_foreign(path: Path, formats: Registry, kind: type, what: str, page: str) -> Any:
    """What the one layout among `formats` (of `SourceFormat`) that fits a file or folder reads from it.

    `kind` is the class of the contents; `what` names them, "an SSP library"; `page` is the one of the documentation
    that lists the layouts. Raises FileNotFoundError without the file, ConfigError when no layout or more than one fits
    or where a format reads something else, ValueError for a bad file.
    """
    if not (path.is_file() or path.is_dir()):
        raise FileNotFoundError(f"{what.split(maxsplit=1)[1]}: no such file or folder: {path}")
    name = _recognise(path, formats, what, page)
    read = formats.find(name).read
    try:
        found = read(path)
    except ValueError as error:
        if path.name in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error
    except UNREADABLE as error:
        raise ValueError(
            f"{path}: expected {what}, got one that cannot be read ({reason_of(error)}); {DAMAGED}"
        ) from error
    return returned(found, kind, f"{path}: {formats.kind} '{name}': `read`", f"an instance of {kind.__name__}")


def _recognise(path: Path, formats: Registry, what: str, page: str) -> str:
    known = {name: formats.find(name) for name in formats.names()}
    asked = {name: known[name] for name in known if known[name].directory == path.is_dir()}
    fitting = [name for name in asked if _has_layout(path, asked[name])]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(f"{path}: fits several layouts of {what}, {', '.join(fitting)}: expected one")
    kind = "folder" if path.is_dir() else "file"
    beside = [
        name for name in known if known[name].directory and path.is_file() and known[name].recognises(path.parent)
    ]
    hint = f"; its folder is one of {beside[0]}: give {path.parent}" if beside else ""
    raise ConfigError(
        f"{path}: not a known layout of {what}{hint}; known layouts of a {kind}: {', '.join(asked)} "
        f"({page} tells how each is recognised)"
    )


def _has_layout(path: Path, layout: SourceFormat) -> bool:
    """Whether a file has a layout; what cannot be told of a damaged one counts as no."""
    try:
        return layout.recognises(path)
    except ValueError:
        raise
    except UNREADABLE:
        return False


@contextmanager
def open_source_fits(path: Path) -> Iterator[Any]:
    """An open FITS file (`HDUList`); a truncated or damaged one is a ValueError."""
    with _whole(path, "FITS"), warnings.catch_warnings(), opened_fits(path) as file:
        warnings.simplefilter("error", AstropyWarning)
        yield file


@contextmanager
def open_source_hdf5(path: Path) -> Iterator[h5py.File]:
    """An open HDF5 file; a truncated or damaged one is a ValueError."""
    with _whole(path, "HDF5"), opened_hdf5(path) as file:
        yield file


@contextmanager
def _whole(path: Path, kind: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"{path}: the {kind} file is damaged or incomplete: {reason_of(error)}") from error


def fits_names(path: Path) -> list[str]:
    """Names of the HDUs of a FITS file; none where it is another file, or a damaged one."""
    try:
        with open_source_fits(path) as file:
            return [hdu.name for hdu in file]
    except ValueError:
        return []


def hdf5_names(path: Path) -> set[str]:
    """Names at the top of an HDF5 file; none where it is another file, or a damaged one."""
    if not h5py.is_hdf5(path):
        return set()
    try:
        with opened_hdf5(path, whole=False) as file:
            return set(file)
    except UNREADABLE:
        return set()


def stored_unit(path: Path, dataset: Any, unit: Any) -> float:
    """The unit of a dataset of HDF5 (attribute `Units`) in `unit`; raises ValueError for another kind."""
    text = str(plain_attribute(dataset.attrs.get("Units", "nothing")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", units.UnitsWarning)
            given: Any = units.Unit(text)
            return float(given.to(unit))
    except (ValueError, TypeError, units.UnitConversionError) as error:
        raise ValueError(f"{path}: {dataset.name}: Units: expected a unit like '{unit}', got '{text}'") from error


def plain_attribute(value: Any) -> Any:
    """An attribute as Python has it: numbers of numpy as Python's, bytes as text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value

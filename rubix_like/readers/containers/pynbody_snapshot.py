"""Snapshots that pynbody reads (tipsy of NIHAO and Gasoline, RAMSES ...), in physical units by pynbody's conversion.

pynbody is GPL-3: it is an optional extra, imported here only, when such a snapshot is opened.
"""

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from rubix_like.readers.containers.container import ColumnContainer, Columns
from rubix_like.runtime.optional_packages import import_optional

UNITS: dict[str, str] = {
    "pos": "kpc",
    "vel": "km s**-1",
    "mass": "Msol",
    "massform": "Msol",
    "age": "yr",
    "tform": "yr",
    "metals": "1",
    "smooth": "kpc",
    "rho": "Msol kpc**-3",
    "temp": "K",
    "u": "km**2 s**-2",
    "sfr": "Msol yr**-1",
    "OxMassFrac": "1",
}
"""pynbody's arrays that are read, and the unit (of pynbody) that they are converted to: physical, without a and h."""

DERIVED: dict[str, tuple[tuple[str, ...], ...]] = {
    "age": (("tform",), ("birth_time",)),
    "mass": (("rho", "smooth"),),
    "temp": (("rho", "p"),),
}
"""Arrays that pynbody computes, and the sets of stored arrays that it computes them from (one set is enough)."""

_NO_PARAMETERS = "No readable param file"

_TIPSY_BYTES = 32
_BYTES_PER_PARTICLE = (48, 36, 44)
"""Bytes of a gas, dark matter and star particle in tipsy files with single-precision positions."""


def _container(path: Path, snapshot: Any) -> ColumnContainer:
    """A snapshot as the groups Header, stars, gas and dark_matter, whose datasets are arrays of pynbody.

    pynbody reads an array of all particles at once: what is held is one column of the snapshot, not one slab of it.
    """
    families = {"stars": snapshot.star, "gas": snapshot.gas, "dark_matter": snapshot.dm}
    tables: dict[str, Columns | None] = {"Header": None}
    for group, family in families.items():
        if len(family):
            tables[group] = _columns(family, f"{path}: {group}", snapshot)
    return ColumnContainer(str(path), tables, {"Header": _header(snapshot)})


def _columns(family: Any, place: str, snapshot: Any) -> Columns:
    """The arrays of `UNITS` that are stored or that pynbody derives from stored ones, in these units."""
    stored = set(family.loadable_keys())
    derived = {name for name, ways in DERIVED.items() if any(stored.issuperset(way) for way in ways)}

    def read(name: str, start: int, stop: int) -> ndarray:
        with _warnings_that_matter():
            try:
                return np.array(_in_units(family[name][start:stop], UNITS[name], snapshot), dtype=np.float64)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                raise ValueError(
                    f"{place}/{name} cannot be read by pynbody ({text}); check the file with pynbody itself"
                ) from error

    def shape(name: str) -> tuple[int, ...]:
        return (len(family), 3) if name in {"pos", "vel"} else (len(family),)

    return Columns(tuple(name for name in UNITS if name in stored | derived), shape, read)


@contextmanager
def open_pynbody(path: Path) -> Iterator[ColumnContainer]:
    """Open a snapshot with pynbody; raises ConfigError where it is not installed, OSError where it cannot read it."""
    pynbody = import_optional("pynbody", f"galaxy.path: '{path}'")
    with _warnings_that_matter():
        try:
            snapshot = pynbody.load(str(path))
            container = _container(path, snapshot)
        except Exception as error:
            is_param = _NO_PARAMETERS in str(error)
            remedy = "put the run's .param file beside it" if is_param else "check the file with pynbody itself"
            raise OSError(
                f"galaxy.path: '{path}' cannot be read by pynbody ({type(error).__name__}: {error}); {remedy}"
            ) from error
    parameters = getattr(snapshot, "_paramfile", {})
    missing = [name for name in ("dMsolUnit", "dKpcUnit") if name not in parameters]
    if container.attribute("Header", "Code") == "Tipsy" and missing:
        raise OSError(
            f"galaxy.path: '{container.name}': expected {' and '.join(missing)} in the run's .param file, which state "
            f"the units of mass and length; add what is missing there"
        )
    yield container


def is_ramses(path: Path) -> bool:
    """Whether a folder is an output of RAMSES: output_00042 with info_00042.txt."""
    number = path.resolve().name.rpartition("_")[2]
    return path.is_dir() and number.isdigit() and (path / f"info_{number}.txt").is_file()


def is_tipsy(path: Path, head: bytes) -> bool:
    """Whether the counts in a tipsy header (either byte order, single precision) give the file's exact size."""
    for order in "<>":
        if len(head) < _TIPSY_BYTES:
            return False
        _, total, dimensions, *counts, _ = struct.unpack(f"{order}d6i", head[:_TIPSY_BYTES])
        bodies = sum(count * size for count, size in zip(counts, _BYTES_PER_PARTICLE, strict=True))
        if (
            dimensions == 3
            and min(counts) >= 0
            and total == sum(counts) > 0
            and path.stat().st_size == _TIPSY_BYTES + bodies
        ):
            return True
    return False


def _header(snapshot: Any) -> dict[str, Any]:
    """The epoch under the names of Gadget's header; lengths in physical kpc, the time of an isolated run in yr."""
    properties = snapshot.properties
    header: dict[str, Any] = {"Code": type(snapshot).__name__.removesuffix("Snap")}
    names = {"HubbleParam": "h", "Omega0": "omegaM0", "OmegaLambda": "omegaL0"}
    header |= {name: float(properties[key]) for name, key in names.items() if key in properties}
    expands = "a" in properties and bool(header.get("Omega0"))
    header["ComovingIntegrationOn"] = int(expands)
    if expands:
        header |= {"Time": float(properties["a"]), "Redshift": 1 / float(properties["a"]) - 1}
        if "boxsize" in properties:
            header["BoxSize"] = _in_units(properties["boxsize"], "kpc", snapshot)
    return header


def _in_units(value: Any, unit: str, snapshot: Any) -> Any:
    """An array or a unit of pynbody in another unit, as a bare number; an array without a unit is a pure number."""
    context = snapshot.conversion_context()
    if isinstance(value, np.ndarray):
        if unit == "1" and str(getattr(value, "units", "")) in {"NoUnit()", "", "1", "1.00e+00"}:
            return value
        return np.asarray(value.in_units(unit, **context))  # pyright: ignore[reportAttributeAccessIssue]
    return float(value.in_units(unit, **context))


@contextmanager
def _warnings_that_matter() -> Iterator[None]:
    """pynbody takes default units where the run's parameters are missing, with no more than a warning: refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=_NO_PARAMETERS)
        yield

"""What users and plug-in authors can name, one file per kind: `python tests/surface/collect.py` writes the files anew.

A line may only go when CHANGELOG.md names it; this script adds new ones. It needs zarr, for the file of that name.
"""

import argparse
import dataclasses
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import jax
from astropy.io import fits

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER.parent.parent), str(FOLDER)]

from write_files import unpacked  # noqa: E402

import rubix_like as rl  # noqa: E402
from rubix_like import extend  # noqa: E402
from rubix_like.cli.main import make_parser  # noqa: E402
from rubix_like.config import json_schema, plug_ins  # noqa: E402
from rubix_like.config.readers.components import SECTIONS  # noqa: E402
from rubix_like.inference.posterior.free_parameters import known_parameters  # noqa: E402
from rubix_like.inference.posterior.priors import MIXTURE, PRIORS  # noqa: E402
from rubix_like.nebular import FORMATS as NEBULAR_FORMATS  # noqa: E402
from rubix_like.nebular import SHELF as NEBULAR_TABLES  # noqa: E402
from rubix_like.physics.dust_curves import CURVES  # noqa: E402
from rubix_like.runtime.registry import Registry  # noqa: E402
from rubix_like.ssp import SHELF as LIBRARIES  # noqa: E402
from rubix_like.ssp.formats import FORMATS as SSP_FORMATS  # noqa: E402

Lines = Iterable[str]

RUN: dict[str, Any] = {
    "galaxy": {"reader": "synthetic", "n_stars": 64, "n_gas": 64},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": {
        "name": "muse",
        "fov": "0.6 arcsec",
        "psf": {"fwhm": "0.4 arcsec"},
        "lsf": {"fwhm": "25 Angstrom"},
        "wavelength": {"medium": "vacuum", "start": 6800, "stop": 7000, "step": 10},
    },
    "pipeline": "nebular",
    "dust": {"kind": "particles", "cells": 8, "foreground": {"a_v": 0.1}},
    "engine": {"method": "direct", "deposit": "nearest", "oversampling": 1, "velocity_range": 600},
    "noise": {"exposure": {"time": "1 h"}, "keep_truth": True},
    "products": {"losvd": {}, "gas": True, "dust": True, "lines": ["Ha"]},
    "devices": {"data": 1},
}
"""A run whose files have everything."""


def names_of(module: Any, title: str) -> Lines:
    """Public names; of functions and classes also what they are called with, of classes their members."""
    for name in module.__all__:
        yield f"{title}.{name}"
        value = getattr(module, name)
        if callable(value):
            yield from arguments_of(value, f"{title}.{name}")
        if inspect.isclass(value):
            yield from members_of(value, f"{title}.{name}")


def arguments_of(function: Callable[..., Any], place: str) -> Lines:
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    for name in signature.parameters:
        if name not in {"self", "cls"} and name[0] != "_":
            yield f"{place}({name})"


def members_of(kind: type, place: str) -> Lines:
    """Public attributes and methods that the package defines, fields of dataclasses and settings among them."""
    fields = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
    fields += list(getattr(kind, "model_fields", ()))
    defined = {
        name: value
        for base in kind.__mro__
        if base.__module__.startswith("rubix_like")
        for name, value in vars(base).items()
    }
    for name in sorted(name for name in {*fields, *defined} if name[0] != "_"):
        yield f"{place}.{name}"
        value = inspect.getattr_static(kind, name, None)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(value):
            yield from arguments_of(value, f"{place}.{name}")


def commands(parser: argparse.ArgumentParser, place: str) -> Lines:
    """Commands, their options and arguments, and what these can be."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield f"{place} {name}"
                yield from commands(below, f"{place} {name}")
            continue
        for word in action.option_strings or [action.dest]:
            yield f"{place} {word}"
        for choice in action.choices or ():
            yield f"{place} {action.dest} = {choice}"


def keys(schema: Mapping[str, Any], definitions: Mapping[str, Any], place: str, above: tuple[str, ...] = ()) -> Lines:
    """Dotted keys of a JSON schema, and the values among which one is chosen."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from keys(definitions[name], definitions, place, (*above, name))
    for choice in (*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())):
        yield f"{place} = {choice}"
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for below in schema.get(word, ()):
            yield from keys(below, definitions, place, above)
    named = schema.get("properties", {})
    kind = "".join(f"({key}={below['const']})" for key, below in named.items() if "const" in below)
    for key, below in named.items():
        path = f"{place}{kind}.{key}".lstrip(".")
        yield path
        yield from keys(below, definitions, path, above)
    for word, ending in (("items", "[]"), ("additionalProperties", ".NAME")):
        if isinstance(schema.get(word), Mapping):
            yield from keys(schema[word], definitions, f"{place}{ending}", above)


def registry_members() -> Lines:
    """Members of every registry, with the entry-point group for more of them, and all else that has a name."""
    registries = [value for value in vars(plug_ins).values() if isinstance(value, Registry)]
    registries += [section.registry for section in SECTIONS.values() if section.key]
    for registry in (*registries, SSP_FORMATS, NEBULAR_FORMATS, CURVES):
        yield f"group of entry points {registry.group}"
        yield from (f"{registry.group} {name}" for name in registry.builtin)
    yield f"group of entry points {plug_ins.FIELD_MAP_GROUP}"
    for name in plug_ins.FILE_LAYOUTS.builtin:
        for format_ in plug_ins.FILE_LAYOUTS.find(name).formats:
            yield from (f"layout {name} {suffix}" for suffix in format_.suffixes)
    for folder in ("configs", "pipelines", "instruments", "bundles", "simulations", "skies"):
        yield from (f"{folder} {name}" for name in extend.resource_names(folder))
    others = {
        "reader": [plug_ins.TABLE],
        "library": LIBRARIES.known,
        "table": NEBULAR_TABLES.known,
        "line": rl.list_lines(),
        "prior": [*PRIORS, MIXTURE],
        "parameter": known_parameters(),
        "cosmology": plug_ins.COSMOLOGIES,
    }
    for kind, names in others.items():
        yield from (f"{kind} {name}" for name in names)


def cards(path: Path) -> Lines:
    """Extensions of a FITS file, their cards and columns."""
    with fits.open(path) as hdus:
        for hdu in hdus:
            place = f"{path.name} [{hdu.name}]"
            yield place
            for keyword in dict.fromkeys(hdu.header):
                value = f" = {hdu.header[keyword]}" if keyword in {"BUNIT", "CTYPE1", "CTYPE3", "CUNIT3"} else ""
                yield f"{place} {keyword}{value}"
            if isinstance(hdu, fits.BinTableHDU):
                yield from (f"{place} column {column.name} ({column.unit})" for column in hdu.columns)


def datasets(path: Path) -> Lines:
    """Groups, datasets and attributes of an HDF5 file, but for the names of axes (dimension scales)."""

    def below(group: h5py.Group, place: str) -> Iterator[str]:
        yield from (f"{place} @{name}" for name in group.attrs)
        for name, value in group.items():
            if isinstance(value, h5py.Group):
                yield f"{place}/{name}"
                yield from below(value, f"{place}/{name}")
            elif not value.is_scale:
                yield f"{place}/{name}"
                yield from (f"{place}/{name} @{key}" for key in value.attrs if key != "DIMENSION_LIST")

    with h5py.File(path) as file:
        yield from below(file, path.name)


def arrays(path: Path) -> Lines:
    """Arrays and attributes of a Zarr group."""
    import zarr  # noqa: PLC0415

    group = zarr.open_group(path, mode="r")
    yield from (f"{path.name} @{name}" for name in group.attrs)
    for name, array in sorted(group.arrays()):
        yield f"{path.name}/{name}"
        yield from (f"{path.name}/{name} @{key}" for key in array.attrs)


def write_small_files(folder: Path) -> None:
    """Files of every kind from one small run, and from the results of older ones, written anew."""
    from small import fibre_spectra, full_cube  # noqa: PLC0415

    cube = rl.run(RUN, output=folder / "cube.fits", quiet=True)
    for layout in ("manga", "hsim", "scopesim"):
        cube.write(folder / f"{layout}.fits", layout=layout)
    with_fibres = full_cube()
    with_fibres = dataclasses.replace(with_fibres, fibres=fibre_spectra(with_fibres))
    with_fibres.write(folder / "sami.fits", layout="sami")
    with_fibres.write(folder / "cube.h5")
    if importlib.util.find_spec("zarr"):
        cube.write(folder / "cube.zarr")
    with unpacked() as old:
        rl.FitResult.read(old / "fit.h5").write(folder / "fit.h5")
        rl.SampleResult.read(old / "samples.h5").write(folder / "samples.h5")


def collect(folder: Path) -> dict[str, list[str]]:
    """The sorted lines of every file; files of small runs are left in `folder`."""
    write_small_files(folder)
    schema = json_schema()
    made: dict[str, Lines] = {
        "names": names_of(rl, "rubix_like"),
        "extend": names_of(extend, "rubix_like.extend"),
        "commands": commands(make_parser(), "rubix-like"),
        "keys": keys(schema, schema["$defs"], ""),
        "members": registry_members(),
        "fits": (line for path in sorted(folder.glob("*.fits")) for line in cards(path)),
        "hdf5": (line for path in sorted(folder.glob("*.h5")) for line in datasets(path)),
    }
    if importlib.util.find_spec("zarr"):
        made["zarr"] = arrays(folder / "cube.zarr")
    return {kind: sorted(set(lines)) for kind, lines in made.items()}


def main() -> None:
    """Write the files anew."""
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        for kind, lines in collect(Path(folder)).items():
            (FOLDER / f"{kind}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent))
    main()

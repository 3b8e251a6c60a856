"""The command `rubix-like inspect`: what a galaxy's file, an observed cube, or a file of rubix-like holds."""

import argparse
import dataclasses
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rubix_like as rl
from rubix_like.cli.options import read_overrides, read_stated
from rubix_like.config.loading import with_overrides
from rubix_like.errors import ConfigError
from rubix_like.readers.inspection.report import Inspection, inspect_galaxy, inspection_text
from rubix_like.runtime.files.fits_opening import first_header, holds_cube
from rubix_like.runtime.files.outputs import beside
from rubix_like.runtime.files.writers import (
    CATALOGUE,
    CUBE,
    FIT,
    FOREIGN,
    LAYOUT_CARD,
    LIBRARY,
    MAPS,
    NEBULAR,
    PICTURE,
    SAMPLES,
    SIMULATION_SET,
    SIMULATIONS,
    sets_in,
    written_by_us,
)
from rubix_like.runtime.notes import note_lines
from rubix_like.runtime.places import found_at
from rubix_like.runtime.words import counted

WIDEST: int = 120


def inspect_file(options: argparse.Namespace) -> None:
    """Print the report; raises ConfigError where nothing is recognised, ValueError where the file would be refused."""
    path = Path(options.files[0]).expanduser()
    is_alone, stated = len(options.files) == 1 and options.reader is None, read_stated(options)
    written = written_by_us(path) if is_alone else None
    if stated or (is_alone and written is None and path.is_file() and holds_cube(path)):
        print_observed(path, stated, _width(), as_json=options.json)
        return
    if written is not None:  # cubes in the package's layout, maps and results are read whole
        title, describe = _KINDS[written.kind]
        facts, summary = describe(path)
        writer = {"written by": f"{written.creator}, {written.date}"} if written.creator else {}
        _print({"file": str(path), "kind": title, **writer, **facts}, summary, _width(), as_json=options.json)
        return
    folders = ", ".join(map(str, sets_in(path)))
    if folders:
        raise ConfigError(f"{path}: expected one training set, got the folder of several; inspect one of {folders}")
    overrides = read_overrides(options.set)
    section: dict[str, Any] = {"path": options.files if len(options.files) > 1 else options.files[0]}
    if options.reader is not None:
        section["reader"] = options.reader
    for key in overrides:
        if not key.startswith("galaxy."):
            raise ConfigError(f"--set: expected a key of the section galaxy, such as galaxy.center, got '{key}'")
    inspection = inspect_galaxy(with_overrides({"galaxy": section}, overrides)["galaxy"])
    if options.json:
        print(json.dumps(dataclasses.asdict(inspection), indent=2))
    else:
        print(inspection_text(inspection, _width()))
    if inspection.problems:
        file, problems = inspection.facts["file"], counted(len(inspection.problems), "problem")
        raise ValueError(f"{file} cannot be used as it is: {problems}, as listed")


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDEST


_SUMMARY_LINES = "rubix_like.runs.run_summary:summary_lines"
_RUN_WORDS = "rubix_like.cube.meta:RUN_WORDS"
_PLANE_FACTS = "rubix_like.cube.files.cube_files:plane_facts"
_READ_SHARD = "rubix_like.inference.simulation.simulation_files:read_shard"
_RESULT_LINES = "rubix_like.inference.results.results:result_lines"
_DESCRIBE_SET = "rubix_like.inference.simulation.simulation_files:describe_set"
_DESCRIBE_CATALOGUE = "rubix_like.runs.batch.records:describe_folder"
_OPENING_LINES = "rubix_like.runs.run_summary:opening_lines"
"""Imported for files of ours alone: those of galaxies do not need what cubes do."""


Described = tuple[dict[str, str], list[str]]
"""The facts about a file of rubix_like by name, and its summary."""


def print_observed(path: Path, stated: Mapping[str, Any], width: int, *, as_json: bool) -> None:
    """Print the facts on the cube of a telescope or another program; `stated`: options of `read_observed`, whose errors
    it raises."""
    cube = rl.read_observed(path, **stated)
    edges, flux = cube.wave_edges, cube.flux[cube.used]
    place = "not stated" if cube.ra is None else f"RA {cube.ra:.6f}, Dec {cube.dec:.6f} deg"
    angle = f"+y at position angle {cube.field_angle:g} deg"
    variance = "none"
    if cube.variance is not None:
        variance = f"median S/N per voxel {np.median(flux / np.sqrt(cube.variance[cube.used])):.3g}"
    facts = {
        "file": str(path),
        "kind": "observed cube",
        "object": cube.name,
        "spaxels": f"{cube.n_x} x {cube.n_y} of {cube.pixel_scale:g} arcsec, {angle}",
        "centre": place,
        "wavelengths": f"{cube.bins.n_wave} bins from {edges[0]:.2f} to {edges[-1]:.2f} Angstrom ({cube.medium}, "
        f"{cube.sampling})",
        "flux": f"median {np.median(flux):.4g}, largest {flux.max():.4g} (1e-20 erg/s/cm2/Angstrom per spaxel)",
        "variance": variance,
        "used": f"{np.mean(cube.used):.1%} of voxels",
    }
    name, keywords = shlex.quote(str(path)), "".join(f", {key}={value!r}" for key, value in stated.items())
    options = "".join(f" --{key.replace('_', '-')} {shlex.quote(str(value))}" for key, value in stated.items())
    summary = [
        *note_lines(cube.notes),
        f"Look at it: rubix-like plot {name}{options} (--html: a page for the browser)",
        f"In Python: cube = rubix_like.read_observed({str(path)!r}{keywords})",
    ]
    _print(facts, summary, width, as_json=as_json)


def _print(facts: dict[str, str], summary: list[str], width: int, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"facts": facts, "summary": summary}, indent=2))
    else:
        print(inspection_text(Inspection(facts), width), *summary, sep="\n")


def _cube(path: Path) -> Described:
    cube = rl.Cube.read(path)
    _, *lines = found_at(_SUMMARY_LINES)(cube, path, {})
    maps = beside(path, "_maps.fits")
    there = {"maps": maps.name if maps.is_file() else f"none beside it ({maps.name})"}
    facts = {**found_at(_PLANE_FACTS)(path), **there, **_facts(cube.meta, path, "Cube")}
    return facts, [*lines, *note_lines(cube.meta.notes)]


def _maps(path: Path) -> Described:
    maps = rl.Maps.read(path)
    words = ["mass, light, motions, ages and metallicities, before and after the PSF"]
    words += [] if maps.velocity is None else [f"velocity distributions in {counted(len(maps.velocity), 'bin')}"]
    words += [f"images in {', '.join(maps.filters)}"] if maps.filters else []
    words += [label.name for label in maps.fields]
    name = shlex.quote(str(path))
    lines = [
        f"Maps of {maps.n_x} x {maps.n_y} spaxels of {maps.pixel_scale:g} arcsec, weighted by light in {maps.band}: "
        f"{'; '.join(words)}",
        f"Look at it: rubix-like plot {name}, or with its cube: rubix-like plot CUBE --maps {name}",
        f"In Python: maps = rubix_like.Maps.read({str(path)!r})",
    ]
    return _facts(maps.meta, path, "Maps"), lines


def _facts(meta: Mapping[str, Any], path: Path, name: str) -> dict[str, str]:
    """The settings that a run was made of, and where the rest is said."""
    stated = {word: str(meta[key]) for key, word in found_at(_RUN_WORDS).items() if meta.get(key) is not None}
    return {**stated, "configuration": f"rubix_like.{name}.read({str(path)!r}).meta['config']"}


def _result(path: Path, name: str) -> Described:
    result = getattr(rl, name).read(path)
    return {}, [*result.summary().splitlines(), *found_at(_RESULT_LINES)(path, name)]


def _simulations(path: Path) -> Described:
    shard = found_at(_READ_SHARD)(path)
    kept = [name for name in ("flux", "variance", "truth") if getattr(shard, name) is not None]
    facts = {
        "simulations": f"{shard.number[0]} to {shard.number[-1]} of their set",
        "cubes": f"{' x '.join(map(str, shard.mask.shape))} (y, x, wavelength): {', '.join(kept)}",
        "random": ", ".join(f"{name} ({unit})" if unit else name for name, unit in shard.units.items()),
    }
    return facts, [f"The whole set: rubix-like inspect {shlex.quote(str(path.parent))}", _loading(path.parent)]


def _loading(folder: Path) -> str:
    return f"In Python: simulations = rubix_like.load_simulations({str(folder)!r})"


def _catalogue(path: Path) -> Described:
    facts, failed = found_at(_DESCRIBE_CATALOGUE)(path)
    return facts, [*failed, "To make what is missing: the command that made the rest"]


def _foreign(path: Path) -> Described:
    layout = first_header(path)[LAYOUT_CARD]
    return {"layout": layout}, found_at(_OPENING_LINES)(path, layout)


def _table(path: Path, command: str) -> Described:
    return {}, [f"Look at it: rubix-like {command} info {shlex.quote(str(path))}"]


_KINDS: Mapping[str, tuple[str, Callable[[Path], Described]]] = {
    CUBE: ("cube", _cube),
    FOREIGN: ("cube for other programs", _foreign),
    MAPS: ("maps", _maps),
    FIT: ("result of a fit", partial(_result, name="FitResult")),
    SAMPLES: ("result of a sampling", partial(_result, name="SampleResult")),
    SIMULATIONS: ("simulations", _simulations),
    SIMULATION_SET: ("training set", lambda path: (found_at(_DESCRIBE_SET)(path), [_loading(path)])),
    CATALOGUE: ("catalogue", _catalogue),
    LIBRARY: ("SSP library", partial(_table, command="ssp")),
    PICTURE: ("picture", lambda _: ({}, [])),
    NEBULAR: ("table of nebular lines", partial(_table, command="nebular")),
}
"""Kind of a file -> its name, and the function that describes one."""

"""Tables of what a configuration can name, with one line about each."""

import argparse
import ast
import inspect
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from itertools import groupby

import numpy as np

from rubix_like.config import InstrumentSettings, json_schema, load_pipeline
from rubix_like.config.plug_ins import (
    EXECUTORS,
    FIELDS,
    KERNELS,
    READERS,
    SAMPLERS,
    STAGES,
    TABLE,
    field_map_names,
)
from rubix_like.config.sections.instrument import STEP_UNITS
from rubix_like.config.sections.pipeline import LISTS
from rubix_like.errors import ConfigError
from rubix_like.instrument.line_width import instrument_fwhm
from rubix_like.nebular import line_rows
from rubix_like.readers.fields.field_map import load_field_map
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.resources import resource, resource_names
from rubix_like.runtime.text_tables import table_lines

Rows = list[tuple[str, str]]

WIDTH: int = 100
"""Columns of the table of instruments where no terminal says another width."""


def stage_rows() -> Rows:
    """Name, kind and first line of the description of every member of a pipeline's lists."""
    return [(name, f"{kind}: {text}") for kind, own in LISTS.items() for name, text in member_rows(own)]


def reader_rows() -> Rows:
    """Name and first line of the description of every reader, then the simulations with a field map."""
    readers = member_rows(READERS)
    taken = {name for name, _ in readers}
    readers.append((TABLE, "Plain tables (FITS, ECSV, CSV, Parquet, npz, HDF5), by the names of their columns"))
    return readers + [(name, _title(name)) for name in field_map_names() if name not in taken]


def pipeline_rows() -> Rows:
    """Name, description and stages of every packaged pipeline."""
    rows = []
    for name in resource_names("pipelines"):
        pipeline = load_pipeline(name)
        stages = " -> ".join(stage.name for stage in (*pipeline.fields, *pipeline.stages))
        rows.append((name, f"{pipeline.description} [{stages}]"))
    return rows


def config_rows() -> Rows:
    """Name and file of every packaged configuration."""
    return [(name, str(resource("configs", name))) for name in resource_names("configs")]


def member_rows(registry: Registry) -> Rows:
    """Name and first line of the description of every member of a registry."""
    return [(name, _first_line(registry, name)) for name in registry.names()]


def _first_line(registry: Registry, name: str) -> str:
    """Of a member's description, a built-in one not being imported; or why one from outside cannot be used."""
    try:
        place = registry.builtin.get(name)
        text = _docstring_at(place) if place else inspect.getdoc(registry.find(name)) or ""
        return " ".join(text.partition("\n\n")[0].split())
    except ConfigError as error:
        return f"cannot be used: {error}"


def _docstring_at(place: str) -> str:
    """The docstring of the class or function at `module:attribute`, read from the source: nothing is imported."""
    module, attribute = place.split(":")
    package, *inner, last = module.split(".")
    source = resources.files(package).joinpath(*inner, f"{last}.py").read_bytes()
    named = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return ast.get_docstring(next(node for node in named if node.name == attribute)) or ""


def _title(name: str) -> str:
    try:
        return load_field_map(name).title
    except ConfigError as error:
        return f"cannot be used: {error}"


COLUMNS: tuple[str, ...] = (
    "name", "telescope", "field (arcsec)", "spaxel", "range (A)", "step", "FWHM", "R", "source",
)  # fmt: skip
"""spaxel in arcsec; range in air or vacuum (vac); FWHM (Angstrom) and resolving power R at the middle of the range."""


def instrument_table() -> list[tuple[str, ...]]:
    """A row of `COLUMNS` for every preset, in the order of their names."""
    presets = [InstrumentSettings.model_validate({"name": name}) for name in resource_names("instruments")]
    return [_row(preset) for preset in presets]


def instrument_text(rows: Sequence[Sequence[str]], width: int) -> str:
    """The table within `width` columns: a line per preset, those of one source together and that source above them."""
    short = [[*row[:1], *row[2:-1]] for row in (COLUMNS, *rows)]
    title, *lines = table_lines(short)
    if max(map(len, (title, *lines))) > width:
        title, *lines = table_lines(short, gap=1)
    blocks = [title]
    pairs = zip(rows, lines, strict=True)
    for (telescope, source), group in groupby(pairs, key=lambda pair: (pair[0][1], pair[0][-1])):
        heading = textwrap.fill(f"{telescope}: {source}", width, break_long_words=False, break_on_hyphens=False)
        blocks.append("\n".join([heading, *(line for _, line in group)]))
    return "\n\n".join(blocks)


def _row(preset: InstrumentSettings) -> tuple[str, ...]:
    wavelength = preset.wavelength
    step = f"{wavelength.step:g}"
    if wavelength.sampling == "log":
        step = f"{np.format_float_scientific(wavelength.step, trim='-', exp_digits=1)} {STEP_UNITS['log']}"
    middle = (wavelength.start + wavelength.stop) / 2
    fwhm = None if preset.lsf is None else float(instrument_fwhm(preset.lsf, np.array([middle]))[0])
    return (
        preset.name,
        preset.telescope,
        _field(preset),
        f"{preset.pixel_scale:g}",
        f"{wavelength.start:.0f}-{wavelength.stop:.0f} {wavelength.medium.removesuffix('uum')}",
        step,
        "" if fwhm is None else f"{fwhm:.3g}",
        "" if fwhm is None else f"{middle / fwhm:.0f}",
        preset.source,
    )


def _field(preset: InstrumentSettings) -> str:
    """`60 x 60`, `74 x 64 hexagon`, `15 circle`."""
    aperture, sides = preset.aperture, preset.fov
    if aperture is not None:
        sides = aperture.size or (sides[:1] if aperture.shape in {"square", "circle", "hexagon"} else sides)
    size = " x ".join(f"{side:g}" for side in sides)
    return size if aperture is None else f"{size} {aperture.shape}"


def print_list(options: argparse.Namespace) -> None:
    """`rubix-like list`."""
    if options.kind == "instruments":
        print(instrument_text(instrument_table(), shutil.get_terminal_size((WIDTH, 24)).columns))
        return
    rows = found_at(_LIBRARIES)() if options.kind == "ssp" else _KINDS[options.kind]()
    print(*table_lines(rows), sep="\n")


_LIBRARIES = "rubix_like.ssp:SHELF.rows"
"""What lists the libraries; importing it takes a second, which the other lists do not need."""


_KINDS: dict[str, Callable[[], Rows]] = {
    "lines": line_rows,
    "stages": stage_rows,
    "fields": partial(member_rows, FIELDS),
    "kernels": partial(member_rows, KERNELS),
    "samplers": partial(member_rows, SAMPLERS),
    "executors": partial(member_rows, EXECUTORS),
    "readers": reader_rows,
    "pipelines": pipeline_rows,
    "configs": config_rows,
}


def print_schema(options: argparse.Namespace) -> None:  # noqa: ARG001
    """`rubix-like schema`."""
    for registry in (READERS, SAMPLERS, *STAGES):
        for problem in registry.faults().values():
            print(f"Note: left out: {problem}", file=sys.stderr)
    print(json.dumps(json_schema(), indent=2))

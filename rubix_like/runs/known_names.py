"""The names that a configuration can have: instruments, libraries, readers, stages and the like, each with a line about
it."""

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from rubix_like.config import InstrumentSettings, load_pipeline
from rubix_like.config.plug_ins import EXECUTORS, FIELDS, KERNELS, PRODUCTS, READERS, SAMPLERS, TABLE, field_map_names
from rubix_like.config.sections.instrument import instrument_fwhm
from rubix_like.config.sections.pipeline import LISTS
from rubix_like.config.sections.wavelength import STEP_UNITS
from rubix_like.errors import ConfigError
from rubix_like.nebular import line_rows
from rubix_like.readers.fields.field_map import load_field_map
from rubix_like.runtime.notes import MISTAKES
from rubix_like.runtime.places import found_at
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.resources import resource, resource_names
from rubix_like.runtime.words import html_table, table_lines

Rows = list[tuple[str, str]]

_LIBRARIES = "rubix_like.ssp:SHELF.rows"
"""What lists the libraries; importing it takes a second, which the other lists do not need."""


@dataclass(frozen=True)
class Listing:
    """Names that a configuration can have, as a table: iterate over the names, or ask whether one is `in` it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order of the table."""
        return tuple(row[0] for row in self.rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __repr__(self) -> str:
        return "\n".join(table_lines([self.columns, *self.rows]))

    def _repr_html_(self) -> str:
        return html_table(self.title, [self.columns, *self.rows])


def list_instruments() -> Listing:
    """The presets of instruments: `instrument.name`."""
    return Listing("Instruments", COLUMNS, tuple(instrument_table()))


def list_libraries() -> Listing:
    """The libraries of simple stellar populations, and whether each is at hand: `ssp.library`."""
    return _listing("SSP libraries", found_at(_LIBRARIES)(), ("library", "where it is"))


def list_readers() -> Listing:
    """The readers and simulations that are recognised: `galaxy.reader`."""
    rows = member_rows(READERS)
    taken = {name for name, _ in rows}
    rows.append((TABLE, "Plain tables (FITS, ECSV, CSV, Parquet, HDF5), by the names of their columns"))
    for name in (name for name in field_map_names() if name not in taken):
        try:
            rows.append((name, load_field_map(name).title))
        except ConfigError as error:
            rows.append((name, f"cannot be used: {error}"))
    return _listing("Readers", rows)


def list_configs() -> Listing:
    """The packaged configurations, with their files."""
    return _listing(
        "Configurations",
        [(name, str(resource("configs", name))) for name in resource_names("configs")],
        ("name", "file"),
    )


def list_pipelines() -> Listing:
    """The packaged pipelines: `pipeline`."""
    rows = []
    for name in resource_names("pipelines"):
        pipeline = load_pipeline(name)
        stages = " -> ".join(stage.name for stage in (*pipeline.fields, *pipeline.stages))
        rows.append((name, f"{pipeline.description} [{stages}]"))
    return _listing("Pipelines", rows)


def list_stages() -> Listing:
    """The fields, stages and sources that a pipeline can have."""
    return _listing(
        "Stages", [(name, f"{kind}: {text}") for kind, members in LISTS.items() for name, text in member_rows(members)]
    )


def list_fields() -> Listing:
    """The fields that a pipeline can have: sums over all particles of a kind."""
    return _listing("Fields", member_rows(FIELDS))


def list_products() -> Listing:
    """The maps of plug-ins beside the cube: `products.extra`; none without a plug-in."""
    return _listing("Products", member_rows(PRODUCTS))


def list_lines() -> Listing:
    """The emission lines by name, with their wavelengths."""
    return _listing("Emission lines", line_rows())


def list_notes() -> Listing:
    """The keys of notes, each with the mistake that it guards against: `Note.key`."""
    return _listing("Notes", list(MISTAKES.items()), ("key", "mistake"))


def list_kernels() -> Listing:
    """The deposit kernels: `engine.kernel`."""
    return _listing("Deposit kernels", member_rows(KERNELS))


def list_samplers() -> Listing:
    """The samplers: `fit.sampling.method`."""
    return _listing("Samplers", member_rows(SAMPLERS))


def list_executors() -> Listing:
    """The executors that compute a catalogue in other processes: the argument `executor`."""
    return _listing("Executors", member_rows(EXECUTORS))


def _listing(title: str, rows: Sequence[tuple[str, ...]], columns: tuple[str, ...] = ("name", "what it is")) -> Listing:
    return Listing(title, columns, tuple(tuple(row) for row in rows))


def member_rows(registry: Registry) -> Rows:
    """Name and first line of the description of every member of a registry, or why it cannot be used.

    Built-in members are not imported.
    """
    rows = []
    for name in registry.names():
        place = registry.builtin.get(name)
        try:
            text = _docstring_at(place) if place else inspect.getdoc(registry.find(name)) or ""
        except ConfigError as error:
            text = f"cannot be used: {error}"
        rows.append((name, " ".join(text.partition("\n\n")[0].split())))
    return rows


def _docstring_at(place: str) -> str:
    """The docstring of the class or function at `module:attribute`, read from the source: nothing is imported."""
    module, attribute = place.split(":")
    package, *inner, last = module.split(".")
    source = resources.files(package).joinpath(*inner, f"{last}.py").read_bytes()
    named = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return ast.get_docstring(next(node for node in named if node.name == attribute)) or ""


COLUMNS: tuple[str, ...] = (
    "name", "telescope", "field (arcsec)", "spaxel", "range (A)", "step", "FWHM", "R", "source",
)  # fmt: skip
"""spaxel in arcsec; range in air or vacuum (vac); FWHM (Angstrom) and resolving power R at the middle of the range."""


def instrument_table() -> list[tuple[str, ...]]:
    """A row of `COLUMNS` for every preset, in the order of their names."""
    presets = [InstrumentSettings.model_validate({"name": name}) for name in resource_names("instruments")]
    return [_row(preset) for preset in presets]


def _row(preset: InstrumentSettings) -> tuple[str, ...]:
    wavelength = preset.wavelength
    if wavelength.step is None:  # the narrowest and the widest bin of a table
        widths = np.diff(wavelength.edge_values)
        narrow, wide = widths.min(), widths.max()
        step = f"{narrow:.0f}-{wide:.0f}" if narrow > 10 else f"{narrow:.2g}-{wide:.2g}"
    elif wavelength.sampling == "log":
        step = f"{np.format_float_scientific(wavelength.step, trim='-', exp_digits=1)} {STEP_UNITS['log']}"
    else:
        step = f"{wavelength.step:g}"
    middle = (wavelength.start + wavelength.stop) / 2
    fwhm = None if preset.lsf is None else float(instrument_fwhm(preset.lsf, np.array([middle]))[0])
    aperture, sides = preset.aperture, preset.fov
    if aperture is not None:
        sides = aperture.size or (sides[:1] if aperture.shape in {"square", "circle", "hexagon"} else sides)
    size = " x ".join(f"{side:g}" for side in sides)
    arms = {} if preset.join else preset.arms or {}
    ranges = [arm.wavelength for arm in arms.values()] or [wavelength]  # step and widths are the first's
    spans = ", ".join(f"{span.start:.0f}-{span.stop:.0f}" for span in ranges)
    return (
        preset.name,
        preset.telescope,
        (size if aperture is None else f"{size} {aperture.shape}"),
        f"{preset.pixel_scale:g}",
        f"{spans} {wavelength.medium.removesuffix('uum')}",
        step,
        "" if fwhm is None else f"{fwhm:.3g}",
        "" if fwhm is None else f"{middle / fwhm:.0f}",
        preset.source,
    )

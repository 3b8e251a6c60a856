"""Write the tables of the pages that follow from the code: `python docs/write_tables.py`, in the root of the clone.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`; a test fails where one is not up to date.
"""

import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Annotated

from configuration_page import configuration_reference, default, limits, meaning
from gallery_page import gallery
from simulations_page import markdown_table
from validation_page import validation, validation_summary

import rubix_like
from rubix_like import _PLACES
from rubix_like.config.parameters import metadata_of
from rubix_like.config.quantities import InUnit
from rubix_like.config.readers.snapshot import AgeRecipe
from rubix_like.config.run_config import DevicesSettings
from rubix_like.config.sections.dust import DustSettings, ParticleDustSettings
from rubix_like.config.sections.fit import SamplingSettings, SimulateSettings
from rubix_like.config.sections.nebular import AgnSettings, DiffuseSettings, IonisationLaw, NebularSettings
from rubix_like.config.sections.noise import SystematicsSettings
from rubix_like.config.sections.products import LinesSettings, LOSVDSettings, ProductsSettings
from rubix_like.config.settings import AbstractSettings, described_settings, sections_in
from rubix_like.cube.files.maps_file import (
    CURVE_COLUMNS,
    DUST_EXTENSIONS,
    EXTENSIONS,
    GAS_EXTENSIONS,
    LINE_EXTENSIONS,
    LOSVD_UNIT,
    PHOTON_EXTENSION,
)
from rubix_like.inference.posterior.free_parameters import known_parameters
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.runs.known_names import COLUMNS, instrument_table
from rubix_like.runtime.notes import MISTAKES

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.S)

_ROOT = Path(__file__).resolve().parents[1]


def parameter_table() -> str:
    """Every parameter that can be free."""
    rows = [(f"`{own.name}`", own.unit, limits(own.form), own.meaning) for own in known_parameters().values()]
    return markdown_table(("parameter", "unit", "limits", "meaning"), rows)


def synthetic_table() -> str:
    """The keys of the reader `synthetic`."""
    rows = []
    for key, field in described_settings(SyntheticReader).items():
        form = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        unit = next((own.unit for own in metadata_of(form) if isinstance(own, InUnit)), "")
        rows.append((f"`{key}`", unit, limits(form), default(field), meaning(field)))
    return markdown_table(("key", "unit", "limits", "default", "meaning"), rows[1:])


def sampling_table() -> str:
    """The keys of `fit.sampling` and of its sections."""
    sections = {f"{name}.": kind for name, kind in SamplingSettings.sections().items()}
    return _key_table({"": SamplingSettings, **sections})


def product_table() -> str:
    """The keys of `products` and of its section `losvd`."""
    return _key_table({"": ProductsSettings, "losvd.": LOSVDSettings})


def systematics_table() -> str:
    """The keys of `systematics` and of its sections."""
    fields = described_settings(SystematicsSettings).items()
    sections = {f"{name}.": kind for name, field in fields for kind in sections_in(field.annotation)}
    return _key_table({"": SystematicsSettings, **sections})


def folder_table() -> str:
    """Every folder of the package, the highest first."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    tops = [name.strip() for layer in layers for name in layer.split("|")]
    folders = [path for name in tops for path in sorted((_ROOT / "rubix_like").glob(f"{name}/**/__init__.py"))]
    rows = [(f"`{path.parent.relative_to(_ROOT / 'rubix_like')}/`", _first_line(path)) for path in folders]
    return markdown_table(("folder of `rubix_like/`", "what is there"), rows)


def preset_table() -> str:
    """Every preset of an instrument."""
    return markdown_table(COLUMNS[:-1], [(f"`{row[0]}`", *row[1:-1]) for row in instrument_table()])


def source_list() -> str:
    """Where the values of the presets come from."""
    groups = groupby(instrument_table(), key=lambda row: row[-1])
    return "".join(f"- {', '.join(f'`{row[0]}`' for row in group)}: {source}\n" for source, group in groups)


def map_table() -> str:
    """The extensions of a file of maps that every run with `products` has."""
    losvd = ("losvd", LOSVD_UNIT, "light per velocity, axes (velocity, y, x); its integral is LIGHT")
    return _extension_table([*EXTENSIONS, losvd])


def client_table() -> str:
    """What other programs make of our files, as tests/clients/write_table.py found it."""
    rows = json.loads((_ROOT / "tests" / "clients" / "clients.json").read_text(encoding="utf-8"))
    title = [*(key for key in rows[0] if key != "sky"), "sky of the first spaxel"]
    return markdown_table(title, [tuple(row.values()) for row in rows])


def paper_clients() -> str:
    """Program, version and reported unit, for the paper."""
    rows = json.loads((_ROOT / "tests" / "clients" / "clients.json").read_text(encoding="utf-8"))
    verdicts = ("linear bins", "logarithmic bins", "no noise")
    return markdown_table(
        ("program", "version", *verdicts, "wavelength unit"),
        [(row["program"], row["version"], *(row[own] for own in verdicts), row["wavelength unit"]) for row in rows],
    ) + _caption("clients", "Programs that open the cubes, and the wavelength unit that each reports.")


def paper_times() -> str:
    """Times of 1e4 to 1e7 particles from the table that the benchmark printed, for the paper."""
    text = (_ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8").partition("\n## Particles\n")[2]
    lines = text.partition("<!-- printed -->\n\n")[2].partition("\n\n")[0].splitlines()
    title, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    columns = [title.index(own) for own in ("library", "particles", "run s", "value and gradient s", "peak GB")]
    chosen = [row for row in rows if row[1] != "1e3"]
    table = markdown_table([title[own] for own in columns], [[row[own] for own in columns] for row in chosen])
    return table + _caption("times", "Seconds of a compiled call on two shared CPU cores, and its peak memory.")


def line_table() -> str:
    """The extensions of a file of maps for each emission line, and the one that goes with them."""
    rows = [
        (f"`LINE_{field.upper()}_<LINE>`", unit, text.format(line="the line")) for field, unit, text in LINE_EXTENSIONS
    ]
    field, unit, text = PHOTON_EXTENSION
    return markdown_table(("extension", "BUNIT", "what it is"), [*rows, (f"`{field.upper()}`", unit, text)])


def place_of(name: str) -> str:
    """The dotted place at which a public name is defined."""
    return _PLACES[name].replace(":", ".") if name in _PLACES else f"{getattr(rubix_like, name).__module__}.{name}"


def docstrings() -> str:
    """Every public name by its group on the API page, as directives from which the site makes its docstring."""
    parts = []
    for group in re.split(r"^## ", (_ROOT / "docs" / "api.md").read_text(encoding="utf-8"), flags=re.M)[1:]:
        names = dict.fromkeys(name.partition(".")[0] for name in re.findall(r"^### `([\w.]+)", group, re.M))
        places = [place_of(name) for name in names if name != "__version__"]
        parts.append("\n".join([f"## {group.splitlines()[0]}\n", *(f"::: {place}" for place in places), ""]))
    return "\n".join(parts)


TABLES: Mapping[str, Callable[[], str]] = {
    "parameters": parameter_table,
    "synthetic": synthetic_table,
    "sampling": sampling_table,
    "configuration": configuration_reference,
    "docstrings": docstrings,
    "notes": lambda: markdown_table(("key", "the mistake"), [(f"`{key}`", text) for key, text in MISTAKES.items()]),
    "gallery": gallery,
    "validation": validation,
    "validation_summary": validation_summary,
    "simulate": lambda: _key_table({"": SimulateSettings}),
    "products": product_table,
    "dust": lambda: _key_table({"": DustSettings}),
    "dust_particles": lambda: _key_table({"": ParticleDustSettings}),
    "lines": lambda: _key_table({"": LinesSettings}),
    "nebular": lambda: _key_table(
        {"": NebularSettings, "log_u.": IonisationLaw, "diffuse.": DiffuseSettings, "agn.": AgnSettings}
    ),
    "systematics": systematics_table,
    "ages": lambda: _key_table({"": AgeRecipe}),
    "devices": lambda: _key_table({"": DevicesSettings}),
    "clients": client_table,
    "paper_clients": paper_clients,
    "paper_times": paper_times,
    "folders": folder_table,
    "presets": preset_table,
    "sources": source_list,
    "maps": map_table,
    "line_maps": line_table,
    "gas_maps": lambda: _extension_table(GAS_EXTENSIONS),
    "dust_maps": lambda: _extension_table(DUST_EXTENSIONS),
    "attenuation": lambda: markdown_table(
        ("column", "unit", "what it is"), [(f"`{name.upper()}`", unit, text) for name, unit, text in CURVE_COLUMNS]
    ),
}


def with_tables(text: str) -> str:
    """A page with its tables as they should be."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n{found[3]}", text)


def _caption(name: str, words: str) -> str:
    """Of a table of the paper, for pandoc: right below it."""
    return f"\n: {words} \\label{{tab:{name}}}\n"


def _extension_table(extensions: Iterable[tuple[str, str, str]]) -> str:
    """Extensions of a file of maps: names of fields, units, meanings."""
    rows = [(f"`{field.upper()}`", unit, text) for field, unit, text in extensions]
    return markdown_table(("extension", "BUNIT", "what it is"), rows)


def _key_table(kinds: Mapping[str, type[AbstractSettings]]) -> str:
    """The keys of sections, by their prefix, with defaults and meanings."""
    fields = [
        (prefix + key, field) for prefix, kind in kinds.items() for key, field in described_settings(kind).items()
    ]
    rows = [(f"`{key}`", default(field), meaning(field)) for key, field in fields]
    return markdown_table(("key", "default", "meaning"), rows)


def _first_line(module: Path) -> str:
    return (ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").splitlines()[0]


if __name__ == "__main__":
    for page in (*sorted((_ROOT / "docs").glob("*.md")), _ROOT / "docs" / "paper" / "paper.md"):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")

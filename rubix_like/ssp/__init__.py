"""SSP libraries: spectra of simple stellar populations, embedded, fetched or imported."""

from rubix_like.ssp.fetch import get
from rubix_like.ssp.formats import FORMATS, LIBRARIES, SHELF, LibraryEntry, import_library
from rubix_like.ssp.library import SSPLibrary, describe_library, load_ssp

__all__ = [
    "FORMATS",
    "LIBRARIES",
    "SHELF",
    "LibraryEntry",
    "SSPLibrary",
    "describe_library",
    "get",
    "import_library",
    "load_ssp",
]

"""SSP libraries: spectra of simple stellar populations, embedded, fetched or imported."""

from rubix_like.ssp.formats import FORMATS, SHELF, import_library
from rubix_like.ssp.library import SSPLibrary, describe_library, load_ssp

__all__ = [
    "FORMATS",
    "SHELF",
    "SSPLibrary",
    "describe_library",
    "import_library",
    "load_ssp",
]

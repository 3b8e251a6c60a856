"""Places in the package as text, `module:attribute`, for what is imported when it is used."""

import contextlib
import gc
import importlib
import operator
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError


def found_at(place: str) -> Any:
    """What is at `module:attribute`; the attribute may have dots."""
    module, attribute = place.split(":")
    with contextlib.nullcontext() if module in sys.modules else _nothing_collected():
        return operator.attrgetter(attribute)(importlib.import_module(module))


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """While modules are imported: to look for garbage takes a sixth of that time, and there is none.

    What was made then counts as old afterwards, so that the next look at what is new does not take that time either.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if gc.get_freeze_count() == 0:  # else somebody has frozen objects who means them to stay so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


EXTRAS: Mapping[str, str] = {
    "matplotlib": "plots",
    "speclite": "filters",
    "specutils": "specutils",
    "xarray": "xarray",
    "pyarrow": "tables",
    "zarr": "zarr",
    "pynbody": "pynbody",
    "fsps": "fsps",
    "optax": "fit",
    "optimistix": "fit",
    "lineax": "fit",
    "blackjax": "sample",
    "arviz": "sample",
    "nifty": "sample",
    "mpi4py": "mpi",
    "distributed": "dask",
    "cryptography": "dask",
    "parsl": "parsl",
}
"""Optional package -> the extra of rubix-like that installs it."""


@named_arguments
def import_optional(module: str, purpose: str, then: str = "") -> Any:
    """A module of an optional package; raises ConfigError, which says how to install the package, where it is missing.

    `purpose` begins the sentence of the error: what needs the package; `then` ends it: what else is needed. Warnings of
    a package about its own future, at its import, are not shown.
    """
    package = module.partition(".")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            importlib.import_module(package)
            return importlib.import_module(module)
        except ImportError as error:
            wanted = f"'rubix-like[{EXTRAS[package]}]'" if package in EXTRAS else package
            raise ConfigError(f"{purpose} needs the package {package}: pip install {wanted}{then}") from error

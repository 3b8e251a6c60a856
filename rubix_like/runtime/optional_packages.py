"""Packages that only some of the work needs: imported when they are used, each with the extra that brings it."""

import importlib
import warnings
from collections.abc import Mapping
from typing import Any

from rubix_like.arguments import named_arguments
from rubix_like.errors import ConfigError

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
    a package about its future, at its import, are not shown.
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

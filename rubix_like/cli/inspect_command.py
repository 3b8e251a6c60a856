"""The command `rubix-like inspect`: what a galaxy's file holds, and how it would be read."""

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rubix_like.cli.options import read_overrides
from rubix_like.config.loading import overridden
from rubix_like.errors import ConfigError
from rubix_like.readers.inspection.report import Inspection, inspect_galaxy
from rubix_like.readers.inspection.text import inspection_text

WIDEST: int = 120


def inspect_file(options: argparse.Namespace) -> None:
    """Print the report; raises ConfigError where nothing is recognised, ValueError where the file would be refused."""
    inspection = inspect_galaxy(_section(options, read_overrides(options.set)))
    if options.json:
        print(json.dumps(dataclasses.asdict(inspection), indent=2))
    else:
        print(inspection_text(inspection, _width()))
    if inspection.problems:
        raise ValueError(_summary(inspection))


def _section(options: argparse.Namespace, overrides: Mapping[str, str]) -> dict[str, Any]:
    """The section `galaxy` that the options describe."""
    section: dict[str, Any] = {"path": options.files if len(options.files) > 1 else options.files[0]}
    if options.reader is not None:
        section["reader"] = options.reader
    for key, value in overrides.items():
        if not key.startswith("galaxy."):
            raise ConfigError(f"--set: expected a key of the section galaxy, such as galaxy.center, got '{key}'")
        section = overridden({"galaxy": section}, key, value)["galaxy"]
    return section


def _summary(inspection: Inspection) -> str:
    count = len(inspection.problems)
    return f"{inspection.facts['file']} cannot be used as it is: {count} problem{'s' if count > 1 else ''}, as listed"


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDEST

"""The command `rubix-like inspect`: what a galaxy's file holds, and how it would be read."""

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from rubix_like.cli.options import add_set_option
from rubix_like.config.loading import overridden
from rubix_like.errors import ConfigError
from rubix_like.readers.inspection.report import Inspection, inspect_galaxy
from rubix_like.readers.inspection.text import inspection_text

INSPECT_HELP: str = "say what a galaxy's file holds: simulation, quantities, units, ranges, and what is missing"

WIDEST: int = 120


def add_inspect_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rubix-like inspect`."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a snapshot, cut-out or table of particles; several: the files of one snapshot",
    )
    parser.add_argument(
        "--reader",
        metavar="NAME",
        help="the simulation (`rubix-like list readers`) or a field map's .yaml file (default: recognised)",
    )
    add_set_option(parser, "other keys of the section galaxy, as of `run`, e.g. --set galaxy.sphere.radius='30 kpc'")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def inspect_file(options: argparse.Namespace, overrides: Mapping[str, str]) -> None:
    """Print the report; raises ConfigError where nothing is recognised, ValueError where the file would be refused."""
    inspection = inspect_galaxy(_section(options, overrides))
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

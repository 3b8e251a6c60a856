"""The command `rubix-like inspect`: what a galaxy's file or an observed cube holds, and how it would be read; what a
file of ours is."""

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rubix_like.cli.made_files import print_made, print_observed
from rubix_like.cli.options import read_overrides, read_stated
from rubix_like.config.loading import with_overrides
from rubix_like.errors import ConfigError
from rubix_like.readers.inspection.report import inspect_galaxy, inspection_text
from rubix_like.runtime.files.fits_opening import holds_cube
from rubix_like.runtime.files.writers import written_by_us
from rubix_like.runtime.words import counted

WIDEST: int = 120


def inspect_file(options: argparse.Namespace) -> None:
    """Print the report; raises ConfigError where nothing is recognised, ValueError where the file would be refused."""
    path = Path(options.files[0]).expanduser()
    is_alone, stated = len(options.files) == 1 and options.reader is None, read_stated(options)
    written = written_by_us(path) if is_alone else None
    if stated or (is_alone and written is None and path.is_file() and holds_cube(path)):
        print_observed(path, stated, _width(), as_json=options.json)
        return
    if written is not None:
        print_made(path, written, _width(), as_json=options.json)
        return
    inspection = inspect_galaxy(_section(options, read_overrides(options.set)))
    if options.json:
        print(json.dumps(dataclasses.asdict(inspection), indent=2))
    else:
        print(inspection_text(inspection, _width()))
    if inspection.problems:
        file, problems = inspection.facts["file"], counted(len(inspection.problems), "problem")
        raise ValueError(f"{file} cannot be used as it is: {problems}, as listed")


def _section(options: argparse.Namespace, overrides: Mapping[str, str]) -> dict[str, Any]:
    """The section `galaxy` that the options describe."""
    section: dict[str, Any] = {"path": options.files if len(options.files) > 1 else options.files[0]}
    if options.reader is not None:
        section["reader"] = options.reader
    for key in overrides:
        if not key.startswith("galaxy."):
            raise ConfigError(f"--set: expected a key of the section galaxy, such as galaxy.center, got '{key}'")
    return with_overrides({"galaxy": section}, overrides)["galaxy"]


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDEST

"""The commands `rubix-like ssp list | info | get | import | compare`."""

import argparse
import sys
from pathlib import Path

from rubix_like.plots.ssp_figure import save_comparison
from rubix_like.plots.style import check_picture_suffix, import_matplotlib
from rubix_like.runtime.files.outputs import check_writable
from rubix_like.runtime.files.writers import PICTURE, check_outputs
from rubix_like.runtime.words import table_lines
from rubix_like.ssp import SHELF, describe_library, import_library
from rubix_like.ssp.comparison import comparison_lines, solar_population
from rubix_like.ssp.library import load_ssp


def compare(options: argparse.Namespace) -> None:
    """Draw and print what the options say; raises ConfigError, ValueError or OSError with the remedy."""
    import_matplotlib()
    default = Path(f"ssp_{Path(options.one).stem}_{Path(options.other).stem}.png")
    path = check_picture_suffix(default if options.output is None else options.output, "output")
    read = (("A", SHELF.locate(options.one)), ("B", SHELF.locate(options.other)))
    check_outputs([path], [PICTURE], "output", read, overwrite=options.overwrite)
    check_writable(path, 0)
    one, other = (solar_population(load_ssp(name)) for name in (options.one, options.other))
    print(*comparison_lines(one, other), sep="\n")
    print(f"Picture: {save_comparison(one, other, path)}")


def print_libraries(options: argparse.Namespace) -> None:  # noqa: ARG001
    """`rubix-like ssp list`."""
    print(*table_lines(SHELF.rows()), sep="\n")


def print_library(options: argparse.Namespace) -> None:
    """`rubix-like ssp info`."""
    print(describe_library(load_ssp(options.name)))


def get_named_library(options: argparse.Namespace) -> None:
    """`rubix-like ssp get`."""
    path = SHELF.get(options.name, progress=_say, force=options.force)
    print(f"Library {options.name} is in {path}; use it with ssp: {{library: {options.name}}}")


def import_file(options: argparse.Namespace) -> None:
    """`rubix-like ssp import`."""
    path = import_library(options.file, options.name, overwrite=options.overwrite)
    print(f"Library {path.stem} is in {path}; use it with ssp: {{library: {path.stem}}}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)

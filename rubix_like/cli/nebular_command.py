"""The commands `rubix-like nebular list | info | get | import`."""

import argparse
import sys

from rubix_like.nebular import SHELF, describe_table, load_nebular
from rubix_like.runtime.words import table_lines


def print_tables(options: argparse.Namespace) -> None:  # noqa: ARG001
    """`rubix-like nebular list`."""
    print(*table_lines(SHELF.rows()), sep="\n")


def print_table_info(options: argparse.Namespace) -> None:
    """`rubix-like nebular info`."""
    print(describe_table(load_nebular(options.name)))


def get_named_table(options: argparse.Namespace) -> None:
    """`rubix-like nebular get`."""
    path = SHELF.get(options.name, progress=_say, force=options.force)
    print(f"Table {options.name} is in {path}; to look at it: rubix-like nebular info {options.name}")


def import_table_file(options: argparse.Namespace) -> None:
    """`rubix-like nebular import`."""
    path = SHELF.import_file(options.file, options.name, overwrite=options.overwrite)
    print(f"Table {path.stem} is in {path}; to look at it: rubix-like nebular info {path.stem}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)

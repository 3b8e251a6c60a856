"""The command line in this process: `main(words)` returns its exit status, `make_parser()` the parser of its words."""

from rubix_like.cli.main import main, make_parser

__all__ = ["main", "make_parser"]

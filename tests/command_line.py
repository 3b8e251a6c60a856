"""The command line in this process: `main(words)` returns the exit status, `make_parser()` the parser of its options."""

from rubix_like.cli.main import main, make_parser

__all__ = ["main", "make_parser"]

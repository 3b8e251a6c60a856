"""The command line in this process: `main(words)` returns its exit status, `make_parser()` the parser of its words."""

import contextlib
import io

from rubix_like.cli.main import main, make_parser

__all__ = ["main", "make_parser", "printed"]


def printed(*words):
    """Standard output of a command that ends well."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([str(word) for word in words]) == 0
    return output.getvalue()

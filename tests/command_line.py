"""The command line in this process: `main(words)` returns its exit status, `make_parser()` the parser of its words."""

import contextlib
import io
import re

from rubix_like.cli.main import main, make_parser

__all__ = ["main", "make_parser", "page_titles", "printed"]


def printed(*words):
    """Standard output of a command that ends well."""
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([str(word) for word in words]) == 0
    return output.getvalue()


def page_titles(cube, maps):
    """Titles of the images on the page of a cube that is written beside the file of its maps."""
    page = maps.with_name("page.html")
    printed("plot", cube.write(maps.with_name("page.fits")), "--html", "--maps", maps, "--output", page)
    return re.findall('"title": "([^"]*)"', page.read_text(encoding="utf-8"))

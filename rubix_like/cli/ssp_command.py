"""The command `rubix-like ssp compare`: two SSP libraries as a picture, a table and sentences."""

import argparse
from pathlib import Path

from rubix_like.errors import ConfigError
from rubix_like.plots.figure import check_picture_suffix
from rubix_like.plots.ssp_figure import save_comparison
from rubix_like.plots.style import require_matplotlib
from rubix_like.runtime.files.outputs import check_writable
from rubix_like.runtime.files.separate_files import check_separate
from rubix_like.ssp.comparison import comparison_lines, solar_population
from rubix_like.ssp.known_libraries import locate
from rubix_like.ssp.library import load_ssp

COMPARE_HELP: str = "draw two libraries over each other and tell what differs"


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    """The options of `rubix-like ssp compare`."""
    parser.add_argument("one", metavar="A", help="a name from `rubix-like ssp list`, or a path")
    parser.add_argument("other", metavar="B", help="another")
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="file to write, replaced if it exists: .png, .pdf or .svg (default: ssp_A_B.png here, never replaced)",
    )


def compare(options: argparse.Namespace) -> None:
    """Draw and print what the options say; raises ConfigError, ValueError or OSError with the remedy."""
    path = _output_path(options)
    one, other = (solar_population(load_ssp(name)) for name in (options.one, options.other))
    print(*comparison_lines(one, other), sep="\n")
    print(f"Picture: {save_comparison(one, other, path)}")


def _output_path(options: argparse.Namespace) -> Path:
    """Where to write, checked before the libraries are read."""
    require_matplotlib()
    default = Path(f"ssp_{Path(options.one).stem}_{Path(options.other).stem}.png")
    path = check_picture_suffix(default if options.output is None else options.output)
    if options.output is None and path.exists():
        raise ConfigError(f"{path} exists; to replace it, say so: --output {path}")
    check_separate([path], (("A", locate(options.one)), ("B", locate(options.other))), "--output")
    check_writable(path, 0)
    return path

"""The style of pictures: colours safe for colour-blind readers, fonts, units in words, and figures as files."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astropy import units

from rubix_like.errors import ConfigError, expect_path
from rubix_like.runtime.files.outputs import replacing
from rubix_like.runtime.files.writers import PICTURE, PICTURE_CREATOR, check_outputs
from rubix_like.runtime.optional_packages import import_optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES: tuple[str, ...] = (".png", ".pdf", ".svg")

INK: str = "#333333"

BAND_COLOR: str = "#fbe8b0"
"""Behind the spectra, where the narrow band is."""

SPAXEL_COLORS: tuple[str, ...] = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7a5195",
    "#8c6d31",
)
"""One colour per chosen spaxel, the first six of Okabe & Ito (2008), https://jfly.uni-koeln.de/color/."""

FIGURE_STYLE: Any = {
    "font.size": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "mathtext.default": "regular",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
"""matplotlib's rcParams of every picture."""


def import_matplotlib(module: str = "matplotlib") -> Any:
    """Matplotlib or a module of it, imported when a picture is drawn; ConfigError, with the remedy, without it."""
    return import_optional(module, "a picture")


@contextmanager
def styled_figure(size: tuple[float, float], title: str) -> "Iterator[Figure]":
    """A figure of that size (inches) below its title, while the style of our pictures holds."""
    style: Any = {"ha": "left", "fontsize": 11, "fontweight": "bold", "color": INK, "parse_math": False}
    with import_matplotlib().rc_context(FIGURE_STYLE):
        figure = import_matplotlib("matplotlib.figure").Figure(figsize=size, layout="constrained")
        figure.suptitle(title, x=0.01, **style)
        yield figure


@contextmanager
def saved_figure(path: Path, size: tuple[float, float], title: str, **options: Any) -> "Iterator[Figure]":
    """A figure as `styled_figure` makes it, to be drawn into.

    Where the block ends it is written as the path's ending says, whole or not at all, with rubix-like as its creator;
    `options` are those of matplotlib's `savefig`.
    """
    with styled_figure(size, title) as figure:
        yield figure
        with replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix[1:], metadata={"Creator": PICTURE_CREATOR}, **options)


def check_picture_suffix(path: str | Path, place: str = "path") -> Path:
    """`path` with ~ expanded; raises ConfigError that names `place` unless it ends in a format of SUFFIXES."""
    path = Path(expect_path(path, place)).expanduser()
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{place}: expected a name ending in {', '.join(SUFFIXES)}, got '{path.name}'")
    return path


def check_picture(path: str | Path, *, overwrite: bool) -> Path:
    """`path` as `check_picture_suffix` takes it; raises ConfigError where `check_outputs` refuses a picture there."""
    path = check_picture_suffix(path)
    check_outputs([path], [PICTURE], overwrite=overwrite)
    return path


def unit_label(unit: str) -> str:
    """A unit as it is written in a FITS file, for people: '10**-20 erg s-1 cm-2' as '10⁻²⁰ erg s⁻¹ cm⁻²'.

    A text that astropy does not know as a unit (or none) stays as it is.
    """
    try:
        return units.Unit(unit).to_string("unicode").removeprefix("1×") if unit.strip() else ""
    except ValueError:
        return unit


FLUX_LABEL: str = "10⁻²⁰ erg s⁻¹ cm⁻² Å⁻¹"
"""Unit of a spectrum, per spaxel."""

BAND_LABEL: str = "10⁻²⁰ erg s⁻¹ cm⁻² Å⁻¹ arcsec⁻²"
"""Unit of a narrow-band image."""

LIGHT_LABEL: str = "10⁻²⁰ erg s⁻¹ cm⁻² arcsec⁻²"
"""Unit of a white-light image."""

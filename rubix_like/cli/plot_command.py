"""The command `rubix-like plot`: a cube as a picture or as a page for the browser, maps and results as pictures."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rubix_like.cli.options import read_stated
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import cube_of, read_observed
from rubix_like.errors import ConfigError
from rubix_like.inference.results.result_pictures import (
    FIT_PICTURES,
    SAMPLE_PICTURES,
    save_fit_pictures,
    save_sample_pictures,
)
from rubix_like.plots.figure import MAPS_PICTURES, save_figure, save_maps
from rubix_like.plots.images import Choice, check_choice, read_band, read_sky_images, read_spaxels
from rubix_like.plots.page import PAGE_BYTES, check_page_suffix, write_page
from rubix_like.plots.style import check_picture_suffix, import_matplotlib
from rubix_like.runtime.files.fits_opening import first_header
from rubix_like.runtime.files.outputs import beside, check_writable, given_files, with_addition
from rubix_like.runtime.files.writers import (
    CUBE,
    FIT,
    FOREIGN,
    LAYOUT_CARD,
    MAPS,
    PICTURE,
    SAMPLES,
    check_outputs,
    written_by_us,
)

LAYOUTS_READ: tuple[str, ...] = ("manga", "sami")
"""Layouts for other programs that `Cube.read` takes."""

PICTURED: Mapping[str, tuple[str, Callable[..., tuple[Path, ...]], tuple[str, ...]]] = {
    FIT: ("result of a fit", save_fit_pictures, FIT_PICTURES),
    SAMPLES: ("result of a sampling", save_sample_pictures, SAMPLE_PICTURES),
    MAPS: ("file of maps", save_maps, MAPS_PICTURES),
}
"""Kinds of files, beside cubes, that have separate pictures: what they are called, what draws them, and the ends of
the pictures' names."""


def plot(options: argparse.Namespace) -> None:
    """Draw what the options say; raises ConfigError, ValueError or OSError with the remedy."""
    path = Path(options.cube).expanduser()
    written = written_by_us(path)
    if written is not None and written.kind in PICTURED:
        _plot_other(*PICTURED[written.kind], path, options)
        return
    spaxels = read_spaxels(options.spaxel)
    band = None if options.band is None else read_band(options.band)
    stated = read_stated(options)
    layout = first_header(path)[LAYOUT_CARD] if written is not None and written.kind == FOREIGN else None
    is_ours = written is not None and (written.kind == CUBE or layout in LAYOUTS_READ)
    cube = cube_of(read_observed(path, **stated)) if stated or not is_ours else Cube.read(path)
    if options.html:
        output = check_page_suffix(options.output or beside(path, ".html"), "output")
    else:
        output = check_picture_suffix(options.output or beside(path, "_plot.png"), "output")
        import_matplotlib()
    check_writable(output, PAGE_BYTES if options.html else 0)
    read = given_files({"CUBE": path, "--maps": options.maps})
    check_outputs([output], [PICTURE], "output", read, overwrite=options.overwrite)
    maps, maps_path = None, Path(options.maps or beside(path, "_maps.fits"))
    if options.maps is not None or maps_path.is_file():
        images = read_sky_images(maps_path, cube.footprint, truth=options.html)
        # those of emission lines, and the truth, are for a page alone
        maps = images if options.html else tuple(image for image in images if not image.line)
    choice = Choice(spaxels, band, maps)
    check_choice(cube, choice)
    if options.html:
        print(f"Page: {write_page(cube, output, choice, overwrite=True)} (open it in a browser)")
    else:
        print(f"Picture: {save_figure(cube, output, choice, overwrite=True)}")


def _plot_other(
    kind: str, save: Callable[..., tuple[Path, ...]], ends: Sequence[str], path: Path, options: argparse.Namespace
) -> None:
    """The pictures of maps or a result, beside it or where `--output` says, its suffix theirs."""
    chosen = {"--spaxel": options.spaxel, "--band": options.band, "--maps": options.maps, "--html": options.html}
    for option, value in chosen.items():
        if value:
            raise ConfigError(f"{option}: expected a cube, got the {kind}, {path}; leave it out, or plot a cube")
    output = check_picture_suffix(options.output or beside(path, ".png"), "output")
    pictures = [output, *(with_addition(output, f"_{end}") for end in ends)]
    check_outputs(pictures, [PICTURE], "output", given_files({"CUBE": path}), overwrite=options.overwrite)
    import_matplotlib()
    check_writable(output, 0)
    for picture in save(path, output.with_suffix(""), suffix=output.suffix, overwrite=True):
        print(f"Picture: {picture}")

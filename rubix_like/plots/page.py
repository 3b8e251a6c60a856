"""A cube as one self-contained HTML page: maps, spectra of apertures, narrow bands, lines; no network, no libraries.

The page has every voxel, rounded to 16 bits or to the noise; large cubes in blocks. A spectrum is low + step * code.
Codes are stored as differences from bin to bin, and as two planes of bytes, because DEFLATE packs that best:
50 x 50 x 3681 voxels with their noise take about 15 MB of a page.
"""

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt16
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.cube.cube import Cube
from rubix_like.cube.files.default import META_CARDS
from rubix_like.cube.meta import OUTSIDE_SSP
from rubix_like.errors import ConfigError
from rubix_like.nebular.line_list import LINES
from rubix_like.physics.air import to_vacuum
from rubix_like.plots.images import Choice, SkyImage, check_choice, chosen_images, cube_title, scale_bar, sky_of
from rubix_like.plots.style import BAND_LABEL, FLUX_LABEL, SPAXEL_COLORS
from rubix_like.runtime.files.outputs import replacing
from rubix_like.runtime.files.writers import PICTURE, PICTURE_CREATOR, check_outputs
from rubix_like.runtime.notes import labelled

MASKED: int = 65535
"""The code of a masked voxel; good ones have 0 to 65534."""

FLUX_STEP: float = 1 / 32
"""Smallest step of the flux, in medians of a spectrum's sigma: rounding adds 8e-5 to its variance."""

SIGMA_STEP: float = 1 / 512
"""Smallest step of sigma, in the same: an error of at most 0.1 percent."""

UNPACKED: int = 4
"""The codes take at most so many times the page's limit in the browser's memory."""

_SAMPLED_ROWS = 6
"""Rows of the cube that are packed to find out how large the page will be."""


@dataclass(frozen=True)
class Blocks:
    """How many spaxels (along x and along y) and bins of the cube one spaxel and bin of the page stand for."""

    space: int
    wave: int

    def shape(self, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        """(y, x, wave) on the page of a cube of that shape; blocks at its ends may be smaller."""
        return -(-shape[0] // self.space), -(-shape[1] // self.space), -(-shape[2] // self.wave)


@dataclass(frozen=True)
class Layer:
    """Flux or sigma of every voxel of the page as low + step * code, per spaxel; `packed`: the codes (y, x, wave).

    The error of rounding is at most step / 2.
    """

    packed: bytes
    low: Float[ndarray, "y x"]
    step: Float[ndarray, "y x"]

    @property
    def text(self) -> str:
        """The packed codes as base64."""
        return base64.b64encode(self.packed).decode("ascii")


Layers = tuple[Layer, Layer | None]
"""Flux, and sigma where there is a noise model."""


def page_layers(cube: Cube, limit: int) -> tuple[Blocks, Layers]:
    """Flux and sigma within `limit` bytes of base64, in the smallest blocks that do it."""
    n_layers = 1 if cube.variance is None else 2
    rate = _bytes_per_voxel(cube, n_layers)
    while True:
        blocks = choose_blocks(cube.shape, n_layers, rate, limit)
        layers = block_layers(cube, blocks)
        size = sum(4 / 3 * len(layer.packed) for layer in layers if layer)
        voxels = np.prod(blocks.shape(cube.shape))
        if size <= limit or voxels == 1:
            return blocks, layers
        rate = 1.05 * max(rate, float(size / voxels))


def choose_blocks(shape: tuple[int, int, int], n_layers: int, rate: float, limit: int) -> Blocks:
    """The blocks that keep most of a cube (y, x, wave), at `rate` bytes of the page per voxel, within `limit` bytes.

    They have the smallest larger factor, and of these the smallest in space. The codes (two bytes per layer and voxel)
    are within `UNPACKED` times the limit as well.
    """

    def fits(space: int, wave: int) -> bool:
        voxels = float(np.prod(Blocks(space, wave).shape(shape), dtype=np.float64))
        return rate * voxels <= limit and 2 * n_layers * voxels <= UNPACKED * limit

    largest = max(shape)
    for factor in range(1, largest + 1):
        pairs = [(space, factor) for space in range(1, factor)] + [(factor, wave) for wave in range(1, factor + 1)]
        fitting = [pair for pair in pairs if fits(*pair)]
        if fitting:
            return Blocks(*min(fitting))
    return Blocks(largest, largest)


def block_layers(cube: Cube, blocks: Blocks) -> Layers:
    """Flux and sigma: means over the good voxels of every block, sigma = sqrt(sum of the variances) / their number.

    The voxels' noise is taken as independent.
    """
    n_y = cube.shape[0]
    packers = (_Packer(FLUX_STEP), _Packer(SIGMA_STEP))
    for flux, sigma in _block_rows(cube, blocks, range(0, n_y, blocks.space)):
        for packer, values in zip(packers, (flux, sigma), strict=True):
            if values is not None:
                packer.add(values, sigma)
    flux_layer, sigma_layer = (packer.layer() for packer in packers)
    assert flux_layer is not None
    return flux_layer, sigma_layer


def _bytes_per_voxel(cube: Cube, n_layers: int) -> float:
    """Bytes of base64 per voxel of all layers, measured on some rows of the cube."""
    n_y, n_x, n_wave = cube.shape
    rows = np.unique(np.linspace(0, n_y - 1, _SAMPLED_ROWS).astype(int))
    packers = [_Packer(step) for step in (FLUX_STEP, SIGMA_STEP)[:n_layers]]
    for values in _block_rows(cube, Blocks(1, 1), rows.tolist()):
        for packer, value in zip(packers, values, strict=False):
            if value is not None:
                packer.add(value, values[1])
    packed = sum(len(layer.packed) for layer in (packer.layer() for packer in packers) if layer)
    return 4 / 3 * packed / (rows.size * n_x * n_wave)


BlockRow = tuple[Float[ndarray, "block bin"], Float[ndarray, "block bin"] | None]
"""Flux and sigma of a row of blocks, NaN where there is none."""


def _block_rows(cube: Cube, blocks: Blocks, starts: Any) -> Iterator[BlockRow]:
    """The rows of blocks that begin at these rows of the cube."""
    _, n_x, n_wave = cube.shape
    columns, bins = np.arange(0, n_x, blocks.space), np.arange(0, n_wave, blocks.wave)
    widths = np.diff(cube.wave_edges)
    for start in starts:
        rows = slice(start, start + blocks.space)
        flux = np.asarray(cube.flux[rows], dtype=np.float64)
        good = np.asarray(cube.mask[rows]) == 0
        width = _sums(good * widths, columns, bins)
        least = np.where(width > 0, width, 1.0)
        mean = np.where(width > 0, _sums(np.where(good, flux * widths, 0.0), columns, bins) / least, np.nan)
        if cube.variance is None:
            yield mean, None
            continue
        variance = np.asarray(cube.variance[rows], dtype=np.float64)
        known = np.where(np.isfinite(variance) & (variance >= 0), variance, np.nan)
        total = _sums(np.where(good, known * widths**2, 0.0), columns, bins)
        yield mean, np.where(width > 0, np.sqrt(total) / least, np.nan)


def _sums(slab: Float[ndarray, "row x wave"], columns: ndarray, bins: ndarray) -> Float[ndarray, "block bin"]:
    return np.add.reduceat(np.add.reduceat(slab.sum(axis=0), columns, axis=0), bins, axis=1)


class _Packer:
    """One layer, packed row by row."""

    def __init__(self, smallest_step: float) -> None:
        self._smallest_step = smallest_step
        self._stream = zlib.compressobj(6)
        self._packed = bytearray()
        self._numbers: list[tuple[ndarray, ndarray]] = []

    def add(self, values: Float[ndarray, "block bin"], sigma: Float[ndarray, "block bin"] | None) -> None:
        """Take the next row."""
        noise = np.zeros(len(values))  # 0 where a row has no value
        if sigma is not None:
            known = np.isfinite(sigma).any(axis=1)
            noise[known] = np.nanmedian(sigma[known], axis=1)
        codes, low, step = _encode(values, self._smallest_step * noise)
        self._numbers.append((low, step))
        self._packed += self._stream.compress(_planes(codes))

    def layer(self) -> Layer | None:
        """The layer that was added; None for none."""
        if not self._numbers:
            return None
        self._packed += self._stream.flush()
        low, step = (np.stack(parts) for parts in zip(*self._numbers, strict=True))
        return Layer(bytes(self._packed), low, step)


def _encode(
    values: Float[ndarray, "block bin"], smallest: Float[ndarray, " block"]
) -> tuple[UInt16[ndarray, "block bin"], Float[ndarray, " block"], Float[ndarray, " block"]]:
    """Codes, lowest value and step of every row: 1 / 65534 of its range, or `smallest` if that is more."""
    found = np.isfinite(values)
    low = np.where(found.any(axis=1), np.min(values, axis=1, where=found, initial=np.inf), 0.0)
    high = np.where(found.any(axis=1), np.max(values, axis=1, where=found, initial=-np.inf), 0.0)
    step = np.maximum((high - low) / (MASKED - 1), smallest)
    step = np.where(step > 0, step, 1.0)
    codes = np.rint((np.where(found, values, low[:, None]) - low[:, None]) / step[:, None])
    return np.where(found, codes, MASKED).astype(np.uint16), low, step


def _planes(codes: UInt16[ndarray, "block bin"]) -> bytes:
    """High bytes, then low bytes, of the differences along a row, folded so that small ones of both signs are small."""
    differences = np.diff(codes.astype(np.int32), axis=1, prepend=0).astype(np.int16).astype(np.int32)
    folded = ((differences << 1) ^ (differences >> 15)).astype(np.uint16)
    return (folded >> 8).astype(np.uint8).tobytes() + (folded & 0xFF).astype(np.uint8).tobytes()


PAGE_BYTES: int = 32_000_000
"""Largest size of the packed numbers in a page: a browser opens it within seconds."""

SCRIPTS: tuple[str, ...] = (
    "drawing.js",
    "colors.js",
    "numbers.js",
    "sky.js",
    "lines.js",
    "image.js",
    "spectrum.js",
    "pointers.js",
    "export.js",
    "main.js",
)
"""The page's program, in the order in which it is read."""

EMISSION: tuple[str, ...] = (
    *("Ha", "[O III] 5007", "Hb", "[O II] 3729", "[N II] 6583", "[S II] 6716", "[S II] 6731", "[S III] 9531", "Hg"),
    *("[O III] 4959", "[N II] 6548", "[O II] 3726", "[O I] 6300", "Hd", "[S III] 9069", "[Ne III] 3869", "He I 5876"),
    *("He II 4686", "[O III] 4363", "[Ar III] 7136", "[N I] 5200", "C III] 1909", "He II 1640", "Paa", "Pab", "Brg"),
    "He I 10830",
)
"""The emission lines that a page marks; where names have no room, the first ones have them."""

ABSORPTION: tuple[tuple[str, float], ...] = (
    *(("Ca K", 3933.66), ("Ca H", 3968.47), ("G band", 4304.4)),
    *(("Mg b", 5167.32), ("Mg b", 5172.68), ("Mg b", 5183.60), ("Fe 5270", 5269.54)),
    *(("Na D", 5889.95), ("Na D", 5895.92), ("Ca T", 8498.02), ("Ca T", 8542.09), ("Ca T", 8662.14)),
)
"""The absorption lines that a page marks: names and wavelengths in air (NIST Atomic Spectra Database; the G band of CH,
a blend, where the SDSS's table of lines has it)."""

_WEB = Path(__file__).resolve().parent / "web"

_PLACE = re.compile(r"\{\{(\w+)\}\}")


@named_arguments
def write_page(
    cube: Cube, path: str | Path, choice: Choice | None = None, limit: int = PAGE_BYTES, *, overwrite: bool = False
) -> Path:
    """Write the page of a cube, which starts with the spaxels and the band of `choice`, and return its path.

    A cube whose numbers would take more than `limit` bytes is averaged in blocks, and the page says so. Voxels that are
    no number count as masked. An earlier page of rubix_like is replaced; any other file only with `overwrite`.
    Raises ConfigError (the name does not end in .html, a spaxel or band outside the cube),
    OSError if the file cannot be written.
    """
    path = check_page_suffix(path)
    check_outputs([path], [PICTURE], overwrite=overwrite)
    choice = choice or Choice()
    check_choice(cube, choice)
    mask = np.asarray(cube.mask)
    wrong = ~np.isfinite(np.asarray(cube.flux)) & (mask == 0)
    cube = replace(cube, mask=np.where(wrong, mask | OUTSIDE_SSP, mask)) if wrong.any() else cube
    images = chosen_images(cube, replace(choice, band=None))
    blocks, layers = page_layers(cube, limit)
    values = [_block_image(image, blocks.space) for image in images]
    script = "\n".join(_read(name) for name in SCRIPTS)
    style = _read("page.css")
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    pins = dict.fromkeys((x // blocks.space, y // blocks.space) for x, y in choice.spaxels)
    start = {"pins": list(pins), "band": choice.band}
    data = json.dumps({**page_values(cube, values, blocks, layers), "start": start}, allow_nan=False)
    n_y, n_x, n_wave = cube.shape
    edges = cube.bins.edges
    parts = {
        # run this script, use this style, fetch nothing
        "policy": f"default-src 'none'; img-src data:; base-uri 'none'; script-src 'sha256-{hashes[0]}'; "
        f"style-src 'sha256-{hashes[1]}'",
        "creator": PICTURE_CREATOR,
        "title": html.escape(cube_title(cube)),
        "subtitle": html.escape(
            f"{n_x} x {n_y} spaxels of {cube.pixel_scale:g}″, {n_wave} bins from {edges[0]:.2f} to {edges[-1]:.2f} "
            f"Å ({cube.bins.medium}, {cube.bins.sampling})"
        ),
        "notes": _notes(blocks, cube),
        "medium": cube.bins.medium,
        "facts": _facts(cube),
        "style": style,
        "script": script,
        "data": data.replace("<", "\\u003c"),  # cannot end the element it stands in
        "images": _packed(np.stack([image.values for image in values]), "<f4"),
        "flux": layers[0].text,
        "sigma": "" if layers[1] is None else layers[1].text,
    }
    text = _PLACE.sub(lambda found: parts[found[1]], _read("page.html"))
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def page_values(
    cube: Cube, images: Sequence[SkyImage], blocks: Blocks, layers: tuple[Layer, Layer | None]
) -> dict[str, Any]:
    """Everything but the codes and the values of the images, ready for JSON."""
    sky, starts = sky_of(cube), np.arange(0, cube.shape[2], blocks.wave)
    left, _, bottom, _ = sky.extent
    n_y, n_x, n_wave = blocks.shape(cube.shape)
    side = blocks.space * cube.pixel_scale
    length, label = scale_bar(sky)
    edges, wavelength = cube.bins.edges, cube.bins.wavelength
    ends, widths = np.append(edges[starts], edges[-1]), np.diff(edges)
    absorbed = to_vacuum(np.array([wavelength for _, wavelength in ABSORPTION])).tolist()
    numbers = [layer and {"low": _packed(layer.low, "<f8"), "step": _packed(layer.step, "<f8")} for layer in layers]
    return {
        "title": cube_title(cube),
        "n_x": n_x,
        "n_y": n_y,
        "n_wave": n_wave,
        "masked": MASKED,
        "block": blocks.space,
        "cube_n_x": sky.n_x,
        "cube_n_y": sky.n_y,
        "pixel_scale": cube.pixel_scale,
        "extent": (left, left - n_x * side, bottom, bottom + n_y * side),
        "scale_bar": {"arcsec": length, "label": label},
        "medium": cube.bins.medium,
        "flux_unit": FLUX_LABEL,
        "band_unit": BAND_LABEL,
        "spaxel_colors": SPAXEL_COLORS,
        "wavelength": _packed(np.add.reduceat(widths * wavelength, starts) / np.diff(ends), "<f8"),
        "edges": _packed(ends, "<f8"),
        "images": [
            {"title": image.title, "unit": image.unit, "kind": image.kind, "line": image.line, "scale": _scale(image)}
            for image in images
        ],
        "flux": numbers[0],
        "sigma": numbers[1],
        "lines": [
            *({"name": name, "rest": LINES[name].wavelength, "kind": "emission"} for name in EMISSION),
            *(
                {"name": name, "rest": rest, "kind": "absorption"}
                for (name, _), rest in zip(ABSORPTION, absorbed, strict=True)
            ),
        ],
        "matrix": sky.matrix,
        "center": sky.center,
        **{key: float(cube.meta.get(key) or 0.0) for key in ("ra", "dec", "redshift")},
        "north_is_up": sky.north_is_up,
        "directions": sky.directions(),
    }


def _block_image(image: SkyImage, block: int) -> SkyImage:
    """An image of the mean of the values in every block."""
    columns, rows = (np.arange(0, n, block) for n in image.values.shape[::-1])
    found = np.isfinite(image.values)
    total, count = (
        np.add.reduceat(np.add.reduceat(np.where(found, values, 0.0), rows, axis=0), columns, axis=1)
        for values in (image.values, np.ones(image.values.shape))
    )
    return replace(image, values=np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _scale(image: SkyImage) -> dict[str, Any]:
    scale = image.scale
    stretch = "log" if scale.logarithmic else "linear"
    return {"colors": scale.colors, "low": scale.low, "high": scale.high, "stretch": stretch}


def _packed(values: Float[ndarray, "..."], kind: str) -> str:
    """Numbers as base64 of a DEFLATE stream of them."""
    data = zlib.compress(np.ascontiguousarray(values, dtype=kind).tobytes())
    return base64.b64encode(data).decode("ascii")


def check_page_suffix(path: str | Path, place: str = "path") -> Path:
    """`path` with ~ expanded; raises ConfigError that names `place` unless it ends in .html."""
    path = Path(path).expanduser()
    if path.suffix != ".html":
        raise ConfigError(f"{place}: expected a name ending in .html for a page, got '{path.name}'")
    return path


def _read(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")


def _notes(blocks: Blocks, cube: Cube) -> str:
    """Notes on what the page leaves out."""
    if blocks == Blocks(1, 1):
        return ""
    averaged = [f"{blocks.space} x {blocks.space} spaxels"] if blocks.space > 1 else []
    averaged += [f"{blocks.wave} bins"] if blocks.wave > 1 else []
    n_y, n_x, n_wave = blocks.shape(cube.shape)
    return (
        f'<p class="note">To keep this page small its numbers are means over {" and ".join(averaged)} of the cube '
        f"(per spaxel of the cube, in the same units; the file has them all): {n_x} x {n_y} spaxels, {n_wave} bins.</p>"
    )


def _facts(cube: Cube) -> str:
    """The run as rows of a table, escaped."""
    of_range = f"1/{2 * (MASKED - 1)} of the range of a spectrum"
    rounding = f"rounded by at most {of_range}"
    if cube.variance is not None:
        flux, sigma = (round(2 / step) for step in (FLUX_STEP, SIGMA_STEP))
        rounding = (
            f"flux rounded by at most 1/{flux}, σ by 1/{sigma} of a spectrum's median σ, or by {of_range} if more"
        )
    rows: list[tuple[str, str, Any]] = [("numbers of this page", "", rounding)]
    rows += [(key.replace("_", " "), comment, cube.meta.get(key)) for _, key, comment in META_CARDS]
    rows += [(label.lower(), "", text) for label, text in labelled(cube.meta.notes)]
    return "".join(
        f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(str(value))}</td>"
        f"<td>{html.escape(comment)}</td></tr>"
        for name, comment, value in rows
        if value is not None
    )

"""A cube as one self-contained HTML page: image, spectrum under the cursor, narrow bands; no network, no libraries.

The page holds 16 bits per voxel, in blocks where the cube is large.
"""

import base64
import hashlib
import html
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt16
from numpy import ndarray

from rubix_like.cube.cube import Cube
from rubix_like.cube.files.default import META_CARDS
from rubix_like.errors import ConfigError
from rubix_like.plots.choice import Choice, check_choice, chosen_images
from rubix_like.plots.derived import SkyImage
from rubix_like.plots.sky_offsets import cube_title, scale_bar, sky_of
from rubix_like.plots.style import BAND_LABEL, FLUX_LABEL, SPAXEL_COLORS
from rubix_like.runtime.files.outputs import replacing

PAGE_BYTES: int = 24_000_000
"""Largest size of the numbers in a page: a browser opens it within seconds."""

MASKED: int = 65535
"""The code of a masked voxel; good ones have 0 to 65534."""


@dataclass(frozen=True)
class Blocks:
    """How many spaxels (along x and along y) and bins of the cube one spaxel and bin of the page stand for."""

    space: int
    wave: int


@dataclass(frozen=True)
class Layer:
    """Flux or sigma of every voxel of the page as low + step * code, per spaxel; `codes` in the order y, x, wave.

    The error of rounding is at most step / 2: 1 / 131068 of the spaxel's range.
    """

    codes: UInt16[ndarray, "y x wave"]
    low: Float[ndarray, "y x"]
    step: Float[ndarray, "y x"]


def choose_blocks(shape: tuple[int, int, int], n_layers: int, n_images: int, limit: int = PAGE_BYTES) -> Blocks:
    """The blocks that keep most of a cube (y, x, wave) within `limit` bytes: the smallest larger factor, then in space.

    base64 takes 4 bytes for 3.
    """
    n_y, n_x, n_wave = shape
    largest = max(shape)

    def size(space: int, wave: int) -> float:
        spaxels = -(-n_y // space) * -(-n_x // space)
        return 4 / 3 * (spaxels * (n_layers * (2 * -(-n_wave // wave) + 16) + 4 * n_images) + 16 * n_wave / wave)

    for factor in range(1, largest + 1):
        pairs = [(space, factor) for space in range(1, factor)] + [(factor, wave) for wave in range(1, factor + 1)]
        fitting = [pair for pair in pairs if size(*pair) <= limit]
        if fitting:
            return Blocks(*min(fitting))
    return Blocks(largest, largest)


def block_layers(cube: Cube, blocks: Blocks) -> tuple[Layer, Layer | None]:
    """Flux and sigma: means over the good voxels of every block, sigma = sqrt(sum of the variances) / their number.

    The voxels' noise is taken as independent. Sigma is None without a noise model.
    """
    n_y, n_x, n_wave = np.shape(cube.flux)
    columns, bins = np.arange(0, n_x, blocks.space), np.arange(0, n_wave, blocks.wave)
    layers: tuple[list[Any], list[Any]] = ([], [])
    for row in range(0, n_y, blocks.space):
        rows = slice(row, row + blocks.space)
        good = np.asarray(cube.mask[rows]) == 0
        count = _sums(good.astype(np.float64), columns, bins)
        seen = count > 0
        total = _sums(np.where(good, np.asarray(cube.flux[rows], dtype=np.float64), 0.0), columns, bins)
        layers[0].append(_encode(np.where(seen, total / np.maximum(count, 1), np.nan)))
        if cube.variance is not None:
            variance = _sums(np.where(good, np.asarray(cube.variance[rows], dtype=np.float64), 0.0), columns, bins)
            layers[1].append(_encode(np.where(seen, np.sqrt(variance) / np.maximum(count, 1), np.nan)))
    flux, sigma = (_layer(rows) if rows else None for rows in layers)
    assert flux is not None
    return flux, sigma


def page_values(cube: Cube, images: tuple[SkyImage, ...], blocks: Blocks, layers: tuple[Layer, Layer | None]) -> dict:
    """Everything but the codes, ready for JSON."""
    sky, starts = sky_of(cube), np.arange(0, np.shape(cube.flux)[2], blocks.wave)
    left, _, bottom, _ = sky.extent
    n_y, n_x, n_wave = layers[0].codes.shape
    side = blocks.space * cube.pixel_scale
    length, label = scale_bar(sky)
    edges, wavelength = cube.bins.edges, cube.bins.wavelength
    counts = np.diff(np.append(starts, len(wavelength)))
    numbers = [layer and {"low": _base64(layer.low, "<f8"), "step": _base64(layer.step, "<f8")} for layer in layers]
    return {
        "n_x": n_x,
        "n_y": n_y,
        "n_wave": n_wave,
        "block": blocks.space,
        "cube_n_x": sky.n_x,
        "cube_n_y": sky.n_y,
        "pixel_scale": cube.pixel_scale,
        "matrix": sky.matrix,
        "center": sky.center,
        "ra": float(cube.meta.get("ra") or 0.0),
        "dec": float(cube.meta.get("dec") or 0.0),
        "north_is_up": sky.north_is_up,
        "extent": (left, left - n_x * side, bottom, bottom + n_y * side),
        "directions": sky.directions(),
        "scale_bar": {"arcsec": length, "label": label},
        "medium": cube.bins.medium,
        "flux_unit": FLUX_LABEL,
        "band_unit": BAND_LABEL,
        "spaxel_colors": SPAXEL_COLORS,
        "wavelength": _base64(np.add.reduceat(wavelength, starts) / counts, "<f8"),
        "edges": _base64(np.append(edges[starts], edges[-1]), "<f8"),
        "images": [_image_values(image, blocks.space) for image in images],
        "flux": numbers[0],
        "sigma": numbers[1],
    }


def codes_text(layer: Layer | None) -> str:
    """The codes of a layer as base64 of little-endian 16-bit numbers; nothing for no layer."""
    return "" if layer is None else _base64(layer.codes, "<u2")


def _image_values(image: SkyImage, block: int) -> dict[str, Any]:
    """An image as the mean of the values in every block, with its scale."""
    columns, rows = (np.arange(0, n, block) for n in image.values.shape[::-1])
    found = np.isfinite(image.values)
    total, count = (
        np.add.reduceat(np.add.reduceat(np.where(found, values, 0.0), rows, axis=0), columns, axis=1)
        for values in (image.values, np.ones(image.values.shape))
    )
    values = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    scale = SkyImage(image.title, values, image.unit, image.kind).scale
    return {
        "title": image.title,
        "unit": image.unit,
        "kind": image.kind,
        "line": image.line,
        "scale": vars(scale),
        "values": _base64(values, "<f4"),
    }


def _sums(slab: Float[ndarray, "row x wave"], columns: ndarray, bins: ndarray) -> Float[ndarray, "block bin"]:
    return np.add.reduceat(np.add.reduceat(slab.sum(axis=0), columns, axis=0), bins, axis=1)


def _encode(values: Float[ndarray, "block bin"]) -> tuple[ndarray, ndarray, ndarray]:
    """Codes, lowest value and step of every row; 0 and 1 where a row has no value."""
    found = np.isfinite(values)
    low = np.where(found.any(axis=1), np.min(values, axis=1, where=found, initial=np.inf), 0.0)
    high = np.where(found.any(axis=1), np.max(values, axis=1, where=found, initial=-np.inf), 0.0)
    step = np.where(high > low, (high - low) / (MASKED - 1), 1.0)
    codes = np.rint((np.where(found, values, low[:, None]) - low[:, None]) / step[:, None])
    return np.where(found, codes, MASKED).astype(np.uint16), low, step


def _layer(rows: list[tuple[ndarray, ndarray, ndarray]]) -> Layer:
    codes, low, step = (np.stack(parts) for parts in zip(*rows, strict=True))
    return Layer(codes, low, step)


def _base64(values: ndarray, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


SCRIPTS: tuple[str, ...] = ("data.js", "colors.js", "axes.js", "image.js", "spectrum.js", "main.js")
"""The page's program, in the order in which it is read."""

_WEB = Path(__file__).resolve().parent / "web"

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def write_page(cube: Cube, path: str | Path, choice: Choice | None = None, limit: int = PAGE_BYTES) -> Path:
    """Write the page of a cube, which starts with the spaxels and the band of `choice`, and return its path.

    A cube whose numbers would take more than `limit` bytes is averaged in blocks, and the page says so. Raises
    ConfigError (the name does not end in .html, a spaxel or band outside the cube), OSError if the file cannot be
    written.
    """
    path = check_page_suffix(path)
    choice = choice or Choice()
    check_choice(cube, choice)
    images = chosen_images(cube, replace(choice, band=None))
    n_layers = 1 if cube.variance is None else 2
    blocks = choose_blocks(cube.shape, n_layers, len(images), limit)
    layers = block_layers(cube, blocks)
    script = "\n".join(_read(name) for name in SCRIPTS)
    style = _read("page.css")
    parts = {
        "policy": _policy(script, style),
        "title": html.escape(cube_title(cube)),
        "subtitle": html.escape(_subtitle(cube)),
        "notes": _notes(blocks),
        "medium": cube.bins.medium,
        "facts": _facts(cube),
        "style": style,
        "script": script,
        "data": _json({**page_values(cube, images, blocks, layers), "start": _start(choice, blocks)}),
        "flux": codes_text(layers[0]),
        "sigma": codes_text(layers[1]),
    }
    text = _PLACE.sub(lambda found: parts[found[1]], _read("page.html"))
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _start(choice: Choice, blocks: Blocks) -> dict:
    """What the page shows when it opens: pinned spaxels of the page and the band."""
    pins = dict.fromkeys((x // blocks.space, y // blocks.space) for x, y in choice.spaxels)
    return {"pins": list(pins), "band": choice.band}


def check_page_suffix(path: str | Path) -> Path:
    """`path` with ~ expanded; raises ConfigError unless it ends in .html."""
    path = Path(path).expanduser()
    if path.suffix != ".html":
        raise ConfigError(f"--output: expected a name ending in .html for a page, got '{path.name}'")
    return path


def _read(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """What the browser may do: run this script, use this style, fetch nothing."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style))
    program, looks = (f"'sha256-{value}'" for value in hashes)
    return f"default-src 'none'; img-src data:; base-uri 'none'; script-src {program}; style-src {looks}"


def _json(values: dict) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(values, allow_nan=False).replace("<", "\\u003c")


def _subtitle(cube: Cube) -> str:
    n_y, n_x, n_wave = np.shape(cube.flux)
    edges = cube.bins.edges
    return (
        f"{n_x} x {n_y} spaxels of {cube.pixel_scale:g}″, {n_wave} bins from {edges[0]:.2f} to {edges[-1]:.2f} Å "
        f"({cube.bins.medium}, {cube.bins.sampling})"
    )


def _notes(blocks: Blocks) -> str:
    """Notes on what the page leaves out."""
    if blocks == Blocks(1, 1):
        return ""
    averaged = []
    if blocks.space > 1:
        averaged.append(f"{blocks.space} x {blocks.space} spaxels")
    if blocks.wave > 1:
        averaged.append(f"{blocks.wave} bins")
    return (
        f'<p class="note">To keep this page small its numbers are means over {" and ".join(averaged)} of the cube '
        f"(per spaxel of the cube, in the same units; the file has them all).</p>"
    )


def _facts(cube: Cube) -> str:
    """The run as rows of a table, escaped."""
    rows = [(key.replace("_", " "), comment, cube.meta.get(key)) for _, key, comment in META_CARDS]
    rows += [("note", "", value) for key, value in cube.meta.items() if key.startswith("note_")]
    return "".join(
        f"<tr><th scope=row>{html.escape(name)}</th><td>{html.escape(str(value))}</td>"
        f"<td>{html.escape(comment)}</td></tr>"
        for name, comment, value in rows
        if value is not None
    )

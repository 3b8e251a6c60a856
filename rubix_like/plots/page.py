"""A cube as one self-contained HTML page: image, spectrum under the cursor, narrow bands; no network, no libraries."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from rubix_like.cube.cube import Cube
from rubix_like.cube.files.default import META_CARDS
from rubix_like.errors import ConfigError
from rubix_like.plots.choice import Choice, check_choice, chosen_images
from rubix_like.plots.page_data import PAGE_BYTES, Blocks, block_layers, choose_blocks, codes_text, page_values
from rubix_like.plots.sky_offsets import cube_title
from rubix_like.runtime.files.outputs import replacing

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

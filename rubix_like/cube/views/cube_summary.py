"""A cube in one line of text, and as a table with a small picture of its light in a notebook."""

import struct
import zlib
from typing import Any

import numpy as np
from jax.core import Tracer

from rubix_like.cube.cube import Cube
from rubix_like.cube.meta import RUN_WORDS
from rubix_like.runtime.notes import note_lines
from rubix_like.runtime.words import html_table

_LARGEST = 128
"""Pixels along a side of the picture, from larger fields of which every n-th row and column is taken."""

_MOST_BYTES = 1 << 28
"""Of a larger cube there is no picture: its white light would take too long."""

_FAINTEST = 1e-3
"""Light below this share of the brightest spaxel's is black."""


def cube_words(cube: Cube) -> str:
    """`Cube(25 x 25 spaxels of 0.2 arcsec, 3681 bins from 4749.90 to 9351.15 Angstrom, noise)`."""
    edges, noise = cube.wave_edges, "with variance" if cube.variance is not None else "no variance"
    return (
        f"Cube({cube.n_x} x {cube.n_y} spaxels{_scale(cube)}, {cube.bins.n_wave} bins from {edges[0]:.2f} to "
        f"{edges[-1]:.2f} Angstrom ({cube.medium}), {noise}{'' if cube.maps is None else ', with maps'})"
    )


def _scale(cube: Cube) -> str:
    """How wide spaxels are; nothing inside of a compiled function, where that is not known."""
    width = cube.footprint.pixel_scale
    return "" if isinstance(width, Tracer) else f" of {float(width):g} arcsec"


def cube_html(cube: Cube) -> str:
    """The run, axes and notes as a table, beside a small picture of the light."""
    edges, is_traced = cube.wave_edges, isinstance(cube.flux, Tracer)
    rows = [
        ("spaxels", f"{cube.n_x} x {cube.n_y}{_scale(cube)}"),
        ("wavelengths", f"{cube.bins.n_wave} bins, {edges[0]:.2f}-{edges[-1]:.2f} Å ({cube.medium}, {cube.sampling})"),
        ("flux", f"{np.dtype(cube.flux.dtype)}, 1e-20 erg/s/cm2/Å"),
        ("variance", "none (no noise model)" if cube.variance is None else "yes"),
        *([("maps", "yes: cube.map('velocity')")] if cube.maps is not None else []),
        *((words, str(cube.meta[key])) for key, words in RUN_WORDS.items() if cube.meta.get(key) not in (None, "")),
    ]
    picture = None if is_traced or cube.flux.nbytes > _MOST_BYTES else _light_png(cube)
    return html_table("Cube", rows, notes=note_lines(cube.meta.notes), picture=picture)


def _light_png(cube: Cube) -> bytes:
    """White light as a small grey PNG, by the logarithm over three decades, North up where the field is not turned."""
    step = -(-max(cube.n_x, cube.n_y) // _LARGEST)
    flux, mask = (np.asarray(values[::step, ::step]) for values in (cube.flux, cube.mask))
    light = np.sum(flux, axis=2, where=mask == 0, dtype=np.float64)
    brightest = max(light.max(initial=0.0), np.finfo(float).tiny)
    level = 1 - np.log10(np.clip(light / brightest, _FAINTEST, 1.0)) / np.log10(_FAINTEST)
    level = level[::-1]
    height, width = level.shape
    rows = np.zeros((height, width + 1), np.uint8)  # each row begins with the number of its filter: none
    rows[:, 1:] = np.round(255 * level)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts: tuple[tuple[bytes, Any], ...] = (
        (b"IHDR", head),
        (b"IDAT", zlib.compress(rows.tobytes(), 6)),
        (b"IEND", b""),
    )
    png = b"\x89PNG\r\n\x1a\n"
    for kind, content in parts:
        png += struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return png

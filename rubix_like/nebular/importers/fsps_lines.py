"""FSPS' tables of nebular lines (MIT), computed with Cloudy for its stellar spectra: files nebular/ZAU_*.lines.

Byler et al. 2017, ApJ 840, 44. A text file: a comment ("#166 cols 770 rows ..."), vacuum wavelengths, then two lines
per model: log10(Z/Zsun), age (yr) and log U, and each line's luminosity (Lsun) per ionising photon per second.
"""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rubix_like.errors import ConfigError
from rubix_like.nebular.table_file import NebularTable, assembled, matched_lines
from rubix_like.runtime.files.foreign_layouts import SourceFormat

FILE = "nebular/ZAU_ND_mist.lines"
"""In the folder of FSPS: without dust, for MIST's stars."""

LSUN = 3.839e33
"""erg/s, FSPS' own value."""

SOLAR_OXYGEN = 8.71
"""12 + log10(O/H) of the gas at Zsun, depletion onto dust (0.22 dex) taken off (Byler et al. 2017, table 1)."""

SOLAR_METALLICITY = 0.0142

DENSITY = 100.0
"""Hydrogen atoms per cm^3 in all models."""

LONGEST = 1 << 26
"""Bytes; the real files have 1 MB."""


def get_fsps_lines(report: Callable[[str], None]) -> NebularTable:
    """The table of the user's own FSPS, in the folder $SPS_HOME; ConfigError where there is none."""
    home = os.environ.get("SPS_HOME")
    path = Path(home or "").expanduser() / FILE
    if not home or not path.is_file():
        raise ConfigError(
            f"nebular get fsps: expected the file {FILE} in the folder $SPS_HOME, got "
            f"{f'no file {path}' if home else 'no SPS_HOME'}: get FSPS with its data (git clone "
            "https://github.com/cconroy20/fsps.git) and set SPS_HOME to that folder, or: rubix-like nebular import FILE"
        )
    report(f"reading {path}")
    return read_fsps_lines(path)


def _is_fsps_lines(path: Path) -> bool:
    return _beginning(path).startswith(b"#") and b" logZ " in _beginning(path) and b"logU" in _beginning(path)


def read_fsps_lines(path: Path) -> NebularTable:
    """A table of FSPS; lines that are not in our list are left out, blends among them."""
    packed = path.read_bytes()[:2] == b"\x1f\x8b"
    with gzip.open(path) if packed else path.open("rb") as file:
        rows = file.read(LONGEST).decode("ascii").splitlines()
    wavelength = np.array(rows[1].split(), dtype=np.float64)
    nodes = np.array([row.split() for row in rows[2::2]], dtype=np.float64)
    light = np.array([row.split() for row in rows[3::2]], dtype=np.float64) * LSUN
    given = [np.unique(nodes[:, column]) for column in range(3)]
    shape = tuple(map(len, given))
    if light.shape != (np.prod(shape), len(wavelength)) or not np.array_equal(nodes[:, 1] > 0, np.ones(len(nodes))):
        raise ValueError(
            f"{path}: expected {np.prod(shape)} models of {len(wavelength)} lines at ages beyond 0, got {light.shape}"
        )
    table = light[np.lexsort(nodes.T[::-1])].reshape(*shape, -1)
    lines = {name: table[..., place] for name, place in matched_lines(wavelength).items()}
    return assembled(
        lines,
        np.full(shape, DENSITY),
        {"oxygen_abundance": SOLAR_OXYGEN + given[0], "log_age": np.log10(given[1]), "log_u": given[2]},
        name="fsps",
        citation="Byler et al. 2017, ApJ 840, 44; Conroy, Gunn & White 2009, ApJ 699, 486; Cloudy: Ferland et al. "
        "2013, RMxAA 49, 137",
        licence="MIT, Copyright 2009-2021 Charlie Conroy and contributors",
        source=f"FSPS, {path.name}",
        solar_oxygen=SOLAR_OXYGEN,
        solar_metallicity=SOLAR_METALLICITY,
    )


def _beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        head = file.read(200)
    if not head.startswith(b"\x1f\x8b"):
        return head
    with gzip.open(path) as file:
        return file.read(200)


FSPS_LINES = SourceFormat(_is_fsps_lines, read_fsps_lines)

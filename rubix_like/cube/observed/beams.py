"""Beams of radio cubes: one for all planes, or each plane's."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from astropy import units
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.observed.flux_units import in_unit, parse_unit
from rubix_like.cube.observed.opening_observed import label, number_card
from rubix_like.runtime.files.damaged_files import UNREADABLE

_AIPS = re.compile(r"CLEAN\s+BMAJ=\s*(\S+)\s+BMIN=\s*(\S+)")


def read_beam(path: Path, hdus: Any, flux: Any, n_wave: int) -> tuple[Float[ndarray, " wave"], tuple[str, ...]]:
    """Solid angle (arcsec2) of the Gaussian beam of each plane of a file, pi BMAJ BMIN / (4 ln 2), and sentences on it:
    by the table BEAMS of CASA, the cards BMAJ1 ... of WSClean, BMAJ and BMIN, or the history of AIPS.

    Raises ValueError where there is none, or another number of beams than planes.
    """
    place, header = label(path, flux), flux.header
    if header.get("CASAMBM") or "BEAMS" in hdus:
        axes, notes = _table(place, hdus, n_wave), (f"each of the {n_wave} planes has its own beam (BEAMS)",)
    elif f"BMAJ{n_wave}" in header and f"BMAJ{n_wave + 1}" not in header:
        axes = np.array(
            [[_card(header, f"{axis}{n}", place) for axis in ("BMAJ", "BMIN")] for n in range(1, n_wave + 1)]
        )
        notes = (f"each of the {n_wave} planes has its own beam (BMAJ1 ...)",)
    else:
        axes, notes = np.array([[_card(header, axis, place) for axis in ("BMAJ", "BMIN")]]), ()
        found = _AIPS.search("\n".join(str(line) for line in header.get("HISTORY", [])))
        if not axes.all() and found:
            axes, notes = np.array([found.groups()], np.float64), ("the beam is that of the history of AIPS",)
    if not (np.isfinite(axes).all() and (axes > 0).all()):
        raise ValueError(
            f"{place}: expected the size of the beam (BMAJ and BMIN in deg, or a table BEAMS with each plane's) beside "
            f"a flux per beam, got none; write it into the header, or divide the fluxes by the beam's solid angle and "
            f"give units='Jy/arcsec2' (of a fit: fit.data_units)"
        )
    area = math.pi * axes[:, 0] * axes[:, 1] / (4 * math.log(2)) * 3600.0**2
    return np.broadcast_to(area, (n_wave,)), notes


def _card(header: Any, card: str, place: str) -> float:
    return number_card(header, card, 0.0, place)


def _table(place: str, hdus: Any, n_wave: int) -> Float[ndarray, "wave 2"]:
    """Major and minor axes (deg) in CASA's table, in the order of its channels, for the first polarisation."""
    try:
        table = hdus["BEAMS"]
        rows = table.data
        first = rows["POL"] == rows["POL"].min() if "POL" in rows.names else slice(None)
        order = np.argsort(rows["CHAN"][first], kind="stable") if "CHAN" in rows.names else slice(None)
        factors = [in_unit(parse_unit(table.columns[axis].unit or "arcsec"), units.deg) for axis in ("BMAJ", "BMIN")]
        axes = [
            factor * np.float64(rows[axis][first][order])
            for axis, factor in zip(("BMAJ", "BMIN"), factors, strict=True)
        ]
        found = np.stack(axes, axis=1)
    except UNREADABLE as error:
        raise ValueError(
            f"{place}: expected the beams of its planes (CASAMBM) in a table BEAMS with BMAJ and BMIN, got none; bring "
            f"the planes to one beam (CASA's imsmooth with kind='commonbeam'), or copy the table into the file"
        ) from error
    if len(found) != n_wave:
        raise ValueError(f"{place}: expected a beam for each of {n_wave} planes, got {len(found)} in the table BEAMS")
    return found

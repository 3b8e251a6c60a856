"""Wavelengths that a FITS file looks up in a table: CTYPE = 'WAVE-TAB' (Greisen et al. 2006, A&A 446, 747, sect. 6)."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.cube.observed.axes import Axes
from rubix_like.cube.observed.opening_observed import label, number_card, text_card
from rubix_like.runtime.files.damaged_files import UNREADABLE

_END = "-TAB"
_ROUNDING = 1e-6
"""Of a cell of the table, by which a pixel may lie beyond its ends."""


def is_tabulated(header: Any, axis: int) -> bool:
    """Whether a header's axis is looked up in a table."""
    return text_card(header, f"CTYPE{axis}").upper().endswith(_END)


def find_table(path: Path, hdus: Any, flux: Any) -> Any | None:
    """The extension that the header's axis by a table refers to (PSi_0, PVi_1); None where it has no such axis.

    Raises ValueError where the file lacks the extension.
    """
    axis = next((own for own in (3, 2, 1) if is_tabulated(flux.header, own)), None)
    if axis is None:
        return None
    name = text_card(flux.header, f"PS{axis}_0")
    version = number_card(flux.header, f"PV{axis}_1", 1.0, label(path, flux))
    for hdu in hdus:
        if name and hdu.name.upper() == name.upper() and int(hdu.header.get("EXTVER", 1)) == int(version):
            return hdu
    raise ValueError(
        f"{label(path, flux)}: expected the table of its wavelengths (CTYPE{axis} = "
        f"'{text_card(flux.header, f'CTYPE{axis}')}') in an extension '{name}' (PS{axis}_0), got a file without it"
    )


def tabulated_nodes(path: Path, table: Any, header: Any, axes: Axes, n_wave: int) -> Float[ndarray, " node"]:
    """Wavelengths (in the header's unit) of the edges and centres of all pixels in turn.

    psi = CRVAL + CD (p - CRPIX) is looked up among the numbers of the index (those of the rows, where there is none),
    and the coordinates are linear between them and half a cell beyond the first and the last.
    """
    axis, place = axes.wave, label(path, table)
    pixels = 0.5 + 0.5 * np.arange(2 * n_wave + 1)
    first, reference = (number_card(header, f"{card}{axis}", 0.0, place) for card in ("CRVAL", "CRPIX"))
    psi = first + float(axes.matrix[axis - 1, axis - 1]) * (pixels - reference)
    coordinates = _cell(table, text_card(header, f"PS{axis}_1"), place)
    if coordinates.size < 2:
        raise ValueError(f"{place}: expected two wavelengths or more, got {coordinates.size}")
    index = text_card(header, f"PS{axis}_2")
    if not index:
        return _between(psi, coordinates, place)
    numbers = _cell(table, index, place)
    steps = np.diff(numbers)
    if numbers.shape != coordinates.shape or not (np.all(steps > 0) or np.all(steps < 0)):
        raise ValueError(
            f"{place}: expected as many numbers in '{index}' as wavelengths, all different and in order, got others"
        )
    if steps[0] < 0:
        numbers, coordinates = numbers[::-1], coordinates[::-1]
    return _between(1.0 + _places(psi, numbers), coordinates, place)


def _places(values: Float[ndarray, " node"], numbers: Float[ndarray, " row"]) -> Float[ndarray, " node"]:
    """Where values lie among ascending numbers, counted from 0; beyond the ends linear as in the last cell."""
    cell = np.clip(np.searchsorted(numbers, values, side="right") - 1, 0, len(numbers) - 2)
    return cell + (values - numbers[cell]) / (numbers[cell + 1] - numbers[cell])


def _between(places: Float[ndarray, " node"], rows: Float[ndarray, " row"], place: str) -> Float[ndarray, " node"]:
    """Coordinates at places that count from 1."""
    if places.min() < 0.5 - _ROUNDING or places.max() > len(rows) + 0.5 + _ROUNDING:
        raise ValueError(
            f"{place}: expected wavelengths for all pixels, got a table of {len(rows)} for places {places.min():g} to "
            f"{places.max():g}"
        )
    cell = np.clip(np.floor(places).astype(int), 1, len(rows) - 1)
    return rows[cell - 1] + (places - cell) * (rows[cell] - rows[cell - 1])


def _cell(table: Any, name: str, place: str) -> Float[ndarray, " row"]:
    """The numbers of a column of the table's one row."""
    try:
        columns = {column.name.upper(): column.name for column in table.columns}
        values = np.asarray(table.data[columns[name.upper()]][0], dtype=np.float64)
    except (KeyError, AttributeError, IndexError, *UNREADABLE) as error:
        raise ValueError(f"{place}: expected a column '{name}' of one row of numbers, got none") from error
    if values.size != max(values.shape, default=0) or not np.isfinite(values).all():
        raise ValueError(f"{place}: expected finite numbers of one axis in column '{name}', got shape {values.shape}")
    return values.reshape(-1)

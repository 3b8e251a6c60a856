"""What a galaxy shows of itself: how many particles with which columns, in a notebook also their ranges."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer

from rubix_like.constants import COLUMN_UNITS
from rubix_like.runtime.text_tables import html_table
from rubix_like.runtime.words import counted

Columns = Mapping[str, Any]
"""Name of a column -> an array, or None."""


def particle_words(name: str, columns: Columns) -> str:
    """`Stars(1000 particles: position, velocity, ...)`."""
    return f"{name}({counted(_number(columns), 'particle')}: {', '.join(_known(columns))})"


def galaxy_words(kinds: Mapping[str, Columns | None]) -> str:
    """`Galaxy(1000 stars, 300 gas particles)` of columns by the noun for one particle."""
    found = {noun: _number(columns) for noun, columns in kinds.items() if columns is not None}
    return f"Galaxy({', '.join(counted(number, noun) for noun, number in found.items())})"


def galaxy_html(kinds: Mapping[str, Columns | None]) -> str:
    """A table of every kind of particles: columns, units, lowest, median and highest values."""
    tables = []
    for noun, columns in kinds.items():
        if columns is None:
            continue
        known = {name: values for name, values in _known(columns).items() if name != "weight"}
        rows = [("column", "unit", "lowest", "median", "highest")]
        rows += [(name, _unit(name), *_range(values)) for name, values in known.items()]
        tables.append(html_table(counted(_number(columns), noun), rows))
    return "".join(tables)


def _unit(name: str) -> str:
    """`km/s`; nothing for a pure number."""
    return "log10(yr)" if name == "log_age" else COLUMN_UNITS.get(name, "").replace(" ", "")


def _known(columns: Columns) -> dict[str, Any]:
    return {name: values for name, values in columns.items() if values is not None}


def _number(columns: Columns) -> int:
    return np.shape(columns["position"])[0]


def _range(values: Any) -> tuple[str, str, str]:
    """Lowest, median and highest value; empty where they are not known, as inside of a compiled function."""
    if isinstance(values, Tracer) or not np.size(values):
        return "", "", ""
    found = np.asarray(values, np.float64)
    low, middle, high = (f"{float(own(found)):.4g}" for own in (np.min, np.median, np.max))
    return low, middle, high

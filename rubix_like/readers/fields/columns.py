"""Tables of named columns."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.readers.fields.field_map import FieldSettings

Places = dict[str, tuple[FieldSettings, tuple[str, ...]]]
"""The field of each quantity, and the datasets that it is read from."""

Vector = Float[ndarray, "3"]
Vectors = Float[ndarray, "particle 3"]

Table = dict[str, Float[ndarray, "..."]]
"""Columns by quantity, with the same number of rows."""


def row_count(table: Table) -> int:
    """Number of rows of a table."""
    return len(next(iter(table.values()), ()))


def stacked(parts: list[Table]) -> Table:
    """Tables one below the other; a column that one of them lacks is NaN there."""
    if len(parts) == 1:
        return parts[0]
    columns = {name: values for part in parts for name, values in part.items()}
    return {
        name: np.concatenate([part.get(name, np.full((row_count(part), *values.shape[1:]), np.nan)) for part in parts])
        for name, values in columns.items()
    }


def check_numbers(dtype: np.dtype, place: str, title: str, *, decimals: bool) -> None:
    """Raise ValueError unless stored values of this type are numbers, with `decimals` none that are whole by type.

    `title`: the simulation whose files have them so.
    """
    if dtype.kind not in "fiu":
        raise ValueError(f"{place}: expected numbers, got {dtype}; is the file one of {title}?")
    if decimals and dtype.kind in "iu":
        raise ValueError(
            f"{place}: expected numbers with decimals, as {title} stores them, got whole ones ({dtype}): what was "
            f"rounded away is lost; download the file again"
        )

"""Plain numbers in a stated unit from what Python users have: quantities, columns of tables, masked arrays."""

from typing import Any

import numpy as np
from astropy import units
from astropy.utils.masked import get_data_and_mask
from jaxtyping import Bool
from numpy import ndarray


def plain_numbers(values: Any, unit: str | units.UnitBase, place: str) -> Any:
    """Numbers in `unit` (empty: pure numbers) from a quantity or a column with a unit; all else stays as it is.

    Raises ValueError that names `place`, if any, for another physical type and for masked values.
    """
    data, mask = split_mask(values)
    n_masked = np.count_nonzero(mask)
    if n_masked:
        text = (
            f"expected values without a mask, got {n_masked} of {np.size(data)} masked; fill them in, or leave them out"
        )
        raise ValueError(f"{place}: {text}" if place else text)
    return in_plain_unit(data, unit, place)


def split_mask(values: Any) -> tuple[Any, Bool[ndarray, "..."] | bool]:
    """The values without their mask, and where they are masked (False: nowhere)."""
    if values is np.ma.masked:
        return values.data, True
    data, mask = get_data_and_mask(values) if isinstance(values, ndarray) else (values, None)
    return data, False if mask is None else np.asarray(mask)


def in_plain_unit(data: Any, unit: str | units.UnitBase, place: str) -> Any:
    """Numbers in `unit` of values without a mask."""
    quantity = as_quantity(data)
    if quantity is None:
        return data.view(ndarray) if isinstance(data, ndarray) else data
    try:
        return quantity.to_value(unit)
    except units.UnitConversionError as error:
        wanted = f"a quantity in {unit}" if unit else "numbers without a unit"
        text = f"expected {wanted}, got a quantity in {quantity.unit}"
        raise ValueError(f"{place}: {text}" if place else text) from error


def as_quantity(data: Any) -> Any:
    """The quantity that an array with a unit is; None for all else."""
    if isinstance(data, units.Quantity):
        return data
    unit = getattr(data, "unit", None) if isinstance(data, ndarray) else None
    return None if unit is None else units.Quantity(data.view(ndarray), unit)

"""Plain numbers in a stated unit from what Python users have: quantities, columns of tables, masked arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from astropy import units
from astropy.utils.masked import get_data_and_mask
from jaxtyping import Bool
from numpy import ndarray

_YOUNGEST_UNIVERSE = 1e5
"""yr, before the first atoms; smaller numbers are in another unit."""


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
        raise _refusal(place, text)
    if isinstance(data, list | tuple) and _holds_arrays(data):
        data = [plain_numbers(part, unit, place) for part in data]
    quantity = as_quantity(data)
    if quantity is None:
        return _real_numbers(data.view(ndarray) if isinstance(data, ndarray) else data, place)
    try:
        return quantity.to_value(unit)
    except units.UnitConversionError as error:
        wanted = f"a quantity in {unit}" if unit else "numbers without a unit"
        raise _refusal(place, f"expected {wanted}, got a quantity in {quantity.unit}") from error


def _refusal(place: str, text: str) -> ValueError:
    return ValueError(f"{place}: {text}" if place else text)


def plain_fields(record: Any, units_of: Mapping[str, str]) -> dict[str, Any]:
    """Fields of a record as `plain_array` gives them, each in its unit."""
    place = type(record).__name__
    return {name: plain_array(getattr(record, name), unit, f"{place}.{name}") for name, unit in units_of.items()}


def given_numbers(values: Any, unit: str | units.UnitBase, place: str) -> Any:
    """An array in `unit`, as by `plain_numbers`, of what has to be given: None, true and false are refused, too."""
    numbers = plain_numbers(values, unit, place)
    if numbers is None:
        raise ValueError(f"{place}: expected real numbers, got None")
    numbers = np.asarray(numbers) if isinstance(numbers, list | tuple | int | float) else numbers
    if numbers.dtype == bool:
        raise ValueError(f"{place}: expected real numbers, got true or false")
    return numbers


def plain_array(values: Any, unit: str | units.UnitBase, place: str) -> Any:
    """Numbers as `plain_numbers` gives them, lists as arrays."""
    plain = plain_numbers(values, unit, place)
    return np.asarray(plain) if isinstance(plain, list | tuple) else plain


def plain_flags(values: Any, place: str, words: str = "a spaxel is chosen") -> Bool[ndarray, "..."]:
    """Booleans from such, or from 0 and 1, as FITS files have them; ValueError that names `place` for other values."""
    flags = np.asarray(plain_numbers(values, "", place))
    if flags.dtype.kind != "b" and not np.isin(flags, (0, 1)).all():
        raise ValueError(
            f"{place}: expected booleans (or 1 where {words}, else 0), got {flags.dtype} with other values; of "
            f"a mask of bits write mask == 0"
        )
    return flags.astype(bool, copy=False)


def split_mask(values: Any) -> tuple[Any, Bool[ndarray, "..."] | bool]:
    """The values without their mask, and where they are masked (False: nowhere)."""
    if values is np.ma.masked:
        return values.data, True
    data, mask = get_data_and_mask(values) if isinstance(values, ndarray) else (values, None)
    return data, False if mask is None else np.asarray(mask)


def _holds_arrays(data: Any) -> bool:
    """Whether a list, or one in it, holds arrays, which may have a unit or a mask."""
    return any(isinstance(part, ndarray) or (isinstance(part, list | tuple) and _holds_arrays(part)) for part in data)


def _real_numbers(data: Any, place: str) -> Any:
    """Numbers, arrays of numpy in the machine's order of bytes; raises ValueError for what is no real number.

    Arrays of JAX, traced ones too, stay as they are, as does None.
    """
    if data is None:
        return None
    axes = getattr(data, "dims", ())  # of xarray
    if len(axes) > 1:
        raise ValueError(
            f"{place}: expected an array without names of axes, got one with {', '.join(map(str, axes))}; transpose it "
            f"to the order that is expected here and give its .values"
        )
    if axes or getattr(data, "iloc", None) is not None:  # of pandas
        data = np.asarray(data)
    dtype = None if isinstance(data, type) else getattr(data, "dtype", None)
    try:
        dtype = np.asarray(data).dtype if dtype is None else dtype
    except ValueError:  # lists of lists of different lengths
        came = "lists of different lengths"
    else:
        if dtype.kind in "biufV" and getattr(dtype, "names", None) is None:
            swapped = isinstance(data, ndarray) and not dtype.isnative
            return data.astype(dtype.newbyteorder("=")) if swapped else data
        if dtype.kind == "O" and not isinstance(data, ndarray | list | tuple):
            came = f"a value of type {type(data).__name__}"
        else:
            came = f"values of type {'text' if dtype.kind in 'SU' else dtype}"
    with_unit = " (text with a unit: each by astropy.units.Quantity(text))" if came.endswith("text") else ""
    raise _refusal(place, f"expected real numbers, got {came}; give an array of numbers{with_unit}")


def as_quantity(data: Any) -> Any:
    """The quantity that an array with a unit is; None for all else."""
    if isinstance(data, units.Quantity):
        return data
    unit = getattr(data, "unit", None) if isinstance(data, ndarray) else None
    return None if unit is None else units.Quantity(data.view(ndarray), unit)


def universe_age_in_yr(age: Any, place: str) -> Any:
    """The Universe's age (yr, or a quantity; None: not known) as a number in yr.

    Raises ValueError that names `place` for other values, and for less than 1e5, which are in Gyr or Myr.
    """
    age = plain_numbers(age, "yr", place)
    if age is not None and not (np.ndim(age) == 0 and age >= _YOUNGEST_UNIVERSE):
        raise ValueError(
            f"{place}: expected a number of yr, at least {_YOUNGEST_UNIVERSE:g} (today's is 1.38e10), got {age!r}; "
            f"give Gyr as a quantity, e.g. 13.8 * astropy.units.Gyr"
        )
    return age


def check_angle(angle: Any, place: str, most: float) -> None:
    """Raise ValueError unless it is None or a finite angle (deg) of at most `most` in magnitude."""
    if angle is None:
        return
    if not isinstance(angle, str) and np.ndim(angle) == 0 and np.isfinite(angle) and abs(angle) <= most:
        return
    wanted = "a finite angle" if most == np.inf else f"an angle from -{most:g} to {most:g}"
    raise ValueError(f"{place}: expected {wanted} (deg, or a quantity), got {angle!r}")


def expect_positive(number: Any, place: str) -> None:
    """Raise ValueError unless it is a finite number above 0."""
    if isinstance(number, bool | np.bool_ | None) or np.ndim(number) or not (np.isfinite(number) and number > 0):
        raise ValueError(f"{place}: expected a finite number above 0, got {number!r}")

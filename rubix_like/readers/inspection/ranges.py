"""Minimum, median and maximum of values that come in slabs, and the count of those that are not numbers."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

MEDIAN_ROWS: int = 1 << 21
"""Rows that the median is taken of at most: of more, every second, third ... row."""


@dataclass(frozen=True)
class Range:
    """Of the finite values of the rows that count: `smallest`, `median`, `largest` and their sum (None without any).

    `n_values` is their number; `n_nan` and `n_infinite` count in all rows, `n_below` (`low`) and `n_above`
    (`high`) in those that count.
    """

    smallest: float | None = None
    median: float | None = None
    largest: float | None = None
    total: float = 0.0
    n_values: int = 0
    n_nan: int = 0
    n_infinite: int = 0
    n_below: int = 0
    n_above: int = 0


def measure_range(
    slabs: Iterable[tuple[Float[ndarray, "..."], Bool[ndarray, "..."]]],
    n_rows: int,
    low: float = -np.inf,
    high: float = np.inf,
) -> tuple[Range, ...]:
    """The range of `n_rows` rows that come as (values, which rows count); of a vector one for each component."""
    step = -(-n_rows // MEDIAN_ROWS)
    middles: list[list[ndarray]] = []
    found: list[Range] = []
    first = 0
    for values, kept in slabs:
        components = (values if values.ndim > 1 else values[:, None]).T
        found = found or [Range() for _ in components]
        middles = middles or [[] for _ in components]
        chosen = slice(-first % step, None, step)
        for index, component in enumerate(components):
            counted = np.isfinite(component) & kept
            n_nan, n_infinite = int(np.isnan(component).sum()), int(np.isinf(component).sum())
            found[index] = _joined(found[index], component[counted], low, high, n_nan, n_infinite)
            middles[index].append(component[chosen][counted[chosen]])
        first += len(values)
    return tuple(map(_with_median, found, map(np.concatenate, middles))) or (Range(),)


def _joined(found: Range, good: Float[ndarray, " value"], low: float, high: float, n_nan: int, n_inf: int) -> Range:
    ends = [value for value in (found.smallest, found.largest) if value is not None]
    if good.size:
        ends += [float(good.min()), float(good.max())]
    return Range(
        smallest=min(ends, default=None),
        largest=max(ends, default=None),
        total=found.total + float(good.sum()),
        n_values=found.n_values + good.size,
        n_nan=found.n_nan + n_nan,
        n_infinite=found.n_infinite + n_inf,
        n_below=found.n_below + int(np.count_nonzero(good < low)),
        n_above=found.n_above + int(np.count_nonzero(good > high)),
    )


def _with_median(found: Range, sample: Float[ndarray, " value"]) -> Range:
    return found if not sample.size else replace(found, median=float(np.median(sample)))

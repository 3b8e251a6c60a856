"""The colour scale of an image: colour map, limits, logarithmic or not; the same in pictures and on the page."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy import ndarray

Kind = Literal["brightness", "velocity", "deviation", "share", "value", "line_flux", "line_value"]
"""What an image shows: light; km/s around a mean; anything around 0; percent; anything else; the light of a line or
beside it, logarithmic for every line; what else there is of a line, linear for every line."""

WIDE_RANGE: float = 30.0
"""Positive values whose 99th percentile is further above their median than this have a logarithmic scale."""

DECADES: float = 1e-4
"""Light fainter than this fraction of the peak is black."""


@dataclass(frozen=True)
class Scale:
    """matplotlib's name of a colour map, the values of its two ends, and whether it runs along the logarithm."""

    colors: str
    low: float
    high: float
    logarithmic: bool = False


def scale_of(values: Float[ndarray, "y x"], kind: Kind) -> Scale:
    """The scale of an image; values that are not finite count as none."""
    found = values[np.isfinite(values)]
    if not found.size:
        found = np.zeros(1)
    if kind == "brightness":
        return _brightness(found)
    if kind == "share":
        return Scale("Greys_r", 0.0, 100.0)
    if kind == "velocity":
        middle = float(np.median(found))
        return _around(middle, float(np.percentile(np.abs(found - middle), 98)), 1.0)
    if kind == "deviation":
        return _around(0.0, float(np.percentile(np.abs(found), 98)), 1.0)
    if kind == "line_flux":
        return _logarithmic(found, float(found.max()))
    return _values(found, may_be_logarithmic=kind == "value")


def _brightness(found: Float[ndarray, " spaxel"]) -> Scale:
    """Logarithmic from the faintest light, or the noise (rms of the negative values), to the peak."""
    peak = float(found.max())
    if peak <= 0:
        return Scale("magma", 0.0, 1.0)
    negative = found[found < 0]
    noise = float(np.sqrt(np.mean(negative**2))) if negative.size else 0.0
    low = max(float(found[found > 0].min()), noise, peak * DECADES)
    return Scale("magma", low, peak, logarithmic=True) if low < peak else Scale("magma", 0.0, peak)


def _values(found: Float[ndarray, " spaxel"], *, may_be_logarithmic: bool) -> Scale:
    """1st to 99th percentile; around 0 where both signs matter, logarithmic where the values span decades."""
    low, high = (float(value) for value in np.percentile(found, (1, 99)))
    if low < -0.1 * high and high > -0.1 * low:
        return _around(0.0, max(-low, high), 0.0)
    positive = found[found > 0]
    wide = low >= 0 and positive.size and high > WIDE_RANGE * float(np.median(positive))
    if may_be_logarithmic and wide:
        return _logarithmic(found, high)
    if low == high:
        low, high = min(low, 0.0), max(high, 0.0)
    return Scale("viridis", low, high if high > low else low + 1.0)


def _logarithmic(found: Float[ndarray, " spaxel"], high: float) -> Scale:
    """From the faintest positive value, or `DECADES` of the high one; linear where there is no such range."""
    positive = found[found > 0]
    low = max(float(positive.min()), high * DECADES) if positive.size else high
    return (
        Scale("cividis", low, high, logarithmic=True)
        if low < high
        else Scale("cividis", 0.0, high if high > 0 else 1.0)
    )


def _around(middle: float, half: float, smallest: float) -> Scale:
    half = max(half, smallest)
    return Scale("RdBu_r", middle - half, middle + half)

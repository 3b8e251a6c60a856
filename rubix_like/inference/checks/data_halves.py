"""Halves of the data: by columns, rows and light of the spaxels, and by bins."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

HALVES: tuple[tuple[str, str], ...] = (
    ("left", "right"),
    ("lower", "upper"),
    ("brighter", "fainter"),
    ("bluer", "redder"),
)
"""Both halves of the data for each way to split them: by columns, rows and light of the spaxels, and by bins.

Splits in which neighbours are on different sides (a checkerboard, every second bin) are not among them: there both
halves see the same error of a model."""


class Halves(NamedTuple):
    """Spaxels and bins of every half (1: in it), in the order of `HALVES`, both halves of one after the other."""

    spaxels: Float[Array | ndarray, "half y x"]
    bins: Float[Array | ndarray, "half wave"]


class Splits(NamedTuple):
    """Names of both halves of each split of the data, and the voxels of every half, both of one after the other."""

    pairs: tuple[tuple[str, str], ...]
    masks: Sequence[Float[ndarray, "y x wave"]]


def halves_of(light: Float[ndarray, "y x wave"]) -> Halves:
    """Halves that hold the same sum of squares of `light`, the model in units of the data's sigma."""
    square = np.asarray(light, np.float64) ** 2
    image, spectrum = square.sum(axis=2), square.sum(axis=(0, 1))
    place = np.meshgrid(*[np.arange(own, dtype=float) for own in image.shape], indexing="ij")
    first = [_first_half(order, image) for order in (place[1], place[0], -image)]
    everywhere, always = np.ones_like(image), np.ones_like(spectrum)
    bluer = _first_half(np.arange(len(spectrum), dtype=float), spectrum)
    spaxels = [half for own in first for half in (own, 1 - own)] + [everywhere] * 2
    bins = [always] * (2 * len(first)) + [bluer, 1 - bluer]
    return Halves(np.stack(spaxels), np.stack(bins))


def _first_half(order: Float[ndarray, "..."], weight: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    """1 where the order is low, so that half of the weight is there; places of one order stay together."""
    values, group = np.unique(order, return_inverse=True)
    total = np.bincount(group.ravel(), weight.ravel(), minlength=len(values))
    before = np.cumsum(total) - 0.5 * total
    return (before < 0.5 * total.sum())[group.reshape(order.shape)].astype(float)

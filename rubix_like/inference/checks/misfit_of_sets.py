"""Sums of the residuals of several sets of data: those of each set on its own axes, and of each set against the others.

The voxels of all sets lie in one row (1, 1, voxel); what is fitted follows a part of the noise of all.
"""

from collections.abc import Sequence

import numpy as np

from rubix_like.inference.checks.data_halves import HALVES, Splits, halves_of
from rubix_like.inference.checks.misfit import (
    AXES,
    Design,
    Others,
    Residue,
    Sums,
    Vectors,
    Voxels,
    products_of,
    sums_of_tests,
    with_others,
)
from rubix_like.inference.fitted_set import FittedSet

_TWO = 2
"""Sets that are compared with each other; of more each with all others."""


def splits_of_sets(sets: Sequence[FittedSet], light: Voxels) -> Splits:
    """Each set and the others, and the halves of each set by the light of its own model (in units of sigma)."""
    pairs, masks = list[tuple[str, str]](), list[Voxels]()

    def add(own: FittedSet, part: Voxels, pair: tuple[str, str]) -> None:
        row = np.zeros(light.size)
        row[own.place] = part.reshape(-1)
        masks.extend([row[None, None], 1 - row[None, None]])
        pairs.append(pair)

    for number, own in enumerate(sets[: len(sets) if len(sets) > _TWO else len(sets) - 1]):
        other = sets[number + 1].name if len(sets) == _TWO else "all others"
        add(own, np.ones(own.shape), (own.name, other))
    for own in sets:
        image, bins = map(np.asarray, halves_of(own.unpacked(light)))
        for first, pair in zip(range(0, len(image), 2), HALVES, strict=True):
            part = image[first][:, :, None] * bins[first]
            if 0 < part.sum() < part.size:
                add(own, part, (f"{pair[0]} half of {own.name}", "all else"))
    return Splits(tuple(pairs), masks)


def sums_of_sets(
    sets: Sequence[FittedSet],
    voxels: Voxels,
    inverse_sigma: Voxels,
    light: Voxels,
    fitted: Vectors,
    others: Others,
    design: Design | None,
) -> Residue:
    """chi^2 of all voxels, and all sums of each set, as `sums_of_tests` makes them."""
    del design  # sets have no continua of single spaxels
    alone = {
        own.name: sums_of_tests(
            own.unpacked(voxels),
            own.unpacked(inverse_sigma),
            own.unpacked(light),
            own.unpacked(fitted),
            own.unpacked(others),
            None,
        )
        for own in sets
    }
    real = (inverse_sigma > 0).astype(voxels.dtype)
    left, products = np.maximum(np.sum(real) - np.sum(fitted**2), 0.0), products_of(others, others)
    chi_square = with_others(Sums(np.sum(voxels**2), left, 2 * left, np.sum(real)), products, products)
    nothing, none = Sums(0.0, 0.0, 0.0, 0.0), np.zeros(len(AXES))
    return Residue(chi_square, Sums(none, none, none, none, none), none, nothing, nothing, None, None, sets=alone)

"""The noiseless cube that is kept beside a noisy one."""

from dataclasses import replace

from rubix_like.cube import Cube, Meta
from rubix_like.cube_parts import CubeParts, Part, in_parts
from rubix_like.noise import NOISE_KEYS


def noiseless(cube: Cube | CubeParts) -> CubeParts:
    """The cube of the true flux (`truth`), without variance; raises ValueError where the truth was not kept."""
    noisy = in_parts(cube)
    if not noisy.has_truth:
        raise ValueError("Cube.truth: expected the noiseless flux, got None; observe with noise.keep_truth: true")
    meta = Meta({key: value for key, value in noisy.meta.items() if key not in NOISE_KEYS})
    parts = tuple(Part(part.first, part.truth) for part in noisy.parts if part.truth is not None)
    return replace(noisy, parts=parts, has_variance=False, has_truth=False, meta=meta)

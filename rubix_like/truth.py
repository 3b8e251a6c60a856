"""The noiseless cube that is kept beside a noisy one."""

from dataclasses import replace

from rubix_like.cube import Cube, Meta
from rubix_like.noise import NOISE_KEYS


def noiseless(cube: Cube) -> Cube:
    """The cube of the true flux (`cube.truth`), without variance; raises ValueError where the truth was not kept."""
    if cube.truth is None:
        raise ValueError("Cube.truth: expected the noiseless flux, got None; observe with noise.keep_truth: true")
    meta = Meta({key: value for key, value in cube.meta.items() if key not in NOISE_KEYS})
    return replace(cube, flux=cube.truth, variance=None, truth=None, meta=meta)

"""The noiseless cube that is kept beside a noisy one."""

from dataclasses import replace

from rubix_like.cube import Cube, Meta

_NOISE_KEYS = frozenset(
    {
        "signal_to_noise",
        "signal_to_noise_definition",
        "exposure_time",
        "exposure_count",
        "sky",
        "noise_model",
        "noise_seed",
    }
)
"""Entries of `Cube.meta` that are wrong of a cube without noise."""


def noiseless(cube: Cube) -> Cube:
    """The cube of the true flux (`cube.truth`), without variance; raises ValueError where the truth was not kept."""
    if cube.truth is None:
        raise ValueError("Cube.truth: expected the noiseless flux, got None; observe with noise.keep_truth: true")
    meta = Meta({key: value for key, value in cube.meta.items() if key not in _NOISE_KEYS})
    return replace(cube, flux=cube.truth, variance=None, truth=None, meta=meta)

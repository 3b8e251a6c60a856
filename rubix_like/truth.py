"""The noiseless cube that is kept beside a noisy one."""

from dataclasses import replace
from pathlib import Path

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


def truth_path(path: Path) -> Path:
    """Where the noiseless cube goes that belongs to the cube at `path`: cube.fits -> cube_truth.fits."""
    end = path.name.lower().rindex(".fits")
    return path.with_name(f"{path.name[:end]}_truth{path.name[end:]}")

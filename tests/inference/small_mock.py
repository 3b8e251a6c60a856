"""Few stars, and data without a galaxy in them: what fits of small cubes are tested with."""

import numpy as np

from rubix_like import Galaxy, ObservedCube, Stars
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.footprint import Footprint


def few_stars(number: int, extent: float) -> Galaxy:
    """Stars of one mass at random places (standard deviation `extent` in kpc), the same for the same number."""
    rng = np.random.default_rng(1)
    return Galaxy(
        stars=Stars(
            position=rng.normal(0, extent, (number, 3)),
            velocity=rng.normal(0, 50, (number, 3)),
            initial_mass=np.full(number, 1e8),
            log_age=rng.uniform(9, 10, number),
            metallicity=rng.uniform(0.01, 0.03, number),
        )
    )


def mock_data(shape: tuple[int, int, int], **arrays: np.ndarray) -> ObservedCube:
    """Data of this shape (y, x, wave), from 5000 Angstrom in bins of 10: flux and variance 1, every voxel used, but
    for the `arrays` that are given."""
    own = {"flux": np.ones(shape), "variance": np.ones(shape), "used": np.ones(shape, bool)} | arrays
    return ObservedCube(
        **own,
        bins=WavelengthBins(5000.0, 10.0, shape[2], "linear", "air"),
        footprint=Footprint.of(shape, 0.2),
        source="a mock",
    )

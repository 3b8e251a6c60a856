"""Observed cubes: files of several instruments read into one form, and their grid as an instrument's settings."""

from rubix_like.cube.observed.observed_cube import ObservedCube, check_any_used, choose_voxels, cube_of, observed_from
from rubix_like.cube.observed.reading_observed import read_observed

__all__ = ["ObservedCube", "check_any_used", "choose_voxels", "cube_of", "observed_from", "read_observed"]

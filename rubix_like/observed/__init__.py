"""Observed cubes: files of several instruments read into one form, and their grid as an instrument's settings."""

from rubix_like.observed.cube import ObservedCube, observed_from
from rubix_like.observed.reading import read_observed

__all__ = ["ObservedCube", "observed_from", "read_observed"]

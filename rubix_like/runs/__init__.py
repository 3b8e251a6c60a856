"""Whole runs: a configuration in, the files of cubes out."""

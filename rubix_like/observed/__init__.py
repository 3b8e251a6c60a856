"""Observed cubes: files of several instruments read into one form, and their grid as an instrument's settings."""

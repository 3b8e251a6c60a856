"""Fibres: where they lie, the light that each collects, and the cubes that surveys make of their spectra."""

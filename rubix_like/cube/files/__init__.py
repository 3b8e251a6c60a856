"""Cubes and maps in files: one module per layout."""

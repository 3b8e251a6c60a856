"""Mock IFU datacubes from simulated galaxies."""

__version__ = "0.1.0"

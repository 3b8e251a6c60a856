"""Smooth components of a galaxy: light, height, rotation, dispersion and stars, as emitters at quadrature points."""

"""Spectra of fibres, the map that makes a cube of them, and the covariance of its spaxels."""

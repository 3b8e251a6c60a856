"""Template spectra as the detector sees them, and the basis that stands for all of them."""

"""Files of the spectra of fibres, and of the cubes made of them, as surveys lay them out."""

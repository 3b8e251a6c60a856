"""Several sets of data in one fit: cubes, images and spectra of the same galaxy, each with nuisances of its own."""

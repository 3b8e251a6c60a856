"""Files of particles in any format, as groups of named datasets."""

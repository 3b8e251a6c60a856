"""Training sets: cubes of many random parameters and galaxies, from one compiled program."""

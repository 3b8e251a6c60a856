"""Many galaxies in one go: lists, records of what is done, the run over them."""

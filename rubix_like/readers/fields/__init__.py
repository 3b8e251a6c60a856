"""Field maps: which dataset is which quantity, in which unit."""

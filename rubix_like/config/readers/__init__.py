"""Settings of the built-in readers: the keys under `galaxy:`, without the code that reads galaxies."""

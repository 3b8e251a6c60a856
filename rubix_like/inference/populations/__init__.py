"""Free-form populations: non-negative mass weights on a grid of age and metallicity, smooth as far as the data allow."""

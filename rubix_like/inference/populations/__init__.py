"""Free-form populations: non-negative weights on a grid of age and metallicity, as smooth as the data ask for."""

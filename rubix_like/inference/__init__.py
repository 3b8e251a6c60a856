"""Fitting: priors, the likelihood of a cube, optimisers, results."""

"""The posterior of a fit: free parameters, priors, model and likelihood."""

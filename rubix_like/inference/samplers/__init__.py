"""Samplers of the posterior, and what their draws are worth."""

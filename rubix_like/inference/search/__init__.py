"""The search for the maximum of the posterior, from several starts."""

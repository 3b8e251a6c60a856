"""The forward model: planned once on the host, then one compiled function from a galaxy to a cube."""

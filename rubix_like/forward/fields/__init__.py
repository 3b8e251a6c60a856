"""Fields: sums over all particles of a kind, made before anything is painted, for maps and for stages to read."""

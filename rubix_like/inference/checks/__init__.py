"""How far a fit can be trusted: uncertainties, limits, and the verdict."""

"""Emission lines: exact in every bin, at nodes of the velocity or particle by particle."""

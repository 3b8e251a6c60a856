"""How particles become spectra: the painters, and what they share."""

"""Tables of spectra and of nebular lines in the formats of other programs, one module per program."""

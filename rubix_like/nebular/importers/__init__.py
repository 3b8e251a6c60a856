"""Tables of nebular lines in the formats of other packages, one module per format."""

"""SSP libraries in the formats of other packages, one module per format."""

"""Free-form populations of the spaxels or bins of a cube, one spectrum at a time."""

"""Which particles of a snapshot are read: a halo, a subhalo, a sphere or a box."""

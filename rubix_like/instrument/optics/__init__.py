"""PSFs that take more than a profile: what adaptive optics leave, and PSFs that vary over the field."""

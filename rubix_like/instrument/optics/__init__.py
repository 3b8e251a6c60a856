"""PSFs that are images: read from files, or of what adaptive optics leave."""

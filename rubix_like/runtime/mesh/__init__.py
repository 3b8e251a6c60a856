"""Arrays on a mesh of devices: particles along "data", bins of the detector along "wave"."""

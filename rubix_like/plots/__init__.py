"""Pictures of cubes: what is drawn (derived, maps_file), where (sky), in which colours (scales), how (figure, page)."""

"""The cube and its maps, world coordinates and mosaics."""

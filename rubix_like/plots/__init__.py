"""Pictures of cubes: what is drawn, where on the sky, in which colours, on a figure or on a page for the browser."""

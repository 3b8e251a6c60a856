"""Views of a cube: places on its sky, spectra, images, maps, cuts, a summary, an xarray dataset."""

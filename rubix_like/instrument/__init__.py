"""An instrument: its field, PSF, line spread, aperture and sky."""

"""The whole settings that cases begin with."""

INSTRUMENT = {
    "pixel_scale": "0.2 arcsec",
    "fov": "0.8 arcsec",
    "aperture": None,
    "wavelength": {"start": "5000 Angstrom", "stop": 5200, "step": 10, "sampling": "linear", "medium": "air"},
    "psf": {"kind": "gaussian", "fwhm": "0.6 arcsec"},
    "lsf": {"fwhm": "2.5 Angstrom", "includes_pixel": True},
}

CONFIG = {
    "galaxy": {"reader": "synthetic", "n_stars": 50, "seed": 1},
    "ssp": {"library": "popstar"},
    "observation": {"redshift": 0.05, "align": "none", "inclination": "60 deg", "offset": [0, "0.1 arcsec"]},
    "instrument": {
        "name": "muse",
        "fov": "0.8 arcsec",
        "psf": None,
        "lsf": None,
        "wavelength": {"start": 5000, "stop": 5200, "step": 10},
    },
    "pipeline": "stellar",
    "engine": {"method": "direct", "velocity_range": 1000, "chunk": 8192},
    "noise": {"signal_to_noise": 30, "seed": 1},
    "output": {"path": "cube.fits"},
}

"""Two foreign cubes of one disc, an image and a spectrum of it, all made by numpy alone (tests/foreign_cube.py)."""

import contextlib
from pathlib import Path

import foreign_cube
import numpy as np
from astropy.io import fits

FIRST = {"N_SPAXEL": 12, "MARGIN": 6, "FINE": 10, "LAST": 5000.0}
"""Constants of the first cube: 0.5 arcsec, 0.9 arcsec FWHM."""

SECOND = {"N_SPAXEL": 8, "MARGIN": 6, "FINE": 16, "SPAXEL": 0.8, "FIRST": 4950.0, "LAST": 5050.0, "STEP": 2.5}
"""Of the second one, of other spaxels and bins."""

SECOND_FWHM = 1.8
SCALE = 0.93
"""Of the second cube's flux calibration."""

SHIFT = (0.25, -0.15)
"""(East, North) in arcsec by which the second cube's coordinates are wrong."""

FIELD = (0.6, 0.4)
"""(East, North) in arcsec of the middle of the second field from that of the first."""


@contextlib.contextmanager
def constants(fwhm=None, **others):
    """The foreign cube with other constants."""
    kept = {name: getattr(foreign_cube, name) for name in others}
    seeing = foreign_cube.TRUTH["instrument.psf.fwhm"]
    try:
        for name, value in others.items():
            setattr(foreign_cube, name, value)
        foreign_cube.TRUTH["instrument.psf.fwhm"] = seeing if fwhm is None else fwhm
        yield
    finally:
        for name, value in kept.items():
            setattr(foreign_cube, name, value)
        foreign_cube.TRUTH["instrument.psf.fwhm"] = seeing


@contextlib.contextmanager
def displaced(east, north):
    """The foreign disc that far from the middle of its field, in arcsec."""
    disc = foreign_cube.thin_disc
    try:
        foreign_cube.thin_disc = lambda x, y, cell: disc(x - east, y - north, cell)
        yield
    finally:
        foreign_cube.thin_disc = disc


def write_first(path, seed=1):
    """The first cube."""
    with constants(**FIRST):
        return foreign_cube.write_foreign_cube(path, seed=seed)


def second_flux(scale=SCALE, shift=SHIFT):
    """Flux (y, x, wave) of the second cube without noise."""
    place = np.subtract(shift, FIELD)
    with constants(SECOND_FWHM, **SECOND), displaced(*place):
        return scale * foreign_cube.foreign_flux()


def write_second(path, seed=2, **changes):
    """The second cube, on another field, with another seeing, calibration and wrong coordinates."""
    flux = second_flux(**changes)
    with constants(**SECOND):
        made = foreign_cube.write_foreign_cube(path, seed=None)
    sigma = flux.max() / foreign_cube.SIGNAL_TO_NOISE
    if seed is not None:
        flux = flux + sigma * np.random.default_rng(seed).standard_normal(flux.shape)
    with fits.open(made, mode="update") as hdus:
        hdus["DATA"].data = np.moveaxis(flux, 2, 0).astype(np.float32)
        hdus["STAT"].data = np.full(flux.shape[::-1], sigma**2, np.float32)
        for hdu in hdus[1:]:
            hdu.header["CRVAL1"] = 150.0 + FIELD[0] / 3600 / np.cos(np.radians(2.0))
            hdu.header["CRVAL2"] = 2.0 + FIELD[1] / 3600
    return Path(made)


def jacobian(names, step=1e-2):
    """Slopes of both cubes' fluxes by `names`, in units of each cube's error: (name, voxel) of the first, and of the
    second. By differences of numpy's cubes, with channels 10 km/s wide."""
    both = [_cubes({name: sign * _STEPS.get(name, step) for name in [one]}) for one in names for sign in (1, -1)]
    sizes = [_STEPS.get(name, step) for name in names]
    sigma = [own.max() / foreign_cube.SIGNAL_TO_NOISE for own in _cubes({})]
    slopes = []
    for number in range(2):
        pairs = zip(both[::2], both[1::2], sizes, strict=True)
        rows = [(up[number] - down[number]).ravel() / (2 * own) / sigma[number] for up, down, own in pairs]
        slopes.append(np.stack(rows))
    return slopes


_STEPS = {"observation.inclination": 0.5, "galaxy.stellar_mass": 1e8, "shift[0]": 0.01, "shift[1]": 0.01}


def _cubes(changes):
    """Both cubes without noise, with parameters changed by so much."""
    kept, seeing, scale, shift = dict(foreign_cube.TRUTH), SECOND_FWHM, SCALE, list(SHIFT)
    for name, change in changes.items():
        if name in kept:
            foreign_cube.TRUTH[name] = kept[name] + change
    seeing += changes.get("second_fwhm", 0.0)
    scale += changes.get("scale", 0.0)
    shift = [own + changes.get(f"shift[{number}]", 0.0) for number, own in enumerate(shift)]
    try:
        with constants(foreign_cube.TRUTH["instrument.psf.fwhm"], **FIRST, CHANNEL=10.0):
            first = foreign_cube.foreign_flux()
        with constants(seeing, **SECOND, CHANNEL=10.0), displaced(*np.subtract(shift, FIELD)):
            second = scale * foreign_cube.foreign_flux()
    finally:
        foreign_cube.TRUTH.update(kept)
    return first, second

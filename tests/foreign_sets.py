"""Two foreign cubes of one disc, an image and a spectrum of it, all made by numpy alone (tests/foreign_cube.py)."""

import contextlib

import foreign_cube
import numpy as np
from astropy.constants import c as light_speed
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

IMAGE = {"N_SPAXEL": 8, "MARGIN": 8, "FINE": 8, "SPAXEL": 0.6, "FIRST": 4952.5, "LAST": 5047.5, "STEP": 0.5}
"""Grid of the image (arcsec), centred on the second field, and the fine bins (Angstrom) that are summed over `BAND`."""

IMAGE_FWHM, IMAGE_SCALE = 1.2, 1.15

BAND = np.array([[4960.0, 0.0], [4975.0, 0.8], [5025.0, 1.0], [5040.0, 0.0]])
"""Angstrom in vacuum, response for photons."""

SPAXELS = (slice(2, 6), slice(1, 4))
"""Rows and columns of the second cube that the aperture of the spectrum holds."""

SPECTRUM_SCALE = 0.88

APERTURE = (2.4, 3.2)
"""Its sides in arcsec."""

APERTURE_PLACE = (FIELD[0] + 1.5 * 0.8, FIELD[1])
"""(East, North) in arcsec of its middle from that of the first field."""

GAS = {"N_SPAXEL": 8, "MARGIN": 6, "FINE": 16, "SPAXEL": 0.8, "FIRST": 6676.25, "LAST": 6731.25, "STEP": 1.25}
"""Grid (arcsec) and bins (Angstrom) of both cubes of gas."""

FLUX = 2e5
"""Flux of Halpha, 1e-20 erg/s/cm2."""

LINES = {6564.632: FLUX, 6585.273: 0.4 * FLUX}
"""Ha and [N II] 6583: vacuum Angstrom -> flux."""

LINE_FWHM, LSF_SCALE = 2.5, 1.3
"""Angstrom of the first cube's line spread, and the ratio of the second's to it."""

VELOCITY_SHIFT = -23.0
"""Error of the second gas cube's wavelengths, km/s."""

SKY = np.array([120.0, -60.0])
"""Amplitudes of the residuals of the sky, 1e-20 erg/s/cm2/Angstrom."""


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
    return write_flux(path, second_flux(**changes), seed, SECOND)


def write_centred(path):
    """The second cube well calibrated, without noise, with the disc in the middle of its field, that of
    the first."""
    return write_flux(path, second_flux(scale=1.0, shift=FIELD), None, SECOND, (0.0, 0.0))


def write_flux(path, flux, seed, axes, field=FIELD):
    """A cube of this flux (y, x, wave) on a field so far from the first one."""
    with constants(**axes, foreign_flux=lambda library: flux):
        made = foreign_cube.write_foreign_cube(path, seed=seed)
    with fits.open(made, mode="update") as hdus:
        for hdu in hdus[1:]:
            hdu.header["CRVAL1"], hdu.header["CRVAL2"] = place_of(*field)
    return made


def place_of(east, north):
    """(RA, Dec) in deg so many arcsec from the middle of the first field."""
    return 150.0 + east / 3600 / np.cos(np.radians(2.0)), 2.0 + north / 3600


def write_image(path):
    """An image of the second field, without noise: int F R lambda dlambda / int R lambda dlambda of `BAND`, which is
    written beside it."""
    with constants(IMAGE_FWHM, **IMAGE), displaced(*np.negative(FIELD)):
        wavelength = foreign_cube.vacuum(np.arange(foreign_cube.FIRST, foreign_cube.LAST + 1e-6, foreign_cube.STEP))
        energy = foreign_cube.STEP * foreign_cube.foreign_flux()
    fine = np.linspace(*BAND[[0, -1], 0], 100_001)
    flux = energy @ (np.interp(wavelength, *BAND.T, left=0, right=0) * wavelength)
    flux *= IMAGE_SCALE / np.trapezoid(np.interp(fine, *BAND.T) * fine, fine)
    side, middle = IMAGE["SPAXEL"] / 3600, (IMAGE["N_SPAXEL"] + 1) / 2
    header = {"CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CRPIX1": middle, "CRPIX2": middle, "CD1_1": -side}
    header |= {"CD2_2": side, "BUNIT": "1e-20 erg/s/cm2/Angstrom"}
    header |= dict(zip(("CRVAL1", "CRVAL2"), place_of(*FIELD), strict=True))
    parts = {"SCI": flux, "ERR": np.full_like(flux, flux.max() / 100)}
    images = [fits.ImageHDU(own, fits.Header(header), name) for name, own in parts.items()]
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(path)
    np.savetxt(path.with_suffix(".band.txt"), BAND)
    return path


def write_spectrum(path):
    """The sum over `SPAXELS` of the second cube, without noise, in the calibration of the spectrum."""
    flux = second_flux(scale=SPECTRUM_SCALE, shift=(0.0, 0.0))[SPAXELS].sum(axis=(0, 1))
    sigma = np.full(len(flux), flux.max() / 100)
    wavelength = SECOND["FIRST"] + SECOND["STEP"] * np.arange(len(flux))
    np.savetxt(path, np.transpose([wavelength, flux, sigma]), header="wavelength flux sigma", comments="")
    return path


def write_gas(path):
    """The disc in the lines of `LINES`, without noise."""
    return write_flux(path, gas_flux(0.0, LINE_FWHM), None, GAS, (0.0, 0.0))


def write_other_gas(path):
    """The same with wrong wavelengths, a wider line spread and what the sky's subtraction has left, whose templates are
    written beside it."""
    flux = gas_flux(VELOCITY_SHIFT, LSF_SCALE * LINE_FWHM)
    wavelength = GAS["FIRST"] + GAS["STEP"] * np.arange(flux.shape[2])
    lines = sum(np.exp(-0.5 * ((wavelength - own) / 1.5) ** 2) for own in (6689.0, 6711.0))
    templates = np.stack([lines, (wavelength / wavelength[0]) ** 40])
    np.savetxt(path.with_suffix(".sky.txt"), np.transpose([wavelength, *templates]))
    return write_flux(path, flux + SKY @ templates, None, GAS, (0.0, 0.0))


def gas_flux(velocity, fwhm):
    """Flux (y, x, wave) of the lines, moved by so many km/s and spread by so many Angstrom."""
    doppler = np.exp(velocity / light_speed.to_value("km/s"))
    with constants(**GAS):
        return foreign_cube.foreign_line_flux({own * doppler: flux for own, flux in LINES.items()}, fwhm)


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

"""A cube of a smooth disc that this package has no part in: numpy, scipy, h5py and astropy, written as MUSE's are.

    python tests/foreign_cube.py foreign.fits [--library data/popstar.h5] [--seed 1]

An infinitely thin exponential disc (scale length R_d) in rotation, v(R) = V (2 / pi) arctan(R / R_t), with the same
dispersion everywhere and one simple stellar population, seen through a Gaussian seeing and integrated over spaxels:

    F_p(lambda) = integral over v of  W_p(v) S(lambda / D) / (4 pi D_L^2 D),   D = (1 + z) exp(v / c)

W_p(v), in Msun per km/s, is the surface density of the sky, cut into `FINE` x `FINE` cells a spaxel, sorted by velocity
into channels `CHANNEL` apart, convolved with the seeing by FFT, summed over each spaxel and convolved with the
dispersion. Every channel's spectrum is integrated exactly over the bins, in air; there is no line spread, so the
spectra have the library's resolution. The errors are the same in all voxels.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
from astropy import constants, units
from astropy.cosmology import Planck18
from astropy.io import fits
from scipy.special import ndtr

TRUTH = {
    "observation.inclination": 50.0,
    "observation.position_angle": 120.0,
    "observation.velocity_offset": 0.0,
    "instrument.psf.fwhm": 0.9,
    "galaxy.stellar_mass": 1e10,
    "galaxy.disc_scale_length": 0.8,
    "galaxy.rotation_velocity": 210.0,
    "galaxy.turnover_radius": 0.4,
    "galaxy.disc_dispersion": 45.0,
    "galaxy.disc_log_age": 9.512,
    "galaxy.disc_metallicity": 0.02,
}
"""In deg, km/s, arcsec (FWHM of the seeing, before the spaxel), Msun, kpc, dex."""

REDSHIFT = 0.02
SPAXEL, N_SPAXEL = 0.5, 18
FIRST, LAST, STEP = 4900.0, 5400.0, 1.25
SIGNAL_TO_NOISE = 30.0
"""Of the brightest voxel."""

FINE = 20
"""Cells a spaxel, along each axis."""

MARGIN = 7
"""Spaxels around the field whose light the seeing brings in: 3.9 FWHM."""

CHANNEL = 2.0
"""km/s."""

POPSTAR = Path(__file__).parents[1] / "data" / "popstar.h5"
_C = constants.c.to_value("km/s")


def foreign_flux(library=POPSTAR):
    """Flux (y, x, wave) in 1e-20 erg/s/cm2/Angstrom without noise; rows to the North, columns to the West."""
    velocity, density = line_of_sight_distribution()
    return density @ channel_spectra(velocity, library)


def foreign_line_flux(lines, fwhm):
    """Flux (y, x, wave) of the same disc in emission lines, without noise: {vacuum Angstrom: flux in 1e-20 erg/s/cm2}.

    Each channel's line is a Gaussian in wavelength (of air) with the line spread's `fwhm` (Angstrom), integrated over
    the bins.
    """
    velocity, density = line_of_sight_distribution()
    edges = np.arange(FIRST - STEP / 2, LAST + STEP, STEP)
    sigma = fwhm / np.sqrt(8 * np.log(2))
    doppler = (1 + REDSHIFT) * np.exp((velocity + TRUTH["observation.velocity_offset"]) / _C)
    grid = np.linspace(0.98 * FIRST, 1.02 * LAST, 2001)
    profile = 0.0
    for wavelength, flux in lines.items():
        centre = np.interp(wavelength * doppler, vacuum(grid), grid)
        profile = profile + flux * np.diff(ndtr((edges[None, :] - centre[:, None]) / sigma), axis=1) / STEP
    return (density / TRUTH["galaxy.stellar_mass"]) @ profile


def line_of_sight_distribution():
    """Channels' velocities (km/s), and the mass at birth (y, x, channel) in each, Msun."""
    n_cell = (N_SPAXEL + 2 * MARGIN) * FINE
    cell = SPAXEL / FINE
    axis = (np.arange(n_cell) - 0.5 * (n_cell - 1)) * cell
    mass, velocity = thin_disc(-axis[None, :], axis[:, None], cell)
    fastest = TRUTH["galaxy.rotation_velocity"] + 5 * TRUTH["galaxy.disc_dispersion"]
    channels = np.arange(-fastest, fastest + CHANNEL, CHANNEL)
    place = (velocity - channels[0]) / CHANNEL
    lower = np.floor(place).astype(int)
    density = np.zeros((N_SPAXEL, N_SPAXEL, len(channels)))
    seeing = transfer_function(n_cell, cell)
    for number in range(lower.min(), lower.max() + 2):  # linear between two channels
        share = mass * np.clip(1 - np.abs(place - number), 0, None)
        seen = np.fft.irfft2(np.fft.rfft2(share) * seeing, share.shape)
        field = seen.reshape(N_SPAXEL + 2 * MARGIN, FINE, N_SPAXEL + 2 * MARGIN, FINE).sum(axis=(1, 3))
        density[:, :, number] = field[MARGIN:-MARGIN, MARGIN:-MARGIN]
    spread = np.exp(-0.5 * ((channels[:, None] - channels) / TRUTH["galaxy.disc_dispersion"]) ** 2)
    return channels, density @ (spread / spread.sum(axis=1, keepdims=True))


def thin_disc(east, north, cell):
    """Mass (Msun) and velocity (km/s, + receding) of cells of the sky at these arcsec from the centre."""
    inclination, angle = np.radians([TRUTH["observation.inclination"], TRUTH["observation.position_angle"]])
    kpc = Planck18.angular_diameter_distance(REDSHIFT).to_value("kpc") * units.arcsec.to("rad")
    major = (east * np.sin(angle) + north * np.cos(angle)) * kpc
    minor = (-east * np.cos(angle) + north * np.sin(angle)) * kpc / np.cos(inclination)
    radius, length = np.hypot(major, minor), TRUTH["galaxy.disc_scale_length"]
    central = TRUTH["galaxy.stellar_mass"] / (2 * np.pi * length**2 * np.cos(inclination))
    speed = TRUTH["galaxy.rotation_velocity"] * 2 / np.pi * np.arctan(radius / TRUTH["galaxy.turnover_radius"])
    along = np.divide(major, radius, out=np.zeros_like(radius), where=radius > 0)
    return central * np.exp(-radius / length) * (cell * kpc) ** 2, speed * along * np.sin(inclination)


def transfer_function(n_cell, cell):
    """Of the seeing, for numpy's rfft2: a Gaussian's exp(-2 pi^2 sigma^2 k^2)."""
    sigma = TRUTH["instrument.psf.fwhm"] / np.sqrt(8 * np.log(2))
    square = np.fft.fftfreq(n_cell, cell)[:, None] ** 2 + np.fft.rfftfreq(n_cell, cell) ** 2
    return np.exp(-2 * (np.pi * sigma) ** 2 * square)


def channel_spectra(velocity, library):
    """(channel, wave) in 1e-20 erg/s/cm2 per Angstrom of air and Msun at birth, with the offset's velocity."""
    wavelength, spectrum = population(library)
    edges = np.arange(FIRST - STEP / 2, LAST + STEP, STEP)
    doppler = (1 + REDSHIFT) * np.exp((velocity + TRUTH["observation.velocity_offset"]) / _C)
    rest = vacuum(edges)[None, :] / doppler[:, None]
    energy = np.diff(integral(wavelength, spectrum, rest), axis=1) / STEP
    distance = Planck18.luminosity_distance(REDSHIFT)
    solar = (constants.L_sun / (4 * np.pi * distance**2)).to_value(1e-20 * units.erg / units.s / units.cm**2)
    return energy * solar


def population(library):
    """Vacuum wavelengths, and the spectrum in Lsun/Angstrom/Msun, linear in log10(age) and log10(Z)."""
    with h5py.File(library) as file:
        medium = file.attrs["medium"]
        wavelength, spectra = file["rest_wavelength"][()], file["spectra"][()].astype(float)
        log_age, log_metallicity = file["log_age"][()], np.log10(file["metallicity"][()])
    if medium == "air":
        slope = (vacuum(wavelength + 0.5) - vacuum(wavelength - 0.5))[None, None, :]
        wavelength, spectra = vacuum(wavelength), spectra / slope
    metal = weights(log_metallicity, np.log10(TRUTH["galaxy.disc_metallicity"]))
    return wavelength, np.einsum("m,a,maw->w", metal, weights(log_age, TRUTH["galaxy.disc_log_age"]), spectra)


def weights(nodes, place):
    """Of linear interpolation between nodes."""
    return np.array([np.interp(place, nodes, unit) for unit in np.eye(len(nodes))])


def integral(x, y, to):
    """Integral of the piecewise linear y(x) from x[0]."""
    whole = np.concatenate([[0], np.cumsum(0.5 * np.diff(x) * (y[1:] + y[:-1]))])
    index = np.clip(np.searchsorted(x, to) - 1, 0, len(x) - 2)
    offset = to - x[index]
    slope = (y[index + 1] - y[index]) / (x[index + 1] - x[index])
    return whole[index] + offset * (y[index] + 0.5 * slope * offset)


def vacuum(air):
    """Vacuum wavelengths of air ones: Ciddor (1996), eq. 1, inverted by iteration."""
    found = np.array(air)
    for _ in range(10):
        square = (1e4 / found) ** 2
        found = air * (1 + 1e-8 * (5792105.0 / (238.0185 - square) + 167917.0 / (57.362 - square)))
    return found


def write_foreign_cube(path, library=POPSTAR, seed=1):
    """Write DATA and STAT as MUSE's cubes have them; the seed is that of the noise (None: without noise)."""
    flux = foreign_flux(library)
    sigma = flux.max() / SIGNAL_TO_NOISE
    if seed is not None:
        flux = flux + sigma * np.random.default_rng(seed).standard_normal(flux.shape)
    header = fits.Header(
        {
            "CTYPE1": "RA---TAN", "CTYPE2": "DEC--TAN", "CTYPE3": "AWAV",
            "CUNIT1": "deg", "CUNIT2": "deg", "CUNIT3": "Angstrom",
            "CRPIX1": (N_SPAXEL + 1) / 2, "CRPIX2": (N_SPAXEL + 1) / 2, "CRPIX3": 1.0,
            "CRVAL1": 150.0, "CRVAL2": 2.0, "CRVAL3": FIRST,
            "CD1_1": -SPAXEL / 3600, "CD1_2": 0.0, "CD2_1": 0.0, "CD2_2": SPAXEL / 3600, "CD3_3": STEP,
        }
    )  # fmt: skip
    data, stat = (header.copy() for _ in range(2))
    data["BUNIT"], stat["BUNIT"] = "10**(-20)*erg/s/cm**2/Angstrom", "10**(-40)*erg**2/s**2/cm**4/Angstrom**2"
    images = [fits.PrimaryHDU()]
    for name, values, own in (("DATA", flux, data), ("STAT", np.full(flux.shape, sigma**2), stat)):
        images.append(fits.ImageHDU(np.moveaxis(values, 2, 0).astype(np.float32), own, name))
    fits.HDUList(images).writeto(path, overwrite=True)
    return Path(path)


def main():
    """Write the cube."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--library", type=Path, default=POPSTAR)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(write_foreign_cube(given.path, given.library, given.seed))


if __name__ == "__main__":
    main()

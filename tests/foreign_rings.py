"""Line cubes of discs that are warped, lopsided or weighed, from rings of points: numpy and scipy alone.

Points lie on a polar grid in the plane of a thin exponential disc. Each is turned by the inclination and position angle
of its own radius, put into a fine cell of the sky and a channel of velocity, convolved with a Gaussian seeing, summed
over spaxels, and shines as a Gaussian line in wavelength (vacuum), integrated over the bins.
"""

import numpy as np
from astropy import constants
from scipy.ndimage import gaussian_filter
from scipy.special import i0, i1, k0, k1, ndtr

GRAVITY = constants.G.to_value("kpc km2 / (Msun s2)")
_C = constants.c.to_value("km/s")

N_RADIUS, N_ANGLE = 1500, 720
REACH = 12.0
"""Radius of the outermost ring in scale lengths."""

FINE, MARGIN, CHANNEL = 10, 6, 4.0
"""Cells a spaxel along each axis; spaxels around the field; km/s."""

HALPHA = 6564.632
"""Vacuum Angstrom (NIST)."""


def freeman_disc(radius, mass, length):
    """Square of the circular speed of a thin exponential disc (Freeman 1970), (km/s)^2 of kpc and Msun."""
    y = radius / (2 * length)
    bessel = np.where(y < 300, i0(y) * k0(y) - i1(y) * k1(y), 0)
    return 4 * np.pi * GRAVITY * mass / (2 * np.pi * length**2) * length * y**2 * bessel


def isothermal_halo(radius, density, core):
    """Square of the circular speed of rho / (1 + (r / core)^2)."""
    return 4 * np.pi * GRAVITY * density * core**2 * (1 - core / radius * np.arctan(radius / core))


def ring_cube(disc, instrument):
    """Flux (y, x, wave) in the unit of the disc's flux per Angstrom; rows to the North, columns to the West.

    `disc`: scale_length (arcsec), flux, dispersion (km/s), `speed(R)`, and functions of (R, phi) `light`, a factor, and
    `streaming`, added to the speed (km/s); `angles(R)`: inclination and position angle (deg); R in arcsec.
    `instrument`: n_spaxel, spaxel and seeing (FWHM) in arcsec, edges (Angstrom), fwhm of the line spread, redshift.
    """
    radius, angle = np.meshgrid(
        (np.arange(N_RADIUS) + 0.5) * REACH * disc["scale_length"] / N_RADIUS,
        (np.arange(N_ANGLE) + 0.5) * 2 * np.pi / N_ANGLE,
        indexing="ij",
    )
    light = radius * np.exp(-radius / disc["scale_length"]) * disc["light"](radius, angle)
    speed = disc["speed"](radius) + disc["streaming"](radius, angle)
    tilt, turn = (np.radians(own) for own in disc["angles"](radius))
    major, minor = radius * np.cos(angle), radius * np.sin(angle) * np.cos(tilt)
    velocity = speed * np.cos(angle) * np.sin(tilt)
    east = major * np.sin(turn) - minor * np.cos(turn)
    north = major * np.cos(turn) + minor * np.sin(turn)
    cells = _binned(east, north, velocity, light / light.sum() * disc["flux"], instrument)
    channels, density = _seen(*cells, disc["dispersion"], instrument)
    return density @ _profiles(channels, instrument)


def _binned(east, north, velocity, light, instrument):
    """Channels (km/s) and light (channel, y, x) in fine cells, shared between the two channels around each point."""
    n_cell = (instrument["n_spaxel"] + 2 * MARGIN) * FINE
    cell = instrument["spaxel"] / FINE
    column, row = (np.floor(own / cell + 0.5 * n_cell).astype(int) for own in (-east, north))
    inside = (column >= 0) & (column < n_cell) & (row >= 0) & (row < n_cell)
    first = np.floor(velocity.min() / CHANNEL)
    place = velocity / CHANNEL - first
    lower = np.floor(place).astype(int)
    cells = np.zeros((lower.max() + 2, n_cell, n_cell))
    for number, share in ((lower, 1 - (place - lower)), (lower + 1, place - lower)):
        np.add.at(cells, (number[inside], row[inside], column[inside]), (light * share)[inside])
    return (first + np.arange(len(cells))) * CHANNEL, cells


def _seen(channels, cells, dispersion, instrument):
    """More channels, and light (y, x, channel) in spaxels after seeing and dispersion."""
    sigma = instrument["seeing"] / np.sqrt(8 * np.log(2)) / (instrument["spaxel"] / FINE)
    side = instrument["n_spaxel"] + 2 * MARGIN
    seen = [
        gaussian_filter(own, sigma, truncate=6, mode="constant")
        .reshape(side, FINE, side, FINE)
        .sum(axis=(1, 3))[MARGIN:-MARGIN, MARGIN:-MARGIN]
        for own in cells
    ]
    wide = np.arange(channels[0] - 6 * dispersion, channels[-1] + 6 * dispersion, CHANNEL)
    spread = np.exp(-0.5 * ((wide[None, :] - channels[:, None]) / dispersion) ** 2)
    return wide, np.stack(seen, axis=2) @ (spread / spread.sum(axis=1, keepdims=True))


def _profiles(channels, instrument):
    """A line of flux 1 in each channel (channel, wave), per Angstrom."""
    edges, sigma = instrument["edges"], instrument["fwhm"] / np.sqrt(8 * np.log(2))
    centre = HALPHA * (1 + instrument["redshift"]) * np.exp(channels / _C)
    return np.diff(ndtr((edges[None, :] - centre[:, None]) / sigma), axis=1) / np.diff(edges)

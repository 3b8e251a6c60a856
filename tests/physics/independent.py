"""The forward model once more: plain numpy in float64, one star at a time, with nothing taken from the package.

    F_p(lambda) = sum_i m_i S(lambda / D_i; t_i, Z_i) / (4 pi D_L^2 D_i),   D_i = (1 + z) exp(v_i / c)

S is bilinear in (log10 age, log10 Z), limited to the table's edges, and piecewise linear in vacuum wavelength; a bin
holds the exact integral over its vacuum edges, divided by its width in the medium of the cube's axis.
"""

from dataclasses import dataclass

import numpy as np
from astropy import constants, units
from astropy.cosmology import Planck18
from scipy.spatial.transform import Rotation
from scipy.special import ndtr

C_KMS = constants.c.to_value(units.km / units.s)
FWHM = np.sqrt(8 * np.log(2))
LUMINOSITY_OF_SUN = constants.L_sun.to_value(units.erg / units.s)


@dataclass
class Particles:
    """Float64 copies of a galaxy's stars: kpc, km/s, Msun, log10 yr, mass fraction."""

    position: np.ndarray
    velocity: np.ndarray
    mass: np.ndarray
    log_age: np.ndarray
    metallicity: np.ndarray

    @classmethod
    def of(cls, stars):
        fields = (stars.position, stars.velocity, stars.initial_mass, stars.log_age, stars.metallicity)
        return cls(*(np.array(field, dtype=np.float64) for field in fields))

    def selected(self, which):
        return Particles(*(values[which] for values in vars(self).values()))

    def turned(self, rotation):
        turned = self.position @ rotation.T, self.velocity @ rotation.T
        return Particles(*turned, self.mass, self.log_age, self.metallicity)


def vacuum_to_air(vacuum):
    """Ciddor 1996, eq. 1, standard air; above 2000 A only."""
    wavenumber2 = (1e4 / np.asarray(vacuum, dtype=np.float64)) ** 2
    excess = 5792105e-8 / (238.0185 - wavenumber2) + 167917e-8 / (57.362 - wavenumber2)
    return vacuum / (1 + excess)


def air_to_vacuum(air):
    """The inverse by iteration."""
    vacuum = np.array(air, dtype=np.float64)
    for _ in range(30):
        vacuum = vacuum + (air - vacuum_to_air(vacuum))
    assert np.abs(vacuum_to_air(vacuum) / air - 1).max() < 1e-14
    return vacuum


def linear_edges(start, stop, step):
    n_wave = round((stop - start) / step) + 1
    return start + step * (np.arange(n_wave + 1) - 0.5)


def log_edges(start, n_wave, step):
    return start * 10 ** (step * (np.arange(n_wave + 1) - 0.5))


def luminosity_distance(redshift):
    """Mpc."""
    return Planck18.luminosity_distance(redshift).to_value(units.Mpc)


def flux_of_one_lsun(distance):
    """1 Lsun at a luminosity distance in Mpc, in 1e-20 erg/s/cm2."""
    flux = constants.L_sun / (4 * np.pi * (distance * units.Mpc) ** 2)
    return flux.to_value(1e-20 * units.erg / units.s / units.cm**2)


def arcsec_per_kpc(redshift, distance):
    return (1 + redshift) ** 2 / (1e3 * distance) * units.rad.to(units.arcsec)


def body_rotation(position, velocity, mass, reach=2.0):
    """Short axis of the stars to z, its sign by their angular momentum, by the smallest rotation.

    That of sum m x x^T / r_ell^2 over the stars within r_ell^2 = sum_k (x_k / s_k)^2 <= R^2, x_k along the tensor's own
    axes, s_k the roots of its eigenvalues scaled to the product 1, R `reach` half-mass radii: from a sphere on, until
    the axis ratios stay.
    """
    position, velocity, mass = (np.array(x, dtype=np.float64) for x in (position, velocity, mass))
    distance = np.linalg.norm(position, axis=1)
    order = np.argsort(distance)
    enclosed = np.cumsum(mass[order])
    radius = reach * distance[order][np.searchsorted(enclosed, 0.5 * enclosed[-1])]
    axes, lengths, ratios = np.eye(3), np.ones(3), np.ones(3)
    for _ in range(100):
        own = np.linalg.norm(position @ axes / lengths, axis=1)
        inside = (own <= radius) & (own > 0)
        x, weight = position[inside], mass[inside] / own[inside] ** 2
        values, axes = np.linalg.eigh((x * weight[:, None]).T @ x)
        lengths = np.sqrt(values) / np.prod(np.sqrt(values)) ** (1 / 3)
        before, ratios = ratios, lengths / lengths[2]
        if np.abs(ratios - before).max() < 1e-3:
            break
    share = mass[inside] / mass[inside].sum()
    spin = np.cross(position[inside], velocity[inside] - share @ velocity[inside]).T @ share
    short = axes[:, 0] * np.sign(axes[:, 0] @ spin)
    axis = np.cross(short, [0, 0, 1])
    angle = np.arctan2(np.linalg.norm(axis), short[2])
    return Rotation.from_rotvec(angle * axis / np.linalg.norm(axis)).as_matrix()


def sky_rotation(inclination, position_angle):
    """Body axes to (East, North, away): tip the disc about its major axis X, then turn X from East to PA."""
    tip = Rotation.from_euler("x", inclination, degrees=True)
    turn = Rotation.from_euler("z", 90 - position_angle, degrees=True)
    return (turn * tip).as_matrix()


def spaxel_coordinates(particles, scale, pixel_scale, n_x, n_y):
    """(column, row) as real numbers, whole at spaxel centres: East is at low columns, North at high rows."""
    column = (n_x - 1) / 2 - particles.position[:, 0] * scale / pixel_scale
    row = (n_y - 1) / 2 + particles.position[:, 1] * scale / pixel_scale
    return column, row


def distance_to_edges(coordinate):
    """How far a coordinate is from the nearest border between spaxels, in spaxels."""
    return np.abs(coordinate - 0.5 - np.round(coordinate - 0.5))


class SpectrumTable:
    """Look-up of an SSP spectrum, and its integral over bins after the Doppler shift."""

    def __init__(self, spectra, log_age, metallicity, rest_wavelength):
        self.spectra = np.array(spectra, dtype=np.float64)
        self.log_age = np.array(log_age, dtype=np.float64)
        self.log_z = np.log10(np.array(metallicity, dtype=np.float64))
        self.wavelength = np.array(rest_wavelength, dtype=np.float64)

    @classmethod
    def of(cls, library):
        return cls(library.spectra, library.log_age, library.metallicity, library.rest_wavelength)

    def cut(self, first, last):
        """Only the nodes from `first` to `last` (A) and one more on each side."""
        low = max(np.searchsorted(self.wavelength, first) - 1, 0)
        high = np.searchsorted(self.wavelength, last) + 1
        return SpectrumTable(self.spectra[:, :, low:high], self.log_age, 10**self.log_z, self.wavelength[low:high])

    def spectrum(self, log_age, metallicity):
        a, s = bracket(self.log_age, log_age)
        m, t = bracket(self.log_z, np.log10(metallicity) if metallicity > 0 else -np.inf)
        young = (1 - t) * self.spectra[m, a] + t * self.spectra[m + 1, a]
        old = (1 - t) * self.spectra[m, a + 1] + t * self.spectra[m + 1, a + 1]
        return (1 - s) * young + s * old

    def bin_light(self, spectrum, edges, doppler):
        """Integral over each bin of S(lambda / D) / D: trapezoids between all nodes and edges; none beyond the ends."""
        rest = np.clip(edges / doppler, self.wavelength[0], self.wavelength[-1])
        first, last = np.searchsorted(self.wavelength, [rest[0], rest[-1]], side="right")
        grid = np.concatenate([self.wavelength[first:last], rest])
        order = np.argsort(grid, kind="stable")
        grid = grid[order]
        values = np.interp(grid, self.wavelength, spectrum)
        trapezoids = 0.5 * (values[1:] + values[:-1]) * np.diff(grid)
        place = np.empty(grid.size, dtype=np.int64)
        place[order] = np.arange(grid.size)
        starts = place[-edges.size :]
        return np.add.reduceat(trapezoids[: starts[-1]], starts[:-1])


def bracket(nodes, value):
    value = min(max(value, nodes[0]), nodes[-1])
    low = min(max(int(np.searchsorted(nodes, value, side="right")) - 1, 0), len(nodes) - 2)
    return low, (value - nodes[low]) / (nodes[low + 1] - nodes[low])


@dataclass
class Sum:
    """Flux (y, x, wave) in 1e-20 erg/s/cm2/A of the medium, light-weighted v_los (y, x), stars in the field."""

    flux: np.ndarray
    mean_v_los: np.ndarray
    n_inside: int


def sum_of_stars(particles, table, edges, medium, pixel_scale, n_x, n_y, redshift, distance=None):
    """The cube of particles on the sky axes (East, North, away), nearest spaxel, without PSF, LSF and noise."""
    distance = luminosity_distance(redshift) if distance is None else distance
    factor = flux_of_one_lsun(distance)
    vacuum = air_to_vacuum(edges) if medium == "air" else edges
    fastest = np.exp(np.abs(particles.velocity[:, 2]).max(initial=0.0) / C_KMS) * (1 + 1e-9)
    table = table.cut(vacuum[0] / (1 + redshift) / fastest, vacuum[-1] / (1 + redshift) * fastest)
    column, row = spaxel_coordinates(particles, arcsec_per_kpc(redshift, distance), pixel_scale, n_x, n_y)
    column, row = np.floor(column + 0.5).astype(int), np.floor(row + 0.5).astype(int)
    inside = (column >= 0) & (column < n_x) & (row >= 0) & (row < n_y)
    light = np.zeros((n_y, n_x, len(edges) - 1))
    light_velocity = np.zeros((n_y, n_x))
    for star in np.flatnonzero(inside):
        velocity = particles.velocity[star, 2]
        doppler = (1 + redshift) * np.exp(velocity / C_KMS)
        spectrum = table.spectrum(particles.log_age[star], particles.metallicity[star])
        own = particles.mass[star] * factor * table.bin_light(spectrum, vacuum, doppler)
        light[row[star], column[star]] += own
        light_velocity[row[star], column[star]] += own.sum() * velocity
    total = light.sum(axis=2)
    mean = np.divide(light_velocity, total, out=np.full_like(total, np.nan), where=total > 0)
    return Sum(light / np.diff(edges), mean, int(inside.sum()))


def spectra_of_stars(stars, table, edges, redshift, left=None):
    """(star, wave): flux of each star in bins in air, whatever spaxel it is in, in 1e-20 erg/s/cm2/A; `left(star,
    wavelength)`: share of its light that dust lets through, at the table's nodes."""
    particles, vacuum = Particles.of(stars), air_to_vacuum(edges)
    fastest = np.exp(np.abs(particles.velocity[:, 2]).max() / C_KMS) * (1 + 1e-9)
    table = table.cut(vacuum[0] / (1 + redshift) / fastest, vacuum[-1] / (1 + redshift) * fastest)
    factor, spectra = flux_of_one_lsun(luminosity_distance(redshift)), []
    for star, mass in enumerate(particles.mass):
        doppler = (1 + redshift) * np.exp(particles.velocity[star, 2] / C_KMS)
        spectrum = table.spectrum(particles.log_age[star], particles.metallicity[star])
        spectrum = spectrum if left is None else spectrum * left(star, table.wavelength)
        spectra.append(mass * factor * table.bin_light(spectrum, vacuum, doppler))
    return np.stack(spectra) / np.diff(edges)


def errors(found, expected):
    """rms error of each spectrum relative to its mean."""
    return np.sqrt(((found - expected) ** 2).mean(axis=1)) / expected.mean(axis=1)


def calzetti(wavelength, r_v=4.05):
    """A(lambda) / A(V) of Calzetti et al. (2000), eq. 4."""
    x = 1e4 / np.asarray(wavelength)
    blue = -2.156 + 1.509 * x - 0.198 * x**2 + 0.011 * x**3
    return (2.659 * np.where(x > 1 / 0.63, blue, -1.857 + 1.040 * x) + r_v) / r_v


def moffat_in_spaxels(n, fwhm, beta, pixel=0.2, cut=25):
    """Light in n x n spaxels (arcsec), as a whole 1: the mean of cut x cut places in each."""
    fine = (np.arange(cut * n) - (cut * n - 1) / 2) * pixel / cut
    alpha = fwhm / (2 * np.sqrt(2 ** (1 / beta) - 1))
    profile = (1 + (fine[:, None] ** 2 + fine[None, :] ** 2) / alpha**2) ** -beta
    inside = profile.reshape(n, cut, n, cut).mean(axis=(1, 3))
    return inside / inside.sum()


LYMAN_LIMIT = 911.753
"""Vacuum wavelength (A) below which light ionises hydrogen: 13.5984 eV."""


def ionising_photons(spectrum, wavelength):
    """Photons per second below the Lyman limit of a spectrum (Lsun/A): straight between nodes, level beyond."""
    below = wavelength < LYMAN_LIMIT
    nodes, light = np.append(wavelength[below], LYMAN_LIMIT), np.append(spectrum[below], spectrum[below][-1])
    fine = np.unique(np.concatenate([nodes, np.linspace(nodes[0], nodes[-1], 5001)]))
    energy = (constants.h * constants.c / units.AA).to_value(units.erg)
    return np.trapezoid(fine * np.interp(fine, nodes, light), fine) / energy * LUMINOSITY_OF_SUN


def photons_of_rate(table, metallicity, years):
    """Photons per second of the stars that 1 Msun/yr has made for so long: a sum over 4000 steps of the age."""
    each = [ionising_photons(table.spectrum(age, metallicity), table.wavelength) for age in table.log_age]
    edges = np.append(0.0, np.geomspace(1e4, years, 4000))
    middle = np.log10(0.5 * (edges[1:] + edges[:-1]))
    return np.interp(middle, table.log_age, each) @ np.diff(edges)


def look_up(axes, values, place):
    """Bilinear, limited to the ends of the axes: values (node, node, ...) at a place {axis: number}."""
    for name, nodes in axes.items():
        low, share = bracket(nodes, place[name])
        values = (1 - share) * values[low] + share * values[low + 1]
    return values


def line_light(luminosity, centre, sigma, edges):
    """Gaussians (line,) between the edges, summed: centres and widths in the edges' unit."""
    passed = ndtr((edges[:, None] - centre) / sigma)
    return np.diff(passed, axis=0) @ luminosity

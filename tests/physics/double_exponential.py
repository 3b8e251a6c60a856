"""Exponential discs of stars and dust: particles, and their total attenuation without scattering by quadrature."""

from typing import NamedTuple

import numpy as np
from scipy.integrate import cumulative_trapezoid
from scipy.special import gammainc, gammaincinv
from scipy.stats import qmc


class Disc(NamedTuple):
    """Density exp(-R / length - |z| / height) out to `reach`, all of one unit."""

    length: float
    height: float
    reach: float

    def density(self, x, y, z):
        """Relative to that of the centre."""
        radius = np.hypot(x, y)
        return np.where(radius <= self.reach, np.exp(-radius / self.length - np.abs(z) / self.height), 0.0)

    def mass(self, face_on):
        """The whole mass, for this column through the centre seen face-on."""
        return 2 * np.pi * self.length**2 * face_on * gammainc(2, self.reach / self.length)

    def particles(self, count, seed):
        """Positions (N, 3), spread more evenly than random ones."""
        share, angle, place = qmc.Sobol(3, seed=seed).random(count).T
        radius = self.length * gammaincinv(2, share * gammainc(2, self.reach / self.length))
        depth = -self.height * np.sign(place - 0.5) * np.log1p(-np.abs(2 * place - 1))
        return np.stack([radius * np.cos(2 * np.pi * angle), radius * np.sin(2 * np.pi * angle), depth], axis=1)


def transmission(stars, dust, tau, inclination, n_x=40, n_y=240, n_z=401):
    """Mean exp(-optical depth) over all stars of a disc behind a disc of dust, `tau` deep at its centre face-on.

    Rays cross the plane z = 0 at (x, y); along each, the starlight times what comes through the dust in front of it is
    summed. The observer is at -z of a disc with inclination 0.
    """
    cosine, tangent = np.cos(np.deg2rad(inclination)), np.tan(np.deg2rad(inclination))
    nodes, weights = np.polynomial.legendre.leggauss(n_x)
    x, x_weight = stars.reach * 0.5 * (nodes + 1), weights
    high = 14 * max(stars.height, dust.height)
    y = np.linspace(-1, 1, n_y) * (stars.reach + min(high * tangent, 2 * stars.reach))
    z = high * np.sinh(np.linspace(-4, 4, n_z)) / np.sinh(4)
    light = through = 0.0
    for own_x, own_weight in zip(x, x_weight, strict=True):
        place = own_x, y[:, None] + z * tangent, z[None, :]
        shine = stars.density(*place)
        absorbed = dust.density(*place) * tau / (2 * dust.height * cosine)
        depth = cumulative_trapezoid(absorbed, z, axis=1, initial=0.0)
        light += own_weight * np.trapezoid(shine, z, axis=1).sum()
        through += own_weight * np.trapezoid(shine * np.exp(-depth), z, axis=1).sum()
    return through / light

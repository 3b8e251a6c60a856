"""Circular speeds against scipy: Bessel functions, and enclosed masses by integrating the published densities."""

import jax.numpy as jnp
import numpy as np
import pytest
from astropy import constants, units
from scipy import integrate, special

from rubix_like.galaxy.components import rotation

GRAVITY = constants.G.to_value(units.kpc * units.km**2 / units.s**2 / units.Msun)
RADII = np.array([0.01, 0.3, 1.0, 4.0, 8.1, 30.0])
AT = jnp.asarray(RADII)
HALO_DENSITIES = {
    "nfw": lambda x: 1 / (x * (1 + x) ** 2),
    "burkert": lambda x: 1 / ((1 + x) * (1 + x**2)),
    "isothermal": lambda x: 1 / (1 + x**2),
}


def test_the_disc_is_freeman_s():
    y = RADII / (2 * 2.5)
    bessel = special.iv(0, y) * special.kv(0, y) - special.iv(1, y) * special.kv(1, y)
    surface = 3e10 / (2 * np.pi * 2.5**2)
    expected = 4 * np.pi * GRAVITY * surface * 2.5 * y**2 * bessel
    np.testing.assert_allclose(rotation.disc_square(AT, jnp.array(3e10), jnp.array(2.5)), expected, rtol=3e-6)


def test_the_bulge_is_hernquist_s():
    half = 1.8152671
    within = [integrate.quad(lambda r: 2 * r / (1 + r) ** 3, 0, radius * half / 1.2)[0] for radius in RADII]
    expected = GRAVITY * 2e10 * np.array(within) / RADII
    np.testing.assert_allclose(rotation.bulge_square(AT, jnp.array(2e10), jnp.array(1.2)), expected, rtol=1e-6)


@pytest.mark.parametrize("halo", HALO_DENSITIES)
def test_halos_have_the_mass_of_their_density(halo):
    density, scale = 7e6, 9.0
    within = [
        integrate.quad(lambda x: 4 * np.pi * x**2 * HALO_DENSITIES[halo](x), 0, radius / scale)[0] for radius in RADII
    ]
    expected = GRAVITY * density * scale**3 * np.array(within) / RADII
    np.testing.assert_allclose(rotation.HALOS[halo](AT, jnp.array(density), jnp.array(scale)), expected, rtol=1e-5)

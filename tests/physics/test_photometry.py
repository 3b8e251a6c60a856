"""Absolute flux: the SDSS r magnitude of a known population at 10 pc x 1e6, against the raw library file."""

import functools

import h5py
import independent
import numpy as np
import pytest
from astropy import units
from observing import configuration, galaxy_of, observe
from speclite import filters

from rubix_like.extend import resource


@functools.cache
def cube_of(medium, distance):
    """1e10 Msun, 1 Gyr, Z = 0.02 at this many Mpc and redshift 0."""
    config = configuration(
        observation={"redshift": 0.0, "distance": f"{distance} Mpc"},
        instrument={"wavelength": {"start": 5000.0, "stop": 7500.0, "step": 1.25, "medium": medium}},
    )
    return observe(config, galaxy_of())


def cube_magnitude(medium):
    """The only lit spectrum of the cube at 10 Mpc, as speclite sees it."""
    cube = cube_of(medium, 10)
    spectrum, wavelength = np.asarray(cube.flux).sum(axis=(0, 1)), np.asarray(cube.wavelength)
    assert cube.medium == medium
    if medium == "air":
        vacuum = independent.air_to_vacuum(wavelength)
        stretch = np.diff([independent.air_to_vacuum(wavelength + step) for step in (-0.01, 0.01)], axis=0)[0] / 0.02
        spectrum, wavelength = spectrum / stretch, vacuum
    flux = spectrum * 1e-20 * units.erg / (units.s * units.cm**2 * units.AA)
    return float(filters.load_filter("sdss2010-r").get_ab_magnitude(flux, wavelength * units.AA))


def file_magnitude():
    """-2.5 log10 of int(F_lambda R lambda dlambda) / int(3631 Jy c / lambda^2 R lambda dlambda), from the file."""
    band = filters.load_filter("sdss2010-r")
    with h5py.File(resource("data", "popstar")) as file:
        age = int(np.argmin(np.abs(file["log_age"][:] - 9.0)))
        metal = int(np.argmin(np.abs(file["metallicity"][:] - 0.02)))
        assert file["log_age"][age] == 9.0
        assert file["metallicity"][metal] == 0.02
        nodes, luminosity = file["rest_wavelength"][:], file["spectra"][metal, age].astype(np.float64)
    wavelength = np.linspace(band.wavelength[0], band.wavelength[-1], 200001)
    response = np.interp(wavelength, band.wavelength, band.response)
    flux = np.interp(wavelength, nodes, luminosity) * 1e10 * independent.flux_of_one_lsun(10.0) * 1e-20
    zero = (3631 * units.Jy).to_value(units.erg / units.s / units.cm**2 / units.Hz) * 2.99792458e18 / wavelength**2
    integral = [np.trapezoid(f * response * wavelength, wavelength) for f in (flux, zero)]
    return -2.5 * np.log10(integral[0] / integral[1])


def test_r_magnitude_is_that_of_the_library_file():
    """Of cubes in vacuum and in air, which agree to 2e-5 mag: air taken for vacuum, in wavelength or in flux density,
    would be 3e-4 off. The mass at birth over the light is 0.5-1.0 in r at 1 Gyr (the Sun: 4.65, modulus 30)."""
    vacuum, air = map(cube_magnitude, ("vacuum", "air"))
    expected = file_magnitude()
    assert vacuum == pytest.approx(expected, abs=0.005)
    assert air == pytest.approx(expected, abs=0.005)
    assert air == pytest.approx(vacuum, abs=2e-5)
    assert 0.5 < 1e10 / 10 ** (-0.4 * (vacuum - 30.0 - 4.65)) < 1.0


def test_flux_falls_with_the_square_of_the_distance():
    near, far = (np.asarray(cube_of("vacuum", distance).flux) for distance in (10, 30))
    np.testing.assert_allclose(far, near / 9, rtol=1e-12)

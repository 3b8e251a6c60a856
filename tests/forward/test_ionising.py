"""Ionising photons of single stars and of gas that forms them."""

from dataclasses import replace

import equinox as eqx
import independent
import numpy as np
import pytest
from test_nebulae import forming_gas, stars_of

from rubix_like import load_nebular, load_ssp
from rubix_like.extend import fixed
from rubix_like.forward.sources.nebulae import MeanPhotons, StarPhotons, of_constant_rate


@eqx.filter_jit
def photons_of(ionising, particles):
    return ionising.of(particles)


@pytest.fixture(scope="module")
def library():
    return load_ssp("popstar")


def test_photons_are_those_of_the_star_s_own_spectrum(library):
    """Of ages and metallicities between the library's, and beyond its ends; none of stars beyond `oldest`."""
    ages, metals = np.array([6.13, 6.61, 7.02, 4.0, 7.49, 9.0]), np.array([0.003, 0.013, 0.03, 0.1, 1e-6, 0.02])
    table = independent.SpectrumTable(library.spectra, library.log_age, library.metallicity, library.rest_wavelength)
    found = np.asarray(photons_of(StarPhotons.build(library, 31.0), stars_of(ages, 1e5, metals))) * 1e49
    for star in range(5):
        expected = 1e5 * independent.ionising_photons(table.spectrum(ages[star], metals[star]), table.wavelength)
        assert float(found[star]) == pytest.approx(expected, rel=1e-6)
    assert float(found[5]) == 0.0


def test_young_stars_shine_in_the_mean_of_their_photons(library):
    """Below 10 Myr, whatever their ages; as many photons in all as stars in 4000 steps of time have."""
    edges = np.linspace(0.0, 1e7, 4001)
    stars = stars_of(np.log10(0.5 * (edges[1:] + edges[:-1])), 1e3, 0.012)
    expected = np.asarray(photons_of(StarPhotons.build(library, 30.0), stars))
    found = np.asarray(photons_of(StarPhotons.build(library, 30.0, 10.0), stars))
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-3)
    older = stars_of(np.full(4000, 7.1), 1e3, 0.012)
    own, same = (photons_of(StarPhotons.build(library, 30.0, mean), older) for mean in (None, 10.0))
    np.testing.assert_array_equal(own, same)


def test_gas_makes_the_photons_of_a_constant_rate(library):
    """Of 1 Msun/yr for 30 Myr as stars in 4000 steps."""
    edges = np.linspace(0.0, 3e7, 4001)
    stars = stars_of(np.log10(0.5 * (edges[1:] + edges[:-1])), np.diff(edges))
    expected = np.asarray(photons_of(StarPhotons.build(library, 30.0), stars)).sum()
    assert float(photons_of(MeanPhotons.build(library, 30.0), forming_gas())[0]) == pytest.approx(expected, rel=1e-3)


def test_tables_of_ages_are_averaged_over_the_photons(library):
    """A table whose lines grow with log10 age: their mean is that of the photons of a constant rate."""
    table = fixed(load_nebular("mappings-hii"), log_pressure=5.8)
    ages = np.array([6.0, 6.5, 7.0])
    bright = 1.0 + 0.2 * (ages - 6.0)
    axes = {"log_age": ages, **table.axes}
    per_photon = bright[:, None, None, None] * table.per_photon
    old = replace(table, axes=axes, per_photon=per_photon, temperature=np.stack([table.temperature] * 3))
    mean = of_constant_rate(old, library, 10.0)
    assert list(mean.axes) == list(table.axes)
    np.testing.assert_allclose(mean.temperature, table.temperature, rtol=1e-12)
    years = (np.arange(20000) + 0.5) * 1e7 / 20000
    place = list(table.axes).index("oxygen_abundance")
    node = 5
    metals = 0.0142 * 10 ** (table.axes["oxygen_abundance"][node] - 8.76)
    photons = np.asarray(photons_of(StarPhotons.build(library, 10.0), stars_of(np.log10(years), 1.0, metals)))
    expected = np.average(np.interp(np.log10(years), ages, bright), weights=photons)
    found = np.take(mean.line("Ha") / table.line("Ha"), node, axis=place)
    np.testing.assert_allclose(found, expected, rtol=1e-3)

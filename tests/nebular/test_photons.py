"""Photons: their light as templates, no more energy than was absorbed, and their way through gas of one density."""

import numpy as np
import pytest
from scipy.integrate import quad

from rubix_like import load_nebular, load_ssp
from rubix_like.extend import fixed, nebular_continuum
from rubix_like.nebular.ionising_light import absorbed_within, leaked_share
from rubix_like.nebular.line_grid import photon_continuum, photon_lines, refined

LUMINOSITY = 1e49 / 3.828e33
"""Lsun of 1e49 erg/s."""

LOG_PRESSURE = 5.8


@pytest.fixture(scope="module")
def table():
    return fixed(load_nebular("mappings-hii"), log_pressure=LOG_PRESSURE)


@pytest.fixture(scope="module")
def continuum(table):
    return photon_continuum(table, LOG_PRESSURE, 3000.0, 10000.0)


def test_lines_are_those_of_the_table(table):
    """At a node of the table, in Lsun per 1e49 photons; widths are thermal."""
    lines = photon_lines(table)
    nodes = dict(zip(lines.axes.names, lines.axes.nodes, strict=True))
    assert set(nodes) == {"oxygen_abundance", "log_u"}
    place = tuple(0 if name == "oxygen_abundance" else -1 for name in lines.axes.names)
    shape = [len(nodes_) for nodes_ in lines.axes.nodes]
    found = lines.table.reshape(*shape, -1)[place][lines.lines.index("Ha")]
    assert found == pytest.approx(table.line("Ha")[place] * LUMINOSITY, rel=1e-9)
    widths = dict(zip(lines.lines, lines.thermal, strict=True))
    assert widths["Ha"] == pytest.approx(9.08, abs=0.02)
    assert widths["[O III] 5007"] == pytest.approx(2.28, abs=0.02)


def test_the_continuum_is_that_of_the_table_s_temperature(table, continuum):
    """Between its nodes, at the refined table's own temperature and P / (2.1 k T): to 0.4 %, but for the few A between
    the two nodes of an edge."""
    fine = refined(table)
    dice = np.random.default_rng(2)
    wavelength = continuum.rest_wavelength
    between = 0.5 * (wavelength[1:] + wavelength[:-1])
    axes = continuum.axes
    for _ in range(12):
        place = tuple(int(dice.integers(len(nodes))) for nodes in fine.axes.values())
        weights = np.ones(1)
        for number, nodes, fine_nodes in zip(place, axes.nodes, fine.axes.values(), strict=True):
            own = np.stack([np.interp(fine_nodes[number], nodes, unit) for unit in np.eye(len(nodes))])
            weights = np.outer(weights, own).reshape(-1)
        spectrum = np.interp(between, wavelength, weights @ continuum.table)
        temperature = float(fine.temperature[place])
        expected = nebular_continuum(between, temperature, 10**LOG_PRESSURE / (2.1 * temperature)) * LUMINOSITY
        wide = np.diff(wavelength) > 1e-3 * between
        np.testing.assert_allclose(spectrum[wide], expected[wide], rtol=4e-3)


def test_there_is_no_continuum_below_the_lyman_limit(table):
    templates = photon_continuum(table, LOG_PRESSURE, 500.0, 1500.0)
    assert templates.rest_wavelength[0] >= 911.75 * (1 - 1e-5)
    assert templates.covered[0] == 0.0


def test_no_more_energy_than_was_absorbed(table):
    """All lines and the whole continuum against the mean energy of the photons of stars of 1-5 Myr."""
    library = load_ssp("popstar")
    wavelength = np.asarray(library.rest_wavelength)
    inside = wavelength < 911.75
    light = np.asarray(library.spectra)[:, (library.log_age > 6.0) & (library.log_age < 6.7)][..., inside]
    photons = np.trapezoid(light * wavelength[inside], wavelength[inside]) / 1.98644586e-8
    energy = (np.trapezoid(light, wavelength[inside]) / photons).min()
    lines = photon_lines(table).table.sum(axis=1).max() / LUMINOSITY
    whole = photon_continuum(table, LOG_PRESSURE, 900.0, 3e5)
    continuum = np.trapezoid(whole.table, whole.rest_wavelength).max() / LUMINOSITY
    assert continuum > 1e-11
    assert lines + continuum < energy


def test_the_share_within_a_radius_is_that_of_random_ways():
    """A million photons in random directions, with ways of an exponential distribution."""
    dice = np.random.default_rng(6)
    cosine = dice.uniform(-1, 1, 10**6)
    radius = dice.exponential(1.0, 10**6) * np.sqrt(1 - cosine**2)
    for limit in (0.1, 0.5, 1.0, 3.0):
        assert absorbed_within(np.array([limit]))[0] == pytest.approx(np.mean(radius < limit), abs=2e-3)


@pytest.mark.parametrize("path", [0.3, 2.0, 10.0])
def test_shares_of_cells_are_integrals_over_them(path):
    share = leaked_share(path, 60)
    assert share.sum() == pytest.approx(1.0, abs=2e-3)
    np.testing.assert_allclose(share, share[::-1, ::-1].T, rtol=1e-12)
    middle = len(share) // 2

    def along(x, y):
        radius = np.hypot(x, y)
        return quad(lambda z: np.exp(-np.hypot(radius, z) / path) / (np.hypot(radius, z) ** 2), 0, 40 * path)[0]

    nodes, weights = np.polynomial.legendre.leggauss(5)
    own = sum(
        a * b * along(2 + 0.5 * x, 1 + 0.5 * y)
        for x, a in zip(nodes, weights, strict=True)
        for y, b in zip(nodes, weights, strict=True)
    )
    assert share[middle + 1, middle + 2] == pytest.approx(own / 4 * 2 / (4 * np.pi * path), rel=0.02)


def test_it_reaches_no_further_than_is_asked_for():
    assert leaked_share(50.0, 20).shape == (41, 41)
    np.testing.assert_allclose(leaked_share(50.0, 20), leaked_share(50.0, 30)[10:-10, 10:-10], rtol=1e-12)

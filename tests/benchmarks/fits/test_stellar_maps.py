"""What the comparison of maps rests on: the rival's disc, the line spread put on numpy's disc, the true maps."""

import foreign_cube
import independent
import numpy as np
import pytest
import stellar_maps
import stellar_maps_peer
from scipy.ndimage import gaussian_filter

import rubix_like as rl


@pytest.mark.slow(8)
def test_the_disc_of_the_maps_is_found_in_the_true_maps(monkeypatch):
    """Those of the disc of `tests/foreign_cube.py`, with errors of 1 km/s: no beam smearing is left in its numbers."""
    for name, value in stellar_maps.GRID.items():
        monkeypatch.setattr(foreign_cube, name, value)
    monkeypatch.setattr(foreign_cube, "TRUTH", foreign_cube.TRUTH | stellar_maps.TRUTH)
    channel, density = foreign_cube.line_of_sight_distribution()
    light = density.sum(axis=2)
    mean = density @ channel / light
    sigma = np.sqrt(density @ channel**2 / light - mean**2)
    bins = np.arange(light.size).reshape(light.shape)
    error = np.ones(light.size)
    job = {
        "bins": bins,
        "light": light.ravel() / light.max(),
        "light_noise": np.full(light.size, 1e-3),
        "spaxel": stellar_maps.OBSERVED["disc"]["spaxel"],
        "seeing": 0.9,
    }
    maps = {"velocity": mean.ravel(), "sigma": sigma.ravel(), "velocity_error": error, "sigma_error": error}
    monkeypatch.setattr(stellar_maps_peer, "ANGLES", (110.0,))
    found = stellar_maps_peer.disc_of(job, maps)
    distance = independent.luminosity_distance(foreign_cube.REDSHIFT)
    scale = independent.arcsec_per_kpc(foreign_cube.REDSHIFT, distance)
    assert found["inclination"] == pytest.approx(55.0, abs=0.1)
    assert found["position_angle"] == pytest.approx(120.0, abs=0.1)
    assert found["velocity"] == pytest.approx(200.0, rel=0.01)
    assert found["dispersion"] == pytest.approx(55.0, abs=0.5)
    assert found["turnover"] / scale == pytest.approx(0.4, rel=0.03)
    assert found["scale_length"] / scale == pytest.approx(0.9, rel=0.005)


def test_a_narrow_line_is_as_wide_as_the_line_spread_without_the_bin(monkeypatch, tmp_path):
    """A Gaussian of the library's width at 5200 Angstrom of air: variances add, and light is kept."""
    rest, centre, own = np.arange(4500.0, 5700.0, 0.05), 5100.0, 2.5 / np.sqrt(8 * np.log(2))
    spectrum = np.exp(-0.5 * ((rest - centre) / own) ** 2)
    monkeypatch.setattr(foreign_cube, "population", lambda _: (rest, spectrum))
    library = type("Library", (), {"fwhm": np.full(len(rest), 2.5)})
    monkeypatch.setattr(rl, "load_ssp", lambda _: library)
    fine, seen = stellar_maps.spread_population(tmp_path, 0.02)
    middle = np.average(fine, weights=seen)
    variance = np.average((fine - middle) ** 2, weights=seen)
    width = stellar_maps.width_of(independent.vacuum_to_air(centre * 1.02)) / 1.02
    expected = (width**2 - 8 * np.log(2) * (1.25 / 1.02) ** 2 / 12) / (8 * np.log(2))
    assert middle == pytest.approx(centre, abs=1e-3)
    assert variance == pytest.approx(expected, rel=2e-3)
    assert seen.sum() * 0.1 == pytest.approx(own * np.sqrt(2 * np.pi), rel=1e-3)


def test_two_particles_are_where_they_belong():
    """Seen pole-on with no turn: one 2 kpc East and one in the middle, of the same light; light, V, sigma, ages."""
    library = rl.load_ssp("popstar")
    own = {"redshift": 0.05, "n_spaxel": 9, "spaxel": 0.8, "seeing": 1.6}
    stars = rl.Stars(
        np.array([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        np.array([[0.0, 0.0, 90.0], [0.0, 0.0, -30.0]]),
        initial_mass=np.full(2, 1e6),
        log_age=np.full(2, 9.3),
        metallicity=np.full(2, 0.02),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stellar_maps, "TURNED", {"inclination": 0.0, "position_angle": 90.0})
        light, mean, sigma, ages = stellar_maps.particle_maps(stars, library, own)
    scale = independent.arcsec_per_kpc(0.05, independent.luminosity_distance(0.05)) / 0.8
    width = 1.6 / np.sqrt(8 * np.log(2)) / 0.8
    images = []
    for east in (2.0, 0.0):  # cells of a tenth of a spaxel, by scipy
        image = np.zeros((290, 290))
        image[145, int(np.floor(145 - east * scale * 10))] = 1
        seen = gaussian_filter(image, width * 10, truncate=8)
        images.append(seen.reshape(29, 10, 29, 10).sum(axis=(1, 3))[10:-10, 10:-10])
    share = images[0] / (images[0] + images[1])
    bright = light > 0.01 * light.max()
    np.testing.assert_allclose((light / light.sum())[bright], (sum(images) / sum(images).sum())[bright], rtol=0.12)
    np.testing.assert_allclose(mean[bright], (120 * share - 30)[bright], atol=7)
    np.testing.assert_allclose(sigma[bright], 120 * np.sqrt(share * (1 - share))[bright], atol=7)
    np.testing.assert_allclose(ages, 9.3, atol=1e-9)


def test_bins_are_weighted_by_light():
    """Two spaxels of light 3 and 1, without dispersion, at 0 and 40 km/s: 10 km/s, sqrt(3 / 16) 40 km/s."""
    found = stellar_maps.in_bins(
        np.array([[0, 0, -1]]),
        np.array([[3.0, 1.0, 50.0]]),
        np.array([[0.0, 40.0, 500.0]]),
        np.zeros((1, 3)),
        np.array([[9.0, 10.0, 5.0]]),
    )
    np.testing.assert_allclose(
        [found[name][0] for name in ("velocity", "sigma", "log_age")], [10, 40 * np.sqrt(3) / 4, 9.25]
    )

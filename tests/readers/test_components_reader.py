"""Cubes of smooth components against numpy: a thin disc in rotation, a thick disc; settings that are refused."""

import foreign_cube
import jax
import numpy as np
import pytest
import yaml
from astropy.cosmology import Planck18
from scipy import ndimage, special

from rubix_like import ConfigError, Pipeline, load_config, load_galaxy, load_galaxy_info

TRUTH = foreign_cube.TRUTH
SMALL = {"N_SPAXEL": 12, "MARGIN": 6, "FINE": 10, "LAST": 4960.0}
"""Constants of the foreign cube."""

KPC = float(Planck18.angular_diameter_distance(0.02).to_value("kpc")) * np.pi / 180 / 3600
"""kpc of an arcsec."""

POPULATION = {"log_age": TRUTH["galaxy.disc_log_age"], "metallicity": TRUTH["galaxy.disc_metallicity"]}
DISC = {
    "name": "disc",
    "mass": "1e10 Msun",
    "light": {"profile": "exponential", "scale_length": "0.8 kpc"},
    "height": {"profile": "thin"},
    "rotation": {"curve": "arctan", "velocity": "210 km/s", "turnover_radius": "0.4 kpc"},
    "dispersion": "45 km/s",
    "population": POPULATION,
}


def configuration(*components, devices=1, n_spaxel=12, **observation):
    return {
        "galaxy": {"reader": "components", "components": list(components)},
        "ssp": {"library": "popstar"},
        "observation": {"redshift": 0.02, "inclination": 50, "position_angle": 120, **observation},
        "instrument": {
            "name": "muse",
            "fov": 0.5 * n_spaxel,
            "pixel_scale": 0.5,
            "psf": {"kind": "gaussian", "fwhm": 0.9},
            "lsf": None,
            "wavelength": {"medium": "air", "sampling": "linear", "start": 4900, "stop": 4960, "step": "1.25 Angstrom"},
        },
        "pipeline": "stellar",
        "engine": {"method": "basis", "velocity_range": 1000},
        "devices": {"data": devices},
    }


def cube_of(*components, overrides=None, **settings):
    config = load_config(configuration(*components, **settings), overrides=overrides)
    galaxy, info = load_galaxy(config), load_galaxy_info(config)
    return Pipeline.from_config(config, galaxy=galaxy, info=info)(galaxy)


def flux_of(*components, **settings):
    return np.asarray(cube_of(*components, **settings).flux)


@pytest.fixture(scope="module")
def foreign():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(foreign_cube, name, value)
        return foreign_cube.foreign_flux()


@pytest.fixture(scope="module")
def disc():
    return cube_of(DISC)


def test_a_rotating_disc_is_that_of_numpy(disc, foreign):
    """To a tenth of the noise at S/N 100."""
    flux = np.asarray(disc.flux)
    assert np.abs(flux - foreign).max() < 1e-3 * foreign.max()
    assert np.sqrt(np.mean((flux - foreign) ** 2)) < 2e-4 * foreign.max()


@pytest.mark.slow(6)
def test_on_eight_devices_it_is_the_same(disc):
    assert jax.device_count() == 8
    flux = np.asarray(disc.flux)
    np.testing.assert_allclose(flux_of(DISC, devices=8), flux, rtol=2e-5, atol=1e-6 * flux.max())


@pytest.mark.slow(6)
def test_components_have_angles_and_centres_of_their_own(foreign):
    """Two components of half the mass, one of them turned and moved to where the other is."""
    half = DISC | {"mass": "5e9 Msun", "inclination": 30, "position_angle": -15, "center": [0.7, -0.2]}
    other = half | {"name": "other", "inclination": "30 deg", "light": {"profile": "exponential", "scale_length": 0.8}}
    found = flux_of(half, other, inclination=20, position_angle=135, offset=[-0.7, 0.2])
    assert np.abs(found - foreign).max() < 1e-3 * foreign.max()


@pytest.mark.slow(6)
def test_a_thick_disc_is_the_integral_along_the_line_of_sight():
    """exp(-R / R_d) sech^2(z / h) at 75 deg, summed over lines of sight on cells of a tenth of a spaxel."""
    length, height, tilt, cell = 0.6, 0.25, np.deg2rad(75), 0.05
    axis = (np.arange(320) - 159.5) * cell * KPC
    depth = np.linspace(-6, 6, 401)
    image = np.zeros((320, 320))
    for along in depth:  # minor axis of the sky to the North, y = N cos i + s sin i, z = -N sin i + s cos i
        y = axis[:, None] * np.cos(tilt) + along * np.sin(tilt)
        z = -axis[:, None] * np.sin(tilt) + along * np.cos(tilt)
        image += np.exp(-np.hypot(axis[None, :], y) / length) / np.cosh(z / height) ** 2
    seen = ndimage.gaussian_filter(image, 0.9 / np.sqrt(8 * np.log(2)) / cell, mode="constant", truncate=6)
    share = (seen / seen.sum()).reshape(32, 10, 32, 10).sum(axis=(1, 3))[10:-10, 10:-10]
    still = {"light": {"profile": "exponential", "scale_length": length}, "rotation": None, "dispersion": 0}
    thick = DISC | still | {"height": {"profile": "sech2", "scale_height": height}}
    found = flux_of(thick, inclination=75, position_angle=90).sum(axis=2)
    assert np.abs(found / found.sum() - share / share.sum()).max() < 1e-3 * (share / share.sum()).max()


def sersic_radii(share, effective_radius, index):
    """Within which there are these shares of all light: gamma(2 n, b (R / R_e)^(1 / n)) / Gamma(2 n)."""
    b = special.gammaincinv(2 * index, 0.5)
    return effective_radius * (special.gammaincinv(2 * index, share) / b) ** index


@pytest.mark.parametrize(("size", "index"), [(0.4, 4), (0.15, 6)])
def test_steep_light_is_the_integral_over_spaxels(size, index):
    """Sersic profiles of this R_e (kpc): rings of equal light, whose points are seen as Gaussians over spaxels."""
    light = {"profile": "sersic", "effective_radius": size, "index": index}
    disc = DISC | {"light": light, "rotation": None, "dispersion": 0}
    found = flux_of(disc, overrides={"instrument.wavelength.step": 20}).sum(axis=2)
    radius = sersic_radii((np.arange(400) + 0.5) / 400, size, index)[:, None] / KPC
    angle, turn = (np.arange(128) + 0.5) * 2 * np.pi / 128, np.deg2rad(120)
    major, minor = radius * np.cos(angle), radius * np.sin(angle) * np.cos(np.deg2rad(50))
    west, north = minor * np.cos(turn) - major * np.sin(turn), major * np.cos(turn) + minor * np.sin(turn)
    edges, sigma = np.arange(13) * 0.5 - 3, 0.9 / np.sqrt(8 * np.log(2))
    columns, rows = (np.diff(special.ndtr((edges - axis[..., None]) / sigma), axis=-1) for axis in (west, north))
    share = np.einsum("ray,rax->yx", rows, columns)
    assert np.abs(found / found.sum() - share / share.sum()).max() < 1e-3 * (share / share.sum()).max()


BAD = {
    "no light": ({"light": None}, "light"),
    "unknown profile": ({"light": {"profile": "exponental"}}, "did you mean 'exponential'"),
    "unknown key": ({"light": {"profile": "exponential", "length": 1}}, "unknown key 'length'"),
    "missing key": ({"light": {"profile": "sersic", "index": 2}}, "effective_radius"),
    "wrong unit": ({"mass": "3 kpc"}, "Msun"),
    "negative": ({"dispersion": "-3 km/s"}, "expected a number >= 0"),
    "a name with a dot": ({"name": "thick.disc"}, "letters, digits and underscores"),
    "knots": ({"rotation": {"curve": "spline", "radii": [1, 2], "speeds": [3]}}, "a speed for each"),
    "index": ({"light": {"profile": "sersic", "effective_radius": 1, "index": 20}}, "index"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_components_are_refused(case):
    keys, words = BAD[case]
    with pytest.raises(ConfigError) as raised:
        load_config(configuration(DISC | keys))
    assert words in str(raised.value)


def test_a_dispersion_with_a_profile_is_written_and_read():
    for dispersion in ({"profile": "exponential", "central": "0.1 km/ms", "scale_length": "2 kpc"}, "60 km/s"):
        config = load_config(configuration({**DISC, "dispersion": dispersion}))
        assert load_config(yaml.safe_load(config.to_yaml())).galaxy == config.galaxy


def test_a_kind_of_another_section_is_refused():
    made = load_config(configuration(DISC)).galaxy.components[0]
    assert load_config(configuration({**DISC, "light": made.light})).galaxy.components[0] == made
    with pytest.raises(ConfigError, match="rotation: expected a section with the key 'curve'"):
        load_config(configuration({**DISC, "rotation": made.light}))


def test_names_are_given_once():
    with pytest.raises(ConfigError, match="'disc' twice"):
        load_config(configuration(DISC, DISC))


def test_components_need_no_alignment_and_are_shared_among_spaxels():
    config = load_config(configuration(DISC, align="stars"))
    assert (config.engine.deposit, config.resolved_align) == ("tsc", "none")
    assert load_config(yaml.safe_load(config.to_yaml())).to_yaml() == config.to_yaml()


def test_images_without_a_psf_are_said_to_be_as_wide_as_the_deposit(disc):
    notes = [disc.meta.notes]
    for deposit in ("nearest", "tsc"):
        changes = {"instrument.psf": None, "engine.deposit": deposit, "galaxy.points": 512}
        config = load_config(configuration(DISC), overrides=changes)
        galaxy, info = load_galaxy(config), load_galaxy_info(config)
        notes.append(Pipeline.from_config(config, galaxy=galaxy, info=info).frame.meta.notes)
    words = "without a PSF images are as wide as engine.deposit: tsc"
    assert [sum(note.startswith(words) for note in some) for some in notes] == [0, 0, 1]


def test_more_points_where_the_instrument_is_sharper():
    sharp = configuration(DISC) | {}
    sharp["instrument"] = sharp["instrument"] | {"psf": {"kind": "gaussian", "fwhm": 0.3}, "pixel_scale": 0.1}
    numbers = [load_galaxy_info(settings).n_stars for settings in (configuration(DISC), sharp)]
    assert numbers[0] >= 16384
    assert numbers[1] >= 4 * numbers[0]

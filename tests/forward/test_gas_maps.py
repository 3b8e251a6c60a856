"""Maps of gas that has no light: numpy's sums, the stars' maps of a twin, one device and eight, files, refusals."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from command_line import page_titles
from independent import arcsec_per_kpc, luminosity_distance, sky_rotation, spaxel_coordinates
from small import muse

from rubix_like import ConfigError, Galaxy, Maps, Pipeline, load_config, load_galaxy, make_mesh, run

N_X, N_Y, PIXEL, REDSHIFT, INCLINATION, POSITION_ANGLE, VELOCITY = 15, 11, 0.2, 0.05, 50.0, 20.0, 35.0
UNITS = {
    "gas_mass": "solMass",
    "v_gas": "km s-1",
    "sigma_gas": "km s-1",
    "metallicity_gas": "",
    "star_formation_rate": "solMass yr-1",
    "hi_mass": "solMass",
    "h2_mass": "solMass",
}
NAMES = list(UNITS)
RATE = 2.5
"""Msun/yr of all gas."""


def config(gas=True, deposit="nearest", **galaxy):
    disc = {"n_stars": 300, "n_gas": 300, "disc_scale_length": 0.4, "bulge_fraction": 0, "disc_dispersion": 10}
    own = {"gas_scale_length": 0.5, "gas_rotation_velocity": -150, "gas_fraction": 0.3, "star_formation_rate": RATE}
    return load_config(
        {
            "galaxy": {"reader": "synthetic", **disc, **own, **galaxy},
            "observation": {
                "redshift": REDSHIFT,
                "align": "none",
                "inclination": INCLINATION,
                "position_angle": POSITION_ANGLE,
                "velocity_offset": VELOCITY,
            },
            "instrument": muse(5000, 5040, 10, fov=(N_X * PIXEL, N_Y * PIXEL), psf={"fwhm": 0.4}),
            "engine": {"method": "direct", "precision": "float64", "deposit": deposit, "oversampling": 1},
            "products": {"losvd": None, "gas": gas},
        }
    )


@functools.cache
def galaxy():
    """Its gas has fractions of hydrogen as those of a file."""
    own = jax.tree.map(np.asarray, load_galaxy(config()))
    neutral, molecular = np.random.default_rng(5).uniform(0, 0.35, (2, 300))
    return dataclasses.replace(own, gas=dataclasses.replace(own.gas, hi_fraction=neutral, h2_fraction=molecular))


@functools.cache
def pipeline():
    return Pipeline.from_config(config(), galaxy(), mesh=make_mesh(1))


@functools.cache
def cube():
    return jax.tree.map(np.asarray, pipeline()(galaxy()))


def maps():
    return cube().maps


def turned(gas):
    """Gas on the axes (East, North, away), by the formula."""
    rotation = sky_rotation(INCLINATION, POSITION_ANGLE)
    return dataclasses.replace(gas, position=gas.position @ rotation.T, velocity=gas.velocity @ rotation.T)


def image_of(gas, amount):
    """The sums of an amount of each cell in spaxels."""
    scale = arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT))
    column, row = spaxel_coordinates(gas, scale, PIXEL, N_X, N_Y)
    edges = (np.arange(N_Y + 1) - 0.5, np.arange(N_X + 1) - 0.5)
    return np.histogram2d(row, column, bins=edges, weights=amount)[0]


def test_every_map_is_the_sum_over_its_cells():
    """Before the PSF, against numpy's histograms of rotated positions and velocities."""
    gas = turned(galaxy().gas)
    mass, velocity = gas.mass, gas.velocity[:, 2] + VELOCITY
    total = image_of(gas, mass)
    with np.errstate(invalid="ignore"):
        mean, square, metals = (image_of(gas, mass * own) / total for own in (velocity, velocity**2, gas.metallicity))
    expected = {
        "gas_mass": total,
        "v_gas": mean,
        "sigma_gas": np.sqrt(np.maximum(square - mean**2, 0)),
        "metallicity_gas": metals,
        "star_formation_rate": image_of(gas, gas.star_formation_rate),
        "hi_mass": image_of(gas, mass * gas.hi_fraction),
        "h2_mass": image_of(gas, mass * gas.h2_fraction),
    }
    assert sorted(expected) == sorted(NAMES)
    assert 0 < np.isnan(mean).sum() < 0.8 * N_X * N_Y
    for name, image in expected.items():
        loose = {"sigma_gas": 1e-4, "v_gas": 1e-6}.get(name, 0)  # km/s: the root of one cell's rounding; near 0
        np.testing.assert_allclose(getattr(maps().before, name), image, rtol=1e-6, atol=loose, err_msg=name)


def test_a_cell_is_as_wide_as_its_smoothing_length_whatever_the_stars_have():
    """A Gaussian of 0.2739 smoothing lengths; 2 % for the widths between two classes, and what lies outside.
    All of its mass is in the map."""
    own = galaxy()
    cell = jax.tree.map(lambda leaf: leaf[:1], own.gas)
    place = np.zeros((1, 3))
    cell = dataclasses.replace(cell, position=place, velocity=place, smoothing_length=np.array([1.0]))
    narrow = dataclasses.replace(own.stars, smoothing_length=np.full(len(own.stars.position), 0.02))
    run_of_it = load_config(config(deposit="smoothed"), overrides={"instrument.psf": None})
    found = Pipeline.from_config(run_of_it, wide := Galaxy(narrow, cell), mesh=make_mesh(1))(wide).maps.before.gas_mass
    assert float(found.sum()) == pytest.approx(cell.mass.sum(), rel=1e-4)
    across = (np.arange(N_X) - (N_X - 1) / 2) * PIXEL
    profile = np.asarray(found).sum(axis=0)
    width = np.sqrt((profile * across**2).sum() / profile.sum() - PIXEL**2 / 12)
    assert width == pytest.approx(0.2739 * arcsec_per_kpc(REDSHIFT, luminosity_distance(REDSHIFT)), rel=0.02)


def test_gas_like_the_stars_has_the_stars_maps():
    """Before and after the PSF: the same sums by another way, of which others tests compare the stars' with numpy."""
    stars = galaxy().stars
    twin = dataclasses.replace(
        galaxy().gas,
        position=stars.position,
        velocity=stars.velocity,
        mass=stars.initial_mass,
        metallicity=stars.metallicity,
        star_formation_rate=3 * stars.initial_mass,
    )
    found = jax.tree.map(np.asarray, pipeline()(Galaxy(stars=stars, gas=twin)).maps)
    for images in (found.before, found.after):
        pairs = {
            "gas_mass": "mass",
            "v_gas": "v_mass",
            "sigma_gas": "sigma_mass",
            "metallicity_gas": "metallicity_mass",
        }
        for name, stellar in pairs.items():
            loose = 1e-4 if name == "sigma_gas" else 0
            np.testing.assert_allclose(getattr(images, name), getattr(images, stellar), rtol=1e-9, atol=loose)
        np.testing.assert_allclose(images.star_formation_rate, 3 * images.mass, rtol=1e-9)


def test_gas_against_the_stars_has_velocities_of_the_other_sign():
    for images in (maps().before, maps().after):
        both = np.isfinite(images.v_gas) & np.isfinite(images.v_mass)
        of_gas, of_stars = (image[both] - VELOCITY for image in (images.v_gas, images.v_mass))
        assert np.corrcoef(of_gas, of_stars)[0, 1] < -0.7
        assert np.abs(of_gas).max() > 60
    within = maps().after.star_formation_rate.sum() / RATE
    assert 0.7 < within < 1


def test_maps_of_gas_are_in_the_file_with_their_units(tmp_path):
    observed, path = maps(), maps().write(tmp_path / "maps.fits")
    found = Maps.read(path)
    for field, unit in UNITS.items():
        for which, suffix in (("after", ""), ("before", "_TRUE")):
            image = getattr(getattr(observed, which), field)
            np.testing.assert_array_equal(getattr(getattr(found, which), field), np.asarray(image, np.float32))
            header = fits.getheader(path, field.upper() + suffix)
            assert header.get("BUNIT", "") == unit
            units.Unit(unit, format="fits")
            assert "gas" in str(header["COMMENT"]) or "hydrogen" in str(header["COMMENT"])
    assert "mean velocity of gas, weighted by its mass, after the PSF" in page_titles(cube(), path)


def test_maps_need_neither_painted_stars_nor_metals_of_the_gas(tmp_path):
    """Of a pipeline that paints lines of the gas alone."""
    own = dataclasses.replace(galaxy(), gas=dataclasses.replace(galaxy().gas, metallicity=None))
    lines = load_config(config(), overrides={"pipeline": "lines", "lines.wavelengths": 4780.0})
    observed = Pipeline.from_config(lines, own, mesh=make_mesh(1))(own)
    assert any("the pipeline paints no stars" in str(note) for note in observed.meta.values())
    assert observed.maps.counters is None
    for which in ("before", "after"):
        found = getattr(Maps.read(observed.maps.write(tmp_path / "maps.fits")), which)
        assert found.metallicity_gas is None
        for name in ("mass", "v_light", "light", "gas_mass", "v_gas", "sigma_gas", "star_formation_rate", "h2_mass"):
            expected = np.asarray(getattr(getattr(maps(), which), name))
            np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-5, atol=1e-4, err_msg=name)


def test_a_galaxy_without_gas_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"galaxy.gas: expected particles for the maps of products.gas.*set products"):
        run(config(n_gas=0), output=tmp_path / "cube.fits")


def test_gas_without_lengths_is_not_smoothed():
    own = dataclasses.replace(galaxy(), stars=dataclasses.replace(galaxy().stars, smoothing_length=np.full(300, 0.2)))
    smoothed = Pipeline.from_config(config(deposit="smoothed"), own, mesh=make_mesh(1))
    without = dataclasses.replace(own, gas=dataclasses.replace(own.gas, smoothing_length=None))
    with pytest.raises(ValueError, match=r"gas.smoothing_length: expected one per particle"):
        smoothed.trace(without)
    dark = dataclasses.replace(without.gas, mass=np.zeros(300))
    with pytest.raises(ConfigError, match=r"smoothing_length .* and so gas that is read, got none"):
        Pipeline.from_config(config(deposit="smoothed"), Galaxy(own.stars, dark), mesh=make_mesh(1))


@pytest.mark.slow
def test_maps_of_gas_have_the_gradient_of_their_differences():
    """Of velocity, metallicity and mass after the PSF, with respect to cells' velocities, masses and places."""
    smooth = Pipeline.from_config(config(deposit="tsc"), galaxy(), mesh=make_mesh(1))
    pattern = np.random.default_rng(3).normal(size=(4, N_Y, N_X))

    @jax.jit
    def score(gas):
        images = smooth(Galaxy(stars=galaxy().stars, gas=gas)).maps.after
        seen = (images.v_gas, images.sigma_gas, 1e3 * images.metallicity_gas, images.gas_mass / 1e7)
        return sum(jnp.where(jnp.isnan(own), 0, own * w).sum() for own, w in zip(seen, pattern, strict=True))

    gas = jax.tree.map(jnp.asarray, galaxy().gas)
    gradient = jax.jit(jax.grad(score))(gas)
    for name, step in (("velocity", 1e-3), ("mass", 10.0), ("position", 1e-6)):
        slope = np.asarray(getattr(gradient, name))
        assert np.isfinite(slope).all()
        direction = np.random.default_rng(4).normal(size=slope.shape)
        ends = [
            float(score(dataclasses.replace(gas, **{name: getattr(gas, name) + sign * step * direction})))
            for sign in (1, -1)
        ]
        assert (slope * direction).sum() == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-4), name

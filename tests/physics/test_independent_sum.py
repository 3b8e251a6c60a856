"""Cubes of real galaxies against a numpy sum over particles that takes nothing but their arrays from the package."""

import os

import independent
import numpy as np
import pytest
from astropy.io import fits

from rubix_like import Galaxy, Pipeline, Stars, load_config, load_galaxy, load_ssp, run
from rubix_like.extend import cache_directory

ILLUSTRIS_1, ILLUSTRIS_2 = "illustris1_z0_subhalo420815_stars.hdf5", "illustris1_z0_subhalo426280_stars.hdf5"
TNG = "SimSpin_example_IllustrisTNG.hdf5"
FIELDS = {ILLUSTRIS_1: (0.05, 40, 36), ILLUSTRIS_2: (0.05, 45, 44), TNG: (0.3, 35, 35)}
"""Redshift and spaxels (x, y) of 2 arcsec, enough for 90 % of the stars."""

PIXEL = 2.0
LINEAR_AIR = {"start": 4750.0, "stop": 5125.0, "step": 1.25, "sampling": "linear", "medium": "air"}
LOG_VACUUM = {"start": 3621.596, "stop": 3900.0, "step": 1e-4, "sampling": "log", "medium": "vacuum"}
WHOLE_MUSE = {"start": 4750.0, "stop": 9350.0, "step": 1.25, "sampling": "linear", "medium": "air"}


def configuration(folder, name, wavelength, precision="float64", library="popstar", **observation):
    redshift, n_x, n_y = FIELDS[name]
    return load_config(
        {
            "galaxy": {"reader": "illustris", "path": str(folder / "galaxies" / name)},
            "ssp": {"library": library},
            "observation": {"redshift": redshift, "align": "none", **observation},
            "instrument": {
                "name": "muse",
                "pixel_scale": PIXEL,
                "fov": [PIXEL * n_x, PIXEL * n_y],
                "wavelength": wavelength,
                "psf": None,
                "lsf": None,
            },
            "engine": {"method": "direct", "precision": precision, "deposit": "nearest"},
        }
    )


def edges_of(wavelength):
    if wavelength["sampling"] == "log":
        n_wave = int(np.log10(wavelength["stop"] / wavelength["start"]) / wavelength["step"]) + 1
        return independent.log_edges(wavelength["start"], n_wave, wavelength["step"])
    return independent.linear_edges(wavelength["start"], wavelength["stop"], wavelength["step"])


def sum_of_stars(particles, library, name, wavelength):
    table = independent.SpectrumTable.of(load_ssp(library))
    redshift, n_x, n_y = FIELDS[name]
    edges = edges_of(wavelength)
    return independent.sum_of_stars(particles, table, edges, wavelength["medium"], PIXEL, n_x, n_y, redshift)


def assert_field_holds_stars(expected, particles):
    assert expected.n_inside >= 0.9 * len(particles.mass)


def far_from_borders(name, particles):
    """Which stars float32 cannot put on the other side of a spaxel's border."""
    redshift, n_x, n_y = FIELDS[name]
    scale = independent.arcsec_per_kpc(redshift, independent.luminosity_distance(redshift))
    coordinates = independent.spaxel_coordinates(particles, scale, PIXEL, n_x, n_y)
    far = np.min([independent.distance_to_edges(x) for x in coordinates], axis=0) > 1e-5
    assert far.mean() > 0.999
    return far


def selected(galaxy, which):
    fields = {name: None if values is None else values[which] for name, values in vars(galaxy.stars).items()}
    return Galaxy(stars=Stars(**fields))


def assert_float64_agrees(cube, expected):
    peak = expected.flux.max()
    assert peak > 0
    np.testing.assert_allclose(np.asarray(cube.flux), expected.flux, rtol=0, atol=1e-10 * peak)
    np.testing.assert_allclose(np.asarray(cube.mean_v_los), expected.mean_v_los, rtol=0, atol=1e-7)
    assert int(cube.counters.n_particles - cube.counters.n_outside) == expected.n_inside


def assert_float32_agrees(cube, expected_flux):
    flux, peak = np.asarray(cube.flux, dtype=np.float64), expected_flux.max()
    assert cube.flux.dtype == np.float32
    assert flux.sum() == pytest.approx(expected_flux.sum(), rel=1e-4)
    np.testing.assert_allclose(flux, expected_flux, rtol=0, atol=1e-3 * peak)
    assert flux.min() >= -1e-6 * peak


def check_both_precisions(folder, name, wavelength, library):
    galaxy = load_galaxy(configuration(folder, name, wavelength, library=library))
    particles = independent.Particles.of(galaxy.stars)
    expected = sum_of_stars(particles, library, name, wavelength)
    assert_field_holds_stars(expected, particles)
    exact = Pipeline.from_config(configuration(folder, name, wavelength, library=library), galaxy)(galaxy)
    np.testing.assert_allclose(exact.wave_edges, edges_of(wavelength), rtol=1e-14)
    assert_float64_agrees(exact, expected)
    far = far_from_borders(name, particles)
    at_borders = sum_of_stars(particles.selected(~far), library, name, wavelength)
    config = configuration(folder, name, wavelength, "float32", library)
    rounded = Pipeline.from_config(config, galaxy)(selected(galaxy, far))
    assert_float32_agrees(rounded, expected.flux - at_borders.flux)


def test_cube_is_the_sum_over_stars(real_data):
    """In logarithmic bins in vacuum; in linear ones in air below, over the whole range."""
    check_both_precisions(real_data, TNG, LOG_VACUUM, "popstar")


@pytest.mark.parametrize(("inclination", "position_angle"), [(55.0, 130.0)])
def test_aligned_and_inclined_cube_is_the_sum_over_stars(real_data, inclination, position_angle):
    name, wavelength = ILLUSTRIS_1, {**LINEAR_AIR, "stop": 4850.0}
    angles = {"inclination": inclination, "position_angle": position_angle}
    config = configuration(real_data, name, wavelength, align="stars", **angles)
    galaxy = load_galaxy(config)
    particles = independent.Particles.of(galaxy.stars)
    body = independent.body_rotation(particles.position, particles.velocity, galaxy.stars.mass)
    particles = particles.turned(independent.sky_rotation(inclination, position_angle) @ body)
    expected = sum_of_stars(particles, "popstar", name, wavelength)
    assert_field_holds_stars(expected, particles)
    assert_float64_agrees(Pipeline.from_config(config, galaxy)(galaxy), expected)


def test_written_file_holds_the_sum_over_stars(real_data, tmp_path):
    """`run`, and the file as astropy reads it: (wave, y, x), rounded to float32."""
    name, wavelength = ILLUSTRIS_2, {**LINEAR_AIR, "stop": 4850.0}
    config = configuration(real_data, name, wavelength)
    run(config, tmp_path / "cube.fits")
    expected = sum_of_stars(independent.Particles.of(load_galaxy(config).stars), "popstar", name, wavelength)
    written = np.moveaxis(fits.getdata(tmp_path / "cube.fits", "DATA").astype(np.float64), 0, 2)
    np.testing.assert_allclose(written, expected.flux, rtol=0, atol=1e-7 * expected.flux.max())


def require_library(name):
    path = cache_directory() / "ssp" / f"{name}.h5"
    if not path.is_file() and not os.environ.get("CI"):
        pytest.skip(f"{name} is not in the cache (rubix-like ssp get {name})")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "library"),
    [
        pytest.param(ILLUSTRIS_1, "popstar", marks=pytest.mark.long),
        pytest.param(ILLUSTRIS_2, "bc03-miles", marks=pytest.mark.long),
        pytest.param(TNG, "popstar", marks=pytest.mark.long),
        (TNG, "bc03-miles"),
    ],
)
@pytest.mark.usefixtures("optimised")
def test_whole_muse_range(real_data, name, library):
    if library != "popstar":
        require_library(library)
    check_both_precisions(real_data, name, WHOLE_MUSE, library)

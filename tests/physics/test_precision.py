"""float32 against float64: the same cube to rounding, however many stars share a spaxel."""

import numpy as np
import pytest
from observing import configuration, galaxy_of, observe


def crowd(n, seed):
    generator = np.random.default_rng(seed)
    return galaxy_of(
        generator.normal(size=(n, 3)),
        generator.normal(size=(n, 3)) * 200.0,
        initial_mass=generator.uniform(0.5, 2.0, size=n) * 1e6,
        log_age=generator.uniform(6.0, 10.1, size=n),
        metallicity=10 ** generator.uniform(-4, -1.4, size=n),
    )


@pytest.mark.parametrize(
    ("psf", "lsf", "deposit", "step"),
    [
        pytest.param(None, None, "tsc", 1.25, id="bare"),
        pytest.param({"fwhm": 0.8}, {"fwhm": 30.0}, "cic", 10.0, id="blurred", marks=pytest.mark.long),
    ],
)
def test_float32_cube_is_close_to_float64(psf, lsf, deposit, step):
    """cic and tsc, since `nearest` may put a star at a border on either side of it."""
    wavelength = {"start": 4800.0, "stop": 4800.0 + 40 * step, "step": step}
    instrument = {"fov": 4.0, "psf": psf, "lsf": lsf, "wavelength": wavelength}
    observation = {"inclination": 50.0, "position_angle": 70.0, "velocity_offset": 30.0}
    cubes = [
        observe(
            configuration(
                instrument=instrument, observation=observation, engine={"precision": precision, "deposit": deposit}
            ),
            crowd(600, 1),
        )
        for precision in ("float64", "float32")
    ]
    exact, rounded = (np.asarray(cube.flux, dtype=np.float64) for cube in cubes)
    assert cubes[1].flux.dtype == np.float32
    np.testing.assert_allclose(rounded, exact, rtol=0, atol=2e-5 * exact.max())
    assert rounded.sum() == pytest.approx(exact.sum(), rel=1e-6)
    lit = exact.sum(axis=2) > 1e-3 * exact.sum(axis=2).max()
    velocity = [np.asarray(cube.mean_v_los, dtype=np.float64)[lit] for cube in cubes]
    np.testing.assert_allclose(velocity[1], velocity[0], rtol=0, atol=0.05)


MILLION = 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_devices", "mass"),
    [
        (200_000, 1, 1.1e4),
        *(pytest.param(MILLION, *row, marks=pytest.mark.long) for row in ((1, 1.1e4), (8, 0.7e4))),
    ],
)
def test_many_equal_stars_in_one_spaxel_lose_nothing(n, n_devices, mass):
    """Their light is as many times that of one star in float64, to 1e-5; a running sum of a million in float32 loses
    4e-3, and one of 200,000 still 7e-4."""
    instrument = {"fov": 0.6, "wavelength": {"start": 5000.0, "stop": 5005.0, "step": 1.25}}
    position = np.zeros((n, 3))
    many = observe(
        configuration(instrument=instrument, engine={"precision": "float32"}),
        galaxy_of(position, initial_mass=mass),
        n_devices,
    )
    one = observe(configuration(instrument=instrument), galaxy_of(position[:1], initial_mass=mass))
    np.testing.assert_allclose(np.asarray(many.flux)[1, 1] / n, np.asarray(one.flux)[1, 1], rtol=1e-5)

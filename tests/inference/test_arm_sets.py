"""Arms of one instrument as data sets of one fit: each is seen by its own arm, and together they give the truth."""

import numpy as np
import pytest

from rubix_like import ConfigError, fit, load_config, log_posterior, read_observed, run

TRUTH = {"observation.inclination": 50.0, "galaxy.disc.mass": 1e10, "galaxy.disc.population.log_age": 9.5}
DISC = {
    "name": "disc",
    "mass": "1e10 Msun",
    "light": {"profile": "exponential", "scale_length": "1 kpc"},
    "rotation": {"curve": "arctan", "velocity": "180 km/s", "turnover_radius": "0.4 kpc"},
    "dispersion": "45 km/s",
    "population": {"log_age": 9.5, "metallicity": 0.02},
}
ARMS = {
    "blue": {"wavelength": {"start": 4850, "stop": 5050, "step": 10}, "lsf": {"fwhm": 25}},
    "red": {"wavelength": {"start": 6400, "stop": 6600, "step": 8}, "lsf": {"fwhm": 40}},
}
CONFIG = {
    "galaxy": {"reader": "components", "points": 1500, "components": [DISC]},
    "observation": {"redshift": 0.02, "inclination": 50, "position_angle": 0},
    "instrument": {
        **{"name": "sami", "fov": "3 arcsec", "pixel_scale": "1 arcsec", "psf": None, "aperture": None},
        "arms": ARMS,
    },
    "pipeline": "stellar",
}
FREE = {
    "observation.inclination": {"uniform": [20, 80]},
    "galaxy.disc.mass": {"log_normal": [1.2e10, 0.3]},
    "galaxy.disc.population.log_age": {"uniform": [9.2, 9.9]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The mock cubes of both arms, with noise."""
    made = tmp_path_factory.mktemp("arms")
    run(CONFIG | {"noise": {"signal_to_noise": 50}}, made / "mock.fits", quiet=True)
    return made


def config_of(folder, **red):
    """The fit of both files, with what is said of the red one."""
    sets = {name: {"cube": str(folder / f"mock_{name}.fits")} for name in ARMS}
    return CONFIG | {"fit": {"free": FREE, "starts": 1, "data": sets | {"red": sets["red"] | red}}}


OF_RED = {
    "as the arm has it": ({}, 40.0),
    "the set's own": ({"instrument": {"lsf": {"fwhm": 50}}}, 50.0),
    "the named arm's": ({"instrument": {"arm": "red", "lsf": {"fwhm": 50}}}, 50.0),
    "another instrument's": ({"instrument": {"name": "sami_red", "fov": "3 arcsec", "lsf": {"fwhm": 60}}}, 60.0),
    "of unknown width": ({"nuisance": {"lsf_scale": {"uniform": [1.0, 1.5]}}}, 40.0),
    "another arm's": ({"instrument": {"arm": "blue"}}, "fit.data.red: instrument.wavelength: expected a range that"),
}


@pytest.mark.slow(2)
@pytest.mark.parametrize("case", OF_RED)
def test_each_set_has_its_own_arm(folder, case):
    """Wavelengths as in the files, line spreads as said."""
    red, expected = OF_RED[case]
    config = load_config(config_of(folder, **red))

    def pose():
        return log_posterior(config).problem

    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            pose()
        return
    first, second = (own.pipeline.frame for own in pose().sets)
    np.testing.assert_allclose(first.lsf_fwhm, 25.0)
    np.testing.assert_allclose(second.lsf_fwhm, expected, rtol=1e-3)  # 0.07 % more at the narrow end of a prior
    np.testing.assert_allclose(first.bins.wavelength, 4850 + 10 * np.arange(21))
    np.testing.assert_allclose(second.bins.wavelength, 6400 + 8 * np.arange(26))


@pytest.mark.long
def test_a_fit_of_both_arms_finds_the_truth(folder):
    """Every number within 4 sigma and to 5 %, and a chi^2 of one for each voxel of each arm."""
    both = fit(config_of(folder))
    for name, value in TRUTH.items():
        assert abs(both.values[name] - value) < min(4 * both.sigma[name], 0.05 * value), name
    for name in ARMS:
        data, model = read_observed(folder / f"mock_{name}.fits"), both.sets[name].model
        chi2 = np.sum((data.flux - model.flux)[data.used] ** 2 / data.variance[data.used])
        count = np.sum(data.used)
        assert abs(chi2 - count) < 4 * np.sqrt(2 * count), name

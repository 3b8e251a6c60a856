"""A fit of the synthetic disc to a smooth cube that numpy made: truths, stated errors, the shift by finite draws."""

import numpy as np
import pytest
from foreign_cube import TRUTH, write_foreign_cube
from quick_compiler import kept_programs, optimised_programs

from rubix_like import FitResult, fit

N_STARS, MANY = 8192, 81920
"""Stars of the fits under test, and of one that hardly any draws more would move."""

MATTERS = 0.5
"""Sigma of the data alone from which on a shift must be stated within a factor of two."""

FREE = {
    "observation.inclination": {"uniform": ["20 deg", "80 deg"]},
    "observation.position_angle": {"uniform": ["30 deg", "210 deg"]},
    "observation.velocity_offset": {"normal": [0, "50 km/s"]},
    "instrument.psf.fwhm": {"uniform": ["0.5 arcsec", "1.5 arcsec"]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.3 kpc", "3 kpc"]},
    "galaxy.rotation_velocity": {"uniform": ["50 km/s", "350 km/s"]},
    "galaxy.turnover_radius": {"log_uniform": ["0.1 kpc", "2 kpc"]},
    "galaxy.disc_dispersion": {"uniform": ["10 km/s", "120 km/s"]},
}
START = {"observation.inclination": 40, "observation.position_angle": 100, "galaxy.disc_scale_length": 1.1}
"""Others begin at the medians of their priors."""

HELD = {
    "disc_scale_height": 1e-3,
    "bulge_fraction": 0,
    "disc_log_age": TRUTH["galaxy.disc_log_age"],
    "disc_log_age_gradient": 0,
    "log_age_scatter": 0,
    "disc_metallicity": TRUTH["galaxy.disc_metallicity"],
    "disc_metallicity_gradient": 0,
    "metallicity_scatter": 0,
}


def configuration(n_stars, library="popstar", **fit_settings):
    """The foreign cube's disc in this package's words, with other values of what is free."""
    return {
        "galaxy": {"reader": "synthetic", "n_stars": n_stars, "draws": "sobol", **HELD},
        "ssp": {"library": library},
        "observation": {"redshift": 0.02, "align": "none", "inclination": 45, "position_angle": 90},
        "instrument": {"name": "muse", "psf": {"kind": "gaussian", "fwhm": 1.0}, "lsf": None},
        "pipeline": "stellar",
        "engine": {"deposit": "tsc", "method": "basis", "velocity_range": 1000},
        "devices": {"data": 1},
        "fit": {"free": FREE, "start": START, "starts": 1, **fit_settings},
    }


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Of the cube with noise, read back from its file, and of the one without, by the same programs: the second begins
    where the first ended, and is compared with twice as many draws."""
    folder = tmp_path_factory.mktemp("foreign")
    with kept_programs(folder / "programs"), optimised_programs():
        few = configuration(N_STARS, discreteness={"times": 4})
        noisy = fit(few, write_foreign_cube(folder / "noisy.fits"), output=folder / "fit.h5")
        near = configuration(N_STARS, start={name: float(noisy.values[name]) for name in FREE})
        smooth = fit(near, write_foreign_cube(folder / "smooth.fits", seed=None))
    return FitResult.read(folder / "fit.h5"), smooth


def assert_true(result):
    """Four sigma."""
    assert result.converged
    assert result.quality.reduced < 1.1
    for name in FREE:
        assert abs(result.values[name] - TRUTH[name]) < 4 * result.sigma[name], name


@pytest.mark.slow(100)
def test_the_truth_lies_within_the_stated_errors(fits):
    noisy, _ = fits
    assert_true(noisy)
    grain = noisy.discreteness
    for name, stated, sigma in zip(noisy.labels, grain.values, grain.value_sigma, strict=True):
        assert float(noisy.sigma[name]) == pytest.approx(np.hypot(sigma, stated), rel=1e-6)


@pytest.mark.slow(100)
def test_the_stated_discreteness_is_the_true_shift(fits):
    """Without noise a fit with any number of draws would end at the truth: what it is off is its shift, to a factor of
    two for each parameter that it moves by half a sigma."""
    _, result = fits
    grain, matter = result.discreteness, []
    for name, stated, sigma in zip(result.labels, grain.values, grain.value_sigma, strict=True):
        true = float(TRUTH[name] - result.values[name])
        if abs(true) > MATTERS * sigma:
            matter.append(name)
            assert 0.5 < stated / true < 2, (name, stated, true, sigma)
        else:
            assert abs(stated) < 2 * MATTERS * sigma, (name, stated, true, sigma)
    expected = {"instrument.psf.fwhm", "galaxy.disc_scale_length", "galaxy.stellar_mass", "observation.inclination"}
    assert expected <= set(matter)


@pytest.mark.slow(100)
def test_a_shift_beyond_half_a_sigma_is_noted_with_its_remedy(fits):
    noisy, _ = fits
    (note,) = [note for note in noisy.notes if "too few for these data" in note]
    for words in ("8192 sobol draws", "with 32768", "instrument.psf.fwhm by -0.", "set galaxy.n_stars: "):
        assert words in note
    assert N_STARS < int(note.split("galaxy.n_stars: ")[1]) <= 2 * MANY
    assert "Shift of the best values with 32768 stars in place of 8192" in noisy.summary()


@pytest.mark.long
def test_with_many_draws_the_errors_are_those_of_the_data(tmp_path):
    """The truth lies within four of them, and no shift is noted."""
    start = {name: TRUTH[name] for name in FREE}
    result = fit(configuration(MANY, start=start), write_foreign_cube(tmp_path / "foreign.fits"))
    assert_true(result)
    assert np.all(np.abs(result.discreteness.shift) < MATTERS * result.discreteness.sigma)
    assert not [note for note in result.notes if "too few" in note]

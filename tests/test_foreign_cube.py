"""A fit of the synthetic disc to a smooth cube that numpy made: truths, stated errors, the shift by finite draws."""

import numpy as np
import pytest
from foreign_cube import TRUTH, write_foreign_cube

from rubix_like import FitResult, fit

N_STARS, MANY = 8192, 81920
"""Stars of the fit under test, and of the one that tells its true shift."""

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
    """The fit under test, read back from its file, and that with many draws."""
    folder = tmp_path_factory.mktemp("foreign")
    cube = write_foreign_cube(folder / "foreign.fits")
    fit(configuration(N_STARS), cube, output=folder / "fit.h5")
    few = FitResult.read(folder / "fit.h5")
    start = {name: float(value) for name, value in few.values.items()}
    return few, fit(configuration(MANY, start=start, discreteness=None), cube)


@pytest.mark.slow
def test_the_truth_lies_within_the_stated_errors(fits):
    """Four sigma, with few draws (errors enlarged by the stated shift) and with many (errors of the data alone)."""
    for result in fits:
        assert result.converged
        assert result.quality.reduced < 1.1
        for name in FREE:
            assert abs(result.values[name] - TRUTH[name]) < 4 * result.sigma[name], name
    few, many = fits
    assert few.sigma["instrument.psf.fwhm"] > 10 * many.sigma["instrument.psf.fwhm"]


@pytest.mark.slow
def test_the_stated_discreteness_is_the_shift_of_a_fit_with_many_draws(fits):
    """Within a factor of two for every parameter that moves by more than 0.3 sigma of the data."""
    few, many = fits
    grain = few.discreteness
    matter = []
    for name, stated, sigma in zip(few.labels, grain.values, grain.value_sigma, strict=True):
        true = float(many.values[name] - few.values[name])
        if abs(true) > 0.3 * sigma:
            matter.append(name)
            assert 0.5 < stated / true < 2, (name, stated, true, sigma)
        else:
            assert abs(stated) < 0.6 * sigma, (name, stated, true, sigma)
        assert float(few.sigma[name]) == pytest.approx(np.hypot(sigma, stated), rel=1e-6)
    expected = {"instrument.psf.fwhm", "galaxy.disc_scale_length", "galaxy.stellar_mass", "observation.inclination"}
    assert expected <= set(matter)


@pytest.mark.slow
def test_a_shift_beyond_half_a_sigma_is_noted_with_its_remedy(fits):
    few, many = fits
    (note,) = [note for note in few.notes if "too few for these data" in note]
    for words in ("8192 sobol draws", "with 65536", "instrument.psf.fwhm by -0.", "set galaxy.n_stars: "):
        assert words in note
    advised = int(note.split("galaxy.n_stars: ")[1])
    assert N_STARS < advised <= MANY
    assert "Shift of the best values with 65536 stars in place of 8192" in few.summary()
    assert not [note for note in many.notes if "too few" in note]

"""A few mocks of the calibration of fits, smaller ones: the truth is where best values and covariances say."""

import fit_calibration
import numpy as np
import pytest
import scipy.stats

SMALL = {"fov": "3 arcsec", "psf": {"fwhm": "1.5 arcsec"}, "wavelength": {"start": 3800, "step": 15, "stop": 4685}}
FREE = {
    "observation.inclination": {"uniform": ["30 deg", "70 deg"]},
    "observation.position_angle": {"uniform": ["10 deg", "80 deg"]},
    "galaxy.stellar_mass": {"log_normal": ["1e10 Msun", 0.3]},
    "galaxy.disc_scale_length": {"log_uniform": ["0.5 kpc", "1.5 kpc"]},
    "galaxy.disc_log_age": {"uniform": [9.3, 9.9]},
}


@pytest.mark.long
def test_ranks_of_the_truth_with_the_same_draws():
    problem = fit_calibration.make_problem(n_stars=1000, instrument=SMALL, starts=1, free=FREE)
    rows = [fit_calibration.fit_mock(problem, number, other=False) for number in range(12)]
    found = np.array([row["same"] for row in rows])
    assert all(row["converged"] and row["below"] for row in rows)
    assert scipy.stats.kstest(found.reshape(-1), "norm").pvalue > 1e-3
    assert np.abs(found).max() < 4
    assert 0.75 < found.std() < 1.25

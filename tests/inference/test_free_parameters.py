"""Where a fit begins, as the user gives it."""

import numpy as np
from scipy.special import ndtri

from rubix_like.config.readers.synthetic import SyntheticReader
from rubix_like.inference.posterior.fit_model import GALAXY
from rubix_like.inference.posterior.free import Free, FreeParameter
from rubix_like.inference.posterior.free_parameters import read_start
from rubix_like.inference.posterior.priors import Normal, Uniform


def test_what_a_start_leaves_out_is_at_the_median_of_its_prior():
    angle = FreeParameter(Uniform(20.0, 80.0), "observation.inclination", (), "deg")
    offset = FreeParameter(Normal(1.0, 0.5), "observation.offset", (2,), "arcsec")
    free = Free((angle, offset))
    np.testing.assert_allclose(
        read_start({"observation.inclination": "35 deg"}, free, {}), [ndtri(0.25), 0, 0], atol=1e-12
    )
    np.testing.assert_allclose(
        read_start({"observation.offset": [1.5, "0.5 arcsec"]}, free, {}), [0, 1, -1], atol=1e-12
    )
    assert read_start(None, free, {}) is None


def test_a_galaxys_own_value_can_be_the_start():
    """Also of a parameter with a unit that is one number."""
    free = Free((FreeParameter(Normal(100.0, 50.0), "galaxy.rotation_velocity", (), "km/s"),))
    galaxy = SyntheticReader(reader="synthetic", rotation_velocity=150).build()
    start = read_start({"galaxy.rotation_velocity": "galaxy"}, free, {GALAXY: galaxy})
    np.testing.assert_allclose(start, [1.0])

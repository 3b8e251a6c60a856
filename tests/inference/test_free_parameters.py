"""Which parameters are free, where a fit begins, and why a parameter may have no effect."""

import numpy as np
import pytest
from scipy.special import ndtri
from small import muse

from rubix_like import ConfigError, Pipeline
from rubix_like.config.readers.synthetic import SyntheticReader
from rubix_like.inference.posterior.checks_before import _hint
from rubix_like.inference.posterior.fit_model import GALAXY
from rubix_like.inference.posterior.free import Free, FreeParameter
from rubix_like.inference.posterior.free_parameters import leaf_of, read_start
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


def test_a_parameter_that_follows_another_cannot_be_free():
    trees = {"galaxy.": SyntheticReader().build()}
    with pytest.raises(
        ConfigError, match=r"galaxy\.gas_metallicity: expected a number as .*, got none: it is null and follows"
    ):
        leaf_of("galaxy.gas_metallicity", trees)


@pytest.mark.parametrize(
    ("particles", "name", "words"),
    [
        ("gas", "galaxy.disc_log_age", "(the pipeline paints gas alone)"),
        ("gas", "galaxy.gas_scale_length", "(the pipeline has to paint gas)"),
        ("stars", "galaxy.disc_log_age", "(what is painted shines alike at all ages and metallicities)"),
        ("stars", "galaxy.disc_scale_length", "(the disc needs mass (galaxy.bulge_fraction below 1))"),
        ("stars", "observation.redshift", ""),
    ],
)
def test_why_a_parameter_of_lines_has_no_effect(particles, name, words):
    config = {"observation": {"redshift": 0.1}, "lines": {"wavelengths": 6000.0, "particles": particles}}
    config |= {"pipeline": "lines", "instrument": muse(6595, 6605, 2.5), "engine": {"method": "direct"}}
    assert _hint(name, Pipeline.from_config(config).tables.paint).strip() == words

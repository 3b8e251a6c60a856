"""Which parameters are free, where a fit begins, and why a parameter may have no effect."""

import numpy as np
import pytest
from free_numbers import free_of
from scipy.special import ndtri
from small import muse

from rubix_like import ConfigError, Pipeline, load_config
from rubix_like.inference.checks.notes import _hint
from rubix_like.inference.posterior.free_parameters import leaf_of, read_start


def test_what_a_start_leaves_out_is_at_the_median_of_its_prior():
    angle = ("observation.inclination", {"uniform": [20, 80]}, (), "deg")
    offset = ("observation.offset", {"normal": [1, 0.5]}, (2,), "arcsec")
    free = free_of(angle, offset)
    np.testing.assert_allclose(
        read_start({"observation.inclination": "35 deg"}, free, {}), [ndtri(0.25), 0, 0], atol=1e-12
    )
    np.testing.assert_allclose(
        read_start({"observation.offset": [1.5, "0.5 arcsec"]}, free, {}), [0, 1, -1], atol=1e-12
    )
    assert read_start(None, free, {}) is None


def galaxy_of(**settings):
    """The model of a synthetic galaxy with these settings."""
    run = {"galaxy": {"reader": "synthetic", **settings}, "observation": {"redshift": 0.1}, "instrument": muse()}
    return load_config(run).galaxy.build()


def test_a_galaxys_own_value_can_be_the_start():
    """Also of a parameter with a unit that is one number."""
    free = free_of(("galaxy.rotation_velocity", {"normal": [100, 50]}, (), "km/s"))
    galaxy = galaxy_of(rotation_velocity=150)
    start = read_start({"galaxy.rotation_velocity": "galaxy"}, free, {"galaxy.": galaxy})
    np.testing.assert_allclose(start, [1.0])


def test_a_parameter_that_follows_another_cannot_be_free():
    trees = {"galaxy.": galaxy_of()}
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

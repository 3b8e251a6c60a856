"""Templates as the detector sees them, in 64 bits also where JAX is left at 32, as a run leaves it."""

import jax
import numpy as np

from rubix_like import load_config
from rubix_like.engine.spectra.velocity_nodes import seen, window_of
from rubix_like.extend import make_setup, resolve


def test_the_view_does_not_depend_on_jax_settings():
    """To the last bit, and without a warning of numbers that are cut."""
    wavelength = {"start": 5000, "stop": 5100, "step": 5}
    config = load_config(
        {
            "observation": {"redshift": 0.05, "align": "none"},
            "instrument": {"name": "muse", "fov": "0.2 arcsec", "psf": None, "wavelength": wavelength},
            "engine": {"method": "basis", "velocity_range": 500},
        }
    )
    window = window_of(make_setup(config, resolve(config), None).sources["stars"])
    velocity = np.array([-300.0, 300.0])
    expected = seen(window, window.templates[:3], velocity)
    with jax.enable_x64(False):
        found = seen(window, window.templates[:3], velocity)
    assert found.dtype == expected.dtype == np.float64
    np.testing.assert_array_equal(found, expected)

"""The grid of spaxels: its places against astropy's WCS, images and elements, what is painted beyond it."""

import jax
import jax.numpy as jnp
import numpy as np

from rubix_like import load_instrument
from rubix_like.cube.footprint import cube_cards, world_coordinates
from rubix_like.extend import Footprint, WavelengthBins

FOOTPRINT = Footprint(5, 8, 0.2)


def test_centres_are_where_the_world_coordinates_say():
    """x East and y North of the field's centre, on the equator."""
    bins = WavelengthBins(5000.0, 1.0, 2, "linear", "air")
    world = world_coordinates(cube_cards(FOOTPRINT, bins, {"ra": 150.0, "dec": 0.0}), bins).celestial
    row, column = np.indices(FOOTPRINT.shape)
    ra, dec = world.wcs_pix2world(column, row, 0)
    x, y = np.meshgrid(*FOOTPRINT.centres())
    np.testing.assert_allclose((ra - 150.0) * 3600, x, atol=1e-7)
    np.testing.assert_allclose(dec * 3600, y, atol=1e-7)
    np.testing.assert_allclose(FOOTPRINT.sides, (np.ptp(x) + 0.2, np.ptp(y) + 0.2))


def test_elements_are_spaxels_row_after_row():
    values = np.arange(FOOTPRINT.n_element * 3).reshape(-1, 3)
    images = FOOTPRINT.images(values)
    assert images.shape == (5, 8, 3)
    np.testing.assert_array_equal(images[2, 7], values[2 * 8 + 7])
    np.testing.assert_array_equal(FOOTPRINT.elements(images), values)
    np.testing.assert_array_equal(FOOTPRINT.images(values[:, 0]), images[:, :, 0])


def test_what_is_painted_beyond_it():
    painted = FOOTPRINT.painted(2, cells=3)
    assert (painted.shape, painted.within(2, cells=3).shape) == ((27, 36), (5, 8))
    np.testing.assert_allclose(painted.sides, [8 * 0.2 + 0.8, 5 * 0.2 + 0.8])


def test_it_is_static_on_the_host_and_its_scale_an_argument_in_the_model():
    """Equal ones are one key; of another scale nothing is traced again."""
    muse = load_instrument("muse", fov=("1.6 arcsec", "1 arcsec"))
    assert (muse.footprint, hash(muse.footprint)) == (FOOTPRINT, hash(FOOTPRINT))
    traced = []

    @jax.jit
    def width(footprint):
        traced.append(footprint.shape)
        return footprint.centres(jnp)[0].max() * 2 + footprint.pixel_scale

    np.testing.assert_allclose([width(FOOTPRINT), width(Footprint(5, 8, 0.3))], [1.6, 2.4])
    assert traced == [(5, 8)]

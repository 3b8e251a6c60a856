"""poppy, on which stpsf is built, writes a cube of PSFs that we read."""

import jax.numpy as jnp
import numpy as np
import pytest
from small import psf_settings

from rubix_like.instrument.psf import PSF, PSFParameters

WAVELENGTH = (3.0e-6, 2.0e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_cube_of_psfs_is_taken_as_it_is(client, tmp_path):
    """Light on spaxels of the detector's pixels at each wavelength: that of poppy's own fine image, summed by numpy."""
    maker = client("poppy.instrument").Instrument()
    maker.pixelscale = 0.1
    hdus = maker.calc_datacube(WAVELENGTH, fov_pixels=21, fft_oversample=5, detector_oversample=5)
    hdus.writeto(tmp_path / "psf.fits")
    settings = psf_settings({"kind": "image", "file": str(tmp_path / "psf.fits"), "enclosed": 0.999999})
    found = PSF.build(settings, 0.1, np.array([20000.0, 30000.0]))
    fine = hdus["OVERSAMP"].data
    for plane, wavelength in enumerate(WAVELENGTH):
        image = np.asarray(found.image_at(PSFParameters(), jnp.asarray(wavelength * 1e10)))
        expected = fine[plane].reshape(21, 5, 21, 5).sum(axis=(1, 3)) / fine[plane].sum()
        np.testing.assert_allclose(image, expected, atol=1e-6)

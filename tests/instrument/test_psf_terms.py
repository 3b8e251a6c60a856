"""A PSF that follows wavelength as a sum of images times weights, against its own images."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small import psf_settings

from rubix_like.instrument.field_psf import find_terms
from rubix_like.instrument.psf import PSF, PSFParameters

WAVELENGTH = np.linspace(4750.0, 9350.0, 61)
SECTION = {"wavelength": [4750, 7000, 9350], "fwhm": [0.9, 0.7, 0.8]}

images_of = eqx.filter_jit(PSF.images)


@pytest.fixture(scope="module")
def planned():
    settings = psf_settings(SECTION)
    psf = PSF.build(settings, 0.2, WAVELENGTH)
    parameters = PSFParameters(**jax.tree.map(jnp.asarray, settings.numbers()))
    return psf, parameters, find_terms(psf, parameters)


def test_one_for_all_wavelengths_has_no_terms():
    psf = PSF.build(psf_settings({"fwhm": 0.8}), 0.2, WAVELENGTH)
    with pytest.raises(ValueError, match="expected one that follows wavelength"):
        find_terms(psf, PSFParameters(fwhm=np.asarray(0.8)))


@pytest.mark.parametrize(
    ("factors", "error"), [((1.0, 1.0, 1.0), 1e-5), ((1.0, 0.96, 1.0), 1e-4), ((0.96, 1.0, 0.98), 1e-4)]
)
def test_the_sum_is_the_psf(planned, factors, error):
    """Also for widths a little off the planned ones; the light of all terms but the first is 0."""
    psf, parameters, terms = planned
    at_nodes = images_of(psf, PSFParameters(fwhm=parameters.fwhm * jnp.asarray(factors)))
    shares = psf.nodes.shares(WAVELENGTH, np)
    exact = np.einsum("wn,nyx->wyx", shares, np.asarray(at_nodes))
    term_images = np.asarray(terms.images(at_nodes))
    weights = np.asarray(terms.shares(jnp.asarray(shares)))
    found = np.einsum("wk,kyx->wyx", weights, term_images)
    assert terms.n_term < len(at_nodes)
    assert np.abs(found - exact).max() < error * exact.max()
    np.testing.assert_allclose(term_images.sum(axis=(1, 2)), [1.0] + [0.0] * (terms.n_term - 1), atol=1e-12)
    largest = np.abs(weights).max(axis=0) * np.abs(term_images).max(axis=(1, 2)) / exact.max()
    assert (largest[1:] <= 1.1 * terms.size[1:]).all()

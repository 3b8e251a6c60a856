"""The PSF of adaptive optics, against maoppy, closed forms and sums by brute force."""

import numpy as np
import pytest
from scipy.special import j1
from small import psf_settings

from rubix_like import ConfigError, load_config, load_instrument
from rubix_like.instrument import psf_images
from rubix_like.instrument.field_psf import FieldPSF
from rubix_like.instrument.painting import Painting
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.instrument.psf_images import adaptive_images, effective_area, optical_transfer
from rubix_like.instrument.psf_profile import WavelengthNodes

ARCSEC = np.pi / 180 / 3600
VLT = {"diameter": 8, "obstruction": 0.14, "cutoff": 33 / 16, "wavelength": 6500}
TURNED = {"r0": 0.15, "amplitude": 2, "alpha": 0.25, "ratio": 1.2, "theta": 30, "beta": 1.8, "background": 1e-3}
RADII = np.array([0, 4, 8, 16, 32, 64, 128])
MAOPPY = {
    (0, 1): [2.307272e-03, 7.221573e-04, 2.710016e-04, 1.026691e-04, 2.687387e-05, 4.976424e-06, 3.355574e-06],
    (1, 1): [2.307272e-03, 3.171951e-04, 1.614537e-04, 5.038287e-05, 9.791425e-06, 5.624235e-06, 1.251292e-06],
    (1, 0): [2.307272e-03, 7.352955e-04, 2.998653e-04, 1.299573e-04, 3.832813e-05, 7.213685e-06, 3.420050e-06],
    (1, -1): [2.307272e-03, 3.539074e-04, 2.167600e-04, 8.504034e-05, 2.015605e-05, 6.183045e-06, 1.327816e-06],
}
"""(step of the row, of the column) -> the PSF at `RADII` pixels of 3.125 mas, by maoppy 1.7.3 (numpy 2.4, scipy 1.17):

muse_nfm.resolution_mas = 3.125
model = Psfao((2048, 2048), system=muse_nfm, samp=muse_nfm.samp(6500e-10), lext=10.0)
image = model([0.15, 1e-3, 2.0, 0.25, 1.2, np.deg2rad(30), 1.8])
image[1024 + row * RADII, 1024 + column * RADII]
"""


def optics(**keys):
    return optics_of(**VLT | TURNED | keys)


def optics_of(**keys):
    return psf_settings({"kind": "adaptive", "optics": keys}).optics


@pytest.mark.slow
def test_it_is_the_psf_of_maoppy():
    """Within 0.5 % of the peak and 1.5 % of each value, in every direction, so that the angle is right.

    maoppy's pupil has 383 pixels and its spectrum steps of 0.023/m; both change its image by as much.
    """
    telescope = optics(outer_scale=10)
    found = adaptive_images(telescope, 3.125e-3, (6500.0, 6500.0), 0.84)
    middle = found.images.shape[1] // 2
    assert found.reach >= RADII[-1]
    for (row, column), expected in MAOPPY.items():
        values = found.images[0][middle + row * RADII, middle + column * RADII]
        np.testing.assert_allclose(values, expected, rtol=0.015)
        np.testing.assert_allclose(values, expected, atol=0.005 * expected[0], rtol=0)


@pytest.fixture
def coarse_tables(monkeypatch):
    """Of few distances, where no image is made."""
    psf_images._by_distance.cache_clear()
    monkeypatch.setattr(psf_images, "_N_RADIUS", 100)
    yield
    psf_images._by_distance.cache_clear()


@pytest.mark.usefixtures("coarse_tables")
def test_the_variance_of_the_phase():
    """Far apart in the pupil exp(-sigma^2) of what diffraction lets through: A, C pi f_c^2 and what lies beyond the
    cut-off, which maoppy gives as 2.6193 rad2 together."""
    turbulent = optics(outer_scale=10)
    far = np.array([6.0, 7.0, 7.5])
    none = optics_of(**VLT, r0=1e6, amplitude=0, alpha=1, beta=2)
    lost = -np.log(optical_transfer(turbulent, 6500.0, far, 0 * far) / optical_transfer(none, 6500.0, far, 0 * far))
    beyond = 0.0229 * 6 * np.pi / 5 * 0.15 ** (-5 / 3) * (2.0625**2 + 0.01) ** (-5 / 6)
    assert 2 + 1e-3 * np.pi * 2.0625**2 + beyond == pytest.approx(2.6193, rel=2e-3)
    np.testing.assert_allclose(lost, 2.6193, rtol=3e-3)


@pytest.mark.slow
def test_without_turbulence_it_is_the_airy_pattern():
    """(2 J1(x) / x)^2 of a clear pupil on pixels much smaller than it, and the area of its resolution element."""
    clear = optics_of(diameter=8, cutoff=2, r0=1e6, amplitude=0, alpha=1, beta=2)
    found = adaptive_images(clear, 1e-3, (6500.0, 6500.0), 0.93)
    middle, pixel = found.images.shape[1] // 2, 1e-3 * ARCSEC * np.pi * 8 / 6500e-10
    x = pixel * np.arange(1, 20)
    expected = np.append(1.0, (2 * j1(x) / x) ** 2) * pixel**2 / (4 * np.pi)
    np.testing.assert_allclose(found.images[0][middle, middle : middle + 20], expected, atol=2e-3 * expected[0])
    # integral of the squared transfer function of a circle: (pi / 4) (1 / 2 - 8 / (3 pi^2) + ...), by brute force
    grid = (np.arange(400) + 0.5) / 400
    u = np.hypot(grid[:, None], grid[None, :])
    lens = np.where(u < 1, 2 / np.pi * (np.arccos(np.minimum(u, 1)) - u * np.sqrt(np.maximum(1 - u**2, 0))), 0)
    area = 1 / (4 * (lens**2).mean() * (8 / 6500e-10 * ARCSEC) ** 2)
    assert effective_area(clear, 6500.0) == pytest.approx(area, rel=1e-3)


def test_without_a_correction_it_is_the_seeing():
    """A cut-off below all scales of the pupil: the transfer function is exp(-3.44 (x / r0)^(5/3))."""
    seeing = optics_of(diameter=8, cutoff=1e-12, r0=0.15, amplitude=0, alpha=1, beta=2)
    x = np.array([0.0, 0.03, 0.1, 0.2])
    clear = seeing.model_copy(update={"r0": 1e9})
    ratio = optical_transfer(seeing, 5000.0, x, 0 * x) / optical_transfer(clear, 5000.0, x, 0 * x)
    np.testing.assert_allclose(ratio, np.exp(-3.44194 * (x / 0.15) ** (5 / 3)), rtol=2e-3)
    red = optical_transfer(seeing, 8000.0, x, 0 * x) / optical_transfer(clear, 8000.0, x, 0 * x)
    np.testing.assert_allclose(red, np.exp(-3.44194 * (x / (0.15 * 1.6**1.2)) ** (5 / 3)), rtol=2e-3)


@pytest.mark.slow
def test_images_between_the_nodes():
    """Of a narrow range of the narrow field mode: 3e-4 of the peak at wavelengths between the nodes; light enclosed."""
    telescope = optics(ratio=1)
    found = adaptive_images(telescope, 0.025, (6000.0, 7000.0), 0.8)
    shares = found.nodes.shares(np.array([6123.0, 6789.0]), np)
    between = np.einsum("bn,nyx->byx", shares, found.images)
    for wavelength, image in zip((6123.0, 6789.0), between, strict=True):
        one = found.reach, WavelengthNodes(np.array([wavelength]), 8)
        exact = adaptive_images(telescope, 0.025, (wavelength, wavelength), 0.8, like=one)
        np.testing.assert_allclose(image, exact.images[0], atol=3e-4 * exact.images.max())
    inner = found.images[:, 10:-10, 10:-10]
    light = inner.sum(axis=(1, 2))
    assert light.min() >= 0.8 - 2e-3
    assert 0.15 < found.lost <= 0.2


@pytest.mark.slow
def test_the_presets():
    """Narrow field: stars on spaxels 0.084, 0.062 and 0.047 arcsec wide, as the file says, in a halo; wide field: the
    widths of muse-psfr before the spaxel's box."""
    psf = load_instrument("muse_nfm").psf
    assert psf.kind == "adaptive"
    assert psf.lost <= 0.05
    images = PSF.images(psf, PSFParameters())
    shares = psf.nodes.shares(np.array([4750.0, 6500.0, 9350.0]), np)
    middle = psf.reach
    for weights, width in zip(shares, (0.084, 0.062, 0.047), strict=True):
        row = np.einsum("n,nx->x", weights, np.asarray(images)[:, middle, middle:])
        half = np.interp(-row[0] / 2, -row[:6], np.arange(6)) * 0.05
        assert half == pytest.approx(width, abs=0.008)  # linear between spaxels
    wide = load_instrument("muse_wfm_ao").psf
    table = wide.at_nodes(PSFParameters(fwhm=np.array([0.687, 0.584, 0.471]), beta=np.array([2.57, 2.35, 2.01])))
    assert np.hypot(np.asarray(table[0]).max(), np.sqrt(0.0185)) == pytest.approx(0.70, abs=0.02)


@pytest.mark.slow
def test_over_the_field():
    """PSFs of two places, one less corrected: both as wide as the wider, with the same nodes."""
    less = optics(amplitude=4, ratio=1)
    settings = psf_settings(
        {
            "kind": "adaptive",
            "enclosed": 0.8,
            "field": [
                {"at": [0, 0], "optics": optics(ratio=1).model_dump()},
                {"at": [3, 0], "optics": less.model_dump()},
            ],
        }
    )
    field = FieldPSF.build(settings, 0.025, np.linspace(6000.0, 7000.0, 3), Painting("nearest", 1))
    assert field.image.shape[:2] == (2, field.psf.nodes.n_node)
    one_bin = FieldPSF.build(settings, 0.025, np.array([6500.0]))
    assert (one_bin.psf.nodes, one_bin.image.shape[1]) == (None, 1)
    alone = adaptive_images(less, 0.025, (6000.0, 7000.0), 0.8, like=(field.psf.reach, field.psf.nodes))
    np.testing.assert_allclose(field.image[1], alone.images, rtol=1e-12)


def test_what_has_no_widths_is_refused():
    for psf, message in (
        ({"kind": "adaptive", "fwhm": 0.8}, "a PSF of kind adaptive has the keys optics; got fwhm"),
        ({"kind": "adaptive"}, "a PSF of kind adaptive needs optics, got none"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config({"instrument": {"name": "muse", "psf": psf}})

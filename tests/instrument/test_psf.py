"""Images of PSFs against their formulas, and fields convolved with them against scipy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from scipy.integrate import dblquad
from scipy.signal import fftconvolve
from scipy.stats import norm
from small import psf_settings

from rubix_like import ConfigError
from rubix_like.instrument.blur import blur, blur_each, blur_separable, refine
from rubix_like.instrument.psf import PSF, PSFParameters, moffat_image, moffat_lost, node_shares

PIXEL = 0.2
WAVELENGTH = np.linspace(5000.0, 9000.0, 41)
CHROMATIC = {"kind": "moffat", "wavelength": [4800, 7000, 9300], "fwhm": [0.9, 0.8, 0.7], "beta": [2.5, 2.8, 3.0]}


def build(**section):
    settings = psf_settings(section)
    return PSF.build(settings, PIXEL, WAVELENGTH), PSFParameters(**jax.tree.map(jnp.asarray, settings.numbers()))


images_of = eqx.filter_jit(PSF.images)
image_at = eqx.filter_jit(PSF.image_at)


def radius(reach):
    offset = np.arange(-reach, reach + 1) * PIXEL
    return np.hypot(offset[:, None], offset[None, :])


def moffat(r, fwhm, beta, peak=1.0):
    alpha = fwhm / (2 * np.sqrt(2 ** (1 / beta) - 1))
    return peak * (1 + (r / alpha) ** 2) ** -beta


def moffat_in_spaxels(reach, fwhm, beta, cut=25):
    """The mean of cut x cut places in each spaxel."""
    fine = (np.arange(cut * (2 * reach + 1)) - (cut * (2 * reach + 1) - 1) / 2) * PIXEL / cut
    profile = moffat(np.hypot(fine[:, None], fine[None, :]), fwhm, beta)
    return profile.reshape(2 * reach + 1, cut, 2 * reach + 1, cut).mean(axis=(1, 3))


def gaussian_in_spaxels(reach, fwhm):
    edges = (np.arange(2 * reach + 2) - reach - 0.5) * PIXEL
    light = np.diff(norm.cdf(edges, 0.0, fwhm / np.sqrt(8 * np.log(2))))
    return np.outer(light, light)


@pytest.mark.parametrize("fwhm", [0.1, 0.3, 0.8])
def test_moffat_is_the_profile_integrated_over_spaxels(fwhm):
    psf, parameters = build(kind="moffat", fwhm=fwhm, beta=2.5)
    image = np.asarray(images_of(psf, parameters))[0]
    expected = moffat_in_spaxels(psf.reach, fwhm, 2.5, cut=25 if fwhm > 0.5 else 101)
    np.testing.assert_allclose(image, expected / expected.sum(), atol=3e-4 * image.max())
    assert image.sum() == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize(("beta", "fwhm"), [(2.5, 0.8), (4.765, 0.8), (1.8, 0.4)])
def test_moffat_support_holds_the_enclosed_light(beta, fwhm):
    """Against the integral of the profile: 99.9 % within the radius, and the fraction beyond that is recorded."""
    psf, _ = build(kind="moffat", fwhm=fwhm, beta=beta)
    assert float(psf.lost) <= 1e-3
    assert moffat_lost(psf.reach - 1.0, fwhm / PIXEL, beta) > 1e-3
    inside, _ = dblquad(lambda r, _: moffat(r, fwhm, beta) * r, 0, 2 * np.pi, 0, psf.reach * PIXEL)
    alpha = fwhm / (2 * np.sqrt(2 ** (1 / beta) - 1))
    total = np.pi * alpha**2 / (beta - 1)
    assert 1 - inside / total == pytest.approx(float(psf.lost), rel=1e-6)


def test_more_of_the_light_can_be_asked_for():
    reaches = [build(fwhm=0.8, enclosed=enclosed)[0].reach for enclosed in (0.9, 0.999, 0.99999)]
    assert reaches == sorted(set(reaches))
    assert float(build(fwhm=0.8, enclosed=0.99999)[0].lost) < 1e-5


def test_sum_of_gaussians_adds_their_variances():
    psf, parameters = build(
        kind="gaussians", components=[{"fwhm": "0.6 arcsec", "fraction": 3}, {"fwhm": "1.4 arcsec", "fraction": 1}]
    )
    image = np.asarray(images_of(psf, parameters))[0]
    offset = np.arange(-psf.reach, psf.reach + 1) * PIXEL
    variance = (0.75 * 0.6**2 + 0.25 * 1.4**2) / (8 * np.log(2)) + PIXEL**2 / 12
    assert image.sum() == pytest.approx(1.0, abs=1e-12)
    assert image.sum(axis=0) @ offset**2 == pytest.approx(variance, rel=5e-3)
    separable = sum(float(share) * np.outer(weights, weights) for share, weights in psf.axis_weights(parameters))
    np.testing.assert_allclose(image, separable, rtol=1e-12, atol=1e-18)


@pytest.mark.parametrize("kind", ["gaussian", "moffat"])
def test_width_follows_the_wavelength(kind):
    """Between the wavelengths of the table linear, beyond them constant; images in between are interpolated to 1e-4."""
    psf, parameters = build(
        **{key: value for key, value in CHROMATIC.items() if kind == "moffat" or key != "beta"} | {"kind": kind}
    )
    assert psf.node_wavelength[0] == 5000.0
    assert psf.node_wavelength[-1] == 9000.0
    assert 7000.0 in psf.node_wavelength
    for wavelength in (5000.0, 5837.0, 7000.0, 8123.4, 9000.0):
        fwhm = np.interp(wavelength, CHROMATIC["wavelength"], CHROMATIC["fwhm"])
        beta = np.interp(wavelength, CHROMATIC["wavelength"], CHROMATIC["beta"])
        found = np.asarray(image_at(psf, parameters, jnp.asarray(wavelength)))
        wide = fwhm, beta
        expected = moffat_in_spaxels(psf.reach, *wide, 15) if kind == "moffat" else gaussian_in_spaxels(psf.reach, fwhm)
        expected /= expected.sum()
        np.testing.assert_allclose(found, expected, atol=2e-4 * expected.max())


def test_image_of_a_file_keeps_its_light_and_place(tmp_path):
    """A lopsided image on finer pixels: sum, centroid and variance against those of the image itself."""
    y, x = np.indices((61, 61)) - 30.0
    data = np.exp(-0.5 * (((x - 4) / 6) ** 2 + ((y + 2) / 9) ** 2))
    path = tmp_path / "psf.fits"
    fits.PrimaryHDU(data, fits.Header([("CD1_1", -0.05 / 3600), ("CD2_2", 0.05 / 3600)])).writeto(path)
    psf, parameters = build(kind="image", file=str(path), enclosed=0.999999)
    image = np.asarray(images_of(psf, parameters))[0]
    offset = np.arange(-psf.reach, psf.reach + 1) * PIXEL
    assert image.sum() == pytest.approx(1.0, abs=1e-12)
    assert image.sum(axis=0) @ offset == pytest.approx(4 * 0.05, abs=2e-3)
    assert image.sum(axis=1) @ offset == pytest.approx(-2 * 0.05, abs=2e-3)
    wanted = (9 * 0.05) ** 2 + (PIXEL**2 + 0.05**2) / 12
    centred = offset - image.sum(axis=1) @ offset
    assert image.sum(axis=1) @ centred**2 == pytest.approx(wanted, rel=0.02)
    stated, _ = build(kind="image", file=str(path), file_scale="0.1 arcsec", enclosed=0.999999)
    assert stated.reach > psf.reach


def test_image_with_a_plane_per_wavelength(tmp_path):
    planes = np.zeros((2, 5, 5))
    planes[0, 2, 2], planes[1] = 1.0, 1 / 25
    path = tmp_path / "psf.fits"
    fits.PrimaryHDU(planes).writeto(path)
    psf, parameters = build(kind="image", file=str(path), file_scale=PIXEL, wavelength=[5000, 9000], enclosed=0.999999)
    np.testing.assert_allclose(
        np.asarray(image_at(psf, parameters, jnp.asarray(6000.0))), 0.75 * planes[0] + 0.25 * planes[1]
    )


@pytest.mark.parametrize(
    ("first", "last", "refused"),
    [(4000, 4999, True), (4000, 5000, False), (6000, 7000, False), (9000, 9500, False), (9001, 9500, True)],
)
def test_planes_at_other_wavelengths_than_the_detectors_are_refused(tmp_path, first, last, refused):
    path = tmp_path / "psf.fits"
    fits.PrimaryHDU(np.ones((2, 5, 5))).writeto(path)
    settings = psf_settings({"kind": "image", "file": path, "file_scale": PIXEL, "wavelength": (first, last)})
    if not refused:
        PSF.build(settings, PIXEL, np.array([5000.0, 9000.0]))
        return
    words = f"detector's wavelengths, 5000 to 9000 Angstrom, got planes from {first} to {last} Angstrom in {path}; "
    with pytest.raises(ConfigError, match=words):
        PSF.build(settings, PIXEL, np.array([5000.0, 9000.0]))


def write_stpsf(path, planes, only=None, **cards):
    """A file as stpsf's `calc_datacube` writes it (poppy/instrument.py, `calc_datacube` and `_calc_psf_format_output`;
    stpsf/stpsf_core.py): four extensions, the sides of their pixels, planes in metres of the vacuum."""
    hdus = fits.HDUList()
    for name, plane in planes.items():
        if only is None or name == only:
            binned = name.startswith("DET")
            header = {"OVERSAMP": 1 if binned else 4, "DET_SAMP": 4, "PIXELSCL": 0.1 if binned else 0.025}
            header |= {"DIFFLMT": 0.08, "EXTNAME": name, **cards}
            hdus.append((fits.ImageHDU if hdus else fits.PrimaryHDU)(plane, fits.Header(header)))
    hdus.writeto(path)


def stpsf_planes():
    fine = np.zeros((2, 40, 40))
    fine[0, 18:22, 18:22], fine[1, 16:24, 16:24] = 2.0, 1.0
    every = {"OVERSAMP": fine, "OVERDIST": np.roll(fine, 4, axis=2)}
    binned = {
        name.replace("OVER", "DET_"): plane.reshape(2, 10, 4, 10, 4).sum(axis=(2, 4)) for name, plane in every.items()
    }
    return {name: (every | binned)[name] for name in ("OVERSAMP", "DET_SAMP", "OVERDIST", "DET_DIST")}


def test_files_of_stpsf_are_taken_as_they_are(tmp_path):
    """The extension with the detector's effects, whose light lies one spaxel to the right; sides and wavelengths of the
    header, in whatever order; between two planes the image is their mean."""
    path, planes = tmp_path / "nirspec.fits", stpsf_planes()
    write_stpsf(path, planes, WAVELN00=2.6e-6, WAVELN01=1.4e-6)
    wavelength = np.array([14000.0, 20000.0, 26000.0])
    settings = psf_settings({"kind": "image", "file": str(path), "enclosed": 0.999999})
    found = PSF.build(settings, 0.1, wavelength)
    np.testing.assert_allclose(found.node_wavelength, [14000, 26000], rtol=1e-12)
    image = np.asarray(image_at(found, PSFParameters(), jnp.asarray(20000.0)))
    light = [plane[2:38, 2:38].reshape(9, 4, 9, 4).sum(axis=(1, 3)) / plane.sum() for plane in planes["OVERDIST"]]
    cut = (9 - len(image)) // 2
    expected = (0.5 * (light[0] + light[1]))[cut : 9 - cut, cut : 9 - cut]
    np.testing.assert_allclose(image, expected, atol=1e-6)
    chosen = settings.model_copy(update={"extension": "oversamp"})
    other = np.asarray(image_at(PSF.build(chosen, 0.1, wavelength), PSFParameters(), jnp.asarray(20000.0)))
    assert abs(other.sum(axis=0) @ np.arange(len(other)) - (len(other) - 1) / 2) < 1e-9
    assert image.sum(axis=0) @ np.arange(len(image)) - (len(image) - 1) / 2 == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("only", "cards", "section", "words"),
    [
        ("DET_SAMP", {}, {}, "expected an image on pixels finer than the detector's"),
        (None, {}, {"extension": "PSF"}, "expected one with an image, of DET_DIST, OVERDIST, DET_SAMP, OVERSAMP"),
        (None, {"WAVELN00": 1e-6}, {}, "expected a wavelength for each of 2 planes"),
        (None, {"WAVELN00": 1e-6, "WAVELN01": 1e-6}, {}, "all different"),
        (None, {}, {}, "expected one plane"),
        (None, {"PIXUNIT": "meter"}, {"wavelength": [1e4, 2e4]}, "expected the side of a pixel"),
    ],
)
def test_files_of_stpsf_that_are_refused(tmp_path, only, cards, section, words):
    write_stpsf(tmp_path / "psf.fits", stpsf_planes(), only, **cards)
    with pytest.raises(ConfigError, match=words):
        build(kind="image", file=str(tmp_path / "psf.fits"), **section)


@pytest.mark.parametrize(
    ("data", "section", "words"),
    [
        (None, {}, "expected a readable FITS image"),
        (np.full((3, 3), -1.0), {"file_scale": 0.2}, "finite values >= 0"),
        (np.full((3, 3), np.nan), {"file_scale": 0.2}, "finite values >= 0"),
        (np.ones((2, 3, 3)), {"file_scale": 0.2}, "expected one plane"),
        (np.ones((2, 3, 3)), {"file_scale": 0.2, "wavelength": [1, 2, 3]}, "expected 3 planes"),
        (np.ones((3, 3)), {}, "expected the side of a pixel"),
    ],
)
def test_unusable_image_is_refused(tmp_path, data, section, words):
    path = tmp_path / "psf.fits"
    if data is None:
        path.write_text("not FITS")
    else:
        fits.PrimaryHDU(data).writeto(path)
    with pytest.raises(ConfigError, match=words):
        build(kind="image", file=str(path), **section)


def test_missing_image_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="expected a readable FITS image"):
        build(kind="image", file=str(tmp_path / "none.fits"))


@pytest.mark.parametrize(("shape", "side"), [((9, 12), 3), ((31, 28), 21), ((40, 33), 7)])
def test_blur_is_a_convolution(shape, side):
    """Both ways, by shifts and by FFT, against scipy; an asymmetric PSF is not mirrored."""
    rng = np.random.default_rng(3)
    images, psf = rng.uniform(size=(*shape, 5)), rng.uniform(size=(side, side))
    expected = np.stack([fftconvolve(images[:, :, k], psf, mode="valid") for k in range(5)], axis=2)
    np.testing.assert_allclose(np.asarray(jax.jit(blur)(images, psf)), expected, rtol=1e-10)
    other = rng.uniform(size=(side, side))
    share = np.linspace(0, 1, 5)
    mixed = [fftconvolve(images[:, :, k], (1 - share[k]) * psf + share[k] * other, mode="valid") for k in range(5)]
    found = jax.jit(blur_each)(images, np.stack([psf, other]), np.stack([1 - share, share], axis=1))
    np.testing.assert_allclose(np.asarray(found), np.stack(mixed, axis=2), rtol=1e-10)


def test_separable_blurs_are_convolutions():
    rng = np.random.default_rng(4)
    images, weights = rng.uniform(size=(12, 15, 3)), np.array([[0.2, 0.6, 0.2], [0.1, 0.8, 0.1]])
    found = jax.jit(blur_separable)(images, tuple((1.0, line) for line in weights))
    both = sum(
        np.stack([fftconvolve(images[:, :, k], np.outer(line, line), mode="valid") for k in range(3)], axis=2)
        for line in weights
    )
    np.testing.assert_allclose(np.asarray(found), both, rtol=1e-12)


@pytest.mark.parametrize("n_step", [1, 2, 4])
def test_refined_layers_are_convolutions_of_what_is_zero_between_their_places(n_step):
    rng = np.random.default_rng(5)
    layers, weights = rng.uniform(size=(2, 9, 8, 3)), np.array([[0.1, 0.2, 0.4, 0.2, 0.1], [0.0, 0.3, 0.4, 0.3, 0.0]])
    sparse = np.zeros((2, n_step * 8 + 1, n_step * 7 + 1, 3))
    sparse[:, ::n_step, ::n_step] = layers
    expected = sum(
        np.stack([fftconvolve(image[:, :, k], np.outer(line, line), mode="valid") for k in range(3)], axis=2)
        for image, line in zip(sparse, weights, strict=True)
    )
    found = jax.jit(refine, static_argnums=(2, 3))(layers, weights, n_step, expected.shape[:2])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)


def test_images_are_differentiable_in_their_widths():
    """Against finite differences, for a Moffat that depends on wavelength."""
    psf, parameters = build(**CHROMATIC, enclosed=0.95)
    values = {"fwhm": parameters.fwhm, "beta": parameters.beta}
    weights = jnp.asarray(np.random.default_rng(5).normal(size=(2 * psf.reach + 1,) * 2))

    @jax.jit
    @jax.value_and_grad
    def weighted(values):
        return (psf.image_at(PSFParameters(**values), jnp.asarray(6100.0)) * weights).sum()

    _, gradient = weighted(values)
    for name, value in values.items():
        for number in range(3):
            step = np.zeros(3)
            step[number] = 1e-6
            above, below = (weighted({**values, name: value + sign * step})[0] for sign in (1, -1))
            np.testing.assert_allclose(gradient[name][number], (above - below) / 2e-6, rtol=1e-6, atol=1e-9)
        assert float(gradient[name][2]) == 0.0  # 6100 Angstrom lies between the first two


def test_moffat_of_no_width_is_one_spaxel():
    beta, one = jnp.asarray(2.5), jnp.asarray(1.0)
    both = jax.jit(lambda fwhm: jax.jvp(lambda width: moffat_image(width, beta, 3), (fwhm,), (one,)))
    image, gradient = both(jnp.asarray(0.0))
    np.testing.assert_allclose(np.asarray(image), np.pad([[1.0]], 3), atol=1e-8)
    assert np.isfinite(np.asarray(gradient)).all()


def test_node_shares_interpolate():
    shares = np.asarray(node_shares(jnp.asarray([0.0, 1.0, 1.5, 4.0, 9.0]), jnp.asarray([1.0, 2.0, 4.0])))
    np.testing.assert_allclose(shares, [[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0], [0, 0, 1], [0, 0, 1]])

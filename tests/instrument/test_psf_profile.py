"""What a spaxel sees of a star through a PSF of any width, against scipy and an oversampled grid of astropy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.convolution import Gaussian2DKernel, convolve_fft
from astropy.io import fits
from scipy.stats import norm
from small import psf_settings, white_light

from rubix_like import Galaxy, Pipeline, Stars, load_config
from rubix_like.engine.spaxels import SpaxelGrid
from rubix_like.extend import Footprint, resolve
from rubix_like.instrument.blur import blur, blur_separable
from rubix_like.instrument.painting import Painting, plan_painting
from rubix_like.instrument.psf import PSF, PSFParameters
from rubix_like.instrument.psf_profile import gaussian_weights_in_spaxel

SIGMA = 1 / np.sqrt(8 * np.log(2))
MUSE = {"observation": {"redshift": 0.02, "align": "none"}, "instrument": {"name": "muse", "fov": "4 arcsec"}}
FINE = 15
PLACES = np.random.default_rng(1).integers(-7, 8, (100, 2)) / FINE
"""(x, y) of stars in a spaxel, from its middle, in spaxels."""


def seen(psf, painting, places=PLACES, n=9):
    """Images (n, n, star) of stars with the light 1 in the middle spaxel, 1 arcsec wide."""
    settings = psf_settings(psf)
    profile = PSF.build(settings, 1.0, np.linspace(5000.0, 6000.0, 3), painting)
    side = painting.cells * (n + 2 * profile.reach)
    grid = SpaxelGrid(Footprint(side, side, 1.0 / painting.cells), painting.deposit)
    places = jnp.asarray(np.c_[-places[:, 0], places[:, 1], np.zeros(len(places))])
    index, weight = (np.asarray(part) for part in eqx.filter_jit(SpaxelGrid.weights)(grid, places))
    painted = np.zeros((side**2, len(places)))
    np.add.at(painted, (index, np.arange(len(places))[:, None]), weight)
    painted = painted.reshape(side, side, -1)
    return np.asarray(blurred(profile, PSFParameters(**jax.tree.map(jnp.asarray, settings.numbers())), painted))


@eqx.filter_jit
def blurred(psf, parameters, painted):
    """Images on cells, each seen through the PSF."""
    if psf.is_separable:
        return blur_separable(painted, psf.axis_weights(parameters), psf.painting.cells)
    return blur(painted, psf.images(parameters)[0], psf.painting.cells)


def in_spaxels(profile, places=PLACES, n=9):
    """Images of stars whose light has a profile on pixels of 1/15 spaxel, integrated over spaxels."""
    middle = len(profile) // 2
    images = []
    for x, y in np.round(places * FINE).astype(int):
        low_y, low_x = (middle - (FINE * n - 1) // 2 - shift for shift in (y, x))
        part = profile[low_y : low_y + FINE * n, low_x : low_x + FINE * n]
        images.append(part.reshape(n, FINE, n, FINE).sum(axis=(1, 3)))
    return np.stack(images, axis=2)


def gaussian_by_astropy(fwhm):
    """A star on pixels of 1/15 spaxel, convolved by astropy."""
    star = np.zeros((15 * FINE, 15 * FINE))
    star[len(star) // 2, len(star) // 2] = 1.0
    return convolve_fft(star, Gaussian2DKernel(fwhm * SIGMA * FINE), normalize_kernel=True)


def worst(found, expected):
    """Largest error of any image relative to its peak."""
    return (np.abs(found - expected).max(axis=(0, 1)) / expected.max(axis=(0, 1))).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cells", [1, 3])
def test_a_star_in_the_middle_is_the_gaussian_integrated_over_spaxels(cells, dtype):
    """Values and derivatives by the FWHM to 1e-4 of the peak, for `nearest` at any width."""
    weights = jax.jit(lambda fwhm: gaussian_weights_in_spaxel(fwhm, 9, Painting("nearest", cells)))
    slope = jax.jit(jax.jacfwd(weights))
    edges = np.arange(20) - 9.5
    for fwhm in (0.2, 0.3, 0.5, 0.9, 1.2, 1.6, 1.8, 2.0, 2.2, 3.0, 4.0):
        expected = np.diff(norm.cdf(edges, scale=fwhm * SIGMA))
        by_fwhm = np.diff(-edges / fwhm * norm.pdf(edges, scale=fwhm * SIGMA))
        found, derivative = (np.asarray(f(jnp.asarray(fwhm, dtype)))[cells // 2 :: cells] for f in (weights, slope))
        np.testing.assert_allclose(found, expected, atol=1e-5 * expected.max())
        np.testing.assert_allclose(derivative, by_fwhm, atol=1e-4 * expected.max())
    for fwhm in (0.0, 1e-6, 0.01):
        for values in (weights(jnp.asarray(fwhm, dtype)), slope(jnp.asarray(fwhm, dtype))):
            assert np.isfinite(np.asarray(values)).all()


def test_a_finer_deposit_is_within_a_percent():
    """100 places, tsc with the cells that `auto` takes: error at most 1 % of the peak from 1.5 spaxels on, and centroid
    within 1/500 spaxel; light is kept."""
    for fwhm in (1.5, 1.7, 2.5, 3.6):
        run = load_config(MUSE, {"instrument.psf.fwhm": 0.2 * fwhm, "engine.deposit": "tsc"})
        painting = plan_painting(run.engine, run.instrument, resolve(run).pipeline)
        found, expected = seen({"fwhm": fwhm}, painting), in_spaxels(gaussian_by_astropy(fwhm))
        assert worst(found, expected) < 0.01
        row = np.arange(9) - 4
        for axis in (0, 1):
            wanted, painted = (
                np.tensordot(row, image.sum(axis=axis), 1) / image.sum(axis=(0, 1)) for image in (expected, found)
            )
            np.testing.assert_allclose(painted, wanted, atol=2e-3)
        assert found.min() > -1e-4 * expected.max()


@pytest.mark.parametrize("kind", ["moffat", "gaussians", "image"])
def test_every_kind_is_integrated_and_sharpened(kind, tmp_path):
    """Two spaxels wide, on two cells per spaxel: within 1 % of the same profile on an oversampled grid."""
    pixel = np.arange(15 * FINE) - (15 * FINE - 1) / 2
    radius = np.hypot(pixel[:, None], pixel[None, :]) / FINE
    if kind == "gaussians":
        psf = {"kind": kind, "components": [{"fwhm": 1.7, "fraction": 0.6}, {"fwhm": 3.0, "fraction": 0.4}]}
        profile = sum(
            share / width**2 * np.exp(-0.5 * (radius / width / SIGMA) ** 2) for width, share in ((1.7, 0.6), (3.0, 0.4))
        )
    else:
        psf = {"kind": "moffat", "fwhm": 2.0, "beta": 4.0, "enclosed": 0.9999}
        profile = (1 + (radius / (2.0 / (2 * np.sqrt(2**0.25 - 1)))) ** 2) ** -4.0
    if kind == "image":
        fits.PrimaryHDU(profile).writeto(tmp_path / "psf.fits")
        psf = {"kind": kind, "file": str(tmp_path / "psf.fits"), "file_scale": 1 / FINE, "enclosed": 0.9999}
    expected = in_spaxels(profile / profile.sum())
    for cells, allowed in ((2, 0.01), (1, 0.045)):
        assert worst(seen(psf, Painting("tsc", cells)), expected) < allowed


@pytest.mark.parametrize(
    ("painting", "fwhm"),
    [
        (Painting("tsc", 1), 0.5),
        (Painting("tsc", 1), 0.8),
        (Painting("tsc", 1), 1.8),
        (Painting("tsc", 2), 0.6),
        (Painting("cic", 1), 0.6),
        (Painting("cic", 1), 2.0),
        (Painting("nearest", 1), 0.8),
        (Painting("nearest", 1), 2.0),
    ],
)
def test_the_effective_width_is_that_of_stars_anywhere(painting, fwhm):
    """Mean second moment about their own places of stars on an even grid within a spaxel, less the spaxel's box."""
    x, y = (grid.ravel() for grid in np.meshgrid(*[(np.arange(12) - 5.5) / 12] * 2))
    light = seen({"fwhm": fwhm, "enclosed": 0.9999999}, painting, np.c_[x, y]).sum(axis=0)
    variance = np.mean(light * (np.arange(9)[:, None] - 4 - x) ** 2) * 9 - 1 / 12
    assert painting.effective_fwhm(fwhm) == pytest.approx(np.sqrt(max(variance, 0)) / SIGMA, abs=0.01)


def smooth_galaxy(sigma, n=61, reach=4.5):
    """Stars on a dense grid whose masses make a round Gaussian of that width (kpc)."""
    axis = np.linspace(-reach * sigma, reach * sigma, n)
    x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))
    mass = 1e8 * np.exp(-0.5 * (x**2 + y**2) / sigma**2)
    kept = mass > 1e2
    position = np.stack([x, y, np.zeros(n * n)], axis=1)[kept]
    same = (np.full(len(position), value) for value in (9.5, 0.02))
    return Galaxy(Stars(position, np.zeros_like(position), mass[kept], *same))


@pytest.mark.parametrize("deposit", ["tsc", pytest.param("cic", marks=pytest.mark.slow)])
def test_a_foreign_cube_has_the_seeing_that_it_was_made_with(deposit):
    """A Gaussian of 0.8 arcsec (sigma) seen through 0.9 arcsec (FWHM), integrated over spaxels of 0.5 arcsec by scipy:
    the width that fits best is 0.900 arcsec within 0.01, and the model's derivative by it is a finite difference."""
    bins = {"start": 5000, "stop": 5002.5, "step": 1.25}
    instrument = {"name": "muse", "pixel_scale": 0.5, "fov": 9.0, "psf": {"fwhm": 1.2}, "lsf": None, "wavelength": bins}
    engine = {"method": "direct", "precision": "float64", "deposit": deposit, "oversampling": 1}
    observation, devices = {"redshift": 0.02, "align": "none"}, {"data": 1}
    config = {"observation": observation, "instrument": instrument, "engine": engine, "devices": devices}
    pipeline = Pipeline.from_config(load_config(config))
    galaxy = smooth_galaxy(0.8 / float(pipeline.tables.arcsec_per_kpc))

    def model(fwhm):
        light = pipeline(galaxy, eqx.tree_at(lambda p: p.instrument.psf.fwhm, pipeline.parameters, fwhm)).flux.sum(
            axis=2
        )
        return light / light.sum()

    with_slope = jax.jit(lambda fwhm: jax.jvp(model, (fwhm,), (jnp.ones_like(fwhm),)))

    seen_through = np.hypot(0.8, 0.9 * SIGMA)
    axis = np.diff(norm.cdf((np.arange(19) - 9) * 0.5, scale=seen_through))
    data, fwhm = np.outer(axis, axis) / axis.sum() ** 2, 0.7
    for _ in range(5):
        value, slope = with_slope(jnp.asarray(fwhm))
        fwhm += float(jnp.vdot(slope, data - value) / jnp.vdot(slope, slope))
    assert fwhm == pytest.approx(0.9, abs=0.01)
    above, below = (with_slope(jnp.asarray(fwhm + step))[0] for step in (1e-5, -1e-5))
    difference = (above - below) / 2e-5
    np.testing.assert_allclose(np.asarray(slope), np.asarray(difference), atol=1e-7 * float(np.abs(slope).max()))


def test_the_run_says_the_width_that_stars_are_seen_with():
    """In the header's cards always, in a note where the deposit adds more than 2 %."""
    for deposit, psf, cells, effective in (
        ("nearest", 0.8, 1, np.hypot(0.8, 0.2 / np.sqrt(12) / SIGMA)),
        ("nearest", 0.4, 1, np.hypot(0.4, 0.2 / np.sqrt(12) / SIGMA)),
        ("tsc", 0.4, 2, 0.4),
        ("tsc", 0.8, 1, 0.8),
    ):
        pipeline = Pipeline.from_config(load_config(MUSE, {"engine.deposit": deposit, "instrument.psf.fwhm": psf}))
        meta = pipeline.frame.meta
        assert (meta["psf_fwhm"], meta["psf_cells"]) == (psf, cells)
        assert meta["psf_fwhm_effective"] == pytest.approx(effective, abs=1e-3)
        noted = [note for note in pipeline.notes if "before the spaxel's box" in note]
        assert len(noted) == (effective > 1.02 * psf)
    without = Pipeline.from_config(load_config(MUSE, {"engine.oversampling": 4, "instrument.psf": None}))
    assert without.plan.cells == 1
    assert [note for note in without.notes if note.startswith("engine.oversampling: 4 has no effect without a PSF")]


def test_cells_are_added_up_before_the_psf():
    """The image of a star on 3 x 3 cells per spaxel, `nearest`: exact where it lies in a cell's middle."""
    place = np.array([[1 / 3, -1 / 3], [0.0, 1 / 3]])
    expected = in_spaxels(gaussian_by_astropy(1.4), place)
    np.testing.assert_allclose(seen({"fwhm": 1.4}, Painting("nearest", 3), place), expected, atol=1e-3 * expected.max())


def test_a_run_on_finer_cells_sees_a_star_in_the_middle_exactly():
    settings = {
        "observation": {"redshift": 0.02, "align": "none"},
        "instrument": {"name": "muse", "fov": 1.0, "psf": {"fwhm": 0.3}, "wavelength": {"start": 5000, "stop": 5002.5}},
        "engine": {"method": "direct", "precision": "float64", "deposit": "nearest", "oversampling": 3},
        "devices": {"data": 1},
    }
    star = Galaxy(Stars(np.zeros((1, 3)), np.zeros((1, 3)), np.ones(1), np.full(1, 9.5), np.full(1, 0.02)))
    light = white_light(Pipeline.from_config(load_config(settings))(star))
    expected = in_spaxels(gaussian_by_astropy(1.5), np.zeros((1, 2)), n=5)[:, :, 0]
    np.testing.assert_allclose(light / light.sum(), expected / expected.sum(), atol=1e-3 * expected.max())

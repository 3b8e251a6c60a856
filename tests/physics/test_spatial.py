"""PSF, aperture and deposit: flux and centroids are kept, widths add in quadrature, light from outside shines in."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from observing import configuration, galaxy_of, observe
from scipy.stats import norm
from small import white_light

from rubix_like import Pipeline, make_mesh

BINS = {"start": 5000.0, "stop": 5005.0, "step": 1.25}
ARCSEC_PER_KPC = 0.9892393
PIXEL = 0.2


def image(position, *, fov=7.8, psf=None, deposit="nearest", aperture=None, **observation):
    config = configuration(
        observation=observation,
        instrument={"fov": fov, "wavelength": BINS, "psf": psf, "aperture": aperture},
        engine={"deposit": deposit},
    )
    return observe(config, galaxy_of(position))


def at(east, north):
    """Position in kpc of a star at (East, North) spaxels from the field's centre."""
    return [(PIXEL * east / ARCSEC_PER_KPC, PIXEL * north / ARCSEC_PER_KPC, 0.0)]


def moments(light):
    """Sum, centroid (column, row) from the field's centre and the variances along columns and rows, in spaxels."""
    rows, columns = (np.arange(n) - (n - 1) / 2 for n in light.shape)
    total = light.sum()
    x, y = light.sum(axis=0) @ columns / total, light.sum(axis=1) @ rows / total
    return total, (x, y), (light.sum(axis=0) @ (columns - x) ** 2 / total, light.sum(axis=1) @ (rows - y) ** 2 / total)


@functools.cache
def pipeline_for_widths(widest):
    """With a Gaussian up to this width (arcsec)."""
    psf = {"fwhm": widest, "enclosed": 0.99999}
    config = configuration(instrument={"fov": 15.0, "wavelength": BINS, "psf": psf})
    return Pipeline.from_config(config, mesh=make_mesh(1))


@pytest.mark.parametrize(("fwhm", "widest"), [(0.15, 0.15), (0.3, 1.6), (0.8, 1.6), (1.6, 1.6)])
def test_a_point_source_is_as_wide_as_the_psf(fwhm, widest):
    """From narrower than a spaxel to eight of them, the Gaussian integrated over spaxels; all its light is in the
    field."""
    pipeline = pipeline_for_widths(widest)
    parameters = eqx.tree_at(lambda p: p.instrument.psf.fwhm, pipeline.parameters, jnp.asarray(fwhm))
    light = white_light(pipeline(galaxy_of(at(0, 0)), parameters))
    total, centre, _ = moments(light)
    one = np.diff(norm.cdf((np.arange(76) - 37.5) * PIXEL, 0.0, fwhm / np.sqrt(8 * np.log(2))))
    np.testing.assert_allclose(light / total, np.outer(one, one), atol=1e-4 * one.max() ** 2)
    np.testing.assert_allclose(centre, 0.0, atol=1e-9)
    assert total == pytest.approx(white_light(image(at(0, 0))).sum(), rel=1e-6)


def test_psf_adds_in_quadrature():
    """A patch of stars, each moved to its spaxel's middle: the PSF adds its variance and the spaxel's box."""
    stars = np.random.default_rng(2).normal(size=(400, 3)) * [0.8, 0.4, 0.3]
    sharp, blurred = (moments(white_light(image(stars, fov=15.0, psf=psf))) for psf in (None, {"fwhm": 1.0}))
    added = np.subtract(blurred[2], sharp[2])
    np.testing.assert_allclose(np.sqrt(added - 1 / 12) * PIXEL * np.sqrt(8 * np.log(2)), 1.0, rtol=0.01)
    assert blurred[0] == pytest.approx(sharp[0], rel=1e-6)


def test_light_from_outside_the_field_shines_in():
    """A star two spaxels beyond the East border: dark without a PSF, and the image of a larger field with one."""
    star = at(7, 1)
    assert white_light(image(star, fov=1.8)).sum() == 0
    small, large = (white_light(image(star, fov=fov, psf={"fwhm": 0.8})) for fov in (1.8, 7.8))
    inner = slice(15, 24)
    np.testing.assert_allclose(small, large[inner, inner], rtol=1e-10, atol=1e-12 * large.max())
    assert small.sum() > 0.01 * large.sum()
    assert small[:, 0].sum() > 10 * small[:, 3].sum()


def test_aperture_masks_after_the_psf():
    """A star outside the circle still lights its inside; outside there is no flux, and bit 2."""
    star = at(9, 0)
    options = {"fov": 5.0, "psf": {"fwhm": 1.2}}
    bare = image(star, **options)
    masked = image(star, aperture={"shape": "circle", "size": 3.0}, **options)
    centres = (np.arange(25) - 12) * PIXEL
    inside = np.hypot(*np.meshgrid(centres, centres)) <= 1.5
    np.testing.assert_allclose(
        np.asarray(masked.flux), np.where(inside[:, :, None], np.asarray(bare.flux), 0.0), rtol=1e-12
    )
    np.testing.assert_array_equal(np.asarray(masked.mask), np.where(inside, 0, 2)[:, :, None] * np.ones(5, dtype=int))
    assert np.asarray(masked.flux).sum() > 0.02 * np.asarray(bare.flux).sum()


@pytest.mark.parametrize("deposit", ["nearest", "cic", "tsc"])
def test_deposit_keeps_the_light(deposit):
    stars = np.random.default_rng(1).uniform(-1.5, 1.5, size=(200, 3))
    total = white_light(image(stars, fov=5.0, deposit=deposit)).sum()
    one = white_light(image(at(0, 0), fov=5.0)).sum()
    assert total == pytest.approx(200 * one, rel=1e-12)


@pytest.mark.parametrize(("deposit", "variance"), [("cic", None), ("tsc", 0.25)])
def test_deposit_keeps_centroids(deposit, variance):
    """Exactly for cic and tsc, wherever in a spaxel the star lies; tsc adds the same variance everywhere."""
    for east, north in ((0.0, 0.0), (0.31, -0.77), (-2.5, 1.5), (3.14, 2.72)):
        light = white_light(image(at(east, north), fov=5.0, deposit=deposit))
        _, centre, variances = moments(light)
        np.testing.assert_allclose(centre, (-east, north), atol=1e-6)
        if variance is not None:
            np.testing.assert_allclose(variances, variance, rtol=1e-6)


def test_nearest_puts_a_star_into_its_spaxel():
    for east, north in ((0.49, -0.49), (0.51, 1.49), (-3.6, 2.4)):
        light = white_light(image(at(east, north), fov=5.0))
        lit = np.argwhere(light > 0)
        assert lit.tolist() == [[12 + round(north), 12 - round(east)]]


def test_offset_moves_the_galaxy_on_the_sky():
    """observation.offset is (East, North) in arcsec: three spaxels East are three columns less."""
    light = white_light(image(at(0, 0), fov=5.0, offset=[0.6, -0.4]))
    assert np.argwhere(light > 0).tolist() == [[12 - 2, 12 - 3]]


MOFFAT = {"kind": "moffat", "fwhm": 0.8, "beta": 2.5}
CHROMATIC = {"kind": "moffat", "wavelength": [4990, 5010], "fwhm": [1.2, 0.6], "beta": 3.0}
GAUSSIANS = {"kind": "gaussians", "components": [{"fwhm": 0.6, "fraction": 0.7}, {"fwhm": 1.5, "fraction": 0.3}]}


def moffat(radius, fwhm, beta):
    alpha = fwhm / (2 * np.sqrt(2 ** (1 / beta) - 1))
    return (1 + (radius / alpha) ** 2) ** -beta


def moffat_in_spaxels(n, fwhm, beta, cut=15):
    """Its light in n x n spaxels: the mean of cut x cut places in each."""
    fine = (np.arange(cut * n) - (cut * n - 1) / 2) * PIXEL / cut
    profile = moffat(np.hypot(fine[:, None], fine[None, :]), fwhm, beta).reshape(n, cut, n, cut).mean(axis=(1, 3))
    return profile / profile.sum()


def test_a_point_source_is_a_moffat_integrated_over_spaxels():
    """All its light is in a field as large as the support."""
    light = white_light(image(at(0, 0), fov=15.0, psf=MOFFAT))
    expected = moffat_in_spaxels(75, 0.8, 2.5)
    np.testing.assert_allclose(light / light.sum(), expected, atol=3e-4 * expected.max())
    assert light.sum() == pytest.approx(white_light(image(at(0, 0))).sum(), rel=1e-6)


def test_a_point_source_has_its_own_width_at_every_wavelength():
    cube = image(at(0, 0), fov=15.0, psf=CHROMATIC)
    flux = np.asarray(cube.flux)
    for number, wavelength in enumerate(np.asarray(cube.wavelength)):
        fwhm = np.interp(wavelength, [4990, 5010], [1.2, 0.6])
        expected = moffat_in_spaxels(75, fwhm, 3.0)
        found = flux[:, :, number] / flux[:, :, number].sum()
        np.testing.assert_allclose(found, expected, atol=1e-3 * expected.max())
    single = np.asarray(image(at(0, 0)).flux).sum(axis=(0, 1))
    np.testing.assert_allclose(flux.sum(axis=(0, 1)), single, rtol=1e-6)


KINDS = [pytest.param(MOFFAT, marks=pytest.mark.slow), CHROMATIC, pytest.param(GAUSSIANS, marks=pytest.mark.slow)]


def name_of(psf):
    return f"{psf['kind']}{len(psf)}"


@pytest.mark.parametrize("psf", KINDS, ids=name_of)
def test_every_kind_of_psf_lets_light_shine_in(psf):
    """The same image as in a larger field."""
    stars = np.random.default_rng(5).normal(size=(60, 3))
    small, large = (np.asarray(image(stars, fov=fov, psf=psf).flux) for fov in (3.0, 9.0))
    np.testing.assert_allclose(small, large[15:-15, 15:-15], rtol=1e-9, atol=1e-12 * large.max())


@pytest.mark.long
@pytest.mark.parametrize("psf", [MOFFAT, CHROMATIC, GAUSSIANS], ids=name_of)
def test_every_kind_of_psf_is_the_same_on_eight_devices(psf):
    galaxy = galaxy_of(np.random.default_rng(5).normal(size=(60, 3)))
    config = configuration(instrument={"fov": 3.0, "wavelength": BINS, "psf": psf})
    one, eight = (np.asarray(observe(config, galaxy, n).flux) for n in (1, 8))
    np.testing.assert_allclose(eight, one, rtol=1e-9, atol=1e-12 * one.max())


@pytest.mark.parametrize(
    ("psf", "engine"),
    [
        pytest.param({"fwhm": 0.8}, {}, marks=pytest.mark.long),
        pytest.param(MOFFAT, {}, marks=pytest.mark.long),
        pytest.param(CHROMATIC, {}, marks=pytest.mark.long),
        ({"fwhm": 0.3}, {"deposit": "tsc", "oversampling": 3}),
        (CHROMATIC, {"deposit": "tsc", "oversampling": 2}),
    ],
    ids=["gaussian", "moffat", "chromatic", "gaussian-finer", "chromatic-finer"],
)
def test_psf_before_projection_is_psf_after_it(psf, engine):
    """Method basis convolves coefficients, method direct the cube; also where several cells make a spaxel."""
    rng = np.random.default_rng(6)
    galaxy = galaxy_of(rng.normal(size=(30, 3)), velocity=rng.normal(0, 100, 30))
    cubes = [
        observe(
            configuration(instrument={"fov": 3.0, "wavelength": BINS, "psf": psf}, engine={"method": method, **engine}),
            galaxy,
        )
        for method in ("basis", "direct")
    ]
    found, expected = (np.asarray(cube.flux) for cube in cubes)
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    velocity = [np.asarray(cube.mean_v_los) for cube in cubes]
    np.testing.assert_allclose(*velocity, atol=0.1)


@pytest.mark.parametrize("psf", [MOFFAT, CHROMATIC], ids=["moffat", "chromatic"])
def test_gradient_of_the_psf_is_a_finite_difference(psf):
    stars = np.random.default_rng(7).normal(size=(20, 3))
    config = configuration(instrument={"fov": 2.0, "wavelength": BINS, "psf": psf})
    galaxy = galaxy_of(stars)
    pipeline = Pipeline.from_config(config, galaxy, mesh=make_mesh(1))
    weights = jnp.asarray(np.random.default_rng(8).normal(size=(10, 10, 5)))

    @jax.jit
    @jax.value_and_grad
    def weighted(widths):
        parameters = eqx.tree_at(lambda p: p.instrument.psf, pipeline.parameters, widths)
        return (pipeline(galaxy, parameters).flux * weights).sum()

    widths = pipeline.parameters.instrument.psf
    _, gradient = weighted(widths)
    for name in ("fwhm", "beta"):
        step = 1e-5
        changed = (
            eqx.tree_at(lambda p, name=name: getattr(p, name), widths, getattr(widths, name) + own)
            for own in (step, -step)
        )
        sides = [float(weighted(own)[0]) for own in changed]
        found = float(np.sum(getattr(gradient, name)))
        assert found == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6)

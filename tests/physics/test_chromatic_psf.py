"""A PSF that follows wavelength acts on coefficients, as a short sum: against scipy's convolution of every bin."""

import dataclasses
import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from independent import moffat_in_spaxels
from observing import configuration, galaxy_of
from scipy.signal import fftconvolve
from small import muse

from rubix_like import Pipeline, load_config, make_mesh
from rubix_like.instrument.psf import PSFParameters

TABLE = [4750.0, 7000.0, 9350.0]
MOFFAT = {"kind": "moffat", "wavelength": TABLE, "fwhm": [0.9, 0.8, 0.7], "beta": [2.5, 2.8, 3.0], "enclosed": 0.9}
PSFS = {
    "moffat": MOFFAT,
    "kinked": {"wavelength": TABLE, "fwhm": [0.9, 0.6, 0.8]},
    "gaussians": {
        "kind": "gaussians",
        "wavelength": TABLE,
        "components": [{"fwhm": [0.8, 0.7, 0.5], "fraction": 3}, {"fwhm": 1.6, "fraction": 1}],
    },
}
SIDE, PIXEL = 10, 0.2


def config(psf, side=SIDE, **engine):
    instrument = muse(4750, 9350, 10, fov=side * PIXEL, psf=psf)
    return configuration(instrument=instrument, engine={"method": "basis", "tolerance": 1e-3, **engine})


@functools.cache
def galaxy():
    """Stars of all ages, most of them outside the field, one bright one near its middle."""
    rng = np.random.default_rng(2)
    n = 40
    place = np.concatenate([rng.uniform(-3, 3, (n, 3)), [[0.05, -0.1, 0.0]]])
    mass = np.append(np.full(n, 1e9), 3e10)
    return galaxy_of(
        place, rng.normal(0, 150, n + 1), mass, rng.uniform(6.5, 10, n + 1), 10 ** rng.uniform(-3, -1.6, n + 1)
    )


@functools.cache
def pipeline_of(name, n_devices=1):
    return Pipeline.from_config(config(PSFS[name]), galaxy(), mesh=make_mesh(n_devices))


@functools.cache
def painted(reach):
    """The cube before the PSF, as wide as it reaches."""
    return np.asarray(Pipeline.from_config(config(None, SIDE + 2 * reach), galaxy(), mesh=make_mesh(1))(galaxy()).flux)


@eqx.filter_jit
def images_of(psf, widths):
    return jax.lax.map(lambda own: psf.images(PSFParameters(**own))[0], widths, batch_size=32)


def along(wavelength, values):
    """Widths at each wavelength, first axis."""
    values = np.broadcast_to(values, (*np.shape(values)[:-1], len(TABLE))).reshape(-1, len(TABLE))
    return np.stack([np.interp(wavelength, TABLE, row) for row in values], axis=1)


def exact(pipeline, every=1, **widths):
    """The image of each `every`-th bin convolved by scipy with the PSF of its own widths, without interpolation."""
    psf, wavelength = pipeline.tables.cube[0].psf, pipeline.frame.bins.wavelength[::every]
    given = {key: value for key, value in vars(pipeline.parameters.instrument.psf).items() if value is not None}
    given |= widths
    own = {key: along(wavelength, value) for key, value in given.items() if key != "fraction"}
    own = {key: value if psf.kind == "gaussians" else value[:, 0] for key, value in own.items()}
    if "fraction" in given:
        own["fraction"] = np.tile(given["fraction"], (len(wavelength), 1))
    one = dataclasses.replace(psf, nodes=None, table_wavelength=None)
    images, cube = np.asarray(images_of(one, own)), painted(psf.reach)[:, :, ::every]
    return np.stack([fftconvolve(cube[:, :, k], own, mode="valid") for k, own in enumerate(images)], axis=2)


@pytest.mark.parametrize(
    "name",
    ["moffat", pytest.param("gaussians", marks=pytest.mark.slow), pytest.param("kinked", marks=pytest.mark.long)],
)
def test_the_sum_is_the_convolution_of_every_bin(name):
    """Within the error in the header, which is within half of the tolerance; no light is lost. Planes of Moffats are
    those of the formula, integrated by brute force, to a tenth of a percent of the peak, as their images are."""
    pipeline, every = pipeline_of(name), 5 if name == "moffat" else 1
    painter = pipeline.tables.paint[0].painter
    assert pipeline.tables.paint[0].painter.by_terms
    assert sum(painter.coefficient_map.sizes) < pipeline.plan.n_wave
    error = pipeline.frame.meta["basis_psf_error"]
    assert 0 < error < 0.5e-3
    cube, expected = np.asarray(pipeline(galaxy()).flux), exact(pipeline, every)
    found = cube[:, :, ::every]
    rms = np.sqrt(((found - expected) ** 2).mean(axis=2))
    assert 0 < (rms / expected.mean(axis=2).max()).max() < error
    assert np.abs(found - expected).max() < 10 * error * expected.max()
    reach = pipeline.tables.cube[0].psf.reach
    for k in (0, 115, 225, 300, 459) if name == "moffat" else ():
        wavelength = pipeline.frame.bins.wavelength[k]
        fwhm, beta = (np.interp(wavelength, TABLE, MOFFAT[key]) for key in ("fwhm", "beta"))
        expected = fftconvolve(painted(reach)[:, :, k], moffat_in_spaxels(2 * reach + 1, fwhm, beta), mode="valid")
        np.testing.assert_allclose(cube[:, :, k], expected, atol=1e-3 * expected.max())


@pytest.mark.slow
def test_derivatives_are_those_of_the_convolution():
    """With each width and each beta, against differences of scipy's convolutions: to 1 % of the largest one."""
    pipeline = pipeline_of("moffat")
    widths = pipeline.parameters.instrument.psf

    def cube(widths):
        parameters = eqx.tree_at(lambda p: p.instrument.psf, pipeline.parameters, widths)
        return pipeline(galaxy(), parameters).flux

    slope = jax.jit(lambda step: jax.jvp(cube, (widths,), (step,))[1])
    for name in ("fwhm", "beta"):
        for number in range(3):
            step = np.zeros(3)
            step[number] = 1.0
            none = jax.tree.map(np.zeros_like, widths)
            one = eqx.tree_at(lambda p, name=name: getattr(p, name), none, step)
            value = np.asarray(getattr(widths, name))
            sides = [exact(pipeline, **{name: value + own * step}) for own in (1e-4, -1e-4)]
            expected = (sides[0] - sides[1]) / 2e-4
            np.testing.assert_allclose(np.asarray(slope(one)), expected, atol=0.01 * np.abs(expected).max())


LAYOUTS = [
    pytest.param({"data": 8, "output": "sharded"}, marks=pytest.mark.slow),
    pytest.param({"data": 4, "wave": 2, "output": "sharded"}, marks=pytest.mark.long),
    pytest.param({"data": 1, "wave": 8}, marks=pytest.mark.long),
]


@pytest.mark.parametrize("devices", LAYOUTS, ids=str)
def test_devices_agree(devices):
    settings = config(MOFFAT).model_copy(update={"devices": type(config(MOFFAT).devices)(**devices)})
    found = np.asarray(Pipeline.from_config(settings, galaxy())(galaxy()).flux)
    expected = np.asarray(pipeline_of("moffat")(galaxy()).flux)
    np.testing.assert_allclose(found[:, :, : expected.shape[2]], expected, atol=1e-12 * expected.max(), rtol=0)


@pytest.mark.slow
def test_lines_are_seen_through_the_psf_of_their_wavelength():
    """Coefficients of lines by terms, against method direct, which convolves the image of every bin."""
    cubes = []
    for method in ("basis", "direct"):
        settings = load_config(
            config(MOFFAT, method=method),
            overrides={
                "pipeline": "lines",
                "lines": {"wavelengths": [4861, 6563, 8500], "particles": "stars", "velocity_dispersion": 150},
                "instrument.lsf": {"fwhm": "20 Angstrom"},
            },
        )
        pipeline = Pipeline.from_config(settings, galaxy(), mesh=make_mesh(1))
        cubes.append(np.asarray(pipeline(galaxy()).flux))
        if method == "basis":
            painters = {
                name: own.painter for name, own in zip(pipeline.plan.sources, pipeline.tables.paint, strict=True)
            }
            assert painters["lines"].by_terms
    found, expected = cubes
    np.testing.assert_allclose(found, expected, atol=2e-3 * expected.max())

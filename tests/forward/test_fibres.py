"""Cubes through fibres: the whole model against sums by hand, on several devices, and its derivatives."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from astropy.table import Table
from fibre_sums import light_in_disc, spaxels_by_shepard
from small import few_stars

import rubix_like as rl
from rubix_like import ConfigError, Galaxy, Pipeline, Stars, load_config, make_mesh
from rubix_like.cube.cube_parts import put_together

SEEING = {"kind": "moffat", "fwhm": 1.5, "beta": 3.0, "enclosed": 0.98}
FIBRES = {"bundle": "manga-19", "rings": 1, "seeing": [1, 1.2, 0.9], "transparency": [1, 0.6, 0.8], "dead": [6]}


def run(fibres=FIBRES, psf=SEEING, **changes):
    instrument = {
        "name": "sami_blue",
        "fov": "6.5 arcsec",
        "aperture": None,
        "psf": psf,
        "lsf": None,
        "wavelength": {"start": 5000, "stop": 5060, "step": 12},
        **({} if fibres is None else {"fibres": fibres}),
    }
    engine = {"precision": "float64", "method": "direct", "deposit": "nearest", "oversampling": 1}
    base = {
        "observation": {"redshift": 0.02, "distance": "90 Mpc", "align": "none"},
        "instrument": instrument,
        "engine": engine | {"velocity_range": 1000},
        "devices": {"data": 1},
    }
    return load_config(base, changes)


def three_stars(arcsec_per_kpc):
    """Stars at rest in the middles of spaxels, at these places (arcsec, East and North)."""
    places = np.array([[0.5, -0.5], [-1.0, 1.0], [0.0, 0.0]])
    position = np.column_stack([places / arcsec_per_kpc, np.zeros(3)])
    star = {"log_age": np.full(3, 9.5), "metallicity": np.full(3, 0.02), "velocity": np.zeros((3, 3))}
    return places, Galaxy(stars=Stars(position=position, initial_mass=np.array([1e8, 3e8, 2e8]), **star))


def test_spectra_and_cube_are_the_sums_by_hand():
    """A compact source to 1e-5: own integrals over the fibres' discs, own weights of the spaxels."""
    pipeline = Pipeline.from_config(run())
    assert "fibres" not in run(fibres=None).to_yaml()
    places, galaxy = three_stars(float(pipeline.tables.arcsec_per_kpc))
    total = np.asarray(Pipeline.from_config(run(fibres=None, psf=None))(galaxy).flux).sum(axis=(0, 1))
    cube = pipeline(galaxy)
    fibres, share = cube.fibres, np.array([1, 3, 2]) / 6
    own = fibres.places
    assert fibres.flux.shape == (18, 6)
    light = [
        sum(
            part * light_in_disc(SEEING, np.hypot(x - east, y - north), 1.0, seeing)
            for part, (east, north) in zip(share, places, strict=True)
        )
        for x, y, seeing in zip(own.x, own.y, own.seeing, strict=True)
    ]
    expected = np.array(light)[:, None] * total
    np.testing.assert_allclose(fibres.flux, expected, atol=1e-5 * expected.max())
    centres = cube.footprint.centres()
    image = spaxels_by_shepard(expected[:, 2], own.x, own.y, np.pi, centres, 0.5, sigma=0.7, limit=1.6)
    np.testing.assert_array_equal(np.isfinite(image), np.asarray(cube.mask)[:, :, 2] == 0)
    np.testing.assert_allclose(cube.flux[:, :, 2], np.nan_to_num(image), atol=1e-5 * np.nanmax(image))
    with pytest.raises(ValueError, match="covariance: expected a cube with noise, got one without variance"):
        cube.covariance(5020)
    weight = np.nansum(image)
    middle = [np.nansum(image * grid) / weight for grid in np.meshgrid(*centres)]
    seen = [(np.asarray(cube.flux)[:, :, 2] * grid).sum() / weight for grid in np.meshgrid(*centres)]
    np.testing.assert_allclose(seen, middle, atol=1e-5)


@pytest.mark.parametrize("method", ["direct", pytest.param("basis", marks=pytest.mark.long)])
def test_a_psf_that_follows_wavelength_is_that_of_each_bin(method):
    """Of each bin its own Gaussian: wavelengths from 5000 to 5060 Angstrom, widths from 1.3 to 1.7 arcsec."""
    psf = {"kind": "gaussian", "fwhm": [1.3, 1.7], "wavelength": [5000, 5060]}
    config = run(psf=psf, fibres={**FIBRES, "seeing": None}, **{"engine.method": method})
    pipeline = Pipeline.from_config(config)
    places, galaxy = three_stars(float(pipeline.tables.arcsec_per_kpc))
    galaxy = dataclasses.replace(galaxy, stars=jax.tree.map(lambda own: own[:1], galaxy.stars))
    total = np.asarray(Pipeline.from_config(run(fibres=None, psf=None))(galaxy).flux).sum(axis=(0, 1))
    fibres = pipeline(galaxy).fibres
    away = np.hypot(fibres.places.x - places[0, 0], fibres.places.y - places[0, 1])
    for bin_, width in ((0, 1.3), (2, 1.3 + 0.4 * 24 / 60), (5, 1.7)):
        light = np.array([light_in_disc({"kind": "gaussian", "fwhm": width}, r, 1.0) for r in away])
        tolerance = 1e-5 if method == "direct" else 1e-4
        np.testing.assert_allclose(fibres.flux[:, bin_] / total[bin_], light, atol=tolerance)


def test_noise_is_that_of_each_exposure_and_goes_through_the_map():
    config = run(noise={"signal_to_noise": 30, "keep_truth": True, "seed": 4})
    galaxy = three_stars(1.0)[1]
    pipeline = Pipeline.from_config(config)
    cube, other = (pipeline(galaxy, key=key) for key in (None, jax.random.key(9)))
    fibres, places = cube.fibres, cube.fibres.places
    sigma = np.sqrt(np.asarray(fibres.variance))
    np.testing.assert_allclose(sigma * places.transparency[:, None], sigma[0, 0])
    error = (np.asarray(fibres.flux) - np.asarray(fibres.truth)) / sigma
    assert 0.7 < error.std() < 1.3
    assert np.abs(np.asarray(other.fibres.flux) - np.asarray(fibres.flux)).min() > 0
    weights = fibres.weights.matrix().toarray()
    for made, expected in (
        (cube.flux, weights @ np.asarray(fibres.flux)),
        (cube.variance, weights**2 @ np.asarray(fibres.variance)),
        (cube.truth, weights @ np.asarray(fibres.truth)),
    ):
        np.testing.assert_allclose(np.asarray(made).reshape(-1, 6), expected, rtol=1e-10, atol=1e-12)
    residual = (np.asarray(cube.flux) - np.asarray(cube.truth))[:, :, 3]
    found, expected = cube.covariance("5036 Angstrom").chi2(residual), fibres.chi2(fibres.truth)[3]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"expected a wavelength from 4994\.00 to 5066\.00 Angstrom \(air\), got"):
        cube.covariance("4 um")
    part = cube.cut((5030, 5065), size="4 arcsec")
    np.testing.assert_array_equal(part.fibres.flux, fibres.flux[:, 3:])
    seen = part.fibres.weights.matrix() @ np.asarray(part.fibres.flux)
    np.testing.assert_allclose(seen.reshape(part.shape), part.flux, rtol=1e-10)
    assert part.shape[:2] == (9, 9)


DETECTOR = {"collecting_area": 2, "throughput": 0.25, "read_noise": 4, "dark_current": 72, "pixels_per_voxel": 3}


def timed(tmp_path, times, count=2, **changes):
    """A run of exposures under a flat sky of 100 photons/s/m2/um/arcsec2 that lets half of the light through."""
    path = str(tmp_path / "sky.fits")
    Table({"wavelength": [4e3, 9e3], "emission": [100.0, 100.0], "transmission": [0.5, 0.5]}).write(
        path, overwrite=True
    )
    exposure = {"time": times, "count": count, "sky": path}
    own = {"instrument.wavelength.medium": "vacuum", "instrument.detector": DETECTOR}
    return run(**own, noise={"exposure": exposure, "keep_truth": True}, **changes)


def electrons_of(cube, times, count=2):
    """By the formulas: electrons per unit of flux, of sky and dark current, and of the read-out squared, of every
    spectrum."""
    time = count * np.asarray(times, float)[cube.fibres.places.exposure - 1][:, None]
    photons = 1e-20 * 12 * cube.wavelength / (6.62607015e-27 * 2.99792458e18) * 2e4
    gain = photons * time * 0.25 * 0.5
    background = 100 * 12e-4 * np.pi * 2 * time * 0.25 + 72 / 3600 * time * 3
    return gain, background, count * 3 * 16


@pytest.mark.slow(5)
def test_each_exposure_has_a_time_of_its_own(tmp_path):
    """Variances of the spectra by numpy's CCD equation, the cube's by Shepard's weights squared, chi^2 of 1; equal
    times are one time; spectra that were exposed longer are saturated first."""
    times, galaxy = (900, 1800, 300), three_stars(1.0)[1]
    config = timed(tmp_path, ["15 min", "30 min", "5 min"])
    cube = Pipeline.from_config(config)(galaxy)
    fibres, places = cube.fibres, cube.fibres.places
    gain, background, read = electrons_of(cube, times)
    clear = places.transparency[:, None]
    expected = (np.asarray(fibres.truth) * clear * gain + background + read) / gain**2 / clear**2
    np.testing.assert_allclose(fibres.variance, expected, rtol=1e-6)
    square = (np.asarray(fibres.flux) - np.asarray(fibres.truth)) ** 2 / expected
    assert np.mean(square) == pytest.approx(1, abs=5 * np.sqrt(2 / square.size))
    for row, column in ((6, 6), (4, 9)):
        r = np.hypot(places.x - cube.footprint.centres()[0][column], places.y - cube.footprint.centres()[1][row])
        weight = np.where(r < 1.6, np.exp(-0.5 * (r / 0.7) ** 2), 0)
        share = weight / weight.sum() * 0.25 / np.pi
        np.testing.assert_allclose(cube.variance[row, column], share**2 @ expected, rtol=1e-6)
    assert (cube.meta["exposure_time"], cube.meta["exposure_times"]) == (1000, "900, 1800, 300")
    assert cube.meta.exposure_times(3) == [1800, 3600, 600]  # two at each dither
    one, same = (Pipeline.from_config(timed(tmp_path, own))(galaxy) for own in (900, [900, 900, 900]))
    np.testing.assert_allclose(one.flux, same.flux, rtol=1e-12)
    most = float(np.median((np.asarray(fibres.truth) * clear * gain + background) / 6))
    full = Pipeline.from_config(timed(tmp_path, times, systematics={"saturation": {"level": most}}))(galaxy).fibres
    held = np.asarray(fibres.flux) * clear * gain + background >= 6 * most
    assert 0.2 < held.mean() < 0.8
    np.testing.assert_array_equal(np.asarray(full.bits) > 0, held)


def test_times_that_are_not_one_for_each_dither_are_refused_in_words(tmp_path):
    with pytest.raises(ConfigError, match="one for each of the 3 exposures of the fibres "):
        Pipeline.from_config(timed(tmp_path, [60, 60]))
    with pytest.raises(ConfigError, match=r"time: expected .* got a list of 3; give e\.g\. time: 60 s, and count"):
        Pipeline.from_config(timed(tmp_path, [60, 60, 60], fibres=None))


SHARDED = {"data": 4, "wave": 2, "output": "sharded"}
DRIZZLE = {"cube": {"method": "drizzle", "drop": 0.5}}


@pytest.mark.parametrize(
    ("recipe", "psf", "devices"),
    [
        pytest.param({}, SEEING, ({"data": 8}, SHARDED), marks=pytest.mark.slow(10)),
        pytest.param(DRIZZLE, SEEING, (SHARDED,), marks=pytest.mark.slow(4)),
        pytest.param({}, {"kind": "gaussian", "fwhm": 1.5}, (SHARDED,), marks=pytest.mark.slow(4)),
    ],
)
def test_cubes_of_fibres_are_the_same_on_one_and_eight_devices(recipe, psf, devices):
    config, galaxy = run(fibres=FIBRES | recipe, psf=psf, noise={"signal_to_noise": 30}), few_stars(64, 0.4)
    one = Pipeline.from_config(config, mesh=make_mesh(1))(galaxy)
    for changes in devices:
        pipeline = Pipeline.from_config(load_config(config.model_dump(), {"devices": changes}))
        arguments = pipeline.arguments(galaxy)
        cube = put_together(pipeline.result(pipeline.compiled(*arguments)(*arguments)))
        for name in ("flux", "variance"):
            for own, expected in ((cube, one), (cube.fibres, one.fibres)):
                found, value = np.asarray(getattr(own, name)), np.asarray(getattr(expected, name))
                np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-12 * np.abs(value).max())
        found, expected = (own.covariance(5030).matrix.toarray() for own in (cube, one))
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * expected.max())


@pytest.mark.slow
def test_gradients_through_fibres_are_finite_differences():
    config = run(**{"engine.deposit": "tsc", "observation.inclination": 40, "observation.position_angle": 10})
    pipeline, galaxy = Pipeline.from_config(config), few_stars(20, 0.3)
    weights = jnp.asarray(np.random.default_rng(3).uniform(size=pipeline(galaxy).shape))
    numbers = {"instrument.psf.fwhm": 1.5, "instrument.psf.beta": 3.0, "observation.inclination": 40.0}

    @jax.jit
    def loss(values):
        return jnp.sum(weights * pipeline(galaxy, dict(zip(numbers, values, strict=True))).flux)

    start = jnp.array([*numbers.values()])
    slope = jax.grad(loss)(start)
    for number, step in enumerate((1e-4, 1e-4, 1e-3)):
        change = jnp.zeros(3).at[number].set(step)
        expected = (loss(start + change) - loss(start - change)) / (2 * step)
        np.testing.assert_allclose(slope[number], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "layout", "n_file"),
    [
        pytest.param("manga_fibres", "manga", 1, marks=pytest.mark.slow),
        pytest.param("sami_blue_fibres", "sami", 7, marks=pytest.mark.long),
    ],
)
def test_a_run_writes_the_cube_and_the_spectra_that_it_is_made_of(tmp_path, name, layout, n_file):
    small = {"fibres": {"bundle": "manga-19" if layout == "manga" else "sami-61", "rings": 2}, "fov": "12.5 arcsec"}
    config = {
        "galaxy": {"reader": "synthetic", "n_stars": 300},
        "observation": {"redshift": 0.02, "distance": "90 Mpc", "align": "none", "field_angle": 30, "dec": 20},
        "instrument": {"name": name, "wavelength": {"start": 4695, "stop": 4715}, **small},
        "engine": {"deposit": "nearest"},
        "noise": {"signal_to_noise": 20},
        "output": {"path": str(tmp_path / "cube.fits"), "layout": layout, "maps": False},
    }
    cube = rl.run(config, quiet=True)
    files = sorted(tmp_path.glob("cube_rss*.fits"))
    assert len(files) == n_file
    places, angle = cube.fibres.places, np.deg2rad(30)
    east = places.x * np.cos(angle) + places.y * np.sin(angle)
    with fits.open(files[0], checksum=True) as hdus:
        if layout == "manga":
            assert [hdu.name for hdu in hdus[1:4]] == ["FLUX", "IVAR", "MASK"]
            np.testing.assert_allclose(hdus["FLUX"].data, np.asarray(cube.fibres.flux) * 1e-3, rtol=1e-5)
            np.testing.assert_allclose(hdus["IVAR"].data, 1e6 / np.asarray(cube.fibres.variance), rtol=1e-5)
            np.testing.assert_allclose(hdus["XPOS"].data[:, 0], -east, rtol=1e-5, atol=1e-6)
            assert len(hdus["OBSINFO"].data) == 3
            with fits.open(tmp_path / "cube.fits") as cube_hdus:
                assert cube_hdus["GCORREL"].header["BBWAVE"] == 4702.5
        else:
            np.testing.assert_allclose(hdus[0].data, np.asarray(cube.fibres.flux)[:19] * 1e-4, rtol=1e-5)
            table = hdus["FIBRES_IFU"].data
            np.testing.assert_allclose(table["FIBPOS_X"] * 15.22e-3, east[:19], atol=1e-9)
            offset = (table["FIB_MRA"] - table["GRP_MRA"]) * np.cos(np.deg2rad(20)) * 3600
            offset = np.where(offset > 1e5, offset - 360 * 3600 * np.cos(np.deg2rad(20)), offset)
            np.testing.assert_allclose(offset, east[:19], atol=1e-3)
            with fits.open(tmp_path / "cube.fits", checksum=True) as cube_hdus:
                n_plane = cube_hdus["COVAR"].header["COVAR_N"]
                assert cube_hdus["COVAR"].data.shape == (n_plane, 5, 5, *cube.shape[:2])
                good = np.asarray(cube.mask)[:, :, 0] == 0
                np.testing.assert_allclose(
                    cube_hdus["COVAR"].data[:, 2, 2], np.broadcast_to(good, (n_plane, *good.shape))
                )
                flux, weight = cube_hdus[0].data, cube_hdus["WEIGHT"].data
                np.testing.assert_allclose(flux[:, good], np.asarray(cube.flux)[good].T * 1e-4, rtol=1e-5)
                collected = np.nansum(flux * weight, axis=(1, 2)) * 0.8**2 / 0.4**2
                np.testing.assert_allclose(collected, np.asarray(cube.fibres.flux).sum(axis=0) * 1e-4, rtol=1e-3)
    wavelength = cube.wavelength[0] if layout == "sami" else 4702.5  # of a plane of the file
    read, made = (own.covariance(wavelength).matrix for own in (rl.Cube.read(tmp_path / "cube.fits"), cube))
    np.testing.assert_allclose(read.toarray(), made.toarray(), rtol=1e-4, atol=1e-5 * made.diagonal().max())
    with pytest.raises(ValueError, match="got one of fibres that was read from a file without its correlations; of"):
        rl.Cube.read(cube.write(tmp_path / "again.fits")).covariance(4700)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": {"signal_to_noise": 3, "radius": 1}}, "noise.radius: expected null for an instrument with fibres"),
        ({"pipeline": "no_psf.yaml"}, "expected a pipeline with the stage 'psf' .the seeing in front of the fibres."),
        ({"instrument.fibres.dithers": [[300, 0]]}, "expected fibres near the field of 6.5 x 6.5 arcsec, got none"),
    ],
)
def test_runs_that_fibres_cannot_have_are_refused_in_words(tmp_path, changes, words):
    (tmp_path / "no_psf.yaml").write_text("paint: [stars]\ncube: [noise]\n")
    fibres = {**FIBRES, "seeing": None, "transparency": None}
    with pytest.raises(ConfigError, match=words):
        Pipeline.from_config(run(fibres=fibres, **changes))

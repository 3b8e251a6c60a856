"""Where a turned and displaced field looks: the model, the header and astropy's WCS agree, on the sky and in files."""

import dataclasses
import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.coordinates import SkyCoord
from astropy.io import fits
from astropy.wcs import WCS

from rubix_like import ConfigError, Cube, Galaxy, Pipeline, Stars, load_config, make_mosaic, run
from rubix_like.extend import Progress
from rubix_like.physics.rotations import field_rotation
from rubix_like.physics.tangent_plane import convergence, from_tangent_plane, to_tangent_plane
from rubix_like.runs.run import check_lines, prepare
from rubix_like.runs.run_files import check_output, output_files, with_addition

KPC_PER_ARCSEC = 100e3 * np.pi / 180 / 3600
"""At a distance of 100 Mpc and redshift 0."""

RA, DEC = 150.0, 40.0
REFERENCE = (RA, DEC)
FIELDS = [
    {"offset": [0, 0]},
    {"offset": [0.3, -0.2], "field_angle": 30},
    {"offset": ["-40 arcsec", "1 arcmin"], "field_angle": "-100 deg", "name": "far"},
]


def settings(**observation):
    return {
        "observation": {"redshift": 0, "distance": "100 Mpc", "align": "none", "ra": RA, "dec": DEC, **observation},
        "instrument": {
            "name": "muse",
            "fov": ["2 arcsec", "1.4 arcsec"],
            "wavelength": {"start": 5000, "stop": 5010},
            "psf": None,
            "lsf": None,
        },
        "engine": {"precision": "float64", "deposit": "cic", "method": "direct"},
        "devices": {"data": 1},
    }


def stars(*places, velocity=0.0):
    """Stars at (East, North) in arcsec."""
    count = len(places)
    position = np.zeros((count, 3))
    position[:, :2] = np.array(places) * KPC_PER_ARCSEC
    return Galaxy(
        stars=Stars(
            position=position,
            velocity=np.full((count, 3), velocity),
            initial_mass=np.full(count, 1e6),
            log_age=np.full(count, 9.5),
            metallicity=np.full(count, 0.02),
        )
    )


def centroid(cube):
    """(column, row) of the light."""
    image = np.asarray(cube.flux, dtype=np.float64).sum(axis=2)
    rows, columns = np.indices(image.shape)
    return (columns * image).sum() / image.sum(), (rows * image).sum() / image.sum()


def celestial(cube, tmp_path):
    """astropy's WCS of the written file."""
    return WCS(fits.getheader(cube.write(tmp_path / "cube.fits"), "DATA")).celestial


def sky_of(east, north):
    """(RA, Dec) of a place in the tangent plane of the reference, by astropy's own projection."""
    plane = WCS(naxis=2)
    plane.wcs.ctype, plane.wcs.crval, plane.wcs.crpix = ["RA---TAN", "DEC--TAN"], REFERENCE, [1, 1]
    plane.wcs.cdelt = [1 / 3600, 1 / 3600]
    return plane.wcs_pix2world(east, north, 0)


@pytest.mark.parametrize("reference", [(150.0, 40.0), (0.0, 0.0), (359.999, -75.0), (10.0, 89.99)])
@pytest.mark.parametrize("offset", [(0.0, 0.0), (10.0, 20.0), (-60.0, 33.0), (3000.0, -2000.0)])
def test_the_tangent_plane_against_astropy(reference, offset):
    point = from_tangent_plane(reference, offset)
    np.testing.assert_allclose(to_tangent_plane(reference, point), offset, atol=2e-8)
    plane = WCS(naxis=2)
    plane.wcs.ctype, plane.wcs.crval, plane.wcs.crpix = ["RA---TAN", "DEC--TAN"], reference, [1, 1]
    plane.wcs.cdelt = [1 / 3600, 1 / 3600]
    expected = SkyCoord(*plane.wcs_pix2world(*offset, 0), unit="deg")
    assert SkyCoord(*point, unit="deg").separation(expected).arcsec < 1e-8
    if offset != (0.0, 0.0):
        start = SkyCoord(*reference, unit="deg")
        turned = expected.position_angle(start).deg + 180 - start.position_angle(expected).deg
        assert abs(np.remainder(turned - convergence(reference, point) + 180, 360) - 180) < 1e-8


@pytest.mark.parametrize("angle", [0.0, 30.0, 90.0, -135.0])
def test_the_axes_of_a_turned_field(angle):
    """+y lies at the angle from North through East, +x (against the columns) a quarter turn further."""
    a = np.deg2rad(angle)
    rotation = np.asarray(field_rotation(jnp.asarray(angle)))
    np.testing.assert_allclose(rotation @ [np.sin(a), np.cos(a), 0], [0, 1, 0], atol=1e-15)
    np.testing.assert_allclose(rotation @ [np.cos(a), -np.sin(a), 0], [1, 0, 0], atol=1e-15)
    np.testing.assert_allclose(np.linalg.det(rotation), 1)


@pytest.fixture(scope="module")
def fields():
    """The pipeline of three fields, of any one star."""
    return Pipeline.from_config(settings(pointings=FIELDS), stars((0.1, 0.2)))


@pytest.mark.parametrize(
    ("angle", "offset"), [(None, (0.25, -0.15)), (30.0, (0.0, 0.0)), (117.0, (0.25, -0.15)), (-90.0, (0.25, -0.15))]
)
def test_a_star_is_on_the_spaxel_that_the_header_says(tmp_path, angle, offset):
    galaxy = stars((0.1, 0.2))
    cube = Pipeline.from_config(settings(field_angle=angle, offset=offset), galaxy)(galaxy)
    wcs, place = celestial(cube, tmp_path), sky_of(0.1 + offset[0], 0.2 + offset[1])
    np.testing.assert_allclose(centroid(cube), wcs.wcs_world2pix(*place, 0), atol=1e-6)
    np.testing.assert_allclose(wcs.wcs_pix2world(*centroid(cube), 0), place, atol=1e-9)


@pytest.mark.parametrize("number", range(3))
def test_a_star_in_a_pointing_is_on_the_spaxel_that_the_header_says(fields, tmp_path, number):
    """The star is moved to where each pointing looks; the plane of the far one is 72 arcsec from that of the model."""
    pointing = fields.pointings[number]
    place = (pointing.offset[0] + 0.13, pointing.offset[1] - 0.08)
    cube = fields.at(pointing)(stars(place))
    wcs = celestial(cube, tmp_path)
    np.testing.assert_allclose(centroid(cube), wcs.wcs_world2pix(*sky_of(*place), 0), atol=1e-6)
    np.testing.assert_allclose(wcs.wcs_pix2world(*centroid(cube), 0), sky_of(*place), atol=1e-9)


def test_near_a_pole_the_meridians_converge(tmp_path):
    """0.4 arcmin from the pole, 20 arcsec East: North has turned by some 45 degrees from one pointing to the other."""
    pointings = [{"offset": [0, 0]}, {"offset": [20, 0]}]
    galaxy = stars((20.2, 0.1))
    config = settings(pointings=pointings, dec=90 - 20 / 3600)
    pipeline = Pipeline.from_config(config, galaxy)
    cube = pipeline.observe_pointings(galaxy)[1]
    assert abs(cube.meta["field_angle"] - 45) < 0.1
    plane = WCS(naxis=2)
    plane.wcs.ctype, plane.wcs.crval = ["RA---TAN", "DEC--TAN"], (RA, 90 - 20 / 3600)
    plane.wcs.crpix, plane.wcs.cdelt = [1, 1], [1 / 3600, 1 / 3600]
    place = plane.wcs_pix2world(20.2, 0.1, 0)
    np.testing.assert_allclose(centroid(cube), celestial(cube, tmp_path).wcs_world2pix(*place, 0), atol=1e-6)


def test_without_an_angle_nothing_changes():
    """But for rounding: they are two programs."""
    galaxy = stars((0.1, 0.2), (-0.3, 0.4))
    plain, zero = (Pipeline.from_config(settings(**given), galaxy) for given in ({}, {"field_angle": 0}))
    assert plain.parameters.observation.field_angle is None
    assert float(zero.parameters.observation.field_angle) == 0.0
    np.testing.assert_allclose(plain(galaxy).flux, zero(galaxy).flux, rtol=1e-13)
    assert plain.pointings == ()
    assert plain(galaxy).meta["field_angle"] is None
    cards = {keyword: value for keyword, value, _ in plain(galaxy).wcs_cards}
    assert (cards["CD1_1"], cards["CD1_2"], cards["CD2_1"], cards["CD2_2"]) == (-0.2 / 3600, 0, 0, 0.2 / 3600)
    with pytest.raises(ConfigError, match=r"observation.pointings: expected a list"):
        plain.observe_pointings(galaxy)


@pytest.mark.slow
def test_gradient_of_the_angle():
    """Of a function of all pointings: the angle of those without one of their own, and the change of the others."""
    galaxy = stars((0.11, 0.23), (-0.31, 0.12))
    fields = [{"offset": [0.05, 0]}, {"offset": [0, 0.1], "field_angle": 50}]
    config = settings(field_angle=20, pointings=fields)
    config["engine"]["deposit"] = "tsc"
    pipeline = Pipeline.from_config(config, galaxy)

    def moment(angle):
        parameters = eqx.tree_at(lambda p: p.observation.field_angle, pipeline.parameters, angle)
        cubes = pipeline.observe_pointings(galaxy, parameters)
        return sum(jnp.sum(cube.flux[:4] ** 2) for cube in cubes)

    angle, step = jnp.asarray(20.0), 1e-4
    expected = (moment(angle + step) - moment(angle - step)) / (2 * step)
    assert abs(expected) > 0
    np.testing.assert_allclose(jax.grad(moment)(angle), expected, rtol=1e-6)


def test_noise_is_independent_and_the_same_again():
    galaxy = stars((0.1, 0.2))
    config = settings(pointings=[{"name": "a"}, {"name": "b"}])
    config["noise"] = {"signal_to_noise": 10, "seed": 3}
    pipeline = Pipeline.from_config(config, galaxy)
    first, second = (np.asarray(cube.flux) for cube in pipeline.observe_pointings(galaxy))
    again = [np.asarray(cube.flux) for cube in pipeline.observe_pointings(galaxy, key=jax.random.key(3))]
    np.testing.assert_array_equal(again, [first, second])
    sigma = np.sqrt(np.asarray(pipeline(galaxy).variance)[0, 0, 0])
    noises = np.stack([first, second, np.asarray(pipeline(galaxy).flux)])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        scatter = (noises[one] - noises[other]).std() / sigma
        np.testing.assert_allclose(scatter, np.sqrt(2), rtol=5 / np.sqrt(2 * noises[0].size))
    other_seed = pipeline.observe_pointings(galaxy, key=jax.random.key(4))
    assert not np.array_equal(other_seed[0].flux, first)


def test_a_pipeline_at_a_pointing_has_no_other(fields):
    """Its parameters are displaced already; those of a second pointing would add to them."""
    first, second, *_ = fields.pointings
    assert fields.at(first).pointings == ()
    with pytest.raises(ConfigError, match=r"pointing: expected one of pipeline.pointings \(it has none\)"):
        fields.at(first).at(second)
    with pytest.raises(ConfigError, match=r"pointings \(.*far.*\), got another"):
        fields.at(dataclasses.replace(first, offset=(7.0, 0.0)))


def test_header_of_a_pointing(fields, tmp_path):
    cube = fields.observe_pointings(stars((0.1, 0.2)))[2]
    path = cube.write(tmp_path / "cube.fits")
    header, data = fits.getheader(path), fits.getheader(path, "DATA")
    assert (header["POINTING"], header["POINTNAM"], header["POINTE"], header["POINTN"]) == (3, "far", -40.0, 60.0)
    assert (header["REFRA"], header["REFDEC"]) == REFERENCE
    np.testing.assert_allclose((header["RA"], header["DEC"]), sky_of(-40.0, 60.0), rtol=1e-12)
    assert (data["CRVAL1"], data["CRVAL2"]) == (header["RA"], header["DEC"])
    angle = np.deg2rad(header["FIELDPA"])
    assert abs(header["FIELDPA"] + 100) < 0.02
    step = 0.2 / 3600
    cd = [[data["CD1_1"], data["CD1_2"]], [data["CD2_1"], data["CD2_2"]]]
    np.testing.assert_allclose(cd, step * np.array([[-np.cos(angle), np.sin(angle)], [np.sin(angle), np.cos(angle)]]))
    np.testing.assert_allclose((data["CDELT1"], data["CDELT2"]), (-step, step), rtol=1e-12)
    assert not any(key.startswith("CROTA") for key in data)
    wcs = WCS(data)
    np.testing.assert_allclose(np.abs(wcs.celestial.proj_plane_pixel_scales()[0].to_value("arcsec")), 0.2)
    assert Cube.read(path).meta == cube.meta
    np.testing.assert_array_equal(Cube.read(path).wcs.wcs.cd, cube.wcs.wcs.cd)


@pytest.mark.parametrize(
    ("pointings", "words"),
    [
        ([], r"observation.pointings: expected at least 1 values, got 0"),
        ([{"offset": [0, "2 deg"]}], r"observation.pointings\[0\].offset\[1\]: expected a number <= 3600"),
        ([{"offset": "2 arcsec"}], r"observation.pointings\[0\].offset: expected a list"),
        ([{"name": "a/b"}], r"observation.pointings\[0\].name"),
        (
            [{"name": "A"}, {"name": "a"}],
            r"observation.pointings: expected a name of its own .* got 'A', 'a' more than",
        ),
        ([{"name": "2"}, {}], r"observation.pointings: expected a name of its own for each pointing, got '2' more"),
        ([{"field_angel": 3}], r"unknown key 'observation.pointings\[0\].field_angel'; did you mean 'field_angle'"),
    ],
)
def test_pointings_that_cannot_be_used(pointings, words):
    with pytest.raises(ConfigError, match=words):
        load_config(settings(pointings=pointings))


def test_settings_survive_yaml(tmp_path):
    config = load_config(
        settings(pointings=FIELDS, field_angle="0.5 rad", mosaic=False), overrides={"output.configuration": "again"}
    )
    (tmp_path / "again.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "again.yaml") == config


@pytest.mark.parametrize(
    ("path", "expected"),
    [("a/cube.fits", "a/cube_x.1.fits"), ("c.v2.fits.gz", "c.v2_x.1.fits.gz"), ("C.FITS.GZ", "C_x.1.FITS.GZ")],
)
def test_names_of_files(path, expected):
    assert with_addition(Path(path), "_x.1") == Path(expected)


def run_settings(noise=True, **observation):
    config = settings(**observation)
    config["galaxy"] = {"reader": "synthetic", "n_stars": 50}
    config["engine"] = {"deposit": "cic", "method": "direct"}
    config["noise"] = {"signal_to_noise": 10} if noise else None
    return config


NEAR = [{}, {"offset": [0.6, 0.4]}, {"offset": [-0.5, 0.1], "field_angle": 30, "name": "turned"}]


def names(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir())


def test_a_run_writes_every_pointing_and_the_mosaic(tmp_path):
    cube = run(run_settings(pointings=NEAR), "m.fits")
    assert names(tmp_path) == ["m.fits", "m_1.fits", "m_2.fits", "m_turned.fits"]
    own = [Cube.read(name) for name in ("m_1.fits", "m_2.fits", "m_turned.fits")]
    assert [part.meta["pointing"] for part in own] == [1, 2, 3]
    mosaic, written = make_mosaic(own), Cube.read("m.fits")
    np.testing.assert_array_equal(mosaic.flux, written.flux)
    np.testing.assert_array_equal(mosaic.variance, written.variance)
    np.testing.assert_array_equal(cube.mask, written.mask)
    assert fits.getheader("m.fits")["NPOINT"] == 3
    assert "POINTING" not in fits.getheader("m.fits")
    for part in output_files(load_config(run_settings(pointings=NEAR)), Path("m.fits")):
        size = part.path.stat().st_size
        assert size <= part.n_bytes < size + 250_000
        assert Cube.read(part.path).flux.shape == (part.n_y, part.n_x, part.n_wave)


@pytest.mark.slow
def test_without_a_mosaic_and_with_one_pointing(tmp_path):
    cube = run(run_settings(pointings=NEAR[1:], mosaic=False, noise=False), "m.fits.gz")
    assert names(tmp_path) == ["m_1.fits.gz", "m_turned.fits.gz"]
    np.testing.assert_array_equal(cube.flux, Cube.read("m_turned.fits.gz").flux)
    one = run(run_settings(pointings=NEAR[1:2]), "one.fits")
    assert names(tmp_path) == ["m_1.fits.gz", "m_turned.fits.gz", "one.fits"]
    assert (one.meta["pointing"], one.meta["pointing_east"]) == (1, 0.6)


def test_an_interrupted_run_leaves_the_finished_cubes(tmp_path, monkeypatch):
    """Stopped while the second pointing is being written, the first is there whole."""
    reserve = os.posix_fallocate
    begun = []

    def stop_at_the_second(*arguments):
        begun.append(arguments)
        reserve(*arguments)
        if len(begun) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "posix_fallocate", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(run_settings(pointings=NEAR), "m.fits")
    assert names(tmp_path) == ["m_1.fits"]
    assert Cube.read("m_1.fits").meta["pointing"] == 1


def test_what_check_says(tmp_path):
    config = load_config(run_settings(pointings=NEAR))
    prepared = prepare(config, Progress())
    lines = check_lines(prepared)
    pointings = [line for line in lines if line.startswith("pointing ")]
    assert len(pointings) == 3
    assert "turned: RA 149.999819, Dec +40.000028 deg (-0.5, +0.1 arcsec East, North), +y at 30 deg" in pointings[2]
    assert pointings[2].endswith("cube_turned.fits")
    (mosaic,) = (line for line in lines if line.startswith("mosaic"))
    files = output_files(config, Path("cube.fits"))
    assert f"{files[-1].n_y} x {files[-1].n_x} spaxels, North up; cube.fits" in mosaic
    assert any(line.startswith("files       4, ") for line in lines)
    single = prepare(load_config(run_settings()), Progress())
    assert prepared.need.host > single.need.host
    assert names(tmp_path) == []


def test_the_files_of_all_pointings_are_checked_before_the_run(tmp_path):
    (tmp_path / "cube_turned.fits").mkdir()
    with pytest.raises(IsADirectoryError, match="cube_turned"):
        check_output(load_config(run_settings(pointings=NEAR)), Path("cube.fits"))
    huge = run_settings(pointings=[{}, {"offset": ["1 deg", "1 deg"], "field_angle": 45}])
    huge["instrument"]["wavelength"] = {"start": 5000, "stop": 9000}
    with pytest.raises(OSError, match=r"cannot write cube_1.fits: about [\d.]+ TB are needed"):
        check_output(load_config(huge), Path("cube.fits"))

"""Products: settings, what is refused before a run, the file of maps; one sum over devices: `test_one_program`."""

from functools import partial
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from astropy.wcs import WCS
from command_line import main, page_titles
from independent import arcsec_per_kpc, luminosity_distance
from installed_package import write_dist_info
from scipy.spatial.transform import Rotation
from small import muse

from rubix_like import ConfigError, Galaxy, Maps, Pipeline, Stars, load_config, run
from rubix_like.extend import AbstractParticleMaps, MapLabel
from rubix_like.forward.model import paint_products
from rubix_like.forward.products import product as product_module

ON = {"filters": ["sdss2010-g"], "losvd": {"step": "40 km/s", "fit_particles": 3}}


def config(products=ON, *, psf=None, fov=(1.4, 1.0), deposit="nearest", method="direct", **sections):
    return load_config(
        {
            "galaxy": {"reader": "synthetic", "n_stars": 300, "seed": 2},
            "observation": {"redshift": 0.05, "inclination": 50, "position_angle": 20, "ra": 150.0, "dec": 2.0},
            "instrument": muse(5000, 5100, 5, fov=fov, psf=psf),
            "engine": {"method": method, "deposit": deposit},
            "products": products,
            "devices": {"data": 1},
            **sections,
        }
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run with maps: the cube, and the path of the maps."""
    path = tmp_path_factory.mktemp("run") / "disc.fits"
    return run(config(psf={"fwhm": 0.4}, pipeline="stellar_density"), output=path), path.with_name("disc_maps.fits")


def test_a_run_writes_its_maps_beside_the_cube(written):
    cube, path = written
    assert path.is_file()
    assert np.isfinite(np.asarray(cube.maps.after.h3)).any()
    assert np.asarray(cube.maps.after.light).shape == cube.flux.shape[:2] == (5, 7)


def test_maps_are_read_as_they_were_written(written):
    cube, path = written
    found, expected = Maps.read(path), cube.maps
    for name in ("filters", "band", "fit_particles", "pixel_scale", "meta", "fields"):
        assert getattr(found, name) == getattr(expected, name), name
    np.testing.assert_array_equal(found.velocity, expected.velocity)
    np.testing.assert_array_equal(found.mask, expected.mask)
    assert int(found.counters.n_particles) == 300
    for which in ("before", "after"):
        images, own_images = (images_of(getattr(maps, which)) for maps in (expected, found))
        assert list(images) == list(own_images)
        for name, image in images.items():
            own = own_images[name]
            np.testing.assert_array_equal(own, np.asarray(image, np.float32), err_msg=name)


def images_of(maps):
    """Every image of a set of maps by name, those of fields as well."""
    images = {
        name: image for name, image in vars(maps).items() if name not in ("fields", "lines") and image is not None
    }
    return images | dict(maps.fields)


def test_a_field_of_the_pipeline_has_a_map_of_its_own(written):
    """In the file, with unit and comment, among the pictures; convolved like the mass, over the area of a spaxel."""
    cube, path = written
    area = (0.2 / arcsec_per_kpc(0.05, luminosity_distance(0.05))) ** 2
    for images in (cube.maps.before, cube.maps.after):
        found, mass = (np.asarray(image) for image in (images.fields["surface_density"], images.mass))
        np.testing.assert_allclose(found, mass / area, rtol=1e-5, atol=1e-5 * found.max())
    header = fits.getheader(path, "FIELD_SURFACE_DENSITY")
    assert units.Unit(header["BUNIT"], format="fits") == units.Msun / units.kpc**2
    assert str(header["COMMENT"]) == "surface density of stars, mass now, after the PSF"
    assert "surface density of stars, mass now, after the PSF" in page_titles(cube, path)


def test_every_image_says_what_it_is(written):
    """Units that astropy reads as FITS units, celestial coordinates of the cube, the run in the first header."""
    cube, path = written
    with fits.open(path) as hdus:
        hdus.verify("exception")
        names = [hdu.name for hdu in hdus]
        images = [name for name in names[1:] if name not in ("DQ", "CONFIG")]
        assert len(set(images)) == len(images) == 2 * 22
        before = {name for name in images if name.endswith("_TRUE")}
        assert {f"{name}_TRUE" for name in set(images) - before} == before
        assert hdus[0].header["ORIGIN"] == "rubix_like"
        assert hdus[0].header["REDSHIFT"] == 0.05
        assert hdus["CONFIG"].data["KEY"][0] == "object"
        for name in images:
            header = hdus[name].header
            assert header["COMMENT"]
            units.Unit(header.get("BUNIT", ""), format="fits")
            sky = WCS(header).celestial
            assert sky.pixel_shape is None or sky.pixel_n_dim == 2
            np.testing.assert_allclose(
                sky.wcs_pix2world([[0, 0], [6, 4]], 0),
                cube.wcs.celestial.wcs_pix2world([[0, 0], [6, 4]], 0),
                atol=1e-12,
            )


def test_the_velocity_axis_is_that_of_the_bins(written):
    cube, path = written
    header = fits.getheader(path, "LOSVD")
    world = WCS(header).spectral
    velocity = world.wcs_pix2world(np.arange(header["NAXIS3"])[:, None], 0)[:, 0] / 1e3
    np.testing.assert_allclose(velocity, cube.maps.velocity, atol=1e-9)
    assert world.wcs.ctype[0] == "VELO"
    assert header["BUNIT"] == "10**-20 erg s-1 cm-2 km-1 s"
    per_velocity = units.Unit("1e-20 erg / (cm2 km)")
    assert units.Unit(header["BUNIT"], format="fits").to(per_velocity) == pytest.approx(1.0)


def test_another_file_is_not_a_file_of_maps(written, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such maps"):
        Maps.read(tmp_path / "none.fits")
    _, path = written
    with pytest.raises(ValueError, match="not a complete file of maps"):
        Maps.read(path.with_name("disc.fits"))
    (tmp_path / "half.fits").write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="not a complete file of maps"):
        Maps.read(tmp_path / "half.fits")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"products.filters": ["sdss2010-q"]}, ["products", "sdss2010-q", "curve"]),
        ({"products.filters": ["nonsense"]}, ["products", "nonsense", "sdss2010"]),
        ({"products.band": "sdss-r"}, ["products", "sdss-r"]),
        ({"products.filters": ["twomass-J"], "ssp.library": "CUT"}, ["within the SSP library", "twomass"]),
        ({"products.losvd.step": "0.001 km/s"}, ["products.losvd.step", "bins"]),
        ({"products.losvd.step": "-1 km/s"}, ["products.losvd.step", "> 0"]),
        ({"products.losvd.width": 3}, ["unknown key 'products.losvd.width'"]),
        ({"output.maps": "cube.png"}, ["output.maps", ".fits"]),
        ({"output.maps": "cube.fits"}, ["output.maps", "another file"]),
        ({"output.maps": "nowhere/maps.fits"}, ["nowhere", "does not exist"]),
    ],
)
def test_what_cannot_be_is_refused_with_its_name(changes, words, tmp_path):
    if changes.get("ssp.library") == "CUT":
        changes = {**changes, "ssp.library": optical_library(tmp_path)}
    with pytest.raises((ConfigError, FileNotFoundError)) as error:
        run(load_config(config(), overrides=changes))
    for word in words:
        assert word in str(error.value)
    assert not Path("cube.fits").exists()


def optical_library(folder):
    """A library of 4000 to 6000 Angstrom."""
    from rubix_like.extend import SSPTable, write_table  # noqa: PLC0415

    wavelength = np.linspace(4000.0, 6000.0, 201)
    table = SSPTable(
        name="optical", medium="vacuum", imf="none", solar_metallicity=0.02, citation="", licence="", source="a test",
        spectra=np.ones((2, 2, 201), np.float32), log_age=np.array([6.0, 10.0]), metallicity=np.array([0.001, 0.05]),
        rest_wavelength=wavelength, fwhm=np.full(201, 2.0),
    )  # fmt: skip
    write_table(table, folder / "optical.h5")
    return str(folder / "optical.h5")


def test_a_band_needs_speclite(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "speclite", None)
    with pytest.raises(ConfigError, match=r"pip install 'rubix-like\[filters\]'"):
        run(config({"band": "sdss2010-r"}))


@pytest.mark.usefixtures("jax_settings")
def test_the_command_line_writes_maps_without_a_distribution_or_filters(written, capsys):
    """It says where they are, and before a run what they will be."""
    Path("run.yaml").write_text(config(psf={"fwhm": 0.4}, pipeline="stellar_density").to_yaml())
    plain = ["--set", "products={losvd: null}", "output.maps=m.fits"]
    assert main(["run", "run.yaml", "--output", "cube.fits.gz", *plain]) == 0
    assert "Maps written to m.fits" in capsys.readouterr().out.splitlines()
    maps = Maps.read("m.fits")
    assert maps.velocity is None
    assert maps.after.losvd is None
    assert maps.after.h3 is None
    assert maps.after.flux.shape == (5, 7, 0)
    np.testing.assert_allclose(maps.after.mass, written[0].maps.after.mass, rtol=1e-6)
    assert main(["check", "run.yaml"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("maps ")]
    assert "images in sdss2010-g" in line


def small(method, products=ON, **settings):
    rng = np.random.default_rng(4)
    galaxy = Galaxy(
        stars=Stars(
            position=rng.normal(size=(40, 3)) * 0.2,
            velocity=rng.normal(size=(40, 3)) * 80,
            initial_mass=np.full(40, 1e7),
            log_age=rng.uniform(8, 10, 40),
            metallicity=np.full(40, 0.02),
            smoothing_length=rng.uniform(0.05, 0.4, 40),
        )
    )
    own = load_config(config(products, method=method, **settings), overrides={"galaxy": None})
    return Pipeline.from_config(own, galaxy), galaxy


def test_smoothed_stars_and_a_psf_that_changes_with_wavelength_conserve_what_is_summed():
    """Sums before and after are the same in a field that holds all of them; the PSF widens the light."""
    psf = {"fwhm": [0.3, 0.5], "wavelength": [4800, 5200]}
    pipeline, galaxy = small("direct", psf=psf, deposit="smoothed", fov=4.0)
    maps = jax.tree.map(np.asarray, pipeline(galaxy).maps)
    for name in ("number", "mass", "light", "losvd", "flux"):
        before, after = (getattr(images, name).sum(axis=(0, 1)) for images in (maps.before, maps.after))
        np.testing.assert_allclose(after, before, rtol=2e-3, atol=2e-3 * before.max())
    assert maps.before.number.sum() == pytest.approx(40, rel=1e-3)
    assert maps.after.light.max() < 0.9 * maps.before.light.max()


@pytest.mark.parametrize("differentiated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_few_spaxels_at_a_time_sum_the_same_in_less_memory(differentiated, monkeypatch):
    """The largest sums, of smoothed stars: layers x spaxels x velocities; and their gradient."""
    pipeline, galaxy = small("direct", {"losvd": {"step": "3 km/s"}}, deposit="smoothed", fov=3.0)
    arguments = jax.device_put(pipeline.arguments(galaxy), jax.devices()[0])
    tables, parameters, galaxy, _ = arguments

    def painted(stars):
        return paint_products(pipeline.plan, tables, parameters, {}, (stars, stars))[0].values

    def slope(stars):
        pattern = jnp.cos(jnp.arange(np.prod(shape), dtype="float32")).reshape(shape)
        return jax.grad(lambda stars: jnp.sum(painted(stars) * pattern))(stars)

    shape, found, memory = jax.eval_shape(painted, galaxy.stars).shape, [], []
    for room in (product_module._ROOM, 8 * int(np.prod(shape)) // 11):
        monkeypatch.setattr(product_module, "_ROOM", room)
        compiled = jax.jit(partial(slope if differentiated else painted)).lower(galaxy.stars).compile()
        found.append(compiled(galaxy.stars))
        memory.append(compiled.memory_analysis().temp_size_in_bytes)
    for own, expected in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(own, expected, rtol=2e-4, atol=1e-5 * np.abs(expected).max())
    if not differentiated:  # backwards nothing is summed
        assert memory[1] < memory[0] - 4 * np.prod(shape)


def test_every_pointing_has_maps_of_its_own(tmp_path):
    """Named after it, with its centre in the coordinates; the mosaic has none."""
    changes = {"observation.pointings": [{"name": "a"}, {"name": "b", "offset": [0.6, 0.0]}], "products.losvd": None}
    mosaic = run(load_config(config(), overrides=changes), output=tmp_path / "cube.fits")
    assert mosaic.maps is None
    paths = [tmp_path / f"cube_maps_{name}.fits" for name in "ab"]
    assert sorted(tmp_path.glob("*maps*")) == paths
    skies = [WCS(fits.getheader(path, "LIGHT")) for path in paths]
    east = (skies[1].wcs.crval[0] - skies[0].wcs.crval[0]) * 3600 * np.cos(np.deg2rad(2.0))
    assert east == pytest.approx(0.6, rel=1e-3)
    light = [Maps.read(path).before.light for path in paths]
    np.testing.assert_allclose(light[1][:, 3:], light[0][:, :-3], rtol=1e-5, atol=1e-5 * light[0].max())


class Height(AbstractParticleMaps):
    """Mean height of stars above the disc that they are aligned by."""

    rotation: np.ndarray
    kind: ClassVar = "stars"
    labels: ClassVar = (MapLabel("height", "kpc", "mean height above the disc"),)

    @classmethod
    def build(cls, setup, options):
        return cls(setup.alignment.rotation)

    def columns(self, particles, scene, parameters):
        z = particles.position @ jnp.asarray(self.rotation)[2]
        return {"mass": particles.initial_mass, "height": particles.initial_mass * jnp.abs(z)}

    def make(self, summed):
        return {"height": summed.mean(summed.images["height"], summed.images["mass"])}


def test_a_product_knows_the_axes_of_the_galaxy(tmp_path, monkeypatch):
    """A flat disc that lies askew in its file, with one star above it: its height, in the one spaxel that sees it."""
    write_dist_info(tmp_path, "height", "[rubix_like.products]\nheight = test_products:Height\n")
    monkeypatch.syspath_prepend(tmp_path)
    angle, count = np.linspace(0, 2 * np.pi, 400, endpoint=False), 400
    radius = 3 * np.sqrt((np.arange(count) + 1) / count)
    flat = np.stack([radius * np.cos(7 * angle), radius * np.sin(7 * angle), 0 * angle], axis=1)
    flat[0] = [0, 0, 0.5]
    askew = Rotation.from_euler("xyz", [50, 20, 70], degrees=True).as_matrix()
    ones = np.ones(count)
    stars = Stars(flat @ askew.T, 0 * flat, 1e6 * ones, 9.5 * ones, 0.02 * ones, mass=1e6 * ones)
    products = {"losvd": None, "extra": ["height"]}
    sections = {"observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0, "align": "stars"}}
    galaxy = Galaxy(stars=stars)
    height = Pipeline.from_config(config(products, **sections), galaxy)(galaxy).maps.before.fields["height"]
    assert np.nanmax(height) == pytest.approx(0.5, rel=0.02)  # one star of 1e6 Msun tilts the axes by little
    assert np.nanmedian(height) < 0.01

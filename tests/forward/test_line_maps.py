"""Maps of emission lines against numpy's sums from the formulae, the cube's own light, and what cannot be mapped."""

import dataclasses
import functools

import equinox as eqx
import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import units
from astropy.io import fits
from command_line import page_titles
from independent import C_KMS
from test_nebulae import DISTANCE, between, one_star, stars_of

import rubix_like as rl
from rubix_like import ConfigError, Galaxy, Gas, Maps, Pipeline, load_config, load_nebular, load_ssp, make_mesh
from rubix_like.extend import fixed, resolve
from rubix_like.nebular.ionising_light import leaked_share
from rubix_like.nebular.line_grid import photon_continuum, photon_lines

REDSHIFT, A_V, WIDTH, GAS_WIDTH, OFFSET, LUMINOSITY = 0.01, 0.7, 20.0, 30.0, 15.0, 2e-4
OWN = 6620.0
"""Angstrom, of a line that only the gas has, beside Ha."""
NAMES = ("Ha", "[N II] 6583", "6620")


def config_of(folder, paint="stars, nebulae, lines", lines=("Halpha", "NII6583", OWN), n_x=3, **changes):
    """A run that paints stars, nebulae of stars, and two lines of all gas, behind a screen."""
    pipeline = folder / "lines.yaml"
    pipeline.write_text(f"scene: [orient, point]\npaint: [{paint}]\ncube: [psf, dust]\n")
    return load_config(
        {
            "pipeline": str(pipeline),
            "nebular": {"escape_fraction": 0.1, "velocity_dispersion": WIDTH},
            "lines": {"wavelengths": ["Ha", OWN], "luminosity": LUMINOSITY, "velocity_dispersion": GAS_WIDTH},
            "dust": {"a_v": A_V, "curve": "calzetti"},
            "observation": {
                "redshift": REDSHIFT,
                "distance": f"{DISTANCE} Mpc",
                "align": "none",
                "velocity_offset": OFFSET,
            },
            "instrument": {
                "name": "muse",
                "fov": [n_x, 3],
                "pixel_scale": 1.0,
                "psf": None,
                "lsf": {"fwhm": 2.6, "includes_pixel": False},
                "wavelength": {"start": 6560, "stop": 6730, "step": 1.25, "medium": "air"},
            },
            "engine": {"method": "direct", "precision": "float64", "deposit": "nearest"},
            "products": {"losvd": None, "lines": lines},
        },
        changes,
    )


@functools.cache
def galaxy():
    """Stars, young ones among them, that turn one way, and gas that turns the other."""
    dice = np.random.default_rng(6)
    scale = independent.arcsec_per_kpc(REDSHIFT, DISTANCE)

    def moving(number, turn):
        sky = dice.integers(-1, 2, (number, 2)) + dice.uniform(-0.4, 0.4, (number, 2))
        motion = dice.normal(size=(number, 3)) * 10
        motion[:, 2] += turn * sky[:, 0]
        return np.column_stack([sky, dice.normal(size=number)]) / scale, motion

    ages = np.concatenate([dice.uniform(6.0, 7.3, 30), dice.uniform(8.0, 10.0, 30)])
    position, velocity = moving(60, 80.0)
    mass = dice.uniform(1e4, 1e5, 60) * np.where(ages > 8, 100, 1)
    stars = stars_of(ages, mass, 10 ** dice.uniform(-2.6, -1.6, 60), position, velocity)
    position, velocity = moving(40, -80.0)
    gas = Gas(position=position, velocity=velocity, mass=dice.uniform(1e9, 2e9, 40), metallicity=np.full(40, 0.02))
    return Galaxy(stars=stars, gas=gas)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    return Pipeline.from_config(config_of(tmp_path_factory.mktemp("one")), galaxy(), mesh=make_mesh(1))


LINE_UNITS = {
    "flux": "10**-20 erg s-1 cm-2",
    "intrinsic_flux": "10**-20 erg s-1 cm-2",
    "v": "km s-1",
    "sigma": "km s-1",
    "continuum": "10**-20 erg s-1 cm-2 Angstrom-1",
    "equivalent_width": "Angstrom",
}


@pytest.fixture(scope="module")
def cube(pipeline):
    return jax.tree.map(np.asarray, pipeline(galaxy()))


def beside(wavelength, spectrum, line):
    """Mean of a spectrum from 2000 to 4000 km/s on both sides of a line."""
    places = line * (1 + np.concatenate([np.linspace(-4000, -2000, 20001), np.linspace(2000, 4000, 20001)]) / C_KMS)
    return np.interp(places, wavelength, spectrum).mean()


def in_spaxels(particles, values):
    """Sums in 3 x 3 spaxels of numbers (particle,) or (particle, k)."""
    scale = independent.arcsec_per_kpc(REDSHIFT, DISTANCE)
    column, row = (np.rint(x).astype(int) for x in independent.spaxel_coordinates(particles, scale, 1.0, 3, 3))
    image = np.zeros((3, 3, *values.shape[1:]))
    np.add.at(image, (row, column), values)
    return image


@functools.cache
def expected():
    """The images of Q_H (1e49 per second) and of each line: its flux, v and sigma by sums over all particles, and the
    continuum; one star at a time, from the arrays of the library and of the refined table."""
    stars, gas = (independent.Particles.of(galaxy().stars), galaxy().gas)
    library, table = load_ssp("popstar"), fixed(load_nebular("mappings-hii"), log_pressure=5.8)
    ssp = independent.SpectrumTable(library.spectra, library.log_age, library.metallicity, library.rest_wavelength)
    lines, continuum = photon_lines(table), photon_continuum(table, 5.8, 3000.0, 9000.0)
    rest = {name: float(lines.wavelength[lines.lines.index(name)]) for name in NAMES[:2]} | {NAMES[2]: OWN}
    photons, light, level = np.zeros(60), np.zeros((60, 3)), np.zeros((60, 3))
    for star in range(60):
        spectrum = ssp.spectrum(stars.log_age[star], stars.metallicity[star])
        own = stars.mass[star] * np.array([beside(ssp.wavelength, spectrum, rest[name]) for name in NAMES])
        if stars.log_age[star] <= np.log10(3e7):
            photons[star] = stars.mass[star] * independent.ionising_photons(spectrum, ssp.wavelength) * 0.9 / 1e49
            oxygen = 8.76 + np.log10(stars.metallicity[star] / 0.0142)
            place = {"oxygen_abundance": oxygen, "log_u": -3.0}
            shining = between(lines, place)
            light[star, :2] = photons[star] * shining[[lines.lines.index(name) for name in NAMES[:2]]]
            smooth = between(continuum, place)
            own += photons[star] * np.array([beside(continuum.rest_wavelength, smooth, rest[name]) for name in NAMES])
        level[star] = own / (1 + REDSHIFT)
    of_gas = LUMINOSITY * gas.mass[:, None] * np.array([1.0, 0.0, 1.0])
    thermal = np.array([lines.thermal[lines.lines.index(name)] for name in NAMES[:2]] + [0.0])
    sums = []
    for particles, flux, width in ((stars, light, WIDTH**2 + thermal**2), (gas, of_gas, GAS_WIDTH**2)):
        v = particles.velocity[:, 2:] + OFFSET
        sums.append([in_spaxels(particles, flux * own) for own in (np.ones_like(v), v, v**2 + width)])
    total, first, second = (one + two for one, two in zip(*sums, strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        v, factor = first / total, independent.flux_of_one_lsun(DISTANCE)
        sigma = np.sqrt(second / total - v**2)
    return in_spaxels(stars, photons), total * factor, v, sigma, in_spaxels(stars, level) * factor, rest


def calzetti(wavelength):
    """A(lambda) / A(V) between 0.63 and 2.2 microns (Calzetti et al. 2000, ApJ 533, 682, eq. 4)."""
    return (2.659 * (-1.857 + 1.04 / (wavelength / 1e4)) + 4.05) / 4.05


def test_every_map_is_the_sum_over_its_particles(cube):
    """Of nebulae around stars, and of the gas that turns against them: line by line, with numpy and the formulae."""
    photons, flux, v, sigma, level, rest = expected()
    found = cube.maps.before
    np.testing.assert_allclose(found.ionising_photons, photons, rtol=1e-6)
    for number, name in enumerate(NAMES):
        line = found.lines[name]
        screen = 10 ** (-0.4 * A_V * calzetti(rest[name]))
        np.testing.assert_allclose(line.intrinsic_flux, flux[:, :, number], rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(line.flux, flux[:, :, number] * screen, rtol=1e-4, err_msg=name)
        np.testing.assert_allclose(line.v, v[:, :, number], rtol=1e-6, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(line.sigma, sigma[:, :, number], rtol=1e-6, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(line.continuum, level[:, :, number] * screen, rtol=1e-4, err_msg=name)
        width = flux[:, :, number] / level[:, :, number] / (1 + REDSHIFT)
        np.testing.assert_allclose(line.equivalent_width, width, rtol=1e-5, err_msg=name)
    columns = [np.nanmean(found.lines[name].v, axis=0) for name in NAMES[1:]]
    assert np.corrcoef(*columns)[0, 1] < -0.9
    assert cube.maps.after.lines["Ha"].flux == pytest.approx(found.lines["Ha"].flux)


def test_the_map_of_a_line_is_its_light_in_the_cube(pipeline, cube):
    """Without the screen, which is not the same in all bins of a line: the cube less one without the gas's lines."""

    def seen(luminosity):
        own = eqx.tree_at(lambda p: (p.lines.luminosity, p.dust.a_v), pipeline.parameters, (luminosity, jnp.zeros(())))
        return pipeline(galaxy(), own)

    bright, dark = seen(jnp.asarray(LUMINOSITY)), seen(jnp.zeros(()))
    light = (np.asarray(bright.flux - dark.flux) * np.diff(cube.wave_edges)).sum(axis=2)
    lines, without = bright.maps.before.lines, dark.maps.before.lines
    of_gas = lines["Ha"].flux + lines["6620"].flux - without["Ha"].flux
    np.testing.assert_allclose(light, of_gas, rtol=1e-6)
    assert float(np.abs(without["6620"].flux).max()) == 0
    assert np.isnan(without["6620"].v).all()
    np.testing.assert_array_equal(lines["Ha"].flux, lines["Ha"].intrinsic_flux)


def test_the_table_of_a_cube_is_the_sum_of_its_maps(cube):
    _, flux, v, sigma, level, rest = expected()
    table = rl.lines(cube)
    assert list(table["name"]) == list(NAMES)
    np.testing.assert_allclose(table["wavelength"], [rest[name] for name in NAMES])
    in_air = independent.vacuum_to_air(np.array([rest[name] for name in NAMES]) * (1 + REDSHIFT))
    np.testing.assert_allclose(table["observed_wavelength"], in_air, rtol=1e-8)
    total = flux.sum(axis=(0, 1))
    np.testing.assert_allclose(table["intrinsic_flux"], total, rtol=1e-6)
    np.testing.assert_allclose(table["flux"] / total, 10 ** (-0.4 * A_V * calzetti(table["wavelength"])), rtol=1e-4)
    mean = np.nansum(flux * v, axis=(0, 1)) / total
    np.testing.assert_allclose(table["velocity"], mean, rtol=1e-6)
    spread = np.sqrt(np.nansum(flux * (sigma**2 + v**2), axis=(0, 1)) / total - mean**2)
    np.testing.assert_allclose(table["velocity_dispersion"], spread, rtol=1e-6)
    width = total / level.sum(axis=(0, 1)) / (1 + REDSHIFT)
    np.testing.assert_allclose(table["equivalent_width"], width, rtol=1e-5)
    assert table["flux"].unit == units.Unit("1e-20 erg / (s cm2)")
    with pytest.raises(ConfigError, match=r"lines: expected a cube with the maps .* set products: \{lines: true\}"):
        rl.lines(dataclasses.replace(cube, maps=None))
    with pytest.raises(ConfigError, match=r"lines: expected maps of emission lines, got none"):
        rl.lines(dataclasses.replace(cube.maps, lines=()))


def test_maps_of_lines_are_in_the_file(cube, tmp_path):
    path = cube.maps.write(tmp_path / "maps.fits")
    found = Maps.read(path)
    assert found.lines == cube.maps.lines
    for which, suffix in (("after", ""), ("before", "_TRUE")):
        written, read = getattr(cube.maps, which), getattr(found, which)
        np.testing.assert_array_equal(read.ionising_photons, np.asarray(written.ionising_photons, np.float32))
        assert fits.getheader(path, f"IONISING_PHOTONS{suffix}")["BUNIT"] == "10**49 s-1"
        for field, unit in LINE_UNITS.items():
            image = np.asarray(getattr(written.lines["[N II] 6583"], field), np.float32)
            np.testing.assert_array_equal(getattr(read.lines["[N II] 6583"], field), image)
            header = fits.getheader(path, f"LINE_{field.upper()}_NII6583{suffix}")
            assert header["BUNIT"] == unit
            assert (header["LINE"], header["LINEWAVE"]) == ("[N II] 6583", 6585.273)
            units.Unit(unit, format="fits")
            assert len(header["COMMENT"]) == 1, "titles are not broken into two"
    header = fits.getheader(path)
    assert (header["NEBTABLE"], header["NEBSRC"], header["NEBLOGU"], header["NEBPK"]) == (
        "mappings-hii",
        "stars",
        -3.0,
        5.8,
    )
    assert "flux of Ha, after the PSF" in page_titles(cube, path)


def test_a_dot_stays_in_the_name_of_an_extension(cube, tmp_path):
    def renamed(maps):
        return dataclasses.replace(maps, lines={"[Ne II] 12.8um": maps.lines["[N II] 6583"]})

    before, after = renamed(cube.maps.before), renamed(cube.maps.after)
    (line,) = (line for line in cube.maps.lines if line.name == "[N II] 6583")
    lines = (line._replace(name="[Ne II] 12.8um"),)
    own = dataclasses.replace(cube.maps, before=before, after=after, lines=lines)
    assert fits.getdata(own.write(tmp_path / "maps.fits"), "LINE_FLUX_NEII12.8UM").shape == cube.footprint.shape


def planned(folder, **changes):
    """The pipeline of a run without nebulae, whose gas has three lines, of which the detector sees two."""
    changes = {"paint": "stars, lines", "lines.wavelengths": ["Hb", "Ha", OWN], "nebular": None} | changes
    return Pipeline.from_config(config_of(folder, **changes), galaxy(), mesh=make_mesh(1))


BETWEEN_LINES = {"instrument.wavelength.start": 5400, "instrument.wavelength.stop": 5440}
"""From 5346 to 5386 A at rest no table has a line."""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lines": ["Hb"]}, r"products\.lines: expected lines on the detector .*Hb at 4909\.\d+"),
        ({"lines": [6621.0]}, r"products\.lines: expected lines that the pipeline paints.*got '6621'"),
        (
            {"paint": "stars"},
            r"expected a pipeline that paints lines.*set pipeline: nebular .*or products.lines: false",
        ),
        ({"lines": []}, r"products\.lines"),
        (
            {"paint": "nebulae", "nebular": {}, "lines": True} | BETWEEN_LINES,
            r"products\.lines: expected lines of the nebular table on the detector \(5399.*got none; set products",
        ),
    ],
)
def test_lines_that_cannot_be_mapped_are_refused(tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        planned(tmp_path, **changes)


def test_unknown_lines_are_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigError, match=r"products\.lines: unknown line 'Halpa'; did you mean 'Ha'\?"):
        resolve(config_of(tmp_path, lines="Halpa"))


def test_lines_off_the_detector_are_said(tmp_path):
    """Of `true` those that the detector sees."""
    own = planned(tmp_path, lines=["Halpha", "Hb"])
    assert [line.name for line in own.frame.products.lines.lines] == ["Ha"]
    assert "products.lines: the detector does not see Hb: no maps" in own.notes
    assert [line.name for line in planned(tmp_path, lines=True).frame.products.lines.lines] == ["Ha", "6620"]


@pytest.mark.slow
def test_diffuse_gas_is_in_the_maps(tmp_path):
    """The photons of one star: a share where it is, the other where diffuse gas absorbs them; the gradient of a line's
    light and width is their difference."""
    diffuse = {"fraction": 0.3, "mean_free_path": "0.1 kpc", "log_u": -3.42, "velocity_dispersion": 60}
    config = config_of(tmp_path, "stars, nebulae", True, 9, **{"nebular.diffuse": diffuse})
    own = Pipeline.from_config(config, one_star(), mesh=make_mesh(1))
    assert [line.name for line in own.frame.products.lines.lines] == ["Ha", "[N II] 6583"]

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def light(log_u):
        changed = eqx.tree_at(lambda p: p.nebular.diffuse.log_u, own.parameters, log_u)
        maps = own(one_star(), changed).maps.before
        line = maps.lines["[N II] 6583"]
        return jnp.sum(line.flux[1] * line.sigma[1]), (maps.ionising_photons, maps.lines["Ha"].sigma)

    (_, (photons, sigma)), slope = light(jnp.asarray(-3.42))
    share = leaked_share(0.1 * independent.arcsec_per_kpc(REDSHIFT, DISTANCE), 9)
    middle = len(share) // 2
    shared = 0.3 * share[middle - 1 : middle + 2, middle - 4 : middle + 5]
    shared[1, 4] += 0.7
    np.testing.assert_allclose(photons / photons[1, 4], shared / shared[1, 4], rtol=1e-9)
    thermal = np.sqrt(1.380649e-23 * 1e4 / (1.008 * 1.66053907e-27)) / 1e3
    assert float(sigma[0, 0]) == pytest.approx(np.hypot(60, thermal), rel=1e-6)
    assert WIDTH < float(sigma[1, 4]) < 60
    above, below = (float(light(jnp.asarray(-3.42 + step))[0][0]) for step in (1e-4, -1e-4))
    assert float(slope) == pytest.approx((above - below) / 2e-4, rel=1e-4)

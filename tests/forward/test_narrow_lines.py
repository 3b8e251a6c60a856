"""The source `agn`: photons of an active nucleus against published numbers and sums by numpy; edges, gradients."""

import functools
from dataclasses import replace

import equinox as eqx
import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy import constants, units
from astropy.io import fits
from hlo import collectives
from nebular_files import write_nlr

import rubix_like as rl
from rubix_like import ConfigError, Cube, Galaxy, Gas, Pipeline, Stars, load_config, make_mesh
from rubix_like.extend import fixed
from rubix_like.nebular.ionising_light import photons_per_erg
from rubix_like.runs.run_summary import agn_lines, nebular_lines

DISTANCE = 10.0
AREA = 4 * np.pi * (DISTANCE * 3.0856775814913673e24) ** 2 * 1e-20
"""Luminosity (erg/s) of a flux of 1e-20 erg/s/cm2."""

HB_PER_PHOTON = 4.0868e-12 * 3.03e-14 / 2.59e-13
"""erg: h nu(Hb) alpha_eff / alpha_B at 1e4 K (Osterbrock & Ferland 2006, Astrophysics of Gaseous Nebulae, 4.2)."""

LUMINOSITY, COVERING, RADIUS = 43.5, 0.1, 0.25
PHOTONS = COVERING * 10**LUMINOSITY * photons_per_erg()
LINES = {"Ha": 6564.632, "Hb": 4862.691, "[O III] 5007": 5008.240, "[N II] 6583": 6585.273}
"""Vacuum wavelengths (Angstrom)."""

AGN = {"log_luminosity": LUMINOSITY, "covering_fraction": COVERING, "log_u": -2.92, "velocity_dispersion": "40 km/s"}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return str(write_nlr(tmp_path_factory.mktemp("narrow")))


@pytest.fixture(scope="module")
def pipelines(table, tmp_path_factory):
    """Builds each pipeline once: those of a point, or of gas within a radius, alone."""
    path = tmp_path_factory.mktemp("pipelines") / "own.yaml"
    path.write_text("scene: [orient, point]\npaint: [nebulae]\n")

    @functools.cache
    def build(radius=0.0, n_devices=1, **engine):
        config = config_of({"source": "agn", "continuum": False, "agn": AGN | {"table": table, "radius": radius}}, path)
        config = config.model_copy(update={"engine": config.engine.model_copy(update=engine)})
        return Pipeline.from_config(config, galaxy(), mesh=make_mesh(n_devices))

    return build


def config_of(nebular, pipeline="nebular", window=(4870, 6820, 1.5), **engine):
    start, stop, step = window
    return load_config(
        {
            "pipeline": str(pipeline),
            "nebular": nebular,
            "observation": {"redshift": 0.01, "distance": f"{DISTANCE} Mpc", "align": "none", "velocity_offset": 30},
            "instrument": {
                "name": "muse",
                "fov": [10, 10],
                "pixel_scale": 2.0,
                "psf": None,
                "lsf": {"fwhm": 2.6, "includes_pixel": False},
                "wavelength": {"start": start, "stop": stop, "step": step, "medium": "vacuum"},
            },
            "engine": {"method": "direct", "precision": "float64", **engine},
        }
    )


@functools.cache
def galaxy():
    """A few young stars, and gas of which a part is within the radius; a spaxel is 0.1 kpc wide."""
    dice = np.random.default_rng(5)
    stars = Stars(
        position=dice.normal(size=(7, 3)) * 0.05,
        velocity=dice.normal(size=(7, 3)) * 50,
        initial_mass=np.full(7, 1e5),
        log_age=np.array([6.3, 6.5, 6.8, 9.0, 9.5, 9.8, 10.0]),
        metallicity=np.full(7, 0.0142),
    )
    gas = Gas(
        position=dice.uniform(-0.23, 0.23, (40, 3)),
        velocity=dice.normal(size=(40, 3)) * 80,
        mass=dice.uniform(1e4, 1e5, 40),
        metallicity=10 ** dice.uniform(-1.847, -1.63, 40),
    )
    return Galaxy(stars=stars, gas=gas)


def flux_of(cube):
    return np.asarray(cube.flux, dtype=np.float64)


def line_fluxes(cube, name, half=9.0):
    """The flux of a line without continuum in each spaxel."""
    near = np.abs(cube.wavelength - LINES[name] * 1.01) < half
    return (flux_of(cube) * np.diff(cube.wave_edges))[:, :, near].sum(axis=2)


def changed(pipeline, **values):
    own = pipeline.parameters
    for name, value in values.items():
        own = eqx.tree_at(lambda p, name=name: getattr(p.nebular.agn, name), own, jnp.asarray(value))
    return own


def of_table(path, name, oxygen):
    """erg per photon in a line, straight between the two nodes of each axis in the logarithm."""
    own = rl.load_nebular(path)
    nodes = {"log_pressure": 7.0, "log_peak_energy": -1.35, "log_u": -2.92, "oxygen_abundance": oxygen}
    value = np.log(own.line(name))
    for axis in reversed(own.axes):
        low, high = own.axes[axis]
        share = np.clip((nodes[axis] - low) / (high - low), 0, 1)
        place = list(own.axes).index(axis)
        value = (1 - share) * np.take(value, 0, axis=place) + share * np.take(value, 1, axis=place)
    return np.exp(value)


def test_photons_per_erg_of_the_mean_quasar():
    """By a sum over the spectrum of Lusso et al. (2015), from 1 micron to 2 keV; the ionising light is half of all."""
    limit, h = constants.c / (911.753 * units.AA), constants.h
    first, last = (constants.c / (1 * units.um)).to_value("Hz"), (2 * units.keV / h).to_value("Hz")
    nu = np.geomspace(first, last, 400001)
    bend = (constants.c / (912 * units.AA)).to_value("Hz")
    light = np.where(nu < bend, (nu / bend) ** -0.61, (nu / bend) ** -1.70)
    ionising = np.where(nu > limit.to_value("Hz"), light, 0.0)
    expected = np.trapezoid(ionising / (h.to_value("erg s") * nu), nu) / np.trapezoid(light, nu)
    assert photons_per_erg() == pytest.approx(expected, rel=1e-4)
    assert photons_per_erg() == pytest.approx(9.2e9, rel=0.01)
    assert 0.4 < np.trapezoid(ionising, nu) / np.trapezoid(light, nu) < 0.5


def test_the_defaults_are_those_of_a_seyfert(table):
    """[O III] of a nucleus of 1e44 erg/s is within a factor of 2.5 of 1.34e41 erg/s (Stern & Laor 2012, MNRAS 426,
    2703: L / 1e43 = 4000 (L[O III] / 1e43)^1.39); all lines have less energy than the photons, 32 eV in the mean."""
    settings = config_of({"agn": {"log_luminosity": 44, "table": table}}).nebular.agn
    own = fixed(rl.load_nebular(table), log_pressure=settings.log_pressure, log_peak_energy=settings.log_peak_energy)
    own = fixed(own, log_u=settings.log_u, oxygen_abundance=8.76)
    found = settings.covering_fraction * 1e44 * photons_per_erg() * float(own.line("[O III] 5007"))
    assert abs(np.log10(found / (1e43 * (10 / 4000) ** (1 / 1.39)))) < np.log10(2.5)
    assert float(own.per_photon.sum()) < 32 * 1.602e-12


def test_a_point_shines_in_the_centre_at_rest(pipelines, table):
    """Hb by case B, line ratios as in the table, above the limit of star formation of Kewley et al. (2001, ApJ 556,
    121); the card and the summary say what shines."""
    pipeline = pipelines()
    cube = pipeline(galaxy())
    assert pipeline.plan.sources == ("agn",)
    h_beta = line_fluxes(cube, "Hb")
    assert h_beta[2, 2] * AREA == pytest.approx(PHOTONS * HB_PER_PHOTON, rel=0.02)
    light = flux_of(cube).sum(axis=2)
    assert light[2, 2] == pytest.approx(light.sum())
    found = {name: line_fluxes(cube, name)[2, 2] for name in ("Ha", "Hb", "[O III] 5007", "[N II] 6583")}
    for name, flux in found.items():
        assert flux * AREA / PHOTONS == pytest.approx(of_table(table, name, 8.76), rel=3e-3), name
    nitrogen, oxygen = np.log10(found["[N II] 6583"] / found["Ha"]), np.log10(found["[O III] 5007"] / found["Hb"])
    assert oxygen > 0.61 / (nitrogen - 0.47) + 1.19
    near = np.abs(cube.wavelength - LINES["Hb"] * 1.01) < 9
    weight, ratio = flux_of(cube)[2, 2, near], cube.wavelength[near] / LINES["Hb"] / 1.01
    assert np.log(np.average(ratio, weights=weight)) * independent.C_KMS == pytest.approx(30.0, abs=1.0)


def test_a_star_of_no_weight_does_not_stand_for_the_point(pipelines):
    """The first star is padding; the line is at the velocity of the galaxy, by the light-weighted mean of its bins."""
    stars = replace(galaxy().stars, weight=np.array([0.0, *np.ones(6)]))
    cube = pipelines()(Galaxy(stars))
    near = np.abs(cube.wavelength - LINES["Hb"] * 1.01) < 9
    centre = np.average(cube.wavelength[near], weights=flux_of(cube)[2, 2, near])
    velocity = np.log(centre / LINES["Hb"] / 1.01) * independent.C_KMS
    assert velocity == pytest.approx(30.0, abs=1.0)


def test_the_file_and_the_summary_name_the_nucleus(pipelines, table, tmp_path):
    cube = pipelines()(galaxy())
    again = Cube.read(cube.write(tmp_path / "cube.fits"))
    header = fits.getheader(tmp_path / "cube.fits")
    cards = {"AGNLUM": LUMINOSITY, "AGNCOVER": COVERING, "AGNRAD": 0.0, "AGNLOGU": -2.92, "AGNPK": 7.0}
    assert {name: header[name] for name in cards} == cards
    assert "NEBTABLE" not in header
    assert "ssp_library" not in cube.meta
    words = agn_lines(again)
    assert len(words) == 1
    assert words[0].startswith("Active nucleus: log L 43.5 erg/s, table")
    assert words[0].endswith(f"{PHOTONS:.3g} ionising photons per second are absorbed by a point in the centre")
    assert nebular_lines(again) == []
    assert not any("has no effect" in note for note in cube.meta.values() if isinstance(note, str))


def test_gas_shines_by_mass_over_distance_squared(pipelines, table):
    """Each particle in its spaxel, by numpy from the law; where it is and as fast as it is; no photon is lost."""
    gas, pipeline = galaxy().gas, pipelines(RADIUS)
    cube = pipeline(galaxy())
    distance = np.linalg.norm(gas.position, axis=1)
    inside = distance <= RADIUS
    assert 10 < inside.sum() < 40
    part = np.where(inside, gas.mass / (distance**2 + (0.1 * RADIUS) ** 2), 0.0)
    photons = PHOTONS * part / part.sum()
    oxygen = 8.76 + np.log10(gas.metallicity / 0.0142)
    light = photons * np.array([of_table(table, "Hb", own) for own in oxygen])
    scale = independent.arcsec_per_kpc(0.01, DISTANCE)
    column, row = (np.rint(x).astype(int) for x in independent.spaxel_coordinates(gas, scale, 2.0, 5, 5))
    expected = np.zeros((5, 5))
    np.add.at(expected, (row, column), light)
    np.testing.assert_allclose(line_fluxes(cube, "Hb") * AREA, expected, atol=5e-3 * expected.max())
    counters = cube.source_counters["agn"]
    assert int(counters.n_particles) == inside.sum()
    assert float(counters.amount_total) * 1e49 == pytest.approx(PHOTONS, rel=1e-12)
    assert f"absorbed by {inside.sum()} gas particles within 0.25 kpc" in agn_lines(cube)[0]


@pytest.mark.slow(3)
@pytest.mark.parametrize("radius", [0.0, RADIUS])
def test_oxygen_of_the_section_is_that_of_all_gas(radius, table, tmp_path):
    """`oxygen_abundance` beside a source of the user's own list, of gas without metals."""
    path = tmp_path / "own.yaml"
    path.write_text("scene: [orient, point]\npaint: [agn]\n")
    own = AGN | {"table": table, "oxygen_abundance": 8.9, "radius": radius}
    bare = Galaxy(galaxy().stars, replace(galaxy().gas, metallicity=None))
    pipeline = Pipeline.from_config(config_of({"continuum": False, "agn": own}, path), bare, mesh=make_mesh(1))
    cube = pipeline(bare)
    assert pipeline.plan.fields == ("nucleus",)
    ratio = line_fluxes(cube, "[N II] 6583").sum() * AREA / PHOTONS
    assert ratio == pytest.approx(of_table(table, "[N II] 6583", 8.9), rel=3e-3)


def test_no_gas_within_the_radius(pipelines, caplog):
    """It runs, and says so; a galaxy without gas is refused, with the remedy."""
    pipeline = pipelines(RADIUS)
    far = Galaxy(galaxy().stars, replace(galaxy().gas, position=galaxy().gas.position + 1.0))
    cube = pipeline(far)
    assert float(np.abs(flux_of(cube)).max()) == 0.0
    assert agn_lines(cube)[0].endswith("no photon is absorbed: no gas lies within 0.25 kpc of the centre")
    assert "no particles of source 'agn' shine" in caplog.text
    broken = replace(galaxy().gas, position=np.where(np.arange(40)[:, None] == 3, np.nan, galaxy().gas.position))
    with pytest.raises(ValueError, match=r"expected finite positions.*got 1 of \d+ particles of source 'agn'"):
        pipeline(Galaxy(galaxy().stars, broken))
    with pytest.raises(ValueError, match=r"galaxy\.gas: .*nebular\.agn\.radius.*set nebular\.agn\.radius: 0, a point"):
        pipeline(Galaxy(galaxy().stars))
    leaky = changed(pipeline, covering_fraction=0.0)
    assert float(np.abs(flux_of(pipeline(galaxy(), leaky))).max()) == 0.0


def test_what_no_nucleus_is_is_refused(table):
    with pytest.raises(ConfigError, match=r"nebular.*agn: expected the luminosity of the nucleus for source agn, got"):
        config_of({"source": "agn"})
    with pytest.raises(ConfigError, match=r"nebular\.source: .*got a list with agn; give source: stars"):
        config_of({"source": ["stars", "agn"]})
    with pytest.raises(ConfigError, match=r"nebular\.agn\.log_luminosity"):
        config_of({"agn": {}})
    with pytest.raises(ConfigError, match=r"diffuse: expected null for source agn"):
        config_of({"source": "agn", "agn": AGN, "diffuse": {}})
    with pytest.raises(ConfigError, match=r"resample_ages: expected null for source agn"):
        config_of({"source": "agn", "agn": AGN, "resample_ages": "10 Myr"})
    for own, words in (
        ({"table": "mappings-hii"}, r"nebular\.agn\.table: expected a table of active nuclei .*rubix-like nebular get"),
        ({"table": "nlrs"}, r"nebular\.agn\.table: .*unknown table 'nlrs'"),
        ({"table": table, "log_u": -1.0}, r"nebular\.agn\.log_u: expected -3 to -2\.6, the range of table"),
        ({"table": table, "oxygen_abundance": 7.0}, r"nebular\.agn\.oxygen_abundance: expected 8\.76 to 8\.99, the"),
        ({"table": table, "log_peak_energy": -0.1}, r"nebular\.agn\.log_peak_energy: .*expected -1\.5 to -1\.25"),
    ):
        with pytest.raises(ConfigError, match=words):
            Pipeline.from_config(config_of({"source": "agn", "agn": AGN | own}), galaxy(), mesh=make_mesh(1))
    config = config_of({"table": table})
    with pytest.raises(ConfigError, match=r"nebular\.table: expected a table of gas around stars, .* of active nuclei"):
        Pipeline.from_config(config, galaxy(), mesh=make_mesh(1))


@pytest.mark.slow(6)
def test_a_nucleus_beside_young_stars(table):
    """Stars, H II regions and the nucleus, lines and continuum: its light is what is missing without its photons."""
    window = (4870, 5090, 1.5)
    both = Pipeline.from_config(config_of({"agn": AGN | {"table": table}}, window=window), galaxy(), mesh=make_mesh(1))
    assert both.plan.sources == ("stars", "nebulae", "agn")
    without = both(galaxy(), changed(both, covering_fraction=0.0))
    added = flux_of(both(galaxy())) - flux_of(without)
    h_beta = PHOTONS * of_table(table, "Hb", 8.76) / AREA
    width = np.diff(without.wave_edges)
    assert added.sum(axis=(0, 1)) @ width > h_beta * (1 + 1.3 * 8)
    assert np.argmax(added[2, 2]) == np.argmin(np.abs(without.wavelength - LINES["[O III] 5007"] * 1.0101))
    beside = np.abs(without.wavelength - 4970) < 5
    level = added[2, 2, beside].mean() * AREA / PHOTONS
    assert 1.5e-16 < level < 5e-16  # of Hb, 4.8e-13 erg; the continuum has an equivalent width of 1000-3000 A


def test_between_lines_the_run_says_that_there_are_none(table):
    config = config_of({"source": "agn", "agn": AGN | {"table": table}}, window=(5400, 5440, 2.5))
    notes = Pipeline.from_config(config, galaxy(), mesh=make_mesh(1)).notes
    assert "nebular.agn: the detector sees no line of the table: its gas shines in the continuum alone" in notes


PARAMETERS = ("log_luminosity", "covering_fraction", "log_u", "velocity_dispersion")


def score(pipeline, own, parameters):
    """A sum over all voxels with weights of both signs."""
    flux = pipeline(own, parameters).flux
    return jnp.sum(flux * np.random.default_rng(3).normal(size=flux.shape))


@pytest.mark.slow(10)
def test_gradients_are_differences(pipelines):
    """Of the parameters, and of masses, on which every share depends."""
    pipeline = pipelines(RADIUS, method="basis", deposit="tsc")
    run = functools.partial(score, pipeline)
    slopes = jax.jit(jax.grad(run, argnums=(0, 1), allow_int=True))(galaxy(), pipeline.parameters)
    for name in PARAMETERS:
        value, step = float(getattr(pipeline.parameters.nebular.agn, name)), 1e-4
        high, low = (run(galaxy(), changed(pipeline, **{name: value + change})) for change in (step, -step))
        slope = float(getattr(slopes[1].nebular.agn, name))
        assert slope == pytest.approx(float(high - low) / (2 * step), rel=1e-4), name
    direction = np.random.default_rng(4).normal(size=40)
    for name, step, along in (("mass", 1.0, direction), ("position", 1e-6, direction[:, None] * np.ones(3))):
        values = getattr(galaxy().gas, name)
        moved = [replace(galaxy().gas, **{name: values + sign * step * along}) for sign in (1, -1)]
        high, low = (run(Galaxy(galaxy().stars, gas), pipeline.parameters) for gas in moved)
        slope = float(np.sum(np.asarray(getattr(slopes[0].gas, name)) * along))
        assert slope == pytest.approx(float(high - low) / (2 * step), rel=1e-4), name


@pytest.mark.parametrize(
    "radius", [pytest.param(0.0, marks=pytest.mark.long), pytest.param(RADIUS, marks=pytest.mark.long)]
)
def test_devices_and_slabs_give_the_same(pipelines, radius):
    """One sum for the shares, one for the light."""
    one, eight = pipelines(radius), pipelines(radius, n_devices=8)
    whole = one(galaxy())
    again = eight(galaxy())
    np.testing.assert_allclose(flux_of(again), flux_of(whole), atol=1e-12 * flux_of(whole).max())
    for name in ("n_particles", "amount_total"):
        found, expected = (float(getattr(cube.source_counters["agn"], name)) for cube in (again, whole))
        assert found == pytest.approx(expected, rel=1e-12)
    assert collectives(eight.lower(galaxy()).compile().as_text()) == [("all-reduce", "ENTRY")] * 2
    slabs = [jax.tree.map(lambda leaf, half=half: leaf[half::2], galaxy()) for half in (0, 1)]
    cube = one.observe_slabs(slabs)
    np.testing.assert_allclose(flux_of(cube), flux_of(whole), atol=1e-12 * flux_of(whole).max())
    assert int(cube.source_counters["agn"].n_particles) == int(whole.source_counters["agn"].n_particles)

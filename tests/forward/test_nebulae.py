"""The source `nebulae`: photons, lines and continuum against published numbers and a sum by numpy; edges, gradients."""

import functools
from dataclasses import replace

import equinox as eqx
import independent
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from astropy.io import fits
from hlo import collectives
from observing import write_library
from scipy.special import ndtr
from ssp_files.cached import cached_library

from rubix_like import ConfigError, Cube, Galaxy, Gas, Pipeline, Stars, load_config, load_nebular, load_ssp, make_mesh
from rubix_like.engine.painter import PainterPair
from rubix_like.extend import fixed, make_setup, resolve, take_census
from rubix_like.forward.sources.nebulae import OxygenScale
from rubix_like.nebular.ionising_light import leaked_share
from rubix_like.nebular.line_grid import photon_continuum, photon_lines
from rubix_like.runs.run_summary import nebular_lines

DISTANCE = 10.0
MPC = 3.0856775814913673e24
AREA = 4 * np.pi * (DISTANCE * MPC) ** 2 * 1e-20
"""Luminosity (erg/s) of a flux of 1e-20 erg/s/cm2."""

ALPHA_OF_CASE_B = {5000.0: 1.473e-12, 7500.0: 1.409e-12, 10000.0: 1.365e-12}
"""K -> erg of Ha per ionising photon in case B: Storey & Hummer 1995, MNRAS 272, 41, at 100 electrons per cm^3."""

N_STARS = 60
LSF = {"fwhm": 2.6, "includes_pixel": False}
OBSERVATION = {"redshift": 0.01, "distance": f"{DISTANCE} Mpc", "align": "none"}


def config_of(nebular=None, window=(4870, 5090, 1.25), n_x=3, folder=None, paint=None, lsf=LSF, psf=None, **engine):
    """A run on arrays through the pipeline `nebular`, or one that paints only some sources."""
    pipeline = "nebular"
    if paint is not None:
        pipeline = str(folder / "own.yaml")
        (folder / "own.yaml").write_text(f"scene: [orient, point]\npaint: [{paint}]\n")
    start, stop, step = window
    return load_config(
        {
            "pipeline": pipeline,
            "nebular": nebular,
            "observation": OBSERVATION,
            "instrument": {
                "name": "muse",
                "fov": [n_x, 3],
                "pixel_scale": 1.0,
                "psf": psf,
                "lsf": lsf,
                "wavelength": {"start": start, "stop": stop, "step": step, "medium": "vacuum"},
            },
            "engine": {"method": "direct", "precision": "float64", **engine},
        }
    )


def stars_of(log_age, mass=1e6, metallicity=0.02, position=None, velocity=None):
    n = len(log_age)
    still = np.zeros((n, 3))
    return Stars(
        position=still if position is None else position,
        velocity=still if velocity is None else velocity,
        initial_mass=np.broadcast_to(np.float64(mass), n).copy(),
        log_age=np.asarray(log_age, dtype=np.float64),
        metallicity=np.broadcast_to(np.float64(metallicity), n).copy(),
    )


@functools.cache
def galaxy():
    """Stars of 1 Myr to 10 Gyr, half of them younger than 30 Myr, a few beyond the table, and gas of which half forms
    stars; all in the field of 3 x 3 spaxels, away from their borders."""
    dice = np.random.default_rng(8)
    scale = independent.arcsec_per_kpc(0.01, DISTANCE)

    def places(n):
        spaxels = dice.integers(-1, 2, (n, 2)) + dice.uniform(-0.4, 0.4, (n, 2))
        return np.column_stack([spaxels, dice.normal(size=n)]) / scale

    ages = np.concatenate([dice.uniform(6.0, 7.4, N_STARS // 2), dice.uniform(8.0, 10.0, N_STARS // 2)])
    stars = stars_of(
        ages,
        dice.uniform(1e4, 1e5, N_STARS) * np.where(ages > 8, 100, 1),
        10 ** dice.uniform(-3.0, -1.6, N_STARS),
        places(N_STARS),
        dice.normal(size=(N_STARS, 3)) * 80,
    )
    gas = Gas(
        position=places(20),
        velocity=dice.normal(size=(20, 3)) * 40,
        mass=np.full(20, 1e5),
        metallicity=10 ** dice.uniform(-2.3, -1.6, 20),
        star_formation_rate=np.where(np.arange(20) < 10, dice.uniform(0.01, 0.1, 20), 0.0),
        temperature=np.full(20, 1e6),
        electron_abundance=np.full(20, 0.1),
    )
    return Galaxy(stars=stars, gas=gas)


def pipeline_of(config, own=None, n_devices=1):
    return Pipeline.from_config(config, own or galaxy(), mesh=make_mesh(n_devices))


def flux_of(cube):
    return np.asarray(cube.flux, dtype=np.float64)


def flux_near(cube, wavelength, half=6.0, redshift=0.01):
    """Flux of a line without continuum, all spaxels together."""
    near = np.abs(cube.wavelength - wavelength * (1 + redshift)) < half
    return (flux_of(cube).sum(axis=(0, 1)) * np.diff(cube.wave_edges))[near].sum()


def alpha_of_case_b(temperature):
    return np.interp(temperature, list(ALPHA_OF_CASE_B), list(ALPHA_OF_CASE_B.values()))


def constant_rate(years=1e8, n=400):
    """1 Msun/yr for so long, as stars at the middles of steps of their age."""
    edges = np.append(0.0, np.geomspace(1e5, years, n))
    return Galaxy(stars=stars_of(np.log10(0.5 * (edges[1:] + edges[:-1])), np.diff(edges)))


def forming_gas(**others):
    return Gas(
        np.zeros((1, 3)), np.zeros((1, 3)), np.ones(1), np.full(1, 0.02), star_formation_rate=np.ones(1), **others
    )


@pytest.mark.parametrize("source", ["stars", "star_forming_gas"])
@pytest.mark.parametrize(
    ("library", "published"),
    [("popstar", -41.27), pytest.param("bc03-miles", -41.435, marks=pytest.mark.slow(6))],
)
def test_ha_of_a_constant_rate(tmp_path, source, library, published):
    """log SFR / L(Ha) at 1e4 K: Kennicutt & Evans 2012, ARA&A 50, 531; of BC03-MILES by a sum over its spectra.

    The table has its own temperature, and so more Ha per photon, as Storey & Hummer (1995) have.
    """
    rate = constant_rate()
    own = rate if source == "stars" else Galaxy(stars=rate.stars, gas=forming_gas())
    config = config_of(
        {"source": source, "oldest": "100 Myr", "continuum": False}, (6600, 6660, 0.5), folder=tmp_path, paint="nebulae"
    )
    if library != "popstar" and not cached_library(library).is_file():
        pytest.skip(f"{library} is not in the cache")
    config = config.model_copy(update={"ssp": config.ssp.model_copy(update={"library": library})})
    cube = pipeline_of(config, own)(own)
    luminosity = flux_near(cube, HA) * AREA
    table = fixed(load_nebular("mappings-hii"), log_pressure=5.8, log_u=-3.0)
    place = 8.76 + np.log10(0.02 / 0.0142)
    h_alpha, temperature = (
        np.interp(place, table.axes["oxygen_abundance"], own) for own in (table.line("Ha"), table.temperature)
    )
    assert h_alpha == pytest.approx(alpha_of_case_b(temperature), rel=0.03)
    photons = luminosity / h_alpha
    assert -np.log10(1.37e-12 * photons) == pytest.approx(published, abs=np.log10(1.03))


@pytest.mark.slow(6)
def test_equivalent_widths_of_young_stars():
    """EW(Ha) of SSPs of 1, 3, 5, 10 and 20 Myr (Angstrom), the nebular continuum included."""
    ages, expected = np.array([1e6, 3e6, 5e6, 1e7, 2e7]), [2630, 1070, 480, 11, 1.3]
    scale = independent.arcsec_per_kpc(0.01, DISTANCE)
    position = np.column_stack([(2 - np.arange(5)) / scale, np.zeros(5), np.zeros(5)])
    own = Galaxy(stars=stars_of(np.log10(ages), position=position))
    cube = pipeline_of(config_of(window=(6560, 6730, 2.0), n_x=5), own)(own)
    bare = pipeline_of(config_of({"escape_fraction": 1.0}, window=(6560, 6730, 2.0), n_x=5), own)(own)
    flux, wavelength = flux_of(cube)[1], cube.wavelength
    lines = flux - flux_of(bare)[1]
    away = (np.abs(wavelength - 6585) < 15) | (np.abs(wavelength - 6710) < 15)
    near = np.abs(wavelength - HA * 1.01) < 8
    level = flux[:, away].mean(axis=1)
    nebular = lines[:, away].mean(axis=1)
    found = ((lines[:, near] - nebular[:, None]).sum(axis=1) * 2.0) / level / 1.01
    np.testing.assert_allclose(found, expected, rtol=0.1)


SETTINGS = {"escape_fraction": 0.1, "dust_fraction": 0.2, "log_u": {"at_solar": -3.1, "slope": -0.4}}
DISPERSION, OLDEST, LOG_PRESSURE = 20.0, 3e7, 5.8


def sum_by_numpy(config, stars):
    """Stars, lines and continuum of every star, one at a time, in float64: spectra, lines and photons from the arrays
    of the library and of the refined table, profiles by the error function, bins by their edges."""
    bins = config.instrument.wavelength
    edges = independent.linear_edges(bins.start, bins.stop, bins.step)
    particles = independent.Particles.of(stars)
    library = load_ssp("popstar")
    ssp = independent.SpectrumTable(library.spectra, library.log_age, library.metallicity, library.rest_wavelength)
    table = fixed(load_nebular("mappings-hii"), log_pressure=LOG_PRESSURE)
    lines, continuum = photon_lines(table), photon_continuum(table, LOG_PRESSURE, 3000.0, 7000.0)
    smooth = independent.SpectrumTable(np.zeros((2, 2, 2)), [0, 1], [1, 2], continuum.rest_wavelength)
    scale = independent.arcsec_per_kpc(0.01, DISTANCE)
    column, row = (np.rint(x).astype(int) for x in independent.spaxel_coordinates(particles, scale, 1.0, 3, 3))
    factor = independent.flux_of_one_lsun(DISTANCE)
    cube = np.zeros((3, 3, len(edges) - 1))
    for star in range(len(particles.mass)):
        doppler = 1.01 * np.exp(particles.velocity[star, 2] / independent.C_KMS)
        spectrum = ssp.spectrum(particles.log_age[star], particles.metallicity[star])
        own = particles.mass[star] * ssp.bin_light(spectrum, edges, doppler)
        photons = particles.mass[star] * independent.ionising_photons(spectrum, ssp.wavelength) * 0.9 * 0.8 / 1e49
        if particles.log_age[star] <= np.log10(OLDEST):
            oxygen = 8.76 + np.log10(particles.metallicity[star] / 0.0142)
            place = {"oxygen_abundance": oxygen, "log_u": -3.1 - 0.4 * (oxygen - 8.76)}
            own += photons * smooth.bin_light(between(continuum, place), edges, doppler)
            own += photons * line_light(lines, between(lines, place), edges, doppler)
        cube[row[star], column[star]] += own * factor
    return cube / np.diff(edges)


def between(templates, place):
    """A bilinear look-up, limited to the ends of the axes."""
    axes = dict(zip(templates.axes.names, templates.axes.nodes, strict=True))
    return independent.look_up(axes, templates.table.reshape(*(len(nodes) for nodes in axes.values()), -1), place)


def line_light(lines, luminosity, edges, doppler):
    """Gaussians of thermal motion and dispersion, between the edges."""
    centre = lines.wavelength * doppler
    sigma = np.sqrt(lines.thermal**2 + DISPERSION**2) / independent.C_KMS * centre
    return independent.line_light(luminosity, centre, sigma, edges)


@pytest.mark.slow(9)
@pytest.mark.parametrize(
    ("engine", "total", "spaxels"),
    [({}, 1e-6, 1e-6), ({"method": "basis", "precision": "float32"}, 1e-4, 1e-3)],
    ids=["direct", "basis"],
)
def test_the_cube_is_the_sum_of_stars_lines_and_continuum(engine, total, spaxels):
    """Without PSF and line spread: by `direct` in 64 bits, and as a run computes it."""
    config = config_of(SETTINGS, lsf=None, **engine)
    expected = sum_by_numpy(config, galaxy().stars)
    found = flux_of(pipeline_of(config)(galaxy()))
    assert found.sum() == pytest.approx(expected.sum(), rel=total)
    np.testing.assert_allclose(found, expected, atol=spaxels * expected.max())


HA, HB = 6564.632, 4862.691
"""Vacuum wavelengths (Angstrom)."""

BETWEEN_LINES = (5400, 5440, 2.5)
"""From 5346 to 5386 A at rest no table has a line."""


def setup_of(config, own):
    resolved = resolve(config)
    return make_setup(config, resolved, take_census(config, resolved, [own]))


def test_between_lines_the_continuum_alone_is_planned():
    setup = setup_of(config_of(window=BETWEEN_LINES), galaxy())
    assert setup.sources["nebulae"].templates.name == "the nebular continuum"
    with pytest.raises(ConfigError, match=r"instrument\.wavelength: expected the detector to see one of the nebular"):
        setup_of(config_of({"continuum": False}, BETWEEN_LINES), galaxy())


@pytest.mark.slow(4)
def test_between_lines_the_gas_shines_in_its_continuum_alone():
    three = Galaxy(jax.tree.map(lambda leaf: leaf[:3], galaxy().stars))
    config = config_of(SETTINGS, BETWEEN_LINES, lsf=None)
    pipeline = pipeline_of(config, three)
    assert any("no line of the table: its gas shines in the continuum alone" in note for note in pipeline.notes)
    expected = sum_by_numpy(config, three.stars)
    np.testing.assert_allclose(flux_of(pipeline(three)), expected, atol=1e-6 * expected.max())
    leaky = pipeline_of(config_of({"diffuse": {}}, BETWEEN_LINES), three)
    assert isinstance(leaky.tables.paint[1].painter_for(leaky.parameters), PainterPair)


def test_velocities_are_planned_for_the_stars_that_ionise():
    """Old stars are three times as fast; what is planned for young ones is that of numpy."""
    young = galaxy().stars.log_age <= 7.47
    velocity = np.where(young[:, None], 1.0, 3.0) * galaxy().stars.velocity
    own = Galaxy(replace(galaxy().stars, velocity=velocity))
    config = config_of(method="basis")
    setup = setup_of(config, own)
    fast = setup.particles["young_stars"]
    assert fast.number == young.sum() == N_STARS // 2
    assert fast.fastest == pytest.approx(np.linalg.norm(velocity[young], axis=1).max())
    assert setup.sources["nebulae"].motion.limit < 0.6 * setup.sources["stars"].motion.limit
    old = Galaxy(jax.tree.map(lambda leaf: leaf[~young], own.stars))
    setup = setup_of(config, old)
    assert setup.particles["young_stars"].fastest == 0.0


@functools.cache
def smooth_pipeline():
    """Shared among spaxels, so that positions have gradients; lines 5 bins wide; some chunks have no young star."""
    return pipeline_of(config_of(SETTINGS, deposit="tsc", method="basis", chunk=8))


def score(own, parameters):
    """A sum over all voxels with weights of both signs."""
    flux = smooth_pipeline()(own, parameters).flux
    weights = np.random.default_rng(3).normal(size=flux.shape)
    return jnp.sum(flux * weights)


PARAMETERS = {
    "escape_fraction": lambda own: own.escape_fraction,
    "dust_fraction": lambda own: own.dust_fraction,
    "log_u": lambda own: own.log_u.at_solar,
    "slope": lambda own: own.log_u.slope,
    "velocity_dispersion": lambda own: own.velocity_dispersion,
}


@functools.cache
def slopes():
    return jax.jit(jax.grad(score, argnums=(0, 1), allow_int=True))(galaxy(), smooth_pipeline().parameters)


@pytest.mark.slow(10)
@pytest.mark.parametrize("name", PARAMETERS)
def test_gradients_of_parameters_are_differences(name):
    def leaf(parameters):
        return PARAMETERS[name](parameters.nebular)

    own, step = smooth_pipeline().parameters, 1e-4
    moved = [eqx.tree_at(leaf, own, leaf(own) + change) for change in (step, -step)]
    difference = (score(galaxy(), moved[0]) - score(galaxy(), moved[1])) / (2 * step)
    assert float(leaf(slopes()[1])) == pytest.approx(float(difference), rel=1e-4)


@pytest.mark.slow(5)
@pytest.mark.parametrize(("field", "step"), [("position", 1e-6), ("log_age", 1e-6), ("metallicity", 1e-8)])
def test_gradients_of_young_stars_are_differences(field, step):
    """The sum over all stars of what each one adds in a given direction."""
    stars = galaxy().stars
    values = getattr(stars, field)
    young = (np.asarray(stars.log_age) < 7.4).reshape(-1, *(1,) * (values.ndim - 1))
    direction = np.random.default_rng(5).normal(size=values.shape) * young
    moved = [
        replace(galaxy(), stars=replace(stars, **{field: values + change * step * direction})) for change in (1, -1)
    ]
    parameters = smooth_pipeline().parameters
    difference = (score(moved[0], parameters) - score(moved[1], parameters)) / (2 * step)
    slope = float(np.sum(np.asarray(getattr(slopes()[0].stars, field)) * direction))
    assert slope == pytest.approx(float(difference), rel=1e-4)


@pytest.mark.slow(10)
@pytest.mark.parametrize("source", ["stars", "star_forming_gas"])
def test_devices_give_the_same_with_one_sum(source):
    """Of several chunks on each device, of which some have nothing that shines."""
    config = config_of({"source": source}, method="basis", chunk=2)
    one, eight = (pipeline_of(config, n_devices=n) for n in (1, 8))
    whole = flux_of(one(galaxy()))
    np.testing.assert_allclose(flux_of(eight(galaxy())), whole, atol=1e-12 * whole.max())
    assert collectives(eight.lower(galaxy()).compile().as_text()) == [("all-reduce", "ENTRY")]


@pytest.mark.slow(5)
def test_slabs_of_a_galaxy_without_gas_are_dark():
    whole = galaxy().stars
    slabs = [Galaxy(jax.tree.map(lambda leaf, half=half: leaf[half::2], whole)) for half in (0, 1)]
    cube = gas_pipeline().observe_slabs(slabs)
    np.testing.assert_allclose(flux_of(cube), flux_of(gas_pipeline()(forming(np.zeros(20)))), rtol=1e-12)
    assert int(cube.source_counters["nebulae"].n_particles) == 0


@functools.cache
def gas_pipeline():
    """The lines of the gas alone."""
    return pipeline_of(config_of({"source": "star_forming_gas", "continuum": False}, method="direct"))


def gas_light(cube):
    """Without the stars."""
    return flux_of(cube) - flux_of(gas_pipeline()(forming(np.zeros(20))))


def forming(rate, **others):
    """The galaxy with other star formation rates of its gas."""
    return Galaxy(galaxy().stars, replace(galaxy().gas, star_formation_rate=rate, **others))


def test_gas_shines_where_and_as_fast_as_it_is():
    """By its star formation rate alone: neither temperature nor electrons matter, and gas without a rate is dark."""
    gas, pipeline = galaxy().gas, gas_pipeline()
    cube = pipeline(galaxy())
    other = forming(gas.star_formation_rate, temperature=np.full(20, 10.0), electron_abundance=np.zeros(20))
    np.testing.assert_array_equal(pipeline(other).flux, cube.flux)
    assert int(cube.source_counters["nebulae"].n_particles) == 10
    one = pipeline(forming(np.where(np.arange(20) == 0, 1.0, 0.0)))
    column, row = (
        np.rint(x).astype(int)[0]
        for x in independent.spaxel_coordinates(gas, independent.arcsec_per_kpc(0.01, DISTANCE), 1.0, 3, 3)
    )
    light = gas_light(one).sum(axis=2)
    assert light[row, column] == pytest.approx(light.sum())
    strongest = np.argmax(gas_light(one)[row, column])
    place = HB * 1.01 * np.exp(gas.velocity[0, 2] / independent.C_KMS)
    assert abs(one.wavelength[strongest] - place) < 0.7


def test_oxygen_in_the_file_is_taken():
    """12 + log10(O/H) of 8.76 by mass fractions is that of the Sun's metals in the table."""
    scale = OxygenScale.of(load_nebular("mappings-hii"))
    solar = replace(forming_gas(), metallicity=np.full(1, 0.0142))
    assert float(scale.by_oxygen(solar)[0]) == pytest.approx(8.76, abs=1e-12)
    oxygen = np.full(1, 2 * 10 ** (8.76 - 12) * 15.999 / 1.008 * 0.7)
    richer = replace(solar, oxygen_fraction=oxygen, hydrogen_fraction=np.full(1, 0.7))
    assert float(scale.by_oxygen(richer)[0]) == pytest.approx(8.76 + np.log10(2), abs=1e-9)
    without = replace(solar, oxygen_fraction=oxygen)
    assert float(scale.by_oxygen(without)[0]) == pytest.approx(8.76 + np.log10(2 * 0.7 / 0.74), abs=1e-9)


def test_no_photon_no_light(caplog):
    """All photons escape, or no gas forms stars: only the stars are left, and the summary says so."""
    pipeline = gas_pipeline()
    quiet = pipeline(forming(np.zeros(20)))
    assert nebular_lines(quiet) == [f"{DARK}, for the galaxy has no gas particle that makes ionising photons"]
    assert "no particles of source 'nebulae' shine" in caplog.text
    leaky = eqx.tree_at(lambda p: p.nebular.escape_fraction, pipeline.parameters, jnp.asarray(1.0))
    np.testing.assert_array_equal(pipeline(galaxy(), leaky).flux, quiet.flux)


@pytest.mark.slow(4)
def test_a_galaxy_without_gas_is_dark():
    config = config_of({"source": "star_forming_gas", "continuum": False})
    own = Galaxy(galaxy().stars)
    cube = pipeline_of(config, own)(own)
    other_program = gas_pipeline()(forming(np.zeros(20)))
    np.testing.assert_allclose(cube.flux, other_program.flux, rtol=1e-13)
    assert nebular_lines(cube) == [f"{DARK}, for the galaxy has no gas particle that makes ionising photons"]


DARK = "Nebulae: table 'mappings-hii', log U -3, P/k 10^5.8 K/cm3: none"


def test_what_lies_beyond_the_table_is_counted(tmp_path):
    stars = stars_of([6.3, 6.3, 6.3, 9.0], metallicity=np.array([0.02, 1e-5, 0.02, 1e-5]))
    own = Galaxy(stars=stars)
    config = config_of({"log_u": {"at_solar": -3.0, "slope": 1.0}, "continuum": False})
    cube = pipeline_of(config, own)(own)
    counters = cube.source_counters["nebulae"]
    assert int(counters.n_particles) == 3
    assert {name: int(number) for name, number in counters.n_clamped.items()} == {"log_u": 1, "oxygen_abundance": 1}
    again = Cube.read(cube.write(tmp_path / "cube.fits"))
    words = " ".join(nebular_lines(again))
    assert "log U -3 (slope 1), P/k 10^5.8" in words
    assert "absorbed around 3 stars" in words
    assert "1 of them" in words
    cards = {"NEBTABLE": "mappings-hii", "NEBSRC": "stars", "NEBLOGU": -3.0, "NEBPK": 5.8, "NEBESC": 0.0}
    header = fits.getheader(tmp_path / "cube.fits")
    assert {name: header[name] for name in cards} == cards


OPTICAL = np.arange(200.0, 9000.0, 2.0)


def test_what_cannot_shine_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"nebular\.source: .*got both.*counted twice"):
        config_of({"source": ["stars", "star_forming_gas"]})
    with pytest.raises(ConfigError, match=r"nebular.*expected null for source star_forming_gas"):
        config_of({"source": "star_forming_gas", "resample_ages": "10 Myr"})
    with pytest.raises(ConfigError, match=r"nebular.*expected no more than oldest, 30 Myr"):
        config_of({"resample_ages": "0.1 Gyr"})
    library = write_library(tmp_path / "optical.h5", np.linspace(3000.0, 8000.0, 50), 1.0)
    config = config_of()
    config = config.model_copy(update={"ssp": config.ssp.model_copy(update=library)})
    with pytest.raises(ConfigError, match=r"has no ionising light.*popstar"):
        pipeline_of(config)
    lines = np.where(np.abs(OPTICAL - 6564.6) < 5.0, 30.0, 1.0)
    shining = config_of().model_copy(
        update={"ssp": config.ssp.model_copy(update=write_library(tmp_path / "shining.h5", OPTICAL, lines))}
    )
    with pytest.raises(ConfigError, match=r"'test', whose young populations hold nebular light .*counted twice"):
        pipeline_of(shining)
    with pytest.raises(ConfigError, match=r"nebular\.log_u: expected -4 to -2, .*'mappings-hii', got -4\.5"):
        pipeline_of(config_of({"log_u": -4.5}))
    with pytest.raises(ConfigError, match=r"nebular\.diffuse\.log_u: expected -4 to -2, .*got -5"):
        pipeline_of(config_of({"diffuse": {"log_u": -5.0}}))
    with pytest.raises(ConfigError, match=r"nebular\.log_pressure: .*log_pressure: expected 4\.2 to 8\.6, got 9"):
        pipeline_of(config_of({"log_pressure": 9.0}))
    own = Galaxy(galaxy().stars, replace(galaxy().gas, star_formation_rate=None))
    pipeline = pipeline_of(config_of({"source": "star_forming_gas", "continuum": False}), own)
    with pytest.raises(
        ValueError, match=r"gas\.star_formation_rate: expected one per particle .* star_forming_gas, got"
    ):
        pipeline(own)


def test_the_section_is_there_where_it_is_painted():
    assert config_of().nebular == config_of({}).nebular
    assert config_of({"log_u": -2.5}).nebular == config_of({"log_u": {"at_solar": -2.5}}).nebular
    assert load_config("quickstart").nebular is None
    assert load_config(config_of({"log_u": "-2.5", "oldest": "0.01 Gyr"}).model_dump(mode="json")).nebular.oldest == 10


DIFFUSE = {"fraction": 0.3, "mean_free_path": "0.1 kpc", "log_u": -3.42, "velocity_dispersion": "40 km/s"}
"""In a field where a spaxel is 0.05 kpc wide."""


@functools.cache
def leaking_pipeline(n_devices=1):
    return pipeline_of(config_of({"diffuse": DIFFUSE}, n_x=9, method="basis"), one_star(), n_devices)


@functools.cache
def one_star():
    """Young, in the middle of the field."""
    return Galaxy(stars=stars_of([6.3], 1e5))


def beside_the_field(rows):
    """The star so many spaxels above the middle, in a field of three rows."""
    scale = independent.arcsec_per_kpc(0.01, DISTANCE)
    return Galaxy(replace(one_star().stars, position=np.array([[0.0, rows / scale, 0.0]])))


def leaking(parameters=None):
    own = leaking_pipeline().parameters if parameters is None else parameters
    return leaking_pipeline()(one_star(), own)


def with_diffuse(**changes):
    own = leaking_pipeline().parameters
    for name, value in changes.items():
        own = eqx.tree_at(lambda p, name=name: getattr(p.nebular.diffuse, name), own, jnp.asarray(value))
    return own


@pytest.mark.slow(10)
def test_leaked_photons_shine_a_mean_free_path_on():
    """No photon leaks: as without diffuse gas; all of them: images of lines and continuum are the share that each
    spaxel absorbs, also of a star outside the field, and of the star nothing changes."""
    plain = flux_of(pipeline_of(config_of(n_x=9, method="basis"), one_star())(one_star()))
    stars = flux_of(pipeline_of(config_of({"escape_fraction": 1.0}, n_x=9, method="basis"), one_star())(one_star()))
    none, whole = (flux_of(leaking(with_diffuse(fraction=fraction))) for fraction in (0.0, 1.0))
    np.testing.assert_allclose(none, plain, atol=1e-9 * plain.max())
    path = 0.1 * independent.arcsec_per_kpc(0.01, DISTANCE)
    share = leaked_share(path, 9)
    middle = len(share) // 2
    expected = share[middle - 1 : middle + 2, middle - 4 : middle + 5]
    image = (whole - stars).sum(axis=2)
    np.testing.assert_allclose(image / image[1, 4], expected / expected[1, 4], rtol=1e-6)
    near = (plain - stars).sum(axis=2)[1, 4]
    assert image.sum() == pytest.approx(near * expected.sum(), rel=0.2)  # of another log U
    outer = leaking_pipeline()(beside_the_field(3), with_diffuse(fraction=1.0))
    image, row = flux_of(outer).sum(axis=2), middle - 3
    expected = share[row - 1 : row + 2, middle - 4 : middle + 5] / share[middle, middle]
    np.testing.assert_allclose(image / (whole - stars).sum(axis=2)[1, 4], expected, rtol=1e-6)
    assert int(outer.source_counters["nebulae"].n_outside) == 1
    half = flux_of(leaking(with_diffuse(fraction=0.5)))
    np.testing.assert_allclose(half, 0.5 * (none + whole), atol=1e-9 * plain.max())


@pytest.mark.slow(10)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("fraction", marks=pytest.mark.long),
        "log_u",
        pytest.param("velocity_dispersion", marks=pytest.mark.long),
    ],
)
def test_gradients_of_diffuse_gas_are_differences(name):
    def total(value):
        flux = leaking(with_diffuse(**{name: value})).flux
        return jnp.sum(flux * np.random.default_rng(3).normal(size=flux.shape))

    value, step = float(getattr(leaking_pipeline().parameters.nebular.diffuse, name)), 1e-4
    slope = jax.grad(total)(jnp.asarray(value))
    assert float(slope) == pytest.approx(float(total(value + step) - total(value - step)) / (2 * step), rel=1e-4)


@pytest.mark.slow(10)
def test_diffuse_gas_is_the_same_on_devices():
    eight = leaking_pipeline(8)
    whole = flux_of(leaking())
    np.testing.assert_allclose(flux_of(eight(one_star())), whole, atol=1e-12 * whole.max())
    assert collectives(eight.lower(one_star()).compile().as_text()) == [("all-reduce", "ENTRY")]


@pytest.mark.long
def test_leaked_photons_pass_the_psf_from_cells_to_spaxels():
    """A Gaussian PSF of 0.9 spaxels over 3 x 3 cells in each; all photons leak: the shares of cells, each in every
    spaxel by the error function."""
    psf = {"kind": "gaussian", "fwhm": 0.9, "enclosed": 0.9999}
    config = config_of({"diffuse": {**DIFFUSE, "fraction": 1.0}}, n_x=9, method="basis", psf=psf, oversampling=3)
    pipeline = pipeline_of(config, one_star())
    assert pipeline.plan.cells == 3
    dark = eqx.tree_at(lambda p: p.nebular.escape_fraction, pipeline.parameters, jnp.asarray(1.0))
    image = (flux_of(pipeline(one_star())) - flux_of(pipeline(one_star(), dark))).sum(axis=2)
    share = leaked_share(0.3 * independent.arcsec_per_kpc(0.01, DISTANCE), 60)
    cell, sigma = (np.arange(len(share)) - len(share) // 2) / 3, 0.9 / np.sqrt(8 * np.log(2))
    rows, columns = (
        np.diff(ndtr(((np.arange(n + 1) - n / 2)[:, None] - cell[None, :]) / sigma), axis=0) for n in (3, 9)
    )
    expected = rows @ share @ columns.T
    np.testing.assert_allclose(image / image.sum(), expected / expected.sum(), rtol=1e-3)


@pytest.mark.long
def test_leaked_photons_of_wide_stars_are_the_same_on_any_mesh_and_in_slabs():
    """Smoothed over several spaxels, with a PSF; stars and bins painted apart on two devices each; in two slabs."""
    lengths = np.random.default_rng(2).uniform(0.01, 0.15, N_STARS)
    own = Galaxy(replace(galaxy().stars, smoothing_length=lengths))
    psf = {"kind": "gaussian", "fwhm": 2.0}
    config = config_of({"diffuse": DIFFUSE}, n_x=5, method="basis", psf=psf, deposit="smoothed", chunk=8)
    one = pipeline_of(config, own)
    whole = flux_of(one(own))
    apart = Pipeline.from_config(config, own, mesh=make_mesh(2, wave=2))
    np.testing.assert_allclose(flux_of(apart(own)), whole, atol=1e-12 * whole.max())
    slabs = [jax.tree.map(lambda leaf, half=half: leaf[half::2], own) for half in (0, 1)]
    np.testing.assert_allclose(flux_of(one.observe_slabs(slabs)), whole, atol=1e-12 * whole.max())

"""The pipeline's face: how it is built, what it refuses, what a call takes and returns."""

import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml

from rubix_like import (
    ConfigError,
    Cube,
    Galaxy,
    GalaxyInfo,
    Parameters,
    Pipeline,
    Plan,
    Stars,
    Tables,
    load_config,
    load_galaxy,
    load_ssp,
    make_mesh,
    validate,
)
from rubix_like.extend import Footprint

KPC_PER_ARCSEC = 100e3 * np.pi / 180 / 3600
"""At an angular distance of 100 Mpc: 0.48 kpc."""


def settings(**sections):
    """A small, fast run at 100 Mpc and redshift 0, without PSF, LSF and noise."""
    instrument = {
        "name": "muse",
        "fov": "1 arcsec",
        "wavelength": {"start": 5000, "stop": 5030},
        "psf": None,
        "lsf": None,
    }
    defaults = {
        "observation": {"redshift": 0, "distance": "100 Mpc", "align": "none", "inclination": 0, "position_angle": 0},
        "instrument": instrument,
        "engine": {"precision": "float64"},
        "devices": {"data": 2},
    }
    return {**defaults, **sections}


def stars(n=20, seed=0):
    rng = np.random.default_rng(seed)
    return Galaxy(
        stars=Stars(
            position=rng.normal(size=(n, 3)) * 0.3,
            velocity=rng.normal(size=(n, 3)) * 100,
            initial_mass=rng.uniform(0.5, 2.0, n) * 1e6,
            log_age=rng.uniform(8.0, 10.0, n),
            metallicity=rng.uniform(0.004, 0.04, n),
        )
    )


def with_stars(galaxy, **fields):
    """A copy in which some fields of some stars differ: {field: (index, value)}."""
    changed = {name: np.array(getattr(galaxy.stars, name)) for name in fields}
    for name, (index, value) in fields.items():
        changed[name][index] = value
    return Galaxy(stars=Stars(**{**vars(galaxy.stars), **changed}))


@pytest.fixture(scope="module")
def pipeline():
    return Pipeline.from_config(settings(), stars())


def test_built_from_a_dict_or_a_path_for_this_galaxy_or_another(pipeline, tmp_path):
    """Its parts; the mesh that is given is taken, not that of the configuration."""
    path = tmp_path / "run.yaml"
    path.write_text(load_config(settings()).to_yaml())
    other = Pipeline.from_config(str(path), stars())
    assert other.plan == pipeline.plan
    assert eqx.tree_equal(other.tables, pipeline.tables)
    assert eqx.tree_equal(other.parameters, pipeline.parameters)
    parts = (pipeline.plan, pipeline.tables, pipeline.parameters)
    assert [type(part) for part in parts] == [Plan, Tables, Parameters]
    assert float(pipeline.parameters.observation.inclination) == 0.0
    np.testing.assert_allclose(float(pipeline.tables.arcsec_per_kpc), 1 / KPC_PER_ARCSEC, rtol=1e-6)
    on_four = Pipeline.from_config(path, stars(seed=3), mesh=make_mesh(4))
    assert hash(on_four.plan) == hash(pipeline.plan)
    assert (pipeline.mesh.size, on_four.mesh.size) == (2, 4)


def test_built_from_a_packaged_name():
    galaxy = load_galaxy(load_config("quickstart", {"galaxy.n_stars": 100}))
    built = Pipeline.from_config("quickstart", galaxy)
    assert built.frame.footprint == Footprint(50, 50, 0.2)
    assert built.tables.footprint.shape == (50, 50)
    assert built.tables.alignment is not None
    assert built.mesh.size == len(jax.devices())


def test_alignment_needs_a_galaxy():
    observation = {"redshift": 0.1, "align": "stars"}
    with pytest.raises(ConfigError, match=r"observation.align: .*pass the galaxy to Pipeline.from_config, or set"):
        Pipeline.from_config(settings(observation=observation))
    with pytest.raises(ConfigError, match=r"observation.align"):
        Pipeline.from_config("quickstart")


@pytest.mark.parametrize("method", ["direct", "basis"])
def test_without_a_galaxy(method):
    """Built from settings alone, for galaxies to come: the same program and numbers as with the galaxy."""
    engine = {"method": method, "precision": "float64", "velocity_range": 1000}
    without, built = (Pipeline.from_config(settings(engine=engine), galaxy) for galaxy in (None, stars()))
    assert without.plan == built.plan
    assert eqx.tree_equal(without.tables, built.tables)


@pytest.fixture(scope="module")
def number_outside(pipeline):
    """How many particles the compiled function counts as not finite."""

    def count(galaxy):
        arguments = pipeline.arguments(galaxy)
        return pipeline.compiled(*arguments)(*arguments).counters["stars"].n_not_finite

    return count


@pytest.mark.parametrize("field", ["position", "velocity", "initial_mass", "log_age", "metallicity"])
def test_particles_that_are_not_finite(number_outside, field):
    broken = with_stars(stars(), **{field: (3, np.nan)})
    with pytest.raises(ValueError, match=rf"stars.{field}: expected finite values, got nan"):
        Pipeline.from_config(settings(), broken)
    assert float(number_outside(broken)) == 1


IMPOSSIBLE = [
    ("initial_mass", -1.0),
    ("initial_mass", 1e25),
    ("log_age", 5e9),
    ("log_age", -1.0),
    ("metallicity", 2.0),
    ("metallicity", -0.02),
]


@pytest.mark.parametrize(("field", "value"), IMPOSSIBLE)
def test_particles_that_cannot_be(number_outside, field, value):
    """Refused with a remedy that names the field; inside jit counted."""
    broken = with_stars(stars(), **{field: ([3, 4], value)})
    with pytest.raises(ValueError, match=rf"stars\.{field}: expected .* at index 3 \(2 of 20 values\)"):
        validate(broken)
    assert float(number_outside(broken)) == 2


def test_a_call_refuses_particles_that_it_counts_as_not_finite(pipeline):
    words = r"galaxy: expected finite .* got 3 of 20 stars with others; rubix_like\.validate"
    with pytest.raises(ValueError, match=words):
        pipeline(with_stars(stars(), metallicity=([3, 4], 2.0), log_age=(5, np.nan)))


def test_masses_beyond_32_bits():
    with pytest.raises(ValueError, match=r"stars.initial_mass: expected initial_mass of at most 1e\+15 in magnitude"):
        validate(with_stars(stars(), initial_mass=(3, 1e40)))


def test_the_oldest_and_richest_stars_are_possible(pipeline):
    """Also where the limits are rounded up to 32 bits."""
    limits = {"log_age": np.full(20, 10.3, np.float32), "metallicity": np.ones(20, np.float32)}
    counters = pipeline(validate(Galaxy(stars=Stars(**{**vars(stars().stars), **limits})))).counters
    assert (float(counters.n_not_finite), float(counters.n_particles)) == (0, 20)


def test_particles_beyond_the_planned_velocities(pipeline):
    fast = with_stars(stars(), velocity=([2, 7], [0.0, 0.0, -1200.0]))
    with pytest.raises(ValueError, match=r"within 1000 km/s \(as planned\), got 2 of 20 stars beyond; set"):
        pipeline(fast)
    assert float(Pipeline.from_config(settings(), fast)(fast).counters.n_beyond_velocity) == 0


def test_inside_jit_they_are_only_counted(pipeline):
    broken = with_stars(stars(), velocity=([2, 7], [0.0, 0.0, -1200.0]), log_age=(5, np.inf))
    counters = jax.jit(lambda galaxy: pipeline(galaxy).counters)(broken)
    assert (float(counters.n_beyond_velocity), float(counters.n_not_finite)) == (2, 1)


def test_speeds_that_are_no_speeds():
    with pytest.raises(ValueError, match=r"stars.velocity: expected speeds below .* check the unit"):
        Pipeline.from_config(settings(), with_stars(stars(), velocity=(0, 1.7e5)))


@pytest.fixture(scope="module")
def counted():
    """Stars inside and outside a field of 1 arcsec, some beyond the library's ages and metallicities."""
    galaxy = with_stars(
        stars(), log_age=([0, 1], [0.0, 10.29]), metallicity=([1, 2, 3], [0.0, 0.9, 1e-5]), position=(4, [9, 9, 9])
    )
    return galaxy, Pipeline.from_config(settings(), galaxy)(galaxy).counters


def test_counters_against_numpy(counted):
    galaxy, counters = counted
    library, own = load_ssp("popstar"), galaxy.stars
    outside = (np.abs(own.position[:, :2]) / KPC_PER_ARCSEC > 0.5).any(axis=1)
    age = (own.log_age < library.log_age[0]) | (own.log_age > library.log_age[-1])
    metallicity = (own.metallicity < library.metallicity[0]) | (own.metallicity > library.metallicity[-1])
    assert 0 < outside.sum() < 20
    assert age.sum() == 2
    assert metallicity.sum() == 3
    masses = own.initial_mass
    expected = {
        "n_particles": 20,
        "n_outside": outside.sum(),
        "n_clamped_age": age.sum(),
        "n_clamped_metallicity": metallicity.sum(),
        "n_clamped_a_v": 0,
        "n_beyond_velocity": 0,
        "n_overflow": 0,
        "n_not_finite": 0,
        "mass_total": masses.sum(),
        "mass_outside": masses[outside].sum(),
        "mass_clamped_age": masses[age].sum(),
        "mass_clamped_metallicity": masses[metallicity].sum(),
        "mass_clamped_a_v": 0,
    }
    assert vars(counters).keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(float(getattr(counters, name)), value, rtol=1e-12, err_msg=name)


def test_fields_of_the_cube(pipeline):
    cube = pipeline(stars())
    assert isinstance(cube, Cube)
    assert (cube.variance, cube.ivar, pipeline.noise_key) == (None, None, None)
    assert cube.flux.shape == cube.mask.shape == (5, 5, 25)
    assert cube.wavelength.shape == cube.lsf_fwhm.shape == (25,)
    assert cube.wave_edges.shape == (26,)
    assert cube.wavelength.dtype == cube.wave_edges.dtype == np.float64
    assert cube.mean_v_los.shape == (5, 5)
    assert (cube.medium, cube.sampling, cube.pixel_scale) == ("air", "linear", 0.2)
    assert (cube.mask == 0).all()
    np.testing.assert_allclose(cube.wavelength, 5000 + 1.25 * np.arange(25))
    assert cube.wcs.naxis == 3


def test_mean_velocity(pipeline):
    """Of the one star in a spaxel, its own; NaN where there is none. At position angle 0, X is North and Y is West."""
    place = np.full((20, 3), 9.0)  # kpc: outside the field
    place[0] = [0.2 * KPC_PER_ARCSEC, 0.4 * KPC_PER_ARCSEC, 0.0]
    galaxy = with_stars(stars(), position=(slice(None), place))
    v_los = np.asarray(pipeline(galaxy).mean_v_los)
    np.testing.assert_allclose(v_los[3, 4], galaxy.stars.velocity[0, 2], rtol=1e-10)
    assert np.isnan(v_los).sum() == 24


def test_the_header_knows_the_galaxy():
    info = GalaxyInfo(name="NGC 0", reader="arrays", source="a test", notes=("a note",))
    meta = Pipeline.from_config(settings(), stars(), info=info)(stars()).meta
    assert (meta["object"], meta["galaxy_source"], meta["note_1"]) == ("NGC 0", "a test", "a note")
    settled = load_config(settings(), overrides={"engine.deposit": "nearest"})
    assert load_config(yaml.safe_load(meta["config"])) == settled


def test_stars_older_than_the_universe_of_the_info():
    info = GalaxyInfo(name="young", reader="arrays", source="a test", universe_age=1e9)
    with pytest.raises(ValueError, match="the age of the Universe"):
        Pipeline.from_config(settings(), stars(), info=info)


def test_other_parameters_are_those_of_another_configuration(pipeline):
    """Inclination, position angle, offset and velocity offset, given at the call or in the YAML."""
    observation = {
        **settings()["observation"],
        "inclination": "40 deg",
        "position_angle": "70 deg",
        "offset": ["0.1 arcsec", "-0.2 arcsec"],
        "velocity_offset": "150 km/s",
    }
    other = Pipeline.from_config(settings(observation=observation), stars())
    expected = other(stars())
    found = pipeline(stars(), other.parameters)
    np.testing.assert_allclose(np.asarray(found.flux), np.asarray(expected.flux), rtol=1e-12)
    assert np.abs(np.asarray(found.flux - pipeline(stars()).flux)).max() > 0.1 * np.asarray(found.flux).max()


def test_vmap_over_a_parameter(pipeline):
    """A batch of inclinations in one call, on two devices."""
    inclinations = jnp.asarray([0.0, 35.0, 80.0])

    def flux(inclination):
        return pipeline(stars(), {"observation.inclination": inclination}).flux

    found = np.asarray(jax.vmap(flux)(inclinations))
    expected = np.stack([np.asarray(flux(inclination)) for inclination in inclinations])
    np.testing.assert_allclose(found, expected, atol=1e-12 * expected.max(), rtol=0)
    assert np.abs(found[1] - found[0]).max() > 0.1 * found.max()


def write_pipeline(path, cube):
    path.write_text(f"scene: [orient, point]\npaint: [stars]\ncube: {cube}\n")
    return str(path)


def test_stages_that_need_a_margin_come_first(tmp_path):
    instrument = {**settings()["instrument"], "psf": {"fwhm": 0.5}}
    wrong = write_pipeline(tmp_path / "wrong.yaml", "[aperture, psf]")
    with pytest.raises(ConfigError, match=r"pipeline.cube: expected 'psf' before 'aperture'"):
        Pipeline.from_config(settings(instrument=instrument, pipeline=wrong), stars())
    built = Pipeline.from_config(settings(pipeline=write_pipeline(tmp_path / "bare.yaml", "[]")), stars())
    assert built.tables.cube == ()
    assert built.plan.margin == 0


def test_options_that_a_stage_does_not_have(tmp_path):
    wrong = write_pipeline(tmp_path / "wrong.yaml", "[{psf: {width: 3}}]")
    with pytest.raises(ConfigError, match="stage 'psf' has no option 'width'"):
        Pipeline.from_config(settings(pipeline=wrong), stars())


def test_a_detector_beyond_the_library():
    """PopStar reaches from 91 Angstrom to 160 micron."""
    far = {**settings()["instrument"], "wavelength": {"start": 50, "stop": 80}}
    with pytest.raises(ConfigError, match=r"instrument.wavelength: expected the detector to see the SSP library"):
        Pipeline.from_config(settings(instrument=far), stars())
    partly = {**settings()["instrument"], "wavelength": {"start": 80, "stop": 110, "medium": "vacuum"}}
    built = Pipeline.from_config(settings(instrument=partly), stars())
    assert any("lie outside the SSP library" in note for note in built.notes)
    covered = built.frame.bins.edges[:-1] * np.exp(-1000 / 299792.458) >= 91.0
    assert 0 < covered.sum() < 25
    np.testing.assert_array_equal(built.frame.wave_bits, np.where(covered, 0, 1))


def test_a_library_coarser_than_the_instrument_is_noted():
    instrument = {**settings()["instrument"], "lsf": {"fwhm": "2.5 Angstrom"}}
    built = Pipeline.from_config(settings(instrument=instrument), stars())
    assert any("coarser than the instrument in 100 % of the bins" in note for note in built.notes)
    assert (built.frame.lsf_fwhm > 5).all()


def test_float64_needs_64_bit_numbers_switched_on():
    """In a process of its own, where nobody has switched them on; the package does not do so either."""
    script = f"""
import numpy as np, jax
from rubix_like import ConfigError, Pipeline
settings = {settings()!r}
try:
    Pipeline.from_config(settings)
except ConfigError as error:
    assert "engine.precision" in str(error) and "jax_enable_x64" in str(error), error
else:
    raise SystemExit("float64 was accepted")
settings["engine"]["precision"] = "float32"
settings["devices"]["data"] = 1
assert Pipeline.from_config(settings).tables.arcsec_per_kpc.dtype == np.float32
assert not jax.config.read("jax_enable_x64")
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_pipeline_is_a_function_that_can_be_jitted(pipeline):
    """Pipelines of one plan have one hash, and are told apart by their tables and parameters."""
    heavier = with_stars(stars(), initial_mass=(slice(None), 1e7))
    nearer = Pipeline.from_config(settings(observation={**settings()["observation"], "distance": "50 Mpc"}), stars())
    assert hash(pipeline) == hash(nearer)
    for planned, galaxy in ((pipeline, stars()), (nearer, stars()), (pipeline, heavier)):
        np.testing.assert_allclose(jax.jit(planned)(galaxy).flux, planned(galaxy).flux, rtol=1e-10)


CALLS = {
    "a galaxy": ({}, ()),
    "log_age in Gyr": ({"log_age": 4.0}, ("100 % of the stars' mass has ages beyond the SSP library",)),
    "masses in 1e10 Msun": ({"initial_mass": 2e-4}, ("the stars' birth masses add up to 0.004 Msun",)),
    "metallicities in solar units": ({"metallicity": 1.0}, ("100 % of the stars' mass has metallicities beyond",)),
}
"""Values of all stars in a call of a pipeline of other stars, and what is logged."""


@pytest.mark.parametrize(("values", "words"), CALLS.values(), ids=CALLS)
def test_a_call_says_what_no_galaxy_has(pipeline, values, words, caplog):
    """Also one of slabs; what was said of the galaxy that the pipeline is planned for is not said again."""
    galaxy = with_stars(stars(), **{name: (slice(None), value) for name, value in values.items()})
    acts = [lambda: pipeline(galaxy), lambda: pipeline.observe_slabs([galaxy])]
    for act in acts:
        act()
        assert [record.message[: len(word)] for record, word in zip(caplog.records, words, strict=True)] == list(words)
        caplog.clear()
    if "initial_mass" in values:
        Pipeline.from_config(settings(), galaxy)(galaxy)
        assert not caplog.records

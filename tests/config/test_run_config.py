"""Configuration: the fixed keys, overrides, error texts, round trips, presets and packaged files."""

import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import yaml
from building import REGISTRIES
from command_line import printed
from pydantic import ValidationError

from rubix_like import ConfigError, RunConfig, load_config
from rubix_like.config import load_pipeline
from rubix_like.extend import resource, resource_names

BASE = {"observation": {"redshift": 0.05}, "instrument": {"name": "muse"}}

ISSUE_BLOCK = """
galaxy:      {reader: synthetic, n_stars: 50000, seed: 1}
ssp:         {library: popstar}
observation: {redshift: 0.05, distance: null, cosmology: Planck18, align: stars, inclination: 60 deg,
              position_angle: 30 deg, ra: 150 deg, dec: 2 deg, offset: [0 arcsec, 0 arcsec], velocity_offset: 0 km/s}
instrument:  {name: muse, fov: 10 arcsec}
pipeline:    stellar
engine:      {method: auto, tolerance: 1e-3, deposit: auto, chunk: auto, precision: float32, velocity_range: null}
noise:       null
devices:     {data: all}
output:      {path: cube.fits}
"""


def refusal(source, overrides=None) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    return str(caught.value)


# ---------------------------------------------------------------- the keys and their defaults


def test_the_quickstart_is_the_documented_block(tmp_path):
    path = tmp_path / "quickstart.yaml"
    path.write_text(ISSUE_BLOCK)
    config = load_config(path)
    assert load_config("quickstart") == config
    assert yaml.safe_load(resource("configs", "quickstart").read_text()) == yaml.safe_load(ISSUE_BLOCK)
    assert (config.galaxy.reader, config.galaxy.n_stars, config.galaxy.seed) == ("synthetic", 50000, 1)
    observation = config.observation
    assert (observation.redshift, observation.distance, observation.cosmology) == (0.05, None, "Planck18")
    assert (observation.align, observation.inclination, observation.position_angle) == ("stars", 60.0, 30.0)
    assert (observation.ra, observation.dec, observation.offset) == (150.0, 2.0, (0.0, 0.0))
    assert observation.velocity_offset == 0.0
    assert config.instrument.fov == (10.0, 10.0)
    assert config.engine.model_dump() == {
        "method": "auto", "tolerance": 1e-3, "deposit": "auto", "oversampling": "auto", "chunk": "auto",
        "kernel": "auto", "slab": "auto",
        "precision": "float32", "velocity_range": None, "smoothing": {"sigma": 0.2739, "largest": None},
    }  # fmt: skip
    assert (config.noise, config.devices.data, config.output.path) == (None, "all", Path("cube.fits"))


def test_a_dict_needs_only_a_redshift_and_an_instrument():
    config = load_config(BASE)
    whole = load_config("quickstart", overrides={"output.configuration": "none"})
    config = load_config(config, overrides={"output.configuration": "none"})
    assert config.galaxy is None
    assert (config.ssp, config.engine, config.devices, config.output) == (
        whole.ssp, whole.engine, whole.devices, whole.output,
    )  # fmt: skip
    assert (config.observation.align, config.observation.inclination) == (None, None)
    assert config.pipeline == "stellar"


def test_align_follows_the_galaxy_section_unless_it_is_given():
    assert load_config(BASE).resolved_align == "none"
    assert load_config(BASE, {"galaxy.reader": "synthetic"}).resolved_align == "stars"
    assert load_config("quickstart", {"observation.align": "none"}).resolved_align == "none"
    assert load_config("quickstart", {"observation.align": "null"}).resolved_align == "stars"
    assert load_config(BASE, {"observation.align": "stars"}).resolved_align == "stars"
    assert load_config(BASE, {"observation.align": "angular_momentum"}).resolved_align == "angular_momentum"


@pytest.mark.parametrize(
    ("given", "in_kpc"), [(None, 8.0), (1.5, 6.0), ("1e0", 4.0), ("5 kpc", 5.0), ("3000 pc", 3.0), ("0.01 Mpc", 10.0)]
)
def test_the_radius_of_the_alignment_is_in_half_mass_radii_or_a_length(given, in_kpc):
    """For stars with a half-mass radius of 4 kpc; the same once it was written."""
    config = load_config(BASE, {} if given is None else {"observation.align_radius": given})
    for own in (config, load_config(yaml.safe_load(config.to_yaml())), load_config(config, {"noise": None})):
        assert own.observation.align_radius == config.observation.align_radius
        assert own.observation.align_radius.kpc(4.0) == pytest.approx(in_kpc, rel=1e-12)


def test_a_reader_instance_is_taken_as_it_is():
    reader = REGISTRIES["readers"].find("synthetic")(n_stars=7)
    assert load_config({**BASE, "galaxy": reader}).galaxy is reader
    assert load_config({**BASE, "galaxy": reader}, {"galaxy.seed": 5}).galaxy.n_stars == 7


def test_settings_are_frozen():
    config = load_config(BASE)
    with pytest.raises(ValidationError, match="frozen"):
        config.observation.redshift = 1.0


def test_numeric_text_is_a_number():
    text = {"engine.chunk": "1e3", "engine.tolerance": "1e-4", "galaxy.reader": "synthetic", "galaxy.n_stars": "5e4"}
    config = load_config(BASE, text)
    assert (config.engine.chunk, config.engine.tolerance, config.galaxy.n_stars) == (1000, 1e-4, 50000)
    assert load_config({**BASE, "observation": {"redshift": "5e-2"}}).observation.redshift == 0.05


# ---------------------------------------------------------------- one clear message


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"observation.inclinatoin": 1}, ["unknown key 'observation.inclinatoin'; did you mean 'inclination'?"]),
        (
            {"instrument.psf.field": [{"at": [0, 0], "fwhm": 1}, {"at": [1, 0], "fwhm": 1}]},
            ["unknown key 'instrument.psf.field[0].fwhm'; give width, the FWHM there relative to psf.fwhm"],
        ),
        (
            {"instrument.fibres": {"bundle": "manga-19", "refraction": {"airmass": 1.2}}},
            ["unknown key 'instrument.fibres.refraction.airmass'; give zenith_distance, whose secant it is"],
        ),
        ({"instrument.fibres": "manga-20"}, ["instrument.fibres: unknown bundle 'manga-20'", "manga-127, manga-19"]),
        (
            {"instrument.fibres": {"name": "manga-19"}},
            ["instrument.fibres: expected the key 'bundle': one of hector-127", "manga-19"],
        ),
        ({"instrument.psf.fwmh": 1}, ["unknown key 'instrument.psf.fwmh'; did you mean 'fwhm'?"]),
        ({"instrumnt": 1}, ["unknown key 'instrumnt'; did you mean 'instrument'?"]),
        ({"noize.signal_to_noise": 1}, ["unknown key 'noize'; did you mean 'noise'?"]),
        ({"galaxy": {"reader": "synthetic", "n_star": 1}}, ["galaxy", "'n_star'", "did you mean 'n_stars'?"]),
        ({"galaxy.reader": "ilustris"}, ["galaxy: unknown reader 'ilustris'; did you mean 'illustris'?"]),
        ({"galaxy.seed": 1}, ["galaxy: expected the key 'path'", "'reader': one of", "synthetic", "illustris"]),
        ({"galaxy": "synthetic"}, ["galaxy: expected a section with the key 'path' or 'reader'"]),
        ({"galaxy": {"reader": "synthetic", "n_stars": True}}, ["galaxy.n_stars: expected a whole number, got True"]),
        ({"instrument.name": "mus"}, ["unknown instrument 'mus'; did you mean 'muse'?", "manga"]),
        ({"instrument.name": "mine.yaml"}, ["no file 'mine.yaml'"]),
        ({"instrument": {}}, ["expected the key 'name'", "muse"]),
        ({"instrument": "muse"}, ["instrument: expected a section", "'muse'"]),
        ({"pipeline": "stelar"}, ["unknown pipeline 'stelar'; did you mean 'stellar'?"]),
        ({"observation.cosmology": "Plank18"}, ["unknown cosmology 'Plank18'; did you mean 'Planck18'?"]),
        ({"observation.inclination": "40 kg"}, ["observation.inclination: expected a quantity in deg", "'40 kg'"]),
        ({"observation.offset": "[1 arcsec]"}, ["observation.offset[1]"]),
        ({"observation.offset": "[1 arcsec, 2 kg]"}, ["observation.offset[1]: expected a quantity in arcsec"]),
        ({"observation.redshift": -1}, ["observation.redshift: expected a number >= 0, got -1"]),
        ({"observation.redshift": 0}, ["observation: redshift 0", "expected a distance (e.g. 10 Mpc)"]),
        ({"observation.ra": 361}, ["observation.ra: expected a number <= 360, got 361"]),
        ({"observation.dec": -91}, ["observation.dec: expected a number >= -90, got -91"]),
        (
            {"observation.align": "star"},
            ["expected one of stars, angular_momentum, none, got 'star'; did you mean 'stars'?"],
        ),
        ({"observation": None}, ["observation: expected a section", "got null"]),
        (
            {"engine.method": "bases"},
            ["engine.method: expected one of auto, basis, direct, got 'bases'; did you mean 'basis'?"],
        ),
        ({"engine.kernel": "scater"}, ["engine.kernel: expected one of auto, scatter, got 'scater'; did you mean"]),
        ({"fog.depth": 1}, ["unknown key 'fog'; did you mean 'instrument.fov'?"]),
        (
            {"zodiac.depth": 1},
            [
                "unknown key 'zodiac'; known: devices, dust",
                "if it is a section of a plug-in, install its package (docs/how",
            ],
        ),
        ({"fit.sampling.nutts": {}}, ["unknown key 'fit.sampling.nutts'; did you mean 'nuts'?"]),
        ({"fit.sampling.method": "nutts"}, ["fit.sampling.method: expected one of nuts", "did you mean 'nuts'?"]),
        (
            {"fit.likelihood.covariance": "dat"},
            ["overrides): fit.likelihood.covariance: expected one of auto, data, null or a section, got 'dat'; did"],
        ),
        (
            {"fit.data": {"b": {"covariance": {"between": "spaxels"}}}},
            ["overrides): fit.data.b.covariance.matrix: expected a value, got none"],
        ),
        (
            {"fit.likelihood.covariance": {"between": "spaxels", "matrix": [[1, 0.5], [0.5]]}},
            ["covariance.matrix: expected rows of one length, got rows of 1, 2 numbers"],
        ),
        (
            {"fit.likelihood.covariance": {"between": "spaxels", "matrix": [[1, "x"], [0.5, 1]]}},
            ["covariance.matrix: expected rows of numbers, got 'x' among them"],
        ),
        (
            {"galaxy": {"reader": "components", "components": [{"name": "points"}]}},
            ["galaxy.components[0].name: 'points' is a key of the section galaxy; give the component another name"],
        ),
        (
            {"engine.deposit": "csi"},
            ["expected one of auto, nearest, cic, tsc, smoothed, got 'csi'; did you mean 'cic'?"],
        ),
        ({"engine.precision": "float16"}, ["expected one of float32, float64"]),
        ({"engine.chunk": 0}, ["engine.chunk: expected 'auto' or a number of particles >= 1, got 0"]),
        ({"engine.chunk": True}, ["engine.chunk: expected 'auto' or a number of particles >= 1, got True"]),
        ({"engine.tolerance": 1}, ["engine.tolerance: expected a number < 1, got 1"]),
        ({"engine.velocity_range": "0 km/s"}, ["engine.velocity_range: expected a number > 0"]),
        ({"noise.seed": 1}, ["noise: expected exactly one of signal_to_noise and exposure, got none"]),
        (
            {"noise": {"signal_to_noise": 5, "exposure": {"time": 60}}},
            ["noise: expected exactly one", "got signal_to_noise and exposure"],
        ),
        (
            {"noise": {"exposure": {"count": 2}}},
            ["noise.exposure.time: expected a quantity in s (>= 0.001, <= 1e+09), got none"],
        ),
        ({"noise": {"exposure": {"time": "0 s"}}}, ["noise.exposure.time: expected a number >= 0.001, got '0 s'"]),
        ({"noise": {"exposure": {"time": "2 km"}}}, ["noise.exposure.time: expected a quantity in s"]),
        (
            {"noise": {"exposure": {"time": ["2 s", 0]}}},
            ["noise.exposure.time: expected a number >= 0.001, got ['2 s', 0]"],
        ),
        ({"noise": {"exposure": {"time": []}}}, ["noise.exposure.time: expected", "got 0"]),
        ({"noise": {"exposure": {"time": 60, "count": 0}}}, ["noise.exposure.count: expected a number >= 1, got 0"]),
        ({"noise": {"exposure": {"time": 60, "count": 1.5}}}, ["noise.exposure.count: expected a whole number"]),
        ({"noise": {"exposure": {"time": 60, "sky": "drak"}}}, ["noise.exposure.sky", "did you mean 'dark'?"]),
        ({"noise": {"exposure": {"time": 60, "sky": "no.fits"}}}, ["noise.exposure.sky", "got no file 'no.fits'"]),
        ({"noise": {"exposure": {"time": 60}, "radius": 1}}, ["noise: radius: expected null with an exposure"]),
        ({"noise": {"signal_to_noise": 5, "radius": -1}}, ["noise.radius: expected a number >= 0, got -1"]),
        ({"noise": {"signal_to_noise": 5, "width": 0}}, ["noise.width: expected a number > 0, got 0"]),
        ({"noise": {"signal_to_noise": 5, "keep_truth": "yes"}}, ["noise.keep_truth: expected true or false"]),
        ({"instrument.detector.read_noise": -1}, ["instrument.detector.read_noise: expected a number >= 0, got -1"]),
        ({"noise.exposure.time": 1e-30}, ["noise.exposure.time: expected a number >= 0.001, got 1e-30"]),
        ({"noise.exposure.time": [60, 1e30]}, ["noise.exposure.time: expected a number <= 1e+09, got [60, 1e+30]"]),
        (
            {"noise.exposure": {"time": 60, "count": 1e30}},
            ["noise.exposure.count: expected a number <= 1e+06, got 1e+30"],
        ),
        ({"instrument.detector.collecting_area": 1e30}, ["collecting_area: expected a number <= 1e+06, got 1e+30"]),
        ({"instrument.detector.throughput": 1e-30}, ["throughput", "expected a number >= 1e-06, got 1e-30"]),
        ({"instrument.detector.read_noise": 1e30}, ["read_noise: expected a number <= 1e+06, got 1e+30"]),
        ({"instrument.detector.dark_current": 1e30}, ["dark_current: expected a number <= 1e+12, got 1e+30"]),
        ({"instrument.detector.pixels_per_voxel": 1e-30}, ["pixels_per_voxel: expected a number >= 1e-06, got 1e-30"]),
        ({"instrument.detector.throughput": 1.2}, ["throughput", "expected a number <= 1, got 1.2"]),
        ({"instrument.detector.throughput": [0.1, 0.2]}, ["instrument.detector: throughput: expected 1", "got 2"]),
        ({"instrument.detector.wavelength": [5e3, 4e3]}, ["instrument.detector.wavelength: expected increasing"]),
        ({"instrument.detector.collecting_area": "3 m"}, ["collecting_area: expected a quantity in m2"]),
        ({"instrument.detector": {"gain": 1}}, ["unknown key 'instrument.detector.gain'"]),
        ({"noise.exposure.time": 60, "noise.exposure.sky": None}, ["noise.exposure.sky: expected text", "null"]),
        ({"noise.signal_to_noise": 0}, ["noise.signal_to_noise: expected a number >= 0.0001, got 0"]),
        ({"noise.signal_to_noise": 1e-30}, ["noise.signal_to_noise: expected a number >= 0.0001, got 1e-30"]),
        ({"noise.signal_to_noise": 1e30}, ["noise.signal_to_noise: expected a number <= 1e+06, got 1e+30"]),
        ({"devices.data": 0}, ["devices.data: expected 'all' or a number of devices >= 1, got 0"]),
        ({"devices.data": "some"}, ["devices.data: expected 'all' or a number of devices >= 1, got 'some'"]),
        ({"engine.slab": "some"}, ["engine.slab: expected 'auto', 'all' or a number of stars >= 1, got 'some'"]),
        ({"engine.slab": 0}, ["engine.slab: expected 'auto', 'all' or a number of stars >= 1, got 0"]),
        ({"devices.data": True}, ["devices.data: expected 'all'"]),
        (
            {"output.path": "cube.txt"},
            [
                "output.path: expected a path that ends in .fits, .fits.gz, .h5, .hdf5 or .zarr (layout",
                "'cube.txt'",
            ],
        ),
        (
            {"output": {"path": "cube.h5", "layout": "manga"}},
            ["output.path: expected a path that ends in .fits or .fits.gz"],
        ),
        (
            {"output": {"path": "cube.fits.gz", "layout": "hsim"}},
            ["ends in .fits (layout 'hsim'), got 'cube.fits.gz'; write e.g. 'cube.fits'"],
        ),
        ({"output.layout": "hsimm"}, ["output.layout: expected one of default, manga, hsim", "did you mean 'hsim'?"]),
        ({"output.layout": "manga"}, ["output.layout: 'manga' needs a variance", "noise: {signal_to_noise: 50}"]),
        ({"output.layout": "hsim"}, ["output.layout: 'hsim' expects wavelengths with medium vacuum, got air"]),
        ({"instrument.fov": "0 arcsec"}, ["instrument.fov: expected a field of at least one spaxel of 0.2 arcsec"]),
        ({"instrument.fov": [5, 0.1]}, ["instrument.fov: expected a field of at least one spaxel", "5.0 x 0.1"]),
        ({"instrument.fov": [1, 2, 3]}, ["instrument.fov: expected at most 2 values, got 3"]),
        ({"instrument.psf": "0.8 arcsec"}, ["instrument.psf: expected a section"]),
        ({"instrument.psf": "none"}, ["instrument.psf: expected a section", "got 'none'; for none write null"]),
        ({"instrument.psf.kind": "moffatt"}, ["instrument.psf.kind: expected one of", "did you mean 'moffat'?"]),
        ({"instrument.psf.kind": "moffat"}, ["instrument.psf: a PSF of kind moffat needs beta, got none"]),
        (
            {"instrument.psf.beta": 2.5},
            ["instrument.psf: a PSF of kind gaussian has the keys fwhm, wavelength; got beta"],
        ),
        ({"instrument.psf": {"kind": "moffat", "beta": 0.9}}, ["psf.beta: expected a number > 1", "got 0.9"]),
        ({"instrument.psf": {"kind": "moffat", "beta": [2, 3]}}, ["beta: expected one value, or one per wavelength"]),
        ({"instrument.psf.wavelength": [5000, 6000]}, ["wavelength: expected a width per wavelength"]),
        (
            {"instrument.psf": {"fwhm": [1, 2], "wavelength": [6e3, 5e3]}},
            ["wavelength: expected increasing"],
        ),
        ({"instrument.psf": {"kind": "image"}}, ["instrument.psf: a PSF of kind image needs file"]),
        ({"instrument.psf": {"kind": "gaussians"}}, ["a PSF of kind gaussians needs components"]),
        ({"instrument.psf": {"kind": "gaussians", "components": [{"fraction": 1}]}}, ["components[0].fwhm"]),
        ({"instrument.psf.fwhm": "0 arcsec"}, ["instrument.psf.fwhm: expected a number > 0, got '0 arcsec'"]),
        ({"instrument.psf.fwhm": "1 km"}, ["instrument.psf.fwhm: expected a quantity in arcsec"]),
        ({"instrument.aperture": {"shape": "hexagn"}}, ["did you mean 'hexagon'?"]),
        ({"instrument.wavelength.medium": "water"}, ["expected one of air, vacuum, got 'water'"]),
        ({"instrument.wavelength.stop": 100}, ["instrument.wavelength: expected start <= stop"]),
        ({"instrument.wavelength.step": 0}, ["instrument.wavelength.step: expected a number > 0, got 0.0"]),
        ({"instrument.wavelength.sampling": "log"}, ["wavelength.step to dex", "expected wavelength.step beside it"]),
        ({"instrument.lsf.includes_pixel": True}, ["instrument.lsf: expected exactly one of", "got none"]),
        ({"instrument.lsf": {"fwhm": 2, "polynomial": [2]}}, ["exactly one of", "got fwhm and polynomial"]),
        ({"instrument.lsf": {"wavelength": [1, 2], "fwhm": [3]}}, ["one value per wavelength, got 1 for 2"]),
        ({"instrument.lsf": {"fwhm": [3, 2]}}, ["one value per wavelength, got 2 for 1"]),
        ({"instrument.lsf": {"wavelength": [2, 1], "fwhm": [3, 3]}}, ["expected increasing wavelengths"]),
        ({"instrument.lsf": {"polynomial": [1, -1]}}, ["lsf.polynomial: expected a positive FWHM", "-9349"]),
        ({"instrument.lsf": {"fwhm": "2 A", "includes_pixel": 1}}, ["instrument.lsf.includes_pixel"]),
    ],
)
def test_a_wrong_setting_ends_in_one_message(overrides, words):
    message = refusal(BASE, overrides)
    for word in words:
        assert word in message


def test_names_of_free_parameters_keep_their_dots_in_overrides():
    fit = load_config(
        "fit_synthetic", overrides={"fit.free.dust.a_v": "{uniform: [0, 2]}", "fit.start.dust.a_v": "0.3"}
    ).fit
    assert fit.free["dust.a_v"] == {"uniform": (0, 2)}
    assert "observation.inclination" in fit.free
    assert fit.start == {"dust.a_v": 0.3}
    assert load_config("quickstart", overrides={"fit.free.dust.a_v": "{uniform: [0, 2]}"}).fit.free.keys() == {
        "dust.a_v"
    }


def test_sections_in_free_are_refused_with_the_dotted_name():
    with pytest.raises(ConfigError, match=r"expected names with dots, e\.g\. dust\.a_v"):
        load_config("fit_synthetic", overrides={"fit.free": {"dust": {"a_v": {"uniform": [0, 2]}}}})


def test_several_problems_come_in_one_text():
    message = refusal({"observation": {"redshft": 1}, "instrument": {"name": "muse", "fov": "2 kg"}})
    assert "3 problems" in message
    for word in ("observation.redshift:", "instrument.fov: expected a quantity in arcsec", "did you mean 'redshift'?"):
        assert word in message


def test_the_message_names_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("observation: {redshift: -1}\ninstrument: {name: muse}\n")
    assert refusal(path).startswith(f"{path}: observation.redshift: expected a number >= 0")


# ---------------------------------------------------------------- sources and YAML


def test_an_unknown_configuration_names_the_packaged_ones():
    assert "did you mean 'quickstart'? (packaged: fit_synthetic, manga_tng, muse_tng, quickstart" in refusal(
        "quickstrat"
    )
    assert "no file 'nowhere/quickstart.yaml'; did you mean 'quickstart'?" in refusal("nowhere/quickstart.yaml")
    assert "no file" in refusal(Path("nowhere.yaml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1\nb: 2\n", "line 2, column 2: expected YAML"),
        ("observation: {redshift: 1}\nobservation: {redshift: 2}\n", "the key 'observation' is given twice"),
        ("a: !!python/object:os.system 1\n", "line 1"),
        ("", "got an empty file"),
        ("- 1\n", "expected 'key: value' pairs, got a list"),
        ("1: 2\nobservation: {redshift: 1}\ninstrument: {name: muse}\n", "expected keys that are text"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text, words):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    message = refusal(str(path))
    assert message.startswith(str(path))
    assert words in message


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refusal(path)


def test_yaml_scalars_mean_what_they_look_like(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("observation: {redshift: 5e-2, align: none}\ninstrument: {name: muse}\nengine: {chunk: 1e3}\n")
    config = load_config(path)
    assert (config.observation.redshift, config.observation.align, config.engine.chunk) == (0.05, "none", 1000)
    path.write_text("observation: {redshift: 1, dec: 1:30}\ninstrument: {name: muse}\n")  # 90 in YAML 1.1
    assert "observation.dec: expected a quantity in deg" in refusal(path)


# ---------------------------------------------------------------- overrides


def test_overrides_are_read_as_yaml_and_change_only_their_key():
    config = load_config(
        "quickstart",
        {
            "observation.inclination": "40 deg",
            "observation.offset": "[1 arcsec, 2]",
            "observation.position_angle": "null",
            "engine.chunk": "1e2",
            "instrument.psf.fwhm": 1.5,
            "instrument.lsf": None,
        },
    )
    whole = load_config("quickstart")
    assert (config.observation.inclination, config.observation.position_angle) == (40.0, None)
    assert (config.observation.offset, config.engine.chunk) == ((1.0, 2.0), 100)
    assert (config.instrument.psf.fwhm, config.instrument.psf.kind, config.instrument.lsf) == (1.5, "gaussian", None)
    assert (config.galaxy, config.ssp, config.output) == (whole.galaxy, whole.ssp, whole.output)


def test_an_override_below_a_null_or_absent_section_creates_it_and_null_removes_it():
    for source in ("quickstart", BASE, load_config(BASE)):
        noisy = load_config(source, {"noise.signal_to_noise": "50"})
        assert (noisy.noise.signal_to_noise, noisy.noise.seed) == (50.0, 1)
        assert load_config(noisy, {"noise": "null"}).noise is None
    section = {**BASE, "instrument": {"name": "muse", "psf": None}}
    assert load_config(section).instrument.psf is None
    assert load_config(section, {"instrument.psf.fwhm": "1 arcsec"}).instrument.psf.fwhm == 1.0


def test_an_override_through_a_value_or_without_a_key_is_refused():
    message = refusal("quickstart", {"pipeline.foo": 1})
    assert message == "override 'pipeline.foo': expected 'pipeline' to be a section, got the value 'stellar'"
    assert "expected 'observation.offset' to be a section" in refusal("quickstart", {"observation.offset.x": 1})
    for key in ("", "noise.", "a..b"):
        assert "expected a dotted key" in refusal("quickstart", {key: 1})
    assert "override 'noise=[1'" in refusal("quickstart", {"noise": "[1"})


COMPONENT = {
    "mass": "1e10 Msun",
    "light": {"profile": "exponential", "scale_length": "2 kpc"},
    "rotation": {"curve": "arctan", "velocity": "200 km/s", "turnover_radius": "1 kpc"},
    "population": {"log_age": 9.5, "metallicity": 0.02},
}
SMOOTH = BASE | {
    "galaxy": {"reader": "components", "components": [{"name": "disc", **COMPONENT}, {"name": "bulge", **COMPONENT}]}
}


def test_overrides_name_smooth_components():
    changes = {
        "galaxy.disc.mass": "2e10 Msun",
        "galaxy.bulge.rotation": "null",
        "galaxy.components.disc.rotation.velocity": 150,
        "galaxy.points": 500,
    }
    for source in (SMOOTH, load_config(SMOOTH), load_config(SMOOTH).model_dump()):
        disc, bulge = load_config(source, changes).galaxy.components
        assert (disc.name, disc.mass, disc.rotation.velocity, disc.light.scale_length) == ("disc", 2e10, 150.0, 2.0)
        assert (bulge.name, bulge.mass, bulge.rotation) == ("bulge", 1e10, None)
        whole = load_config(source, {"galaxy.bulge": COMPONENT | {"mass": 5}, "galaxy.points": 500}).galaxy
        assert (whole.components[1].name, whole.components[1].mass, whole.points) == ("bulge", 5.0, 500)


def test_components_can_be_pickled():
    """Their settings are made from the fields of their modules: no module has these classes."""
    config = load_config(SMOOTH)
    assert pickle.loads(pickle.dumps(config)) == config


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("galaxy.disk.mass", "(disc, bulge), or a key of the section galaxy, got 'disk'; did you mean 'disc'?"),
        ("galaxy.components.ring.mass", "expected the name of a component (disc, bulge), got 'ring'"),
        ("galaxy.pionts", "got 'pionts'; did you mean 'points'?"),
        ("galaxy.disc", "expected 'galaxy.disc' to be a section, got the value 1"),
        ("galaxy.disc.mass.value", "expected 'galaxy.disc.mass' to be a section, got the value '1e10 Msun'"),
    ],
)
def test_an_override_of_no_component_is_refused(key, words):
    message = refusal(SMOOTH, {key: 1})
    assert message.startswith(f"override '{key}': ")
    assert message.endswith(words)


def test_the_source_is_not_changed():
    source = {**copy.deepcopy(BASE), "noise": {"signal_to_noise": 5}}
    before = copy.deepcopy(source)
    load_config(source, {"observation.ra": 3, "noise.seed": 2, "instrument.psf.fwhm": 1, "galaxy.reader": "synthetic"})
    assert source == before
    config = load_config(source)
    assert load_config(config) is config
    load_config(config, {"noise.seed": 9})
    assert config.noise.seed == 1


def test_an_instrument_recorded_in_full_is_not_renamed():
    recorded = load_config("quickstart")
    for source in (recorded, recorded.model_dump()):
        assert "instrument={name: manga}" in refusal(source, {"instrument.name": "manga"})
        assert load_config(source, {"instrument": "{name: manga}"}).instrument.pixel_scale == 0.5
        assert load_config(source, {"instrument.name": "muse"}) == recorded
    assert load_config("quickstart", {"instrument.name": "manga"}).instrument.n_spaxel_xy == (20, 20)


# ---------------------------------------------------------------- instruments


def test_muse_is_the_nominal_wide_field():
    muse = load_config(BASE).instrument
    assert (muse.pixel_scale, muse.fov, muse.n_spaxel_xy, muse.aperture) == (0.2, (60.0, 60.0), (300, 300), None)
    wave = muse.wavelength
    assert (wave.start, wave.stop, wave.step, wave.sampling, wave.medium) == (4750.0, 9350.0, 1.25, "linear", "air")
    assert wave.n_wave == 3681
    published = np.polynomial.Polynomial(muse.lsf.polynomial)(np.array([4700.0, 7500.0]))
    np.testing.assert_allclose(published, [3.02, 2.45], atol=0.01)


def test_manga_is_the_logarithmic_cube():
    manga = load_config(BASE, {"instrument.name": "manga"}).instrument
    assert (manga.n_spaxel_xy, manga.aperture.shape, manga.psf.fwhm) == ((65, 65), "hexagon", 2.477)
    wave = manga.wavelength
    assert (wave.sampling, wave.medium, wave.n_wave) == ("log", "vacuum", 4563)
    assert np.log10(wave.start) == pytest.approx(3.5589, abs=1e-8)
    assert np.log10(wave.stop) == pytest.approx(4.0151, abs=1e-7)
    points = dict(zip(manga.lsf.wavelength, manga.lsf.resolving_power, strict=True))
    assert (points[3622.0], points[6650.0], points[10353.0]) == (1157.0, 1933.0, 2052.0)


def test_psf_and_wavelength_merge_while_lsf_and_aperture_replace():
    instrument = load_config(
        BASE,
        {
            "instrument.wavelength.stop": "5000 Angstrom",
            "instrument.psf": {"fwhm": "1 arcsec"},
            "instrument.lsf": {"fwhm": "2.5 Angstrom"},
            "instrument.aperture": {"shape": "circle", "size": "3 arcsec"},
            "instrument.fov": ["4 arcsec", "2 arcsec"],
        },
    ).instrument
    assert (instrument.wavelength.start, instrument.wavelength.stop, instrument.wavelength.n_wave) == (4750, 5000, 201)
    assert (instrument.psf.kind, instrument.psf.fwhm) == ("gaussian", 1.0)
    assert (instrument.lsf.polynomial, instrument.lsf.fwhm, instrument.lsf.includes_pixel) == (None, (2.5,), False)
    assert (instrument.aperture.shape, instrument.aperture.size) == ("circle", (3.0,))
    assert instrument.n_spaxel_xy == (20, 10)
    manga = {"instrument.name": "manga", "instrument.aperture.shape": "circle"}
    assert load_config(BASE, manga).instrument.aperture.size is None


def test_null_switches_psf_lsf_and_aperture_off():
    off = {"instrument": {"name": "manga", "psf": None, "lsf": None, "aperture": None}}
    instrument = load_config({**BASE, **off}).instrument
    assert (instrument.psf, instrument.lsf, instrument.aperture) == (None, None, None)


@pytest.mark.parametrize(("stop", "n_wave"), [(4750, 1), (4751.25, 2), (4751.24, 1), (4751.2499, 2), (4752.4, 2)])
def test_the_last_bin_centre_is_not_beyond_stop(stop, n_wave):
    assert load_config(BASE, {"instrument.wavelength.stop": stop}).instrument.wavelength.n_wave == n_wave


def test_the_step_is_in_dex_where_sampling_is_log():
    log = {"instrument.wavelength": {"sampling": "log", "step": "1e-4 dex", "start": 1000, "stop": 10000}}
    assert load_config(BASE, log).instrument.wavelength.n_wave == 10001
    wrong = {"instrument.wavelength": {"sampling": "log", "step": "1 Angstrom"}}
    assert "instrument.wavelength.step: expected a quantity in dex" in refusal(BASE, wrong)
    assert load_config(BASE, {"instrument.wavelength.step": "0.1 nm"}).instrument.wavelength.step == pytest.approx(1.0)


def test_an_instrument_of_the_users_own_is_a_path_and_its_record_does_not_need_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "pixel_scale: 1 arcsec\nfov: [3 arcsec, 2 arcsec]\n"
        "wavelength: {start: 5000, stop: 5100, step: 1, medium: vacuum}\n"
    )
    config = load_config(BASE, {"instrument.name": str(path)})
    assert (config.instrument.n_spaxel_xy, config.instrument.wavelength.n_wave) == ((3, 2), 101)
    path.unlink()
    assert load_config(config.model_dump()) == config


# ---------------------------------------------------------------- pipelines


@pytest.mark.parametrize(
    ("name", "fields"), [("stellar", ["dust_column"]), ("stellar_density", ["surface_density", "dust_column"])]
)
def test_stellar_has_four_lists(name, fields):
    pipeline = load_pipeline(name)
    lists = (pipeline.fields, pipeline.scene, pipeline.paint, pipeline.cube)
    names = [[stage.name for stage in stages] for stages in lists]
    assert names == [fields, ["orient", "point"], ["stars"], ["psf", "dust", "aperture", "noise"]]
    assert pipeline.name == name


def test_a_pipeline_of_the_users_own_is_a_path_and_stages_take_options(tmp_path, monkeypatch):
    path = tmp_path / "mine.yaml"
    path.write_text("scene: [orient, {point: {a: 1}}]\npaint: [stars: null]\n")
    pipeline = load_pipeline(str(path))
    assert [(stage.name, stage.options) for stage in pipeline.scene] == [("orient", {}), ("point", {"a": 1})]
    assert (pipeline.paint[0].name, pipeline.cube) == ("stars", ())
    assert type(pipeline).model_validate(pipeline.model_dump()) == pipeline
    config = load_config(BASE, {"pipeline": "mine.yaml"})
    monkeypatch.chdir("/")  # the record of a run does not depend on the folder in which it was made
    assert load_config(yaml.safe_load(config.to_yaml())) == config
    path.write_text("scene: [{point: 3}, 4]\npaint: []\ncubes: []\n")
    message = refusal(BASE, {"pipeline": str(path)})
    for word in (str(path), "scene[0]", "scene[1]", "paint: expected at least 1", "did you mean 'cube'?"):
        assert word in message


# ---------------------------------------------------------------- records, schema, packaged files


@pytest.mark.parametrize("name", resource_names("configs"))
def test_every_packaged_configuration_loads_and_its_record_reads_back_equal(name, tmp_path):
    config = load_config(name, {"noise.signal_to_noise": "1e1", "observation.offset": "[0.1, -3e-5]"})
    path = tmp_path / "record.yaml"
    path.write_text(config.to_yaml())
    assert load_config(path) == config
    assert load_config(config.model_dump()) == config
    assert load_config(json.loads(config.model_dump_json())) == config
    assert "- 0.1 arcsec" in config.to_yaml()


@pytest.mark.parametrize("library", ["1e5", "null", "no", "Modèle: 1 #2", "12:30"])
def test_a_record_is_ascii_and_keeps_text_that_looks_like_something_else(library, tmp_path):
    path = tmp_path / "record.yaml"
    path.write_text(load_config(BASE, {"ssp": {"library": library}}).to_yaml(), encoding="ascii")
    assert load_config(path).ssp.library == library


def test_every_packaged_pipeline_loads_and_is_described():
    assert all(load_pipeline(name).description for name in resource_names("pipelines"))


@pytest.fixture(scope="module")
def schema():
    return json.loads(printed("schema"))


def test_the_schema_covers_every_section_and_reader(schema):
    assert set(schema["properties"]) == set(RunConfig.model_fields)
    assert schema["required"] == ["observation"]
    assert schema["anyOf"] == [{"required": ["instrument"]}, {"required": ["observations"]}]
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["InstrumentSettings"]["required"] == ["name"]
    assert schema["$defs"]["WavelengthSettings"]["required"] == []
    text = json.dumps(schema["properties"]["galaxy"]) + json.dumps(schema["$defs"])
    for name in REGISTRIES["readers"].names():
        assert f'"const": "{name}"' in text or f'"default": "{name}"' in text


def test_the_schema_accepts_what_loads_and_refuses_what_does_not(schema):
    jsonschema = pytest.importorskip("jsonschema")

    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for name in resource_names("configs"):
        data, config = yaml.safe_load(resource("configs", name).read_text()), load_config(name)
        for accepted in (data, yaml.safe_load(config.to_yaml()), json.loads(config.model_dump_json())):
            validator.validate(accepted)
    for wrong in ({"foo": 1}, {"instrument": {"fov": 5}}, {"galaxy": {"seed": 1}}):
        assert not validator.is_valid({**data, **wrong})

"""A stage from outside with a section and parameters of its own: from YAML to the model, a fit, samples and files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

import equinox as eqx
import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from command_line import printed
from installed_package import write_dist_info
from pydantic import Field
from small import few_stars, mock_data, muse

from rubix_like import ConfigError, FitResult, Pipeline, fit, load_config, log_posterior, sample
from rubix_like.extend import AbstractCubeStage, AbstractSettings, Angstrom, Number, Parameter, StageReport, per_bin

TRUTH, CENTRE = 0.3, 5100.0
NAME = "screen.optical_depth"


class ScreenSettings(AbstractSettings):
    """A screen whose optical depth goes as a power of the wavelength."""

    optical_depth: Annotated[Number, Field(ge=0, le=5), Parameter()]
    """Optical depth at `centre`."""
    centre: Annotated[Angstrom, Field(gt=0), Parameter()] = CENTRE
    """Where the optical depth
    is given."""
    slope: Number = 2.0


class Screen(AbstractCubeStage):
    """flux x exp(-optical_depth (centre / wavelength)^slope)."""

    section_type: ClassVar = ScreenSettings
    wavelength: np.ndarray = eqx.field(metadata=per_bin())
    slope: float = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup, options):
        return cls(setup.instrument.bins.wavelength, setup.config.section("screen").slope)

    def __call__(self, cube, parameters, key):
        own = parameters.screen
        depth = own.optical_depth * (own.centre / jnp.asarray(self.wavelength)) ** self.slope
        return eqx.tree_at(lambda c: c.flux, cube, cube.flux * jnp.exp(-depth)[None, :])

    def spatial(self, parameters):
        return None

    def report(self):
        return StageReport()


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the pipeline `screened.yaml`, which names the stage of an installed package."""
    folder = tmp_path_factory.mktemp("screen")
    own = "test_plug_in_parameters:Screen\n"
    entry_points = f"[rubix_like.cube_stages]\nscreen = {own}[rubix_like.scene_stages]\ndust = {own}"
    write_dist_info(folder, "screen", entry_points)
    (folder / "misnamed.yaml").write_text("scene: [dust]\npaint: [stars]\n")
    (folder / "screened.yaml").write_text("scene: [orient, point]\npaint: [stars]\ncube: [screen]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


def sections(folder: Path, **screen):
    return {
        "observation": {"redshift": 0.05, "inclination": 0, "position_angle": 0},
        "instrument": muse(5000, 5200, 10, fov="0.4 arcsec"),
        "pipeline": str(folder / "screened.yaml"),
        "engine": {"method": "direct", "precision": "float64"},
        "devices": {"data": 1},
        "fit": {"free": {NAME: {"uniform": [0, 1]}}, "starts": 1, "candidates": 1},
        "screen": screen,
    }


@pytest.fixture(scope="module")
def data(installed):
    """What the model shows without the screen, dimmed as the formula says."""
    blank, config = mock_data((2, 2, 21)), load_config(sections(installed, optical_depth=0.1))
    posterior = log_posterior(config, blank, galaxy=few_stars(20, 0.1)).problem.posterior
    bare = eqx.tree_at(lambda p: p.forward.parameters.screen.optical_depth, posterior, jnp.zeros(()))
    flux = jax.jit(lambda forward: forward.observed({}).voxels.flux)(bare.forward)
    flux = np.asarray(flux) * np.exp(-TRUTH * (CENTRE / blank.wavelength) ** 2)
    return replace(blank, flux=flux, variance=np.full(flux.shape, (1e-3 * flux.mean()) ** 2))


@pytest.fixture(scope="module")
def result(installed, data):
    return fit(sections(installed, optical_depth=0.1), data, galaxy=few_stars(20, 0.1))


@pytest.mark.slow
def test_a_fit_finds_its_value(result):
    assert result.converged
    assert abs(float(result.values[NAME]) - TRUTH) < 0.1 * float(result.sigma[NAME])
    assert 0 < float(result.sigma[NAME]) < 1e-3
    assert float(result.parameters.screen.optical_depth) == pytest.approx(float(result.values[NAME]), rel=1e-9)
    assert float(result.parameters.screen.centre) == CENTRE


@pytest.mark.slow
def test_the_file_says_what_it_is(result, tmp_path):
    path = result.write(tmp_path / "fit.h5")
    with h5py.File(path) as file:
        meant = {"unit": "", "description": "Optical depth at `centre`"}
        assert meant.items() <= dict(file[f"parameters/{NAME}"].attrs).items()
        assert dict(file[f"model_parameters/{NAME}"].attrs) == meant
        place = {"unit": "Angstrom", "description": "Where the optical depth is given"}
        assert dict(file["model_parameters/screen.centre"].attrs) == place
    back = FitResult.read(path)
    assert jax.tree.structure(back.parameters) == jax.tree.structure(result.parameters)
    assert [float(own) for own in jax.tree.leaves(back.parameters.screen)] == [CENTRE, float(result.values[NAME])]
    (tmp_path / "again.yaml").write_text(back.config)
    assert load_config(tmp_path / "again.yaml").section("screen") == ScreenSettings(optical_depth=0.1)
    assert "screen:\n  optical_depth: 0.1\n  centre: 5100.0 Angstrom\n  slope: 2.0\n" in back.config


@pytest.mark.long
def test_it_is_sampled_by_name(installed, data, result):
    drawn = sample(
        sections(installed, optical_depth=0.1),
        data,
        galaxy=few_stars(20, 0.1),
        fitted=result,
        sampling={"method": "geovi", "variational": {"samples": 4, "draws": 100}},
    )
    assert float(np.std(drawn.values[NAME])) == pytest.approx(float(result.sigma[NAME]), rel=0.3)


def test_the_section_is_checked_and_in_the_schema(installed):
    properties = json.loads(printed("schema"))["properties"]["screen"]["properties"]
    assert properties["optical_depth"]["description"] == "Optical depth at `centre`."
    assert properties["centre"]["anyOf"][0]["description"] == "in Angstrom"
    wrong = sections(installed, optical_depth=9, slop=1) | {"observation": {"redshift": -1}}
    with pytest.raises(ConfigError, match=r"3 problems") as caught:
        load_config(wrong)
    for words in (
        "observation.redshift: expected",
        "screen.optical_depth: expected a number <= 5, got",
        "screen.slop'",
    ):
        assert words in str(caught.value)
    for changed, words in (
        ({"screen": None}, r"screen.optical_depth: expected a number \(>= 0, <= 5\), got none"),
        ({"screen": {"optical_dept": 1}}, "unknown key 'screen.optical_dept'; did you mean 'optical_depth'"),
        ({"scren": {}}, "unknown key 'scren'; did you mean 'screen'"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config({**sections(installed, optical_depth=1), **changed})
    changed = load_config(sections(installed, optical_depth=1), overrides={"screen.optical_depth": "0.5"})
    assert changed.section("screen").optical_depth == 0.5
    assert load_config(dict(changed)) == changed


def test_a_stage_with_settings_cannot_have_the_name_of_a_section_of_every_run(installed):
    """Where a pipeline uses it; it does not change the section."""
    misnamed = sections(installed, optical_depth=1) | {"pipeline": str(installed / "misnamed.yaml")}
    with pytest.raises(
        ConfigError, match=r"pipeline.*: expected a stage whose section has a name of its own, got 'dust'"
    ):
        load_config(misnamed)
    assert load_config(sections(installed, optical_depth=1) | {"dust": {"a_v": 0.5}}).dust.a_v == 0.5
    assert "optical_depth" not in str(json.loads(printed("schema"))["properties"]["dust"])


def test_a_section_that_no_stage_reads_is_noted(installed):
    own, galaxy = sections(installed, optical_depth=1), few_stars(20, 0.1)
    said = "the pipeline 'stellar' has no stage 'screen': the section screen has no effect"
    for changed, expected in (({}, []), ({"pipeline": "stellar"}, [said])):
        notes = Pipeline.from_config(load_config({**own, **changed}), galaxy).notes
        assert [note for note in notes if "no effect" in note] == expected


def test_its_prior_is_held_to_its_limits(installed):
    config = load_config(sections(installed, optical_depth=0.1))
    for free, words in (
        ({NAME: {"uniform": [0, 9]}}, f"{NAME}: expected a prior within the parameter's limits, got one that reaches"),
        ({"screen.centre": {"normal": [5000, 5000]}}, "reaches -1.5e\\+04 Angstrom at 4 sigma: expected a number > 0"),
        ({"screen.slope": {"uniform": [0, 1]}}, "unknown parameter 'screen.slope'"),
    ):
        with pytest.raises(ConfigError, match=words):
            log_posterior(config, mock_data((2, 2, 21)), free, galaxy=few_stars(20, 0.1))


def test_one_of_two_observations_has_the_stage(installed):
    """The section of an observation holds the keys that differ; the other observation is as without the stage. The
    gradient of a call is exp's own."""
    several = {"clear": {"pipeline": "stellar"}, "dim": {"screen": {"centre": 5000}}}
    own = sections(installed, optical_depth=0.1) | {"observations": several, "fit": None}
    galaxy = few_stars(20, 0.1)
    pipeline = Pipeline.from_config(own, galaxy)
    cubes = pipeline.observe(galaxy)
    depth = (5000 / np.asarray(cubes["dim"].bins.wavelength)) ** 2
    clear = np.asarray(cubes["clear"].flux)
    np.testing.assert_allclose(cubes["dim"].flux, clear * np.exp(-0.1 * depth), rtol=1e-12)
    assert not any("no stage 'screen'" in note for note in pipeline.notes)
    assert "screen" not in yaml.safe_load(cubes["clear"].meta["config"])
    dimmer = pipeline.observe(galaxy, {f"observations.dim.{NAME}": 0.4})["dim"]
    np.testing.assert_allclose(dimmer.flux, clear * np.exp(-0.4 * depth), rtol=1e-12)

    def dimmed(value):
        return pipeline.observe(galaxy, {f"observations.dim.{NAME}": value})["dim"].flux.sum()

    expected = -(clear * depth * np.exp(-0.4 * depth)).sum()
    assert float(jax.grad(dimmed)(0.4)) == pytest.approx(expected, rel=1e-10)
    named = load_config(own, overrides={"observations.clear.screen.centre": 4000})  # its pipeline does not have it
    assert any("no stage 'screen'" in note for note in Pipeline.from_config(named, galaxy).notes)
    with pytest.raises(ConfigError, match=r"observations\.dim: screen\.optical_depth: expected a number <= 5, got 9"):
        load_config(own, overrides={f"observations.dim.{NAME}": 9})
    with pytest.raises(ConfigError, match=r"unknown key 'observations\.dim\.skreen'"):
        load_config(own, overrides={"observations.dim.skreen.centre": 9})

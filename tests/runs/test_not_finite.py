"""A run or a training set with NaN or inf in its cubes ends with an error that names what made them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import main
from installed_package import write_dist_info
from small import NO_DATA, muse

import rubix_like as rl
from rubix_like.extend import (
    AbstractCubeStage,
    AbstractSceneStage,
    AbstractSource,
    StageReport,
    build_painter,
    plan_source,
    to_scene,
)

ENTRY_POINTS = """[rubix_like.scene_stages]
fling = test_not_finite:Fling
[rubix_like.paint_stages]
burning = test_not_finite:Burning
[rubix_like.cube_stages]
scale = test_not_finite:Scale
widen = test_not_finite:Widen
"""

RUN = {
    "galaxy": {"reader": "synthetic", "n_stars": 40, "n_gas": 20},
    "observation": {"redshift": 0.05, "align": "none"},
    "instrument": muse(5000, 5060, 20, "2 arcsec", pixel_scale=0.5),
    "engine": {"method": "direct", "velocity_range": 1000, "deposit": "nearest"},
    "devices": {"data": 2},
}


class Scale(AbstractCubeStage):
    """Multiplies the southern half by a factor; with `bits` it says that it has no data."""

    factor: np.ndarray
    bits: bool = eqx.field(static=True)
    margin: int = eqx.field(static=True, default=0)

    @classmethod
    def build(cls, setup, options):
        return cls(np.asarray(options.get("by", np.nan)), bool(options.get("bits")))

    def spatial(self, parameters):
        return None

    def report(self):
        return StageReport(voxel_bits=NO_DATA if self.bits else 0)

    def __call__(self, cube, parameters, key):
        south = jnp.arange(cube.flux.shape[0])[:, None] < cube.flux.shape[0] // 2
        flux = jnp.where(south, cube.flux * self.factor, cube.flux)
        bits = jnp.broadcast_to(jnp.where(south, NO_DATA, 0), flux.shape) if self.bits else None
        return eqx.tree_at(lambda c: (c.flux, c.bits), cube, (flux, bits), is_leaf=lambda leaf: leaf is None)


class Widen(Scale):
    """Returns fluxes in 64 bits, as numpy's tables make them."""

    def __call__(self, cube, parameters, key):
        return eqx.tree_at(lambda c: c.flux, cube, cube.flux.astype("float64"))


class Fling(AbstractSceneStage):
    """Puts the first star nowhere."""

    @classmethod
    def build(cls, setup, options):
        return cls()

    def __call__(self, scene, parameters):
        return eqx.tree_at(lambda s: s.amount, scene, scene.amount.at[0].set(jnp.nan))


class Burning(AbstractSource):
    """Stars, each of them far too bright for 32 bits."""

    painter: object
    kind = "stars"

    @classmethod
    def plan(cls, setup, options):
        return plan_source(setup, setup.library.templates(), cls.kind)

    @classmethod
    def build(cls, setup, plan, options):
        return cls(build_painter(plan, setup))

    def scene(self, particles, alignment, arcsec_per_kpc):
        coordinates = {"metallicity": jnp.log10(particles.metallicity), "age": particles.log_age}
        amount = particles.initial_mass * 1e20 * 1e20
        return to_scene(particles, amount, coordinates, alignment, arcsec_per_kpc)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """`pipeline(text)`: the path of a pipeline of the plug-ins, which are announced."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("plug_ins")
        write_dist_info(folder, "makers", ENTRY_POINTS)
        patch.syspath_prepend(folder)

        def of(scene="orient, point", paint="stars", cube="psf, noise"):
            path = folder / "own.yaml"
            path.write_text(f"scene: [{scene}]\npaint: [{paint}]\ncube: [{cube}]\n")
            return str(path)

        yield of


MAKERS = {
    "cube stage, NaN": ({"cube": "psf, scale, noise"}, {}, "stage 'scale'"),
    "cube stage, inf": ({"cube": "psf, {scale: {by: 1.0e+38}}, noise"}, {"galaxy.stellar_mass": 1e14}, "stage 'scale'"),
    "scene stage": ({"scene": "orient, fling, point"}, {}, "stage 'fling'"),
    "source": ({"paint": "stars, burning"}, {}, "source 'burning'"),
    "variance": ({"cube": "psf, {scale: {by: 1.0e+25}}, noise"}, {"noise": {"signal_to_noise": 1e-4}}, "stage 'noise'"),
}
HOW = {
    "slabs": {"engine.slab": 20},
    "pointings": {"observation.pointings": [{"offset": [0, 0]}, {"offset": [1, 0]}]},
    "parts of bins": {"devices": {"data": 2, "output": "sharded"}},
}
CASES = [pytest.param(*case, id=name) for name, case in MAKERS.items()]
CASES += [
    pytest.param({"cube": "psf, scale, noise"}, how, "stage 'scale'", id=name, marks=pytest.mark.slow(4))
    for name, how in HOW.items()
]


@pytest.mark.parametrize(("stages", "changes", "maker"), CASES)
def test_a_cube_with_nan_or_inf_is_not_written(pipeline, tmp_path, stages, changes, maker):
    config = rl.load_config({**RUN, "pipeline": pipeline(**stages)}, changes)
    output = tmp_path / "cube.fits"
    with pytest.raises(ValueError, match=f"expected finite numbers, got NaN or inf .*the {maker}.* makes them first"):
        rl.run(config, output, quiet=True)
    assert not list(tmp_path.iterdir())


def test_voxels_that_a_stage_masks_may_have_no_number(pipeline, tmp_path):
    config = rl.load_config({**RUN, "pipeline": pipeline(cube="psf, {scale: {bits: true}}, noise")})
    cube = rl.run(config, tmp_path / "cube.fits", quiet=True)
    assert np.isnan(cube.flux[:2]).all()
    assert (np.asarray(cube.mask)[:2] == NO_DATA).all()
    assert np.isfinite(cube.flux[2:]).all()
    assert (tmp_path / "cube.fits").exists()


@pytest.mark.usefixtures("jax_settings")
def test_the_command_ends_as_for_other_data_that_cannot_be_used(pipeline, tmp_path, capsys):
    path = tmp_path / "run.yaml"
    path.write_text(rl.load_config({**RUN, "pipeline": pipeline(cube="psf, scale, noise")}).to_yaml())
    assert main(["run", str(path), "--output", str(tmp_path / "cube.fits")]) == 2
    assert "the stage 'scale' makes them first" in capsys.readouterr().err
    assert not (tmp_path / "cube.fits").exists()


@pytest.mark.slow(4)
def test_a_catalogue_records_it(pipeline, tmp_path):
    config = rl.load_config({**RUN, "pipeline": pipeline(cube="psf, scale, noise")})
    outcome = rl.run_catalogue(config, [{"name": "first", "observation.inclination": 10.0}], output=tmp_path / "cubes")
    assert "the stage 'scale' makes them first" in outcome.summary.read_text()


def test_a_training_set_is_not_written(pipeline, tmp_path):
    config = rl.load_config({**RUN, "pipeline": pipeline(cube="psf, scale, noise")})
    draws = {"observation.inclination": [10.0, 20.0]}
    with pytest.raises(ValueError, match=r"simulation 0: expected finite numbers.*the stage 'scale' makes them first"):
        rl.simulate(config, draws, output=tmp_path / "set")
    assert not list(tmp_path.glob("set/*.h5"))


def test_a_stage_in_64_bits_keeps_the_precision_of_the_run(pipeline):
    fluxes = []
    for stages in ("aperture", "widen, aperture"):
        planned = rl.Pipeline.from_config({**RUN, "pipeline": pipeline(cube=stages)})
        fluxes.append(planned(rl.load_galaxy(RUN)).flux)
    assert fluxes[1].dtype == np.float32
    np.testing.assert_array_equal(*fluxes)

"""Arms of a spectrograph observed by one program: the cubes of the arms' own programs, as accurate, on any devices."""

import equinox as eqx
import jax
import numpy as np
import pytest
from hlo import collectives
from small import few_stars

import rubix_like as rl
from rubix_like.config.loading import arms_of
from rubix_like.extend import resolve, take_census
from rubix_like.forward.arms import ArmPipelines

GALAXY = few_stars(40, 0.3)
ARMS = {
    "blue": {"wavelength": {"start": 3900, "stop": 4060, "step": 4}, "lsf": {"fwhm": 20}},
    "red": {"wavelength": {"start": 6500, "stop": 6700, "step": 4}, "lsf": {"fwhm": 40}},
}
RUN = {
    "observation": {"redshift": 0.05, "inclination": 40, "position_angle": 0, "align": "none"},
    "instrument": {"name": "muse", "fov": "1 arcsec", "psf": {"fwhm": "0.4 arcsec"}, "arms": ARMS},
    "engine": {"method": "basis", "precision": "float64", "tolerance": 3e-4, "deposit": "cic"},
}


def planned(sections, mesh=None):
    """The arms' pipelines together, and their configurations."""
    configs = list(arms_of(rl.load_config(RUN | sections)).values())
    resolved = [resolve(own) for own in configs]
    census = [take_census(own, how, [GALAXY]) for own, how in zip(configs, resolved, strict=True)]
    return ArmPipelines.plan(configs, resolved, census, mesh=mesh), configs


def step(pipeline):
    return float(pipeline.tables.paint[0].painter.nodes.step)


def rms_error(cube, true):
    """Largest rms error of a spaxel's spectrum, relative to its mean."""
    error, level = np.asarray(cube.flux) - true.flux, np.mean(true.flux, axis=2)
    return float((np.sqrt(np.mean(error**2, axis=2)) / level).max())


@pytest.mark.slow(12)
def test_arms_together_are_the_arms_alone():
    """On eight devices the cubes and maps of each arm's own program on one, to 1e-12, with as many sums over devices as
    one arm has; the arm that gets closer velocity nodes than it would have alone is no further from the direct sum."""
    one, with_maps = rl.make_mesh(1), {"products": {"losvd": None}}
    together, configs = planned(with_maps)
    assert together.together == (True,)
    alone = [rl.Pipeline.from_config(own, GALAXY, mesh=one) for own in configs]
    assert step(together.arms[0]) == step(together.arms[1]) == step(alone[0]) < step(alone[1])
    cubes, alike = together(GALAXY), planned(with_maps, one)[0].arms
    sums = [collectives(own.lower(GALAXY).compile().as_text()) for own in (together, together.arms[0])]
    assert sums[0] == sums[1] != []
    assert not np.allclose(cubes[0].maps.before.light, cubes[1].maps.before.light, rtol=1e-3)
    for cube, own in zip(cubes, (own(GALAXY) for own in alike), strict=True):
        for name in ("light", "v_light", "sigma_mass", "log_age_light"):
            found, expected = (getattr(maps.after, name) for maps in (cube.maps, own.maps))
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12 * np.nanmax(expected))
        np.testing.assert_allclose(cube.flux, own.flux, rtol=0, atol=1e-12 * np.max(own.flux))
        np.testing.assert_allclose(cube.mean_v_los, own.mean_v_los, atol=1e-9)
        assert float(cube.counters.n_particles) == float(own.counters.n_particles) == 40
    config = rl.load_config(configs[1], {"engine.method": "direct"})
    true = rl.Pipeline.from_config(config, GALAXY, mesh=one)(GALAXY)
    assert rms_error(cubes[1], true) < rms_error(alone[1](GALAXY), true)


@pytest.mark.long
def test_gradients_of_arms_together():
    """With respect to all that stars have: the sum of those of the arms' own programs."""
    together = planned({}, rl.make_mesh(1))[0]
    rng = np.random.default_rng(2)
    weights = [rng.normal(size=(5, 5, own.plan.n_wave)) for own in together.arms]

    def total(galaxy, observe):
        return sum((weight * cube.flux).sum() for weight, cube in zip(weights, observe(galaxy), strict=True))

    found, own = (
        jax.grad(total)(jax.tree.map(jax.numpy.asarray, GALAXY), observe)
        for observe in (together, lambda galaxy: [arm(galaxy) for arm in together.arms])
    )
    for value, expected in zip(jax.tree.leaves(found), jax.tree.leaves(own), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_arms_without_anything_in_common_are_not_observed_together():
    """By method `direct`, where each particle has its own spectrum in each arm; and in other fields."""
    assert planned({"engine": RUN["engine"] | {"method": "direct"}})[0] is None
    config = next(iter(arms_of(rl.load_config(RUN)).values()))
    other = rl.load_config(config, {"observation.offset": [0.1, 0.0]})
    pipelines = [rl.Pipeline.from_config(own, GALAXY) for own in (config, other)]
    assert not eqx.tree_equal(pipelines[0].parameters, pipelines[1].parameters)
    assert ArmPipelines.of(pipelines) is None

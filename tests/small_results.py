"""Results of fits and of samplings of which nothing was computed, and the state of a search."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from free_numbers import free_of, normal_about, search_of, statuses
from small import make_cube

from rubix_like import Cube, FitResult, Parameters, SampleResult, load_config
from rubix_like.extend import Footprint, Meta, Sampled, Simulations, WavelengthBins
from rubix_like.inference.checks.uncertainties import Edges
from rubix_like.inference.checks.verdict import Quality, Scatter, Verdict
from rubix_like.inference.results.results import values_of
from rubix_like.inference.samplers.convergence import convergence_of
from rubix_like.inference.simulation.simulation_files import Manifest


def fit_result():
    """The result of a fit of a 3 x 5 cube of which nothing was computed; one voxel was left out."""
    free = free_of(
        ("observation.inclination", {"uniform": [20, 80]}, (), "deg"),
        ("observation.offset", {"normal": [0, 0.5]}, (2,), "arcsec"),
    )
    latent = np.array([0.5, -1.0, 2.0])
    covariance = np.diag([0.01, 0.04, 0.09])
    model = make_cube(mask=np.zeros((3, 5, 4), np.int32))
    mask = np.zeros((3, 5, 4), np.int32)
    mask[1, 2, 3] = 8
    residual = replace(model, flux=np.full((3, 5, 4), 0.5), variance=np.full((3, 5, 4), 4.0), mask=mask)
    values = {name: np.asarray(value) for name, value in free.values(jnp.asarray(latent)).items()}
    trace = np.array([[90.0, 20.0, 10.0], [80.0, np.nan, np.nan]])
    starts = search_of(
        [10.0, 80.0],
        statuses("CONVERGED", "STEPS_USED_UP"),
        np.stack([latent, latent]),
        gradient_norm=np.ones(2),
        n_step=np.array([3, 1]),
        trace_loss=trace,
        trace_gradient_norm=trace / 10,
        trace_latent=np.zeros((2, 3, 0)),
    )
    return FitResult(
        free=free,
        values=values,
        sigma=values,
        covariance=covariance,
        latent=latent,
        laplace=normal_about(free, latent, covariance),
        quality=Quality(12.0, 59, 3, 8.0),
        verdict=Verdict(0.5, {"chi^2": 0.5}, 0.5, 1.0, False, np.zeros(3)),
        edges=Edges.none(),
        starts=starts,
        model=model,
        residual=residual,
        parameters=Parameters.build(load_config("quickstart"), "float64"),
        galaxy=None,
        config="",
        versions={},
    )


FREE = free_of(
    ("observation.inclination", {"uniform": [20, 80]}, (), "deg"),
    ("observation.offset", {"normal": [0, 1]}, (2,), "arcsec"),
    ("stars.metallicity", {"log_uniform": [1e-3, 0.04]}, (3,)),
)


N_CHAIN, N_DRAW, N_LATENT = 3, 200, 6


MIXING = np.tril(np.random.default_rng(0).normal(0, 0.05, (N_LATENT, N_LATENT))) + 0.1 * np.eye(N_LATENT)
"""Of independent normal numbers into the latents."""


@functools.cache
def sampled():
    rng = np.random.default_rng(1)
    shape = (N_CHAIN, N_DRAW)
    statistics = {
        "loss": rng.gamma(3.0, size=shape),
        "energy": rng.gamma(6.0, size=shape),
        "acceptance_rate": rng.uniform(0.6, 1, shape),
        "n_leapfrog": np.full(shape, 7),
        "tree_depth": np.full(shape, 3),
        "diverging": np.arange(N_CHAIN * N_DRAW).reshape(shape) % 100 == 0,
    }
    latent = 0.3 + rng.standard_normal((*shape, N_LATENT)) @ MIXING.T
    keys = np.asarray(jax.random.split(jax.random.PRNGKey(4), N_CHAIN))
    return Sampled("nuts", latent, statistics, keys, np.array([0.5, 0.6, 0.7]))


def _cube(content, flux, variance, mask):
    return Cube(
        flux=flux,
        mask=mask,
        bins=WavelengthBins(5000.0, 1.0, 5, "linear", "vacuum"),
        footprint=Footprint(2, 3, 0.2),
        variance=variance,
        meta=Meta({"fit_image": content}),
    )


def of_draws(free, drawn):
    """The fields of a result that follow from what a sampler hands over."""
    values = values_of(free, drawn.latent)
    return {
        "method": drawn.method,
        "latent": drawn.latent,
        "values": values,
        "statistics": dict(drawn.statistics),
        "step_size": drawn.step_size,
        "keys": drawn.keys,
        "diagnostics": convergence_of(drawn, free.join(values)),
    }


@functools.cache
def sample_result():
    rng = np.random.default_rng(2)
    shape = (2, 3, 5)
    mask = np.zeros(shape, np.int32)
    mask[0, 1, 2] = 8
    model, data, noise = rng.normal(10, 1, shape), rng.normal(10, 1, shape), rng.uniform(1, 2, shape)
    spread = rng.uniform(0.1, 0.2, shape)
    latent = np.full(N_LATENT, 0.3)
    return SampleResult(
        free=FREE,
        **of_draws(FREE, sampled()),
        best=latent,
        laplace=normal_about(FREE, latent, MIXING @ MIXING.T),
        quality=Quality(31.5, 29, 6, 17.0),
        verdict=Verdict(0.5, {"chi^2": 0.5}, 0.5, 1.0, False, np.zeros(N_LATENT)),
        scatter=Scatter(29, 30.5, 0.65, 0.95),
        model=_cube("model", model, spread, np.zeros_like(mask)),
        predictive=_cube("predictive", model, spread + noise, mask),
        residual=_cube("residual", data - model, noise, mask),
        config="fit: {}\n",
        versions={"jax": "0"},
        notes=("a note", "another"),
    )


FINGERPRINT = {"data": "a", "model": "b"}


def snapshot(step, n_ended=0, n_start=3):
    """A search of some starts in its `step`-th step, with numbers that no two steps share."""
    rng = np.random.default_rng(step)
    status = statuses(*["CONVERGED"] * n_ended, "RUNNING", *["WAITING"] * n_start)[:n_start]
    return search_of(
        rng.normal(size=n_start),
        status,
        rng.normal(size=(n_start, 2)),
        start=rng.normal(size=(n_start, 2)),
        gradient_norm=rng.normal(size=n_start),
        n_step=np.full(n_start, step),
        trace_loss=np.where(rng.random((n_start, 5)) < 0.5, np.nan, 1.0),
        trace_gradient_norm=rng.normal(size=(n_start, 5)),
        trace_latent=rng.normal(size=(n_start, 5, 0)),
        slots=np.arange(1),
        state=(rng.normal(size=(1, 2)), np.array([True]), np.array([3], np.int32), rng.normal(size=1).astype("f4")),
        reserve=rng.normal(size=(4, 2)),
    )


def some_simulations(start: int = 0, n: int = 7) -> Simulations:
    """With a parameter of one value and one of two, float32 cubes, and a mask."""
    rng = np.random.default_rng(start)
    flux = rng.normal(size=(n, 2, 3, 4)).astype(np.float32)
    return Simulations(
        number=np.arange(start, start + n),
        parameters={"dust.a_v": rng.uniform(0, 1, n), "observation.offset": rng.normal(size=(n, 2))},
        units={"dust.a_v": "mag", "observation.offset": "arcsec"},
        galaxy=np.arange(n) % 2,
        wavelength=np.linspace(5000, 5003, 4) / 3,
        mask=np.arange(24, dtype=np.int32).reshape(2, 3, 4),
        flux=flux,
        variance=flux**2,
        x=np.array([0.2, 0.0, -0.2]),
        y=np.array([-0.1, 0.1]),
    )


def manifest_of(made: Simulations, files: str, shard: int = 7) -> Manifest:
    """Of a set of them in files of a format."""
    described = {name: {"unit": unit, "meaning": f"the {name}", "prior": None} for name, unit in made.units.items()}
    return Manifest(len(made), shard, {"seed": "1"}, described, "galaxy: {}", files)

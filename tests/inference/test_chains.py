"""Chains of the No-U-Turn sampler: the same on all devices, resumable at every step, reversible on their lattice."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import IntegratorState
from jax.sharding import AxisType, Mesh
from small import fit_section

from rubix_like.extend import LogDensity
from rubix_like.inference.samplers.chains import Chains, Whitening, run_chains
from rubix_like.inference.samplers.nuts import Nuts, NutsSampler, stages_of

N_LATENT = 3


class Curved(eqx.Module):
    """Residuals that are not linear; none of `edge` (latents above it have no model)."""

    matrix: jax.Array
    edge: jax.Array

    def residuals(self, latent):
        seen = self.matrix @ (latent + 0.1 * latent**2)
        return seen - 1 + jnp.where(latent[0] > self.edge, jnp.nan, 0), latent

    def loss(self, latent):
        data, prior = self.residuals(latent)
        return 0.5 * (data @ data + prior @ prior)


def posterior(edge=np.inf):
    return Curved(jnp.asarray(np.random.default_rng(1).normal(size=(20, N_LATENT))), jnp.asarray(float(edge)))


def mesh(rows, columns):
    devices = np.array(jax.devices()[: rows * columns]).reshape(rows, columns)
    return Mesh(devices, ("sample", "data"), axis_types=(AxisType.Auto,) * 2)


def settings(chains, **others):
    return fit_section(sampling={"nuts": {"chains": chains, "warmup": 40, "draws": 30}, "seed": 5, **others}).sampling


def sampler(chains, **others):
    return NutsSampler(settings(chains, **others))


def whitening(spacing=2.0**-16):
    best, half = jnp.full(N_LATENT, 0.2), 0.2 * jnp.eye(N_LATENT)
    return Whitening(best, half, jnp.asarray(spacing))


@functools.cache
def snapshots(chains=3, shape=(1, 1), edge=np.inf, **others):
    return tuple(run_chains(posterior(edge), mesh(*shape), sampler(chains, **others), whitening()))


def first(chains, edge=np.inf):
    return next(run_chains(posterior(edge), mesh(1, 1), sampler(chains), whitening()))


@functools.cache
def draws(chains, shape):
    last = snapshots(chains, shape)[-1]
    return last.keys, last.draws


@pytest.mark.parametrize(
    ("chains", "shape"),
    [
        (3, (2, 4)),
        *(pytest.param(*own, marks=pytest.mark.slow) for own in ((8, (3, 2)),)),
        *(pytest.param(3, own, marks=pytest.mark.long) for own in ((4, 2), (4, 1), (3, 2), (1, 8))),
        *(pytest.param(8, own, marks=pytest.mark.long) for own in ((1, 8), (2, 4), (8, 1), (4, 1), (4, 2))),
    ],
)
def test_draws_are_the_same_on_any_mesh(chains, shape):
    """Three chains divide few rows, eight most of them."""
    keys, one = draws(chains, (1, 1))
    other_keys, other = draws(chains, shape)
    np.testing.assert_array_equal(keys, other_keys)
    assert one["latent"].shape == (chains, 30, N_LATENT)
    for name in ("n_leapfrog", "tree_depth", "diverging"):
        np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_allclose(one["latent"], other["latent"], rtol=0, atol=1e-12)


@pytest.mark.long
def test_chains_at_once_are_those_one_after_the_other():
    together = snapshots(3, at_once=2)[-1].draws["latent"]
    np.testing.assert_allclose(draws(3, (1, 1))[1]["latent"], together, rtol=0, atol=1e-12)


def test_chains_resumed_from_every_snapshot_end_the_same():
    """In the warm-up, between its windows, and among the draws; through the arrays that a checkpoint holds."""
    states = snapshots()
    assert [state.n_done for state in states[:2]] == [0, 1]
    assert states[-1].finished
    in_windows = [state for state in states if 1 < state.n_done < 40][-1]
    for kept in (states[0], states[1], in_windows, states[-2], states[-1]):
        begun = Chains.from_arrays({name: np.array(array) for name, array in kept.arrays().items()})
        *_, end = run_chains(posterior(), mesh(1, 1), sampler(3), begun.whitening, begun)
        for name, array in states[-1].arrays().items():
            np.testing.assert_array_equal(array, end.arrays()[name], err_msg=name)


def test_what_is_known_between_steps():
    """The step sizes that are used next; which stages are over; statistics cover the kept draws only."""
    for state in snapshots():
        np.testing.assert_array_equal(state.step_size, state.state[2])
        assert state.n_ended == (state.n_done >= 40) + (state.n_done == 70)
    begun, *_, end = snapshots()
    assert (begun.step_size == 0.5).all()
    assert (end.step_size != 0.5).all()
    words, done, total = sampler(3).progress(end)
    of_draws, of_all = (f"acceptance {steps['acceptance_rate'].mean():.2f}," for steps in (end.draws, end.steps))
    assert of_draws in words
    assert of_draws != of_all
    assert (done, total) == (70, 70)


def test_losses_are_those_of_the_draws_of_chains_that_differ():
    keys, found = draws(3, (1, 1))
    losses = jax.vmap(posterior().loss)(jnp.asarray(found["latent"][0]))
    np.testing.assert_allclose(found["loss"][0], losses, rtol=1e-12)
    assert len(np.unique(found["latent"][:, -1, 0])) == len(np.unique(keys, axis=0)) == 3


@pytest.mark.slow
def test_trajectories_are_no_deeper_than_asked_for():
    nuts = {"chains": 2, "warmup": 20, "draws": 10, "tree_depth": 2}
    own = fit_section(sampling={"nuts": nuts}).sampling
    *_, end = run_chains(posterior(), mesh(1, 1), NutsSampler(own), whitening())
    assert end.steps["tree_depth"].max() == 2
    assert end.steps["n_leapfrog"].max() == 3


def test_chains_of_other_settings_or_versions_are_refused():
    """The seed chooses the keys; an older version kept other arrays of a chain's state."""
    other = settings(3).model_copy(update={"seed": 6})
    begun = next(run_chains(posterior(), mesh(1, 1), NutsSampler(other), whitening()))
    assert not np.isin(begun.keys, first(3).keys).any()
    with pytest.raises(ValueError, match=r"expected to go on with .*\(4, 40, 70, \(3,\)\), got \(3, 40, 70, \(3,\)\)"):
        next(run_chains(posterior(), mesh(1, 1), sampler(4), whitening(), begun))
    older = dataclasses.replace(snapshots()[2], state=snapshots()[2].state[:-1])
    with pytest.raises(ValueError, match=r"got those of another; start anew with restart=True"):
        next(run_chains(posterior(), mesh(1, 1), sampler(3), whitening(), older))


@pytest.mark.parametrize("spacing", [2.0**-16, 0.125])
def test_steps_on_the_lattice_are_reversible_to_the_last_bit(spacing):
    """Forwards and, with the momentum turned round, back; and the lattice is kept."""
    density, nuts = LogDensity(posterior(), whitening(spacing)), Nuts(stages_of(40, 1), jnp.asarray(0.8), 5, dense=True)
    make_step = nuts._integrator(density.rounded)
    step = jax.jit(make_step(density, lambda momentum: 0.5 * momentum @ jnp.diag(jnp.arange(1.0, 4)) @ momentum))
    state = nuts.begin(density, jnp.asarray([0.3, -1.2, 0.7]))
    begun = IntegratorState(state.white, jnp.asarray([1.5, 0.25, -0.75]), state.log_density, state.own.gradient)
    moved = begun
    for _ in range(20):
        moved = step(moved, jnp.asarray(0.3))
    assert np.abs(np.asarray(moved.position - begun.position)).max() > 0.1
    np.testing.assert_array_equal(np.asarray(moved.position) / spacing, np.round(np.asarray(moved.position) / spacing))
    back = moved._replace(momentum=-moved.momentum)
    for _ in range(20):
        back = step(back, jnp.asarray(0.3))
    np.testing.assert_array_equal(back.position, begun.position)
    np.testing.assert_allclose(back.momentum, -begun.momentum, rtol=0, atol=1e-13)


def test_chains_begin_nearer_to_the_best_fit_where_there_is_no_model():
    """Beyond the edge nothing is defined: no draw is there, and those that tried diverged."""
    free = first(8).state[0]
    edge = float(np.median(0.2 + 0.2 * free[:, 0]))
    found = snapshots(8, edge=edge)
    assert (found[-1].draws["latent"][:, :, 0] <= edge).all()
    assert np.isfinite(found[-1].draws["loss"]).all()
    assert found[-1].draws["diverging"].any()


def test_a_posterior_without_derivatives_is_refused():
    with pytest.raises(ValueError, match="8 of 8 chains found no place to begin; narrow the priors"):
        first(8, edge=-100.0)


def test_chains_begin_where_the_posterior_is_not_negligible():
    """Without an approximation, of a posterior that is thousands of times narrower than the prior."""
    own = Curved(1e4 * jnp.eye(N_LATENT), jnp.asarray(np.inf))
    best = Whitening.of(np.full(N_LATENT, 1e-4 - 1e-9), None)
    begun = next(run_chains(own, mesh(1, 1), sampler(5), best))
    log_density = begun.state[1]
    assert (log_density > -8 * N_LATENT - 10.1).all()
    assert (log_density < -1e-3).all()


def test_the_end_of_a_short_warm_up_is_for_the_step_size():
    """It begins anew when the window ends, with ten times the old one, and needs some steps."""
    np.testing.assert_array_equal(stages_of(20, 2), [0] * 3 + [1] * 6 + [2] + [0] * 9 + [3] + [4] * 2)
    for warmup in (99, 100, 150):
        stages = stages_of(warmup, 0)
        assert np.flatnonzero(stages == 2)[-1] == warmup - (51 if warmup == 150 else 11)
        assert (stages[:-1] < 3).all()


def test_the_warm_up_follows_its_published_equations():
    """Dual averaging (Hoffman & Gelman 2014, section 3.2) and Stan's covariances, shrunk to the one before."""
    nuts = Nuts(stages_of(30, 1), jnp.asarray(0.8), 5, dense=True)

    @jax.jit
    def adapt(state, stage, white, acceptance):
        return nuts._adapted(state, stage, white, acceptance)

    state = nuts.begin(LogDensity(posterior(), whitening()), jnp.zeros(N_LATENT))
    rng = np.random.default_rng(2)
    size, metric, gathered = 0.5, np.eye(N_LATENT), []
    count, error, average, target = 0, 0.0, 0.0, np.log(10 * size)
    for stage in stages_of(30, 3):
        white, acceptance = rng.normal(size=N_LATENT), rng.uniform(0.5, 1)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            state = adapt(state, stage, white, acceptance)
        if stage < 4:
            count += 1
            average += count**-0.75 * (np.log(size) - average)
            error += (0.8 - acceptance - error) / (count + 10)
            size = np.exp(target - np.sqrt(count) / 0.05 * error)
        if stage in (1, 2):
            gathered.append(white)
        if stage == 2:
            n = len(gathered)
            metric = (n * np.cov(np.transpose(gathered)) + 10 * metric + 5e-3 * np.eye(N_LATENT)) / (n + 15)
        if stage in (2, 3):
            size = np.exp(average)
            count, error, average, target = 0, 0.0, 0.0, np.log(10 * size)
        np.testing.assert_allclose(state.step_size, size, rtol=2e-6)
        np.testing.assert_allclose(state.own.metric.inverse_mass_matrix, metric, rtol=1e-12)
    assert np.frexp(float(state.step_size))[0] * 2**20 % 1 == 0
    assert abs(size - 0.5) > 0.01


def test_stages_are_stans():
    """75 steps of the step size alone, windows of 25, 50, ..., 50 of the step size alone, then draws."""
    stages = stages_of(1000, 5)
    assert len(stages) == 1005
    assert (stages[:75] == 0).all()
    ends = np.flatnonzero(stages == 2)
    np.testing.assert_array_equal(ends + 1, [100, 150, 250, 450, 950])
    assert (stages[950:999] == 0).all()
    assert stages[999] == 3
    assert (stages[1000:] == 4).all()

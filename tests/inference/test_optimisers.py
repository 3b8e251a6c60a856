"""Optimisers: their minima against scipy's, what a step costs, how a start ends."""

import functools
import logging
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from curved import N_DATA, N_LATENT, curved, starts
from small import fit_section

from rubix_like.inference.posterior.posterior import DENSE_BYTES, MOST_DENSE, is_dense, normal_forms
from rubix_like.inference.search.optimisers import (
    FAILED,
    REASONS,
    GradientDescent,
    LeastSquares,
    Status,
    make_optimiser,
)

KINDS = ("levenberg_marquardt", "lbfgs", "levenberg_marquardt by products")


def chosen(**settings):
    """The section `fit.optimiser` with these settings."""
    return fit_section(optimiser=settings).optimiser


def optimiser(kind, **settings):
    """By name; `by products`: as it is for more latents than a matrix is made for."""
    name, _, products = kind.partition(" by ")
    settings = {"tolerance": 1e-9, "steps": 100} | settings
    n_latent = MOST_DENSE + 1 if products else N_LATENT
    return make_optimiser(chosen(name=name, **settings), n_latent, N_DATA)


@jax.jit
def begun(optimiser, latent):
    return optimiser.init(latent)


def run(optimiser, posterior, latent):
    """The states after every step."""
    states = [begun(optimiser, jnp.asarray(latent))]
    while bool((states[-1].status == Status.RUNNING).any()):
        states.append(optimiser.step(posterior, states[-1]))
    return states


@functools.cache
def scipys(number):
    """The minimum that scipy's Levenberg-Marquardt finds from a start, and its Jacobian there."""
    problem = curved()
    flat = jax.jit(lambda latent: jnp.concatenate(jax.tree.leaves(problem.residuals(latent))))
    return scipy.optimize.least_squares(
        lambda latent: np.asarray(flat(jnp.asarray(latent))), starts(2)[number], xtol=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_minimum_is_scipys(kind):
    end = run(optimiser(kind), curved(), starts(2))[-1]
    assert end.status.tolist() == [Status.CONVERGED] * 2
    for number in range(2):
        expected = scipys(number)
        np.testing.assert_allclose(end.loss[number], expected.cost, rtol=1e-9)
        np.testing.assert_allclose(end.latent[number], expected.x, atol=2e-6)
        assert end.gradient_norm[number] < 1e-2


def test_normal_form_is_that_of_least_squares_by_finite_differences():
    problem, latent = curved(), starts(2)
    form = normal_forms(problem, jnp.asarray(latent))
    flat = jax.jit(lambda latent: jnp.concatenate(jax.tree.leaves(problem.residuals(latent))))
    for number in range(2):
        ends = [flat(latent[number] + step) - flat(latent[number] - step) for step in 1e-6 * np.eye(N_LATENT)]
        columns, factor = np.stack(ends, axis=1) / 2e-6, form.factor[number]
        gradient = columns.T @ flat(latent[number])
        np.testing.assert_allclose(factor.T @ factor, columns.T @ columns, rtol=1e-7, atol=1e-5)
        np.testing.assert_allclose(factor.T @ form.projected[number], gradient, rtol=1e-6, atol=1e-5)
        np.testing.assert_allclose(form.gradient[number], gradient, rtol=1e-6, atol=1e-5)
        assert np.all(np.tril(factor, -1) == 0)


def test_normal_form_of_latents_that_cannot_be_told_apart():
    """Without noise the prior is lost in rounding; the factor must not be."""
    problem = curved()
    same = eqx.tree_at(lambda own: own.mixing, problem, 1e9 * jnp.ones((N_DATA, N_LATENT)))
    form = normal_forms(same, jnp.zeros((2, N_LATENT)))
    assert np.isfinite(form.factor).all()
    assert np.isfinite(form.projected).all()


class Rosenbrock(eqx.Module):
    """A valley along a parabola, of which each step in it leaves the linear part; it tells how often it is computed."""

    tell: Callable[[str], None] = eqx.field(static=True)

    def residuals(self, latent):
        jax.debug.callback(self.tell, "residuals")
        return 10 * (latent[1] - latent[0] ** 2), 1 - latent[0]

    def loss(self, latent):
        jax.debug.callback(self.tell, "loss")
        return 0.5 * (10**2 * (latent[1] - latent[0] ** 2) ** 2 + (1 - latent[0]) ** 2)


def test_one_loss_for_a_step_and_one_jacobian_for_an_accepted_one():
    calls = []
    states = run(optimiser("levenberg_marquardt"), Rosenbrock(calls.append), [[-1.2, 1.0]])
    jax.effects_barrier()
    latents = np.array([state.latent[0] for state in states[1:]])
    accepted = 1 + np.count_nonzero(np.any(np.diff(latents, axis=0) != 0, axis=1))
    assert accepted < len(states) - 1, "no step was rejected"
    assert calls.count("loss") == len(states) - 1
    assert calls.count("residuals") == accepted
    np.testing.assert_allclose(latents[-1], 1, atol=1e-5)


def test_loss_of_levenberg_marquardt_never_rises():
    states = run(optimiser("levenberg_marquardt"), curved(bend=3.0), 2 * starts(2, seed=4))
    losses = np.array([state.loss for state in states[1:]])
    assert np.all(np.diff(losses, axis=0) <= 0)


def test_starts_do_not_know_of_each_other():
    """The first of three ends alike beside the second and beside the third."""
    chosen, problem, latent = optimiser("levenberg_marquardt"), curved(), starts(3)
    before, after = (run(chosen, problem, latent[pair])[-1] for pair in ([0, 1], [2, 0]))
    np.testing.assert_allclose(before.latent[0], after.latent[1], atol=1e-10)
    assert before.n_step[0] == after.n_step[1]
    assert np.abs(before.latent[1] - after.latent[0]).max() > 0


@pytest.mark.parametrize("kind", ["levenberg_marquardt", pytest.param("lbfgs", marks=pytest.mark.slow)])
def test_nothing_is_compiled_for_other_data_or_numbers(kind, caplog):
    run(optimiser(kind), curved(), starts(2))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        run(optimiser(kind, tolerance=1e-6, steps=50), curved(seed=7), starts(2, seed=3))
        messages = [record.getMessage() for record in caplog.records if "Finished XLA" in record.getMessage()]
        assert [own for own in messages if "rubix" in own or "jit(_" in own or "losses" in own or "normal" in own] == []


@pytest.mark.parametrize("kind", KINDS)
def test_state_is_arrays_only(kind):
    chosen = optimiser(kind)
    state = chosen.step(curved(), begun(chosen, jnp.asarray(starts(2))))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(state)} == {2}
    kept = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), state)
    for one, other in zip(*(jax.tree.leaves(chosen.step(curved(), own)) for own in (state, kept)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_start_without_a_finite_loss_ends_alone(kind):
    latent = starts(2)
    latent[0] = np.nan
    end = run(optimiser(kind), curved(), latent)[-1]
    assert end.status.tolist() == [Status.LOSS_NOT_FINITE, Status.CONVERGED]
    assert end.n_step[0] == 1


class Coarse(eqx.Module):
    """Residuals as a model of 32 bits has them: its loss is known to about 1e-4 only, but added up with 64 bits."""

    fine: eqx.Module

    def residuals(self, latent):
        exact = self.fine.residuals(latent)
        shifted = exact["data"] + BRIGHT
        return {"data": shifted.astype(jnp.float32).astype(latent.dtype) - BRIGHT, "prior": exact["prior"]}

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(self.residuals(latent)))


BRIGHT = 300.0
"""Of the model, in standard deviations of the data."""


def test_rounding_does_not_keep_a_minimum_from_having_converged():
    """The fall that is predicted is below what rounding makes of the loss, and no step can show it."""
    settings = chosen(tolerance=1e-7, steps=100)
    rounding = BRIGHT * float(np.finfo(np.float32).eps)
    latent = starts(6)
    end = run(make_optimiser(settings, N_LATENT, N_DATA, rounding), Coarse(curved()), latent)[-1]
    assert end.status.tolist() == [Status.CONVERGED] * 6
    fine = run(optimiser("levenberg_marquardt"), curved(), latent)[-1]
    np.testing.assert_allclose(end.loss, fine.loss, atol=0.01)
    without = run(make_optimiser(settings, N_LATENT, N_DATA), Coarse(curved()), latent)[-1]
    assert Status.STALLED in without.status.tolist(), "rounding ends no search: the test says nothing"


class Broken(eqx.Module):
    """`slope` has an infinite derivative at 1, `cliff` no value below 0, and `kink` no derivative at its minimum."""

    what: str = eqx.field(static=True)

    def residuals(self, latent):
        off = latent - 1
        if self.what == "slope":
            return jnp.sqrt(jnp.abs(off)) * 10
        if self.what == "cliff":
            return 1 / jnp.sqrt(latent)
        return jnp.sqrt(5 + jnp.abs(off) * 100)

    def loss(self, latent):
        return 0.5 * jnp.sum(self.residuals(latent) ** 2)


@pytest.mark.parametrize(
    ("what", "kind", "start", "status"),
    [
        ("slope", "levenberg_marquardt", 1.0, Status.GRADIENT_NOT_FINITE),
        ("cliff", "lbfgs", -1.0, Status.LOSS_NOT_FINITE),
        ("kink", "levenberg_marquardt", 2.3, Status.STALLED),
    ],
)
def test_starts_that_cannot_get_on_say_why(what, kind, start, status):
    end = run(optimiser(kind), Broken(what), jnp.array([[start]]))[-1]
    assert Status(int(end.status[0])) is status


def test_a_step_that_leaves_the_model_is_damped():
    """For ln(latent) = 3 the whole step leads from 100 to about -60, where the model has no value."""

    class Logarithm(eqx.Module):
        def residuals(self, latent):
            return jnp.log(latent) - 3

        def loss(self, latent):
            return 0.5 * jnp.sum(self.residuals(latent) ** 2)

    better = run(optimiser("levenberg_marquardt"), Logarithm(), jnp.array([[100.0]]))[-1]
    np.testing.assert_allclose(better.latent[0], np.exp(3), rtol=1e-6)


def test_steps_are_counted():
    end = run(optimiser("levenberg_marquardt", steps=2), curved(), starts(2))[-1]
    assert end.status.tolist() == [Status.STEPS_USED_UP] * 2
    assert end.n_step.tolist() == [3, 3]


def test_choice_by_size_and_words_for_every_status():
    assert set(REASONS) == set(Status)
    assert set(Status) > FAILED
    for settings, kind in [(chosen(), LeastSquares), (chosen(name="lbfgs"), GradientDescent)]:
        assert isinstance(make_optimiser(settings, 10, 100), kind)
    assert is_dense(15, 2_000_000)
    assert not is_dense(MOST_DENSE + 1, 10)
    assert not is_dense(1000, int(DENSE_BYTES / 8000) + 1)

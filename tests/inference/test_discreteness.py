"""The shift of a fit by finite base draws: against a fit with all of the other draws at once; how it is told."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_numbers import free_of, normal_about
from scipy.special import ndtr
from small import fit_section
from test_model_error import problem

from rubix_like.extend import draw_base
from rubix_like.inference.checks import finite_points as discreteness_module
from rubix_like.inference.checks.finite_points import (
    Discreteness,
    find_discreteness,
    measure_discreteness,
    notes_on_discreteness,
    with_discreteness,
)
from rubix_like.inference.checks.uncertainties import laplace
from rubix_like.inference.posterior.fit_model import HeldSource
from rubix_like.inference.posterior.posterior import tangents_at

FREE = free_of(("one", {"uniform": [0, 10]}, (), "deg"), ("two", {"normal": [1, 2]}))
LATENT, SHIFT, SIGMA = np.array([0.3, -0.2]), np.array([0.5, 0.01]), np.array([0.1, 0.05])


def shifted(**changes):
    own = {"free": FREE, "latent": LATENT, "shift": SHIFT, "sigma": SIGMA, "n_draws": 1000, "n_compared": 8000}
    return Discreteness(**{**own, "kind": "sobol", "particles": "stars", **changes})


@pytest.mark.parametrize("kind", ["sobol", "random"])
def test_sets_of_draws_together_are_one_of_as_many(kind):
    sets, whole = draw_base(50, 10, 3, kind).sets(4, 7), draw_base(200, 40, 7, kind)
    for own, all_of_it in zip(jax.tree.leaves(sets), jax.tree.leaves(whole), strict=True):
        assert own.shape[0] == 4
        np.testing.assert_array_equal(np.concatenate(list(own)), all_of_it)
    assert draw_base(2, 0, 3, kind).sets(4, 7).gas is None


def test_values_and_errors_are_those_of_the_priors_maps():
    """uniform: 10 Phi(x); normal: 1 + 2 x."""
    found = shifted()
    np.testing.assert_allclose(found.values, [10 * (ndtr(0.8) - ndtr(0.3)), 0.02], rtol=1e-6)
    slope = 10 * np.exp(-0.045) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found.value_sigma, [0.1 * slope, 0.1], rtol=1e-6)
    normal = normal_about(FREE, LATENT, np.diag(SIGMA**2))
    both, covariance = with_discreteness(normal, found)
    np.testing.assert_allclose(both.sigma, np.hypot(SIGMA, SHIFT))
    np.testing.assert_allclose(np.diag(covariance), found.value_sigma**2 + found.values**2, rtol=1e-6)
    assert covariance[0, 1] == pytest.approx(found.values[0] * found.values[1])
    assert with_discreteness(normal, None)[0] is normal
    np.testing.assert_allclose(with_discreteness(normal, "why")[1], normal.value_covariance())
    assert with_discreteness(None, None) == (None, None)


def test_shifts_beyond_half_a_sigma_are_noted():
    (note,) = notes_on_discreteness(shifted())
    assert "one by +1.7 (+5.0 sigma)" in note
    assert "two" not in note
    assert note.endswith("set galaxy.n_stars: 5120")  # 1000 x 10^(2/3) = 4642; the next 5 x 2^k
    (note,) = notes_on_discreteness(shifted(kind="random"))
    assert note.endswith("and galaxy.draws: sobol")
    (note,) = notes_on_discreteness(shifted(particles="gas"))
    assert note.endswith("set galaxy.n_gas: 8192")
    assert notes_on_discreteness(shifted(shift=0.49 * SIGMA)) == []
    assert shifted(shift=0.99 * SIGMA).sentence == ""
    assert (
        shifted().sentence == "the errors of 1 of 2 values are mostly those of finite draws: set galaxy.n_stars: 5120"
    )
    assert notes_on_discreteness(None) == []
    (note,) = notes_on_discreteness("why")
    assert "could not be measured (why)" in note


@jax.jit
def gradient_of(posterior, latent):
    """Of the loss."""
    return jax.grad(posterior.loss)(latent)


@pytest.mark.long
def test_the_shift_leads_to_where_the_loss_with_all_other_draws_at_once_is_lowest():
    """300 stars against 2400 of one scrambled sequence, computed 300 at a time and, to compare, as one galaxy."""
    posterior, begin = problem().posterior, jnp.zeros(5)
    draws = posterior.forward.source.draws
    smooth = [tangents_at(own, begin + 0.1).flux[0] for own in with_each(posterior, draws.sets(4, 78), 4)]
    posterior = eqx.tree_at(lambda p: p.likelihood.flux, posterior, sum(smooth[1:], start=smooth[0]) / 4)
    normal = laplace(posterior, begin)
    found = find_discreteness(posterior, normal, 8, seed=77)
    assert (found.n_draws, found.n_compared, found.kind, found.particles) == (300, 2400, "sobol", "stars")
    other = eqx.tree_at(lambda p: p.forward.source.draws, posterior, draw_base(2400, 0, 77, "sobol"))
    end = jnp.asarray(normal.latent + found.shift)
    before, after = (np.asarray(gradient_of(other, at)) for at in (begin, end))
    off = [np.sqrt(own @ normal.covariance @ own) for own in (before, after)]  # about as many sigma
    assert off[0] > 10
    assert off[1] < min(0.5, 0.05 * off[0])


def with_each(posterior, sets, count):
    """The posterior with each of several sets of draws."""
    for number in range(count):
        own = jax.tree.map(lambda leaf, number=number: leaf[number], sets)
        yield eqx.tree_at(lambda p: p.forward.source.draws, posterior, own)


@pytest.mark.slow
def test_it_is_measured_only_where_it_has_a_meaning(monkeypatch):
    asked = dataclasses.replace(problem(), settings=fit_section(free=problem().settings.free))
    assert asked.settings.discreteness.times == 8
    normal = normal_about(asked.posterior.free, np.zeros(5), np.eye(5))
    monkeypatch.setattr(discreteness_module, "find_discreteness", lambda *given: str(given[2]))
    assert measure_discreteness(asked, normal, lambda *_: None) == "8"
    assert measure_discreteness(asked, None, lambda *_: None) is None
    assert measure_discreteness(problem(), normal, lambda *_: None) is None  # with a model error
    null = fit_section(free=problem().settings.free, discreteness=None)
    assert measure_discreteness(dataclasses.replace(asked, settings=null), normal, lambda *_: None) is None
    held = HeldSource(asked.posterior.forward.source.galaxy({}))
    posterior = eqx.tree_at(
        lambda p: p.forward.source, asked.posterior, held, is_leaf=lambda leaf: leaf is asked.posterior.forward.source
    )
    assert measure_discreteness(dataclasses.replace(asked, posterior=posterior), normal, lambda *_: None) is None

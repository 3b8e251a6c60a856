"""Convergence of chains: R-hat and effective sample sizes of chains of known correlation, and what is said of them."""

import functools
import sys

import numpy as np
import pytest
from free_numbers import free_of
from small import fit_section

from rubix_like import ConfigError
from rubix_like.extend import Sampled
from rubix_like.inference.samplers.convergence import convergence_of, notes_on_sampling
from rubix_like.inference.samplers.samplers import make_sampler

FREE = free_of(
    ("observation.inclination", {"uniform": [20, 80]}, (), "deg"),
    ("observation.offset", {"normal": [0, 1]}, (2,), "arcsec"),
)

N_CHAIN, N_DRAW = 4, 1000

DEEPEST = 10


def autoregressive(rho, n_chain=N_CHAIN, n_draw=N_DRAW, seed=0):
    """x_t = rho x_(t-1) + sqrt(1 - rho^2) e_t: standard normal, n draws are worth n (1 - rho) / (1 + rho)."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n_chain, n_draw, 3))
    chain = noise.copy()
    for draw in range(1, n_draw):
        chain[:, draw] = rho * chain[:, draw - 1] + np.sqrt(1 - rho**2) * noise[:, draw]
    return chain


@functools.cache
def good():
    """Draws of a tenth of the priors' widths, nothing wrong with them."""
    return sampled(0.1 * autoregressive(0.3))


def sampled(latent, method="nuts", **statistics):
    """As a sampler hands them over; what is not given is as it should be."""
    rng = np.random.default_rng(1)
    shape = latent.shape[:2]
    usual = {
        "loss": rng.gamma(1.5, size=shape),
        "energy": rng.gamma(3.0, size=shape),
        "diverging": np.zeros(shape, bool),
        "tree_depth": np.full(shape, 3),
        "acceptance_rate": np.full(shape, 0.8),
        "n_leapfrog": np.full(shape, 7),
    }
    keys = np.zeros((shape[0], 2), np.uint32)
    return Sampled(method, latent, {**usual, **statistics}, keys, None)


def notes_on(own):
    sampler = make_sampler(fit_section(sampling={"method": own.method, "nuts": {"tree_depth": DEEPEST}}).sampling)
    return notes_on_sampling(sampler, FREE, own, convergence_of(own, own.latent))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_sample_size_is_that_of_a_known_correlation(rho):
    """Of 3 numbers in each of 8 x 3 chains, so that the mean is known to about 4 %."""
    found = [convergence_of(own, own.latent) for own in (sampled(autoregressive(rho, seed=n)) for n in range(8))]
    expected = N_CHAIN * N_DRAW * (1 - rho) / (1 + rho)
    mean = np.mean([own.ess_bulk for own in found])
    assert abs(mean / expected - 1) < 0.08
    assert np.mean([own.r_hat for own in found]) < 1 + 4 * N_CHAIN / expected
    assert all(1 < own.r_hat.max() < 1.05 for own in found)
    assert all((own.ess_tail > 0.3 * expected).all() for own in found)


def test_chains_that_are_shifted_have_a_large_r_hat():
    latent = 0.1 * autoregressive(0.3)
    latent[2, :, 1] += 0.15
    own = sampled(latent)
    found = convergence_of(own, latent)
    assert found.r_hat[1] > 1.1
    assert max(found.r_hat[0], found.r_hat[2]) < 1.01
    assert found.ess_bulk[1] < 100 * N_CHAIN < found.ess_bulk[0]
    apart, few = notes_on(own)
    assert apart.startswith(f"R-hat is above 1.01 for observation.offset[0] ({found.r_hat[1]:.4f}): the chains do not")
    assert f"effective sample size is below {100 * N_CHAIN} (100 for each chain) for observation.offset[0] (" in few


def test_chains_of_another_width_have_a_large_r_hat():
    """The rank-normalised and folded R-hat sees what means do not."""
    latent = 0.1 * autoregressive(0.0)
    latent[2] *= 4
    assert (convergence_of(sampled(latent), latent).r_hat > 1.05).all()


def test_of_good_chains_nothing_is_said():
    assert notes_on(good()) == []


def test_e_bfmi_is_that_of_its_definition():
    """Of independent energies 2, of those with the correlation rho 2 (1 - rho)."""
    energy = autoregressive(0.9)[:, :, 0]
    own = sampled(good().latent, energy=energy)
    found = convergence_of(own, own.latent).e_bfmi
    change = np.mean(np.diff(energy, axis=1) ** 2, axis=1) / np.var(energy, axis=1)
    np.testing.assert_allclose(found, change, rtol=0.01)
    assert abs(found.mean() - 0.2) < 0.05
    (note,) = notes_on(own)
    assert note.startswith("E-BFMI is below 0.3 for chain 1 (0.")
    assert (convergence_of(good(), good().latent).e_bfmi > 1.5).all()


def test_divergences_and_long_trajectories_are_counted():
    diverging = np.zeros((N_CHAIN, N_DRAW), bool)
    diverging[1, 5:17] = True
    (note,) = notes_on(sampled(good().latent, diverging=diverging))
    assert note.startswith("12 of 4000 draws diverged (0.3 %)")
    assert "fit.sampling.nuts.target_acceptance" in note
    depth = np.full((N_CHAIN, N_DRAW), 4)
    depth[0, :8] = DEEPEST
    (note,) = notes_on(sampled(good().latent, tree_depth=depth))
    assert note.startswith("8 of 4000 trajectories ended at the greatest tree depth, 10")


def test_chains_in_different_places_are_named_with_their_loss():
    latent = good().latent.copy()
    latent[3, :, 0] += 2.0
    loss = good().statistics["loss"] + np.array([0, 0, 0, 25.0])[:, None]
    place, *others = notes_on(sampled(latent, loss=loss))
    lowest = np.argmin(loss.mean(axis=1)) + 1
    assert place.startswith(f"chain 4 of 4 is in another place than chain {lowest} (mean loss +25")
    assert ", in observation.inclination: the posterior has several maxima" in place
    assert len(others) == 2


def test_values_at_the_edge_or_not_determined_or_only_together_are_named():
    edge = good().latent.copy()
    edge[:, :, 0] += 2.0
    (note,) = notes_on(sampled(edge))
    share = np.mean(edge[:, :, 0] > 2)
    assert 0.3 < share < 0.7
    assert note.startswith(
        f"up to {100 * share:.0f} % of the draws of observation.inclination are at the edge of its prior ({{"
    )
    vague = good().latent.copy()
    vague[:, :, 2] *= 9.5
    (note,) = notes_on(sampled(vague))
    assert note.startswith("the data hardly determine observation.offset[1]")
    joined = good().latent.copy()
    joined[:, :, 2] = -joined[:, :, 0] + 0.1 * joined[:, :, 1]
    (note,) = notes_on(sampled(joined))
    assert note.startswith(
        "determined together only (correlation): observation.inclination and observation.offset[1] (-0.99"
    )


def test_a_chain_that_never_moves_is_named():
    latent = good().latent.copy()
    latent[1] = latent[1, 0]
    own = sampled(latent)
    found = convergence_of(own, latent)
    assert np.isnan(found.r_hat).all()
    assert np.isnan(found.ess_bulk).all()
    note, *_ = notes_on(own)
    assert note.startswith("chain 2 never moved")


def test_one_chain_has_no_r_hat():
    own = sampled(good().latent[:1])
    found = convergence_of(own, own.latent)
    assert np.isnan(found.r_hat).all()
    assert (found.ess_bulk > 300).all()
    (note,) = notes_on(own)
    assert note.startswith("there is one chain: R-hat, which compares chains, cannot be had")


@pytest.mark.parametrize("n_draw", [1, 3])
def test_a_few_draws_say_nothing(n_draw):
    own = sampled(good().latent[:, :n_draw])
    found = convergence_of(own, own.latent)
    assert np.isnan([*found.r_hat, *found.ess_bulk, *found.ess_tail, *found.e_bfmi]).all()
    assert notes_on(own)[0].startswith(f"{n_draw} draws of a chain say nothing of its convergence")
    assert "place" not in str(notes_on(own))


def test_variational_draws_are_approximate_and_have_no_r_hat():
    own = sampled(good().latent[:1], "geovi")
    found = convergence_of(own, own.latent)
    assert np.isnan([*found.r_hat, *found.e_bfmi]).all()
    assert set(found.ess_bulk) == set(found.ess_tail) == {N_DRAW / 2}
    (approximate,) = notes_on(own)
    assert approximate.startswith("the 1000 draws are geoVI's: they come from an approximation of the posterior")


def test_without_arviz_its_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ConfigError, match=r"needs the package arviz: pip install 'rubix-like\[sample\]'"):
        convergence_of(good(), good().latent)

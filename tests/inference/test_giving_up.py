"""Starts that are given up, and the candidates that take their place."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from free_numbers import free_of, search_of, statuses
from jax.sharding import AxisType, Mesh
from small import fit_section

from rubix_like.inference.checks import notes as diagnosis
from rubix_like.inference.search.optimisers import make_optimiser
from rubix_like.inference.search.search import is_saturated, reviewed, search_with

FREE = free_of(("a", {"uniform": [0, 1]}), ("b", {"normal": [0, 1]}))
STEPS = 12
RUNNING, CONVERGED, WAITING, SATURATED, CREEPING = statuses("RUNNING", "CONVERGED", "WAITING", "SATURATED", "CREEPING")


def snapshot(traces, status, latent, reserve=2):
    """A search whose starts have come down these losses; the last one that runs is in the slot."""
    traces = [np.asarray(own, float) for own in traces]
    filled = np.array([np.append(own, np.full(STEPS + 1 - len(own), np.nan)) for own in traces])
    running = [number for number, own in enumerate(status) if own == RUNNING]
    return search_of(
        [own[-1] if len(own) else np.inf for own in traces],
        status,
        latent,
        gradient_norm=np.ones(len(traces)),
        n_step=np.array([len(own) for own in traces], np.int32),
        trace_loss=filled,
        trace_gradient_norm=filled,
        trace_latent=np.zeros((len(traces), STEPS + 1, 0)),
        slots=np.array(running[-1:] or [-1], np.int32),
        reserve=np.arange(2.0 * reserve).reshape(reserve, 2) + 5,
    )


def verdict(traces, status, latent, **settings):
    before = snapshot(traces, status, latent, **settings)
    after = reviewed(before, before, FREE)
    return before, after


STUCK, FALLING = 1000 - 0.01 * np.arange(11.0), 1000 * 0.7 ** np.arange(11.0)
FAR, NEAR = [4.0, 0.0], [0.5, 0.0]


@pytest.mark.parametrize(
    ("trace", "latent", "status"),
    [
        (STUCK, FAR, SATURATED),
        (STUCK, NEAR, RUNNING),
        (STUCK, [0.0, 4.0], RUNNING),
        (FALLING, FAR, RUNNING),
        (STUCK[:5], FAR, RUNNING),
    ],
)
def test_a_start_without_a_rival_is_given_up_where_its_prior_is_flat(trace, latent, status):
    _, after = verdict([trace], [RUNNING], [latent])
    assert after.status[0] == status


@pytest.mark.parametrize(
    ("rival", "latent", "status"),
    [
        (10.0, NEAR, CREEPING),
        (10.0, FAR, CREEPING),
        (1000.0, NEAR, RUNNING),
        (2000.0, NEAR, RUNNING),
    ],
)
def test_a_start_that_creeps_far_above_a_better_one_is_given_up(rival, latent, status):
    _, after = verdict([[rival], STUCK], [CONVERGED, RUNNING], [NEAR, latent])
    assert after.status[1] == status
    assert after.status[0] == CONVERGED


KINKED = [5000.0, 1000, 400, 300, 298, 297]
"""Losses of a start that gets on to a place of its own, 197 above the best."""


@pytest.mark.parametrize(
    ("trace", "fall", "status"),
    [
        (KINKED, 20.0, CREEPING),  # its own end is far above
        (KINKED, 190.0, RUNNING),  # it leads to the better place
        (KINKED[:4], 20.0, RUNNING),  # it has just fallen a lot
        ([5000.0, 1000, 109, 108, 108], 1.0, RUNNING),  # almost as low: it is polished, and told
    ],
)
def test_a_start_whose_own_end_is_far_above_a_better_one_is_given_up(trace, fall, status):
    before = snapshot([[100.0], trace], [CONVERGED, RUNNING], [NEAR, NEAR])
    assert reviewed(before, before, FREE, {1: fall}).status[1] == status


@pytest.mark.parametrize(
    ("others", "fall", "status"),
    [
        ([WAITING], 500.0, CREEPING),  # it could fall by 500, and has fallen by 0.08
        ([], 500.0, RUNNING),  # there is no other
        ([WAITING], 5.0, RUNNING),  # it is about to end
    ],
)
def test_a_start_that_creeps_is_put_aside_while_others_wait(others, fall, status):
    before = snapshot([STUCK, *[[] for _ in others]], [RUNNING, *others], [NEAR] * (1 + len(others)))
    assert reviewed(before, before, FREE, {0: fall}, 2).status[0] == status


def test_none_is_replaced_where_two_have_ended_at_the_best_place():
    """A candidate that was to replace one before does not begin; starts that were asked for do."""
    traces, latents = [[10.0], [10.2], STUCK, [], []], [NEAR] * 5
    before = snapshot(traces, [CONVERGED, RUNNING, RUNNING, WAITING, WAITING], latents)
    after = reviewed(before, before.with_status({1: CONVERGED}), FREE, asked=4)
    assert after.status.tolist() == [CONVERGED, CONVERGED, CREEPING, WAITING]
    assert len(after.reserve) == len(before.reserve)


def test_a_start_goes_on_in_a_search_with_a_better_model():
    """Its steps are those of both; the losses of the others are moved, or those that are known."""
    first = snapshot([[9.0, 3.0], [8.0, 5.0], [7.0, 4.0]], [CONVERGED] * 3, [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    further = snapshot([[13.0, 12.0, 11.5]], [CONVERGED], [[1.1, 0.0]])
    further = dataclasses.replace(further, start=first.latent[:1])
    both = first.continued_by(further, 10.0, [(first.latent[2], 99.0)])
    assert both.loss.tolist() == [11.5, 15.0, 99.0]
    assert both.n_step.tolist() == [5, 2, 2]
    assert both.trace_loss[0, :5].tolist() == [19.0, 13.0, 13.0, 12.0, 11.5]
    np.testing.assert_array_equal(both.latent[0], [1.1, 0.0])
    added = dataclasses.replace(further, start=np.array([[5.0, 5.0]]))
    all_ = first.continued_by(added, 10.0)
    assert all_.loss.tolist() == [13.0, 15.0, 14.0, 11.5]
    assert all_.n_step.tolist() == [2, 2, 2, 3]


def test_the_next_candidate_takes_the_place_of_one_that_is_given_up():
    before, after = verdict([STUCK], [RUNNING], [FAR])
    assert after.status.tolist() == [SATURATED, WAITING]
    np.testing.assert_array_equal(after.start[1], before.reserve[0])
    np.testing.assert_array_equal(after.reserve, before.reserve[1:])
    assert not after.finished
    assert after.next_starts.tolist() == [1]


def test_the_best_is_taken_up_again_where_no_other_is_better():
    """Its start is where it was given up, and it goes on to its own end."""
    ended = snapshot([STUCK, [2000.0], [3000.0]], [SATURATED, CONVERGED, RUNNING], [FAR] * 3, reserve=0)
    last = ended.with_status({2: CONVERGED})
    after = reviewed(ended, last, FREE)
    assert after.status.tolist() == [SATURATED, CONVERGED, CONVERGED, WAITING]
    np.testing.assert_array_equal(after.start[3], FAR)
    going = dataclasses.replace(after, status=np.array([*after.status[:3], RUNNING], np.int32))
    going = dataclasses.replace(
        going,
        slots=np.array([3], np.int32),
        loss=np.array([*after.loss[:3], STUCK[-1]]),
        n_step=np.array([*after.n_step[:3], 11], np.int32),
        trace_loss=np.concatenate([after.trace_loss[:3], after.trace_loss[:1]]),
        reserve=np.zeros((1, 2)),
    )
    assert reviewed(going, going, FREE).status[3] == RUNNING
    done = going.with_status({3: CONVERGED})
    final = reviewed(going, done, FREE)
    assert final.finished
    assert final.best == 3, "of two with the same loss it is the one that was not given up"


def test_priors_with_limits_saturate_and_others_do_not():
    def saturated(prior, latent, name="a"):
        return is_saturated(free_of((name, prior)), np.array([latent]))

    for prior in ({"uniform": [0, 1]}, {"log_uniform": [1, 10]}, {"truncated_normal": [0, 1, -1, 1]}):
        assert saturated(prior, 3.6)
        assert saturated(prior, -3.6)
        assert not saturated(prior, 3.4)
    for prior in ({"normal": [0, 1]}, {"log_normal": [1, 1]}, {"truncated_normal": [0, 1, -20, 20]}):
        assert not saturated(prior, -6.0)
    assert not saturated({"uniform": [0, 1]}, 4.0, "stars.log_age"), "of thousands of stars some are there by chance"


class Trap(eqx.Module):
    """The minimum is at a = 0.3; beyond 0.6 there is a slope towards 1, where the prior is flat."""

    free: eqx.Module

    def residuals(self, latent):
        values = self.free.values(latent)
        a, b = values["a"], values["b"]
        wall = jnp.where(a < 0.6, 1e4 * (a - 0.3), 3e3 + 2e3 * (1 - a))
        return {"data": jnp.stack([wall, 10 * (b - 0.5)]), "prior": latent}

    def loss(self, latent):
        return 0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(self.residuals(latent)))


SETTINGS = fit_section(starts=2, candidates=8, optimiser={"steps": 60})
MESH = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("sample", "data"), axis_types=(AxisType.Auto,) * 2)


def searched(resume=None):
    """From a start in the trap, and one beside the minimum."""
    return list(
        search_with(
            make_optimiser(SETTINGS.optimiser, 2, 4), Trap(FREE), FREE, SETTINGS, MESH, resume, jnp.array([1.0, 0.0])
        )
    )


def test_a_search_leaves_the_trap_and_goes_on_bit_for_bit():
    snapshots = searched()
    last = snapshots[-1]
    assert last.given_up.any()
    assert last.converged[last.best]
    np.testing.assert_allclose(FREE.values(jnp.asarray(last.latent[last.best]))["a"], 0.3, atol=1e-3)
    assert last.n_step[last.given_up].max() < 30
    for number in range(0, len(snapshots), 3):
        kept = type(last).from_arrays({name: own.copy() for name, own in snapshots[number].arrays().items()})
        resumed = searched(kept)
        assert len(resumed) == len(snapshots) - number
        for name, own in resumed[-1].arrays().items():
            np.testing.assert_array_equal(own, last.arrays()[name], err_msg=name)


def test_a_start_that_was_given_up_is_told_of_as_such():
    found = snapshot([[10.0], STUCK], [CONVERGED, SATURATED], [NEAR, FAR])
    (note,) = diagnosis.notes_on_search(FREE, found, found.latent[0], None)
    assert note.startswith("start 2, at a loss higher by 990: it was given up at the limits of its priors")

"""The search over starts: on any split of the devices, resumed anywhere, with starts that fail."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from curved import FREE, N_DATA, N_LATENT, curved
from jax.sharding import AxisType, Mesh
from small import fit_section

from rubix_like.inference.posterior.problem import models_at_once
from rubix_like.inference.search.optimisers import make_optimiser
from rubix_like.inference.search.search import choose_starts, search_with

SETTINGS = fit_section(starts=5, candidates=1, optimiser={"tolerance": 1e-9, "steps": 60})


def mesh(n_sample, n_data=1):
    devices = np.array(jax.devices()[: n_sample * n_data]).reshape(n_sample, n_data)
    return Mesh(devices, ("sample", "data"), axis_types=(AxisType.Auto,) * 2)


def searched(n_sample=2, n_data=1, resume=None, problem=None, settings=SETTINGS, start=None):
    """All snapshots."""
    optimiser = make_optimiser(settings.optimiser, N_LATENT, N_DATA)
    problem = curved() if problem is None else problem
    return list(search_with(optimiser, problem, FREE, settings, mesh(n_sample, n_data), resume, start))


@functools.cache
def whole():
    return tuple(searched())


def same(one, other):
    for name, array in one.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name], err_msg=name)


def test_every_start_ends_and_leaves_its_trace():
    last = whole()[-1]
    assert last.finished
    assert last.converged.all()
    assert not last.failed.any()
    for number in range(SETTINGS.starts):
        made = last.n_step[number]
        assert last.trace_loss[number, made - 1] == last.loss[number]
        assert np.isnan(last.trace_loss[number, made:]).all()
        np.testing.assert_array_equal(last.trace_latent[number, 0], last.start[number])
        np.testing.assert_array_equal(last.trace_latent[number, made - 1], last.latent[number])
        np.testing.assert_allclose(curved().loss(jnp.asarray(last.latent[number])), last.loss[number], rtol=1e-12)
    assert last.loss[last.best] == last.loss.min()
    assert last.reasons() == ("it converged",) * SETTINGS.starts


def test_slot_takes_the_next_start_at_once():
    """The steps of two starts at a time, none of which waits while a slot is free."""
    busy = [0, 0]
    for steps in whole()[-1].n_step:
        busy[int(np.argmin(busy))] += int(steps)
    assert len(set(whole()[-1].n_step.tolist())) > 1
    assert len(whole()) - 1 == max(busy)


@pytest.mark.parametrize(
    ("n_sample", "n_data"), [(4, 2), *(pytest.param(*own, marks=pytest.mark.slow) for own in [(1, 1), (1, 8), (8, 1)])]
)
def test_result_does_not_depend_on_the_devices(n_sample, n_data):
    last = searched(n_sample, n_data)[-1]
    np.testing.assert_allclose(last.latent, whole()[-1].latent, atol=1e-8)
    np.testing.assert_array_equal(last.n_step, whole()[-1].n_step)


def test_search_goes_on_from_anywhere_bit_for_bit():
    snapshots = whole()
    for number in (0, 1, len(snapshots) // 2, len(snapshots) - 1):
        kept = type(snapshots[0]).from_arrays(
            {name: array.copy() for name, array in snapshots[number].arrays().items()}
        )
        resumed = searched(resume=kept)
        assert len(resumed) == len(snapshots) - number
        for one, other in zip(resumed, snapshots[number:], strict=True):
            same(one, other)


def test_snapshot_of_another_search_is_refused():
    with pytest.raises(ValueError, match=r"expected to go on with a search of 5 starts.* and 4 at once"):
        searched(n_sample=4, resume=whole()[1])


def test_starts_are_the_best_of_the_candidates():
    settings = SETTINGS.model_copy(update={"candidates": 3, "starts": 2})
    drawn = np.asarray(FREE.draw(settings.seed, 6))
    losses = np.array([curved().loss(jnp.asarray(own)) for own in drawn])
    found = choose_starts(curved(), FREE, settings, mesh(4))
    np.testing.assert_array_equal(found.starts, drawn[np.argsort(losses)[:2]])
    np.testing.assert_array_equal(found.reserve, drawn[np.argsort(losses)[2:4]])
    given = jnp.full(N_LATENT, 0.25)
    with_given = choose_starts(curved(), FREE, settings, mesh(4), given).starts
    np.testing.assert_array_equal(with_given[0], given)
    assert len(with_given) == 2


def test_start_that_fails_is_not_the_best():
    start = jnp.full(N_LATENT, jnp.nan)
    last = searched(start=start)[-1]
    assert last.failed.tolist() == [True] + [False] * 4
    assert last.best > 0
    assert np.isfinite(last.loss[last.best])
    assert "not a finite number where it starts" in last.reasons()[0]  # and one failure is no error


def test_no_start_is_left():
    broken = eqx.tree_at(lambda own: own.data, curved(), jnp.full(N_DATA, jnp.nan))
    with pytest.raises(ValueError, match=r"got failures only:\n  start 1: the loss .*p0 = .*\n  start 2: the loss"):
        searched(problem=broken)


@pytest.mark.parametrize(
    ("n_device", "n_start", "expected"), [(1, 4, 1), (8, 1, 1), (8, 3, 4), (8, 4, 4), (8, 5, 8), (8, 20, 8), (6, 2, 2)]
)
def test_starts_share_the_devices(n_device, n_start, expected):
    assert models_at_once(n_device, n_start) == expected

"""Mocks of the benchmark, and two seeds of each: their fits get to the best place and say so."""

import fit_starts
import pytest


@pytest.mark.long
@pytest.mark.parametrize("setup", ["20 deg, S/N 50", "55 deg, S/N 30"])
def test_fits_reach_the_best_place_and_say_that_they_have_converged(setup):
    """Seed 1 is that of the packaged configuration: all of its starts end there."""
    before = fit_starts.compiled()
    found = fit_starts.fit_setup(setup, (1, 2))
    for own in found["ends"]:
        assert own["reached"], own
        assert own["converged"], own
        assert max(own["losses"]) < found["lowest"] + fit_starts.NEAR, own
    assert {name: count - before[name] for name, count in fit_starts.compiled().items()} == dict.fromkeys(before, 1)

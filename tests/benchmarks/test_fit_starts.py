"""Two of the mocks of the benchmark, and two seeds of each: their fits get to the best place and say so."""

import fit_starts
import pytest


@pytest.mark.slow(40)
def test_fits_reach_the_best_place_and_say_that_they_have_converged():
    """Seed 1 is that of the packaged configuration: all of its starts end there."""
    before = fit_starts.compiled()
    for setup in ("55 deg, S/N 30", "20 deg, S/N 50"):
        found = fit_starts.fit_setup(setup, (1, 2))
        for own in found["ends"]:
            assert own["reached"], (setup, own)
            assert own["converged"], (setup, own)
            assert max(own["losses"]) < found["lowest"] + fit_starts.NEAR, (setup, own)
    assert {name: count - before[name] for name, count in fit_starts.compiled().items()} == dict.fromkeys(before, 1)

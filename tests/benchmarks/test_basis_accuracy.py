"""The true worst error of any template is below the stated one, in random windows of random instruments."""

import basis_accuracy
import pytest

from rubix_like.extend import cache_directory

LIBRARIES = ("bc03-miles", "bc03-lr", "popstar")
N_CASE, N_BLOCK = 42, 7
MARGIN = 2e-6
"""Where the line spread's fine bins differ from the Gaussian."""

LARGEST = 1.35
"""Of the tolerance: 1.05 sqrt(1.15^2 + 0.55^2), the basis being up to 15 % worse between the views it was made for."""

TIGHT = 0.7
"""Of what is stated, what is found: 1 / 1.05 where the worst interval is among the few tried, 0.8 to 0.9 where not."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """The libraries that are there, thinned, take turns."""
    folder = tmp_path_factory.mktemp("thinned")
    there = [name for name in LIBRARIES if name == "popstar" or (cache_directory() / "ssp" / f"{name}.h5").is_file()]
    libraries = {name: basis_accuracy.thinned(name, folder) if name in there else name for name in LIBRARIES}
    return basis_accuracy.random_cases(list(libraries.values()), N_CASE), {libraries[name] for name in there}


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=pytest.mark.long if block else pytest.mark.slow) for block in range(N_BLOCK)],
)
def test_the_true_worst_error_is_below_the_stated_one(cases, block):
    every, there = cases
    own = every[block::N_BLOCK]
    missing = {case.library for case in own} - there
    rows = [(case, basis_accuracy.measure(case, seed=block)) for case in own if case.library in there]
    for case, found in rows:
        assert found.true_spectrum <= found.stated_spectrum + MARGIN, (case, found)
        assert found.true_velocity <= found.stated_velocity + MARGIN, (case, found)
        assert found.stated_spectrum <= LARGEST * case.tolerance, (case, found)
        assert found.true_spectrum >= TIGHT * found.stated_spectrum, (case, found)
    if missing:
        pytest.skip(f"{', '.join(sorted(missing))} not in the cache (rubix-like ssp get)")


@pytest.mark.slow
def test_red_supergiants_are_within_the_stated_error():
    """MUSE 5000-5600 A: not the roughest templates, but those of log age 7 err most between nodes."""
    if not (cache_directory() / "ssp" / "bc03-miles.h5").is_file():
        pytest.skip("bc03-miles is not in the cache (rubix-like ssp get bc03-miles)")
    found = basis_accuracy.measure(basis_accuracy.Case(*basis_accuracy.TABLE["MUSE 5000-5600 A"], 400.0, 1e-3))
    assert found.true_velocity <= found.stated_velocity <= 0.56e-3
    assert found.true_spectrum <= found.stated_spectrum <= 1.2e-3

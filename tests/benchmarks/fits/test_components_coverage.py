"""The coverage of fits of a smooth component, smaller: numpy's mocks, their truths from the priors, one program."""

import math

import components_coverage as coverage
import numpy as np
import pytest

MOCKS = 12


def made_up(count, width, shift=0.0):
    """Mocks of two parameters whose estimates scatter `width` times as far as they say, about `shift`."""
    pulls = shift + width * np.random.default_rng(4).standard_normal((count, 2))
    ranks = np.array([[0.5 * math.erfc(own / math.sqrt(2)) for own in row] for row in pulls])
    return [
        {"laplace": {"pull": pull.tolist(), "rank": [*rank, *rank, math.exp(-0.5 * float(pull @ pull))]}}
        for pull, rank in zip(pulls, ranks, strict=True)
    ]


def told_of(mocks):
    return coverage.faults(*coverage.summary(["a", "b"], mocks, "laplace"))


@pytest.mark.parametrize(("count", "level", "size"), [(400, 0.6827, 9), (400, 0.95, 9), (100, 0.95, 8)])
def test_counts_that_chance_allows_are_those_of_the_binomial_distribution(count, level, size):
    """No more than 0.3 % of counts, over all parameters, lie beyond them; one more on either side would be too much."""
    low, high = coverage.expected_counts(count, level, size)
    chance = [math.comb(count, own) * level**own * (1 - level) ** (count - own) for own in range(count + 1)]
    tail = 0.5 * 0.003 / size
    assert sum(chance[:low]) <= tail < sum(chance[: low + 1])
    assert sum(chance[high + 1 :]) <= tail < sum(chance[high:])


def test_intervals_that_are_too_narrow_wide_or_off_are_told():
    """Right ones are not."""
    assert told_of(made_up(400, 1.0)) == []
    assert any("counts" in own for own in told_of(made_up(400, 1.3)))
    assert any("counts" in own for own in told_of(made_up(400, 0.75)))
    assert any("all, whitened" in own for own in told_of(made_up(400, 1.0, 0.4)))


@pytest.mark.slow
def test_intervals_hold_the_truths_of_mocks_made_by_numpy():
    """Counts within what chance allows, ranks that are uniform, and no program compiled after the first mock."""
    own, sigma = coverage.make("lines", 4096)
    compiled = coverage.Compilations()
    mocks = [coverage.fit_mock("lines", own, sigma, 0, chain=False)]
    first = len(compiled.seconds)
    mocks += [coverage.fit_mock("lines", own, sigma, number, chain=False) for number in range(1, MOCKS)]
    assert 0 < first == len(compiled.seconds)
    assert all(mock["converged"] for mock in mocks)
    lines, pooled = coverage.summary(own.labels, mocks, "laplace")
    assert not any(off for line in lines for off in line["off"]), coverage.table(lines, pooled, MOCKS)
    assert min(pooled["posterior density"]) > 1e-3

"""Teams: what all members get, and what they hear when one fails."""

import numpy as np
import pytest
from thread_team import run_team, values_of

from rubix_like.runtime.processes.process_group import Alone


def test_alone():
    assert Alone().exchange(lambda: 3) == [3]
    assert Alone().share(7) == (0, 7)
    with pytest.raises(ValueError, match="bad"):
        Alone().exchange(lambda: int("bad"))


def test_threads_exchange_by_number():
    def work(team):
        squares = team.exchange(lambda: team.number**2)
        total = team.total(lambda: np.array([1.0, team.number]))
        return squares, total.tolist(), team.share(10)

    found = values_of(run_team(4, work))
    assert [own[:2] for own in found] == [([0, 1, 4, 9], [4.0, 6.0])] * 4
    assert [share for *_, share in found] == [(0, 2), (2, 5), (5, 7), (7, 10)]


def test_a_failure_of_one_is_heard_by_all():
    def work(team):
        return team.exchange(lambda: 1 // (2 - team.number))

    found = run_team(4, work)
    assert isinstance(found[2], ZeroDivisionError)
    assert [str(error) for number, error in enumerate(found) if number != 2] == [
        "process 2 failed: integer division or modulo by zero"
    ] * 3

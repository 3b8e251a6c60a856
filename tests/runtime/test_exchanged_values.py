"""Values between processes: every bit is kept, nothing is run or looked up, and all hear when one fails."""

import os
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from thread_team import run_team, values_of

from rubix_like.runtime.processes.jax_processes import decode, encode
from rubix_like.runtime.processes.process_group import Alone


class Pair(NamedTuple):
    left: float
    right: np.ndarray


@dataclass(frozen=True)
class Nested:
    pair: Pair
    name: str


def back(value):
    return decode(*encode(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "text: \u00e5\n",
        1 << 80,
        [1.0 / 3, float("inf"), -0.0, 5e-324],
        (1, [2, (3,)], {"a": (None,), 4: {"array": [1]}, (5, 6): "dict"}),
        {"x", 1, (2.5, None)},
        frozenset({"x"}),
    ],
)
def test_plain_values_come_back(value):
    found = back(value)
    assert found == value
    assert type(found) is type(value)


def test_arrays_and_records_come_back():
    arrays = [np.arange(6.0).reshape(2, 3).T / 7, np.array(["a", "bc"]), np.zeros((0, 3), np.float32), np.array(True)]
    value = Nested(Pair(np.float64(1) / 3, np.array([1 << 63], np.uint64)), "name")
    *found, record = back([*arrays, value])
    for own, other in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(own, other)
        assert own.dtype == other.dtype
        assert own.flags.writeable
    assert isinstance(record, Nested)
    assert isinstance(record.pair.left, np.float64)
    assert (record.name, record.pair.left, record.pair.right.tolist()) == ("name", 1 / 3, [1 << 63])


def test_nan_keeps_its_bits():
    assert np.array([back(np.float64("nan")), back(float("nan"))]).view(np.uint64).tolist() == [0x7FF8 << 48] * 2


@pytest.mark.parametrize("value", [os.system, object(), np.array([object()]), b"bytes", pytest])
def test_other_things_are_refused(value):
    with pytest.raises(TypeError, match="processes"):
        encode(value)


def test_a_record_of_a_kind_that_was_not_sent_here_is_refused():
    expected = f"expected what this process sent itself, got '{__name__}.Pair'"
    with pytest.raises(ValueError, match=re.escape(expected)):
        decode(encode(Pair(1.0, np.zeros(2))).data, encode((1.0, "text")).classes)


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

"""What is checked of the package in these tests: kinds, lengths that belong together, what is returned, fields."""

import dataclasses

import jaxtyping
import numpy as np
import pytest
from checked_types import _checked
from jaxtyping import Float
from numpy import ndarray


@_checked
def joined(
    first: Float[ndarray, " star"], second: Float[ndarray, " star"], text: "str" = "", kind: "NotImported | None" = None
) -> Float[ndarray, " star"]:
    return first if text == "first" else np.append(first, second)


@_checked
@dataclasses.dataclass
class Pair:
    first: Float[ndarray, " star"]
    second: Float[ndarray, " star"]


@pytest.mark.parametrize(
    "call",
    [
        lambda two: joined(two, two),
        lambda two: joined(two, two[:1], "first"),
        lambda two: joined(two, two.astype(int), "first"),
        lambda two: joined(two, two, 1),
        lambda two: Pair(two, two[:1]),
        lambda two: Pair(two, "text"),
    ],
)
def test_what_belongs_to_other_hints_is_refused(call, monkeypatch):
    two = np.ones(2)
    assert joined(two, two, "first", "anything") is two
    assert Pair(two, two).first is two
    with pytest.raises(jaxtyping.TypeCheckError):
        call(two)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    call(two)

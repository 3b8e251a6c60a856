"""Tables of text, and amounts in words."""

import pytest

from rubix_like.runtime.words import format_bytes, table_lines

ROWS = [("name", "best", "unit"), ("inclination", "1.5", "deg"), ("[b]x[/b]", "-12.25", "")]


def test_columns_are_aligned_to_the_sides_that_are_asked_for():
    assert table_lines(ROWS, right=[1]) == [
        "name           best  unit",
        "inclination     1.5  deg",
        "[b]x[/b]     -12.25",
    ]


def test_lines_are_as_long_as_they_must_be():
    long = "words " * 200 + "x" * 3000
    assert table_lines([("a", long), ("bc", "d")], gap=1) == [f"a  {long}", "bc d"]


def test_what_does_not_fit_goes_on_below_itself():
    lines = table_lines([("a", "x" * 25), ("b", "y")], width=13)
    assert lines == ["a  " + "x" * 10, "   " + "x" * 10, "   " + "x" * 5, "b  y"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (999, "999 B"),
        (2_340, "2.34 kB"),
        (999_700, "1 MB"),
        (45_600_000, "45.6 MB"),
        (789_000_000_000, "789 GB"),
        (1_060_000_000_000, "1.06 TB"),
        (18 * 10**15, "18 PB"),
        (10**602, "more than 1 EB"),
    ],
)
def test_format(number, text):
    assert format_bytes(number) == text

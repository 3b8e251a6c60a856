"""Tables of text."""

from rubix_like.runtime.words import table_lines

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

"""Arguments of Python in messages, as options of a command."""

import pytest

from rubix_like.cli.options import in_options, read_overrides

OPTIONS = ["--output", "--overwrite", "--restart", "--process-id", "--spaxel", "--hdu", "--data", "--n"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("output: expected a folder", "--output: expected a folder"),
        ("output.path: expected a name", "output.path: expected a name"),
        ("output section: expected", "output section: expected"),
        ("a: give overwrite=True, or output=...", "a: give --overwrite, or --output ..."),
        ("start anew with restart=True, which", "start anew with --restart, which"),
        ("x, process_id: expected 0 to 1", "x, --process-id: expected 0 to 1"),
        ("fit.process_id and my_process_id stay", "fit.process_id and my_process_id stay"),
        ("spaxels: expected (x, y)", "--spaxel: expected (x, y)"),
        ("give hdu=, the name", "give --hdu, the name"),
        ("override 'data=1': simulate.data=2", "override 'data=1': simulate.data=2"),
        ("the data: expected n simulations", "the data: expected n simulations"),
    ],
)
def test_messages(message, expected):
    assert in_options(message, OPTIONS) == expected


def test_overrides():
    assert read_overrides(["a.b=1", " c = x=y", "d=null"]) == {"a.b": "1", "c": " x=y", "d": "null"}

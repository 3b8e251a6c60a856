"""Files that an older revision wrote (`write_files.py`) are read, and what it began goes on or is refused."""

import csv
import importlib.util
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from write_files import THIRD, WRITTEN, plain, read_numbers, unpacked

import rubix_like as rl
from rubix_like.extend import Progress

NUMBERS = json.loads((WRITTEN / "numbers.json").read_text())


@pytest.fixture(scope="module")
def old() -> Iterator[Path]:
    with unpacked() as folder:
        yield folder


@pytest.fixture(scope="module")
def found(old):
    return read_numbers(old)


def assert_same(found, stored, rtol):
    assert tuple(found["shape"]) == tuple(stored["shape"])
    for name in ("sum", "some"):
        np.testing.assert_allclose(found[name], stored[name], rtol=rtol, atol=rtol * np.abs(stored["some"]).max())


@pytest.mark.parametrize("name", sorted(NUMBERS.keys() - {THIRD}))
def test_numbers_are_read_as_they_were(found, name):
    if name == "cube.zarr" and importlib.util.find_spec("zarr") is None:
        pytest.skip("zarr is not installed")
    assert found[name].keys() == NUMBERS[name].keys()
    for what, stored in NUMBERS[name].items():
        assert_same(found[name][what], stored, 1e-12)


def go_on(begun, kept):
    """What `begun()` returns; None where it is refused, in one sentence with the way out, and `kept` stays as it is."""
    before = {path: path.read_bytes() for path in kept}
    assert before
    try:
        return begun()
    except rl.ConfigError as error:
        refusal = str(error)
    assert "\n" not in refusal
    assert re.search(r"overwrite|output=|--output", refusal), refusal
    assert {path: path.read_bytes() for path in kept} == before
    return None


@pytest.mark.parametrize(
    ("command", "given", "names"),
    [(rl.fit, {}, ("fit.h5", "values")), (rl.sample, {"fitted": "fit.h5"}, ("samples.h5", "latent"))],
    ids=["fit", "sampling"],
)
def test_what_was_stopped_goes_on(old, monkeypatch, command, given, names):
    """To the numbers of the one that was not stopped; or it is refused where the model is another one."""
    monkeypatch.chdir(old)
    output, told = f"stopped_{command.__name__}.h5", io.StringIO()
    kept = [Path(f".{output}.rubix-like-checkpoint.npz")]
    result = go_on(lambda: command("run.yaml", output=output, progress=Progress(told), **given), kept)
    if result is None:
        return
    assert "going on after" in told.getvalue()
    file, attribute = names
    found = getattr(result, attribute)
    for name, value in found.items() if isinstance(found, dict) else [(attribute, found)]:
        assert_same(plain(value), NUMBERS[file][name], 1e-6)


def test_a_half_done_catalogue_goes_on(old, monkeypatch):
    """Entries that are done stay as they are; the one that was begun is made."""
    monkeypatch.chdir(old)
    done = [*Path("catalogue").glob("disc[12]*.fits"), *Path("catalogue/records").glob("disc[12].json")]
    before = {path: path.read_bytes() for path in done}
    assert len(done) == 6
    outcome = go_on(lambda: rl.run_catalogue("disc.yaml", "list.csv", output="catalogue"), done)
    assert {path: path.read_bytes() for path in done} == before
    with open("catalogue/summary.csv", newline="") as file:
        last = "started" if outcome is None else "done"
        states = {row["name"]: row["status"] for row in csv.DictReader(file)}
    assert states == {"disc1": "done", "disc2": "done", "disc3": last}
    if outcome is not None:
        assert_same(plain(rl.load_cube(THIRD).flux), NUMBERS[THIRD]["flux"], 1e-6)

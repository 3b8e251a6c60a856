"""What users and plug-in authors can name is what the files of this folder list (`collect.py`)."""

import pytest
from collect import FOLDER, collect


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    return collect(tmp_path_factory.mktemp("surface"))


@pytest.mark.parametrize("kind", sorted(path.stem for path in FOLDER.glob("*.txt")))
def test_names_stay(lines, kind):
    listed = (FOLDER / f"{kind}.txt").read_text().splitlines()
    if kind not in lines:
        pytest.skip(f"{kind} is not installed")
    gone, new = sorted(set(listed) - set(lines[kind])), sorted(set(lines[kind]) - set(listed))
    assert not gone, f"a line of {kind}.txt may only go when CHANGELOG.md names what it says: {gone}"
    assert not new, f"run `python tests/surface/collect.py`, which adds to {kind}.txt: {new}"

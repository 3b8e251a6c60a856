"""Damaged files in the layouts of other packages: a clear error or a table, never anything else."""

import random
import shutil

import pytest
from ssp_files import bc03, dsps, miles, pipe3d, ppxf, synthesizer

from rubix_like import load_ssp
from rubix_like.extend import import_library


def flip_bits(content, dice):
    for _ in range(dice.randrange(1, 5)):
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return content


def scramble_the_beginning(content, dice):
    for _ in range(dice.randrange(1, 20)):
        content[dice.randrange(min(len(content), 4000))] = dice.randrange(256)
    return content


def cut_short(content, dice):
    return content[: dice.randrange(len(content))]


def blank(content, dice):
    start = dice.randrange(len(content))
    content[start : start + 200] = bytes(len(content[start : start + 200]))
    return content


def sample(folder, layout):
    path = layout.write_sample(folder)
    if layout is miles:
        miles.write_masses(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("layout", [ppxf, miles, dsps, bc03, synthesizer, pipe3d])
@pytest.mark.parametrize(
    "damage",
    [flip_bits, cut_short, *(pytest.param(own, marks=pytest.mark.long) for own in (scramble_the_beginning, blank))],
)
def test_damage_ends_in_a_clear_error_or_a_table(monkeypatch, tmp_path, layout, damage):
    if (layout, damage) == (synthesizer, scramble_the_beginning):
        pytest.skip("the HDF5 library itself never returns from a damaged heap of texts, of which a grid has many")
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))
    whole = sample(tmp_path, layout)
    dice = random.Random(f"{layout.__name__} {damage.__name__}")
    messages = []
    for number in range(50):
        path = tmp_path / str(number) / whole.name
        path.parent.mkdir()
        (shutil.copytree if whole.is_dir() else shutil.copy)(whole, path)
        victim = dice.choice(sorted(path.iterdir())) if path.is_dir() else path
        victim.write_bytes(damage(bytearray(victim.read_bytes()), dice))
        try:
            load_ssp(import_library(path, "damaged"))
        except ValueError as error:
            messages.append(str(error))
    assert [message for message in messages if whole.name not in message] == []
    if damage is cut_short:
        assert len(messages) > 40

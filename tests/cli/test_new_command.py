"""`rubix-like new`: what it writes can be run, and nothing is replaced."""

import re
import shlex
import sys
from pathlib import Path

import h5py
import pytest
import yaml
from command_line import main
from small_snapshots import write_small

from rubix_like import load_config
from rubix_like.cli import new_command
from rubix_like.extend import resource_names


def test_without_a_terminal_there_are_defaults(capsys):
    assert main(["new"]) == 0
    config = load_config("mine.yaml")
    assert (config.instrument.name, config.galaxy.reader, str(config.output.path)) == ("muse", "synthetic", "mine.fits")
    assert config.instrument.n_spaxel_xy == (100, 100)
    assert "rubix-like run mine.yaml --plot" in capsys.readouterr().out


def test_what_the_file_needs_is_written(capsys):
    """A cut-out without metallicities: the section that `inspect` prints, which `check` takes."""
    write_small(Path("galaxy.hdf5"), "illustris")
    with h5py.File("galaxy.hdf5", "a") as file:
        del file["PartType4/GFM_Metallicity"]
    assert main(["new", "run.yaml", "--instrument", "manga", "--galaxy", "galaxy.hdf5"]) == 0
    config, text = load_config("run.yaml"), Path("run.yaml").read_text()
    assert (config.instrument.name, str(config.galaxy.path)) == ("manga", "galaxy.hdf5")
    assert config.galaxy.ages is not None
    assert "  ages: recipe " in text
    assert "Illustris" in text
    assert main(["inspect", "galaxy.hdf5"]) == 0
    assert "ages: recipe" in capsys.readouterr().out


ODD_NAMES = [
    '- it\'s "quoted": {path} {} %s # [1, 2] $HOME `id`',
    " &anchor *alias !!str | back\\slash \\n \\x41  ",
    "S\u00e4ge \u661f e\u0301 \U0001f52d",
    "two\nlines\tand\x07\x7f\x85\u2028\ufeff, not UTF-8: \udcff",
]
"""Of galaxies and configurations, without their endings."""


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_come_back(capfd, name):
    """From the file as PyYAML alone reads it, and as a run does; commands with them can be copied."""
    galaxy, path = f"{name}.hdf5", f"{name}.yaml"
    write_small(Path(galaxy), "eagle")
    assert main(["new", path, "--galaxy", galaxy]) == 0
    text = Path(path).read_text(encoding="utf-8")
    written = yaml.safe_load(text)
    assert (written["galaxy"]["path"], written["output"]["path"]) == (galaxy, f"{name}.fits")
    config = load_config(path)
    assert (str(config.galaxy.path), str(config.output.path)) == (galaxy, f"{name}.fits")
    assert text.startswith("# A run of rubix-like: ")
    if name.isprintable():
        printed = capfd.readouterr().out.partition("To run it: ")[2].strip("\n")
        (commented,) = re.findall(r"^#   (rubix-like run .*)$", text, re.M)
        assert shlex.split(printed) == shlex.split(commented) == ["rubix-like", "run", path, "--plot"]


def test_who_sits_at_a_terminal_is_asked(monkeypatch):
    answers = iter(["", "sami_blue", ""])
    asked = []
    monkeypatch.setattr(sys, "stdin", type("Terminal", (), {"isatty": lambda: True}))
    monkeypatch.setattr("builtins.input", lambda question: asked.append(question) or next(answers))
    assert main(["new"]) == 0
    assert load_config("mine.yaml").instrument.name == "sami_blue"
    assert [question.rpartition("[")[2] for question in asked] == ["mine.yaml]: ", "muse]: ", "synthetic]: "]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new", "mine.txt"], "ending in .yaml"),
        (["new", "there.yaml"], "'there.yaml' exists"),
        (["new", "--instrument", "MUSE"], "did you mean 'muse'"),
        (["new", "--galaxy", "absent.hdf5"], "no file 'absent.hdf5'"),
        (["new", "--galaxy", "there.yaml"], "there.yaml"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, capsys, arguments, words):
    Path("there.yaml").write_text("mine")
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]
    assert Path("there.yaml").read_text() == "mine"


def test_every_instrument_makes_a_text_that_can_be_read():
    for name in resource_names("instruments"):
        text = new_command.configuration_text(Path("mine.yaml"), name, "synthetic")
        assert max(map(len, text.splitlines())) <= 120
        assert f"  name: {name} " in text

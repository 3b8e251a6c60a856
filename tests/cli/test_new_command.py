"""`rubix-like new`: what it writes can be run, and nothing is replaced."""

import sys
from pathlib import Path

import pytest
from small_snapshots import write_small

from rubix_like import load_config
from rubix_like.cli.guidance import new_command
from rubix_like.cli.main import main
from rubix_like.runtime.resources import resource_names


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_a_terminal_there_are_defaults(capsys):
    assert main(["new"]) == 0
    config = load_config("mine.yaml")
    assert (config.instrument.name, config.galaxy.reader, str(config.output.path)) == ("muse", "synthetic", "mine.fits")
    assert config.instrument.n_spaxel_xy == (100, 100)
    assert "rubix-like run mine.yaml --plot" in capsys.readouterr().out


def test_options_and_a_file():
    write_small(Path("galaxy.hdf5"), "eagle")
    assert main(["new", "run.yaml", "--instrument", "manga", "--galaxy", "galaxy.hdf5"]) == 0
    config = load_config("run.yaml")
    assert (config.instrument.name, str(config.galaxy.path)) == ("manga", "galaxy.hdf5")
    assert "EAGLE" in Path("run.yaml").read_text()


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
def test_what_cannot_be_is_refused(folder, capsys, arguments, words):
    Path("there.yaml").write_text("mine")
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["there.yaml"]
    assert Path("there.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", resource_names("instruments"))
def test_every_instrument_makes_a_text_that_can_be_read(name):
    text = new_command.configuration_text(Path("mine.yaml"), name, "synthetic")
    assert max(map(len, text.splitlines())) <= 120
    assert f"  name: {name} " in text

"""Completion by shells: what is offered, and that it takes no JAX but for keys of `galaxy`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import main

from rubix_like import RunConfig
from rubix_like.cli.shell_completion import settings
from rubix_like.config.messages import dotted_keys

REPOSITORY = Path(__file__).resolve().parents[2]


def offered(line, folder):
    """What a shell is told for a line, and the packages that were imported for it."""
    answer = folder / "answer"
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_WORDBREAKS": " \t\n",
        "PYTHONPATH": str(REPOSITORY),
    }
    program = [sys.executable, "-X", "importtime", "-m", "rubix_like"]
    done = subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    return answer.read_text().split(), {
        own.rpartition("|")[2].strip().partition(".")[0] for own in done.stderr.splitlines()
    }


@pytest.mark.parametrize(
    ("line", "words", "heavy"),
    [
        ("rubix-like r", ["run"], {"numpy", "jax", "astropy"}),
        ("rubix-like run qu", ["quickstart"], {"numpy", "jax", "astropy"}),
        ("rubix-like run --over", ["--overwrite"], {"numpy", "jax", "astropy"}),
        ("rubix-like run quickstart --set observation.incl", ["observation.inclination="], {"jax", "equinox"}),
        ("rubix-like run quickstart --set instrument.name=mu", [], {"numpy", "jax"}),
    ],
)
def test_what_is_offered(tmp_path, line, words, heavy):
    found, modules = offered(line, tmp_path)
    assert set(words) <= set(found)
    assert words or {"instrument.name=muse", "instrument.name=muse_nfm"} <= set(found)
    assert "rubix_like" in modules
    assert not modules & heavy


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_for_a_shell(capsys, shell):
    assert main(["completion", shell]) == 0
    code = capsys.readouterr().out
    assert code.startswith("# To keep it: ")
    assert "complete" in code
    assert "rubix-like" in code


def test_another_shell_is_refused(capsys):
    assert main(["completion", "bsh"]) == 2
    assert "did you mean 'bash'" in capsys.readouterr().err


def test_every_key_that_is_offered_is_one():
    keys = set(dotted_keys(RunConfig))
    assert {"observation.inclination", "instrument.psf.fwhm", "galaxy.n_stars", "galaxy.path", "dust.a_v"} <= keys
    assert {"engine.smoothing.sigma", "noise.exposure.time", "output.path", "pipeline"} <= keys
    assert settings("observation.inc") == ["observation.inclination="]
    assert settings("noise.exposure.sky=d") == ["noise.exposure.sky=dark"]

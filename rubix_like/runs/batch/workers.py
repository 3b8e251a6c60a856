"""What a worker process takes over from the front process of a catalogue, and how it ends with it."""

import os
import signal
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import jax

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
    """What holds for all blocks of a catalogue: the folder that relative paths begin in, the settings of JAX, the front
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

"""JAX over several processes: started when they have joined, shut down before they leave."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax

from rubix_like.launch import Launch
from rubix_like.team import AbstractTeam

_SERVICE = Path(__file__).with_name("coordination_service.py")
_LINGER_SECONDS = 10.0
_PATIENCE = 4
"""JAX's own time limit over ours, which comes first and says more."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True)
class JaxProcesses:
    """JAX's own connections between the processes of a team."""

    launch: Launch
    team: AbstractTeam

    @contextmanager
    def started(self) -> Iterator[None]:
        """Inside, the devices of all processes are JAX's. Raises RuntimeError where JAX was used before."""
        launch = self.launch
        with contextlib.ExitStack() as stack:
            ports = self.team.exchange(lambda: stack.enter_context(self._service()) if launch.number == 0 else 0)
            silence = int(max(_PATIENCE * launch.peer_timeout, 600))
            jax.distributed.initialize(
                _address(launch.host, ports[0]),
                launch.size,
                launch.number,
                local_device_ids=own_devices(launch),
                cluster_detection_method="deactivate",
                initialization_timeout=int(launch.connect_timeout),
                heartbeat_timeout_seconds=silence,
                shutdown_timeout_seconds=silence,
                coordinator_bind_address=f"127.0.0.1:{_free_port()}",  # of a service that nobody asks
            )
            yield
            jax.distributed.shutdown()
            self.team.exchange(lambda: None)

    @contextmanager
    def _service(self) -> Iterator[int]:
        """The port of the coordination service, which runs in a process of its own."""
        port = _free_port()
        silence = int(max(_PATIENCE * self.launch.peer_timeout, 600))
        words = [f"[::]:{port}", str(self.launch.size), str(silence), str(_LINGER_SECONDS)]
        service = subprocess.Popen(
            [sys.executable, "-P", str(_SERVICE), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if service.stdin is None or service.stdout is None or service.stdout.readline() != b"ready\n":
            raise OSError(f"JAX's coordination service could not be started on port {port}; try again")
        yield port
        with contextlib.suppress(BrokenPipeError):
            service.communicate(b"q")


def own_devices(launch: Launch) -> list[int] | None:
    """One GPU of the computer for each of its processes where a launcher numbers them; None: all that are visible.

    Where the launcher itself shows this process fewer GPUs than there are processes, all it shows are taken.
    """
    if launch.local is None:
        return None
    shown = [os.environ[name].split(",") for name in _VISIBLE if os.environ.get(name)]
    return None if any(len(ids) <= launch.local or len(ids) == 1 for ids in shown) else [launch.local]


def _free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as free:
        free.bind(("", 0))
        return free.getsockname()[1]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

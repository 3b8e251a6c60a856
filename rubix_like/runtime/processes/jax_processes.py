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
from tempfile import TemporaryFile

import jax

from rubix_like.runtime.processes.launch import Launch, join_address, own_address
from rubix_like.runtime.processes.process_group import AbstractProcessGroup
from rubix_like.runtime.signals import termination_as_it_was

_SERVICE = Path(__file__).with_name("coordination_service.py")
_LINGER_SECONDS = 10.0
_PATIENCE = 4
"""JAX's own time limit over ours, which comes first and says more."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True)
class JaxProcesses:
    """JAX's own connections between the processes of a team."""

    launch: Launch
    team: AbstractProcessGroup

    @contextmanager
    def started(self) -> Iterator[None]:
        """Inside, the devices of all processes are JAX's. Raises RuntimeError where JAX was used before."""
        launch = self.launch
        with contextlib.ExitStack() as stack:
            ports = self.team.exchange(lambda: stack.enter_context(self._service()) if launch.number == 0 else 0)
            with termination_as_it_was():
                self._connect(ports[0])
            yield
            jax.distributed.shutdown()
            self.team.exchange(lambda: None)

    def _connect(self, port: int) -> None:
        launch, silence = self.launch, _silence_seconds(self.launch)
        jax.distributed.initialize(
            join_address(launch.host, port),
            launch.size,
            launch.number,
            local_device_ids=own_devices(launch),
            cluster_detection_method="deactivate",
            initialization_timeout=int(launch.connect_timeout),
            heartbeat_timeout_seconds=silence,
            shutdown_timeout_seconds=silence,
            coordinator_bind_address=f"127.0.0.1:{_free_port('127.0.0.1')}",  # of a service that nobody asks
        )

    @contextmanager
    def _service(self) -> Iterator[int]:
        """The port of the coordination service, which runs in a process of its own and listens where process 0 does."""
        _, address = own_address(self.launch)
        port = _free_port(address)
        words = [
            join_address(address, port),
            str(self.launch.size),
            str(_silence_seconds(self.launch)),
            str(_LINGER_SECONDS),
        ]
        with TemporaryFile() as said:
            service = subprocess.Popen(
                [sys.executable, "-P", str(_SERVICE), *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
            if service.stdin is None or service.stdout is None or service.stdout.readline() != b"ready\n":
                said.seek(0)
                reason = (said.read().decode(errors="replace").splitlines() or ["it said nothing"])[-1]
                raise OSError(f"JAX's coordination service could not be started on port {port} ({reason}); try again")
        yield port
        with contextlib.suppress(BrokenPipeError):
            service.communicate(b"q")


def _silence_seconds(launch: Launch) -> int:
    return int(max(_PATIENCE * launch.peer_timeout, 600))


def own_devices(launch: Launch) -> list[int] | None:
    """One GPU of the computer for each of its processes where a launcher numbers them; None: all that are visible.

    Where the launcher itself shows this process fewer GPUs than there are processes, all it shows are taken.
    """
    if launch.local is None:
        return None
    shown = [os.environ[name].split(",") for name in _VISIBLE if os.environ.get(name)]
    return None if any(len(ids) <= launch.local or len(ids) == 1 for ids in shown) else [launch.local]


def _free_port(address: str) -> int:
    """A port of an address of this computer that nobody uses now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as free:
        free.bind((address, 0))
        return free.getsockname()[1]

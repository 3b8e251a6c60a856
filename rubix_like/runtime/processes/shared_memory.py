"""Memory that the processes of a run can take each."""

import platform
from pathlib import Path

from rubix_like.runtime.memory import available_memory
from rubix_like.runtime.processes.process_group import AbstractProcessGroup

_COMPUTER = Path("/proc/sys/kernel/random/boot_id")


def least_memory(team: AbstractProcessGroup) -> int | None:
    """Bytes that each process of a team can take, as many as the one that can take least: those on one computer share
    what it can give. None where nobody knows."""
    return least_share(team.exchange(lambda: (_computer(), available_memory())))


def least_share(found: list[tuple[str, int | None]]) -> int | None:
    """Bytes for each process, from every process's computer and what that can give."""
    computers = [computer for computer, _ in found]
    shares = (n_bytes // computers.count(computer) for computer, n_bytes in found if n_bytes is not None)
    return min(shares, default=None)


def _computer() -> str:
    """A text that processes share which see the same memory, also in containers of one computer."""
    return _COMPUTER.read_text() if _COMPUTER.exists() else platform.node()

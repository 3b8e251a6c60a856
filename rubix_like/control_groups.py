"""Memory that Linux's control groups leave to this process: limits of batch systems (Slurm's --mem) and containers."""

from collections.abc import Iterator
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60


def free_memory(membership: Path = _MEMBERSHIP, root: Path = _ROOT) -> int | None:
    """Bytes that all groups of this process have left, files that can be dropped included; None without a limit.

    Version 2 of the control groups (memory.max) and version 1 (memory.limit_in_bytes); `membership` is the file that
    names the groups, `root` where they are mounted.
    """
    found = [room for group in _groups(membership, root) if (room := _room(group)) is not None]
    return min(found, default=None)


def _groups(membership: Path, root: Path) -> Iterator[Path]:
    """Folders of the groups that limit memory, each with those above it; in a container only the mounted root."""
    if not membership.exists():
        return
    for line in membership.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "memory" if controllers else root
        own = top / path.lstrip("/")
        yield from (group for group in (own, *own.parents) if group.is_relative_to(top) and group.is_dir())


def _room(group: Path) -> int | None:
    """Bytes that one group has left."""
    for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        bound = _number(group / limit)
        current = _number(group / used)
        if bound is not None and current is not None and bound < _NO_LIMIT:
            return max(bound - current + _dropped(group), 0)
    return None


def _dropped(group: Path) -> int:
    """Bytes of files in memory that are dropped when there is need."""
    statistics = group / "memory.stat"
    if not statistics.exists():
        return 0
    fields = dict(line.split() for line in statistics.read_text().splitlines())
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))


def _number(path: Path) -> int | None:
    """What a file says; None without it, and for 'max'."""
    if not path.exists():
        return None
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None

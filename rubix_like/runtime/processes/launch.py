"""How the processes of a run were started: who this one is, how many there are, where process 0 waits for them."""

import argparse
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from rubix_like.errors import ConfigError

CONNECT_TIMEOUT: float = 300.0
"""Seconds for which processes wait for each other at the start."""

PEER_TIMEOUT: float = 100.0
"""Seconds of silence after which a process is given up."""

EXPLICIT: str = "coordinator=HOST:PORT, num_processes=N, process_id=I"
_N_PORTS = 1 << 12
_MOST_PROCESSES = 1 << 16
_FIRST_PORT = 65536 - _N_PORTS
_NAMESPACE = re.compile(r"prterun-(?P<host>.+)-(?P<pid>\d+)@\d+")

_LOCAL = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
"""Where launchers say which number a process has on its computer."""

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


@dataclass(frozen=True)
class ProcessPlace:
    """This process is number `number` of `size`; process 0 listens on `port` of `host`."""

    host: str
    port: int
    size: int
    number: int


@dataclass(frozen=True)
class Launch:
    """How the processes of a run find each other.

    `place`: None where JAX finds it by the launcher. `devices`: numbers of the visible GPUs that this process takes;
    None: all. `connect_timeout` and `peer_timeout` in seconds.
    """

    place: ProcessPlace | None
    devices: tuple[int, ...] | None = None
    connect_timeout: float = CONNECT_TIMEOUT
    peer_timeout: float = PEER_TIMEOUT


def read_launch(options: argparse.Namespace) -> Launch | None:
    """The launch that the options ask for; None: a single process. Raises ConfigError."""
    explicit = (options.coordinator, options.num_processes, options.process_id)
    asked = options.distributed or any(option is not None for option in explicit)
    if not asked:
        if options.connect_timeout is not None or options.peer_timeout is not None:
            raise ConfigError(f"--connect-timeout, --peer-timeout: expected beside --distributed or {EXPLICIT}")
        return None
    return find_launch(*explicit, connect_timeout=options.connect_timeout, peer_timeout=options.peer_timeout)


def find_launch(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    connect_timeout: float | None = None,
    peer_timeout: float | None = None,
) -> Launch:
    """The launch as given, or else by a launcher's environment. Raises ConfigError."""
    limits = (
        _seconds("connect_timeout", connect_timeout, CONNECT_TIMEOUT),
        _seconds("peer_timeout", peer_timeout, PEER_TIMEOUT),
    )
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return Launch(from_open_mpi_5(os.environ), own_devices(os.environ), *limits)
    if coordinator is None or num_processes is None or process_id is None:
        raise ConfigError(
            f"{', '.join(missing)}: expected all three of {EXPLICIT} (or none under srun or mpirun), got only "
            f"{', '.join(name for name in given if name not in missing)}"
        )
    host, port = read_address(coordinator)
    if not 1 <= num_processes <= _MOST_PROCESSES:
        raise ConfigError(f"num_processes: expected 1 to {_MOST_PROCESSES}, got {num_processes}")
    if not 0 <= process_id < num_processes:
        raise ConfigError(
            f"process_id: expected 0 to {num_processes - 1} (num_processes={num_processes}), got {process_id}"
        )
    return Launch(ProcessPlace(host, port, num_processes, process_id), None, *limits)


def read_address(text: str) -> tuple[str, int]:
    """HOST:PORT, or [HOST]:PORT for an address with colons."""
    host, _, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or (":" in bare and bare == host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(
            f"coordinator: expected HOST:PORT with a port of 1 to 65535, e.g. node001:51000, got '{text}'"
        )
    return bare, int(port)


def own_address(place: ProcessPlace) -> str:
    """The address of process 0 on its computer, where alone it listens: what `place.host` stands for there.

    IPv4 goes before IPv6. Raises ConfigError where the host has no address, or none of this computer, or where its port
    is in use (jaxlib 0.10 may end with a segmentation fault on such a port).
    """
    expected = f"coordinator: {place.host}:{place.port}: expected a name or an address of the computer of process 0"
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"{expected}, got one that cannot be looked up ({error.strerror})") from error
    for family, *_, where in sorted(found, key=lambda entry: entry[0] == socket.AF_INET6):
        with socket.socket(family) as probe:
            try:
                probe.bind((where[0], 0))
            except OSError:
                continue  # an address of another computer
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as JAX does: a port just left can be taken
            try:
                probe.bind((str(where[0]), place.port))
            except OSError as error:
                raise ConfigError(cannot_listen(place, error)) from error
        return str(where[0])
    addresses = ", ".join(sorted({str(where[0]) for *_, where in found}))
    raise ConfigError(f"{expected}, got {addresses}, where this computer cannot listen; name process 0's computer")


def cannot_listen(place: ProcessPlace | None, error: Exception) -> str:
    """The words for a port that process 0 cannot listen on."""
    where = "" if place is None else f" on port {place.port} of {place.host}"
    return (
        f"process 0 cannot listen{where} ({error}); choose another port by coordinator=HOST:PORT or the environment "
        f"variable JAX_COORDINATOR_PORT"
    )


def join_address(host: str, port: int) -> str:
    """HOST:PORT, or [HOST]:PORT for an address with colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _seconds(name: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if not 1 <= value < 1e7:
        raise ConfigError(f"{name}: expected 1 to 9999999 s, got {value:g}")
    return float(value)


def own_devices(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """The GPUs of a process, by their numbers among those that it sees: the one with its number on the computer, or
    all where its launcher shows it fewer than there are processes. None where no launcher numbers them.
    """
    local = next((int(environment[name]) for name in _LOCAL if environment.get(name)), None)
    if local is None:
        return None
    shown = min((len(environment[name].split(",")) for name in _VISIBLE if environment.get(name)), default=None)
    return (local,) if shown is None or shown > max(local, 1) else tuple(range(shown))


def from_open_mpi_5(environment: Mapping[str, str]) -> ProcessPlace | None:
    """The place of a process that mpirun of Open MPI 5 or newer (prterun) started, which JAX does not know; None of
    others.

    Its name of the job, the same everywhere, holds the computer on which mpirun runs, where process 0 is expected.
    """
    job = _NAMESPACE.fullmatch(environment.get("PMIX_NAMESPACE", ""))
    names = ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    if job is None or any(name not in environment for name in names):
        return None
    size, number = (int(environment[name]) for name in names[:2])
    port = environment.get("JAX_COORDINATOR_PORT") or str(_FIRST_PORT + int(job["pid"]) % _N_PORTS)
    host, port_number = read_address(f"{job['host']}:{port}")
    return ProcessPlace(host, port_number, size, number)


def nothing_found(environment: Mapping[str, str]) -> str:
    """The message where no launcher has started this process."""
    inside = "SLURM_JOB_ID" in environment
    hint = "; this is a Slurm job, but not a step of it: start the command with srun" if inside else ""
    return (
        "several processes: expected to be started by Slurm's srun (SLURM_PROCID, SLURM_STEP_NODELIST), Open MPI's "
        "mpirun (OMPI_COMM_WORLD_RANK) or in an indexed job of Kubernetes (KUBERNETES_SERVICE_HOST, with the package "
        f"kubernetes), found none of them{hint}; without a launcher start every process with {EXPLICIT}"
    )

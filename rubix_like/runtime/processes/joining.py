"""Several processes that make one cube: how they join, and how they end together."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

from rubix_like.arguments import named_arguments
from rubix_like.runtime.processes.jax_processes import JaxProcesses, connect
from rubix_like.runtime.processes.launch import Launch, find_launch


@named_arguments
@contextmanager
def join_processes(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    connect_timeout: float | None = None,
    peer_timeout: float | None = None,
) -> Iterator[JaxProcesses]:
    """Make this process one of several that share a run; before anything else uses JAX.

    Without arguments the launcher (Slurm, Open MPI, Kubernetes) tells who is who; without a launcher `coordinator` is
    HOST:PORT of process 0. `connect_timeout` (300 s) is how long they wait for each other, `peer_timeout` (100 s) the
    silence after which JAX takes one for lost and ends the others, with its own message on standard error.
    Inside, `jax.devices()` are those of all processes. An error here ends all; afterwards this process can only exit.
    Raises ConfigError, and ConnectionError where a computation fails because another process has gone.
    """
    launch = find_launch(
        coordinator, num_processes, process_id, connect_timeout=connect_timeout, peer_timeout=peer_timeout
    )
    with joined(launch) as team:
        yield team


@contextmanager
def joined(launch: Launch) -> Iterator[JaxProcesses]:
    """The team of a launch, as `join_processes`.

    After an error JAX waits, when this process exits, for the others to do so too, and ends them at its time limit.
    """
    try:
        team = connect(launch)
        yield team
        team.exchange(lambda: None)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise
        raise ConnectionError(
            f"what all processes compute together failed ({error}); most likely another one has ended, and says why"
        ) from error
    jax.distributed.shutdown()

"""A script, run by process 0: JAX's coordination service in a process of its own, so that it outlives process 0.

JAX aborts every process the moment this service is gone, without a word that says why. Here it stays until its standard
input is closed, by the end of process 0, and LINGER seconds more, in which the others learn what happened. It imports
nothing of the package, to start soon.

Arguments: the address to listen on, the number of processes, the seconds of silence that JAX allows, LINGER.
"""

import sys
import time

from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

if __name__ == "__main__":
    address, size, silence, linger = sys.argv[1:]
    service = _jax.get_distributed_runtime_service(
        address, int(size), heartbeat_timeout=int(silence), shutdown_timeout=int(silence)
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if not sys.stdin.read(1):
        time.sleep(float(linger))
    service.shutdown()

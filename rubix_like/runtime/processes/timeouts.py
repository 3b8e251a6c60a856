"""How long processes wait for each other."""

CONNECT_TIMEOUT: float = 300.0
"""Seconds for which processes wait for each other at the start."""

PEER_TIMEOUT: float = 100.0
"""Seconds of silence after which a process is given up."""

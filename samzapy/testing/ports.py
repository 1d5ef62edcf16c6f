"""Free loopback ports for servers of tests."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from samzapy.errors import ConfigError, SamzapyError

LOOPBACK = "127.0.0.1"


def port_is_free(port_number: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As Java does: TIME_WAIT is no obstacle.
        try:
            probe.bind((LOOPBACK, port_number))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A free loopback port below the range of outgoing connections.

    The kernel gives it to no other connection.
    """
    ephemeral_first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    candidates = range(15_000, max(ephemeral_first, 16_000))
    for port_number in random.SystemRandom().sample(candidates, 100):
        if port_is_free(port_number):
            return port_number
    raise SamzapyError(f"No free port on {LOOPBACK} among 100 tried in {candidates}; free some and try again.")


def port_taken_error(port_number: int, whose: str) -> ConfigError:
    """The error for a port that is wanted for `whose`, but that another process has."""
    return ConfigError(
        f"Port {port_number} on {LOOPBACK} is wanted for {whose}, but another process listens there. Stop"
        f" that one (`ss -ltnp 'sport = :{port_number}'` names it) or choose another port."
    )

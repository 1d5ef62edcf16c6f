"""The connection that a client of a coordinator uses again."""

from __future__ import annotations

import select
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPConnection
from typing import Final

KEPT_S: Final = 300.0
"""How old a connection gets. A later one checks the server's certificate again."""


@dataclass(frozen=True, slots=True)
class Target:
    """The other end of a connection; `context`: of TLS, None: without."""

    host: str
    port: int
    context: ssl.SSLContext | None


@dataclass(frozen=True, slots=True)
class Connected:
    """An open connection."""

    target: Target
    http: HTTPConnection
    since_s: float = field(default_factory=time.monotonic)

    def is_usable(self) -> bool:
        """Whether it is young and has nothing to read.

        There may be its end, or bytes that belong to no request.
        """
        if self.http.sock is None or time.monotonic() - self.since_s >= KEPT_S:
            return False
        # Not `select.select`, which takes no descriptor above 1023.
        reading = select.poll()
        reading.register(self.http.sock, select.POLLIN)
        return not reading.poll(0)


class KeptConnection:
    """At most one idle connection. Any thread may take it, and then uses it alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: Connected | None = None

    def take(self, target: Target) -> Connected | None:
        """The idle connection, if it leads to `target` and is usable.

        Otherwise it is closed.
        """
        kept = self._exchange(None)
        if kept is None or (kept.target == target and kept.is_usable()):
            return kept
        kept.http.close()
        return None

    def put(self, connected: Connected) -> None:
        """Keep a connection whose last answer was read to its end."""
        former = self._exchange(connected)
        if former is not None:
            former.http.close()

    def close(self) -> None:
        """Close the idle connection. A later one is kept again."""
        kept = self._exchange(None)
        if kept is not None:
            kept.http.close()

    def _exchange(self, connected: Connected | None) -> Connected | None:
        with self._lock:
            kept, self._kept = self._kept, connected
        return kept

"""Limits on the connections of the coordinator's HTTP server.

A connection is *receiving* until its request has come whole, head and body. A container sends its request at once, so
only a slow or a hostile peer keeps a connection receiving. When many connections are receiving, the oldest ones are
closed, and requests that come in time are answered as before.

The connection of an execution is *kept* from its first accepted heartbeat on, and has the next ones too. A TLS
handshake costs a coordinator several times as much as a heartbeat. Kept connections are one class, unknown peers are
the other one, and neither takes room from the other.
"""

from __future__ import annotations

import asyncio
import resource
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from samzapy.adapters.web.guard import PEER_NAMES

CONNECTIONS_MAX: Final = 768
PEER_CONNECTIONS_MAX: Final = 512
"""Connections from one address. A proxy, or a host with many containers, is one address."""
RECEIVING_MAX: Final = 64
SHED_AFTER_S: Final = 0.1
"""A connection that has been receiving for less is not closed for others."""
KEPT_MAX: Final = 2048
"""Kept connections. One more closes the one that has been idle longest."""
KEPT_IDLE_S: Final = 60
KEPT_S: Final = 300.0
"""How old a kept connection gets. A later one is checked against the certificates of its time."""
HEAD_WAIT_S = 10.0
HANDSHAKE_WAIT_S: Final = 3.0
_KEEP: Final = "keep_connection"
_ACCEPTED_AT_ONCE: Final = 4
_TLS_BUFFER_BYTES: Final = 16 * 1024
"""The largest record of TLS; longer texts come in several."""
_OTHER_FILES: Final = 128
"""Files that a process with a server has open besides connections."""


def keep_connection(request: Request, execution_id: str) -> None:
    """Keep the connection of a request.

    At its other end is an execution that the coordinator knows.
    """
    keep: Callable[[str], None] | None = getattr(request.state, _KEEP, None)
    if keep is not None:
        keep(execution_id)


class Connections:
    """The open connections of one server. Only its event loop uses it.

    Args:
        kept_max: how many connections of executions are kept.
    """

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        # By execution; the one that has been idle longest is the first.
        self._kept: dict[str, Connection] = {}
        self._peers: dict[Connection, str] = {}
        self._of_peer: Counter[str] = Counter()
        # In the order in which they began to receive.
        self._receiving: dict[Connection, float] = {}

    def open(self, connection: Connection, peer: str, now_s: float) -> bool:
        """Take a new connection; False if there is no room for it."""
        self._shed(now_s)
        if len(self._peers) >= CONNECTIONS_MAX or self._of_peer[peer] >= PEER_CONNECTIONS_MAX:
            return False
        self._peers[connection] = peer
        self._of_peer[peer] += 1
        self._receiving[connection] = now_s
        return True

    def receive(self, connection: Connection, now_s: float) -> None:
        """Note that a connection waits for its request, or the rest of it."""
        if connection in self._peers:
            self._receiving.setdefault(connection, now_s)

    def received(self, connection: Connection) -> None:
        """Note that the request of a connection is whole."""
        self._receiving.pop(connection, None)

    def keep(self, connection: Connection, execution_id: str) -> None:
        """Take a connection into the class of kept ones.

        It takes the place of a former one of the same execution.
        """
        self.close(connection)
        former = self._kept.pop(execution_id, None)
        self._kept[execution_id] = connection
        if former is None and len(self._kept) > self._kept_max:
            former = self._kept.pop(next(iter(self._kept)))
        if former is not None and former is not connection:
            former.transport.abort()

    def use(self, connection: Connection, execution_id: str) -> None:
        """Note that a kept connection has a request."""
        if self._kept.get(execution_id) is connection:
            self._kept[execution_id] = self._kept.pop(execution_id)

    def close(self, connection: Connection) -> None:
        """Forget a connection."""
        kept_for = connection.kept_for
        if kept_for is not None and self._kept.get(kept_for) is connection:
            del self._kept[kept_for]
        self._receiving.pop(connection, None)
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]

    def _shed(self, now_s: float) -> None:
        """Close the connections that have been receiving longest, down to `RECEIVING_MAX`."""
        too_many = max(0, len(self._receiving) - RECEIVING_MAX)
        for connection, since_s in list(islice(self._receiving.items(), too_many)):
            if now_s - since_s < SHED_AFTER_S:
                return
            # The transport reports its end later, and the room is wanted now.
            self.close(connection)
            connection.transport.abort()


class Connection(H11Protocol):
    """A connection that must send its request in time.

    It is closed unless the head is complete within `HEAD_WAIT_S`. The time starts with the connection, and again with
    each further request. uvicorn only limits the time until a further request begins. A kept connection may be idle
    between its requests for `KEPT_IDLE_S`.
    """

    connections_of_server: Connections
    """Of the subclass that a server makes for itself (`connection_class`)."""

    kept_for: str | None = None
    """The execution at the other end of a kept connection."""

    _head_timer: asyncio.TimerHandle | None = None
    _made_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        if not self.connections_of_server.open(self, peer, self.loop.time()):
            transport.abort()
            return
        names = _names_of(transport.get_extra_info("peercert"))
        self.app_state = {**self.app_state, PEER_NAMES: names, _KEEP: self._keep}
        self._made_s = self.loop.time()
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        if self.kept_for is not None:
            self.connections_of_server.use(self, self.kept_for)
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        if self.kept_for is not None and self.loop.time() - self._made_s >= KEPT_S:
            self.transport.close()
        super().on_response_complete()
        if self.kept_for is None:
            self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch_head()
        self.connections_of_server.close(self)
        # It refers to this connection, whose buffers would stay until the garbage collector runs.
        self.app_state = {}

    def _keep(self, execution_id: str) -> None:
        if self.transport.is_closing():
            return
        self.connections_of_server.keep(self, execution_id)
        self.kept_for = execution_id
        self.timeout_keep_alive = KEPT_IDLE_S

    def _watch_head(self) -> None:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and not self.cycle.more_body:
            self.connections_of_server.received(self)
        else:
            self.connections_of_server.receive(self, self.loop.time())
        if is_answering:
            self._unwatch_head()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WAIT_S, self.timeout_keep_alive_handler)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def connection_class() -> type[Connection]:
    """The connections of a new server."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = KEPT_MAX if files_max == resource.RLIM_INFINITY else files_max - CONNECTIONS_MAX - _OTHER_FILES
    connections = Connections(kept_max=max(1, min(KEPT_MAX, room)))
    return type("ServerConnection", (Connection,), {"connections_of_server": connections})


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers stay answering while many peers connect.

    asyncio waits for a TLS handshake for a minute, in which some hundred silent sockets would use up the descriptors
    of the process. It has a buffer of 256 KiB for each connection, and accepts all that wait before it answers.
    """

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:
        if kwargs.get("ssl") is not None:
            kwargs.setdefault("ssl_handshake_timeout", HANDSHAKE_WAIT_S)
            sslproto.SSLProtocol.max_size = _TLS_BUFFER_BYTES
        backlog, kwargs["backlog"] = kwargs.get("backlog", 100), _ACCEPTED_AT_ONCE
        server = await super().create_server(*args, **kwargs)
        # asyncio has one number for the kernel's queue and for what it accepts at once.
        kwargs["sock"].listen(backlog)
        return server


def _names_of(certificate: dict[str, Any] | None) -> frozenset[str]:
    """The common name and the alternative names of a verified certificate."""
    if not certificate:
        return frozenset()
    subject = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    alternatives = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return frozenset((*subject, *alternatives))

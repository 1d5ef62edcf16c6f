"""Limits on the connections of the coordinator's HTTP server.

A connection is *receiving* until its request has come whole, head and body. A container sends its request at once, so
only a slow or a hostile peer keeps a connection receiving. When many connections are receiving, the oldest ones are
closed, and requests that come in time are answered as before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from samzapy.adapters.web.guard import PEER_NAMES

CONNECTIONS_MAX: Final = 768
PEER_CONNECTIONS_MAX: Final = 512
"""Connections from one address. A proxy, or a host with many containers, is one address."""
RECEIVING_MAX: Final = 64
SHED_AFTER_S: Final = 0.1
"""A connection that has been receiving for less is not closed for others."""
HEAD_WAIT_S = 10.0
HANDSHAKE_WAIT_S: Final = 3.0


class Connections:
    """The open connections of one server. Only its event loop uses it."""

    def __init__(self) -> None:
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

    def close(self, connection: Connection) -> None:
        """Forget a connection."""
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
    each further request. uvicorn only limits the time until a further request begins.
    """

    connections_of_server: Connections
    """Of the subclass that a server makes for itself (`connection_class`)."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        if not self.connections_of_server.open(self, peer, self.loop.time()):
            transport.abort()
            return
        self.app_state = {**self.app_state, PEER_NAMES: _names_of(transport.get_extra_info("peercert"))}
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch_head()
        self.connections_of_server.close(self)

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
    return type("ServerConnection", (Connection,), {"connections_of_server": Connections()})


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers end a TLS handshake that takes too long.

    asyncio waits for a minute, in which some hundred silent sockets would use up the descriptors of the process.
    """

    async def create_server(self, *args: Any, **kwargs: Any) -> asyncio.Server:
        if kwargs.get("ssl") is not None:
            kwargs.setdefault("ssl_handshake_timeout", HANDSHAKE_WAIT_S)
        return await super().create_server(*args, **kwargs)


def _names_of(certificate: dict[str, Any] | None) -> frozenset[str]:
    """The common name and the alternative names of a verified certificate."""
    if not certificate:
        return frozenset()
    subject = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    alternatives = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return frozenset((*subject, *alternatives))

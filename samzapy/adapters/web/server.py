"""The coordinator's HTTP server, in a thread of its own.

It starts before its coordinator, because the coordinator's first record has the URL. Until there is a snapshot it
answers 503.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from samzapy.adapters.web.routes import Answering, make_app
from samzapy.coordinator.commands import Heartbeat
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.snapshot import Snapshot
from samzapy.errors import ConfigError, DeadlineError

CONNECTIONS_MAX = 64
HEADER_BYTES_MAX = 8 * 1024
HEAD_WAIT_S = 10.0
PEER_GONE_S = 20
START_WAIT_S = 10.0
STOP_WAIT_S = 3.0


class CoordinatorServer:
    """Serves `adapters.web.routes`.

    Args:
        host, port: to bind to; port 0 takes any free one.
        snapshot, put, lease_ms, leader: see `routes.Answering`.
        advertised_host: the name in the URL, if other processes reach `host` by another one.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        snapshot: Callable[[], Snapshot | None],
        put: Callable[[Heartbeat], bool],
        clock: Clock,
        lease_ms: int,
        leader: Callable[[], str | None] = lambda: None,
        advertised_host: str | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._snapshot = snapshot
        self._put = put
        self._clock = clock
        self._lease_ms = lease_ms
        self._leader = leader
        self._advertised_host = advertised_host if advertised_host is not None else host
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> str:
        """Start to answer, and return the URL with the real port.

        Raises:
            ConfigError: the address cannot be bound, for instance because the port is taken.
            DeadlineError: the server did not come up.
        """
        assert self._thread is None, "started already"
        self._socket = _bound(self._host, self._port)
        port = self._socket.getsockname()[1]
        url = f"http://{self._advertised_host}:{port}"
        app = make_app(
            Answering(
                snapshot=self._snapshot,
                put=self._put,
                clock=self._clock,
                url=url,
                lease_ms=self._lease_ms,
                leader=self._leader,
            ),
            sorted({self._host, self._advertised_host, "localhost", "127.0.0.1"}),
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                http=_Connection,
                loop="asyncio",
                limit_concurrency=CONNECTIONS_MAX,
                h11_max_incomplete_event_size=HEADER_BYTES_MAX,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="samzapy-http", daemon=True
        )
        self._thread.start()
        deadline_s = time.monotonic() + START_WAIT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline_s:
                raise DeadlineError(
                    f"wanted the coordinator's HTTP server on {url} within {START_WAIT_S:.0f} s; it did not come up"
                )
            time.sleep(0.01)
        return url

    def stop(self) -> None:
        """Stop answering. Idempotent."""
        server, thread, bound = self._server, self._thread, self._socket
        self._server = self._thread = self._socket = None
        if server is not None and thread is not None:
            server.should_exit = True
            thread.join(STOP_WAIT_S)
        if bound is not None:
            bound.close()


class _Connection(H11Protocol):
    """A connection with a limit on the time for the head of a request.

    It is closed unless the head is complete within `HEAD_WAIT_S`. The time starts with the connection, and again with
    each further request. uvicorn only limits the time until a further request begins. Without this, a client that sends
    nothing, or half a head, would keep one of `CONNECTIONS_MAX` for ever.
    """

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch_head()

    def _watch_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch_head()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WAIT_S, self.timeout_keep_alive_handler)

    def _unwatch_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these options. With them the kernel ends the connection of a peer that vanished, also
        # while an answer is on its way.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PEER_GONE_S // 2)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PEER_GONE_S // 4)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, PEER_GONE_S * 1000)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"job.coordinator.host, job.coordinator.port: wanted to listen on {host}:{port}, found {error.strerror}; "
            "port 0 takes any free one"
        ) from error
    return listener

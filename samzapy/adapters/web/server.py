"""The coordinator's HTTP server, in a thread of its own.

It starts before its coordinator, because the coordinator's first record has the URL. Until there is a snapshot it
answers 503.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import uvicorn
from starlette.applications import Starlette

from samzapy.adapters.web.connections import Loop, connection_class
from samzapy.adapters.web.guard import HEADER_BYTES_MAX, Guard
from samzapy.adapters.web.routes import Answering, make_app
from samzapy.adapters.web.tls import ListeningContext, Reloading, TlsFiles, server_context
from samzapy.errors import ConfigError, DeadlineError

PEER_GONE_S = 20
START_WAIT_S = 10.0
STOP_WAIT_S = 3.0
_TLS_LOOK_S = 5.0
"""How often a server looks for replaced certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """Which requests a server answers, and how it encrypts.

    Attributes:
        guard: the rights of requests.
        tls: the certificate; None: the server speaks plain HTTP.
        advertised_host: the name in the URL, if other processes reach the server by another one than its address.
        allowed_hosts: further names in requests, for instance that of a reverse proxy.
    """

    guard: Guard = field(default_factory=Guard)
    tls: TlsFiles | None = None
    advertised_host: str | None = None
    allowed_hosts: Sequence[str] = ()

    def names(self, host: str) -> list[str]:
        """The names that requests to a server on `host` may have.

        Most clients write a name in lower case, and older releases of starlette compare it as it is written.
        """
        names = {host, self.advertised_host or host, "localhost", "127.0.0.1", *self.allowed_hosts}
        return sorted(names | {name.lower() for name in names})


class CoordinatorServer:
    """Serves `adapters.web.routes`.

    Args:
        host, port: to bind to; port 0 takes any free one.
        answering: the dependencies of the routes, without those that the server sets.
        access: without it, anyone who reaches the address is answered in plain HTTP.
    """

    def __init__(self, host: str, port: int, answering: Answering, access: ServerAccess | None = None) -> None:
        self._host = host
        self._port = port
        self._answering = answering
        self._access = access or ServerAccess()
        self._advertised_host = self._access.advertised_host or host
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
        tls = None if self._access.tls is None else server_context(self._access.tls)
        self._socket = _bound(self._host, self._port)
        port = self._socket.getsockname()[1]
        url = f"{'http' if tls is None else 'https'}://{self._advertised_host}:{port}"
        app = make_app(
            replace(
                self._answering,
                url=url,
                guard=self._access.guard,
                stopping=lambda: self._server is None or self._server.should_exit,
            ),
            self._access.names(self._host),
        )
        self._server = uvicorn.Server(_settings(app, tls))
        self._thread = threading.Thread(
            target=_serve, args=(self._server, self._socket, tls), name="samzapy-http", daemon=True
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


def _settings(app: Starlette, tls: Reloading | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http=connection_class(),
        # A client may not choose the address that it is counted by.
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=1,
    )
    config.load()
    # uvicorn would make a context that never loads a replaced certificate.
    config.ssl = None if tls is None else ListeningContext.of(tls)
    return config


def _serve(server: uvicorn.Server, listener: socket.socket, tls: Reloading | None) -> None:
    async def serve() -> None:
        watching = None if tls is None else asyncio.create_task(_watch_certificates(tls))
        try:
            await server.serve([listener])
        finally:
            if watching is not None:
                watching.cancel()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(serve())


async def _watch_certificates(tls: Reloading) -> None:
    while True:
        await asyncio.sleep(_TLS_LOOK_S)
        tls.context()


def _bound(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Head and body of an answer are sent one after the other, and the body would wait for the client's delayed
        # acknowledgement. asyncio sets it only where a socket names its protocol.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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

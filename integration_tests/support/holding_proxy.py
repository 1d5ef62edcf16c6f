"""A TCP proxy that holds a request, cuts the connection, and delivers it later.

It makes a network fault that a killed or paused broker cannot show: a request is still under way when its sender has
long sent it again over another connection. It knows only the framing of Kafka's protocol: four bytes of length, then
api key, version and correlation id. The broker must advertise the proxy's port (`DevBroker(advertised_port=...)`),
otherwise clients go past it.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

from samzapy.errors import DeadlineError
from samzapy.testing.ports import LOOPBACK, free_port
from samzapy.testing.waiting import wait_until

END_TXN = 26
"""Kafka's api key of the request that commits or aborts a transaction."""

_END_TXN_FLEXIBLE = 3
"""From this version on a response's header has a byte of tagged fields."""


class Request(NamedTuple):
    """The start of a request, as every version of Kafka's protocol has it."""

    api_key: int
    version: int
    correlation_id: int


class HoldingProxy:
    """Listens on `port_number` and passes everything on but the held requests.

    Args:
        upstream_port: the broker's own, on the loopback address.
        port_number: 0 picks a free one.
    """

    def __init__(self, upstream_port: int = 0, *, port_number: int = 0) -> None:
        self.upstream_port = upstream_port
        self.port_number = port_number or free_port()
        self.seen: list[Request] = []
        self._lock = threading.Lock()
        self._armed: list[int] = []
        self._held: list[_Held] = []
        self._connections: list[_Connection] = []
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener = socket.create_server((LOOPBACK, self.port_number))
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None
        # Closing alone does not wake the thread that waits in `accept`.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.cut()
            connection.close_upstream()
        for thread in self._threads:
            thread.join(5.0)

    def hold_next(self, count: int = 1, *, api_key: int = END_TXN) -> None:
        """Hold the next `count` requests of this kind, and cut the connection of each."""
        with self._lock:
            self._armed = [api_key] * count

    @property
    def held_count(self) -> int:
        """The number of requests held so far, with the delivered ones."""
        return len(self._held)

    def cut_all(self) -> int:
        """Cut every client's connection; returns how many there were."""
        with self._lock:
            connections = [connection for connection in self._connections if not connection.is_cut]
        for connection in connections:
            connection.cut()
            connection.close_upstream()
        return len(connections)

    def deliver(self, number: int = 0, deadline_s: float = 60.0) -> int:
        """Send the EndTxn held as `number`; returns the broker's error code (0: done).

        Raises:
            DeadlineError: it was not held, or the broker did not answer.
        """
        wait_until(lambda: self.held_count > number, deadline_s, "the proxy to hold a request")
        held = self._held[number]
        held.connection.upstream.sendall(held.frame)
        while True:
            try:
                answer = held.connection.late.get(timeout=deadline_s)
            except queue.Empty:
                raise DeadlineError(f"Waited {deadline_s:g} s for the broker's answer to {held.request}.") from None
            (correlation_id,) = struct.unpack_from(">i", answer)
            if correlation_id == held.request.correlation_id:
                break
        header_size = 5 if held.request.version >= _END_TXN_FLEXIBLE else 4
        throttle_size = 4
        (code,) = struct.unpack_from(">h", answer, header_size + throttle_size)
        return int(code)

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection((LOOPBACK, self.upstream_port))
            except OSError:
                client.close()
                continue
            connection = _Connection(client, upstream)
            with self._lock:
                self._connections.append(connection)
            self._spawn(lambda c=connection: self._forward(c))
            self._spawn(connection.pump_answers)

    def _forward(self, connection: _Connection) -> None:
        while (frame := _read_frame(connection.client)) is not None:
            request = Request(*struct.unpack_from(">hhi", frame, 4))
            with self._lock:
                self.seen.append(request)
                holds = request.api_key in self._armed
                if holds:
                    self._armed.remove(request.api_key)
            if holds:
                connection.cut()
                self._held.append(_Held(connection, frame, request))
                return
            try:
                connection.upstream.sendall(frame)
            except OSError:
                break
        connection.cut()
        connection.close_upstream()

    def _spawn(self, target: object) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, name="holding-proxy", daemon=True)
        self._threads.append(thread)
        thread.start()


class _Connection:
    """A client's connection and the one to the broker, which may outlive it."""

    def __init__(self, client: socket.socket, upstream: socket.socket) -> None:
        self.client = client
        self.upstream = upstream
        self.is_cut = False
        self.late: queue.Queue[bytes] = queue.Queue()

    def cut(self) -> None:
        """End the client's side."""
        self.is_cut = True
        _close(self.client)

    def close_upstream(self) -> None:
        _close(self.upstream)

    def pump_answers(self) -> None:
        while (frame := _read_frame(self.upstream)) is not None:
            if not self.is_cut:
                with suppress(OSError):
                    self.client.sendall(frame)
                    continue
            self.late.put(frame[4:])
        self.cut()


@dataclass(frozen=True, slots=True)
class _Held:
    connection: _Connection
    frame: bytes
    request: Request


def _read_frame(source: socket.socket) -> bytes | None:
    """A whole frame with its length in front; None at the end of the connection."""
    length = _read_exactly(source, 4)
    if length is None:
        return None
    body = _read_exactly(source, int.from_bytes(length, "big"))
    return None if body is None else length + body


def _read_exactly(source: socket.socket, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        try:
            part = source.recv(size - len(content))
        except OSError:
            return None
        if not part:
            return None
        content += part
    return bytes(content)


def _close(end: socket.socket) -> None:
    # Shut down first: it wakes a thread that waits in `recv`, which closing does not.
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()

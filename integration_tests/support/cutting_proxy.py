"""A TCP proxy that cuts processes off: bytes stop, and no end sees an error.

It makes network faults for one of many processes that share a machine and its addresses. The kernel knows which process
is at the other end of a connection: the proxy looks for a variable in the environment of processes, which children
inherit, and finds their sockets in `/proc`. So it knows no protocol, and serves for HTTP and for Kafka.

A link may also break in one direction: requests arrive, and answers do not (`hold_answers`).

Bytes that are sent during a cut arrive late, when it is healed, as TCP would send them again. That includes requests
whose sender has long given them up, or is dead. Linux only.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from samzapy.adapters.host.processes import processes_with
from samzapy.errors import SamzapyError
from samzapy.testing.ports import LOOPBACK, free_port

_CHUNK_BYTES = 64 * 1024
_CONNECTS_WITHIN_S = 10.0
_ENDS_WITHIN_S = 5.0


class Address(NamedTuple):
    """An end of a connection, IPv4."""

    host: str
    port_number: int


class CuttingProxy:
    """Passes bytes to `upstream` and back, except for processes that are cut off.

    Args:
        upstream: need not listen yet; a connection that it refuses is ended.
        listen: where clients connect; without one a free port on the loopback address.
    """

    def __init__(self, upstream: Address, listen: Address | None = None) -> None:
        self.upstream = upstream
        self.address = listen or Address(LOOPBACK, free_port())
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._cut: tuple[str, str] | None = None
        self._holds_answers = False
        self._held: set[_Connection] = set()
        self._is_closed = False
        self._listener: socket.socket | None = None
        self._acceptor = threading.Thread(target=self._accept, name="cutting-proxy", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._listener = socket.create_server(self.address)
        self._acceptor.start()

    def close(self) -> None:
        """End every connection. Idempotent."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        # Closing alone does not wake the thread that waits in `accept`.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self._acceptor.join(_ENDS_WITHIN_S)
        with self._lock:
            self._is_closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.end()
        for connection in connections:
            connection.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self, variable: str, value: str) -> None:
        """Hold all bytes of the processes with this `value`, both ways, until `heal`.

        Raises:
            SamzapyError: other processes are cut off already.
        """
        with self._lock:
            if self._cut is not None:
                raise SamzapyError(f"wanted to cut off {value}, found {self._cut[1]} cut off: heal it first")
            # From here on new connections are examined when they are accepted, the existing ones below.
            self._cut, self._held = (variable, value), set()
            connections = list(self._connections)
        ends = _ends_of(variable, value, self.address)
        for connection in connections:
            if connection.client_end in ends:
                self._hold(connection)

    def hold_answers(self) -> None:
        """Pass requests on, and hold the answers to all clients, until `heal`."""
        with self._lock:
            self._holds_answers, self._held = True, set(self._connections)
            for connection in self._connections:
                connection.may_answer.clear()

    @property
    def held_count(self) -> int:
        """The number of connections held since `cut` or `hold_answers`."""
        with self._lock:
            return len(self._held)

    def heal(self) -> int:
        """Pass on the held bytes, then everything; returns `held_count`."""
        with self._lock:
            self._cut, self._holds_answers = None, False
            held, self._held = self._held, set()
        for connection in held:
            connection.is_open.set()
            connection.may_answer.set()
        return len(held)

    def _hold(self, connection: _Connection) -> None:
        with self._lock:
            # It may have been healed in between.
            if self._cut is not None:
                connection.is_open.clear()
                self._held.add(connection)

    def _accept(self) -> None:
        listener = self._listener
        assert listener is not None
        while True:
            try:
                client, end = listener.accept()
            except OSError:
                return
            connection = _Connection(client, Address(*end), self.upstream)
            with self._lock:
                self._connections.add(connection)
                cut = self._cut
                if self._holds_answers:
                    connection.may_answer.clear()
                    self._held.add(connection)
            if cut is not None and connection.client_end in _ends_of(*cut, self.address):
                self._hold(connection)
            connection.start(self._forget)

    def _forget(self, connection: _Connection) -> None:
        with self._lock:
            # `close` waits for them.
            if not self._is_closed:
                self._connections.discard(connection)


class _Connection:
    """A client's connection and the upstream's, with a thread for each direction.

    Attributes:
        is_open: set while bytes may pass.
        may_answer: set while bytes may pass to the client.
    """

    def __init__(self, client: socket.socket, client_end: Address, upstream: Address) -> None:
        self.client_end = client_end
        self.is_open = threading.Event()
        self.is_open.set()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._upstream_address = upstream
        self._client = client
        self._upstream: socket.socket | None = None
        self._is_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, forget: Callable[[_Connection], None]) -> None:
        """Begin to pass on; `forget` is called at the end."""

        def run() -> None:
            try:
                self._run()
            finally:
                forget(self)

        self._thread = threading.Thread(target=run, name="cutting-proxy", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Close both sides at once, and drop the held bytes."""
        self._is_ended.set()
        self.is_open.set()
        self.may_answer.set()
        for side in (self._client, self._upstream):
            if side is not None:
                # It wakes a thread that waits in `recv`, which closing does not.
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        try:
            self.is_open.wait()
            if self._is_ended.is_set():
                return
            self._upstream = socket.create_connection(self._upstream_address, _CONNECTS_WITHIN_S)
            self._upstream.settimeout(None)
            back = (self._upstream, self._client, self.may_answer)
            answers = threading.Thread(target=self._pump, args=back, daemon=True)
            answers.start()
            self._pump(self._client, self._upstream, self.is_open)
            answers.join()
        except OSError:
            pass  # The upstream does not listen, which the client sees as an end.
        finally:
            for side in (self._client, self._upstream):
                if side is not None:
                    side.close()

    def _pump(self, source: socket.socket, sink: socket.socket, gate: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self.is_open.wait()
                gate.wait()
                if self._is_ended.is_set():
                    break
                sink.sendall(data)
        # The end of a connection is held as well.
        self.is_open.wait()
        gate.wait()
        self.end()


def _ends_of(variable: str, value: str, peer: Address) -> frozenset[Address]:
    """The local ends of the connections of these processes to `peer`.

    The peer counts: the kernel gives one local port to connections of two processes if their peers differ.
    """
    sockets = {name for process in processes_with(variable, value) for name in _sockets_of(process.pid)}
    return frozenset(end for name, end, to in _tcp_sockets() if name in sockets and to == peer)


def _sockets_of(pid: int) -> Iterator[str]:
    """The inodes of a process's sockets; none after its end."""
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # Closed in between.
                kind, _, inode = os.readlink(f"/proc/{pid}/fd/{name}").partition(":")
                if kind == "socket":
                    yield inode.strip("[]")


def _tcp_sockets() -> Iterator[tuple[str, Address, Address]]:
    """Inode, local end and peer of every TCP socket.

    Those of a JVM are of IPv6, with the IPv4 address in the last four bytes.
    """
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):
            for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                yield fields[9], _address(fields[1]), _address(fields[2])


def _address(text: str) -> Address:
    """An address as `/proc/net/tcp` writes it, in hexadecimal."""
    address, _, port = text.partition(":")
    # The kernel writes the address in the byte order of this machine.
    address_bytes = int(address[-8:], 16).to_bytes(4, sys.byteorder)
    return Address(socket.inet_ntoa(address_bytes), int(port, 16))

"""Two processes talk to a server through the proxy, and one of them is cut off."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from integration_tests.support.cutting_proxy import Address, CuttingProxy
from samzapy.errors import SamzapyError
from samzapy.testing.ports import LOOPBACK
from samzapy.testing.waiting import wait_until

VARIABLE = "CUTTING_PROXY_TEST"
WITHIN_S = 30.0
# Sends a line, waits for it to come back, and sends the next on request; over an IPv6 socket as a JVM does.
TALKS = """
import socket, sys
def connected():
    client = socket.socket(socket.AF_INET6 if sys.argv[1] == "6" else socket.AF_INET)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.connect(("::ffff:127.0.0.1" if sys.argv[1] == "6" else "127.0.0.1", int(sys.argv[2])))
    return client, client.makefile("r")
client, lines = connected()
for order in sys.stdin:
    if order == "anew\\n":
        lines.close(), client.close()
        client, lines = connected()
    client.sendall(order.encode())
    print(lines.readline(), end="", flush=True)
"""


class Echo:
    """Sends each line back, and remembers it."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = Address(*self._listener.getsockname())
        self.peers: list[Address] = []
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, peer = self._listener.accept()
                self.peers.append(Address(*peer))
                self._connections.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection, connection.makefile("r") as lines:
            for line in lines:
                self.received.append(line.strip())
                connection.sendall(line.encode())

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Talker:
    """A process with a variable of its own."""

    def __init__(self, text: str, address: Address, family: str = "4") -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", TALKS, family, str(address.port_number)],
            env={**os.environ, VARIABLE: text},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.received: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send_line(self, line: str) -> None:
        assert self._child.stdin is not None
        self._child.stdin.write(f"{line}\n")
        self._child.stdin.flush()

    def has_received(self, *lines: str) -> bool:
        return list(lines) == self.received

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(10)

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self.received.append(line.strip())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._thread.join(10)
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo_server = Echo()
    yield echo_server
    echo_server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[CuttingProxy]:
    with CuttingProxy(echo.address) as cutting_proxy:
        yield cutting_proxy


@pytest.mark.parametrize("family", ["4", *(["6"] if Path("/proc/net/if_inet6").exists() else [])])
def test_a_client_that_is_cut_off_gets_nothing_through_and_all_of_it_arrives_late(
    proxy: CuttingProxy, echo: Echo, family: str
) -> None:
    with Talker("a", proxy.address, family) as cut, Talker("b", proxy.address, family) as other:
        for talker in (cut, other):
            talker.send_line("1")
        wait_until(lambda: cut.has_received("1") and other.has_received("1"), WITHIN_S, "both to be answered")

        proxy.cut(VARIABLE, "a")
        cut.send_line("of a")
        for number in range(20):
            other.send_line(f"of b {number}")
        wait_until(lambda: "of b 19" in other.received, WITHIN_S, "the other one to be answered")
        assert ["1"] == cut.received
        assert "of a" not in echo.received

        assert 1 == proxy.heal()
        wait_until(lambda: cut.has_received("1", "of a"), WITHIN_S, "the held bytes to arrive")


def test_a_client_that_connects_while_it_is_cut_off_is_held_too_and_served_after_its_death(
    proxy: CuttingProxy, echo: Echo
) -> None:
    with Talker("a", proxy.address) as cut, Talker("b", proxy.address) as other:
        cut.send_line("1")
        wait_until(lambda: cut.has_received("1"), WITHIN_S, "it to be answered")
        proxy.cut(VARIABLE, "a")
        cut.send_line("anew")
        other.send_line("anew")
        wait_until(lambda: other.has_received("anew"), WITHIN_S, "the other one to be answered")

        wait_until(lambda: proxy.held_count == 2, WITHIN_S, "its second connection to be held")
        cut.kill()
        assert ["1", "anew"] == echo.received
        assert 2 == proxy.heal()

        wait_until(lambda: ["1", "anew", "anew"] == echo.received, WITHIN_S, "the late line of the dead process")


def is_bound(client: socket.socket, address: tuple[str, int]) -> bool:
    """Whether the client could take the port of another connection.

    The kernel refuses a port that a third socket, of any program on this host, has in another way.
    """
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        client.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def test_a_client_is_served_from_a_port_that_the_cut_process_uses_towards_another_server(
    proxy: CuttingProxy, echo: Echo
) -> None:
    for _ in range(20):
        with Talker("a", echo.address) as cut, socket.socket() as client:
            cut.send_line("1")
            wait_until(partial(cut.has_received, "1"), WITHIN_S, "it to be answered")
            if not is_bound(client, echo.peers[-1]):
                continue
            proxy.cut(VARIABLE, "a")
            client.settimeout(WITHIN_S)
            client.connect(proxy.address)
            client.sendall(b"2\n")

            assert b"2\n" == client.recv(2)
            assert 0 == proxy.heal()
            return
    pytest.fail("no port of 20 could be shared")


def test_requests_arrive_while_answers_are_held_also_on_new_connections(proxy: CuttingProxy, echo: Echo) -> None:
    with Talker("a", proxy.address) as early, Talker("b", proxy.address) as late:
        for talker in (early, late):
            talker.send_line("1")
        wait_until(lambda: early.has_received("1") and late.has_received("1"), WITHIN_S, "both to be answered")

        proxy.hold_answers()
        early.send_line("2")
        late.send_line("anew")
        wait_until(lambda: {"2", "anew"} <= {*echo.received}, WITHIN_S, "both lines to arrive")
        assert ["1"] == early.received == late.received

        assert 3 == proxy.heal()
        wait_until(lambda: early.has_received("1", "2"), WITHIN_S, "the answer to arrive late")


def test_only_one_is_cut_off_at_a_time(proxy: CuttingProxy) -> None:
    proxy.cut(VARIABLE, "a")

    with pytest.raises(SamzapyError, match="wanted to cut off b, found a cut off"):
        proxy.cut(VARIABLE, "b")


def test_a_client_sees_the_end_if_no_server_listens() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        nowhere = Address(*taken.getsockname())
    with CuttingProxy(nowhere) as proxy, socket.create_connection(proxy.address, 10) as client:
        assert b"" == client.recv(1)


def test_an_end_on_one_side_is_one_on_the_other() -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        CuttingProxy(Address(*server.getsockname())) as proxy,
        socket.create_connection(proxy.address, 10) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(10)
            client.close()
            assert b"" == accepted.recv(1)

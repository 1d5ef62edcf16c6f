"""The connection of heartbeats, used again and replaced when it is closed."""

import json
import socket
import threading
from contextlib import closing, contextmanager, suppress

import pytest

from samzapy.adapters.web import kept_connection
from samzapy.adapters.web.client import HttpCoordinatorClient, ask
from samzapy.errors import RejectedError
from samzapy.testing.waiting import wait_until
from unit_tests.adapters.web.test_server import IDLE

ANSWER = {"job": IDLE["job"], "executionContainerId": IDLE["executionId"], "alive": True, "term": 3}


@contextmanager
def server_that_answers_at(number):
    """A server that closes each connection before this one.

    It gives its URL and a list with an entry per connection.
    """
    body = json.dumps(ANSWER).encode()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    connections = []

    def serve():
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            with peer:
                connections.append(peer)
                if len(connections) >= number:
                    while b"executionId" not in peer.recv(65536):
                        pass
                    peer.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", connections
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_heartbeat_is_sent_again_when_the_server_closes_its_connection_without_an_answer():
    with server_that_answers_at(4) as (url, connections):
        assert HttpCoordinatorClient().heartbeat(url, IDLE, 20_000).alive

    assert 4 == len(connections)


def test_a_heartbeat_ends_in_time_when_the_server_closes_every_connection():
    with server_that_answers_at(1_000) as (url, connections):
        assert HttpCoordinatorClient().heartbeat(url, IDLE, 2000) is None

    assert 1 < len(connections) < 10


@pytest.mark.parametrize("request_", [("GET", "/status"), ("POST", "/v1/submissions/create")])
def test_other_requests_are_sent_once(request_):
    method, path = request_
    with server_that_answers_at(2) as (url, connections):
        assert ask(method, url, path, timeout_ms=5_000, bytes_max=1_000) is None

    assert 1 == len(connections)


OK = "200 OK"


class Server:
    """A server that keeps connections.

    Attributes:
        status: of its answers.
        closes: when it closes a connection: after an answer, or instead of the second answer.
        peers: its connections.
        closed: how many connections it has closed.
    """

    def __init__(self, status=OK, closes=None):
        self.status, self.closes = status, closes
        self.peers = []
        self.closed = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        for each in (self._listening, *self.peers):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join()

    def _accept(self):
        with suppress(OSError):
            while True:
                peer, _ = self._listening.accept()
                self.peers.append(peer)
                threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        body, answered = json.dumps(ANSWER).encode(), 0
        with suppress(OSError):
            while self._read(peer) and not (self.closes == "unanswered" and answered):
                head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                peer.sendall(head + body)
                answered += 1
                if self.closes == "answered":
                    break
        peer.close()
        self.closed += 1

    @staticmethod
    def _read(peer):
        text = b""
        while b"executionId" not in text:
            chunk = peer.recv(65536)
            if not chunk:
                return False
            text += chunk
        return True


@pytest.fixture
def client():
    with closing(HttpCoordinatorClient()) as client:
        yield client


def beat(client, url, times=2):
    return [client.heartbeat(url, IDLE, 20_000) is not None for _ in range(times)]


def test_heartbeats_use_one_connection(client):
    with Server() as server:
        assert [True] * 3 == beat(client, server.url, times=3)
        assert 1 == len(server.peers)


@pytest.mark.parametrize("closes", ["answered", "unanswered"])
def test_a_heartbeat_whose_kept_connection_was_closed_is_sent_on_a_new_one(client, closes):
    with Server(closes=closes) as server:
        assert [True] == beat(client, server.url, times=1)
        if closes == "answered":
            wait_until(lambda: server.closed, 20, "the server to close the connection")
        assert [True] == beat(client, server.url, times=1)
        assert 2 == len(server.peers)


def test_bytes_that_belong_to_no_request_end_a_kept_connection(client):
    with Server() as server:
        assert [True] == beat(client, server.url, times=1)
        server.peers[0].sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert [True] == beat(client, server.url, times=1)
        assert 2 == len(server.peers)


def test_an_answer_that_refuses_ends_the_connection(client):
    with Server(status="503 Service Unavailable") as server:
        assert [False] * 2 == beat(client, server.url)
        assert 2 == len(server.peers)


def test_a_connection_is_kept_for_a_limited_time(client, monkeypatch):
    monkeypatch.setattr(kept_connection, "KEPT_S", 0.0)
    with Server() as server:
        assert [True] * 2 == beat(client, server.url)
        assert 2 == len(server.peers)


def test_a_heartbeat_to_another_leader_closes_the_connection_to_the_former_one(client):
    with Server() as former, Server() as leader:
        beat(client, former.url)
        assert [True] * 2 == beat(client, leader.url)

        wait_until(lambda: former.closed, 20, "the connection to the former leader to be closed")
        assert [1, 1] == [len(former.peers), len(leader.peers)]


def test_a_client_that_is_closed_closes_its_connection(client):
    with Server() as server:
        beat(client, server.url)
        client.close()

        wait_until(lambda: server.closed, 20, "the connection to be closed")


@contextmanager
def server_that_refuses_with(body):
    """A server whose only answer is 403, with this body."""

    def serve():
        peer, _ = listening.accept()
        with peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    thread.join()


def test_a_stranger_s_reason_of_a_refusal_is_logged_in_one_line_without_control_characters(caplog):
    with server_that_refuses_with(b"\x1b[2J\x9b1m no\nsamzapy: nothing is wrong") as url:
        assert HttpCoordinatorClient().status(url, "flights-1", 20_000) is None

    (line,) = caplog.messages
    assert line.isprintable()
    assert "refused the request: 403" in line and "nothing is wrong" in line


def test_the_reason_of_a_refused_credential_is_one_line_without_control_characters():
    body = json.dumps({"job": "flights-1", "reason": "\x1b[2J no\nsamzapy: nothing is wrong"}).encode()
    with server_that_refuses_with(body) as url, pytest.raises(RejectedError) as refused:
        HttpCoordinatorClient().status(url, "flights-1", 20_000)

    assert str(refused.value).isprintable()

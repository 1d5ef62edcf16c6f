"""A heartbeat over connections that a server closes without an answer."""

import json
import socket
import threading
from contextlib import contextmanager

import pytest

from samzapy.adapters.web.client import HttpCoordinatorClient, ask
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
        assert HttpCoordinatorClient().heartbeat(url, IDLE, 500) is None

    assert 1 < len(connections) < 10


@pytest.mark.parametrize("request_", [("GET", "/status"), ("POST", "/v1/submissions/create")])
def test_other_requests_are_sent_once(request_):
    method, path = request_
    with server_that_answers_at(2) as (url, connections):
        assert ask(method, url, path, timeout_ms=5_000, bytes_max=1_000) is None

    assert 1 == len(connections)

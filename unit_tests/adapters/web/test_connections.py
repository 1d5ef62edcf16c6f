"""Limits on requests of peers, and a heartbeat's time while hostile peers connect."""

import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from samzapy.adapters.web import connections
from samzapy.adapters.web.client import Access, HttpCoordinatorClient
from samzapy.adapters.web.guard import HEADER_BYTES_MAX
from samzapy.adapters.web.server import ServerAccess
from samzapy.adapters.web.tls import TlsFiles, client_context
from samzapy.testing.waiting import wait_until
from unit_tests.adapters.web.test_server import CLIENT, IDLE, Job
from unit_tests.fixtures.certificates import Authority

BURST = 200
# Whether an answer comes at all is tested here. `scripts/bench heartbeats` measures how soon.
ANSWERS_WITHIN_MS = 20_000
HEAD = b"POST /containerHeartbeat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SLOW = {
    "nothing": b"",
    "half a head": HEAD[:30],
    "half a body": HEAD + b"Content-Length: 1000\r\n\r\n{",
    "an answered request": b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.fixture
def job():
    job = Job()
    yield job
    job.server.stop()


@contextmanager
def bursts(url, sent, each_s):
    """Open `BURST` connections every `each_s` seconds that send `sent`, then nothing."""
    target, ended, opened = urlsplit(url), threading.Event(), []

    def connect():
        with ExitStack() as kept:
            while not ended.is_set():
                for _ in range(BURST):
                    with suppress(OSError):
                        peer = socket.create_connection((target.hostname, target.port), timeout=5)
                        kept.enter_context(peer)
                        peer.sendall(sent)
                        opened.append(peer)
                if len(opened) > 4 * BURST:
                    kept.pop_all().close()
                ended.wait(each_s)

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        wait_until(lambda: len(opened) >= BURST, 20, "the first burst")
        yield opened
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("sent", SLOW.values(), ids=list(SLOW))
def test_heartbeats_are_answered_during_repeated_bursts_of_slow_connections(job, sent):
    job.lead()
    job.register()
    with bursts(job.url, sent, each_s=1.0) as opened:
        answers = []
        while len(opened) < 3 * BURST:
            answers.append(CLIENT.heartbeat(job.url, IDLE, ANSWERS_WITHIN_MS))

    assert 0 == sum(answer is None for answer in answers)


def test_heartbeats_over_tls_are_answered_during_bursts_that_never_begin_a_handshake(tmp_path):
    authority = Authority.made(tmp_path)
    certificate, key = authority.certificate("node", "IP:127.0.0.1")
    job = Job(access=ServerAccess(tls=TlsFiles(certificate=str(certificate), key=str(key))))
    client = HttpCoordinatorClient(Access(tls=client_context(TlsFiles(ca=str(authority.ca))).context))
    try:
        job.lead()
        with job.looping():
            wait_until(lambda: client.heartbeat(job.url, IDLE, 20_000), 60, "e1 to be registered")
        with bursts(job.url, b"", each_s=1.0) as opened:
            answers = []
            while len(opened) < 3 * BURST:
                answers.append(client.heartbeat(job.url, IDLE, ANSWERS_WITHIN_MS))
        assert 0 == sum(answer is None for answer in answers)
    finally:
        job.server.stop()


def test_a_silent_tls_handshake_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE_WAIT_S", 0.3)
    certificate, key = Authority.made(tmp_path).certificate("node", "IP:127.0.0.1")
    job = Job(access=ServerAccess(tls=TlsFiles(certificate=str(certificate), key=str(key))))
    target = urlsplit(job.url)
    try:
        with socket.create_connection((target.hostname, target.port), timeout=20) as peer:
            assert b"" == peer.recv(1)
    finally:
        job.server.stop()


def test_one_address_has_a_limited_number_of_connections(job, monkeypatch):
    monkeypatch.setattr(connections, "PEER_CONNECTIONS_MAX", 5)
    target = urlsplit(job.url)
    with ExitStack() as kept:
        peers = [
            kept.enter_context(socket.create_connection((target.hostname, target.port), timeout=20)) for _ in range(6)
        ]

        with suppress(ConnectionResetError):
            assert b"" == peers[-1].recv(1)
        peers[0].sendall(SLOW["an answered request"])
        assert peers[0].recv(12).startswith(b"HTTP/1.1 503")


def test_connections_of_an_address_that_are_closed_make_room(job, monkeypatch):
    monkeypatch.setattr(connections, "PEER_CONNECTIONS_MAX", 2)

    assert [503] * 20 == [job.ask("GET", "/status")[0] for _ in range(20)]


def get_status(job, headers):
    target = urlsplit(job.url)
    connection = HTTPConnection(target.hostname, target.port, timeout=10)
    try:
        connection.request("GET", "/status", headers=headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def test_a_head_that_is_too_large_is_refused_however_it_arrives(job):
    status, body, _ = get_status(job, {"X-Filler": "x" * HEADER_BYTES_MAX})
    assert 431 == status
    assert f"at most {HEADER_BYTES_MAX} bytes" in json.loads(body)["reason"]

    assert 431 == get_status(job, {f"X-{number}": "x" * 500 for number in range(20)})[0]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:1", 503),
        ("http://localhost", 503),
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("http://127.0.0.1.evil.example", 403),
    ],
)
def test_a_request_of_another_sites_page_is_refused(job, origin, status):
    assert status == get_status(job, {"Origin": origin})[0]


def test_a_configured_name_of_a_proxy_is_answered():
    job = Job(access=ServerAccess(allowed_hosts=["jobs.example.org"]))
    try:
        assert 503 == get_status(job, {"Host": "jobs.example.org", "Origin": "https://jobs.example.org"})[0]
        assert 400 == get_status(job, {"Host": "other.example.org"})[0]
    finally:
        job.server.stop()


def test_every_answer_forbids_caching_framing_and_guessing(job):
    for path in ("/status", "/nothing"):
        _, _, headers = get_status(job, {})
        assert "no-store" == headers["Cache-Control"], path
        assert "nosniff" == headers["X-Content-Type-Options"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "Set-Cookie" not in headers


def test_a_client_cannot_choose_the_address_that_it_is_counted_by(job, monkeypatch):
    monkeypatch.setattr(connections, "PEER_CONNECTIONS_MAX", 1)
    target = urlsplit(job.url)
    with socket.create_connection((target.hostname, target.port), timeout=20) as first:
        first.sendall(b"GET /status HT")
        began_s = time.monotonic()
        wait_until(lambda: _is_refused(target), 20, "the second connection to be refused")
        assert time.monotonic() - began_s < connections.HEAD_WAIT_S


def _is_refused(target):
    with socket.create_connection((target.hostname, target.port), timeout=5) as second:
        try:
            second.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n")
            return second.recv(1) == b""
        except OSError:
            return True

"""Limits on requests of peers, and a heartbeat's time while hostile peers connect."""

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from samzapy.adapters.web import connections
from samzapy.adapters.web.access import Access
from samzapy.adapters.web.client import HttpCoordinatorClient
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


def beat_once(authority, job):
    """The answer to a heartbeat on a new connection."""
    with closing(HttpCoordinatorClient(Access(tls=client_context(TlsFiles(ca=str(authority.ca))).context))) as client:
        return client.heartbeat(job.url, IDLE, ANSWERS_WITHIN_MS)


def test_heartbeats_over_tls_are_answered_during_bursts_that_never_begin_a_handshake(tmp_path):
    authority = Authority.made(tmp_path)
    certificate, key = authority.certificate("node", "IP:127.0.0.1")
    job = Job(access=ServerAccess(tls=TlsFiles(certificate=str(certificate), key=str(key))))
    try:
        job.lead()
        with job.looping():
            wait_until(lambda: beat_once(authority, job), 60, "e1 to be registered")
        with bursts(job.url, b"", each_s=1.0) as opened:
            answers = []
            while len(opened) < 3 * BURST:
                answers.append(beat_once(authority, job))
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


class Kept:
    """A connection of one execution, as the server sees it."""

    def __init__(self, kept_for=None):
        self.kept_for = kept_for
        self.transport = self
        self.is_open = True

    def abort(self):
        self.is_open = False


def kept_of(kept_max, *executions):
    """The connections of these executions, of which a server keeps at most `kept_max`."""
    limits, kept = connections.Connections(kept_max=kept_max), []
    for execution in executions:
        peer = Kept()
        limits.open(peer, "192.0.2.1", 0.0)
        limits.keep(peer, execution)
        peer.kept_for = execution
        kept.append(peer)
    return limits, kept


def test_the_kept_connection_that_was_idle_longest_is_closed_for_one_more():
    limits, (first, second) = kept_of(2, "e1", "e2")
    limits.use(first, "e1")

    limits.keep(third := Kept(), "e3")

    assert [True, False, True] == [peer.is_open for peer in (first, second, third)]


def test_an_execution_has_one_kept_connection():
    _, (former, present, other) = kept_of(2, "e1", "e1", "e2")

    assert [False, True, True] == [peer.is_open for peer in (former, present, other)]


def test_a_former_connection_of_an_execution_leaves_the_present_one_kept():
    limits, (former, present) = kept_of(1, "e1", "e1")
    limits.close(former)

    limits.keep(Kept(), "e2")

    assert not present.is_open


def test_kept_connections_take_no_room_of_unknown_peers(monkeypatch):
    monkeypatch.setattr(connections, "PEER_CONNECTIONS_MAX", 2)
    limits, _ = kept_of(10, "e1", "e2", "e3")

    assert [True, True, False] == [limits.open(Kept(), "192.0.2.1", 0.0) for _ in range(3)]


def test_a_process_that_may_open_few_files_keeps_few_connections(monkeypatch):
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (connections.CONNECTIONS_MAX + 131, 10_000))
    limits = connections.connection_class().connections_of_server
    kept = [Kept() for _ in range(4)]
    for number, peer in enumerate(kept):
        limits.keep(peer, f"e{number}")

    assert [False, True, True, True] == [peer.is_open for peer in kept]


def test_a_server_accepts_few_connections_at_a_time_and_the_kernel_holds_the_others():
    made = []

    class Peer(asyncio.Protocol):
        def connection_made(self, transport):
            made.append(transport)

    with closing(connections.Loop()) as loop, socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as kept:
        server = loop.run_until_complete(loop.create_server(Peer, sock=listener, backlog=100))
        for _ in range(50):
            kept.enter_context(socket.create_connection(listener.getsockname(), timeout=5))
        counts = [0]
        while len(made) < 50:
            loop.call_soon(loop.stop)
            loop.run_forever()
            counts.append(len(made))
        server.close()
        for transport in made:
            transport.abort()
        loop.call_soon(loop.stop)
        loop.run_forever()

    assert 8 > max(after - before for before, after in pairwise(counts))


class Beating:
    """Sends heartbeats on one connection."""

    def __init__(self, job):
        target = urlsplit(job.url)
        # Less than uvicorn's own time for an idle connection.
        self._connection = HTTPConnection(target.hostname, target.port, timeout=8)
        self._connection.connect()
        self._connection.auto_open = 0

    def beat(self, **more):
        """The status of the answer; None where the connection has ended."""
        body = json.dumps(IDLE | more)
        try:
            self._connection.request("POST", "/containerHeartbeat", body, {"Content-Type": "application/json"})
            with self._connection.getresponse() as response:
                response.read()
                return response.status
        except (OSError, HTTPException):
            return None

    def wait_closed(self):
        """Wait until the server has closed the connection."""
        assert b"" == self._connection.sock.recv(1)

    def close(self):
        self._connection.close()


@pytest.fixture
def registered(job):
    job.lead()
    job.register()
    yield job
    CLIENT.close()


def test_the_body_of_an_answer_does_not_wait_for_a_delayed_acknowledgement(registered):
    delayed_s, took_s = 0.04, []
    with closing(Beating(registered)) as own:
        for _ in range(60):
            began_s = time.monotonic()
            assert 200 == own.beat()
            took_s.append(time.monotonic() - began_s)

    # The first acknowledgements of a connection are not delayed.
    assert delayed_s > min(took_s[30:])


def test_slow_strangers_displace_no_kept_connection(registered):
    with closing(Beating(registered)) as own:
        assert 200 == own.beat()
        for sent in SLOW.values():
            with bursts(registered.url, sent, each_s=0.2) as opened:
                wait_until(lambda opened=opened: len(opened) >= 2 * BURST, 60, "two bursts")
                assert 200 == own.beat()


def test_a_connection_is_not_kept_for_an_execution_that_is_unknown(registered, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_WAIT_S", 2.0)
    with closing(Beating(registered)) as known, closing(Beating(registered)) as unknown:
        assert [200, 200] == [known.beat(), unknown.beat(pid=IDLE["pid"] + 1)]
        unknown.wait_closed()

        assert 200 == known.beat()


def test_a_kept_connection_is_closed_once_it_is_idle_for_too_long(registered, monkeypatch):
    monkeypatch.setattr(connections, "KEPT_IDLE_S", 0.3)
    with closing(Beating(registered)) as own:
        assert 200 == own.beat()

        own.wait_closed()


def test_a_kept_connection_is_closed_after_the_answer_once_it_is_too_old(registered, monkeypatch):
    with closing(Beating(registered)) as own:
        assert [200, 200] == [own.beat(), own.beat()]
        monkeypatch.setattr(connections, "KEPT_S", 0.0)

        # The server may look at the age after the answer before has arrived.
        assert own.beat() is None or own.beat() is None


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
    job = Job(access=ServerAccess(allowed_hosts=["Jobs.example.org"]))
    try:
        # A browser writes names in lower case.
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

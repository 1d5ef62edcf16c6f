"""The HTTP server and its client against each other, and against foreign servers."""

import json
import os
import socket
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from samzapy.adapters.host.command_queue import CommandInbox
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.adapters.web.connections import PEER_CONNECTIONS_MAX
from samzapy.adapters.web.routes import BODY_BYTES_MAX, Answering
from samzapy.adapters.web.server import PEER_GONE_S, CoordinatorServer
from samzapy.errors import ConfigError
from samzapy.testing.builders import a_heartbeat, a_submission
from samzapy.testing.waiting import wait_until
from unit_tests.coordinator.assignment.test_heartbeat_json import BODY
from unit_tests.fixtures.coordinator_world import World

IDLE = BODY | {"held": []}
CLIENT = HttpCoordinatorClient()


class Job:
    """A coordinator on a memory log behind a real server.

    Its loop runs in a thread while `looping`.
    """

    def __init__(self, access=None, operations=None, history=None):
        self.world = World()
        self.inbox = CommandInbox()
        self.world.take = self.inbox.take
        self.service = None
        self.server = CoordinatorServer(
            host="127.0.0.1",
            port=0,
            answering=Answering(
                snapshot=lambda: None if self.service is None else self.service.status(),
                put=self.inbox.put,
                clock=self.world.clock,
                lease_ms=10_000,
                leader=lambda: self.leader,
                operations=operations,
                history=history,
            ),
            access=access,
        )
        self.leader = None
        self.url = self.server.start()

    def lead(self):
        self.service = self.world.coordinator()
        self.service.become_leader()
        self.service.submit(a_submission())

    @contextmanager
    def looping(self):
        ended = threading.Event()

        def loop():
            while not ended.is_set():
                self.service.run_once(10)

        thread = threading.Thread(target=loop)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def register(self):
        """The execution e1 begins by its first heartbeat; returns the answer.

        On a slow machine it takes a second heartbeat.
        """
        with self.looping():
            return wait_until(lambda: CLIENT.heartbeat(self.url, IDLE, 20_000), 60, "e1 to be registered")

    def ask(self, method, path, body=None, content_type="application/json", host=None):
        target = urlsplit(self.url)
        connection = HTTPConnection(target.hostname, target.port, timeout=10)
        headers = {"Content-Type": content_type} | ({} if host is None else {"Host": host})
        try:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read() or b"null")
        finally:
            connection.close()


@pytest.fixture
def job():
    served_job = Job()
    yield served_job
    served_job.server.stop()


def test_a_coordinator_that_does_not_lead_yet_answers_503(job):
    assert (503, {"leader": None}) == job.ask("GET", "/status")
    assert (503, {"leader": None}) == job.ask("POST", "/containerHeartbeat", json.dumps(IDLE))
    assert CLIENT.heartbeat(job.url, IDLE, 2000) is None


def test_the_heartbeat_of_a_container_with_10_000_tasks_is_accepted_whatever_the_name_of_its_topic(job):
    topic, last, offset = "t" * 249, 9_999, 10**12
    body = BODY | {
        "held": [{"task": f"SystemStreamPartition_kafka.{topic}.{n}-0-1", "epoch": last} for n in range(last + 1)],
        "figures": {
            "positions": {
                f"kafka.{topic}.{n}:0/1": {"offsetNext": offset, "offsetEnd": offset, "recordsIn": offset}
                for n in range(last + 1)
            }
        },
    }

    status, answer = job.ask("POST", "/containerHeartbeat", json.dumps(body))

    # No process leads; the heartbeat was read.
    assert (503, {"leader": None}) == (status, answer)


def test_metrics_are_answered_by_every_coordinator_and_show_which_one_leads(job):
    def scraped():
        with urlopen(f"{job.url}/metrics", timeout=10) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=")
            return response.read().decode().splitlines()

    assert [] == scraped()
    job.service = job.world.coordinator()
    assert 'samzapy_coordinator_leads{job="flights-1"} 0.0' in scraped()

    job.lead()
    job.register()
    CLIENT.heartbeat(job.url, IDLE | {"figures": {"recordsIn": 11}}, 20_000)
    job.service.run_once(0)

    assert {
        'samzapy_coordinator_leads{job="flights-1"} 1.0',
        'samzapy_container_records_in_total{job="flights-1",processor="0"} 11.0',
    } <= set(scraped())


def test_calls_of_containers_of_another_job_are_counted(job):
    def counted():
        with urlopen(f"{job.url}/metrics", timeout=10) as response:
            lines = response.read().decode().splitlines()
        return [line for line in lines if line.startswith("samzapy_coordinator_invalid_heartbeats_total{")]

    job.service = job.world.coordinator()
    job.lead()
    job.register()
    assert ['samzapy_coordinator_invalid_heartbeats_total{job="flights-1"} 0.0'] == counted()

    job.ask("GET", "/containerHeartbeat?executionContainerId=long-gone")
    CLIENT.heartbeat(job.url, IDLE | {"pid": IDLE["pid"] + 1}, 20_000)

    assert ['samzapy_coordinator_invalid_heartbeats_total{job="flights-1"} 2.0'] == counted()


def test_a_refused_heartbeat_is_logged_with_the_reason(job, caplog):
    assert CLIENT.heartbeat(job.url, IDLE | {"pid": 0}, 20_000) is None

    assert "refused the request: 400" in caplog.text
    assert "pid: wanted a whole number" in caplog.text


def test_a_new_execution_is_registered_by_its_first_heartbeat(job):
    job.lead()

    answer = job.register()

    assert (True, 1) == (answer.alive, answer.term)
    expected = {"alive": True, "job": "flights-1", "term": 1, "executionContainerId": "e1"}
    assert (200, expected) == job.ask("GET", "/containerHeartbeat?executionContainerId=e1")


def test_an_execution_that_is_not_registered_in_time_is_not_declared_dead(job):
    job.lead()

    assert CLIENT.heartbeat(job.url, IDLE, 20_000) is None


def test_an_execution_with_grants_of_another_log_is_not_alive(job):
    job.lead()

    assert CLIENT.heartbeat(job.url, BODY, 20_000).alive is False


def test_an_unknown_execution_is_not_alive(job):
    job.lead()

    status, answer = job.ask("GET", "/containerHeartbeat?executionContainerId=unknown")

    assert (200, False) == (status, answer["alive"])
    assert 400 == job.ask("GET", "/containerHeartbeat")[0]


def test_a_container_that_reports_its_exit_code_is_given_up_with_its_reason(job):
    job.lead()
    job.register()

    CLIENT.heartbeat(job.url, IDLE | {"exitCode": 8, "reason": "a range is gone"}, 20_000)
    job.service.run_once(0)

    assert (200, False) == alive_answer(job, "e1")
    assert "it ends with exit code 8: a range is gone" == job.service.status().state.containers["e1"].reason


def test_a_container_that_was_launched_is_alive_before_its_first_heartbeat(job):
    job.service = job.world.coordinator()
    job.service.become_leader()
    job.service.submit(replace(a_submission(), container_count=1))
    job.service.run_once(0)
    (execution_id,) = job.service.status().state.launches

    assert (200, True) == alive_answer(job, execution_id)
    assert (200, False) == alive_answer(job, "unknown")


def alive_answer(job, execution_id):
    status, answer = job.ask("GET", f"/containerHeartbeat?executionContainerId={execution_id}")
    return status, answer["alive"]


def test_heartbeats_reach_the_coordinator_and_status_shows_them(job):
    job.lead()
    job.register()

    CLIENT.heartbeat(job.url, IDLE | {"figures": {"recordsIn": 11}}, 20_000)
    job.service.run_once(0)

    assert 11 == CLIENT.status(job.url, "flights-1", 20_000)["totals"]["recordsIn"]
    assert CLIENT.status(job.url, "another-1", 20_000) is None


def test_the_job_model_is_shown_once_there_is_one(job):
    job.lead()
    assert 404 == job.ask("GET", "/jobModel")[0]
    job.inbox.put(a_heartbeat())
    job.service.run_once(0)

    status, model = job.ask("GET", "/jobModel")

    assert 200 == status
    assert 4 == len(model["containers"][0]["tasks"])


def test_a_coordinator_that_was_stopped_for_longer_than_a_lease_answers_503(job):
    job.lead()
    job.world.clock.advance(10_001)

    assert (503, {"leader": "http://a:1"}) == job.ask("GET", "/status")


def test_a_candidate_that_never_led_names_the_leader_that_its_container_knows(job):
    job.leader = "http://c:1"
    assert (503, {"leader": "http://c:1"}) == job.ask("GET", "/status")

    job.leader = job.url
    assert (503, {"leader": None}) == job.ask("GET", "/status")


def test_a_deposed_leader_names_the_new_one(job):
    job.lead()
    job.world.coordinator("b", pid=2).become_leader()
    job.world.clock.advance(1000)
    with pytest.raises(Exception, match="term 2"):
        job.service.run_once(0)

    assert (503, {"leader": "http://b:1"}) == job.ask("GET", "/jobModel")


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b"{", "application/json", 400),
        (b'{"job": 5}', "application/json", 400),
        pytest.param(b"x" * (BODY_BYTES_MAX + 1), "application/json", 413, id="too-large"),
        (b"{}", "text/plain", 415),
        (b"{", "Application/JSON; charset=utf-8", 400),
    ],
)
def test_a_body_that_is_no_heartbeat_is_refused_with_a_reason(job, body, content_type, status):
    job.lead()

    status_code, answer = job.ask("POST", "/containerHeartbeat", body, content_type)

    assert status == status_code
    assert "wanted" in answer["reason"]
    assert "Traceback" not in answer["reason"]


def test_only_requests_to_names_of_this_host_are_answered(job):
    job.lead()

    target = urlsplit(job.url)
    connection = HTTPConnection(target.hostname, target.port, timeout=10)
    connection.request("GET", "/status", headers={"Host": "evil.example"})
    assert 400 == connection.getresponse().status
    connection.close()


@pytest.mark.parametrize("sent", [b"", b"GET /status HT"], ids=["nothing", "half-a-head"])
def test_a_silent_connection_is_closed_after_a_while(job, monkeypatch, sent):
    monkeypatch.setattr("samzapy.adapters.web.connections.HEAD_WAIT_S", 2.0)
    target = urlsplit(job.url)
    with ExitStack() as waiting:
        for _ in range(PEER_CONNECTIONS_MAX):
            waiting.enter_context(socket.create_connection((target.hostname, target.port))).sendall(sent)

        wait_until(lambda: _answers_503(job), 20, "an answer")


def _answers_503(job):
    with suppress(OSError, ValueError):
        return (503, {"leader": None}) == job.ask("GET", "/status")
    return False


def test_half_a_head_after_an_answer_is_not_waited_for(job, monkeypatch):
    monkeypatch.setattr("samzapy.adapters.web.connections.HEAD_WAIT_S", 2.0)
    target = urlsplit(job.url)
    with closing(HTTPConnection(target.hostname, target.port, timeout=8)) as connection:
        connection.request("GET", "/status")
        assert b'{"leader":null}' == connection.getresponse().read()
        connection.sock.sendall(b"GET /status HT")

        assert b"" == connection.sock.recv(65536)


def test_a_connection_is_not_closed_while_it_is_answered(job, monkeypatch):
    monkeypatch.setattr("samzapy.adapters.web.connections.HEAD_WAIT_S", 0.5)
    job.lead()

    # No leader registers it, so the answer takes longer than a head may.
    assert (503, {"leader": "http://a:1"}) == job.ask("POST", "/containerHeartbeat", json.dumps(IDLE))


def test_the_kernel_asks_whether_a_silent_peer_is_still_there(job):
    target = urlsplit(job.url)
    with socket.create_connection((target.hostname, target.port)):
        wait_until(lambda: _keep_alive_s(target.port), 10, "the connection to be taken")
        assert [True] == [0 < due_s <= PEER_GONE_S for due_s in _keep_alive_s(target.port)]


def _keep_alive_s(port):
    """The seconds until the kernel probes the peers of a server of this machine again.

    See proc(5), `tr` of 2.
    """
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [line[5].split(":") for line in lines if line[1].endswith(f":{port:04X}") and line[3] == "01"]
    return [int(due, 16) / os.sysconf("SC_CLK_TCK") for kind, due in timers if kind == "02"]


def test_a_path_or_method_that_is_not_there_is_refused(job):
    assert 404 == job.ask("GET", "/nothing")[0]
    assert 405 == job.ask("POST", "/status")[0]


def test_a_port_that_is_taken_is_named(job):
    port = urlsplit(job.url).port
    other = CoordinatorServer(
        host="127.0.0.1",
        port=port,
        answering=Answering(snapshot=lambda: None, put=job.inbox.put, clock=job.world.clock, lease_ms=1),
    )

    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
        other.start()


def test_a_full_inbox_refuses_a_command_without_waiting():
    inbox = CommandInbox(waiting_max=1)

    assert [True, False] == [inbox.put("a"), inbox.put("b")]
    assert ["a"] == inbox.take(0)
    assert [] == inbox.take(1)


def test_the_inbox_pauses_for_as_long_as_the_last_round_took():
    now_s, rested_s = [100.0], []
    inbox = CommandInbox(monotonic_s=lambda: now_s[0], rest=rested_s.append)
    inbox.put("a")

    assert ["a"] == inbox.take(200)
    for worked_s in (0.03, 5.0):
        now_s[0] += worked_s
        inbox.put("b")
        assert ["b"] == inbox.take(200)
    now_s[0] += 1.0
    inbox.take(0)

    assert [pytest.approx(0.03), 0.1] == rested_s, (
        "never for longer than a tenth of a second, nor when asked not to wait"
    )


@contextmanager
def another_server(*pieces, pause_s=0.0):
    """A server that sends `pieces` to each client."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        try:
            connection, _ = listening.accept()
        except OSError:  # No client came.
            return
        with connection:
            connection.recv(65536)
            try:
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause_s)
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()


def http(body, status="200 OK"):
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


ANOTHER_JOB = {"alive": True, "job": "other-1", "term": 1, "executionContainerId": "e1"}


@pytest.mark.parametrize(
    "answer",
    [
        http(b"{}"),
        http(b"<html>hello</html>"),
        http(json.dumps(ANOTHER_JOB).encode()),
        http(json.dumps(ANOTHER_JOB | {"job": "flights-1", "executionContainerId": "e2"}).encode()),
        http(json.dumps(ANOTHER_JOB | {"job": "flights-1", "alive": "yes"}).encode()),
        http(json.dumps(ANOTHER_JOB | {"job": "flights-1", "pad": "x" * 70_000}).encode()),
        http(b"[" * 60_000),
        http(json.dumps(ANOTHER_JOB | {"job": "flights-1"}).replace('"term": 1', '"term": NaN').encode()),
        http(b"", "302 Found\r\nLocation: http://127.0.0.1:1/"),
        b"no http at all\r\n\r\n",
        b"",
    ],
    ids=["empty", "html", "job", "execution", "type", "large", "deep", "NaN", "redirect", "garbage", "nothing"],
)
def test_an_answer_of_another_program_is_no_answer(answer):
    with another_server(answer) as url:
        assert CLIENT.heartbeat(url, IDLE, 2000) is None


def test_an_answer_that_drips_is_cut_at_the_time_limit():
    began_s = time.monotonic()
    with another_server(b"HTTP/1.1 200 OK\r\n", *([b"x"] * 600), pause_s=0.1) as url:
        assert CLIENT.heartbeat(url, IDLE, 3000) is None
        assert 20 > time.monotonic() - began_s


@pytest.fixture
def named(monkeypatch):
    """The answer of the resolver about `many.test`: `addresses`, once `is_known`."""
    real, resolver = socket.getaddrinfo, SimpleNamespace(addresses=[], is_known=threading.Event())

    def resolve(host, port, *args, **kwargs):
        if host != "many.test":
            return real(host, port, *args, **kwargs)
        resolver.is_known.wait(20)
        return [
            address_info for address in resolver.addresses for address_info in real(address, port, *args, **kwargs)
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    yield resolver
    resolver.is_known.set()


def test_a_name_that_is_not_resolved_in_time_is_no_answer(named):
    began_s = time.monotonic()

    assert CLIENT.heartbeat("http://many.test:1", IDLE, 300) is None
    assert 10 > time.monotonic() - began_s


def test_all_addresses_of_a_name_are_tried_within_one_time_limit(named):
    named.is_known.set()
    named.addresses = [f"127.0.0.{number}" for number in range(1, 9)]
    with socket.create_server(("0.0.0.0", 0), backlog=0) as full, ExitStack() as waiting:
        port = full.getsockname()[1]
        for address in named.addresses:
            for _ in range(3):
                client = waiting.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex((address, port))
        began_s = time.monotonic()

        assert CLIENT.heartbeat(f"http://many.test:{port}", IDLE, 600) is None
        assert 4 > time.monotonic() - began_s


def test_an_address_that_does_not_answer_leaves_time_for_the_next_one(named):
    named.is_known.set()
    named.addresses = ["127.0.0.9", "127.0.0.1"]
    answer = ANOTHER_JOB | {"job": "flights-1"}

    with another_server(http(json.dumps(answer).encode())) as url:
        assert CLIENT.heartbeat(url.replace("127.0.0.1", "many.test"), IDLE, 5000) is not None


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://", "http://127.0.0.1:1", "http://127.0.0.1:x", "http://[", "file:///etc/passwd"]
)
def test_a_url_that_cannot_be_asked_is_no_answer(url):
    assert CLIENT.heartbeat(url, IDLE, 500) is None

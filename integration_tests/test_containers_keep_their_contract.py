"""Containers without Spark, and coordinators: heartbeats and decisions.

Every message of the input must be answered once, in each fault of coordinators and containers
(docs/reference/container-contract.md).
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Message, Producer

from integration_tests.candidates import CandidateProcess, Contest, config_of
from integration_tests.small_job import heartbeat_from_elsewhere
from integration_tests.support.cutting_proxy import Address, CuttingProxy
from integration_tests.support.odd_header import write_with_header_name
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.adapters.web.client import HeartbeatAnswer, HttpCoordinatorClient
from samzapy.config import recorded_properties
from samzapy.coordinator.replay import replay
from samzapy.coordinator.service import LOOK_ROUND_MS
from samzapy.errors import ExitCode, LostContainerError
from samzapy.model.container import ContainerPhase
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.codec import encode, parse_headers
from samzapy.stream.numbering import BEGINNING, VALUE_RESTORED, Reading
from samzapy.stream.records import ContainerPut, EpochPut
from samzapy.testing.broker import DevBroker
from samzapy.testing.fake_container import FakeContainer, Hooks
from samzapy.testing.topics import grow_topic, make_topics
from samzapy.testing.waiting import wait_until

SETTINGS = {
    "job_container_heartbeat_ms": "200",
    "job_container_lease_ms": "8000",
    "job_container_lost_ms": "10000",
    "job_container_grace_ms": "60000",
    "job_debounce_time_ms": "200",
    "job_processor_grace_ms": "500",
}
EACH = 400
EACH_KEY = 100
_WITHIN_S = 60.0


class Done(NamedTuple):
    """A message that was done: its place, its task, its execution and its epoch."""

    partition: int
    offset: int
    task: str
    epoch: int
    execution: str


class Crew:
    """A job of two tasks, its coordinators and containers."""

    def __init__(self, servers: str, directory: Path, **more: str) -> None:
        settings = {**SETTINGS, "systems_kafka_bootstrap_servers": servers, **more}
        self.contest = Contest(servers, **settings)
        self.config = config_of(self.contest.job_name, self.contest.input_topic, settings)
        self.output = f"out-{self.contest.job_name}"
        self._directory = directory
        self._servers = servers
        self._stack = ExitStack()
        self._fed = 0
        make_topics(servers, {self.output: 1})

    def __enter__(self) -> Self:
        self._stack.enter_context(self.contest)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def leader(self) -> CandidateProcess:
        candidate = self.contest.candidate()
        wait_until(candidate.leads, _WITHIN_S, "the candidate to lead")
        return candidate

    def container(
        self,
        processor_id: str,
        client: HttpCoordinatorClient | None = None,
        may_read: Callable[[], bool] = lambda: True,
    ) -> Working:
        working = Working(
            FakeContainer(
                self.contest.connection,
                self.config,
                execution_id=f"e{processor_id}-{uuid.uuid4().hex[:8]}",
                processor_id=processor_id,
                output=self.output,
                hooks=Hooks(client=client or HttpCoordinatorClient(), may_read=may_read),
            )
        )
        self._stack.callback(working.end)
        return working

    def process(self, processor_id: str, sleep_at: int | None = None) -> ContainerProcess:
        """A container in a process of its own, which may stop itself in a transaction."""
        properties = recorded_properties(self.config)
        path = self._directory / "job.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        process = ContainerProcess(path, processor_id, self.output, sleep_at)
        self._stack.callback(process.end)
        return process

    def feed(self) -> None:
        """So many messages more for each partition."""
        producer = Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})
        for number in range(self._fed, self._fed + EACH):
            for partition in range(2):
                producer.produce(self.contest.input_topic, str(number), f"k{number % 7}", partition)
        assert 0 == producer.flush(30)
        self._fed += EACH

    def done(self) -> list[Done]:
        with PartitionReader(self.contest.connection, self.output) as reader:
            values = [json.loads(record.value or b"") for record in reader.read_stable()]
        return [Done(one["partition"], one["offset"], one["task"], one["epoch"], one["execution"]) for one in values]

    def check_each_once(self) -> list[Done]:
        """Check that all messages are answered in order and once, by owners in order."""
        wait_until(lambda: len(self.done()) >= 2 * self._fed, _WITHIN_S, "every message to be done")
        done = self.done()
        for partition in range(2):
            of_it = [one for one in done if one.partition == partition]
            assert list(range(self._fed)) == [one.offset for one in of_it]
            assert sorted(one.epoch for one in of_it) == [one.epoch for one in of_it]
        return done

    def phases(self) -> Mapping[str, ContainerPhase]:
        """The last phase of each execution on the stream."""
        return {put.container.execution_id: put.container.phase for put in self._puts()}

    def reasons(self) -> Mapping[str, str]:
        """Why executions stopped or were given up, as the stream has it last."""
        return {put.container.execution_id: put.container.reason for put in self._puts() if put.container.reason}

    def _puts(self) -> Iterator[ContainerPut]:
        records = Reading(BEGINNING, topic=self.contest.topic).read(self.contest.records())
        return (record.fact for record in records if isinstance(record.fact, ContainerPut))


class Working:
    """A container in a thread of this process."""

    def __init__(self, container: FakeContainer) -> None:
        self.container = container
        self.execution_id = container.execution_id
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.container.run()
        except LostContainerError as error:
            self.error = error

    def wait_for_tasks(self, count: int) -> None:
        wait_until(
            lambda: len(self.container.tasks) == count, _WITHIN_S, f"{self.execution_id} to have {count} tasks"
        )

    def end(self) -> None:
        self.container.stop()
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive()

    def wait_ended(self) -> BaseException | None:
        self._thread.join(_WITHIN_S)
        assert not self._thread.is_alive(), "it has ended"
        return self.error


class ContainerProcess:
    """A container as a program."""

    def __init__(self, properties: Path, processor_id: str, output: str, sleep_at: int | None) -> None:
        self.execution_id = f"e{processor_id}-{uuid.uuid4().hex[:8]}"
        program = [sys.executable, "-m", "samzapy.testing.fake_container", str(properties)]
        options = ["--execution", self.execution_id, "--processor", processor_id, "--output", output]
        options += [] if sleep_at is None else ["--sleep-at", str(sleep_at)]
        self._child = subprocess.Popen([*program, *options], stderr=subprocess.PIPE, text=True)
        self.process = ProcessIdentity.of(self._child.pid)

    def wait_ended(self) -> tuple[int, str]:
        _, output = self._child.communicate(timeout=_WITHIN_S)
        return self._child.returncode, output

    def end(self) -> None:
        self._child.kill()
        self._child.communicate(timeout=_WITHIN_S)


class KeyedFeed:
    """The records of other producers by key, each key in the order of its numbers."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic = servers, topic
        self._counts = Counter[str]()
        self.written_at: dict[tuple[int, int], tuple[str, int]] = {}

    def producer(self) -> Producer:
        return Producer({"bootstrap.servers": self._servers, "enable.idempotence": True})

    def write(self, producer: Producer, keys: Sequence[str], partition_count: int) -> None:
        """Write EACH_KEY messages of each of `keys` by a partition count known by then."""

        def known() -> bool:
            return len(producer.list_topics(self._topic, 10).topics[self._topic].partitions) >= partition_count

        wait_until(known, _WITHIN_S, f"the producer to know {partition_count} partitions")
        for _ in range(EACH_KEY):
            for key in keys:
                self._counts[key] += 1
                producer.produce(
                    self._topic,
                    str(self._counts[key]),
                    key,
                    place(key, partition_count),
                    on_delivery=partial(self._delivered, (key, self._counts[key])),
                )
            producer.poll(0)
        assert 0 == producer.flush(30)

    def _delivered(self, written: tuple[str, int], error: object, message: Message) -> None:
        assert error is None, error
        position = message.partition(), message.offset()
        assert position[0] is not None and position[1] is not None
        self.written_at[position[0], position[1]] = written

    def end_of(self, partition: int) -> int:
        return 1 + max((offset for number, offset in self.written_at if number == partition), default=-1)


def place(key: str, partition_count: int) -> int:
    return zlib.crc32(key.encode()) % partition_count


class Through(HttpCoordinatorClient):
    """Asks the coordinator by way of a proxy."""

    def __init__(self, proxy: CuttingProxy) -> None:
        super().__init__()
        self._url = f"http://{proxy.address.host}:{proxy.address.port_number}"

    def heartbeat(self, url: str, body: Mapping[str, object], timeout_ms: int) -> HeartbeatAnswer | None:
        return super().heartbeat(self._url, body, timeout_ms)


class Cut(HttpCoordinatorClient):
    """A client whose network may be cut."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def heartbeat(self, url: str, body: Mapping[str, object], timeout_ms: int) -> HeartbeatAnswer | None:
        return None if self.is_cut else super().heartbeat(url, body, timeout_ms)


class ForeignServer:
    """A foreign program on a former coordinator's port, with several bad answers."""

    def __init__(self, port: int, job: str) -> None:
        self.calls = 0
        ways = self._ways(job)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:
                body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
                number, self.calls = self.calls, self.calls + 1
                with suppress(OSError):
                    ways[number % len(ways)](handler, body)

            def log_message(handler, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _ways(self, job: str) -> Sequence[Callable[[Any, Mapping[str, Any]], None]]:
        def answer(handler: Any, body: bytes) -> None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

        def dead(handler: Any, body: Mapping[str, Any], **other: object) -> None:
            right = {"alive": False, "job": job, "term": 1, "executionContainerId": body["executionId"]}
            answer(handler, json.dumps(right | other).encode())

        def slowly(handler: Any, body: Mapping[str, Any]) -> None:
            handler.send_response(200)
            handler.end_headers()
            for _ in range(50):
                handler.wfile.write(b" ")
                time.sleep(0.1)

        return [
            lambda handler, body: answer(handler, b"<html>unknown here</html>"),
            lambda handler, body: dead(handler, body, job="another-1"),
            lambda handler, body: dead(handler, body, executionContainerId="another"),
            # A coordinator of this job that was deposed long ago, and wakes up on its port.
            lambda handler, body: dead(handler, body, term=0),
            lambda handler, body: dead(handler, body, padding="x" * 10_000_000),
            lambda handler, body: handler.send_error(404),
            slowly,
        ]


@pytest.fixture
def crew(broker: DevBroker, tmp_path: Path) -> Iterator[Crew]:
    with Crew(broker.bootstrap_servers, tmp_path) as new_crew:
        yield new_crew


@pytest.fixture
def patient(broker: DevBroker, tmp_path: Path) -> Iterator[Crew]:
    """For tests without a lost container: 8 s are a short lease on a slow machine."""
    settings = {"job_container_lease_ms": "20000", "job_container_lost_ms": "25000"}
    with Crew(broker.bootstrap_servers, tmp_path, **settings) as new_crew:
        yield new_crew


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def alive(url: str, execution_id: str) -> Mapping[str, Any]:
    """Seed 000's question."""
    with urlopen(f"{url}/containerHeartbeat?executionContainerId={execution_id}", timeout=10) as answer:
        return dict(json.load(answer))


def test_containers_share_the_tasks_and_hand_them_over(patient: Crew) -> None:
    patient.leader()
    first = patient.container("0")
    patient.feed()
    first.wait_for_tasks(2)
    second = patient.container("1")
    first.wait_for_tasks(1)
    second.wait_for_tasks(1)
    patient.feed()

    first.end()
    second.wait_for_tasks(2)
    patient.feed()

    done = patient.check_each_once()
    assert None is first.error
    assert {first.execution_id, second.execution_id} == {one.execution for one in done}
    assert ContainerPhase.STOPPED is patient.phases()[first.execution_id]


def test_another_program_on_the_coordinator_stream_changes_and_stops_nothing(patient: Crew) -> None:
    """Foreign tombstones and unreadable bytes change no owner and end no process."""
    leader = patient.leader()
    containers = [patient.container("0"), patient.container("1")]
    for container in containers:
        container.wait_for_tasks(1)
    patient.feed()
    patient.check_each_once()
    before = replay(patient.contest.records(), topic=patient.contest.topic)
    grants = [f"grant/{grant.task_name}/{grant.epoch}".encode() for grant in before.state.grants_sorted]
    epoch = encode(EpochPut(epoch=1))[1] or b""
    foreign: list[tuple[bytes, bytes | None]] = [
        *((key, None) for key in grants),
        (b"epoch", b"\x00random"),
        (b"run", b"\xc3\x01" + bytes(20)),
        (b"generation", epoch[:-1]),
        (b"\xff\xfe", b"junk"),
        (b"term", None),
    ]

    producer = Producer({"bootstrap.servers": patient.contest.connection.bootstrap_servers})
    for key, value in foreign:
        producer.produce(patient.contest.topic, value, key)
    assert 0 == producer.flush(30)
    foreign.append((b"config/odd", b"v"))
    write_with_header_name(
        patient.contest.connection.bootstrap_servers, patient.contest.topic, b"config/odd", b"\xff"
    )
    wait_until(lambda: _restored(patient) >= {key for key, _ in foreign}, _WITHIN_S, "each value to be written again")
    patient.feed()

    done = patient.check_each_once()
    after = replay(patient.contest.records(), topic=patient.contest.topic)
    assert before.state.grants == after.state.grants
    assert {grant.execution_id for grant in after.state.grants.values()} == {one.execution for one in done}
    assert [None, None] == [container.error for container in containers]
    assert (before.state.term, {}) == (after.state.term, after.foreign)
    assert len(foreign) == after.foreign_count
    # A new leader reads the stream from its beginning.
    newcomer = patient.container("2")
    wait_until(lambda: newcomer.execution_id in patient.phases(), _WITHIN_S, "a newcomer to be registered")
    status = leader.ask()[1]
    codes = {finding["code"] for finding in status["findings"]}  # type: ignore[attr-defined]
    assert {"record-foreign", "record-unreadable"} == codes


def _restored(crew: Crew) -> set[bytes]:
    """The keys whose values a leader has written again."""
    headers_by_key = [(record.key or b"", parse_headers(record.headers)) for record in crew.contest.records()]
    return {key for key, headers in headers_by_key if headers is not None and headers.event == VALUE_RESTORED}


def invalid_heartbeats(url: str) -> int:
    with urlopen(f"{url}/metrics", timeout=10) as metrics:
        counted = re.search(r"^samzapy_coordinator_invalid_heartbeats_total\S* (\S+)$", metrics.read().decode(), re.M)
    assert counted is not None
    return int(float(counted[1]))


def test_the_coordinator_answers_which_execution_belongs_to_the_job(patient: Crew) -> None:
    leader = patient.leader()
    container = patient.container("0")
    container.wait_for_tasks(2)
    # A container whose registration the leader has not read yet may have been refused before.
    refused_before = invalid_heartbeats(leader.url)

    answer = alive(leader.url, container.execution_id)
    assert {
        "alive": True,
        "job": patient.config.job,
        "term": 1,
        "executionContainerId": container.execution_id,
    } == answer
    assert not alive(leader.url, "container_1490224420978_0323_01_000282")["alive"]

    copy = heartbeat_from_elsewhere(leader.url, patient.config.job, container.execution_id)
    assert copy is not None
    assert not copy.alive, "another process under the same id"
    assert invalid_heartbeats(leader.url) - refused_before == 2
    container.end()
    # A last heartbeat that came late may have been refused too.
    refused_before = invalid_heartbeats(leader.url)
    wait_until(
        lambda: not alive(leader.url, container.execution_id)["alive"], _WITHIN_S, "its last heartbeat to be recorded"
    )
    assert invalid_heartbeats(leader.url) - refused_before == 1


@pytest.mark.parametrize("offset", [None, EACH // 2], ids=["between transactions", "in a transaction"])
def test_a_container_that_slept_too_long_commits_nothing_more_and_ends_as_lost(
    crew: Crew, offset: int | None
) -> None:
    """A deposed leader may renew its producer, but first reads the stream to its end."""
    leader = crew.leader()
    sleeper = crew.process("0", offset)
    crew.feed()
    if offset is None:
        wait_until(lambda: len(crew.done()) == 2 * EACH, _WITHIN_S, "the first container to be at work")
        assert sleeper.process.send(signal.SIGSTOP)
    wait_until(sleeper.process.is_stopped, _WITHIN_S, "it to sleep")
    done_before = len(crew.done())

    heir = crew.container("1")
    heir.wait_for_tasks(2)
    assert not alive(leader.url, sleeper.execution_id)["alive"]
    crew.feed()
    assert sleeper.process.send(signal.SIGCONT)
    code, output = sleeper.wait_ended()

    assert ExitCode.LOST == code, output
    assert "was given up by the coordinator" in output
    crew.feed()
    done = crew.check_each_once()
    assert {heir.execution_id} == {one.execution for one in done[done_before:]}


def test_a_container_that_no_coordinator_hears_works_no_longer_than_its_lease(crew: Crew) -> None:
    """Its Kafka is fine: only the lease and the fencing keep it from going on."""
    crew.leader()
    client = Cut()
    deaf = crew.container("0", client)
    deaf.wait_for_tasks(2)
    client.is_cut = True
    heir = crew.container("1")

    heir.wait_for_tasks(2)
    crew.feed()
    error = deaf.wait_ended()

    assert isinstance(error, LostContainerError)
    assert {heir.execution_id} == {one.execution for one in crew.check_each_once()}


def test_a_container_whose_answers_are_lost_is_given_up_and_another_one_takes_over(crew: Crew) -> None:
    """Its heartbeats arrive all the while: no silence shows the fault."""
    leader = crew.leader()
    with CuttingProxy(Address("127.0.0.1", port_of(leader.url))) as proxy:
        unanswered = crew.container("0", Through(proxy))
        unanswered.wait_for_tasks(2)
        proxy.hold_answers()
        heir = crew.container("1")

        heir.wait_for_tasks(2)
        crew.feed()
        error = unanswered.wait_ended()

        assert proxy.held_count > 0, "answers were on their way"
    assert isinstance(error, LostContainerError)
    assert {heir.execution_id} == {one.execution for one in crew.check_each_once()}
    assert "its heartbeats arrive, and it has had no answer" in crew.reasons()[unanswered.execution_id]


def test_another_server_on_the_port_of_a_dead_coordinator_stops_no_container(patient: Crew) -> None:
    crew = patient
    leader = crew.leader()
    containers = [crew.container(name) for name in ("0", "1")]
    for container in containers:
        container.wait_for_tasks(1)
    # Not before: the first of them had both tasks for a while.
    crew.feed()
    leader.kill()
    stranger = ForeignServer(port_of(leader.url), crew.config.job)
    try:
        wait_until(lambda: stranger.calls >= 14, _WITHIN_S, "the stranger to have answered in all its ways, to both")
        successor = crew.leader()
        crew.feed()
        done = crew.check_each_once()
    finally:
        stranger.close()

    assert [None, None] == [container.error for container in containers]
    assert all(alive(successor.url, container.execution_id)["alive"] for container in containers)
    phases = crew.phases()
    assert {container.execution_id for container in containers} == phases.keys(), "no container was started anew"
    # The successor records RUNNING with the next heartbeat of each.
    wait_until(
        lambda: {ContainerPhase.RUNNING} == set(crew.phases().values()), _WITHIN_S, "both to be recorded as running"
    )
    assert 2 == len({one.epoch for one in done}), "each task has the grant that it had"


def test_a_coordinator_that_pauses_for_a_while_loses_no_container(patient: Crew) -> None:
    crew = patient
    leader = crew.leader()
    container = crew.container("0")
    container.wait_for_tasks(2)
    leader.stop()
    # Its kernel still takes connections: requests meanwhile get no answer, or a late one.
    with suppress(OSError, HTTPError), socket.create_connection(("127.0.0.1", port_of(leader.url)), 1) as held:
        held.settimeout(1.5)
        held.recv(1)
    leader.go_on()
    crew.feed()

    crew.check_each_once()
    assert None is container.error
    assert {container.execution_id: ContainerPhase.RUNNING} == crew.phases()


def test_a_key_that_moves_to_a_new_partition_keeps_its_order_despite_a_late_producer(
    broker: DevBroker, tmp_path: Path
) -> None:
    """One producer uses the new count at once, the other one later.

    Two containers are held up with the old partitions, and a third one is idle: it must not get the new ones before.
    """
    moving = [key for key in map(str, range(64)) if place(key, 4) != place(key, 2)][:9]
    keys_early, keys_late, keys_of_both = moving[:3], moving[3:6], moving[6:]
    settings = {
        "job_container_lease_ms": "20000",
        "job_container_lost_ms": "25000",
        "job_coordinator_monitor-partition-change_frequency_ms": "500",
        "job_expansion_settle_ms": "15000",
    }
    with Crew(broker.bootstrap_servers, tmp_path, **settings) as crew:
        leader = crew.leader()
        gates = [threading.Event(), threading.Event()]
        busy = [crew.container(f"{number}", may_read=gate.is_set) for number, gate in enumerate(gates)]
        for container in busy:
            container.wait_for_tasks(1)
        idle = crew.container("2")
        wait_until(lambda: idle.execution_id in crew.phases(), _WITHIN_S, "the third container to be known")
        feed = KeyedFeed(broker.bootstrap_servers, crew.contest.input_topic)
        early, late = feed.producer(), feed.producer()
        feed.write(early, keys_early, 2)
        feed.write(late, keys_late, 2)
        grow_topic(broker.bootstrap_servers, crew.contest.input_topic, 4)
        seen = wait_until(lambda: _expansion(leader), _WITHIN_S, "the new partitions to be seen")
        # Late, but not by so much as settles: the ends must not have been read by then.
        late_at_ms = seen["seenAtMs"] + 2 * LOOK_ROUND_MS
        wait_until(lambda: time.time() * 1000 >= late_at_ms, _WITHIN_S, "it to be late")

        feed.write(early, keys_early, 4)
        feed.write(late, [*keys_late, *keys_of_both], 2)
        ends = {partition: feed.end_of(partition) for partition in range(2)}
        feed.write(early, keys_of_both, 4)
        feed.write(late, keys_late, 4)
        wait_until(lambda: _ends_not_passed(leader) == ends, _WITHIN_S, "the ends of the old partitions to be read")
        gates[0].set()
        wait_until(lambda: len(_ends_not_passed(leader)) == 1, _WITHIN_S, "the first old partition to be done")
        looked_again_s = time.monotonic() + 3 * LOOK_ROUND_MS / 1000
        wait_until(lambda: time.monotonic() >= looked_again_s, _WITHIN_S, "some rounds of the coordinator to go by")
        assert [1, 1, 0] == [len(container.container.tasks) for container in (*busy, idle)]
        gates[1].set()

        wait_until(lambda: len(crew.done()) >= len(feed.written_at), _WITHIN_S, "every message to be done")
        done = [(one.partition, one.offset) for one in crew.done()]
    assert sorted(feed.written_at) == sorted(done)
    numbers: dict[str, list[int]] = {}
    for stood_at in done:
        key, number = feed.written_at[stood_at]
        numbers.setdefault(key, []).append(number)
    assert {key: list(range(1, len(of_key) + 1)) for key, of_key in numbers.items()} == numbers
    assert {0, 1, 2, 3} == {partition for partition, _ in done}


def _expansion(leader: CandidateProcess) -> Any:
    """The one that is under way."""
    expansions: Any = leader.ask()[1]["expansions"]
    return next(iter(expansions), None)


def _ends_not_passed(leader: CandidateProcess) -> Mapping[int, int]:
    """The old partitions that the new ones wait for, and up to where."""
    step = _expansion(leader)
    waits_for = [] if step is None else step["waitsFor"]
    return {SspKeyBucket.parse(wait["ssp"]).ssp.partition: wait["offsetEnd"] for wait in waits_for}

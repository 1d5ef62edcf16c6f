"""The time to answer heartbeats: many containers, one core for the coordinator.

The coordinator is a process of its own, without Spark, held to one core; broker and containers share the others. A
container is a task of one client process here: it registers, follows its grants, and sends the heartbeats of a real
one, on a connection of its own, at a moment of its own within the interval.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from bench_conditions import load
from bench_measure import memory_of, percentile

from integration_tests.candidates import CandidateProcess, Contest
from samzapy.adapters.kafka.reading import PartitionReader
from samzapy.adapters.web.access import Access
from samzapy.adapters.web.client import HttpCoordinatorClient
from samzapy.container.orders import Orders, follow
from samzapy.model.job import ExecutionId
from samzapy.stream.codec import decode
from samzapy.stream.records import FORMAT_LEVEL, Record
from samzapy.testing.topics import grow_topic
from samzapy.testing.waiting import wait_until

CONTAINERS = 1000
INTERVALS_MS = (5000, 2000, 1000)
"""Seed 000's default, and shorter ones down to samzapy's own."""
MEASURE_S = 60.0
P99_MS_MAX = 20.0
_THREADS = 32
_ANSWER_MS = 2000
_VIEWS = ("/", "/ui/tasks", "/ui/tasks?sort=-lag", "/ui/containers", "/ui/load", "/ui/timeline")
_REGISTERED_WITHIN_S = 300.0
_SETTINGS = {
    # No container may be given up while the next interval is prepared.
    "job_container_lease_ms": "120000",
    "job_container_lost_ms": "180000",
    "job_debounce_time_ms": "2000",
    # The first that come are given everything, and let it go when all are here, each when it has read so.
    "job_release_timeout_ms": "600000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """How heartbeats were answered at one interval; times in milliseconds.

    Attributes:
        cpu_share: the share of its core that the coordinator took; `cpu_ms`: its CPU time for each answer.
    """

    interval_ms: int
    answer_ms: Sequence[float]
    late_ms: Sequence[float]
    unanswered: int
    cpu_share: float
    cpu_ms: float
    load: float

    @property
    def p99_ms(self) -> float:
        return percentile(self.answer_ms, 99.0)

    @property
    def late_p99_ms(self) -> float:
        """The delays of due heartbeats by the fault of their senders."""
        return percentile(self.late_ms, 99.0)


class _Container:
    """The heartbeat of a container: it runs, and holds its grants of the stream."""

    def __init__(self, number: int, access: Access | None) -> None:
        self.client = HttpCoordinatorClient(access)
        self.processor_id = str(number)
        self.orders = Orders(execution_id=ExecutionId(f"e{number}-bench"))
        self.held: list[Mapping[str, object]] = []

    def follow(self, records: Sequence[Record], offset_next: int) -> None:
        self.orders = follow(self.orders, records, offset_next)
        self.held = [{"task": grant.task_name, "epoch": grant.epoch} for grant in self.orders.own_grants()]

    def body(self, job: str) -> Mapping[str, Any]:
        figures = {"atMs": 1, "recordsIn": 1, "recordsOut": 1, "commits": 1, "batches": 1}
        return {
            "job": job,
            "executionId": self.orders.execution_id,
            "processorId": self.processor_id,
            "host": "host-b",
            "bootId": "boot-b",
            "pid": 7,
            "processStartedMs": 1,
            "slotCount": 1,
            "formatLevel": FORMAT_LEVEL,
            "state": "RUNNING",
            "streamOffset": self.orders.offset_next,
            "held": self.held,
            "figures": figures,
        }


class Fleet:
    """All containers of a job, and its only coordinator.

    Args:
        access: of each container.
        settings: further ones of the job, as for `a_config`.

    Attributes:
        keeps_connections: False: a connection is closed after each heartbeat.
    """

    def __init__(
        self, servers: str, count: int, access: Access | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._contest = Contest(servers, **{**_SETTINGS, **(settings or {})})
        grow_topic(servers, self._contest.input_topic, count)
        self._containers = [_Container(number, access) for number in range(count)]
        self.keeps_connections = True
        self._job = f"{self._contest.job_name}-1"
        self._leader: CandidateProcess | None = None

    def __enter__(self) -> Fleet:
        self._contest.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for container in self._containers:
            container.client.close()
        self._contest.__exit__(*error)

    @property
    def url(self) -> str:
        assert self._leader is not None, "start comes first"
        return self._leader.url

    @property
    def memory_mib(self) -> float:
        """The resident memory of the coordinator."""
        assert self._leader is not None, "start comes first"
        return sum(memory_of({self._leader.pid: "driver"}).values())

    def start(self, core: int) -> None:
        """Lead, register all, and wait until each has its task."""
        leader = self._leader = self._contest.candidate()
        os.sched_setaffinity(leader.pid, {core})
        for thread in os.listdir(f"/proc/{leader.pid}/task"):
            os.sched_setaffinity(int(thread), {core})
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {core} or {core})
        asking = self._containers[0].client
        wait_until(lambda: asking.status(leader.url, self._job, _ANSWER_MS), 60, "the coordinator to lead")
        waiting = list(self._containers)
        with ThreadPoolExecutor(_THREADS) as pool:

            def registered() -> bool:
                answers = pool.map(self._beat, waiting)
                waiting[:] = [container for container, alive in zip(waiting, answers, strict=True) if not alive]
                return not waiting

            wait_until(registered, _REGISTERED_WITHIN_S, "every container to be registered")

            def all_have_a_task() -> bool:
                self._follow()
                alive = list(pool.map(self._beat, self._containers))
                return all(alive) and all(container.held for container in self._containers)

            wait_until(all_have_a_task, _REGISTERED_WITHIN_S, "every container to have a task", poll_interval_s=1.0)

    def measure(self, interval_ms: int, measure_s: float) -> Answers:
        """Send a heartbeat of every container at each interval, for so long."""
        assert self._leader is not None, "start comes first"
        answer_ms: list[float] = []
        late_ms: list[float] = []
        unanswered = 0
        lock = threading.Lock()

        def beat(container: _Container, due_s: float) -> None:
            nonlocal unanswered
            begun_s = time.monotonic()
            alive = self._beat(container)
            took_ms = (time.monotonic() - begun_s) * 1000
            with lock:
                late_ms.append((begun_s - due_s) * 1000)
                answer_ms.append(took_ms)
                unanswered += not alive

        chance, interval_s = random.Random(interval_ms), interval_ms / 1000
        begun_s, cpu_before_s = time.monotonic(), _cpu_s(self._leader.pid)
        moments = sorted((chance.random() * interval_s, number) for number in range(len(self._containers)))
        rounds, begun = int(measure_s / interval_s), list[Future[None]]()
        with ThreadPoolExecutor(_THREADS) as pool:
            for round_number in range(rounds):
                for moment_s, number in moments:
                    due_s = begun_s + round_number * interval_s + moment_s
                    time.sleep(max(0.0, due_s - time.monotonic()))
                    begun.append(pool.submit(beat, self._containers[number], due_s))
            wait(begun, timeout=_ANSWER_MS / 1000)
            # A heartbeat that has not begun by now counts as unanswered: a queue of too many would never end.
            pool.shutdown(cancel_futures=True)
        unanswered += rounds * len(moments) - len(answer_ms)
        took_s, cpu_s = time.monotonic() - begun_s, _cpu_s(self._leader.pid) - cpu_before_s
        return Answers(
            interval_ms=interval_ms,
            answer_ms=answer_ms,
            late_ms=late_ms,
            unanswered=unanswered,
            cpu_share=cpu_s / took_s,
            cpu_ms=1000 * cpu_s / max(1, len(answer_ms)),
            load=load(),
        )

    @contextmanager
    def watched(self, viewers: int) -> Iterator[None]:
        """Viewers of the page meanwhile; each loads its view at every change."""
        assert self._leader is not None, "start comes first"
        target, ended = urlsplit(self._leader.url), threading.Event()

        def get(path: str) -> HTTPConnection:
            connection = HTTPConnection(str(target.hostname), target.port, timeout=_ANSWER_MS / 1000)
            connection.request("GET", path)
            return connection

        def watch(view: str) -> None:
            while not ended.is_set():
                with suppress(OSError, HTTPException), closing(get("/ui/events")) as stream:
                    events = stream.getresponse()
                    while not ended.is_set() and (line := events.readline()):
                        if line.startswith(b"data:"):
                            with closing(get(view)) as page:
                                page.getresponse().read()

        watching = [threading.Thread(target=watch, args=(_VIEWS[n % len(_VIEWS)],)) for n in range(viewers)]
        for thread in watching:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in watching:
                thread.join()

    def _beat(self, container: _Container) -> bool:
        assert self._leader is not None, "start comes first"
        answer = container.client.heartbeat(self._leader.url, container.body(self._job), _ANSWER_MS)
        if not self.keeps_connections:
            container.client.close()
        return answer is not None and answer.alive

    def _follow(self) -> None:
        """Every container reads on."""
        offset_next = self._containers[0].orders.offset_next
        with PartitionReader(self._contest.connection, self._contest.topic) as reader:
            log_records = list(reader.read_to_end(offset_next))
        records = [decode(record, topic=self._contest.topic) for record in log_records]
        for container in self._containers if log_records else ():
            container.follow(records, log_records[-1].offset + 1)


def _cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

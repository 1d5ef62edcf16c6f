"""Standstills of a real container, named by a real coordinator.

Both share a clock and the coordinator stream. Heartbeats pass through their JSON form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from samzapy.adapters.web.heartbeat_sender import heartbeat_body
from samzapy.container.ports import BatchDone, QueryFailed, TopicBounds
from samzapy.coordinator.assignment.heartbeat_json import parse_heartbeat
from samzapy.errors import LostRangeError
from samzapy.inspection.standstill import STILL_MS, Cause, Standstill, standstills
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.task_stats import TaskStats
from samzapy.model.time_figures import SeenClock, TimeFigures
from samzapy.model.topics import changelog_topic
from samzapy.stream.changelog import changelog_key
from samzapy.stream.log import LogRecord
from samzapy.stream.records import FORMAT_LEVEL
from samzapy.testing.builders import a_submission, an_ssp, an_ssp_kb
from samzapy.testing.memory_log import MemoryTopic
from unit_tests.fixtures.coordinator_world import World
from unit_tests.fixtures.running_container import ORDERS_0, AContainer, a_batch, a_report

HEARTBEAT_MS = 5000
ROUND_MS = 1000
ORDERS = an_ssp("kafka.orders.0")


class Stream:
    """The coordinator stream as a container reads it."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.silence_ms = 0
        self._topic = topic
        self._offset_next = 0

    def silent_ms(self) -> int:
        return self.silence_ms

    def poll(self) -> list[LogRecord]:
        records, self._offset_next = self._topic.read_stable(self._offset_next)
        return list(records)

    to_the_end = poll

    def offset_next(self) -> int:
        return self._offset_next


class RunningJob:
    """A job of one container, `e1`, whose tasks read 100 messages of each input."""

    def __init__(self, partitions: int = 1, **properties: str) -> None:
        self.container = AContainer(grants=(), **properties)
        config = self.container.config
        self.world = World(config=config, clock=self.container.clock)
        self.stream = self.container.stream = Stream(self.world.topic)
        self.service = self.world.coordinator()
        self.service.become_leader()
        self.service.submit(
            a_submission(config=config, partition_counts=dict.fromkeys(config.streams_read, partitions))
        )
        self.named: list[Standstill] = []
        self.container.while_pausing = self._round
        self._beats_at_ms = 0
        self._identity = {
            **{"job": config.job, "executionId": "e1", "processorId": "0", "host": "host-a", "bootId": "boot-a"},
            **{"pid": 100, "processStartedMs": 1, "slotCount": 2, "formatLevel": FORMAT_LEVEL},
        }

    def has_input(self, ssp: SystemStreamPartition, end: int = 100) -> None:
        self.container.topics.inputs[ssp] = TopicBounds(offset_first=0, offset_end=end)

    def passes(self, ms: int) -> None:
        """Time in which the container does nothing but send heartbeats."""
        for _ in range(0, ms, ROUND_MS):
            self.container.clock.advance(ROUND_MS)
            self._round()

    def _round(self) -> None:
        now_ms = self.container.clock.monotonic_ms()
        contents = self.container.heartbeats.contents
        if contents and now_ms >= self._beats_at_ms:
            self._beats_at_ms = now_ms + HEARTBEAT_MS
            body = json.dumps(heartbeat_body(self._identity, contents[-1])).encode()
            self.world.queue.append(parse_heartbeat(body, received_ms=now_ms))
        self.service.run_once(0)
        snapshot = self.service.status()
        self.named.extend(standstills(snapshot.state, snapshot.liveness, now_ms).values())

    def causes(self) -> set[Cause]:
        return {still.cause for still in self.named}

    def last(self) -> Standstill:
        return self.named[-1]


def test_a_query_that_fails_again_and_again_is_named_with_the_reason_of_its_last_failure() -> None:
    job = RunningJob()
    job.has_input(ORDERS)

    def fail() -> QueryFailed:
        job.passes(HEARTBEAT_MS)
        return QueryFailed(reason="ValueError at kafka.orders.0, offset 10")

    job.container.run(*[fail] * 4, lambda: job.passes(HEARTBEAT_MS))

    assert Cause.FAILING is job.last().cause
    assert job.last().detail.endswith("has failed 4 times: ValueError at kafka.orders.0, offset 10")
    assert job.last().for_ms is not None
    assert job.last().for_ms >= STILL_MS


def test_a_restore_that_reads_for_long_is_named_with_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    job = RunningJob(partitions=2)
    topic = changelog_topic(job.container.config.job, "sums")
    for partition in (0, 1):
        job.container.kafka.write(topic, partition, [(changelog_key(b"k", b""), b"1")])
    read = job.container.topics.changelog_records

    def slowly(store: str, partition: int, offset_from: int) -> Iterator[LogRecord]:
        job.passes(STILL_MS + HEARTBEAT_MS)
        return read(store, partition, offset_from)

    monkeypatch.setattr(job.container.topics, "changelog_records", slowly)
    job.container.run()

    (detail,) = {still.detail for still in job.named if still.cause is Cause.RESTORING}
    assert detail == "container e1 on host-a has read 1 of 2 changelog records, 20 s left"


def test_a_start_whose_step_lasts_is_named_with_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    job = RunningJob()
    job.has_input(ORDERS)
    read = job.container.topics.checkpoint_records

    def slowly() -> object:
        job.passes(STILL_MS + HEARTBEAT_MS)
        return read()

    monkeypatch.setattr(job.container.topics, "checkpoint_records", slowly)
    job.container.run()

    assert {Cause.STEP} == job.causes() - {Cause.GRANT, Cause.NO_CONTAINER}
    assert job.last().detail == "container e1 on host-a starts its query: reading positions"


def test_inputs_that_wait_for_a_bootstrap_input_are_named() -> None:
    job = RunningJob(
        task_inputs="kafka.orders,kafka.ztable",
        systems_kafka_streams_ztable_samza_bootstrap="true",
        task_partition_scheme="group-by-partition",
    )
    for stream in ("orders", "ztable"):
        job.has_input(an_ssp(f"kafka.{stream}.0"))

    job.container.run(BatchDone(reports=(), offsets_end={}), lambda: job.passes(STILL_MS + 2 * HEARTBEAT_MS))

    assert Cause.BOOTSTRAP is job.last().cause


def test_a_container_that_works_for_long_without_a_commit_is_named() -> None:
    job = RunningJob()
    job.has_input(ORDERS)

    job.container.run(BatchDone(reports=(), offsets_end={}), lambda: job.passes(STILL_MS + 2 * HEARTBEAT_MS))

    assert Cause.NO_COMMIT is job.last().cause
    assert job.last().detail.startswith("container e1 on host-a works without a commit: a long micro-batch")


def test_a_container_that_no_broker_answers_is_named_with_the_brokers() -> None:
    job = RunningJob()
    job.has_input(ORDERS)

    def is_cut_off() -> None:
        for silent_s in range(1, 21):
            job.stream.silence_ms = silent_s * 1000
            job.passes(ROUND_MS)
            job.container.query.steps.append(None)

    job.container.run(is_cut_off, lambda: job.passes(2 * HEARTBEAT_MS))

    assert Cause.BROKER is job.last().cause
    assert job.last().detail == "no broker of localhost:9092 has answered container e1 on host-a since then"


def test_a_watermark_that_a_quiet_input_holds_back_is_named_while_others_go_on() -> None:
    job = RunningJob(
        task_inputs="kafka.orders,kafka.refunds",
        task_partition_scheme="group-by-partition",
        task_event_time_idle_ms="0",
        stores_clocks_kind="clock",
        stores_clocks_msg_serde="json",
    )
    refunds = an_ssp_kb("kafka.refunds.0:0/1")
    clocks = {str(refunds): SeenClock(1000, 0, is_known=True), str(ORDERS_0): SeenClock(9000, 0, is_known=True)}
    time = TimeFigures(at_ms=1, watermark_ms=1000, timers_pending=2, inputs=clocks)

    def batch(number: int) -> BatchDone:
        job.passes(HEARTBEAT_MS)
        report = replace(a_report(offset_next=10 * number), measured=TaskStats(records_in=10, time=time))
        return a_batch(report, orders_0=10 * number)

    job.container.run(*[partial(batch, number) for number in range(1, 7)], lambda: job.passes(HEARTBEAT_MS))

    assert Cause.WATERMARK is job.last().cause
    assert job.last().detail == (
        "kafka.refunds.0:0/1 holds its watermark back (it is 1970-01-01T00:00:01.000+00:00), and 2 timers wait"
    )


def test_a_container_that_ends_over_a_lost_range_is_named_with_the_range() -> None:
    job = RunningJob()
    job.container.topics.inputs[ORDERS] = TopicBounds(offset_first=50, offset_end=100)

    with pytest.raises(LostRangeError):
        job.container.run()
    job.passes(2 * HEARTBEAT_MS)

    assert Cause.LOST_RANGE is job.last().cause
    assert "kafka.orders.0" in job.last().detail

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from samzapy.container.task.work_plan import InputRecord, ReportKind, Rows
from samzapy.errors import FencedError, LostContainerError, ProducerError
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic
from samzapy.testing.memory.process import Crash, CrashAt
from samzapy.testing.memory.tail import MemoryTailBoard
from unit_tests.fixtures.clocked_world import a_job_of
from unit_tests.fixtures.container_worlds import rows, sum_up
from unit_tests.fixtures.tail_worlds import MemoryTailReader, Tasks

_WINDOWED = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Json())
counts = sz.Stream("kafka.counts", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders], outputs=[counts], window_ms=1000)
class Windowed(sz.Task[str, int]):
    def process(self, message, out):
        out.send(counts, message.value, key="x")

    def window(self, tick, out):
        out.send(counts, tick.number, key="tick")
"""
A, B = SspKeyBucket.parse("kafka.orders.0:0/1"), SspKeyBucket.parse("kafka.orders.1:0/1")
EIGHT = [SspKeyBucket.parse(f"kafka.orders.{number}:0/1") for number in range(8)]


def of_a(*messages: tuple[str, Any], first: int = 0) -> tuple[tuple[int], list[Rows]]:
    return (0,), [rows(*messages, first=first, route=0)]


def of_b(*messages: tuple[str, Any], first: int = 0) -> tuple[tuple[int], list[Rows]]:
    return (1,), [rows(*messages, first=first, route=1)]


def outputs(tasks: Tasks) -> list[tuple[str, int]]:
    """Committed outputs, after the next start has ended an open transaction."""
    tasks.kafka.init("samzapy/flights-1/e1/0")
    answers = [json.loads(record.value or b"") for record in tasks.kafka.committed("totals")]
    return [(record["offset"], record["total"]) for record in answers]


def failing_on(value: int) -> Any:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        if envelope.value == value:
            raise ValueError("a bad message")

    return process


def test_tasks_with_rows_share_one_transaction() -> None:
    tasks = Tasks(A, B)

    reports = tasks.run([of_a(("x", 1), ("x", 2)), of_b(("y", 5))])

    assert [(0, 2, 2, 1), (1, 1, 1, 1)] == [
        (report.route, report.offset_next, report.records_in, report.commits) for report in reports
    ]
    assert 1 == tasks.trace.count("begin") == tasks.trace.count("commit") == tasks.trace.count("clean")
    assert [(0, 1), (1, 3), (0, 5)] == outputs(tasks)
    assert [2, 1] == tasks.offsets()


def test_each_local_store_is_committed_after_kafka_and_before_the_slot_is_clean() -> None:
    tasks = Tasks(A, B)

    tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert ["commit", "local commit", "local commit", "clean"] == tasks.trace.since("commit")


def test_nothing_of_any_task_is_committed_if_one_fails() -> None:
    tasks = Tasks(A, B, process=failing_on(5))

    reports = tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert [ReportKind.TASK_FAILED] == [report.kind for report in reports]
    assert "a bad message" in reports[0].error
    assert [] == outputs(tasks) and [0, 0] == tasks.offsets()
    assert "abort" in tasks.trace and "clean" == tasks.slot.state


def test_a_task_after_the_one_that_fails_does_no_work() -> None:
    handled: list[int] = []

    def process(envelope: Any, collector: Any, context: Any) -> None:
        handled.append(envelope.value)
        raise ValueError("a bad message")

    Tasks(A, B, process=process).run([of_a(("x", 1)), of_b(("y", 5))])

    assert [1] == handled


def test_a_full_transaction_is_committed_with_the_parts_that_wait() -> None:
    tasks = Tasks(A, B, bytes_max=1)

    reports = tasks.run([of_a(("x", 1)), of_b(("y", 5), ("y", 6))])

    assert [(0, 1, 1), (1, 2, 2)] == [(report.route, report.offset_next, report.commits) for report in reports]
    assert [1, 2] == tasks.offsets() and 3 == tasks.trace.count("commit")
    assert sorted([(0, 1), (0, 5), (1, 11)]) == sorted(outputs(tasks))


def spans_of(tasks: Tasks) -> list[float]:
    """For how many seconds each Kafka transaction from now on is open at its commit."""
    producer, spans_s = tasks.slot.producer(), list[float]()
    begin, commit = producer.begin, producer.commit

    def note_begin() -> None:
        spans_s.append(-tasks.now_s)
        begin()

    def note_commit() -> None:
        spans_s[-1] += tasks.now_s
        commit()

    producer.begin, producer.commit = note_begin, note_commit  # type: ignore[method-assign]
    return spans_s


def test_the_bound_of_a_transaction_s_time_holds_for_all_its_tasks_together() -> None:
    tasks = Tasks(*EIGHT)
    spans_s = spans_of(tasks)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        sum_up(envelope, collector, context)
        tasks.now_s += 1

    tasks.process = process
    bunch = [InputRecord("orders", n, at, b"x", b"1", 1000, ()) for at in range(4) for n in range(8)]
    tasks.tail(MemoryTailReader(bunch), MemoryTailBoard()).run()

    assert [4] * 8 == tasks.offsets() and 32 == sum(spans_s)
    assert 5 == max(spans_s)


def test_a_task_does_not_begin_in_a_transaction_that_the_one_before_has_filled() -> None:
    tasks = Tasks(A, B)
    spans_s = spans_of(tasks)

    def process(envelope: Any, collector: Any, context: Any) -> None:
        tasks.now_s += 7

    tasks.process = process
    tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert [7, 7] == spans_s


@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("takes_s", [3, 6])
def test_windows_of_many_tasks_that_are_due_together_share_no_transaction_that_is_full(
    tmp_path: Path, with_rows: bool, takes_s: int
) -> None:
    tasks = Tasks(*EIGHT, job=a_job_of(tmp_path / "job.py", _WINDOWED))
    tasks.run([((n,), ()) for n in range(8)])
    spans_s, producer = spans_of(tasks), tasks.slot.producer()
    produce = producer.produce

    def slow_produce(topic: str, *record: Any) -> None:
        tasks.now_s += takes_s if topic == "counts" else 0
        produce(topic, *record)

    producer.produce = slow_produce  # type: ignore[method-assign, assignment]
    tasks.wall_ms += 2_000
    tasks.run([((n,), [rows(("x", 1), route=n)] if with_rows else ()) for n in range(8)])

    count = 8 * (1 + with_rows)
    assert count == len(tasks.kafka.committed("counts"))
    assert (6, takes_s * count) == (max(spans_s), sum(spans_s))


def test_a_failure_after_a_full_transaction_leaves_that_one_committed() -> None:
    tasks = Tasks(A, B, process=failing_on(6), bytes_max=1)

    reports = tasks.run([of_a(("x", 1)), of_b(("y", 5), ("y", 6))])

    assert {(0, ReportKind.COMMITTED), (1, ReportKind.TASK_FAILED)} == {
        (report.route, report.kind) for report in reports
    }
    assert [1, 1] == tasks.offsets()


def test_all_local_stores_stay_behind_if_kafka_refuses_the_commit() -> None:
    tasks = Tasks(A, B)
    tasks.slot.producer().commit_fails = "unknown-aborted"

    with pytest.raises(ProducerError):
        tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert [0, 0] == tasks.offsets() and "open" == tasks.slot.state


def test_a_lease_that_ran_out_before_the_commit_stops_every_part() -> None:
    tasks = Tasks(A, B)
    tasks.slot.lease_checks = 1

    with pytest.raises(LostContainerError):
        tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert [0, 0] == tasks.offsets() and [] == outputs(tasks)


def test_a_fenced_producer_stops_every_part() -> None:
    tasks = Tasks(A, B)
    tasks.slot.producer()
    tasks.kafka.init(tasks.slot.producer().transactional_id)

    with pytest.raises(FencedError):
        tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert [0, 0] == tasks.offsets()


@pytest.mark.parametrize("point", ["before-begin", "after-produce", "before-commit"])
def test_a_process_that_dies_before_kafka_s_commit_has_committed_nothing(point: str) -> None:
    tasks = Tasks(A, B, crash_points=CrashAt(point))

    with pytest.raises(Crash):
        tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    assert [] == outputs(tasks) and [0, 0] == tasks.offsets()


def test_a_process_that_dies_after_kafka_s_commit_leaves_the_local_stores_behind() -> None:
    tasks = Tasks(A, B, crash_points=CrashAt("after-kafka-commit"))

    with pytest.raises(Crash):
        tasks.run([of_a(("x", 1)), of_b(("y", 5))])

    # A checkpoint of each task gives the position up to which its store has to catch up.
    assert [(0, 1), (0, 5)] == outputs(tasks) and [0, 0] == tasks.offsets()
    assert 2 == len(tasks.kafka.committed(checkpoint_topic("flights-1")))
    assert "open" == tasks.slot.state

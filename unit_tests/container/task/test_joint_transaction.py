from __future__ import annotations

import json
from typing import Any

import pytest

from samzapy.container.task.work_plan import ReportKind, Rows
from samzapy.errors import FencedError, LostContainerError, ProducerError
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import checkpoint_topic
from samzapy.testing.memory.process import Crash, CrashAt
from unit_tests.fixtures.container_worlds import rows, sum_up
from unit_tests.fixtures.tail_worlds import Tasks

A, B = SspKeyBucket.parse("kafka.orders.0:0/1"), SspKeyBucket.parse("kafka.orders.1:0/1")


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

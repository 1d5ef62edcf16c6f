from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from samzapy.container.task.commit_trace import COMMIT, CommitTraces
from samzapy.errors import ProducerError
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.tracing import NO_TRACER
from unit_tests.fixtures.container_worlds import rows
from unit_tests.fixtures.tail_worlds import Tasks
from unit_tests.fixtures.traces import Traces, attribute

A, B = SspKeyBucket.parse("kafka.orders.0:0/1"), SspKeyBucket.parse("kafka.orders.1:0/1")


def work_of_two_tasks() -> list[tuple[tuple[int], list[object]]]:
    return [((0,), [rows(("x", 1), ("x", 2), route=0)]), ((1,), [rows(("y", 5), route=1)])]


def commit(tasks: Tasks, traces: Traces, *, is_tail: bool = True) -> list[ReadableSpan]:
    of_commits = CommitTraces.of(traces.tracer, tasks.plan, is_tail=is_tail)
    tasks.run(work_of_two_tasks(), traces=of_commits)  # type: ignore[arg-type]
    return traces.spans(COMMIT)


def test_a_commit_of_several_tasks_is_one_span_with_their_counts() -> None:
    tasks, traces = Tasks(A, B), Traces()

    (span,) = commit(tasks, traces)

    expected = {
        "samzapy.job": "flights-1",
        "samzapy.execution": "e1",
        "samzapy.commit.of": "tail",
        "samzapy.task.count": 2,
        "samzapy.offset.count": 2,
        "messaging.system": "kafka",
        "messaging.batch.message_count": 3,
        "samzapy.records.out": 3,
        "samzapy.dead.letters": 0,
    }
    assert expected == {name: attribute(span, name) for name in expected}
    assert ["flushed", "committed", "stored"] == [event.name for event in span.events]


def test_each_transaction_has_its_own_span() -> None:
    tasks, traces = Tasks(A, B, bytes_max=1), Traces()

    spans = commit(tasks, traces, is_tail=False)

    assert [1, 1, 1] == [attribute(span, "messaging.batch.message_count") for span in spans]
    assert {"micro-batch"} == {attribute(span, "samzapy.commit.of") for span in spans}


def test_a_commit_that_kafka_refuses_is_an_error_that_shows_how_far_it_came() -> None:
    tasks, traces = Tasks(A, B), Traces()
    tasks.slot.producer().commit_fails = "unknown-aborted"

    with pytest.raises(ProducerError):
        commit(tasks, traces)

    (span,) = traces.spans(COMMIT)
    assert (StatusCode.ERROR, None) == (span.status.status_code, span.status.description)
    assert "ProducerError" == attribute(span, "error.type")
    assert ["flushed"] == [event.name for event in span.events]


def test_no_key_and_no_value_of_a_message_is_in_a_span() -> None:
    tasks, traces = Tasks(A, B), Traces()
    secret = [((0,), [rows(("a-hidden-key", 815_4711), route=0)])]

    tasks.run(secret, traces=CommitTraces.of(traces.tracer, tasks.plan, is_tail=True))  # type: ignore[arg-type]

    (span,) = traces.spans(COMMIT)
    assert "hidden" not in span.to_json() and "8154711" not in span.to_json()


def test_without_a_tracer_a_commit_computes_nothing_for_traces() -> None:
    traces = CommitTraces.of(NO_TRACER, Tasks(A, B).plan, is_tail=True)

    # Would fail if it were looked at.
    span = traces.begin([(None, 0.0)])  # type: ignore[list-item]

    span.note("flushed")
    span.end()

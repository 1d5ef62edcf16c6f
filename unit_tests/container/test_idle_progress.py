"""Progress of buckets that commit nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from samzapy.container.ports import QueryFailed
from samzapy.errors import (
    BrokerUnavailableError,
    LostContainerError,
    ProducerError,
)
from samzapy.model.container import ContainerPhase
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    ContainerPut,
    GrantPut,
)
from samzapy.testing.builders import a_container
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.running_container import (
    ORDERS_0,
    ORDERS_1,
    AContainer,
    a_batch,
    a_report,
    a_task,
)


def test_progress_is_written_for_a_bucket_that_committed_nothing_and_for_no_other() -> None:
    container = AContainer(grants=(a_task("a", epoch=3), a_task("b", epoch=4)))

    container.run(a_batch(a_report(0, offset_next=40), orders_0=40, orders_1=50), *[None] * 20)

    assert [(ORDERS_1, 50, 4, "e1")] == [
        (progress.ssp_kb, progress.offset_next, progress.epoch, progress.execution_id)
        for progress in container.progress.written
    ]


def test_progress_is_written_for_a_bucket_whose_last_message_was_not_the_batch_s_last() -> None:
    """Later messages are of other buckets.

    Without this rule the task would never come to the end of a quiet partition.
    """
    container = AContainer(grants=(a_task("a", epoch=3), a_task("b", epoch=4)))

    container.run(
        a_batch(a_report(0, offset_next=38), a_report(1, offset_next=50), orders_0=40, orders_1=50), *[None] * 20
    )

    assert [(ORDERS_0, 40)] == [(progress.ssp_kb, progress.offset_next) for progress in container.progress.written]


def test_progress_that_did_not_move_is_not_written_again() -> None:
    container = AContainer()

    container.run(a_batch(orders_0=40), *[None] * 20, a_batch(orders_0=40), *[None] * 20)

    assert [40] == [progress.offset_next for progress in container.progress.written]


def test_a_bucket_that_commits_before_its_progress_is_written_has_no_progress() -> None:
    container = AContainer()

    container.run(
        a_batch(orders_0=40, orders_1=40),
        # Written at once; from here on nothing is for three seconds.
        a_batch(orders_0=50, orders_1=50),
        a_batch(a_report(0, offset_next=60), orders_0=60, orders_1=50),
        *[None] * 20,
    )

    assert [(ORDERS_0, 40), (ORDERS_1, 40), (ORDERS_1, 50)] == [
        (progress.ssp_kb, progress.offset_next) for progress in container.progress.written
    ]


def test_progress_is_written_every_few_seconds_at_most() -> None:
    container = AContainer(grants=(a_task("a"),))
    steps: list[Any] = []
    for end in range(1, 51):
        steps += [a_batch(orders_0=end), None]
    begun_at_ms = container.clock.monotonic_ms()

    container.run(*steps)

    took_ms = container.clock.monotonic_ms() - begun_at_ms
    # And once more at the end.
    assert 2 <= len(container.progress.written) <= took_ms // 3000 + 2


def test_a_container_that_stops_writes_its_progress_at_once() -> None:
    container = AContainer(grants=(a_task("a"),))

    container.run(a_batch(orders_0=40), a_batch(orders_0=50))

    assert 50 == container.progress.written[-1].offset_next


def test_progress_of_a_query_that_failed_is_not_written_afterwards() -> None:
    container = AContainer(grants=(a_task("a"),))

    container.run(a_batch(orders_0=40), a_batch(orders_0=50), QueryFailed(reason="died"), *[None] * 30)

    assert [40] == [progress.offset_next for progress in container.progress.written]


def test_progress_under_an_earlier_grant_is_never_written_under_a_new_one() -> None:
    """A rewind gives the same bucket again, with an earlier start.

    With 50 under that epoch, 10 to 49 would be lost.
    """
    container = AContainer(grants=(a_task("a"),))
    container.stream.records.insert(0, ContainerPut(container=a_container("e1", processor_id="0")))
    bounds = container.topics.input_bounds
    fence_fails = [BrokerUnavailableError("no broker answered")]

    class Broker:
        def fence(self, ids: Any) -> None:
            if fence_fails:
                raise fence_fails.pop()

    def rewind() -> None:
        container.slots.open_slots = {1}
        container.fence.fence = Broker().fence  # type: ignore[method-assign]
        container.stream.records.extend([*plan_in_force(2, a="0"), GrantPut(grant=a_task("a", epoch=5))])
        container.topics.input_bounds = fail_and_stop  # type: ignore[method-assign]

    def fail_and_stop(*_: Any, **__: Any) -> Any:
        if not fence_fails and [5] == [epoch for _, epoch in container.heartbeats.contents[-1].held]:
            container.stop.asked = True
            raise BrokerUnavailableError("no broker answered")
        return bounds(*_, **__)

    # The report of the first batch was written at once; the second one's would be written after three seconds.
    container.run(a_batch(orders_0=40), None, a_batch(orders_0=50), rewind)

    assert [] == fence_fails, "the release was to fail once"
    assert container.stop.asked
    assert [(40, 1)] == [(progress.offset_next, progress.epoch) for progress in container.progress.written]


def test_progress_that_could_not_be_written_is_a_saving_lost_and_is_tried_again() -> None:
    container = AContainer(grants=(a_task("a"),))
    container.progress.fails = [ProducerError("broken")]

    container.run(a_batch(orders_0=40), *[None] * 40)

    assert [40] == [progress.offset_next for progress in container.progress.written]
    assert 1 == len(container.query.started)


def test_after_the_id_is_acquired_the_stream_is_read_before_progress_is_written() -> None:
    container = AContainer(grants=(a_task("a"),))
    own = container.progress.acquire

    def acquire_and_be_lost() -> None:
        own()
        container.stream.records.append(ContainerPut(container=a_container("e1", phase=ContainerPhase.LOST)))

    container.progress.acquire = acquire_and_be_lost  # type: ignore[method-assign]

    with pytest.raises(LostContainerError):
        container.run(a_batch(orders_0=40), *[None] * 20)

    assert [] == container.progress.written
    assert "to the end" == container.trace.since("own progress")[1]


def test_an_id_that_was_acquired_without_an_answer_is_acquired_again() -> None:
    container = AContainer(grants=(a_task("a"),))
    to_the_end, own = container.stream.to_the_end, container.progress.acquire
    fails = [BrokerUnavailableError("nobody answers")]

    def acquire_and_get_no_answer() -> None:
        own()
        container.stream.to_the_end = unanswered  # type: ignore[method-assign]

    def unanswered() -> Sequence[LogRecord]:
        if fails:
            raise fails.pop()
        return to_the_end()

    container.progress.acquire = acquire_and_get_no_answer  # type: ignore[method-assign]

    container.run(a_batch(orders_0=40), *[None] * 40)

    assert [40] == [progress.offset_next for progress in container.progress.written]
    assert 2 == list(container.trace).count("own progress")

"""Failures of a query: how often it starts again, and which end the container."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, islice, pairwise
from typing import Any

import pytest

from samzapy.container.ports import BatchDone, QueryFailed, TopicBounds
from samzapy.errors import (
    BrokerUnavailableError,
    ConfigError,
    DataError,
    ExitCode,
    LostRangeError,
    SamzapyError,
    SlowMessageError,
    TaskError,
    UndeliveredError,
)
from samzapy.model.job import ProcessorId
from samzapy.stream.records import (
    ContainerPut,
    GrantPut,
    RestartPut,
)
from samzapy.testing.builders import a_container, an_ssp
from unit_tests.fixtures.container_worlds import plan_in_force
from unit_tests.fixtures.running_container import (
    ORDERS_0,
    ORDERS_1,
    AContainer,
    a_batch,
    a_report,
    a_task,
    at_pauses,
)


def test_a_failed_query_starts_again_from_the_committed_positions() -> None:
    container = AContainer()

    def fail() -> QueryFailed:
        container.commit(7)
        container.slots.open_slots = {1}
        return QueryFailed(reason="a worker died")

    container.run(fail)

    assert [(1, 0), (2, 7)] == [(plan.query_number, starts[ORDERS_0]) for plan, starts in container.query.started]
    assert ["stop query", "take slots", "block 2", "fence samzapy/flights-1/e1/1"] == container.trace.since(
        "stop query"
    )[:4]


def failing_for_ever(container: AContainer, failure: QueryFailed) -> Iterator[Callable[[], QueryFailed]]:
    """A query that fails five seconds after each start."""

    def fail() -> QueryFailed:
        container.clock.advance(5000)
        return failure

    while True:
        yield fail


def test_a_query_that_fails_is_started_again_for_the_time_that_is_set_and_then_ends_the_container() -> None:
    container = AContainer(task_query_retry_ms="60000")
    begun_ms = container.clock.monotonic_ms()

    with pytest.raises(
        SamzapyError, match=r"task.query.retry.ms \(60000\) .* last failure: no memory. Unread are"
    ) as e:
        container.run(*islice(failing_for_ever(container, QueryFailed(reason="no memory")), 100))

    assert ExitCode.FAILED == e.value.exit_code
    assert 60_000 <= container.clock.monotonic_ms() - begun_ms < 120_000
    assert 3 < len(container.query.started) < 12


def test_three_starts_are_made_however_long_they_take() -> None:
    container = AContainer(task_query_retry_ms="0")

    with pytest.raises(SamzapyError, match="in 3 starts over .* last failure: third"):
        container.run(QueryFailed(reason="first"), QueryFailed(reason="second"), QueryFailed(reason="third"))

    assert 3 == len(container.query.started)
    assert [
        *("stop query", "kill holders", "take slots", "block 5"),
        *("close tasks within 1000 ms", "send heartbeat"),
    ] == container.trace[-6:]


@pytest.mark.parametrize(
    ("kind", "raised"),
    [(SlowMessageError, TaskError), (ConfigError, ConfigError), (LostRangeError, DataError)],
)
def test_a_failure_that_is_sure_to_come_again_ends_the_container_after_three_starts(
    kind: type[SamzapyError], raised: type[SamzapyError]
) -> None:
    container = AContainer()
    failed = QueryFailed(reason="task a failed at kafka.orders.0 offset 7", kind=kind)

    with pytest.raises(
        raised, match="3 starts .* found none; last failure: task a failed at kafka.orders.0 offset 7"
    ):
        container.run(failed, failed, failed)

    assert 3 == len(container.query.started)


def test_a_worker_that_is_killed_from_outside_uses_less_of_the_time_than_an_error() -> None:
    killed, failed = AContainer(task_query_retry_ms="60000"), AContainer(task_query_retry_ms="60000")
    failure = QueryFailed(reason="SparkException: Python worker exited unexpectedly (crashed)")
    began_ms = killed.clock.monotonic_ms()

    for container, reason in ((killed, failure), (failed, QueryFailed(reason="an error"))):
        with pytest.raises(SamzapyError):
            container.run(*islice(failing_for_ever(container, reason), 100))

    assert killed.clock.monotonic_ms() - began_ms > 2 * (failed.clock.monotonic_ms() - began_ms)


def test_failed_starts_wait_longer_each_time() -> None:
    container = AContainer()
    starts_ms: list[int] = []

    def fail() -> QueryFailed:
        starts_ms.append(container.clock.monotonic_ms())
        return QueryFailed(reason="again")

    container.run(*[fail] * 9)

    pauses_ms = [(later - earlier) // 100 * 100 for earlier, later in pairwise(starts_ms)]
    # Grants settle for 0.3 s before a start.
    assert [500, 1300, 3300, 6300, 12_300, 24_300, 30_300, 30_300] == pauses_ms


def test_heartbeats_report_a_query_that_fails_until_it_commits() -> None:
    container = AContainer()
    failed = QueryFailed(reason="no memory")

    def committed() -> BatchDone:
        reported = container.heartbeats.contents[-1].failing
        assert reported is not None
        assert (2, "no memory") == (reported.attempts, reported.reason)
        assert 0 < reported.for_ms < 10_000
        assert 590_000 < reported.left_ms < 600_000
        return a_batch(a_report(), orders_0=1)

    container.run(failed, failed, committed, *[None] * 10)

    failing = [content.failing for content in container.heartbeats.contents]
    assert None is failing[-1]
    assert [1, 2] == sorted({content.attempts for content in failing if content is not None})


def test_heartbeats_report_the_step_of_a_start_and_none_while_the_query_runs_or_the_start_waits() -> None:
    container = AContainer()
    container.topics.fails.append(BrokerUnavailableError("no broker answers"))

    container.run(*[None] * 3)

    steps = [content.step for content in container.heartbeats.contents]
    assert [step for step, _ in groupby(steps)][1:] == [
        "shutting earlier workers out",
        "reading positions",
        "",
        "shutting earlier workers out",
        "reading positions",
        "bringing local state level",
        "starting the query",
        "",
    ]


def test_a_commit_resets_the_count_of_failed_starts() -> None:
    container = AContainer(task_query_retry_ms="0")
    failed = QueryFailed(reason="again")

    container.run(failed, failed, a_batch(a_report(), orders_0=1), failed, failed)

    assert 5 == len(container.query.started)


@pytest.mark.parametrize(
    "news",
    [
        [GrantPut(grant=a_task("a", epoch=2))],
        [*plan_in_force(2, a="0", b="0")],
        [RestartPut(processor_id=ProcessorId("0"), number=1, uuid="")],
    ],
    ids=["grant", "plan", "restart"],
)
def test_a_grant_a_plan_and_a_restart_order_reset_the_count_and_end_the_pause(news: list[Any]) -> None:
    container = AContainer(task_query_retry_ms="0")
    container.stream.records += [ContainerPut(container=a_container("e1")), *plan_in_force(1, a="0", b="0")]
    failed = QueryFailed(reason="again")

    def fail_with_news() -> QueryFailed:
        begun = len(container.pauses_ms)
        at_pauses(container, **{f"p{begun + 1}": lambda: container.stream.records.extend(news)})
        return failed

    container.run(failed, fail_with_news, failed, failed)

    assert 5 == len(container.query.started)


def test_a_batch_that_committed_nothing_resets_nothing() -> None:
    container = AContainer(task_query_retry_ms="0")
    failed = QueryFailed(reason="again")

    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(failed, failed, a_batch(a_report(commits=0)), failed)


def test_failures_of_a_quiet_job_that_are_hours_apart_do_not_add_up() -> None:
    container = AContainer()
    for ssp in ("kafka.orders.0", "kafka.orders.1"):
        container.topics.inputs[an_ssp(ssp)] = TopicBounds(offset_first=0, offset_end=0)
    failed = QueryFailed(reason="again")

    def after_an_hour() -> QueryFailed:
        container.clock.advance(3_600_000)
        return failed

    container.run(*[after_an_hour] * 5)
    assert 6 == len(container.query.started)

    container = AContainer(task_query_retry_ms="0")
    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(after_an_hour, failed, failed)
    # The one after the hour was the first.
    assert 3 == len(container.query.started)


def test_brokers_that_are_away_are_waited_for_and_end_no_container() -> None:
    container = AContainer()

    container.run(*[QueryFailed(reason="nobody takes the outputs", kind=UndeliveredError)] * 9)

    assert 10 == len(container.query.started)
    assert 9 * 3000 == sum(pause for pause in container.pauses_ms if pause > 50)


def test_a_commit_of_a_batch_that_fails_later_counts() -> None:
    container = AContainer()

    def fail_after_a_commit() -> QueryFailed:
        container.commit(len(container.query.started))
        return QueryFailed(reason="a worker died in the middle of a long batch")

    container.run(*[fail_after_a_commit] * 7)

    assert 8 == len(container.query.started)


def slow_at(offset: int, *, task: str = "a", took_ms: int = 61_000, key: bytes = b"k") -> QueryFailed:
    ssp = {"a": ORDERS_0, "b": ORDERS_1}[task].ssp
    return QueryFailed(
        reason=f"samzapy.errors.SlowMessageError: task {task} failed at {ssp} offset {offset}, key {key!r}: wanted it "
        f"handled within task.transaction.timeout.ms (20000), found it to take {took_ms} ms",
        kind=SlowMessageError,
    )


def test_a_message_that_always_fails_ends_the_container_although_another_task_commits_in_between() -> None:
    container = AContainer()

    def fail_after_a_commit_of_the_other_task() -> QueryFailed:
        begun = len(container.query.started)
        container.commit(begun, task="b")
        return slow_at(7, took_ms=61_000 + begun)

    def batch_of_the_other_task() -> BatchDone:
        return a_batch(a_report(1, offset_next=len(container.query.started)), orders_1=len(container.query.started))

    with pytest.raises(TaskError, match="commit of the message within 3 starts .* kafka.orders.0 offset 7") as ended:
        container.run(*[batch_of_the_other_task, fail_after_a_commit_of_the_other_task] * 9)

    assert ExitCode.TASK_FAILED == ended.value.exit_code
    assert [1, 2] == [starts[ORDERS_1] for _, starts in container.query.started[1:]]
    assert 3 == len(container.query.started)


def test_a_message_that_always_fails_is_counted_also_between_failures_at_other_messages() -> None:
    container = AContainer()

    def fail_behind_a_commit(offset: int) -> Callable[[], QueryFailed]:
        def fail() -> QueryFailed:
            container.commit(offset, task="b")
            return slow_at(offset, task="b")

        return fail

    with pytest.raises(TaskError, match="kafka.orders.0 offset 7"):
        container.run(slow_at(7), fail_behind_a_commit(1), slow_at(7), fail_behind_a_commit(2), slow_at(7))

    assert 5 == len(container.query.started)


@pytest.mark.parametrize("key", [b"712", b"orders"])
def test_a_message_is_counted_also_where_the_key_is_a_part_of_the_topic_or_the_offset(key: bytes) -> None:
    container = AContainer()

    def fail_after_a_commit_of_the_other_task() -> QueryFailed:
        container.commit(len(container.query.started), task="b")
        return slow_at(71234, key=key)

    with pytest.raises(TaskError, match="commit of the message within 3 starts .* kafka.orders.0 offset 71234"):
        container.run(*[fail_after_a_commit_of_the_other_task] * 5)


def test_messages_that_fail_twice_and_are_committed_then_end_no_container() -> None:
    container = AContainer()

    def fail_at(offset: int) -> Callable[[], QueryFailed]:
        def fail() -> QueryFailed:
            container.commit(offset)
            container.commit(len(container.query.started), task="b")
            return slow_at(offset)

        return fail

    container.run(*[fail_at(offset) for offset in (7, 7, 8, 8, 9, 9)])

    assert 7 == len(container.query.started)


def test_heartbeats_report_a_message_that_fails_until_it_is_committed_itself() -> None:
    container = AContainer()
    failing: list[int | None] = []

    def note(event: BatchDone | None) -> Callable[[], BatchDone | None]:
        def step() -> BatchDone | None:
            reported = container.heartbeats.contents[-1].failing
            failing.append(None if reported is None else reported.attempts)
            return event

        return step

    of_the_other_task = note(a_batch(a_report(1), orders_1=1))
    container.run(
        slow_at(7),
        of_the_other_task,
        *[None] * 20,
        slow_at(7),
        of_the_other_task,
        *[None] * 20,
        note(a_batch(a_report(0, offset_next=8), orders_0=8)),
        *[None] * 20,
        note(None),
    )

    assert [1, 2, 2, None] == failing

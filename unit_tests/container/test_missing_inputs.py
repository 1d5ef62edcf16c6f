"""Inputs whose topics are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from samzapy.container.ports import QueryFailed, TopicBounds
from samzapy.errors import (
    BrokerUnavailableError,
    MissingTopicError,
    SamzapyError,
)
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.ssp import SystemStream, SystemStreamPartition
from samzapy.stream.records import (
    InputPut,
)
from samzapy.testing.builders import a_grant, an_ssp_kb
from unit_tests.fixtures.running_container import (
    ORDERS_0,
    AContainer,
    a_task,
)

REFUNDS_0 = an_ssp_kb("kafka.refunds.0:0/1")


def of_a_pattern(
    *, grants: tuple[Grant, ...] | None = None, inputs: str = "kafka.orders,kafka.~ref.*", **properties: str
) -> AContainer:
    """A container of task a (input orders.0) and task c (refunds.0, by a pattern)."""
    refunds = a_grant("c", ssp_kb=str(REFUNDS_0), offset_next=3)
    container = AContainer(
        grants=(a_task("a"), refunds) if grants is None else grants, task_inputs=inputs, **properties
    )
    for name in ("orders", "refunds"):
        container.stream.records.append(
            InputPut(
                system_stream=SystemStream("kafka", name),
                partition_count=1,
                partition_count_first=1,
                topic_id=f"id-of-kafka.{name}",
            )
        )
    return container


def read_by(container: AContainer) -> list[set[str]]:
    """The partitions of each query."""
    for plan, starts in container.query.started:
        assert {route.ssp_kb for route in plan.routes} == set(starts)
    return [{str(ssp_kb.ssp) for ssp_kb in starts} for _, starts in container.query.started]


BOTH, ONE = {"kafka.orders.0", "kafka.refunds.0"}, {"kafka.orders.0"}


def test_a_deleted_input_of_a_pattern_is_left_out_and_held_tasks_stay() -> None:
    container = of_a_pattern()

    container.run(None, lambda: container.topics.absent.add("kafka.refunds"), *[None] * 10, lambda: None)

    assert [BOTH, ONE] == read_by(container)
    assert "drain" in container.trace
    assert {"a", "c"} == {task for task, _ in container.heartbeats.contents[-2].held}
    assert not {str(bucket) for bucket in container.heartbeats.contents[-2].figures["positions"]} & {str(REFUNDS_0)}


def test_a_deleted_bootstrap_input_of_a_pattern_is_no_longer_waited_for() -> None:
    starts = tuple(BucketStart(ssp_kb=ssp_kb, offset_next=3) for ssp_kb in (ORDERS_0, REFUNDS_0))
    container = of_a_pattern(
        grants=(replace(a_task("a"), starts=starts),),
        **{"systems_kafka_streams_~ref.*_samza_bootstrap": "true"},
    )

    container.run(None, lambda: container.topics.absent.add("kafka.refunds"), *[None] * 10, lambda: None)

    assert [{"kafka.refunds.0"}, ONE] == read_by(container)


def test_an_input_of_a_pattern_that_is_gone_at_the_start_is_left_out() -> None:
    container = of_a_pattern()
    container.topics.absent.add("kafka.refunds")

    container.run(*[None] * 10)

    assert [ONE] == read_by(container)


def test_an_input_that_is_there_again_is_read_on_from_where_it_was() -> None:
    container = of_a_pattern()
    container.topics.absent.add("kafka.refunds")

    container.run(None, lambda: container.topics.absent.clear(), *[None] * 10)

    assert [ONE, BOTH] == read_by(container)
    assert 3 == container.query.started[-1][1][REFUNDS_0]


def test_another_topic_under_the_name_of_an_input_of_a_pattern_is_not_read() -> None:
    container = of_a_pattern()

    container.run(None, lambda: container.kafka.topic_ids.update({"kafka.refunds": "another"}), *[None] * 10)

    assert [BOTH, ONE] == read_by(container)


@pytest.mark.parametrize("runs", [False, True])
def test_an_input_of_a_pattern_that_is_deleted_between_two_questions_is_left_out(runs: bool) -> None:
    container = of_a_pattern()
    bounds = container.topics.input_bounds
    removed_at = 3 if runs else 1
    reads = []

    def remove_topic(
        ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        reads.append(ssps)
        if len(reads) == removed_at:
            container.topics.absent.add("kafka.refunds")
        return bounds(ssps, wait_ms)

    container.topics.input_bounds = remove_topic  # type: ignore[method-assign]

    container.run(*[None] * 40)

    assert ([BOTH, ONE] if runs else [ONE]) == read_by(container)


def test_a_named_input_that_is_deleted_ends_the_container() -> None:
    container = of_a_pattern(inputs="kafka.orders,kafka.refunds,kafka.~ref.*")

    with pytest.raises(MissingTopicError, match=r"kafka\.refunds\.0"):
        container.run(None, lambda: container.topics.absent.add("kafka.refunds"), *[None] * 200)


@pytest.mark.parametrize("at_the_start", [True, False])
def test_an_input_that_brokers_do_not_know_for_a_moment_ends_nothing(at_the_start: bool) -> None:
    """As brokers that have just started, and are asked before they know all topics."""
    container = of_a_pattern(inputs="kafka.orders,kafka.refunds,kafka.~ref.*")
    bounds, reads = container.topics.input_bounds, []

    def bounds_without_topic(
        ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        reads.append(ssps)
        if (1 if at_the_start else 3) <= len(reads) < 6:
            raise MissingTopicError("no such topic")
        return bounds(ssps, wait_ms)

    container.topics.input_bounds = bounds_without_topic  # type: ignore[method-assign]

    container.run(*[None] * 60)

    assert len(reads) > 6
    assert [BOTH] == read_by(container)


def test_brokers_that_were_away_in_between_are_given_the_whole_time_again() -> None:
    container = of_a_pattern(inputs="kafka.orders,kafka.refunds,kafka.~ref.*")
    bounds, reads = container.topics.input_bounds, []

    def comes_up_slowly(
        ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        reads.append(ssps)
        match len(reads):
            case 1 | 3:
                raise MissingTopicError("no such topic")
            case 2:
                container.clock.advance(60_000)
                raise BrokerUnavailableError("nobody there")
        return bounds(ssps, wait_ms)

    container.topics.input_bounds = comes_up_slowly  # type: ignore[method-assign]

    container.run(*[None] * 20)

    assert [BOTH] == read_by(container)


def test_queries_that_failed_because_an_input_went_do_not_count_as_starts_that_led_to_nothing() -> None:
    container = of_a_pattern()
    failed = QueryFailed(reason="no such partition")

    def remove_topic() -> QueryFailed:
        container.topics.absent.add("kafka.refunds")
        return failed

    container.run(failed, failed, remove_topic, failed, failed, *[None] * 3)

    assert [BOTH] * 3 + [ONE] * 3 == read_by(container)


def test_queries_that_fail_all_the_same_without_it_end_the_container() -> None:
    container = of_a_pattern(task_query_retry_ms="0")
    container.topics.absent.add("kafka.refunds")

    with pytest.raises(SamzapyError, match="in 3 starts"):
        container.run(*[QueryFailed(reason="again")] * 4)


def test_a_container_without_inputs_waits_and_releases_its_tasks_when_they_are_revoked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    container = of_a_pattern(grants=(a_grant("c", ssp_kb=str(REFUNDS_0)),))
    container.topics.absent.add("kafka.refunds")

    def later() -> None:
        if len(container.pauses_ms) == 200:
            container.topics.absent.clear()

    container.while_pausing = later
    container.run(*[None] * 3)

    assert [{"kafka.refunds.0"}] == read_by(container)
    assert ("c", 1) in container.heartbeats.contents[5].held
    messages = [record.message for record in caplog.records if "no input is left to read" in record.message]
    assert 1 == len(messages), "not every second"

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.model.checkpoint import Progress
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.keys import Namespace, ParsedKey, key_of, parse_key
from samzapy.stream.records import GrantPut, PlannedTaskPut, ProgressPut, Record, Removed
from unit_tests.fixtures.record_examples import EXAMPLES
from unit_tests.fixtures.record_strategies import records

KEYS_AS_WRITTEN = [
    "schema/8f5c393f1ad57572",
    "format/level",
    "job",
    "term",
    "config/task.inputs",
    "input/kafka.page.views",
    "topic/__samzapy-coordinator-page-views-1",
    "changelog/Partition_3",
    "plan/5/task/SystemStreamPartition_kafka.page.views.3-1-4",
    "generation",
    "run",
    "end/kafka.page.views.3",
    "container/0-20260101-7f3a",
    "locality/0",
    "task-locality/SystemStreamPartition_kafka.page.views.3-1-4",
    "epoch",
    "grant/SystemStreamPartition_kafka.page.views.3-1-4/99",
    "startpoint/kafka.page.views.3:1/4",
    "accepted-loss/kafka.page.views.3:1/4",
    "request/88b0d30c-d518-4307-9e8e-c8529eb30f04",
    "request-memory/88b0d30c-d518-4307-9e8e-c8529eb30f04",
    "inbox",
    "restart/0",
    "placed/0",
    "launch/0-20260101-7f3a",
    "container-count",
    "standby/0",
    "suspended/0",
    "container-end/0",
    "factor",
    "checkpoint/kafka.page.views.3:1/4",
    "progress/kafka.page.views.3:1/4",
]


def test_the_spelling_of_every_key_is_frozen() -> None:
    assert [key_of(record) for record in EXAMPLES] == KEYS_AS_WRITTEN


def test_every_namespace_has_an_example() -> None:
    assert {parse_key(key).namespace for key in KEYS_AS_WRITTEN} == set(Namespace)


@given(records)
def test_every_key_that_is_written_is_parsed_into_its_parts(record: Record) -> None:
    parsed = parse_key(key_of(record))

    assert key_of(record).split("/")[0] == parsed.namespace
    match record:
        case GrantPut():
            assert (record.grant.task_name, str(record.grant.epoch)) == parsed.parts
        case PlannedTaskPut():
            assert (str(record.generation), record.task_name) == parsed.parts
        case _:
            assert len(parsed.parts) <= 1


@given(records, records)
def test_two_facts_share_a_key_only_if_they_share_its_namespace_and_parts(a: Record, b: Record) -> None:
    assert (parse_key(key_of(a)) == parse_key(key_of(b))) == (key_of(a) == key_of(b))


def test_a_grant_is_read_from_the_right_so_a_task_name_may_hold_a_slash() -> None:
    assert ParsedKey(Namespace.GRANT, ("a/7/b", "12")) == parse_key("grant/a/7/b/12")


def test_a_broadcast_input_has_a_position_for_each_task() -> None:
    position = Progress(
        ssp_kb=SspKeyBucket.parse("kafka.rules.0@Partition_3"), offset_next=5, epoch=1, execution_id=ExecutionId("e1")
    )

    assert "progress/kafka.rules.0@Partition_3" == key_of(ProgressPut(progress=position))
    assert ParsedKey(Namespace.CHECKPOINT, ("kafka.rules.0@a/b",)) == parse_key("checkpoint/kafka.rules.0@a/b")


def test_a_tombstone_has_the_key_that_it_removes() -> None:
    assert key_of(Removed(key="grant/Partition_0/3")) == "grant/Partition_0/3"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nobody",
        "nobody/x",
        "job/",
        "job/x",
        "term/1",
        "format",
        "format/other",
        "schema",
        "schema/",
        "config/",
        "grant/Partition_0",
        "grant/Partition_0/",
        "grant//1",
        "grant/Partition_0/01",
        # Python refuses to read so many digits.
        "grant/Partition_0/" + "1" * 4301,
        "plan/" + "1" * 4301 + "/task/a",
        "plan/" + "1" * 20 + "/task/a",
        "grant/Partition_0/-1",
        "grant/Partition_0/\u0661",
        "plan/5/task/",
        "plan/05/task/a",
        "plan/5/tasks/a",
        "plan/5",
        "input/kafka",
        "checkpoint/kafka.a.0",
        "checkpoint/kafka.a.0:0/3",
        "checkpoint/kafka.a.0:1/1",
        "checkpoint/kafka.a.00:0/1",
        "progress/nonsense",
    ],
)
def test_a_second_spelling_of_a_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted"):
        parse_key(text)


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused_by_value_error(text: str) -> None:
    try:
        parsed = parse_key(text)
    except ValueError:
        return
    assert text.startswith(parsed.namespace)

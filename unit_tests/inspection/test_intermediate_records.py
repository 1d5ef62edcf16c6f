"""Messages on an intermediate stream that no step of the job writes."""

from dataclasses import replace

import pytest

from samzapy.coordinator.state import CoordinatorState
from samzapy.inspection.intermediate_records import examine_intermediate, partition_count_kept
from samzapy.model.finding import Severity
from samzapy.model.ssp import SystemStream
from samzapy.plan.partitioners import murmur2
from samzapy.stream.log import LogRecord
from samzapy.stream.records import Expansion, InputPut

TOPIC = "__samzapy-intermediate-flights-1-by_key"
STREAM = SystemStream("kafka", TOPIC)
COUNT = 4


def record(key: bytes | None, offset: int = 3) -> LogRecord:
    return LogRecord(offset=offset, timestamp_ms=0, key=key, value=b"v")


def test_messages_of_a_step_are_no_findings() -> None:
    keys = [f"k{number}".encode() for number in range(200)]
    for partition in range(COUNT):
        own = [record(key) for key in keys if murmur2(key) % COUNT == partition]
        assert len(own) > 10
        assert () == examine_intermediate(own, topic=TOPIC, partition=partition, partition_count=COUNT)


def test_a_message_without_a_key_is_of_another_program() -> None:
    (finding,) = examine_intermediate(
        [record(None, 7), record(None, 8)], topic=TOPIC, partition=2, partition_count=None
    )

    assert ("record-foreign", Severity.DATA) == (finding.code, finding.severity)
    assert f"{TOPIC}-2 at offset 7: wanted a key, found none (the first of 2)" == finding.found
    assert "samzapy acl check" in finding.remedy


def test_a_message_in_another_partition_than_that_of_its_key_is_of_another_program() -> None:
    home = murmur2(b"LHR") % COUNT
    away = (home + 1) % COUNT

    (finding,) = examine_intermediate([record(b"LHR")], topic=TOPIC, partition=away, partition_count=COUNT)

    assert f"{TOPIC}-{away} at offset 3: wanted the key LHR in partition {home}, found it in {away}" == finding.found
    assert () == examine_intermediate([record(b"LHR")], topic=TOPIC, partition=away, partition_count=None)


@pytest.mark.parametrize(
    ("known", "count"),
    [
        ({}, COUNT),
        ({"partition_count": 2 * COUNT}, None),
        ({"partition_count_first": 0}, None),
        ({"expansions": (Expansion(partition_count=2 * COUNT, seen_at_ms=1),)}, None),
    ],
    ids=["never grew", "grew", "came later", "grows"],
)
def test_partitions_are_compared_only_where_the_stream_never_had_another_number_of_them(known, count) -> None:
    put = InputPut(system_stream=STREAM, partition_count=COUNT, partition_count_first=COUNT, topic_id="t")
    state = CoordinatorState(inputs={STREAM: replace(put, **known)})

    assert count == partition_count_kept(state, str(STREAM), state.inputs[STREAM].partition_count)
    assert partition_count_kept(state, str(STREAM), 3 * COUNT) is None


def test_the_partitions_of_a_stream_that_is_not_recorded_are_not_known() -> None:
    assert partition_count_kept(CoordinatorState(), str(STREAM), COUNT) is None

"""A task can send on every message unchanged; a dead letter says why it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.container.task.work_plan import Rows
from unit_tests.fixtures.container_worlds import AWorker, a_job

RAW = {"systems_kafka_samza_key_serde": "bytes", "systems_kafka_samza_msg_serde": "bytes"}
DEAD_LETTERS = {"task_error_policy": "dead-letter", "task_dead_letter_output": "dead"}
WALL_MS = 1_795_000_000_000
TIMES = st.sampled_from(
    [-(2**63), -(2**62), -62_135_596_800_000, -12_219_292_800_001, -2, -1, 0, 1, WALL_MS, WALL_MS * 10**6, 2**63 - 1]
) | st.integers(-(2**63), 2**63 - 1)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["", "trace", "trace", "ä", "a\0b", "task", "error", "timestamp"])
        | st.text(st.characters(codec="utf-8"), max_size=5),
        st.none() | st.binary(max_size=5),
    ),
    max_size=4,
)
RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=5), HEADERS, TIMES),
    min_size=1,
    max_size=6,
)


def pass_on(envelope: Any, collector: Any, context: Any) -> None:
    collector.send(
        "out",
        envelope.value,
        envelope.key,
        headers=envelope.headers,
        timestamp_ms=envelope.timestamp_ms,
    )


@given(RECORDS)
def test_a_record_is_passed_on_unchanged_or_a_dead_letter_has_the_reason(records: list[Any]) -> None:
    worker = AWorker(pass_on, config=a_job(**RAW, **DEAD_LETTERS))
    worker.wall_ms = WALL_MS
    offsets = list(range(len(records)))
    keys, values, headers, times = zip(*records, strict=True)

    report = worker.run(Rows(0, offsets, keys, values, times, headers))

    passed, dead = list(worker.kafka.committed("out")), list(worker.kafka.committed("dead"))
    assert (len(records), len(dead)) == (len(passed) + len(dead), report.dead_letters)
    refused = {int(dict(reversed(letter.headers))["offset"] or b"") for letter in dead}
    assert [
        (key, value, tuple(given), time)
        for offset, (key, value, given, time) in enumerate(records)
        if offset not in refused
    ] == [(record.key, record.value, record.headers, record.timestamp_ms) for record in passed]
    for letter in dead:
        first = dict(reversed(letter.headers))
        key, value, given_headers, time = records[int(first["offset"] or b"")]
        assert (key, value) == (letter.key, letter.value)
        assert time == letter.timestamp_ms or str(time).encode() == first["timestamp"]
        cannot_be_sent = time == 0 or any("\0" in name for name, _ in given_headers)
        assert cannot_be_sent, first["error"]
        assert b"wanted another timestamp_ms than 0" in (first["error"] or b"") or b"without a zero character" in (
            first["error"] or b""
        )


def test_the_headers_of_a_dead_letter_precede_those_of_its_message_also_with_a_zero_in_their_names() -> None:
    worker = AWorker(pass_on, config=a_job(**RAW, **DEAD_LETTERS))
    worker.wall_ms = WALL_MS

    worker.run(Rows(0, [0], [b"k"], [b"v"], [0], [[("a\0b", b"1"), ("c", None)]]))

    (letter,) = worker.kafka.committed("dead")
    assert (("a\\0b", b"1"), ("c", None)) == letter.headers[-2:]
    assert b"0" == dict(letter.headers)["timestamp"]


@pytest.mark.parametrize(
    ("how", "refused"),
    [
        ({"headers": 5}, "wanted headers as a mapping or as pairs of text and bytes, as envelope.headers, found int"),
        ({"headers": [("a",)]}, "wanted headers as a mapping or as pairs of text and bytes"),
        ({"headers": "text"}, "wanted headers as a mapping or as pairs of text and bytes"),
        ({"headers": [(b"a", b"b")]}, "wanted headers of text to bytes, found b'a': bytes"),
        ({"headers": {"a": "b"}}, "wanted headers of text to bytes, found 'a': str"),
        ({"headers": [("\ud800", b"")]}, "wanted a header's name that UTF-8 can say, found '\\ud800'"),
        ({"headers": {"a\0b": b""}}, "wanted a header's name without a zero character"),
        (
            {"timestamp_ms": 0},
            "wanted another timestamp_ms than 0, which the Kafka client (librdkafka) takes for the",
        ),
        (
            {"timestamp_ms": 2**63},
            "wanted a timestamp_ms in whole milliseconds, in 64 bits, found 9223372036854775808",
        ),
        ({"timestamp_ms": 1.5}, "wanted a timestamp_ms in whole milliseconds, in 64 bits, found 1.5"),
        ({"timestamp_ms": True}, "wanted a timestamp_ms in whole milliseconds, in 64 bits, found True"),
        ({"partition": -1}, "wanted a partition of 0 or more, found -1"),
    ],
)
def test_a_send_of_an_impossible_record_is_refused(how: dict[str, Any], refused: str) -> None:
    worker = AWorker(lambda envelope, collector, context: collector.send("totals", 1, **how))

    assert refused in worker.run(Rows(0, [0], [b"k"], [b"1"], [1], None)).error


def test_headers_may_come_from_a_generator_and_names_may_repeat() -> None:
    def process(envelope: Any, collector: Any, context: Any) -> None:
        collector.send("out", b"", headers=((name, b"1") for name in ("trace", "trace")))

    worker = AWorker(process, config=a_job(**RAW))

    worker.run(Rows(0, [0], [b"k"], [b"v"], [1], None))

    (record,) = worker.kafka.committed("out")
    assert (("trace", b"1"), ("trace", b"1")) == record.headers

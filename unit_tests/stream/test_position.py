"""Moments as people name them, and reading up to one after the other."""

from __future__ import annotations

import pytest

from samzapy.stream.log import LogRecord
from samzapy.stream.position import Position, Reading


def at(offset: int, timestamp_ms: int = 0) -> LogRecord:
    return LogRecord(offset=offset, timestamp_ms=timestamp_ms, key=None, value=None)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0", Position(offset=0)),
        ("4711", Position(offset=4711)),
        ("1970-01-02", Position(timestamp_ms=86_400_000)),
        ("1970-01-01T00:00:01.5", Position(timestamp_ms=1_500)),
        ("1970-01-01T01:00:00+01:00", Position(timestamp_ms=0)),
        ("1970-01-01T00:00:01Z", Position(timestamp_ms=1_000)),
        ("1970-01-01 00:00:01 UTC", Position(timestamp_ms=1_000)),
    ],
)
def test_a_moment_is_an_offset_or_a_time_in_utc(text: str, position: Position) -> None:
    assert position == Position.parse(text)


@pytest.mark.parametrize(
    "text", ["", "-1", "yesterday", "1.5", "2026-13-01", "²", "7 UTC", "2026-03-01T12:00+01:00 UTC"]
)
def test_any_text_but_an_offset_or_a_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted an offset"):
        Position.parse(text)


def test_a_moment_includes_the_record_at_it() -> None:
    assert Position(offset=5).includes(at(5))
    assert not Position(offset=5).includes(at(6))
    assert Position(timestamp_ms=9).includes(at(6, 9))
    assert not Position(timestamp_ms=9).includes(at(6, 10))


def test_reading_continues_where_it_stopped_and_loses_nothing() -> None:
    reading = Reading(at(offset) for offset in (0, 2, 3, 7, 8))

    parts = [
        [record.offset for record in reading.until(end)] for end in (Position(offset=2), Position(offset=2), None)
    ]

    assert [[0, 2], [], [3, 7, 8]] == parts
    assert reading.last == at(8)
    assert Reading([]).last is None

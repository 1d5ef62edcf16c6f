from __future__ import annotations

import pyarrow as pa
import pytest

from samzapy.adapters.spark.audit import _row, _schema
from samzapy.stream.codec import headers
from samzapy.stream.log import LogRecord

_LARGE = 10**19


def a_record(*, term: int = 1, seq: int = 1, timestamp_ms: int = 5) -> LogRecord:
    written = headers(term=term, seq=seq, event="TaskGranted", cause="c", actor="a")
    return LogRecord(7, timestamp_ms, b"job", None, tuple(written.items()))


def the_row(record: LogRecord) -> dict[str, object]:
    """The row as a DataFrame has it."""
    rows: list[dict[str, object]] = pa.RecordBatch.from_pylist([_row("t", 0)(record)], schema=_schema()).to_pylist()
    return rows[0]


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (a_record(term=_LARGE), "term"),
        (a_record(seq=_LARGE), "seq"),
        (a_record(timestamp_ms=_LARGE // 1000), "timestamp"),
    ],
    ids=["term", "seq", "timestamp"],
)
def test_a_number_beyond_64_bits_is_null_and_the_error_names_it(record: LogRecord, name: str) -> None:
    """Any client can write such a record, and it must not end the audit of the others."""
    row = the_row(record)

    assert row[name] is None
    assert name in str(row["error"])
    assert (7, "TaskGranted", True) == (row["offset"], row["event"], row["removed"])


def test_a_plain_record_has_no_error() -> None:
    row = the_row(a_record(term=2, seq=2**63 - 1))

    assert row["error"] is None
    assert (2, 2**63 - 1) == (row["term"], row["seq"])

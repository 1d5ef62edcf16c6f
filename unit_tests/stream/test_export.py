"""Files of `stream export` are read back; changed ones are refused at low cost."""

from __future__ import annotations

import io
import json
import tracemalloc
import zlib
from collections.abc import Sequence

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samzapy.errors import CorruptRecordError
from samzapy.model.topic_checks import Cluster
from samzapy.model.topics import coordinator_spec
from samzapy.stream.export import BLOCK_BYTES_MAX, RECORD_BYTES_MAX, ExportHeader, read_export, write_export
from samzapy.stream.horizon import Extent
from samzapy.stream.log import LogRecord
from samzapy.testing.builders import a_topic_found

SPEC = coordinator_spec("flights-1")
BOMB_MB = 256
MEMORY_BYTES_MAX = 20 * 1024 * 1024
SYNC_BYTES = 16

some_bytes = st.none() | st.binary(max_size=40)
contents = st.tuples(some_bytes, some_bytes, st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3))


def a_record(offset: int, value: bytes | None = b"v") -> LogRecord:
    return LogRecord(offset=offset, timestamp_ms=offset, key=b"k", value=value, headers=(("term", b"1"),))


def a_file(records: Sequence[LogRecord]) -> bytes:
    out = io.BytesIO()
    header = ExportHeader(
        topic=SPEC.name,
        extent=Extent(whole_from=0, offset_end=len(records), known_until_ms=0),
        looked=a_topic_found(SPEC),
        cluster=Cluster(bootstrap_servers="localhost:9092", broker_count=1),
    )
    assert len(records) == write_export(out, header, records)
    return out.getvalue()


def read(file: bytes) -> list[LogRecord]:
    return list(read_export(io.BytesIO(file), "flights.avro").records)


def long(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def deflated(data: bytes, times: int = 1) -> bytes:
    deflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join([*(deflater.compress(data) for _ in range(times)), deflater.flush()])


EMPTY = a_file([])
SYNC = EMPTY[-SYNC_BYTES:]
HEAD = EMPTY[: EMPTY.index(SYNC) + SYNC_BYTES]
SCHEMA = fastavro.parse_schema(json.loads(fastavro.reader(io.BytesIO(EMPTY)).metadata["avro.schema"]))


def rows(*offsets: int, end: int | None = None) -> bytes:
    out = io.BytesIO()
    for offset in offsets:
        row = {"offset": offset, "timestamp_ms": offset, "key": b"k", "value": b"v", "headers": []}
        fastavro.schemaless_writer(out, SCHEMA, row)
    if end is not None:
        fastavro.schemaless_writer(out, SCHEMA, {"record_count": end})
    return out.getvalue()


def a_block(count: int, packed: bytes, *, size: int | None = None, sync: bytes = SYNC) -> bytes:
    return long(count) + long(len(packed) if size is None else size) + packed + sync


GOOD = a_block(2, deflated(rows(0, 5)))
END = a_block(1, deflated(rows(end=2)))


@given(st.lists(contents, max_size=30))
def test_written_records_are_read_back(
    given_records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    records = [
        LogRecord(offset=2 * number, timestamp_ms=number, key=key, value=value, headers=tuple(headers))
        for number, (key, value, headers) in enumerate(given_records)
    ]

    assert records == read(a_file(records))


def test_a_file_of_many_blocks_is_read_back_by_any_avro_library() -> None:
    records = [a_record(offset, bytes([offset % 256]) * 1000) for offset in range(500)]
    file = a_file(records)

    assert records == read(file)
    rows = list(fastavro.reader(io.BytesIO(file)))
    assert [record.value for record in records] == [row["value"] for row in rows[:-1]]
    assert {"record_count": 500} == rows[-1]


def test_the_largest_record_that_is_written_is_read() -> None:
    record = LogRecord(offset=0, timestamp_ms=0, key=b"", value=bytes(RECORD_BYTES_MAX))

    assert [record] == read(a_file([record]))
    with pytest.raises(CorruptRecordError, match=rf"{SPEC.name}-0 at offset 7: .* at most {RECORD_BYTES_MAX} bytes"):
        a_file([a_record(7, bytes(RECORD_BYTES_MAX))])


def test_a_bomb_is_named_with_file_and_record_and_takes_no_memory() -> None:
    packed = deflated(bytes(1024 * 1024), times=BOMB_MB)
    assert len(packed) < BLOCK_BYTES_MAX < BOMB_MB * 1024 * 1024
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match=r"flights\.avro: .* behind record 2 \(offset 5\): .* inflated"):
            read(HEAD + GOOD + a_block(1000, packed) + END)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < MEMORY_BYTES_MAX, f"{peak / 1024 / 1024:.0f} MB"


def test_the_pieces_of_these_tests_make_a_file() -> None:
    assert [0, 5] == [record.offset for record in read(HEAD + GOOD + END)]
    assert [0, 5] == [record.offset for record in read(HEAD + a_block(3, deflated(rows(0, 5, end=2))))]


REFUSED = {
    "cut short": (GOOD, "behind record 2 .* ends too early"),
    "cut in a block": (GOOD + END[:-20], "without its end"),
    "another marker": (a_block(2, deflated(rows(0, 5)), sync=bytes(16)) + END, "without its end"),
    "a size that is not there": (a_block(2, deflated(rows(0, 5)), size=10**6) + END, "without its end"),
    "a size without limit": (a_block(2, b"", size=2**60), "are the most"),
    "a size below nothing": (a_block(2, b"", size=-1), "are the most"),
    "a count below nothing": (a_block(-2, deflated(rows(0, 5))) + END, "a block of -2 rows"),
    "more rows than there are": (a_block(2**40, deflated(rows(0, 5))) + END, "behind record 0"),
    "fewer rows than there are": (a_block(1, deflated(rows(0, 5))) + END, "behind record 0"),
    "bytes that are not deflated": (a_block(2, b"junk") + END, "behind record 0"),
    "the same record again": (GOOD + GOOD + END, "offset 0 after offset 5"),
    "another count": (GOOD + a_block(1, deflated(rows(end=3))), "2 records where the file counts 3"),
    "a row behind the end": (GOOD + a_block(2, deflated(rows(end=2) + rows(6))), "rows behind its end"),
    "a block behind the end": (GOOD + END + GOOD, "rows behind its end"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_changed_file_is_refused(name: str) -> None:
    blocks, message = REFUSED[name]

    with pytest.raises(CorruptRecordError, match=f"flights.avro: wanted a whole file .*{message}"):
        read(HEAD + blocks)


@pytest.mark.parametrize("codec", ["null", "bzip2", "xz"])
def test_a_file_in_another_codec_is_refused_by_name(codec: str) -> None:
    out = io.BytesIO()
    metadata = fastavro.reader(io.BytesIO(EMPTY)).metadata
    kept = {name: text for name, text in metadata.items() if name.startswith("samzapy.")}
    fastavro.writer(out, SCHEMA, [{"record_count": 0}], codec=codec, metadata=kept)

    with pytest.raises(CorruptRecordError, match=f"the codec '{codec}' instead of deflate"):
        read(out.getvalue())


def test_a_head_without_end_is_refused() -> None:
    """Its metadata announce a long continuation."""
    head = b"Obj\x01" + long(1) + long(4) + b"name" + long(2**50)

    with pytest.raises(CorruptRecordError, match="wanted a file that `samzapy stream export` wrote"):
        read(head + bytes(1000))

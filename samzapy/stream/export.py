"""A coordinator stream in a file that any Avro reader can read in years.

It is an Avro object container file. Pure.

The file describes itself. Its header holds the schema of its rows, and beside it (`samzapy.*`) the topic, the part of
the history in the file, the topic's settings, and the schemas of the values. A row is a record exactly as it was on the
topic: offset, time, key, value and headers, undecoded. The last row closes the file and counts the others, so a file
that was cut short is refused and never taken for a short history.

A file may come from anywhere: only rows of our own schema are decoded (fastavro can be crashed by a schema), nothing is
inflated to more than a block may hold, and the decoder of the rows checks their content, as if it came from the topic.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import merge
from typing import Any, BinaryIO, Final

import fastavro
from fastavro.schema import parse_schema, to_parsing_canonical_form

from samzapy.errors import CorruptRecordError
from samzapy.model.strict_json import parse_json_text
from samzapy.model.topic_checks import Cluster, TopicFound
from samzapy.stream.codec import schema_records
from samzapy.stream.horizon import Extent, joined
from samzapy.stream.log import LogRecord

FORMAT: Final = "samzapy-stream-1"

BLOCK_BYTES_MAX: Final = 2 * 1024 * 1024
"""Nothing longer is inflated. Rows of two bytes are the worst there can be: a hundred times as much in memory."""

RECORD_BYTES_MAX: Final = BLOCK_BYTES_MAX - 64 * 1024
"""A block is closed after the row that fills it, so this is the most that one record may add."""

_HEAD_BYTES_MAX: Final = 1024 * 1024
_CODEC: Final = "deflate"
_SYNC_BYTES: Final = 16
_SYNC_INTERVAL: Final = 16_000
_SCHEMA: Final[list[dict[str, Any]]] = [
    {
        "type": "record",
        "name": "Record",
        "namespace": "samzapy.export",
        "doc": "A record of the topic as it stood there.",
        "fields": [
            {"name": "offset", "type": "long"},
            {"name": "timestamp_ms", "type": "long", "doc": "When the broker took it."},
            {"name": "key", "type": ["null", "bytes"]},
            {"name": "value", "type": ["null", "bytes"], "doc": "Avro single-object encoding; null removes the key."},
            {
                "name": "headers",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Header",
                        "fields": [
                            {"name": "name", "type": "string"},
                            {"name": "value", "type": ["null", "bytes"]},
                        ],
                    },
                },
            },
        ],
    },
    {
        "type": "record",
        "name": "End",
        "namespace": "samzapy.export",
        "doc": "The last row: how many records stand before it.",
        "fields": [{"name": "record_count", "type": "long"}],
    },
]

_FILE: Final = parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC_BYTES}},
        ],
    }
)
_ROWS: Final = parse_schema({"type": "array", "items": _SCHEMA})
"""The rows of a block, read in one go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportHeader:
    """The header of a file.

    `looked` and `cluster` are the topic as it was when the file was made.
    """

    topic: str
    extent: Extent
    looked: TopicFound
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """An opened file; `records` can be read once."""

    header: ExportHeader
    records: Iterator[LogRecord]


def write_export(out: BinaryIO, header: ExportHeader, records: Iterable[LogRecord]) -> int:
    """Write `records` to `out`; return how many there were.

    Raises:
        CorruptRecordError: a record is larger than a file may hold.
    """
    count = 0

    # With its name beside it: else the writer tries each row against both schemas, which takes longer than to write it.
    def rows() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal count
        for record in records:
            offset, timestamp_ms, key, value, headers = record
            _refuse_giant(record, header.topic)
            count += 1
            yield (
                "samzapy.export.Record",
                {
                    "offset": offset,
                    "timestamp_ms": timestamp_ms,
                    "key": key,
                    "value": value,
                    "headers": [{"name": name, "value": held} for name, held in headers],
                },
            )
        yield "samzapy.export.End", {"record_count": count}

    schemas = {schema.fingerprint: schema.schema_json for schema in schema_records()}
    fastavro.writer(
        out,
        parse_schema(_SCHEMA),
        rows(),
        codec=_CODEC,
        sync_interval=_SYNC_INTERVAL,
        metadata={
            "samzapy.format": FORMAT,
            "samzapy.topic": header.topic,
            "samzapy.extent": json.dumps(asdict(header.extent)),
            "samzapy.settings": json.dumps({"topic": asdict(header.looked), "cluster": asdict(header.cluster)}),
            "samzapy.schemas": json.dumps(schemas),
        },
    )
    return count


def read_export(file: BinaryIO, name: str) -> Export:
    """Open a file that `write_export` wrote; `name` is for messages.

    Raises:
        CorruptRecordError: it is none, of another version, or damaged; while `records` is read also for one that was
            cut short.
    """
    try:
        metadata, sync = _head(file)
        if metadata.get("samzapy.format") != FORMAT or not _is_ours(metadata["avro.schema"]):
            raise ValueError(f"the format {metadata.get('samzapy.format')!r}")
        if metadata.get("avro.codec") != _CODEC:
            raise ValueError(f"the codec {metadata.get('avro.codec')!r} instead of {_CODEC}")
        settings = parse_json_text(metadata["samzapy.settings"])
        header = ExportHeader(
            topic=metadata["samzapy.topic"],
            extent=Extent(**parse_json_text(metadata["samzapy.extent"])),
            looked=TopicFound(**settings["topic"]),
            cluster=Cluster(**settings["cluster"]),
        )
    except Exception as error:
        # As broad as this on purpose: the file may hold any bytes, and fastavro raises many types.
        raise CorruptRecordError(
            f"{name}: wanted a file that `samzapy stream export` wrote ({FORMAT}), found {_described(error)}"
        ) from error
    return Export(header=header, records=_rows(file, sync, name))


def merged(exports: Iterable[Export]) -> tuple[ExportHeader, Iterator[LogRecord]]:
    """Files of one topic as one history.

    They were made one after the other; a record that is in several comes once.

    Raises:
        CorruptRecordError: they are of different topics, or of one that was deleted and made again.
    """
    in_order = sorted(exports, key=lambda export: export.header.extent.offset_end)
    newest = in_order[-1].header
    for export in in_order:
        if (export.header.topic, export.header.looked.topic_id) != (newest.topic, newest.looked.topic_id):
            raise CorruptRecordError(
                f"wanted files of one topic, found {newest.topic} (id {newest.looked.topic_id}) and "
                f"{export.header.topic} (id {export.header.looked.topic_id}); read them apart"
            )
    header = ExportHeader(
        topic=newest.topic,
        extent=joined([export.header.extent for export in in_order]),
        looked=newest.looked,
        cluster=newest.cluster,
    )
    return header, _once(merge(*(export.records for export in in_order), key=lambda record: record.offset))


def _once(records: Iterable[LogRecord]) -> Iterator[LogRecord]:
    offset_last = -1
    for record in records:
        if record.offset > offset_last:
            yield record
            offset_last = record.offset


def _head(file: BinaryIO) -> tuple[Mapping[str, str], bytes]:
    """Metadata and sync marker; `file` is then at the first block."""
    head = io.BytesIO(file.read(_HEAD_BYTES_MAX))
    header: dict[str, Any] = fastavro.schemaless_reader(head, _FILE, None)  # type: ignore[assignment]
    file.seek(head.tell())
    return {name: text.decode() for name, text in header["meta"].items()}, header["sync"]


def _rows(file: BinaryIO, sync: bytes, name: str) -> Iterator[LogRecord]:
    count, offset_last = 0, -1
    try:
        while True:
            rows = iter(_block(file, sync))
            for row in rows:
                if "record_count" in row:
                    if row["record_count"] != count:
                        raise ValueError(f"{count} records where the file counts {row['record_count']}")
                    if next(rows, None) is not None or file.read(1):
                        raise ValueError("rows behind its end")
                    return
                if row["offset"] <= offset_last:
                    raise ValueError(f"offset {row['offset']} after offset {offset_last}")
                count, offset_last = count + 1, row["offset"]
                yield LogRecord(
                    offset=offset_last,
                    timestamp_ms=row["timestamp_ms"],
                    key=row["key"],
                    value=row["value"],
                    headers=tuple((header["name"], header["value"]) for header in row["headers"]),
                )
    except Exception as error:
        # As wide as in `read_export`.
        raise CorruptRecordError(
            f"{name}: wanted a whole file of `samzapy stream export`, found behind record {count} (offset "
            f"{offset_last}): {_described(error)}; make or copy it again"
        ) from error


def _block(file: BinaryIO, sync: bytes) -> Sequence[dict[str, Any]]:
    """The rows of the next block.

    Each file ends with a row that says so, so there is always a next one.
    """
    count, size = _long(file), _long(file)
    if count < 1 or not 0 <= size <= BLOCK_BYTES_MAX:
        raise ValueError(f"a block of {count} rows in {size} bytes, where {BLOCK_BYTES_MAX} are the most")
    packed = file.read(size)
    if len(packed) < size or file.read(_SYNC_BYTES) != sync:
        raise ValueError("a block without its end: it was cut short, or changed")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    inflated = inflater.decompress(packed, BLOCK_BYTES_MAX)
    # Behind the end fastavro leaves a part of a checksum.
    if not inflater.eof:
        raise ValueError(f"a block that is damaged, or more than {BLOCK_BYTES_MAX} bytes when inflated")
    items = io.BytesIO()
    fastavro.schemaless_writer(items, "long", count)
    items.write(inflated + b"\0")
    items.seek(0)
    rows: list[dict[str, Any]] = fastavro.schemaless_reader(items, _ROWS, None)  # type: ignore[assignment]
    if len(rows) != count or items.read(1):
        raise ValueError(f"a block of {len(rows)} rows that counts {count}")
    return rows


def _long(file: BinaryIO) -> int:
    number = fastavro.schemaless_reader(file, "long", None)
    assert isinstance(number, int), "as its schema says"
    return number


def _refuse_giant(record: LogRecord, topic: str) -> None:
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    if size > RECORD_BYTES_MAX:
        raise CorruptRecordError(
            f"{topic}-0 at offset {record.offset}: wanted a record of at most {RECORD_BYTES_MAX} bytes, found {size}; "
            "no coordinator writes one. See it with `samzapy stream replay`"
        )


def _is_ours(declared: str) -> bool:
    return bool(to_parsing_canonical_form(parse_json_text(declared)) == to_parsing_canonical_form(_plain_schema()))


def _plain_schema() -> list[dict[str, Any]]:
    return json.loads(json.dumps(_SCHEMA))  # type: ignore[no-any-return]  # `loads` returns the dumped type


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300] or 'it ends too early'}"

"""Make a DataFrame of the coordinator stream, with typed columns from the schemas.

Our own reader and codec make the rows, not Spark's Kafka source. They read the records as the audit commands do
(committed records, to the end, or from a file). So the class path needs no connector, and a file and a topic give the
same rows. The offsets are divided among tasks, each of which decodes its part.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from samzapy.errors import CorruptRecordError
from samzapy.stream.codec import decode, parse_headers, plain_fields, schema_name_of, schemas_by_name
from samzapy.stream.log import LogRecord
from samzapy.stream.records import Removed

Read = Callable[[int, int], Iterator[LogRecord]]
"""The records of `[offset_from, offset_to)`; runs in Spark's Python workers, so it is pickled."""

_ROWS_PER_BATCH = 5_000
_LONG_MAX = (1 << 63) - 1
_PLACE = (
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("key", pa.string()),
    ("namespace", pa.string()),
    ("event", pa.string()),
    ("term", pa.int64()),
    ("seq", pa.int64()),
    ("cause", pa.string()),
    ("actor", pa.string()),
    ("removed", pa.bool_()),
    ("latest_value_only", pa.bool_()),
    ("error", pa.string()),
)
_PLAIN: Mapping[str, pa.DataType] = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}


def history_frame(
    spark: SparkSession, read: Read, *, topic: str, offset_end: int, whole_from: int, partitions: int
) -> DataFrame:
    """One row for each record; see `samzapy.audit` for the columns."""
    schema = _schema()
    step = max(1, -(-offset_end // partitions))

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column("id").to_pylist():
                made = map(_row(topic, whole_from), read(part * step, min(offset_end, (part + 1) * step)))
                while chunk := list(islice(made, _ROWS_PER_BATCH)):
                    yield pa.RecordBatch.from_pylist(chunk, schema=schema)

    return spark.range(0, partitions, 1, partitions).mapInArrow(rows, from_arrow_schema(schema))


def _schema() -> pa.Schema:
    """The position of a record, and `value` with a struct for each kind of record.

    All structs but that of its own kind are null.
    """
    declared = schemas_by_name()
    kinds = pa.struct([(name, _arrow(json.loads(declared[name]))) for name in sorted(declared)])
    return pa.schema([*_PLACE, ("value", kinds)])


def _arrow(declared: Any) -> pa.DataType:
    match declared:
        case {"type": "record", "fields": fields}:
            return pa.struct([(field["name"], _arrow(field["type"])) for field in fields])
        case {"type": "array", "items": items}:
            return pa.list_(_arrow(items))
        case {"type": "enum"}:
            return pa.string()
        case str():
            return _PLAIN[declared]
        case {"type": inner}:
            return _arrow(inner)
        case _:
            raise AssertionError(f"no column for {declared}")


def _row(topic: str, whole_from: int) -> Callable[[LogRecord], dict[str, Any]]:
    def of(record: LogRecord) -> dict[str, Any]:
        headers = parse_headers(record.headers)
        key = None if record.key is None else record.key.decode(errors="backslashreplace")
        numbers = {
            "timestamp": record.timestamp_ms * 1000,
            "term": None if headers is None else headers.term,
            "seq": None if headers is None else headers.seq,
        }
        # Any client can write such a record.
        large = [name for name, number in numbers.items() if number is not None and abs(number) > _LONG_MAX]
        row: dict[str, Any] = {
            "offset": record.offset,
            "key": key,
            "namespace": None if key is None else key.partition("/")[0],
            "event": None if headers is None else headers.event,
            "cause": None if headers is None else headers.cause,
            "actor": None if headers is None else headers.actor,
            "removed": record.value is None,
            "latest_value_only": record.offset < whole_from,
            **numbers,
            **dict.fromkeys(large),
        }
        if large:
            row["error"] = f"offset {record.offset}: wanted numbers of 64 bits, found more in {', '.join(large)}"
        try:
            fact = decode(record, topic=topic)
        except CorruptRecordError as error:
            return row | {"error": str(error)}
        return row if isinstance(fact, Removed) else row | {"value": {schema_name_of(fact): plain_fields(fact)}}

    return of

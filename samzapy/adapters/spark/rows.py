"""Arrow batches as rows of one route at a time, and reports as an Arrow batch."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from samzapy.container.task.work_plan import Report, Rows

_REPORT_TEXTS = ("error", "measured")
_REPORT_COLUMNS = (
    *("kind", "route", "offset_next", "records_in", "records_out", "dead_letters", "commits", "due_ms"),
    *("due_when_quiet_ms", "has_ended", *_REPORT_TEXTS, "row_bytes"),
)
# Spark reads Python ints into long columns only. A text instead of a type starts Spark's SQL parser.
REPORT_TYPE = StructType(
    [StructField(name, StringType() if name in _REPORT_TEXTS else LongType()) for name in _REPORT_COLUMNS]
)
_REPORT_SCHEMA = pa.schema([(name, pa.string() if name in _REPORT_TEXTS else pa.int64()) for name in _REPORT_COLUMNS])
# As Python objects, the rows should fit into a core's own cache until they are processed: with four times as much, a
# worker took an eighth longer for a record of a kilobyte.
_RUN_BYTES = 1024 * 1024


class RowBytes:
    """Batches, and the highest mean number of bytes per row among them."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.most = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.most = max(self.most, batch.nbytes // max(1, batch.num_rows))
            yield batch


def runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut batches into runs of rows with one route, in their order.

    Each run is one row, or has at most about `_RUN_BYTES`, by the batch's mean row. Empty batches give no runs.
    """
    for batch in batches:
        if batch.num_rows == 0:
            continue
        routes = batch.column("route")
        bounds = pc.min_max(routes).as_py()
        has_one = bounds["min"] == bounds["max"]
        for route, run in [(bounds["min"], batch)] if has_one else _cut(routes.to_pylist(), batch):
            yield from _pieces(route, run)


def _cut(routes: Sequence[int], batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for end in range(1, len(routes) + 1):
        if end == len(routes) or routes[end] != routes[start]:
            yield routes[start], batch.slice(start, end - start)
            start = end


def _pieces(route: int, run: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    if run.nbytes <= _RUN_BYTES:
        yield route, run
        return
    rows_max = max(1, _RUN_BYTES * run.num_rows // run.nbytes)
    for start in range(0, run.num_rows, rows_max):
        yield route, run.slice(start, rows_max)


def rows_of(route: int, batch: pa.RecordBatch) -> Rows:
    """The columns of one run as plain Python lists."""
    # A cast, because with Spark's `arrow.useLargeVarTypes` text is `large_string`, which has no view as binary.
    headers = batch.column("headers")
    return Rows(
        route,
        batch.column("offset").to_pylist(),
        batch.column("key").cast(pa.binary()).to_pylist(),
        batch.column("value").cast(pa.binary()).to_pylist(),
        batch.column("timestamp_ms").to_pylist(),
        None if headers.null_count == len(headers) else [_headers(cell) for cell in headers.to_pylist()],
    )


def as_text(name: str) -> Column:
    """A column of any bytes, declared as text; `rows_of` casts it back to bytes.

    Spark copies bytes once more than text between a row and an Arrow vector. Neither side looks at the content.
    """
    return F.col(name).cast("string").alias(name)


def headers_column() -> Column:
    """A record's headers as JSON text, null when it has none.

    `rows_of` reads them back. The array of structs would be slow: Spark bounds Arrow batches by bytes and asks for
    their size at each row, and for a list Arrow then walks all rows so far. That was two thirds of the cost of a record
    of 100 bytes.
    """
    as_json = F.to_json(F.col("headers"), {"ignoreNullFields": "false"})
    return F.when(F.col("headers").isNotNull(), as_json).alias("headers")


def _headers(cell: str | None) -> Sequence[tuple[str, bytes | None]] | None:
    if cell is None:
        return None
    # Spark writes binary as base64.
    return [
        (header["key"], None if header["value"] is None else base64.b64decode(header["value"]))
        for header in json.loads(cell)
    ]


def reports_batch(reports: Sequence[Report], row_bytes: int) -> pa.RecordBatch:
    """Reports as a batch for the driver, with the size of their rows (`RowBytes`)."""
    columns = [
        _column(
            [row_bytes if field.name == "row_bytes" else _cell(report, field.name) for report in reports], field.type
        )
        for field in _REPORT_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_REPORT_SCHEMA)


def _cell(report: Report, name: str) -> Any:
    if name != "measured":
        return getattr(report, name)
    # One text column for all figures: there is one set per task and batch, and most figures are zero.
    return "" if report.measured is None else json.dumps(report.measured.as_json())


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow column, made without `pa.array`.

    That function imports pandas to check for a series. That import took two fifths of the start of a worker.
    """
    if kind == pa.int64():
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array("q", values))])
    texts = [value.encode() for value in values]
    ends = array("i", accumulate(map(len, texts), initial=0))
    return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def report_of(row: Any) -> Report:
    """The report in a Spark row of `REPORT_TYPE`."""
    fields = row.asDict()
    del fields["row_bytes"]
    return Report.from_json({**fields, "measured": json.loads(fields["measured"]) if fields["measured"] else None})

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from samzapy.adapters.spark.rows import REPORT_TYPE, RowBytes, report_of, reports_batch, rows_of, runs
from samzapy.container.task.work_plan import Report, ReportKind, Rows
from samzapy.model.task_stats import KeySketch, TaskStats

HEADERS = pa.string()


def as_text(values: list[bytes | None]) -> pa.Array:
    """Bytes as Spark hands them in (`rows.as_text`)."""
    return pa.array(values, pa.binary()).view(pa.string())


def a_batch(routes: list[int], *, headers: list[Any] | None = None) -> pa.RecordBatch:
    """Rows as Spark hands them in; the offset counts within the batch."""
    count = len(routes)
    return pa.RecordBatch.from_pydict(
        {
            "route": pa.array(routes, pa.int64()),
            "offset": pa.array(range(count), pa.int64()),
            "key": as_text([b"k"] * count),
            "value": as_text([b"v"] * count),
            "timestamp_ms": pa.array([5] * count, pa.int64()),
            "headers": pa.array(headers if headers is not None else [None] * count, HEADERS),
        }
    )


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=4))
def test_runs_are_all_rows_in_order_each_with_one_route(batches: list[list[int]]) -> None:
    rows = list(runs(map(a_batch, batches)))

    assert [(route, offset) for routes in batches for offset, route in enumerate(routes)] == [
        (route, offset) for route, batch in rows for offset in batch.column("offset").to_pylist()
    ]
    assert all({route} == set(batch.column("route").to_pylist()) for route, batch in rows)


def test_a_run_is_as_long_as_its_route_lasts_and_a_route_may_come_again() -> None:
    assert [(0, 2), (1, 1), (0, 1)] == [(route, batch.num_rows) for route, batch in runs([a_batch([0, 0, 1, 0])])]


def test_a_batch_of_one_route_is_not_cut() -> None:
    batch = a_batch([3, 3])

    ((route, rows),) = runs([a_batch([]), batch])

    assert (3, True) == (route, rows is batch)


@pytest.mark.parametrize(("value_bytes", "lengths"), [(400_000, [2, 2, 1]), (2_000_000, [1] * 5), (100, [5])])
def test_a_run_of_many_bytes_comes_in_pieces_and_one_record_is_never_cut(
    value_bytes: int, lengths: list[int]
) -> None:
    batch = a_batch([3] * 5)
    values = [bytes([number]) * value_bytes for number in range(5)]
    batch = batch.set_column(3, "value", as_text(values))

    pieces = [rows_of(route, piece) for route, piece in runs([batch])]

    assert lengths == [len(rows.offsets) for rows in pieces]
    assert {3} == {rows.route for rows in pieces}
    assert list(range(5)) == [offset for rows in pieces for offset in rows.offsets]
    assert values == [value for rows in pieces for value in rows.values]


def test_columns_become_plain_lists() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "route": pa.array([1, 1], pa.int64()),
            "offset": pa.array([7, 9], pa.int64()),
            "key": as_text([None, b""]),
            "value": as_text([b"\xff", None]),
            "timestamp_ms": pa.array([1, 2], pa.int64()),
            "headers": pa.array([None, None], HEADERS),
        }
    )

    assert Rows(1, [7, 9], [None, b""], [b"\xff", None], [1, 2], None) == rows_of(1, batch)


def test_text_of_arrows_large_type_is_read_as_bytes() -> None:
    """As it comes where the user has set `spark.sql.execution.arrow.useLargeVarTypes`."""
    batch = a_batch([1, 1])
    for column, name in ((2, "key"), (3, "value")):
        batch = batch.set_column(column, name, pa.array([b"\xff", None], pa.large_binary()).view(pa.large_string()))

    rows = rows_of(1, batch)

    assert ([b"\xff", None], [b"\xff", None]) == (rows.keys, rows.values)


def test_headers_are_pairs_in_order_and_only_where_there_are_any() -> None:
    headers = ['[{"key":"a","value":"MQ=="},{"key":"a","value":null}]', None, "[]"]

    rows = rows_of(0, a_batch([0, 0, 0], headers=headers))

    assert [[("a", b"1"), ("a", None)], None, []] == rows.headers


def test_a_slice_of_a_batch_has_its_own_rows_and_headers() -> None:
    batch = a_batch([0, 1, 1], headers=['[{"key":"a","value":"MQ=="}]', None, None])
    runs_of_rows = [rows_of(route, run) for route, run in runs([batch])]

    assert [[0], [1, 2]] == [list(rows.offsets) for rows in runs_of_rows]
    assert [[[("a", b"1")]], None] == [rows.headers for rows in runs_of_rows]


@pytest.mark.parametrize("kind", ReportKind)
def test_reports_pass_through_spark_unchanged(kind: ReportKind) -> None:
    report = Report(
        kind=kind, route=2, offset_next=2**40, records_in=1, records_out=2, dead_letters=3, commits=4, error="ä\n"
    )
    measured = replace(report, measured=TaskStats(busy_ns=2**50, keys=KeySketch(2, {"ä": 1})))

    batch = reports_batch([report, replace(measured, error=""), measured], 7)

    batch.validate(full=True)
    assert ["ä\n", "", "ä\n"] == batch.column("error").to_pylist()
    assert [7, 7, 7] == batch.column("row_bytes").to_pylist()
    assert [report, measured] == [report_of(Row(**fields)) for fields in batch.to_pylist()][::2]
    assert REPORT_TYPE.names == batch.schema.names


def test_the_widest_mean_row_of_all_batches_is_known() -> None:
    batches = [pa.RecordBatch.from_pylist([{"value": b"x" * size}] * 100) for size in (10, 1000, 100)]
    measured = RowBytes([*batches, batches[0].slice(0, 0)])

    assert 4 == len(list(measured))
    assert 1000 <= measured.most < 1100


def test_rows_and_reports_leave_pandas_alone() -> None:
    """Its import takes longer than all other imports, and no message needs it."""
    pytest.importorskip("pandas")
    code = (
        "import sys, pyarrow as pa\n"
        "from samzapy.adapters.spark.rows import reports_batch, rows_of, runs\n"
        "from samzapy.container.task.work_plan import Report, ReportKind\n"
        "values = dict(route=1, offset_next=2, records_in=1, records_out=1, dead_letters=0, commits=1)\n"
        "batch = reports_batch([Report(kind=ReportKind(1), error='[]', **values)], 1)\n"
        "columns = ['route', 'offset', 'key', 'value', 'timestamp_ms', 'headers']\n"
        "number, text = batch.column('route'), batch.column('error')\n"
        "given = pa.RecordBatch.from_arrays([number, number, text, text, number, text], columns)\n"
        "[rows_of(route, run) for route, run in runs([given])]\n"
        "sys.exit('pandas' in sys.modules)\n"
    )

    assert 0 == subprocess.run([sys.executable, "-c", code]).returncode

"""A worker gets the rows of whole tasks, one after the other, in a fixed order.

Spark without Kafka: the source is a frame whose Spark partitions replace Kafka's, in the order that a test sets.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from samzapy.adapters.spark.query import rows_by_task
from samzapy.container.task.work_plan import WorkPlan
from samzapy.model.ssp import SspKeyBucket
from samzapy.testing.builders import a_work_plan

CORES = 2
SOURCE = (
    "topic string, partition int, offset long, key binary, value binary, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)


class Row(NamedTuple):
    """A row as a worker got it: its Spark partition, its index there, and its fields."""

    spark_partition: int
    number: int
    route: int
    offset: int


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    scratch: Path = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as environment:
        # Else Spark's workers run the first python3 in PATH.
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = _a_session(scratch)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def _a_session(scratch: Path) -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("test_rows_reach_workers_task_by_task")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.adaptive.enabled", "false")
        # Else frames of one partition each become one partition.
        .config("spark.sql.unionOutputPartitioning", "false")
        # Small, so that a batch is cut in the midst of a task's rows.
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
        .getOrCreate()
    )


def a_source(session: SparkSession, *partitions: tuple[str, Sequence[int]]) -> DataFrame:
    """A Spark partition for each `topic.partition`, with rows at these offsets."""
    source: DataFrame | None = None
    for text, offsets in partitions:
        topic, _, number = text.rpartition(".")
        frame = a_partition(session, [(topic, int(number), offset, b"k", b"v", None, None) for offset in offsets])
        source = frame if source is None else source.unionAll(frame)
    assert source is not None
    return source


def a_partition(session: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """Rows of `SOURCE` in one Spark partition."""
    return session.createDataFrame(rows, SOURCE).coalesce(1)


def handed_to_workers(frame: DataFrame) -> list[Row]:
    def as_they_come(batches: Any) -> Any:
        import pyarrow
        from pyspark import TaskContext

        context, number = TaskContext.get(), 0
        for batch in batches:
            numbers = list(range(number, number + batch.num_rows))
            number += batch.num_rows
            columns = [
                [context.partitionId()] * batch.num_rows,
                numbers,
                batch.column("route"),
                batch.column("offset"),
            ]
            yield pyarrow.RecordBatch.from_arrays(
                [pyarrow.array(c, pyarrow.int64()) if isinstance(c, list) else c for c in columns],
                ["spark_partition", "number", "route", "offset"],
            )

    ddl = "spark_partition long, number long, route long, offset long"
    return sorted(Row(*row) for row in frame.mapInArrow(as_they_come, ddl).collect())


COGROUP = a_work_plan(
    ("Partition_0", "kafka.orders.0:0/1"),
    ("Partition_0", "kafka.refunds.0:0/1"),
    ("Partition_0", "kafka.refunds.3:0/1"),
    ("Partition_1", "kafka.orders.1:0/1"),
    ("Partition_1", "kafka.refunds.1:0/1"),
    ("Partition_2", "kafka.orders.2:0/1"),
    ("Partition_2", "kafka.refunds.2:0/1"),
)


def test_each_tasks_rows_arrive_together_by_input_and_offset(session: SparkSession) -> None:
    """Also if the shuffle files are mixed, and read in another order than written."""
    offsets = list(range(40))
    source = a_source(
        session,
        ("refunds.3", offsets),
        ("refunds.0", offsets[::-1]),
        ("refunds.2", offsets),
        ("orders.2", offsets[::-1]),
        ("orders.1", offsets),
        ("refunds.1", offsets),
        ("orders.0", offsets),
    )

    handed = handed_to_workers(rows_by_task(source, COGROUP, dict.fromkeys(_ssp_kbs(COGROUP), 0)))

    # Whole tasks in turn: the first and the third one to the first core, the second one to the second.
    in_order = {0: [0, 1, 2, 5, 6], 1: [3, 4]}
    expected = {
        core: [(route, offset) for route in routes for offset in offsets] for core, routes in in_order.items()
    }
    assert expected == {
        core: [(row.route, row.offset) for row in handed if row.spark_partition == core] for core in range(CORES)
    }


def test_every_task_gets_every_broadcast_row_once_and_only_its_own_other_rows(session: SparkSession) -> None:
    plan = a_work_plan(
        *[
            (f"Partition_{task}", ssp_kb)
            for task in range(3)
            for ssp_kb in (
                f"kafka.limits.0@Partition_{task}",
                f"kafka.rules.0@Partition_{task}",
                f"kafka.rules.1@Partition_{task}",
                f"kafka.orders.{task}:0/1",
            )
        ]
    )
    source = a_source(
        session,
        ("rules.1", range(5, 25)),
        ("orders.2", range(10)),
        ("orders.0", range(10)),
        ("limits.0", range(3)),
        ("rules.0", range(4)),
        ("orders.1", range(10)),
    )

    handed = handed_to_workers(rows_by_task(source, plan, dict.fromkeys(_ssp_kbs(plan), 0)))

    of_a_task = [range(3), range(4), range(5, 25), range(10)]
    expected = {
        core: [
            (route, offset)
            for task in tasks
            for nth, offsets in enumerate(of_a_task)
            for route in [4 * task + nth]
            for offset in offsets
        ]
        for core, tasks in {0: [0, 2], 1: [1]}.items()
    }
    assert expected == {
        core: [(row.route, row.offset) for row in handed if row.spark_partition == core] for core in range(CORES)
    }


def test_key_buckets_of_one_partition_go_to_their_own_tasks(session: SparkSession) -> None:
    plan = a_work_plan(
        ("Partition_0-0-2", "kafka.orders.0:0/2"),
        ("Partition_0-0-2", "kafka.rules.0@Partition_0-0-2"),
        ("Partition_0-1-2", "kafka.orders.0:1/2"),
        ("Partition_0-1-2", "kafka.rules.0@Partition_0-1-2"),
    )
    source = a_source(session, ("orders.0", range(20)), ("rules.0", range(5)))

    handed = handed_to_workers(rows_by_task(source, plan, dict.fromkeys(_ssp_kbs(plan), 0)))

    assert [0, 1, 2, 3, 4] == [row.offset for row in handed if row.route == 1]
    assert [0, 1, 2, 3, 4] == [row.offset for row in handed if row.route == 3]
    assert list(range(20)) == sorted(row.offset for row in handed if row.route in (0, 2))


def test_the_direct_path_moves_no_row(session: SparkSession) -> None:
    plan = a_work_plan(("a", "kafka.orders.0:0/1"), ("b", "kafka.orders.1:0/1"))
    source = a_source(session, ("orders.1", range(3)), ("orders.0", range(3)))

    frame = rows_by_task(source, plan, dict.fromkeys(_ssp_kbs(plan), 0))

    assert [(0, 1), (0, 1), (0, 1), (1, 0), (1, 0), (1, 0)] == [
        (row.spark_partition, row.route) for row in handed_to_workers(frame)
    ]
    assert "Exchange" not in _physical_plan(frame)
    assert "Exchange" in _physical_plan(rows_by_task(source, COGROUP, dict.fromkeys(_ssp_kbs(COGROUP), 0)))


def test_spark_4_0_moves_rows_to_the_same_partitions(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no partitioning by number, which is taken away here where there is one."""
    source = a_source(session, ("orders.0", range(9)), ("orders.1", range(5)), ("orders.2", range(7)))
    starts = dict.fromkeys(_ssp_kbs(COGROUP), 0)
    partitions = {row.route: row.spark_partition for row in handed_to_workers(rows_by_task(source, COGROUP, starts))}

    monkeypatch.delattr(DataFrame, "repartitionById", raising=False)
    frame = rows_by_task(source, COGROUP, starts)

    assert "hashpartitioning" in _physical_plan(frame)
    rows = handed_to_workers(frame)
    assert 21 == len(rows)
    assert partitions == {row.route: row.spark_partition for row in rows}


@pytest.mark.parametrize("is_shuffled", [False, True], ids=["direct", "shuffled"])
def test_keys_and_values_are_the_bytes_that_they_were(session: SparkSession, is_shuffled: bool) -> None:
    """They go through Spark as text, which most of these are not."""
    every_byte = bytes(range(256))
    given = [(None, every_byte), (every_byte[::-1], None), (b"", b"\xff"), (b"\xed\xa0\x80", b""), (b"\0", b"\xc3")]
    plan = a_work_plan(("a", "kafka.orders.0:0/1"), *([("a", "kafka.refunds.0:0/1")] if is_shuffled else []))
    rows = [("orders", 0, offset, key, value, None, None) for offset, (key, value) in enumerate(given)]
    frame = rows_by_task(a_partition(session, rows), plan, dict.fromkeys(_ssp_kbs(plan), 0))

    assert is_shuffled is ("Exchange" in _physical_plan(frame))
    assert given == [
        (row["key"], row["value"]) for row in frame.mapInArrow(as_handed, "key binary, value binary").collect()
    ]


def as_handed(batches: Any) -> Any:
    """Keys and values as a task is handed them."""
    import pyarrow

    from samzapy.adapters.spark.rows import rows_of, runs

    for route, batch in runs(batches):
        rows = rows_of(route, batch)
        columns = [pyarrow.array(cells, pyarrow.binary()) for cells in (rows.keys, rows.values)]
        yield pyarrow.RecordBatch.from_arrays(columns, ["key", "value"])


def _ssp_kbs(plan: WorkPlan) -> list[SspKeyBucket]:
    return [route.ssp_kb for route in plan.routes]


def _physical_plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from samzapy.adapters.spark.query import SparkQuery, is_direct
from samzapy.testing.builders import a_work_plan


def test_a_query_that_was_never_started_has_no_events_and_can_be_drained_and_stopped(tmp_path: Path) -> None:
    query = SparkQuery(
        cast(SparkSession, None),
        worker_entry="no.module:run",
        bootstrap_servers="localhost:9092",
        kafka_options={},
        scratch_dir=tmp_path,
    )

    query.stop()

    assert (True, None) == (query.drain(0), query.next_event(0))


def test_routes_stand_task_by_task() -> None:
    assert ((0, 1), (2,)) == a_work_plan(("a", "kafka.x.0:0/1"), ("a", "kafka.y.0:0/1"), ("b", "kafka.x.1:0/1")).tasks


@pytest.mark.parametrize(
    ("routes", "direct"),
    [
        ([("a", "kafka.orders.0:0/1"), ("b", "kafka.orders.1:0/1")], True),
        ([("a", "kafka.orders.0:0/1"), ("b", "kafka.refunds.0:0/1")], True),
        ([("a", "kafka.orders.0:0/1"), ("a", "kafka.orders.1:0/1")], False),
        ([("a", "kafka.orders.0:0/2"), ("b", "kafka.orders.0:1/2")], False),
        ([("a", "kafka.rules.0@a"), ("b", "kafka.rules.0@b")], False),
    ],
)
def test_the_direct_path_is_for_tasks_of_one_input_each_that_nobody_shares(
    routes: list[tuple[str, str]], direct: bool
) -> None:
    assert direct is is_direct(a_work_plan(*routes))

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from samzapy.adapters.spark.query import SparkQuery, is_direct
from samzapy.container.work import Route, WorkPlan
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.testing.builders import a_config


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


def a_plan(*routes: tuple[str, str]) -> WorkPlan:
    """The plan of routes given as (task, SSPKb)."""
    return WorkPlan(
        config=a_config(),
        execution_id=ExecutionId("e1"),
        query_number=1,
        routes=tuple(
            Route(
                ssp_kb=SspKeyBucket.parse(ssp_kb),
                task_name=TaskName(task),
                partition_id=0,
                epoch=1,
                changelog_partition=0,
                environment_dir=task,
            )
            for task, ssp_kb in routes
        ),
        job_file="job.py",
        scratch_dir="/scratch",
        slot_count=2,
        stream_offset=0,
    )


def test_routes_stand_task_by_task() -> None:
    assert ((0, 1), (2,)) == a_plan(("a", "kafka.x.0:0/1"), ("a", "kafka.y.0:0/1"), ("b", "kafka.x.1:0/1")).tasks


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
    assert direct is is_direct(a_plan(*routes))

from __future__ import annotations

from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from samzapy.adapters.spark.query import SparkQuery


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

"""The topics in which a transaction of a worker may hang."""

from __future__ import annotations

from samzapy.adapters.kafka.hanging import written_by_workers
from samzapy.testing.builders import a_config

CONFIG = a_config(
    task_inputs="kafka.orders",
    systems_kafka_streams_totals_samza_msg_serde="json",
    systems_kafka_streams_orders_samza_msg_serde="json",
)


def test_topics_that_each_host_knows_are_not_named() -> None:
    """Nor is an input: its other readers would see a record that is aborted there."""
    known = written_by_workers(CONFIG)

    assert ["sums", "alerts"] == known.unknown_of(
        ["totals", "sums", "orders", "__samzapy-checkpoint-flights-1", "alerts"]
    )

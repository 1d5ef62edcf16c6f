"""The lag of a job in Kafka's own tool for consumer groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.bad_input.kit import Cluster, Job, Message, WarmSpark, ended, unique
from integration_tests.console_tools import group_lag
from samzapy.errors import DeadlineError
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.waiting import wait_until

_WITHIN_S = 240.0


@pytest.mark.timeout(1800)
def test_a_caught_up_job_has_no_lag_and_a_stopped_one_lags_by_the_new_messages(
    broker: DevBroker | ContainerBroker, spark: WarmSpark, tmp_path: Path
) -> None:
    """Each partition has two key buckets; the first one ends in a marker."""
    cluster = Cluster(broker.bootstrap_servers)
    orders = cluster.topic("orders", partition_count=2)
    messages = [Message(key=b"%d" % number, value=b"pass") for number in range(20)]
    cluster.publish_in_transactions(orders, ("commit", messages), ("abort", messages))
    cluster.publish(orders, *messages, partition=1)
    job = Job(
        cluster=cluster,
        directory=tmp_path,
        name=unique("lagging").replace("-", "_"),
        inputs=[orders],
        settings={"job.elasticity.factor": "2"},
    )
    cluster.make(job.output("passed"))

    def lag() -> dict[tuple[str, int], int]:
        return group_lag(broker.bootstrap_servers, f"samzapy-{job.full_name}")

    with job.running(spark) as process:
        try:
            wait_until(lambda: lag() == {(orders, 0): 0, (orders, 1): 0}, _WITHIN_S, "no lag in both partitions")
            # The markers move the end, too, also while a worker tails.
            cluster.publish_in_transactions(orders, ("commit", messages))
            handled = cluster.end(orders)
            wait_until(lambda: committed(cluster, job, orders) == handled, _WITHIN_S, "the group to follow")
        except DeadlineError as error:
            process.terminate()
            raise AssertionError(f"{error} The lag is {lag()}. {ended(process).output}") from error
    assert 0 == ended(process).code

    cluster.publish(orders, *messages[:3], partition=1)
    assert {(orders, 0): 0, (orders, 1): 3} == lag()


def committed(cluster: Cluster, job: Job, topic: str) -> int:
    """The offset that the group of a job has in the first partition of a topic."""
    group = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"samzapy-{job.full_name}"}
    consumer = Consumer(group)
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], 30)
        return int(place.offset)
    finally:
        consumer.close()

"""A topic gets more partitions under a running job on a broker, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Producer

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.positions import KafkaPositions
from samzapy.adapters.kafka.topic_watch import TopicWatch
from samzapy.coordinator.assignment.starts import Bounds
from samzapy.coordinator.inputs.topic_checks import topics_of, unread_topics
from samzapy.model.ssp import SystemStreamPartition
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker
from samzapy.testing.topics import grow_topic
from samzapy.testing.waiting import wait_until

HELD_BACK = 3


@pytest.fixture
def job(broker: DevBroker | ContainerBroker) -> Iterator[SmallJob]:
    connection = KafkaConnection(bootstrap_servers=broker.bootstrap_servers)
    with SmallJob(connection, job_expansion_settle_ms="1500") as job:
        yield job


class Container:
    """A container on another host: reads its grants as far as the test asks."""

    def __init__(self, job: SmallJob) -> None:
        self.job = job
        self.positions: dict[int, int] = {}

    def send_heartbeat(self) -> None:
        state = self.job.service.status().state
        grants = [grant for grant in state.grants_sorted if grant.execution_id == "e1" and not grant.released]
        planned = {task.task_name: set(task.positions) for task in state.plan}
        held = [grant for grant in grants if {start.ssp_kb for start in grant.starts} == planned.get(grant.task_name)]
        positions = {
            str(start.ssp_kb): {"offsetNext": at, "offsetEnd": at}
            for grant in held
            for start in grant.starts
            for at in [self.positions.get(start.ssp_kb.ssp.partition, 0)]
        }
        self.job.heartbeat(
            "e1",
            [{"task": grant.task_name, "epoch": grant.epoch} for grant in held],
            streamOffset=state.offset_next,
            figures={"positions": positions},
        )

    def partitions(self) -> Sequence[int]:
        self.send_heartbeat()
        grants = self.job.service.status().state.grants_sorted
        return sorted({start.ssp_kb.ssp.partition for grant in grants for start in grant.starts})


def test_new_partitions_wait_for_the_old_ones_and_their_open_transactions(job: SmallJob) -> None:
    container, service = Container(job), job.service
    wait_until(lambda: container.partitions() == [0, 1], 60.0, "the job to run")
    producer = Producer({"bootstrap.servers": job.connection.bootstrap_servers, "transactional.id": job.job})
    producer.init_transactions(60)
    producer.begin_transaction()
    for n in range(HELD_BACK):
        producer.produce(job.input, f"{n}".encode(), partition=0)
    producer.flush(60)
    watch = TopicWatch(
        job.admin,
        names=lambda: topics_of(service.status().state),
        names_found=lambda topics: unread_topics(service.status().state, topics),
        put=job.commands.put,
        interval_ms=60_000,
        monitor_ms=1_000,
    )
    watch.start()

    grow_topic(job.connection.bootstrap_servers, job.input, 4)
    wait_until(lambda: container.send_heartbeat() or _ends(job), 60.0, "the ends of the old partitions")

    # The uncommitted record is below the end. Its marker is not, and the reader is after the marker.
    assert _ends(job) == (HELD_BACK, 0)
    assert container.partitions() == [0, 1]
    producer.commit_transaction(60)
    container.positions[0] = HELD_BACK - 1
    assert container.partitions() == [0, 1]
    container.positions[0] = HELD_BACK + 1
    wait_until(lambda: container.partitions() == [0, 1, 2, 3], 60.0, "the new partitions to be granted")
    watch.close()


def test_missing_partitions_do_not_hide_the_others(job: SmallJob) -> None:
    there = SystemStreamPartition("kafka", job.input, 1)
    asked = [
        there,
        SystemStreamPartition("kafka", job.input, 2),
        SystemStreamPartition("kafka", f"{job.input}-not", 0),
    ]

    read = KafkaPositions(job.connection, job.job).read(asked)

    assert {there: Bounds(0, 0)} == read.bounds


def _ends(job: SmallJob) -> tuple[int, ...]:
    (grown_input,) = job.service.status().state.inputs.values()
    return grown_input.expansions[0].ends if grown_input.expansions else ()

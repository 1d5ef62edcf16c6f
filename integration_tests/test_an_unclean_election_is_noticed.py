"""A replica that was away leads, and the records of the last leader are gone.

The topics have two replicas on three brokers. The second replica is stopped, the first one alone takes further records
and is killed, and an operator has the second one elected (`kafka-leader-election.sh --election-type unclean`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from integration_tests.small_job import SmallJob
from samzapy.adapters.kafka import reading
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.follow import KafkaFollower
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.adapters.kafka.reading import read_to_end
from samzapy.adapters.kafka.topics import KafkaTopics
from samzapy.errors import TruncatedTopicError
from samzapy.model.topics import TopicSpec, checkpoint_spec, coordinator_spec
from samzapy.stream.log import LogRecord, Write
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.waiting import wait_until

FIRST, SECOND = 1, 2
_WITHIN_S = 60.0


class TwoReplicas:
    """Topics of one partition on two of three brokers, of which one in sync is enough."""

    def __init__(self, cluster: DevCluster, specs: Sequence[TopicSpec]) -> None:
        self._cluster = cluster
        self._topics = [spec.name for spec in specs]
        new = [
            NewTopic(
                spec.name,
                1,
                replica_assignment=[[FIRST, SECOND]],
                config={**spec.settings, "min.insync.replicas": "1", "unclean.leader.election.enable": "false"},
            )
            for spec in specs
        ]
        admin = self._admin()
        for made in admin.create_topics(new).values():
            made.result(_WITHIN_S)

    def lose_records_of(self, work: Callable[[], None]) -> None:
        """Let the second replica lead without the records of `work`.

        The first one alone has them, and is killed.
        """
        self._cluster.node(SECOND).stop()
        wait_until(lambda: self._in_sync() == [{FIRST}] * len(self._topics), _WITHIN_S, "one replica to be in sync")
        work()
        self._cluster.node(FIRST).kill()
        self._cluster.node(SECOND).start()
        wait_until(lambda: self._leaders() == {-1}, _WITHIN_S, "the topics to have no leader")
        places = [TopicPartition(topic, 0) for topic in self._topics]
        # One from before would ask the broker that was killed.
        admin = self._admin()
        assert not any(admin.elect_leaders(ElectionType.UNCLEAN, places).result().values())
        wait_until(lambda: self._leaders() == {SECOND}, _WITHIN_S, "the replica that was away to lead")
        self._cluster.node(FIRST).start()
        self._cluster.wait_in_sync()

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, "log_level": 0})

    def _in_sync(self) -> Sequence[set[int]]:
        topics = self._admin().list_topics(timeout=10).topics
        return [set(topics[topic].partitions[0].isrs) for topic in self._topics]

    def _leaders(self) -> set[int]:
        return {leader for topic in self._topics for leader in self._cluster.leaders(topic).values()}


def committed(connection: KafkaConnection, topic: str) -> Sequence[LogRecord]:
    """The records of the topic, for a reader that knows nothing of lost ones."""
    return list(read_to_end(connection, topic))


def test_records_that_an_unclean_election_lost_end_their_readers_and_the_leader_that_wrote_them(
    own_cluster: DevCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_CATCHES_UP_WITHIN_S", 1.0)
    connection = KafkaConnection(bootstrap_servers=own_cluster.bootstrap_servers)
    job = SmallJob(connection)
    stream, checkpoints = coordinator_spec(job.job).name, checkpoint_spec(job.job).name
    replicas = TwoReplicas(own_cluster, [coordinator_spec(job.job), checkpoint_spec(job.job)])
    follower, topics = KafkaFollower(connection, stream), KafkaTopics(connection, job.job)
    with closing(job), closing(follower), closing(KafkaLog(connection, checkpoints, "driver")) as driver:
        job.become_leader()
        driver.take_over()
        driver.append_atomically([Write(key=b"k0", value=b"v")])
        kept = len(follower.to_the_end())

        def work() -> None:
            job.heartbeat("e1")
            wait_until(lambda: job.service.run_once(50) or job.service.status().state.containers, _WITHIN_S, "e1")
            driver.append_atomically([Write(key=b"k1", value=b"v")])
            # All of it is known here, and may have been acted on.
            assert (True, 2) == (bool(follower.to_the_end()), len(topics.checkpoint_records()))

        replicas.lose_records_of(work)

        left = committed(connection, stream)
        assert (kept, 1) == (len(left), len(committed(connection, checkpoints))), "nothing was lost: no fault"
        with pytest.raises(TruncatedTopicError, match=f"wanted {stream}-0 to "):
            follower.to_the_end()
        with pytest.raises(TruncatedTopicError, match=f"wanted {checkpoints}-0 to "):
            topics.checkpoint_records()
        job.heartbeat("e2")
        with pytest.raises(TruncatedTopicError, match=stream):
            wait_until(lambda: job.service.run_once(50), _WITHIN_S, "the leader to stop")
        assert left == committed(connection, stream), "the leader decided on records that are gone"

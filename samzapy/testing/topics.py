"""Create topics as a user would, for tests and demonstrations.

A topic is returned when the broker knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    AdminClient,
    NewPartitions,
    NewTopic,
)

from samzapy.testing.waiting import wait_until

_MADE_WITHIN_S = 30.0
_TRIES = 5


def make_topics(
    bootstrap_servers: str, partition_counts: Mapping[str, int], settings: Mapping[str, str] | None = None
) -> None:
    """Create topics with the cluster's default number of replicas.

    That is one on a single development broker.

    The controller answers before its brokers have heard of a topic, and a client that uses it at once may be told that
    there is none. So this returns only when the broker knows them all.

    Args:
        bootstrap_servers: the addresses of a cluster without passwords.
        partition_counts: the topics and how many partitions each gets.
        settings: of each of them, like `cleanup.policy`.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    topics = [NewTopic(name, count, config=dict(settings or {})) for name, count in partition_counts.items()]
    create_topics(admin, topics)
    _await(admin, partition_counts)


def create_topics(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create topics; the brokers may not know them yet when it returns.

    A broker without CPU leaves the metadata for a moment. librdkafka then drops its connection, and the request with it
    (`_DESTROY_BROKER`), so the request is repeated.
    """
    missing = {topic.topic: topic for topic in topics}
    for tries in range(_TRIES):
        if not missing:
            return
        for name, made in admin.create_topics(list(missing.values())).items():
            try:
                made.result(_MADE_WITHIN_S)
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError._DESTROY_BROKER and tries < _TRIES - 1:
                    continue
                # The request before may have arrived.
                if code != KafkaError.TOPIC_ALREADY_EXISTS or not tries:
                    raise
            del missing[name]


def topic_names(bootstrap_servers: str) -> frozenset[str]:
    """The topics of a cluster without passwords."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    return frozenset(admin.list_topics(timeout=10).topics)


def grow_topic(bootstrap_servers: str, topic: str, partition_count: int) -> None:
    """Give a topic more partitions, `partition_count` in all.

    It returns when the broker knows them.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, partition_count)])[topic].result(_MADE_WITHIN_S)
    _await(admin, {topic: partition_count})


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic; returns when the broker knows it no more."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(_MADE_WITHIN_S)
    wait_until(
        lambda: topic not in admin.list_topics(timeout=10).topics, _MADE_WITHIN_S, f"the broker to forget {topic}"
    )


def _await(admin: AdminClient, partition_counts: Mapping[str, int]) -> None:
    def known() -> bool:
        topics = admin.list_topics(timeout=10).topics
        return all(
            name in topics and topics[name].error is None and len(topics[name].partitions) == count
            for name, count in partition_counts.items()
        )

    wait_until(known, _MADE_WITHIN_S, f"the broker to know {', '.join(partition_counts)}")

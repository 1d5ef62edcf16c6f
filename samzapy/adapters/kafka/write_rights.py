"""The topics to which this user may not write.

A transaction that Kafka refuses for a missing right does not name the topic, and neither does a refused abort. So the
cluster is asked afterwards, for each topic that the transaction may have written to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # its stubs forget to export it

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import lacks_right, translate

_ASK_S = 4.0


def without_write_right(connection: KafkaConnection, topics: Collection[str]) -> Sequence[str]:
    """Those of `topics` to which this user may not write.

    Returns none if the cluster does not answer.
    """
    if not topics:
        return ()
    admin = Admin(connection)
    try:
        futures = admin.client.describe_topics(
            TopicCollection(sorted(topics)), include_authorized_operations=True, request_timeout=_ASK_S
        )
    except KafkaException:
        return ()
    refused = []
    for topic, future in futures.items():
        try:
            operations = future.result().authorized_operations
        except KafkaException as error:
            if lacks_right(error):
                refused.append(topic)
            continue
        if operations is not None and AclOperation.WRITE not in operations:
            refused.append(topic)
    return refused


def refuse_without_write_right(connection: KafkaConnection, topics: Collection[str]) -> None:
    """Raise ConfigError if this user may not write to one of `topics`, which it names."""
    refused = without_write_right(connection, topics)
    if refused:
        raise translate(
            KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), f"ending a transaction in {', '.join(refused)}"
        )

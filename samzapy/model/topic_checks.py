"""Check that a topic of ours keeps its data, by its settings in the cluster.

Pure.

A topic with the wrong settings loses data quietly: the cleanup policy `delete` removes checkpoints, a second partition
splits the log, a short `delete.retention.ms` makes a store that was away miss removals. So each difference that matters
is a finding of its own with the command that repairs it (law L9). samzapy never changes settings: they may be an
operator's decision.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from samzapy.config import MESSAGE_BYTES_MAX
from samzapy.errors import DataError, MissingTopicError, TopicIdentityError, TopicPolicyError
from samzapy.model.finding import Finding, losing_data
from samzapy.model.topics import TopicSpec

REPLICATION_FACTOR_DEFAULT = 3

_CODE_OF_SETTING: Mapping[str, str] = {
    "cleanup.policy": "topic-cleanup-policy",
    "message.timestamp.type": "topic-timestamp-type",
    "unclean.leader.election.enable": "topic-unclean-election",
    "max.message.bytes": "topic-message-size",
    "delete.retention.ms": "topic-tombstone-retention",
    "min.insync.replicas": "topic-min-isr",
    "retention.ms": "topic-retention",
    "retention.bytes": "topic-retention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFound:
    """A topic as the cluster has it.

    Attributes:
        topic_id: differs when a topic of the same name was made again.
        settings: its configs, broker defaults included; empty where they were not asked for.
    """

    name: str
    topic_id: str
    partition_count: int
    replication_factor: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where the topics are.

    `bootstrap_servers` stands in the commands that mend something.
    """

    bootstrap_servers: str
    broker_count: int


def check_topic(
    spec: TopicSpec, topic: TopicFound | None, cluster: Cluster, *, topic_id: str | None = None
) -> tuple[Finding, ...]:
    """Everything in which `topic` is not as `spec` wants it.

    Args:
        topic: None when there is no such topic.
        topic_id: the recorded one; None before it was recorded.
    """
    if topic is None:
        return (missing(spec.name),)
    if topic_id is not None and topic.topic_id != topic_id:
        # The other checks would describe a topic that is not ours.
        return (made_again(f"topic {spec.name}", topic_id, topic.topic_id),)
    return (
        *_partition_count(spec, topic, cluster),
        *_replication(spec, topic, cluster),
        *_settings(spec, topic, cluster),
    )


def made_again(subject: str, recorded: str, actual: str) -> Finding:
    """A topic that was deleted and created again."""
    return Finding(
        code="topic-identity",
        subject=subject,
        found=f"{subject}: wanted the topic with id {recorded} of the job's positions, found id {actual}: "
        "it was deleted and made again, so the recorded offsets mean something else",
        remedy="Nothing was read. To begin anew, give the job a new job.id",
    )


def missing(name: str) -> Finding:
    """A topic that is not there."""
    return Finding(
        code="topic-missing",
        subject=f"topic {name}",
        found=f"wanted the topic {name}, found no such topic",
        remedy="See who deleted it; what it held is gone, so give the job a new job.id to begin anew",
    )


def refuse(findings: Sequence[Finding]) -> None:
    """Raise an error if a finding forbids to start.

    The first finding decides the class, and the message has all of them.

    Raises:
        TopicIdentityError, MissingTopicError, TopicPolicyError.
    """
    serious = losing_data(findings)
    if not serious:
        return
    kinds: Mapping[str, type[DataError]] = {"topic-identity": TopicIdentityError, "topic-missing": MissingTopicError}
    kind = kinds.get(serious[0].code, TopicPolicyError)
    raise kind("\n".join(str(finding) for finding in serious))


def _partition_count(spec: TopicSpec, topic: TopicFound, cluster: Cluster) -> Iterator[Finding]:
    if topic.partition_count == spec.partition_count:
        return
    if spec.may_grow and topic.partition_count > spec.partition_count:
        return
    tool = f"kafka-topics.sh --bootstrap-server {cluster.bootstrap_servers}"
    if topic.partition_count < spec.partition_count:
        remedy = f"Mend it with: {tool} --alter --topic {spec.name} --partitions {spec.partition_count}"
    else:
        remedy = (
            "Partitions cannot be taken away: see whether the topic is this job's, and if it holds nothing that "
            f"is needed, delete it with: {tool} --delete --topic {spec.name}"
        )
    yield Finding(
        code="topic-partition-count",
        subject=f"topic {spec.name}",
        found=f"wanted the topic {spec.name} with {spec.partition_count} partitions, found {topic.partition_count}",
        remedy=remedy,
    )


def _replication(spec: TopicSpec, topic: TopicFound, cluster: Cluster) -> Iterator[Finding]:
    wanted = spec.replication_factor or min(REPLICATION_FACTOR_DEFAULT, cluster.broker_count)
    if topic.replication_factor >= wanted:
        return
    # A cluster may have grown since; only a configured number is required.
    yield Finding(
        code="topic-few-replicas" if spec.replication_factor is None else "topic-replication",
        subject=f"topic {spec.name}",
        found=f"wanted the topic {spec.name} with {wanted} replicas, found {topic.replication_factor}: a broker that "
        "is lost takes its data along",
        remedy=f"Mend it with: kafka-reassign-partitions.sh --bootstrap-server {cluster.bootstrap_servers} --execute "
        f"--reassignment-json-file FILE, where FILE lists {wanted} brokers for each partition of {spec.name}",
    )


def _settings(spec: TopicSpec, topic: TopicFound, cluster: Cluster) -> Iterator[Finding]:
    for name in spec.fixed:
        if topic.settings.get(name) != spec.settings[name]:
            yield _setting(spec, topic, cluster, name, spec.settings[name])
    if topic.settings.get("unclean.leader.election.enable") != "false":
        yield _setting(spec, topic, cluster, "unclean.leader.election.enable", "false")
    # The largest batch of our producers, and Kafka's default; brokers before 2.5 took less.
    if _number(topic, "max.message.bytes") < MESSAGE_BYTES_MAX:
        yield _setting(spec, topic, cluster, "max.message.bytes", f"{MESSAGE_BYTES_MAX} or more")
    retention_ms = spec.settings.get("delete.retention.ms")
    if retention_ms is not None and _number(topic, "delete.retention.ms") < int(retention_ms):
        yield _setting(spec, topic, cluster, "delete.retention.ms", f"{retention_ms} or more")
    kept_ms = spec.settings.get("retention.ms")
    is_for_ever = topic.settings.get("retention.ms") == "-1"
    if kept_ms is not None and not is_for_ever and _number(topic, "retention.ms") < int(kept_ms):
        yield _setting(spec, topic, cluster, "retention.ms", f"{kept_ms} or more")
    # With 1, a record that only the leader acknowledged is lost with the leader.
    least = 2 if topic.replication_factor > 2 else 1
    if not least <= _number(topic, "min.insync.replicas") <= topic.replication_factor:
        bounds = f"{least} or more" if _number(topic, "min.insync.replicas") < least else str(least)
        yield _setting(spec, topic, cluster, "min.insync.replicas", bounds)


def _setting(spec: TopicSpec, topic: TopicFound, cluster: Cluster, name: str, wanted: str) -> Finding:
    return Finding(
        code=_CODE_OF_SETTING[name],
        subject=f"topic {spec.name}",
        found=f"wanted the topic {spec.name} with {name}={wanted}, found {topic.settings.get(name) or 'nothing'}: "
        f"{_why(spec, name)}",
        remedy=f"Mend it with: kafka-configs.sh --bootstrap-server {cluster.bootstrap_servers} --alter --entity-type "
        f"topics --entity-name {spec.name} --add-config {name}={wanted.removesuffix(' or more')}",
    )


_WHY: Mapping[str, str] = {
    "cleanup.policy": "records that are still true would be deleted by age, or old ones kept for ever",
    "message.timestamp.type": "times in the audit and the compaction lag would be those of the writers' clocks",
    "unclean.leader.election.enable": "a replica that lags may take over, and what was committed is gone",
    "max.message.bytes": "a record of ours may be larger and would be refused",
    "delete.retention.ms": "who was away for longer never hears of a removal",
    "min.insync.replicas": "committed data is lost with one broker, or nothing can be written at all",
}


_WHY_OF_STREAMS: Mapping[str, str] = {
    "cleanup.policy": "of several messages of a key only the last one would be kept, read or not",
    "message.timestamp.type": "what a task sends on under an old time would be deleted at once, read or not",
    "retention.ms": "messages would be deleted sooner than the configuration says, read or not",
    "retention.bytes": "messages would be deleted by size, read or not",
}
"""Of topics that hold messages and not facts."""


def _why(spec: TopicSpec, name: str) -> str:
    of_stream = {} if spec.is_compacted else _WHY_OF_STREAMS
    return of_stream.get(name) or _WHY.get(name, "with that it loses data")


def _number(topic: TopicFound, name: str) -> int:
    """A setting as a number; -1 if it is missing, so that it is too small."""
    text = topic.settings.get(name, "")
    return int(text) if text.removeprefix("-").isdigit() else -1

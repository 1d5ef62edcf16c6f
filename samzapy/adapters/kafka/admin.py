"""Questions about topics, and the creation and checks of samzapy's own topics.

A topic of ours is created with explicit settings. An existing one is refused with a named error unless it is as it must
be (`model.topic_checks`).

A new topic, a new partition or a changed setting reaches the brokers one after another, and each question may go to
another broker. So a broker that does not know a topic is asked again for a bounded time before the topic counts as
missing (`questions`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import kafka_error, lacks_right, translate
from samzapy.adapters.kafka.groups import member_count
from samzapy.adapters.kafka.questions import APPEARS_WITHIN_S, Questions
from samzapy.config import MESSAGE_BYTES_MAX
from samzapy.errors import DeadlineError, MissingTopicError, TopicPolicyError
from samzapy.model.finding import losing_data
from samzapy.model.topic_checks import REPLICATION_FACTOR_DEFAULT, Cluster, TopicFound, check_topic, refuse
from samzapy.model.topics import TopicSpec

T = TypeVar("T")
_HEARD_WITHIN_S = 2.0
"""How long brokers may take to hear of a change: after a misspelled name, the error takes this long."""

_LOOK_AGAIN_S = 0.05
_NOT_DELETABLE = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_DELETION_DISABLED})


class KafkaAdmin:
    """Questions to a cluster, over a connection that is kept.

    Args:
        deadline_s: how long to go on asking while no broker answers.
    """

    def __init__(self, connection: KafkaConnection, *, deadline_s: float = 15.0) -> None:
        self._connection = connection
        self._questions = Questions(Admin(connection), deadline_s)

    def check_reachable(self) -> None:
        """Raise unless a broker answers with these credentials.

        A process calls this at its start: only here a refusal ends it. Later a connection that breaks while it is made
        looks the same, and is retried.

        Raises:
            BrokerUnavailableError: no broker answered; the text has the addresses and the time.
            ConfigError: a broker refused the connection.
        """
        doing = "looking for the cluster"
        self._questions.ask(
            doing, lambda timeout_s: self._questions.client.list_topics(timeout=min(1.0, timeout_s)), is_start=True
        )

    def topic_names(self) -> frozenset[str]:
        """All topics of the cluster that we may see."""
        metadata = self._questions.ask(
            "listing the topics", lambda timeout_s: self._questions.client.list_topics(timeout=timeout_s)
        )
        return frozenset(metadata.topics)

    def broker_count(self) -> int:
        """How many brokers the cluster has now."""
        metadata = self._questions.ask(
            "counting brokers", lambda timeout_s: self._questions.client.list_topics(timeout=timeout_s)
        )
        return len(metadata.brokers)

    def member_count(self, group: str) -> int:
        """How many members a consumer group has; 0 for an unknown one."""
        return self._questions.ask(
            f"describing the consumer group {group}",
            lambda timeout_s: member_count(self._connection, group, timeout_s),
        )

    def find(self, names: Iterable[str]) -> dict[str, TopicFound]:
        """Those of `names` that exist."""
        return {name: _topic_found(topic) for name, topic in self._described(names).items()}

    def led(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        """The partitions of `names` that have a leader.

        Topics that do not exist are left out. Only partitions with a leader answer questions.
        """
        return {
            name: frozenset(partition for partition, is_led in partitions.items() if is_led)
            for name, partitions in self.partitions(names).items()
        }

    def partitions(self, names: Iterable[str]) -> dict[str, Mapping[int, bool]]:
        """Whether each partition of `names` has a leader.

        Topics that do not exist are left out.
        """
        return {
            # The client has two forms for a partition without a leader.
            name: {part.id: part.leader is not None and part.leader.id >= 0 for part in topic.partitions}
            for name, topic in self._described(names).items()
        }

    def describe(self, names: Iterable[str]) -> dict[str, TopicFound]:
        """All of `names`.

        Waits up to 2 s for a topic that the broker does not know, because it may be new.

        Raises:
            MissingTopicError: one is not there.
        """
        wanted = sorted(set(names))
        topics = self._find_within(_HEARD_WITHIN_S, wanted)
        missing = [name for name in wanted if name not in topics]
        if missing:
            raise MissingTopicError(
                f"wanted the topic {missing[0]} at {self._connection.bootstrap_servers}, found no such topic; "
                "create it, or correct its name in the configuration"
                + (f" (missing are {', '.join(missing)})" if len(missing) > 1 else "")
            )
        return topics

    def partition_count(self, name: str) -> int:
        """How many partitions the topic has. Raises MissingTopicError."""
        return self.describe([name])[name].partition_count

    def topic_id(self, name: str) -> str:
        """The cluster's id of the topic. Raises MissingTopicError."""
        return self.describe([name])[name].topic_id

    def ensure_topic(self, spec: TopicSpec) -> TopicFound:
        """Create the topic, or check the one that is there.

        Partitions are added to a topic that may grow. A wrong setting may have been corrected just now, so the topic is
        looked at again for up to 2 s.

        Raises:
            TopicPolicyError: it is not as it must be; the text has each setting and the command to mend it.
        """
        if not self.find([spec.name]):
            self._create(spec)
        cluster = self.cluster()
        topic = heard(
            lambda: self._with_settings(self._grown(spec, self._appeared(spec.name))),
            lambda seen: not losing_data(check_topic(spec, seen, cluster)),
        )
        refuse(check_topic(spec, topic, cluster))
        return topic

    def grown_topic(self, spec: TopicSpec) -> TopicFound | None:
        """Add partitions to a topic that may grow, without a check of its settings.

        Returns None if there is no such topic. A missing topic is not created: that would be another topic of the same
        name.
        """
        topic = self.find([spec.name]).get(spec.name)
        return None if topic is None else self._grown(spec, topic)

    def look(self, names: Iterable[str], others: Iterable[str] = ()) -> dict[str, TopicFound]:
        """Those of `names` that exist, with settings, and of `others`, without.

        This user may not be allowed to read the settings of the others.
        """
        asked = set(names)
        topics = self.find({*asked, *others})
        settings = self._settings(sorted(asked & topics.keys()))
        return {name: replace(topic, settings=settings.get(name, {})) for name, topic in topics.items()}

    def alter_settings(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Set a topic's settings.

        None removes a setting, so that the cluster's default holds. Only an operator's command calls this: samzapy
        changes no setting by itself, because an operator may have chosen it.

        Raises:
            SamzapyError: the cluster does not answer, or does not allow it.
        """
        entries = [
            ConfigEntry(
                setting,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for setting, value in sorted(settings.items())
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)

        def ask(timeout_s: float) -> None:
            futures = self._questions.client.incremental_alter_configs([resource], request_timeout=timeout_s)
            for future in futures.values():
                future.result()

        self._questions.ask(f"changing settings of {name}", ask)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until no broker that is asked knows it.

        Only an operator's command calls this.

        Raises:
            TopicPolicyError: the cluster, or the rights of this user, do not allow it.
            DeadlineError: it is still there.
        """

        def ask(timeout_s: float) -> None:
            future = self._questions.client.delete_topics([name], request_timeout=timeout_s)[name]
            try:
                future.result()
            except KafkaException as error:
                code = kafka_error(error).code()
                if code in _NOT_DELETABLE:
                    raise TopicPolicyError(
                        f"wanted to delete the topic {name}, found that the cluster does not let this user: "
                        f"{kafka_error(error).str()}; allow Delete on the topic, and delete.topic.enable of the brokers"
                    ) from error
                # An earlier try has deleted it, and its answer was lost.
                if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

        self._questions.ask(f"deleting the topic {name}", ask)
        started = time.monotonic()
        while name in self.find([name]):
            if time.monotonic() - started >= APPEARS_WITHIN_S:
                raise DeadlineError(
                    f"wanted the topic {name} to be gone within {APPEARS_WITHIN_S:.0f} s, found it still there; the "
                    "cluster may delete it later, so look again"
                )
            time.sleep(_LOOK_AGAIN_S)

    def cluster(self) -> Cluster:
        """The cluster as `model.topic_checks` needs it."""
        return Cluster(bootstrap_servers=self._connection.bootstrap_servers, broker_count=self.broker_count())

    def _create(self, spec: TopicSpec) -> None:
        replication_factor = spec.replication_factor or min(REPLICATION_FACTOR_DEFAULT, self.broker_count())
        settings = {
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": "2" if replication_factor > 2 else "1",
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            **spec.settings,
        }
        new = NewTopic(
            spec.name,
            num_partitions=spec.partition_count,
            replication_factor=replication_factor,
            config=settings,
        )
        doing = (
            f"creating the topic {spec.name} with {spec.partition_count} partitions, replication factor "
            f"{replication_factor} and {settings}"
        )

        def ask(timeout_s: float) -> None:
            future = self._questions.client.create_topics([new], request_timeout=timeout_s)[spec.name]
            try:
                future.result()
            except KafkaException as error:
                # Another process was faster, or the answer to an earlier try was lost.
                if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._questions.ask(doing, ask)

    def _grown(self, spec: TopicSpec, topic: TopicFound) -> TopicFound:
        if not spec.may_grow or topic.partition_count >= spec.partition_count:
            return topic
        self._grow(spec)
        return self._appeared(spec.name, spec.partition_count)

    def _grow(self, spec: TopicSpec) -> None:
        new = NewPartitions(spec.name, spec.partition_count)

        def ask(timeout_s: float) -> None:
            future = self._questions.client.create_partitions([new], request_timeout=timeout_s)[spec.name]
            try:
                future.result()
            except KafkaException as error:
                # Another process was faster, or the answer to an earlier try was lost.
                if kafka_error(error).code() != KafkaError.INVALID_PARTITIONS:
                    raise

        self._questions.ask(f"adding partitions to {spec.name}, up to {spec.partition_count}", ask)

    def _appeared(self, name: str, partition_count: int = 1) -> TopicFound:
        """The topic that the controller has just created.

        Other brokers know it a little later.
        """
        topic = self._find_within(APPEARS_WITHIN_S, [name], partition_count).get(name)
        if topic is None or topic.partition_count < partition_count:
            raise MissingTopicError(
                f"wanted the topic {name}, which was just created with {partition_count} partition(s) or more, found "
                f"that no broker knows it after {APPEARS_WITHIN_S:.0f} s; check that no other program deletes it, "
                "and start again"
            )
        return topic

    def _find_within(self, wait_s: float, names: Sequence[str], partition_count: int = 1) -> dict[str, TopicFound]:
        """Those of `names` that exist.

        Waits up to `wait_s` until all do, with `partition_count` partitions.
        """

        def is_whole(topics: Mapping[str, TopicFound]) -> bool:
            return all(name in topics and topics[name].partition_count >= partition_count for name in names)

        return heard(lambda: self.find(names), is_whole, wait_s)

    def _with_settings(self, topic: TopicFound) -> TopicFound:
        return replace(topic, settings=self._settings([topic.name])[topic.name])

    def _settings(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        if not resources:
            return {}

        def ask(timeout_s: float) -> Mapping[str, Mapping[str, str]]:
            futures = self._questions.client.describe_configs(resources, request_timeout=timeout_s)
            return {
                resource.name: {
                    entry.name: entry.value
                    for entry in _answer(f"reading the settings of {resource.name}", future).values()
                    if entry.value is not None
                }
                for resource, future in futures.items()
            }

        return self._questions.ask(f"reading the settings of {', '.join(names)}", ask)

    def _described(self, names: Iterable[str]) -> dict[str, Any]:
        wanted = sorted(set(names))
        if not wanted:
            return {}

        def ask(timeout_s: float) -> dict[str, Any]:
            futures = self._questions.client.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
            topics = {name: _unless_missing(name, future) for name, future in futures.items()}
            return {name: topic for name, topic in topics.items() if topic is not None}

        return self._questions.ask(f"describing {', '.join(wanted)}", ask)


def heard(look: Callable[[], T], is_right: Callable[[T], bool], within_s: float = _HEARD_WITHIN_S) -> T:
    """The result of `look`, which is repeated for `within_s` until it is right.

    The broker that is asked may not have heard of a topic, or of a change that corrected it.
    """
    started = time.monotonic()
    while True:
        seen = look()
        if is_right(seen) or time.monotonic() - started >= within_s:
            return seen
        time.sleep(_LOOK_AGAIN_S)


def topic_id(connection: KafkaConnection, name: str) -> str:
    """Call `KafkaAdmin.topic_id` on a new connection."""
    return KafkaAdmin(connection).topic_id(name)


def _unless_missing(name: str, future: Future[Any]) -> Any:
    try:
        return _answer(f"describing {name}", future)
    except KafkaException as error:
        if kafka_error(error).code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise


def _answer(doing: str, future: Future[Any]) -> Any:
    """The answer about one of several topics; a refusal names that topic."""
    try:
        return future.result()
    except KafkaException as error:
        if lacks_right(error):
            raise translate(error, doing) from error
        raise


def _topic_found(described: Any) -> TopicFound:
    return TopicFound(
        name=described.name,
        # The client uses plain base64, Kafka and its tools use base64 for URLs.
        topic_id=str(described.topic_id).replace("+", "-").replace("/", "_"),
        partition_count=len(described.partitions),
        replication_factor=min(len(partition.replicas) for partition in described.partitions),
        settings={},
    )

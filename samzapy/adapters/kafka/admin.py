"""Questions about topics, and the creation and checks of samzapy's own topics.

A topic of ours is created with explicit settings. An existing one is refused with a named error unless it is as it must
be (`model.topic_checks`).

A new topic, a new partition or a changed setting reaches the brokers one after another, and each question may go to
another broker. So a broker that does not know a topic is asked again for a bounded time before the topic counts as
missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import kafka_error, refusal, translate
from samzapy.config import MESSAGE_BYTES_MAX
from samzapy.errors import BrokerUnavailableError, ConfigError, MissingTopicError, TemporaryError
from samzapy.model.topic_checks import REPLICATION_FACTOR_DEFAULT, Cluster, TopicFound, check_topic, refuse
from samzapy.model.topics import TopicSpec

T = TypeVar("T")
_ASK_S = (1.5, 3.0, 5.0)
"""How long the first question may take, the second, and each one after. The first may go to a broker that is gone, and
an answer takes milliseconds."""

_LOOK_S = 1.0
_APPEARS_WITHIN_S = 10.0
"""How long a topic that the cluster has may be unknown to the broker that is asked."""

_HEARD_WITHIN_S = 2.0
"""The same, for a topic that may not exist: after a misspelled name, the error takes this long."""


class KafkaAdmin:
    """Questions to a cluster, over a connection that is kept.

    Args:
        deadline_s: how long to go on asking while no broker answers.
    """

    def __init__(self, connection: KafkaConnection, *, deadline_s: float = 15.0) -> None:
        self._connection = connection
        self._deadline_s = deadline_s
        self._admin = Admin(connection)

    def check_reachable(self) -> None:
        """Raise unless a broker answers with these credentials.

        A process calls this at its start: only here a refusal ends it. Later a connection that breaks while it is made
        looks the same, and is retried.

        Raises:
            BrokerUnavailableError: no broker answered; the text has the addresses and the time.
            ConfigError: a broker refused the connection.
        """
        doing = "looking for the cluster"
        self._ask(doing, lambda _: self._admin.client.list_topics(timeout=1.0), is_start=True)

    def topic_names(self) -> frozenset[str]:
        """All topics of the cluster that we may see."""
        metadata = self._ask(
            "listing the topics", lambda timeout_s: self._admin.client.list_topics(timeout=timeout_s)
        )
        return frozenset(metadata.topics)

    def broker_count(self) -> int:
        """How many brokers the cluster has now."""
        metadata = self._ask("counting brokers", lambda timeout_s: self._admin.client.list_topics(timeout=timeout_s))
        return len(metadata.brokers)

    def member_count(self, group: str) -> int:
        """How many members a consumer group has; 0 for an unknown one."""

        def ask(timeout_s: float) -> int:
            future = self._admin.client.describe_consumer_groups([group], request_timeout=timeout_s)[group]
            try:
                return len(future.result().members)
            except KafkaException as error:
                if kafka_error(error).code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return 0
                raise

        return self._ask(f"describing the consumer group {group}", ask)

    def find(self, names: Iterable[str]) -> dict[str, TopicFound]:
        """Those of `names` that exist."""
        return {name: _topic_found(topic) for name, topic in self._described(names).items()}

    def led(self, names: Iterable[str]) -> dict[str, frozenset[int]]:
        """The partitions of `names` that have a leader.

        Topics that do not exist are left out. Only partitions with a leader answer questions.
        """
        return {name: _led(topic) for name, topic in self._described(names).items()}

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

        Partitions are added to a topic that may grow.

        Raises:
            TopicPolicyError: it is not as it must be; the text has each setting and the command to mend it.
        """
        topic = self.find([spec.name]).get(spec.name)
        if topic is None:
            self._create(spec)
            topic = self._appeared(spec.name)
        topic = self._grown(spec, topic)
        topic = replace(topic, settings=self._settings([spec.name])[spec.name])
        refuse(check_topic(spec, topic, self.cluster()))
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
            futures = self._admin.client.incremental_alter_configs([resource], request_timeout=timeout_s)
            for future in futures.values():
                future.result()

        self._ask(f"changing settings of {name}", ask)

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
            future = self._admin.client.create_topics([new], request_timeout=timeout_s)[spec.name]
            try:
                future.result()
            except KafkaException as error:
                # Another process was faster, or the answer to an earlier try was lost.
                if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._ask(doing, ask)

    def _grown(self, spec: TopicSpec, topic: TopicFound) -> TopicFound:
        if not spec.may_grow or topic.partition_count >= spec.partition_count:
            return topic
        self._grow(spec)
        return self._appeared(spec.name, spec.partition_count)

    def _grow(self, spec: TopicSpec) -> None:
        new = NewPartitions(spec.name, spec.partition_count)

        def ask(timeout_s: float) -> None:
            future = self._admin.client.create_partitions([new], request_timeout=timeout_s)[spec.name]
            try:
                future.result()
            except KafkaException as error:
                # Another process was faster, or the answer to an earlier try was lost.
                if kafka_error(error).code() != KafkaError.INVALID_PARTITIONS:
                    raise

        self._ask(f"adding partitions to {spec.name}, up to {spec.partition_count}", ask)

    def _appeared(self, name: str, partition_count: int = 1) -> TopicFound:
        """The topic that the controller has just created.

        Other brokers know it a little later.
        """
        topic = self._find_within(_APPEARS_WITHIN_S, [name], partition_count).get(name)
        if topic is None or topic.partition_count < partition_count:
            raise MissingTopicError(
                f"wanted the topic {name}, which was just created with {partition_count} partition(s) or more, found "
                f"that no broker knows it after {_APPEARS_WITHIN_S:.0f} s; check that no other program deletes it, "
                "and start again"
            )
        return topic

    def _find_within(self, wait_s: float, names: Sequence[str], partition_count: int = 1) -> dict[str, TopicFound]:
        """Those of `names` that exist.

        Waits up to `wait_s` until all do, with `partition_count` partitions.
        """
        started = time.monotonic()
        while True:
            topics = self.find(names)
            is_whole = all(name in topics and topics[name].partition_count >= partition_count for name in names)
            if is_whole or time.monotonic() - started >= wait_s:
                return topics
            time.sleep(0.05)

    def _settings(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        if not resources:
            return {}

        def ask(timeout_s: float) -> Mapping[str, Mapping[str, str]]:
            futures = self._admin.client.describe_configs(resources, request_timeout=timeout_s)
            return {
                resource.name: {
                    entry.name: entry.value for entry in future.result().values() if entry.value is not None
                }
                for resource, future in futures.items()
            }

        return self._ask(f"reading the settings of {', '.join(names)}", ask)

    def _described(self, names: Iterable[str]) -> dict[str, Any]:
        wanted = sorted(set(names))
        if not wanted:
            return {}

        def ask(timeout_s: float) -> dict[str, Any]:
            futures = self._admin.client.describe_topics(TopicCollection(wanted), request_timeout=timeout_s)
            topics = {name: _unless_missing(future) for name, future in futures.items()}
            return {name: topic for name, topic in topics.items() if topic is not None}

        return self._ask(f"describing {', '.join(wanted)}", ask)

    def _ask(self, doing: str, ask: Callable[[float], T], *, is_start: bool = False) -> T:
        """Ask until the deadline, while the error may pass with time.

        At a start a refusal is final. An unknown topic counts as such an error for a while, because the topics asked
        for here were seen before, or just created.
        """
        started = time.monotonic()
        timeouts_s = chain(_ASK_S, repeat(_ASK_S[-1]))
        if not is_start:
            # Events since the last question say nothing about this one. (At a start they are kept: librdkafka repeats
            # an equal event only after 30 s.)
            self._admin.forget()

        def attempt() -> T:
            try:
                return ask(next(timeouts_s))
            except KafkaException as error:
                self._admin.serve()
                if refusal([kafka_error(error)]) is not None:
                    self._admin.events.add(kafka_error(error))
                elif not isinstance(failure := translate(error, doing), TemporaryError):
                    raise failure from error
                reason = refusal(self._admin.events.latest)
                if reason is None:
                    raise translate(error, doing) from error
                kind = ConfigError if is_start else BrokerUnavailableError
                raise kind(f"{doing}: {self._connection.bootstrap_servers} did not let us in: {reason}") from error

        def may_pass(error: BaseException) -> bool:
            is_news = isinstance(error, MissingTopicError) and time.monotonic() - started < _APPEARS_WITHIN_S
            return is_news or isinstance(error, TemporaryError)

        try:
            return Retrying(
                retry=retry_if_exception(may_pass),
                stop=stop_after_delay(self._deadline_s),
                wait=wait_random(0.1, 0.3),
                before_sleep=lambda _: self._refresh_metadata(),
                reraise=True,
            )(attempt)
        except TemporaryError as error:
            raise self._admin.unavailable(time.monotonic() - started, doing) from error

    def _refresh_metadata(self) -> None:
        """Make the client learn the brokers and the controller again.

        By itself it keeps asking the controller that it knows, for minutes, also after that broker was killed.
        """
        with suppress(KafkaException):
            self._admin.client.list_topics(timeout=_LOOK_S)


def topic_id(connection: KafkaConnection, name: str) -> str:
    """Call `KafkaAdmin.topic_id` on a new connection."""
    return KafkaAdmin(connection).topic_id(name)


def _unless_missing(future: Future[Any]) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        if kafka_error(error).code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise


def _led(described: Any) -> frozenset[int]:
    # The client has two forms for a partition without a leader.
    return frozenset(part.id for part in described.partitions if part.leader is not None and part.leader.id >= 0)


def _topic_found(described: Any) -> TopicFound:
    return TopicFound(
        name=described.name,
        # The client uses plain base64, Kafka and its tools use base64 for URLs.
        topic_id=str(described.topic_id).replace("+", "-").replace("/", "_"),
        partition_count=len(described.partitions),
        replication_factor=min(len(partition.replicas) for partition in described.partitions),
        settings={},
    )

"""Topics as the cluster has them: inputs are looked up, samzapy's own are created and checked.

A topic of ours with the wrong settings loses data quietly (the cleanup policy `delete` forgets checkpoints,
a second partition splits the log), so nothing is assumed: it is created with explicit settings, and one that
is there already is refused by name with the command that mends it (law L9). The settings are never changed
here: they may be somebody's decision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget to export them
    ConfigResource,
    NewTopic,
)
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from samzapy.adapters.kafka.clients import Admin, KafkaConnection
from samzapy.adapters.kafka.errors import kafka_error, refusal, translate
from samzapy.errors import ConfigError, MissingTopicError, TemporaryError, TopicPolicyError
from samzapy.model.topics import TopicSpec

REPLICATION_FACTOR_DEFAULT = 3
MESSAGE_BYTES_MIN = 1_000_000
"""A record of ours may be 1 MiB (`stream.codec`); Kafka's default limit is just above that."""

T = TypeVar("T")
_ASK_S = 5.0
_APPEARS_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFound:
    """A topic as the cluster has it. `topic_id` differs when a topic of the same name was made again."""

    name: str
    topic_id: str
    partition_count: int
    replication_factor: int


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
        """Whether a broker answers at all, with these credentials.

        Raises:
            BrokerUnavailableError: none did; says which addresses were tried and for how long.
            ConfigError: one refused us.
        """
        self._ask("looking for the cluster", lambda: self._admin.client.list_topics(timeout=1.0))

    def broker_count(self) -> int:
        """How many brokers the cluster has now."""
        metadata = self._ask("counting brokers", lambda: self._admin.client.list_topics(timeout=_ASK_S))
        return len(metadata.brokers)

    def find(self, names: Iterable[str]) -> dict[str, TopicFound]:
        """Those of `names` that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        doing = f"describing {', '.join(wanted)}"

        def ask() -> dict[str, TopicFound]:
            futures = self._admin.client.describe_topics(TopicCollection(wanted), request_timeout=_ASK_S)
            found = {name: _unless_missing(future) for name, future in futures.items()}
            return {name: _topic_found(topic) for name, topic in found.items() if topic is not None}

        return self._ask(doing, ask)

    def describe(self, names: Iterable[str]) -> dict[str, TopicFound]:
        """All of `names`.

        Raises:
            MissingTopicError: one is not there.
        """
        wanted = sorted(set(names))
        found = self.find(wanted)
        missing = [name for name in wanted if name not in found]
        if missing:
            raise MissingTopicError(
                f"wanted the topic {missing[0]} at {self._connection.bootstrap_servers}, found no such topic; "
                "create it, or correct its name in the configuration"
                + (f" (missing are {', '.join(missing)})" if len(missing) > 1 else "")
            )
        return found

    def partition_count(self, name: str) -> int:
        """Raises MissingTopicError."""
        return self.describe([name])[name].partition_count

    def topic_id(self, name: str) -> str:
        """The cluster's id of the topic. Raises MissingTopicError."""
        return self.describe([name])[name].topic_id

    def ensure_topic(self, spec: TopicSpec) -> TopicFound:
        """Create the topic, or check the one that is there.

        Raises:
            TopicPolicyError: it is there and not as it must be; names the setting and the command to mend it.
        """
        found = self.find([spec.name]).get(spec.name)
        if found is None:
            self._create(spec)
            found = self._appeared(spec.name)
        self.check_topic(spec, found)
        return found

    def check_topic(self, spec: TopicSpec, found: TopicFound) -> None:
        """Raise TopicPolicyError unless the topic keeps its data as `spec` wants it."""
        if found.partition_count != spec.partition_count:
            raise TopicPolicyError(self._wrong_partition_count(spec, found))
        settings = self._settings(spec.name)
        rules: list[tuple[str, str, Callable[[str], bool]]] = [
            *((name, spec.settings[name], spec.settings[name].__eq__) for name in spec.fixed),
            ("unclean.leader.election.enable", "false", "false".__eq__),
            (
                "max.message.bytes",
                f"{MESSAGE_BYTES_MIN} or more",
                lambda value: int(value) >= MESSAGE_BYTES_MIN,
            ),
        ]
        if found.replication_factor > 2:
            # With 1, what is acknowledged by the leader alone is lost with the leader.
            rules.append(("min.insync.replicas", "2 or more", lambda value: int(value) >= 2))
        for name, wanted, holds in rules:
            value = settings.get(name, "")
            if not holds(value):
                raise TopicPolicyError(
                    f"wanted the topic {spec.name} with {name}={wanted}, found {value or 'nothing'}: with that "
                    f"it loses data. Mend it with: kafka-configs.sh --bootstrap-server "
                    f"{self._connection.bootstrap_servers} --alter --entity-type topics --entity-name "
                    f"{spec.name} --add-config {name}={wanted.removesuffix(' or more')}"
                )

    def _wrong_partition_count(self, spec: TopicSpec, found: TopicFound) -> str:
        text = f"wanted the topic {spec.name} with {spec.partition_count} partitions, found {found.partition_count}. "
        if found.partition_count < spec.partition_count:
            return text + (
                f"Mend it with: kafka-topics.sh --bootstrap-server {self._connection.bootstrap_servers} "
                f"--alter --topic {spec.name} --partitions {spec.partition_count}"
            )
        return text + (
            "Partitions cannot be taken away: see whether the topic is this job's, and if it holds nothing that "
            f"is needed, delete it with: kafka-topics.sh --bootstrap-server "
            f"{self._connection.bootstrap_servers} --delete --topic {spec.name}"
        )

    def _create(self, spec: TopicSpec) -> None:
        replication_factor = spec.replication_factor or min(REPLICATION_FACTOR_DEFAULT, self.broker_count())
        settings = {
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": "2" if replication_factor > 2 else "1",
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

        def ask() -> None:
            future = self._admin.client.create_topics([new], request_timeout=_ASK_S)[spec.name]
            try:
                future.result()
            except KafkaException as error:
                # Somebody was faster, or an earlier try of ours did it and its answer was lost.
                if kafka_error(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._ask(doing, ask)

    def _appeared(self, name: str) -> TopicFound:
        """The controller has made it; the broker that is asked may hear of it a little later."""
        started = time.monotonic()
        while True:
            found = self.find([name]).get(name)
            if found is not None:
                return found
            if time.monotonic() - started > _APPEARS_WITHIN_S:
                raise MissingTopicError(
                    f"wanted the topic {name}, which was just created, found that no broker knows it after "
                    f"{_APPEARS_WITHIN_S:.0f} s; see whether somebody deletes it, and start again"
                )
            time.sleep(0.05)

    def _settings(self, name: str) -> Mapping[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)

        def ask() -> Mapping[str, str]:
            entries = self._admin.client.describe_configs([resource], request_timeout=_ASK_S)[resource].result()
            return {entry.name: entry.value for entry in entries.values() if entry.value is not None}

        return self._ask(f"reading the settings of {name}", ask)

    def _ask(self, doing: str, ask: Callable[[], T]) -> T:
        """Ask until the deadline as long as only time can help."""
        started = time.monotonic()

        def attempt() -> T:
            try:
                return ask()
            except KafkaException as error:
                self._admin.serve()
                refused = refusal(self._admin.events.latest)
                if refused is not None:
                    # Waiting does not make a password right.
                    raise ConfigError(
                        f"{doing}: {self._connection.bootstrap_servers} did not let us in: {refused}"
                    ) from error
                raise translate(error, doing) from error

        try:
            return Retrying(
                retry=retry_if_exception_type(TemporaryError),
                stop=stop_after_delay(self._deadline_s),
                wait=wait_random(0.1, 0.3),
                reraise=True,
            )(attempt)
        except TemporaryError as error:
            raise self._admin.unavailable(time.monotonic() - started, doing) from error


def topic_id(connection: KafkaConnection, name: str) -> str:
    """`KafkaAdmin.topic_id` for once."""
    return KafkaAdmin(connection).topic_id(name)


def _unless_missing(future: Future[Any]) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        if kafka_error(error).code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return None
        raise


def _topic_found(described: Any) -> TopicFound:
    return TopicFound(
        name=described.name,
        # The client spells it in plain base64, Kafka and its tools in the one for URLs.
        topic_id=str(described.topic_id).replace("+", "-").replace("/", "_"),
        partition_count=len(described.partitions),
        replication_factor=min(len(partition.replicas) for partition in described.partitions),
    )

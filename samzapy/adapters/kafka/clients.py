"""How a Kafka client is made here: whose addresses and credentials, our settings, and where its log goes.

Settings that data depends on stand beside the code that depends on them (`transactions`, `reading`) and are
put on top of what the operator set; what stands here is common and may be overridden.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from samzapy.adapters.kafka.errors import kafka_error, unavailable
from samzapy.config import MESSAGE_BYTES_MAX, JobConfig, Secret, Text, revealed, without_secrets
from samzapy.errors import ConfigError, SamzapyError

_log = logging.getLogger(__name__)

C = TypeVar("C")
Settings = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """Where the cluster is and how to get in. `properties` are librdkafka's (security.protocol, sasl.*, ssl.*).

    They are not shown: who makes a connection by hand may give a password as a plain text.
    """

    bootstrap_servers: str
    properties: Mapping[str, Text] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, config: JobConfig, bootstrap_servers: str | None = None) -> KafkaConnection:
        """The cluster of a job's default system, or another one that is got into alike."""
        return cls(
            bootstrap_servers=bootstrap_servers or config.bootstrap_servers(config.default_system),
            properties=config.client_properties(config.default_system),
        )

    def settings(self, ours: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None) -> Settings:
        """The whole configuration of a client: common settings and `defaults`, under the operator's, under `ours`.

        librdkafka takes them one by one in this order, so an alias (`compression.codec`) wins over what stands before.
        Secrets are still `Secret`s in it; `make_client` reveals them.
        """
        return {
            "client.id": "samzapy",
            # librdkafka's defaults are 30 s and 10 s: a broker that comes back is noticed too late.
            "socket.connection.setup.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 1_000,
            "socket.keepalive.enable": True,
            # What a topic takes by default. librdkafka's own limit is 1,000,000, less than may come in.
            "message.max.bytes": MESSAGE_BYTES_MAX,
            # Otherwise each client asks the cluster what it may report about itself.
            "enable.metrics.push": False,
            **(defaults or {}),
            **self.properties,
            "bootstrap.servers": self.bootstrap_servers,
            "logger": _QUIET,
            **ours,
        }


class ErrorEvents:
    """The client's error events: how many, and the last ones for the message when waiting is given up."""

    _KEPT_MAX = 20

    def __init__(self) -> None:
        self.count = 0
        self.latest: list[KafkaError] = []

    def add(self, event: KafkaError) -> None:
        """For `error_cb`."""
        self.count += 1
        self.latest = [*self.latest[1 - self._KEPT_MAX :], event]
        _log.debug("Kafka client: %s: %s", event.name(), event.str())


def make_consumer(connection: KafkaConnection, ours: Mapping[str, Any], events: ErrorEvents) -> Consumer:
    """A consumer that commits nothing and creates no topic."""
    return make_client(
        Consumer,
        connection.settings(
            {
                # librdkafka wants a group; with `assign` it is only a name, and nobody joins it.
                "group.id": "samzapy-reader",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "error_cb": events.add,
                **ours,
            }
        ),
    )


def make_client(kind: Callable[[Settings], C], settings: Settings) -> C:
    """A client of any kind.

    Raises:
        ConfigError: the operator's settings hold a name or a value that librdkafka does not take.
    """
    secrets = [value for value in settings.values() if isinstance(value, Secret)]
    try:
        return kind({name: revealed(value) for name, value in settings.items()})
    except KafkaException as error:
        said = without_secrets(kafka_error(error).str(), secrets)
        raise ConfigError(
            f"systems.<system>.client.*: wanted librdkafka's names and values, found what it refuses: {said}; "
            "correct the line, or remove it"
        ) from (None if secrets else error)


class Admin:
    """An `AdminClient` that is kept alive as long as its answers are awaited, and its error events.

    (One that is garbage-collected fails its futures with `_DESTROY`.)
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection
        self.events = ErrorEvents()
        self.client = make_client(
            AdminClient, connection.settings({"allow.auto.create.topics": False, "error_cb": self.events.add})
        )

    def serve(self) -> None:
        """Let the client call back, so that `events` is up to date."""
        self.client.poll(0)

    def forget(self) -> None:
        """Let go of the events so far: of a client that is seldom polled they may be weeks old."""
        self.serve()
        self.events.latest = []

    def unavailable(self, waited_s: float, doing: str) -> SamzapyError:
        """The error for an answer that did not come."""
        self.serve()
        return unavailable(self.connection.bootstrap_servers, waited_s, doing, self.events.latest)


class _QuietLog:
    """Takes librdkafka's log lines at debug level: what matters among them reaches us as errors and events."""

    def log(self, level: int, message: str, *args: object) -> None:
        _log.debug(message, *args)


_QUIET = _QuietLog()

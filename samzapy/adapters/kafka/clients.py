"""Create Kafka clients with addresses, credentials, settings and a log.

Settings that data depends on are beside the code that depends on them (`transactions`, `reading`), and override the
operator's. The settings in this module are common, and the operator may override them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from samzapy.adapters.kafka.broker_wait import CommandWait, QuestionWait
from samzapy.adapters.kafka.errors import kafka_error, unavailable
from samzapy.adapters.kafka.reachable import connections_text
from samzapy.config import MESSAGE_BYTES_MAX, JobConfig, Secret, Text, revealed, without_secrets
from samzapy.errors import ConfigError, SamzapyError

_FLUSH_SLICE_S = 0.1
_log = logging.getLogger(__name__)

C = TypeVar("C")
Settings = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """The address and credentials of a cluster.

    `properties` are librdkafka's (security.protocol, sasl.*, ssl.*). `repr` leaves them out, because they may hold a
    password as plain text.

    Attributes:
        command_wait: how long a command waits for the cluster; None: each question has its own deadline.
    """

    bootstrap_servers: str
    properties: Mapping[str, Text] = field(default_factory=dict, repr=False)
    command_wait: CommandWait | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, config: JobConfig, bootstrap_servers: str | None = None) -> KafkaConnection:
        """The cluster of a job's default system, or another one with the same credentials."""
        return cls(
            bootstrap_servers=bootstrap_servers or config.bootstrap_servers(config.default_system),
            properties=config.client_properties(config.default_system),
        )

    def wait(self, deadline_s: float) -> QuestionWait:
        """The wait of the command; without one, that of a question alone."""
        wait = self.command_wait
        return QuestionWait(deadline_s) if wait is None or wait.is_done else wait

    def unavailable(self, waited_s: float, doing: str, events: Iterable[KafkaError]) -> SamzapyError:
        """The error for an answer that did not come in time.

        A command tries the addresses, a second for each at most. A leader or a container goes on without that.
        """
        if self.command_wait is None:
            return unavailable(self.bootstrap_servers, waited_s, doing, events)
        return unavailable(
            self.bootstrap_servers, waited_s, doing, events, lambda: connections_text(self.bootstrap_servers)
        )

    def settings(self, ours: Mapping[str, Any], *, defaults: Mapping[str, Any] | None = None) -> Settings:
        """The whole configuration of a client.

        It has common settings, `defaults`, the operator's settings, and `ours`. Later ones win. librdkafka takes them
        one by one in this order, so an alias (`compression.codec`) overrides an earlier setting. Secrets are still
        `Secret`s in it; `make_client` reveals them.
        """
        return {
            "client.id": "samzapy",
            # With librdkafka's defaults, 30 s and 10 s, a broker that comes back is noticed too late.
            "socket.connection.setup.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 1_000,
            "socket.keepalive.enable": True,
            # The default of a topic. librdkafka's own limit, 1,000,000, is less than an input may hold.
            "message.max.bytes": MESSAGE_BYTES_MAX,
            # Otherwise each client asks the cluster for a list of metrics to report.
            "enable.metrics.push": False,
            **(defaults or {}),
            **self.properties,
            "bootstrap.servers": self.bootstrap_servers,
            "logger": _QUIET,
            **ours,
        }


class ErrorEvents:
    """The number of a client's error events, and the last ones.

    The last ones are for the text of an error.
    """

    _KEPT_MAX = 20

    def __init__(self) -> None:
        self.count = 0
        self.latest: list[KafkaError] = []

    def add(self, event: KafkaError) -> None:
        """Take an event; this is the client's `error_cb`."""
        self.count += 1
        self.latest = [*self.latest[1 - self._KEPT_MAX :], event]
        _log.debug("Kafka client: %s: %s", event.name(), event.str())


def make_consumer(connection: KafkaConnection, ours: Mapping[str, Any], events: ErrorEvents) -> Consumer:
    """A consumer that commits nothing and creates no topic."""
    return make_client(
        Consumer,
        connection.settings(
            {
                # librdkafka wants a group; with `assign` it is only a name, and no consumer joins it.
                "group.id": "samzapy-reader",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                # A client whose buffer was full looks again after this time. By default that is a second, without a
                # record meanwhile.
                "fetch.queue.backoff.ms": 10,
                "error_cb": events.add,
                **ours,
            }
        ),
    )


def flush(producer: Producer, timeout_s: float) -> int:
    """Wait until a producer has no message left.

    Returns how many it still has after `timeout_s`.

    In short calls, because a call of 200 ms or more goes on with callbacks after a fatal error, while Python's error is
    already set (confluent-kafka 2.16). The call then raises something else, even an object that is no exception and
    that no `except` catches.

    Raises:
        KafkaException: a fatal error.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        remaining_s = deadline_s - time.monotonic()
        left = producer.flush(max(0.0, min(_FLUSH_SLICE_S, remaining_s)))
        if not left or remaining_s <= _FLUSH_SLICE_S:
            return left


def make_client(kind: Callable[[Settings], C], settings: Settings) -> C:
    """A client of any kind.

    Raises:
        ConfigError: the operator's settings hold a name or a value that librdkafka does not take.
    """
    secrets = [value for value in settings.values() if isinstance(value, Secret)]
    try:
        return kind({name: revealed(value) for name, value in settings.items()})
    except KafkaException as error:
        reason = without_secrets(kafka_error(error).str(), secrets)
        raise ConfigError(
            f"systems.<system>.client.*: wanted librdkafka's names and values, found that it refuses: {reason}; "
            "correct the line, or remove it"
        ) from (None if secrets else error)


class Admin:
    """An `AdminClient` and its error events, kept alive until its answers are there.

    (A garbage-collected client fails its futures with `_DESTROY`.)
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection
        self.events = ErrorEvents()
        self.client = make_client(
            AdminClient, connection.settings({"allow.auto.create.topics": False, "error_cb": self.events.add})
        )

    def serve(self) -> None:
        """Run the client's callbacks, so that `events` is up to date."""
        self.client.poll(0)

    def note(self, error: KafkaError) -> None:
        """Keep the error of a question for the text of a later one.

        A broken connection and a time-out are left out: their reasons are error events.
        """
        if error.code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            self.events.add(error)

    def reported(self) -> Sequence[KafkaError]:
        """The last error events, up to now."""
        self.serve()
        return self.events.latest

    def forget(self) -> None:
        """Drop the events so far.

        Those of a client that is seldom polled may be weeks old.
        """
        self.serve()
        self.events.latest = []

    def unavailable(self, waited_s: float, doing: str) -> SamzapyError:
        """The error for an answer that did not come."""
        return self.connection.unavailable(waited_s, doing, self.reported())


class _QuietLog:
    """Writes librdkafka's log lines at debug level.

    The important ones also arrive as errors and events.
    """

    def log(self, level: int, message: str, *args: object) -> None:
        _log.debug(message, *args)


_QUIET = _QuietLog()

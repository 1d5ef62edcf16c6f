"""What is asked of a cluster and how it goes on; what a real one answers is in integration_tests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.errors import BrokerUnavailableError, ConfigError, MissingTopicError

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL handshake failed: Disconnected")
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)


class Client:
    """An admin client that answers what it is told to, and says what happens to its connection when polled.

    Args:
        answers: one per question: an error, after which `events` happened, or None for a list of one broker.
    """

    def __init__(self, *answers: KafkaError | None, events: tuple[KafkaError, ...] = ()) -> None:
        self.tell: Callable[[KafkaError], None] = lambda event: None
        self.waiting: list[KafkaError] = []
        self._answers = list(answers)
        self._events = events

    def list_topics(self, timeout: float) -> Any:
        error = self._answers.pop(0) if self._answers else None
        if error is not None:
            self.waiting.extend(self._events)
            raise KafkaException(error)
        return SimpleNamespace(brokers=["b"])

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        nodes = [SimpleNamespace(id=1), None, SimpleNamespace(id=-1)]
        found = [SimpleNamespace(id=number, replicas=["b"], leader=node) for number, node in enumerate(nodes)]
        return {
            name: answered(SimpleNamespace(name=name, topic_id=name, partitions=found)) for name in topics.topic_names
        }

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        """The owner of a topic whose name begins with `their` has granted nothing but reading."""
        return {
            resource: answered(
                KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
                if resource.name.startswith("their")
                else {"retention.ms": SimpleNamespace(name="retention.ms", value="5")}
            )
            for resource in resources
        }

    def poll(self, timeout: float) -> None:
        while self.waiting:
            self.tell(self.waiting.pop(0))


def answered(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def an_admin(client: Client, *, deadline_s: float = 0.0) -> KafkaAdmin:
    admin = KafkaAdmin(KafkaConnection(bootstrap_servers="127.0.0.1:1"), deadline_s=deadline_s)
    client.tell = admin._admin.events.add
    admin._admin.client = client  # type: ignore[assignment]
    return admin


def test_a_refused_login_ends_a_start() -> None:
    client = Client(TIMED_OUT, None, events=(REFUSED,))

    with pytest.raises(
        ConfigError, match=r"did not let us in: authentication or TLS: SASL .*; see security\.protocol"
    ):
        an_admin(client, deadline_s=60.0).check_reachable()


def test_a_connection_that_broke_while_it_was_made_is_no_wrong_password_later() -> None:
    client = Client(TIMED_OUT, None, events=(REFUSED,))

    assert 1 == an_admin(client, deadline_s=60.0).broker_count()


@pytest.mark.parametrize("client", [Client(TIMED_OUT, events=(REFUSED,)), Client(REFUSED)], ids=["event", "answer"])
def test_a_cluster_that_refuses_the_login_is_named_with_the_reason(client: Client) -> None:
    with pytest.raises(BrokerUnavailableError, match="authentication or TLS: SASL handshake failed"):
        an_admin(client).broker_count()


def test_events_before_a_question_are_not_the_reason_of_its_error() -> None:
    client = Client(TIMED_OUT)
    client.waiting.append(REFUSED)

    with pytest.raises(BrokerUnavailableError, match="see whether the brokers run"):
        an_admin(client).broker_count()


def test_settings_are_read_only_for_our_own_topics() -> None:
    looked = an_admin(Client()).look(["ours"], ["ours", "theirs"])

    assert {"ours": {"retention.ms": "5"}, "theirs": {}} == {name: topic.settings for name, topic in looked.items()}


def test_partitions_without_a_leader_are_left_out() -> None:
    assert {"orders": {0}} == an_admin(Client()).led(["orders"])


UNKNOWN_TOPIC = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class ClusterClient(Client):
    """An admin client of a cluster in which the news of a topic has not reached every broker.

    Args:
        unaware: how many questions about the topic reach a broker that does not know it.
    """

    def __init__(self, unaware: int) -> None:
        super().__init__()
        self._unaware = unaware

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:
        known = super().describe_topics(topics, **options)
        return {name: self._answer(future.result()) for name, future in known.items()}

    def describe_configs(self, resources: Any, **options: Any) -> dict[Any, Future[Any]]:
        known = super().describe_configs(resources, **options)
        return {resource: self._answer(future.result()) for resource, future in known.items()}

    def _answer(self, answer: Any) -> Future[Any]:
        self._unaware -= 1
        return answered(answer if self._unaware < 0 else KafkaException(UNKNOWN_TOPIC))


def test_a_topic_is_described_though_the_first_brokers_asked_do_not_know_it_yet() -> None:
    assert 3 == an_admin(ClusterClient(unaware=3), deadline_s=60.0).partition_count("orders")


def test_settings_are_read_though_the_first_brokers_asked_do_not_know_the_topic_yet() -> None:
    admin = an_admin(ClusterClient(unaware=3), deadline_s=60.0)

    assert {"retention.ms": "5"} == admin._settings(["orders"])["orders"]


def test_settings_of_a_topic_that_no_broker_knows_are_a_missing_topic() -> None:
    with pytest.raises(MissingTopicError, match="reading the settings of orders"):
        an_admin(ClusterClient(unaware=10**6))._settings(["orders"])


class FailoverClient(Client):
    """An admin client whose controller was killed: it learns the new one only from a look at the cluster."""

    knows_the_controller = False

    def list_topics(self, timeout: float) -> Any:
        self.knows_the_controller = True
        return super().list_topics(timeout)

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:
        if self.knows_the_controller:
            return super().describe_topics(topics, **options)
        return dict.fromkeys(topics.topic_names, answered(KafkaException(TIMED_OUT)))


def test_a_question_reaches_the_controller_that_took_over_from_a_killed_one() -> None:
    assert 3 == an_admin(FailoverClient(), deadline_s=3.0).partition_count("orders")

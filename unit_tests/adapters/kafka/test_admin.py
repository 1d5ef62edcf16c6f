"""Questions to a cluster, and the effect of errors.

Answers of a real cluster are in integration_tests.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from samzapy.adapters.kafka.acls import KafkaAcls
from samzapy.adapters.kafka.admin import heard
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.errors import BrokerUnavailableError, ConfigError, MissingTopicError, TopicPolicyError

REFUSED = KafkaError(KafkaError._AUTHENTICATION, "SASL handshake failed: Disconnected")
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)


class Client:
    """An admin client with given answers; it reports its events when it is polled.

    Args:
        answers: one per question: an error, after which `events` happened, or None for a list of one broker.
    """

    def __init__(self, *answers: KafkaError | None, events: tuple[KafkaError, ...] = ()) -> None:
        self.report_event: Callable[[KafkaError], None] = lambda event: None
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
        partitions = [SimpleNamespace(id=number, replicas=["b"], leader=node) for number, node in enumerate(nodes)]
        return {
            name: future_of(SimpleNamespace(name=name, topic_id=name, partitions=partitions))
            for name in topics.topic_names
        }

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Future[Any]]:
        """The owner of a topic `their...` has granted the right to read, and no other."""
        return {
            resource: future_of(
                KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
                if resource.name.startswith("their")
                else {"retention.ms": SimpleNamespace(name="retention.ms", value="5")}
            )
            for resource in resources
        }

    def poll(self, timeout: float) -> None:
        while self.waiting:
            self.report_event(self.waiting.pop(0))


def future_of(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def an_admin(client: Client, *, deadline_s: float = 0.0) -> KafkaAcls:
    admin = KafkaAcls(KafkaConnection(bootstrap_servers="127.0.0.1:1"), deadline_s=deadline_s)
    client.report_event = admin._questions.admin.events.add
    admin._questions.admin.client = client  # type: ignore[assignment]
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


class GuardedClient(Client):
    """An admin client that may see and read the topics whose names begin with `our`."""

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:
        refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
        known = super().describe_topics(topics, **options)
        return {name: future if name.startswith("our") else future_of(refused) for name, future in known.items()}

    def describe_cluster(self, **_: Any) -> Future[Any]:
        return future_of(SimpleNamespace(authorized_operations=[]))

    def describe_acls(self, *_: Any, **__: Any) -> Future[Any]:
        """The client answers a refused question so."""
        return future_of([])


def test_a_refused_question_names_the_one_topic_that_it_is_refused_for() -> None:
    with pytest.raises(ConfigError, match=r"^describing secret: .*lacks a right on the topic.*samzapy acl"):
        an_admin(GuardedClient()).find(["ours", "secret"])
    with pytest.raises(ConfigError, match=r"^reading the settings of theirs: .*samzapy acl"):
        an_admin(Client()).look(["ours", "theirs"])


def test_acls_that_may_not_be_read_are_refused_and_not_empty() -> None:
    with pytest.raises(ConfigError, match="reading the ACLs of the cluster: .*lacks a right on the cluster"):
        an_admin(GuardedClient()).acls()


UNKNOWN_TOPIC = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


class ClusterClient(Client):
    """An admin client of a cluster where not every broker knows a new topic yet.

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
        return future_of(answer if self._unaware < 0 else KafkaException(UNKNOWN_TOPIC))


def test_a_topic_is_described_though_the_first_brokers_asked_do_not_know_it_yet() -> None:
    assert 3 == an_admin(ClusterClient(unaware=3), deadline_s=60.0).partition_count("orders")


def test_settings_are_read_though_the_first_brokers_asked_do_not_know_the_topic_yet() -> None:
    admin = an_admin(ClusterClient(unaware=3), deadline_s=60.0)

    assert {"retention.ms": "5"} == admin._settings(["orders"])["orders"]


def test_settings_of_a_topic_that_no_broker_knows_are_a_missing_topic() -> None:
    with pytest.raises(MissingTopicError, match="reading the settings of orders"):
        an_admin(ClusterClient(unaware=10**6))._settings(["orders"])


class DeletingClient(Client):
    """An admin client that deletes a topic, or fails, and then knows it for a while.

    The topic is still there in the answers to some more questions.
    """

    def __init__(self, answer: int | None, known_for: int) -> None:
        super().__init__()
        self.deleted: list[str] = []
        self._answer = answer
        self._known_for = known_for

    def delete_topics(self, names: Any, **_: Any) -> dict[str, Future[Any]]:
        self.deleted += names
        error = None if self._answer is None else KafkaException(KafkaError(self._answer))
        return dict.fromkeys(names, future_of(error))

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:
        if self._known_for:
            self._known_for -= 1
            return super().describe_topics(topics, **options)
        return dict.fromkeys(topics.topic_names, future_of(KafkaException(UNKNOWN_TOPIC)))


@pytest.mark.parametrize("answer", [None, KafkaError.UNKNOWN_TOPIC_OR_PART], ids=["first try", "second try"])
def test_a_topic_is_deleted_once_no_broker_knows_it_any_more(answer: int | None) -> None:
    client = DeletingClient(answer, known_for=2)

    an_admin(client).delete_topic("orders")

    assert ["orders"] == client.deleted
    assert {} == an_admin(client).find(["orders"])


def test_a_topic_that_the_cluster_does_not_release_is_named_with_the_right() -> None:
    client = DeletingClient(KafkaError.TOPIC_AUTHORIZATION_FAILED, known_for=9)

    with pytest.raises(TopicPolicyError, match="wanted to delete the topic orders, .* allow Delete on the topic"):
        an_admin(client).delete_topic("orders")


class FailoverClient(Client):
    """An admin client whose controller was killed.

    It learns the new controller only from a look at the cluster.
    """

    knows_the_controller = False

    def list_topics(self, timeout: float) -> Any:
        self.knows_the_controller = True
        return super().list_topics(timeout)

    def describe_topics(self, topics: Any, **options: Any) -> dict[str, Future[Any]]:
        if self.knows_the_controller:
            return super().describe_topics(topics, **options)
        return dict.fromkeys(topics.topic_names, future_of(KafkaException(TIMED_OUT)))


def test_a_question_reaches_the_controller_that_took_over_from_a_killed_one() -> None:
    assert 3 == an_admin(FailoverClient(), deadline_s=60.0).partition_count("orders")


def test_a_look_is_repeated_until_it_is_right_for_a_bounded_time() -> None:
    looks = iter(range(10))

    assert 3 == heard(lambda: next(looks), lambda seen: seen == 3)
    assert 4 == heard(lambda: next(looks), lambda seen: False, within_s=0)

"""Requests to a consumer group's coordinator while the broker does not answer.

librdkafka ends the process when such a request of its admin client times out. Each test has a process of its own, so
that it reports that end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ListConsumerGroupsResult

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.groups import delete_groups
from samzapy.adapters.kafka.lag_group import KafkaLagGroup
from samzapy.errors import SamzapyError
from samzapy.model.ssp import SystemStreamPartition
from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics
from samzapy.testing.waiting import wait_until

GROUP, TOPIC = "samzapy-flights-1", "flights"
PLACE = SystemStreamPartition("kafka", TOPIC, 0)
ROUNDS = 3


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    with DevBroker(tmp_path_factory.mktemp("broker")) as broker:
        make_topics(broker.bootstrap_servers, {TOPIC: 1})
        wait_until(lambda: knows_groups(broker), 120, "the topic of group positions")
        yield broker


def knows_groups(broker: DevBroker) -> bool:
    """Whether the broker answers for a group; the first such request creates a topic."""
    try:
        return KafkaAdmin(_connection(broker.directory), deadline_s=10).member_count(GROUP) == 0
    except SamzapyError:
        return False


def outcomes(act: Callable[[], object], directory: Path) -> list[str]:
    """The outcomes of an act before, during and after a pause of the broker.

    On a busy machine a broker that goes on may answer late, so an act is repeated until it has an answer.
    """
    broker, results = DevBroker(directory), []

    def result() -> str:
        try:
            return f"answer {act()}"
        except SamzapyError as error:
            return type(error).__name__

    def answer_or_none() -> str | None:
        text = result()
        return text if text.startswith("answer") else None

    def answer() -> str:
        return wait_until(answer_or_none, 120, "an answer")

    for _ in range(ROUNDS):
        results.append(answer())
        broker.pause()
        try:
            results.append(result())
        finally:
            broker.resume()
    return [*results, answer()]


def commit(directory: Path) -> list[str]:
    group = KafkaLagGroup(_connection(directory), GROUP)
    numbers = iter(range(100))
    return outcomes(lambda: group.commit({PLACE: next(numbers)}), directory)


def count_members(directory: Path) -> list[str]:
    admin = KafkaAdmin(_connection(directory), deadline_s=3)
    return outcomes(lambda: admin.member_count(GROUP), directory)


def delete(directory: Path) -> list[str]:
    connection = _connection(directory)
    return outcomes(lambda: delete_groups(connection, [GROUP]), directory)


def _connection(directory: Path) -> KafkaConnection:
    return KafkaConnection(bootstrap_servers=DevBroker(directory).bootstrap_servers)


def in_own_process(act: Callable[[Path], list[str]], broker: DevBroker) -> list[str]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(act, broker.directory).result(240)


@pytest.mark.timeout(900)
def test_positions_are_committed_again_after_a_broker_did_not_answer(own_broker: DevBroker) -> None:
    assert ["answer None", "BrokerUnavailableError"] * ROUNDS + ["answer None"] == in_own_process(commit, own_broker)


@pytest.mark.timeout(900)
def test_members_are_counted_again_after_a_broker_did_not_answer(own_broker: DevBroker) -> None:
    assert ["answer 0", "BrokerUnavailableError"] * ROUNDS + ["answer 0"] == in_own_process(count_members, own_broker)


@pytest.mark.timeout(900)
def test_groups_are_deleted_again_after_a_broker_did_not_answer(own_broker: DevBroker) -> None:
    results = in_own_process(delete, own_broker)

    assert ["answer None", "BrokerUnavailableError"] * ROUNDS + ["answer None"] == results
    listed = wait_until(lambda: list_groups(own_broker), 120, "a list of groups")
    assert GROUP not in [group.group_id for group in listed.valid]


def list_groups(broker: DevBroker) -> ListConsumerGroupsResult | None:
    """The broker's groups, or None while it does not answer."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    try:
        listed = client.list_consumer_groups(request_timeout=10).result()
    except KafkaException:
        return None
    return None if listed.errors else listed

"""Brokers for the stories: one for the whole session, and one for a test that kills or pauses its own.

`scripts/test` runs three files at a time, each with its own session: most of these tests wait.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from integration_tests import quick_java
from samzapy.testing.broker import ContainerBroker, DevBroker, docker_trouble, wants_containers
from samzapy.testing.broker_cluster import DevCluster

LONGEST_FIRST = (
    "test_crash_points_of_the_commit_path.py",
    "test_a_job_on_a_spark_cluster_survives_faults.py",
    "test_a_job_is_scaled_while_it_runs.py",
    "test_no_record_is_lost_or_doubled_under_kills.py",
    "test_simulation.py",
    "test_simulation_of_odd_seeds.py",
    "test_the_demo_checks_every_aircraft.py",
    "test_processors_come_and_go.py",
    "test_a_coordinator_starts_its_containers.py",
    "test_odd_messages_and_stops.py",
    "test_simulation_kills_mutants.py",
    "test_stops_by_name.py",
    "test_inputs_meet_in_one_task.py",
    "test_a_table_is_joined.py",
    "test_a_second_step_by_another_key.py",
    "test_a_task_is_rewound_while_it_runs.py",
    "test_a_topic_of_a_pattern_is_deleted_and_made_again.py",
    "test_one_leader_any_number_of_candidates.py",
    "test_spark_standalone_runs_containers.py",
    "test_a_job_is_given_back_to_release_0_1_0.py",
    "test_dev_broker.py",
    "test_operators_ask_by_a_topic.py",
    "test_containers_keep_their_contract.py",
    "test_a_delayed_end_of_transaction_tears_nothing.py",
    "test_kafka_log_keeps_the_contract.py",
)
"""Files of more than a minute. One of them begun last would leave the other process without work."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Who is started in the background of a script ignores Ctrl-C, and so does whatever it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in quick_java.environment().items():
            environment.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def _docker(request: pytest.FixtureRequest) -> None:
    """Skip what is marked `docker` where there is none."""
    if request.node.get_closest_marker("docker") and (trouble := docker_trouble()) is not None:
        pytest.skip(trouble)


@pytest.fixture(scope="session")
def broker() -> Iterator[DevBroker | ContainerBroker]:
    """A broker that all tests share: use topics and ids of your own, and leave it running."""
    with ContainerBroker() if wants_containers() else DevBroker() as running:
        yield running


@pytest.fixture
def own_broker() -> Iterator[DevBroker]:
    """A broker for this test alone, which may kill, pause and restart it."""
    if wants_containers():
        pytest.skip("kills or pauses its broker, which one in a container cannot do: needs the local broker")
    with DevBroker() as running:
        yield running


@pytest.fixture
def own_cluster() -> Iterator[DevCluster]:
    """Three brokers for this test alone: three replicas, of which two must be in sync."""
    if wants_containers():
        pytest.skip("kills its brokers, which one in a container cannot do: needs the local broker")
    with DevCluster() as running:
        yield running

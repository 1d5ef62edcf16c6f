"""Brokers for the tests: one for the session, others for tests that kill them.

`scripts/test` runs three files at a time, each with its own session: most of these tests wait.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests import quick_java
from integration_tests.bad_input.kit import WarmSpark
from samzapy.testing.broker import DevBroker
from samzapy.testing.broker_cluster import DevCluster
from samzapy.testing.container_broker import ContainerBroker, docker_trouble, wants_containers


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Background processes of a script ignore Ctrl-C, and so do their children."""
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
    """Skip tests marked `docker` where there is no Docker."""
    if request.node.get_closest_marker("docker") and (trouble := docker_trouble()) is not None:
        pytest.skip(trouble)


@pytest.fixture(scope="session")
def broker() -> Iterator[DevBroker | ContainerBroker]:
    """A broker that all tests share: use own topics and ids, and leave it running."""
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
def own_cluster(request: pytest.FixtureRequest) -> DevCluster:
    """The plugin's cluster for this test alone; brokers in containers skip it."""
    if wants_containers():
        pytest.skip("kills its brokers, which one in a container cannot do: needs the local broker")
    cluster: DevCluster = request.getfixturevalue("dev_cluster")
    return cluster


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[WarmSpark]:
    """A JVM with Spark for the jobs of this test alone."""
    warm = WarmSpark(tmp_path)
    yield warm
    warm.close()

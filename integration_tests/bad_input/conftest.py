"""A cluster with topics of each module, and a JVM with Spark for the jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.bad_input.kit import Cluster, WarmSpark
from samzapy.testing.broker import DevBroker
from samzapy.testing.container_broker import ContainerBroker


@pytest.fixture(scope="module")
def cluster(broker: DevBroker | ContainerBroker) -> Cluster:
    return Cluster(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmSpark]:
    warm = WarmSpark(tmp_path_factory.mktemp("spark"))
    yield warm
    warm.close()

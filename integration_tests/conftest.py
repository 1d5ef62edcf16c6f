"""Brokers for the stories: one for the whole session, and one for a test that kills or pauses its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from samzapy.testing.broker import ContainerBroker, DevBroker, wants_containers


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

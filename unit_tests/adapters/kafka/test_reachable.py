from __future__ import annotations

import socket

import pytest

from samzapy.adapters.kafka.reachable import connections_text
from samzapy.testing.ports import LOOPBACK, free_port


def test_a_port_without_a_listener_refuses_connections() -> None:
    port = free_port()

    assert f"{LOOPBACK}:{port} refuses connections." == connections_text(f"{LOOPBACK}:{port}")


def test_a_listener_that_hangs_accepts_connections() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]

        assert f"{LOOPBACK}:{port} accepts connections, and does not answer." == connections_text(
            f"{LOOPBACK}:{port}"
        )


@pytest.mark.parametrize("address", ["no-port", "name.invalid:9092", ":9092x"])
def test_an_address_that_leads_nowhere_cannot_be_reached(address: str) -> None:
    assert connections_text(address).startswith(f"{address} cannot be reached: ")


def test_at_most_three_addresses_are_tried() -> None:
    address = f"{LOOPBACK}:{free_port()}"

    assert 3 == connections_text(", ".join([address] * 5)).count("refuses")


def test_no_address_gives_no_text() -> None:
    assert "" == connections_text(" , ")

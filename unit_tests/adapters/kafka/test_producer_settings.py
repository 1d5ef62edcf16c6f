"""Whose setting of a producer counts."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.transactions import producer_settings
from samzapy.config import CLIENT_PROPERTIES_REFUSED


def settings_with(**properties: str) -> dict[str, Any]:
    connection = KafkaConnection(
        bootstrap_servers="127.0.0.1:1",
        properties={name.replace("_", "."): value for name, value in properties.items()},
    )
    return dict(producer_settings(connection, "samzapy/flights-1/e1/0", 20_000, {}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compression.type", "zstd"),
        ("linger.ms", "50"),
        ("batch.size", "1000"),
        ("batch.num.messages", "7"),
        ("queue.buffering.max.messages", "9"),
        ("queue.buffering.max.kbytes", "2048"),
        ("message.max.bytes", "2000000"),
        ("client.id", "mine"),
    ],
)
def test_the_operators_settings_override_our_defaults(name: str, value: str) -> None:
    assert value != settings_with()[name]

    assert value == settings_with(**{name: value})[name]


def test_an_alias_comes_after_our_default_so_that_it_counts() -> None:
    names = list(settings_with(compression_codec="zstd"))

    assert names.index("compression.type") < names.index("compression.codec")


def test_settings_that_exactly_once_rests_on_cannot_be_configured() -> None:
    ours = {
        "transactional.id": "samzapy/flights-1/e1/0",
        "transaction.timeout.ms": 20_000,
        "enable.idempotence": True,
        "acks": "all",
        "partitioner": "murmur2_random",
        "retry.backoff.ms": 250,
        "statistics.interval.ms": 500,
    }
    settings = settings_with(**dict.fromkeys(ours, "1"))

    assert ours == {name: settings[name] for name in ours}
    assert ours.keys() <= set(CLIENT_PROPERTIES_REFUSED)


def test_librdkafka_accepts_all_producer_settings() -> None:
    settings = settings_with(compression_codec="zstd", linger_ms="50")

    Producer({name: value for name, value in settings.items() if name != "logger"}).close()

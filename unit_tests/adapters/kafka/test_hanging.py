"""The topics in which a transaction of a worker may hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError

from samzapy.adapters.kafka import hanging
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.errors import translate
from samzapy.adapters.kafka.hanging import WrittenTopics, places_that_hang, written_by_workers
from samzapy.errors import ConfigError
from samzapy.testing.builders import a_config

CONFIG = a_config(
    task_inputs="kafka.orders",
    systems_kafka_streams_totals_samza_msg_serde="json",
    systems_kafka_streams_orders_samza_msg_serde="json",
)


def test_topics_that_each_host_knows_are_not_named() -> None:
    """Nor is an input: its other readers would see a record that is aborted there."""
    known = written_by_workers(CONFIG)

    assert ["sums", "alerts"] == known.unknown_of(
        ["totals", "sums", "orders", "__samzapy-checkpoint-flights-1", "alerts"]
    )


NOWHERE = KafkaConnection(bootstrap_servers="127.0.0.1:1")
PLACES = {"own": 2, "sums": 1, "forbidden": 1}


class Topics:
    """Topics of one or two partitions, one of which this user may not see."""

    def __init__(self, *_: Any) -> None:
        pass

    def partitions(self, names: Iterable[str]) -> Mapping[str, Mapping[int, bool]]:
        wanted = sorted(names)
        if "forbidden" in wanted:
            raise translate(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), "describing forbidden")
        return {name: dict.fromkeys(range(PLACES[name]), True) for name in wanted}


@pytest.fixture
def transactions_open_in_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    def end_offsets(_: Any, places: Iterable[tuple[str, int]], isolation: Any, *__: Any) -> Mapping[Any, int]:
        return dict.fromkeys(places, 5 if isolation is IsolationLevel.READ_COMMITTED else 7)

    monkeypatch.setattr(hanging, "KafkaAdmin", Topics)
    monkeypatch.setattr(hanging, "end_offsets", end_offsets)
    monkeypatch.setattr(hanging, "_MOVES_WITHIN_S", 0.0)


@pytest.mark.usefixtures("transactions_open_in_all_partitions")
def test_an_output_that_this_user_may_not_see_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The job may have sent there before the topic was deleted."""
    written = WrittenTopics(own=["own"], outputs=lambda: ["sums", "forbidden"])

    places = places_that_hang(NOWHERE, written)

    assert [("own", 0), ("own", 1), ("sums", 0)] == sorted(places)
    (record,) = caplog.records
    assert "in the output forbidden: describing forbidden: Kafka answered TOPIC_AUTH" in record.getMessage()


@pytest.mark.usefixtures("transactions_open_in_all_partitions")
def test_a_topic_of_samzapy_that_this_user_may_not_see_is_an_error() -> None:
    with pytest.raises(ConfigError, match="describing forbidden"):
        places_that_hang(NOWHERE, WrittenTopics(own=["own", "forbidden"], outputs=lambda: ["sums"]))

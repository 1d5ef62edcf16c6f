"""What of a transactional producer needs no broker; the rest is in integration_tests."""

from __future__ import annotations

import pytest

from samzapy.adapters.kafka import transactions
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.transactions import TransactionalProducer
from samzapy.stream.end_txn_plug import ConnectionCounters
from samzapy.testing.waiting import wait_until

NOWHERE = KafkaConnection(bootstrap_servers="127.0.0.1:1")


def test_whoever_is_served_keeps_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def parse(text: str) -> ConnectionCounters:
        told.append(text)
        return ConnectionCounters()

    monkeypatch.setattr(transactions, "parse_counters", parse)
    producer = TransactionalProducer(NOWHERE, "flights-1/w")

    def is_told() -> bool:
        producer.serve()
        return bool(told)

    wait_until(is_told, 30.0, "the first statistics")
    producer.close()
    producer.serve()

"""A candidate's round, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from samzapy.adapters.kafka import log, placement
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.cli.coordination import Coordination, Here
from samzapy.testing.builders import a_config


class Producer:
    """Owns its id at once, and counts how often it was served."""

    made: list[Producer]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.served = 0
        self.made.append(self)

    def take_over(self, deadline_s: float) -> None:
        pass

    def serve(self) -> None:
        self.served += 1


class Candidate:
    """One whose round is quiet."""

    def run_once(self, timeout_ms: int) -> None:
        pass


def test_each_round_serves_the_producers_that_are_there_whoever_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    Producer.made = []
    for module in (log, placement):
        monkeypatch.setattr(module, "TransactionalProducer", Producer)
    coordination = Coordination(
        a_config(),
        Here(host="a", boot_id="b", pid=1, process_started_ms=1),
        KafkaConnection(bootstrap_servers="127.0.0.1:1"),
        submission=lambda: pytest.fail("nothing is handed in"),
        on_end=lambda reason: None,
        leader=lambda: None,
    )
    candidate: Any = Candidate()
    coordination._one_round(candidate, 0)
    coordination._log.take_over()
    coordination._answers.own()

    coordination._one_round(candidate, 0)
    coordination._one_round(candidate, 0)

    assert [2, 2] == [producer.served for producer in Producer.made]

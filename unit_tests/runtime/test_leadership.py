"""A candidate's round, without a cluster."""

from __future__ import annotations

from typing import Any

import pytest

from samzapy.adapters.kafka import log, placement
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.runtime.leadership import Coordination
from samzapy.runtime.this_host import Here
from samzapy.testing.builders import a_config, a_heartbeat, a_submission
from unit_tests.fixtures.coordinator_world import World


class Producer:
    """Owns its id at once, and counts how often it was served."""

    made: list[Producer]
    must_be_renewed = False

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


def a_coordination() -> Coordination:
    return Coordination(
        a_config(),
        Here(host="a", boot_id="b", pid=1, process_started_ms=1),
        KafkaConnection(bootstrap_servers="127.0.0.1:1"),
        submission=lambda state: pytest.fail("nothing is handed in"),
        on_end=lambda reason: None,
        leader=lambda: None,
    )


def test_each_round_polls_the_existing_producers_of_leaders_and_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    Producer.made = []
    for module in (log, placement):
        monkeypatch.setattr(module, "TransactionalProducer", Producer)
    coordination = a_coordination()
    candidate: Any = Candidate()
    coordination._one_round(candidate, 0)
    coordination._log.take_over()
    coordination._answers.acquire()

    coordination._one_round(candidate, 0)
    coordination._one_round(candidate, 0)

    assert [2, 2] == [producer.served for producer in Producer.made]


def test_a_leader_watches_its_internal_topics_and_its_inputs() -> None:
    world: Any = World()  # type: ignore[no-untyped-call]
    service = world.coordinator()
    coordination = a_coordination()
    coordination._service = service
    before = coordination._sources.own_topics(), coordination._sources.input_topics(["orders"])
    service.become_leader()
    service.submit(a_submission(partition_counts={"kafka.orders": 2}))
    world.queue.append(a_heartbeat())
    service.run_once(0)

    own = coordination._sources.own_topics()

    assert ((), ()) == before
    assert "__samzapy-checkpoint-flights-1" in own
    assert "orders" not in own
    assert "orders" in coordination._sources.input_topics([])

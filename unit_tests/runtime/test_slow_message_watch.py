"""Which message is noted as slow, and when the note goes."""

from __future__ import annotations

from pathlib import Path

from samzapy.adapters.spark.slots import DriverSlots, LeaseFile, WorkerSlots
from samzapy.model.slow_message import SLOW_MS
from samzapy.runtime.slow_message_watch import SlowMessageWatch

NEVER_S = 1e9


class Worker:
    """A worker in a slot, whose thread looks when the test asks for it."""

    def __init__(self, directory: Path) -> None:
        self.driver = DriverSlots(directory, 1)
        self.driver.take_all(0)
        self.driver.admit(3)
        LeaseFile(directory)
        self.in_hand: tuple[int, int] | None = None
        self.now_ms = 100
        self.watch = SlowMessageWatch(lambda: self.in_hand, lambda: self.now_ms, NEVER_S)
        slots = WorkerSlots[object](
            directory, 1, make_producer=lambda slot: None, must_renew=lambda _: False, close=lambda _: None
        )
        self.slot = slots.take(3, 1.0)
        self.watch.begin(self.slot)

    def looks(self, after_ms: int) -> object:
        self.now_ms += after_ms
        self.watch.look()
        return self.driver.slow_messages(3)


def test_a_message_that_stays_in_hand_is_noted_with_the_time_of_the_first_look(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.in_hand = (1, 42)

    assert worker.looks(0) == []
    assert worker.looks(SLOW_MS - 1) == []
    assert worker.looks(1) == [(1, 42, 100)]
    assert worker.driver.slow_messages(4) == []


def test_the_note_is_removed_with_the_next_message(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.in_hand = (1, 42)
    worker.looks(0)
    worker.looks(SLOW_MS)

    worker.in_hand = (1, 43)
    assert worker.looks(0) == []


def test_the_note_is_removed_when_the_worker_leaves_its_slot(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.in_hand = (1, 42)
    worker.looks(0)
    worker.looks(SLOW_MS)

    worker.watch.end()

    assert worker.looks(SLOW_MS) == []


def test_nothing_is_noted_between_messages(tmp_path: Path) -> None:
    worker = Worker(tmp_path)

    worker.looks(0)
    assert worker.looks(SLOW_MS) == []

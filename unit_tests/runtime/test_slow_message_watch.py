"""Which message is noted as slow, and when the note goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from samzapy.adapters.spark.slots import DriverSlots, LeaseFile, WorkerSlots
from samzapy.adapters.spark.so_far_file import SoFarFile
from samzapy.container.task.so_far import SoFar
from samzapy.errors import SamzapyError
from samzapy.model.slow_message import SLOW_MS
from samzapy.model.task_stats import KeySketch, TaskStats
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
        self.costs: Sequence[SoFar] = ()
        self.watch = SlowMessageWatch(lambda: self.in_hand, lambda: self.now_ms, NEVER_S, lambda: self.costs)
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


def test_costs_are_noted_while_a_message_is_in_hand_and_taken_back_before_their_report(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.costs = (SoFar(route=1, elapsed_ns=5, stats=TaskStats(busy_ns=4, keys=KeySketch(2, {"k": 2}))),)
    worker.looks(0)
    assert [] == worker.driver.so_far(3)

    worker.in_hand = (1, 42)
    worker.looks(0)
    assert [*worker.costs] == worker.driver.so_far(3)
    assert [] == worker.driver.so_far(4)

    worker.watch.report()
    assert [] == worker.driver.so_far(3)


def test_costs_are_taken_back_when_the_worker_leaves_its_slot(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    worker.costs = (SoFar(route=1, elapsed_ns=5, stats=TaskStats(busy_ns=4)),)
    worker.in_hand = (1, 42)
    worker.looks(0)

    worker.watch.end()

    assert [] == worker.driver.so_far(3)


@pytest.mark.parametrize(
    "raw", [b"{}", b"\xff", b'{"query": 3, "noted": [{"route": 0, "elapsed_ns": 1, "stats": {"keys": 1}}]}']
)
def test_a_file_with_other_bytes_than_costs_is_refused_by_name_and_left_out_by_the_driver(
    tmp_path: Path, raw: bytes
) -> None:
    worker = Worker(tmp_path)
    with pytest.raises(SamzapyError, match="so-far-slot-0: wanted"):
        SoFarFile(tmp_path / "slot-0").decoded(raw, 3)

    (tmp_path / "so-far-slot-0").write_bytes(raw)
    assert [] == worker.driver.so_far(3)


def test_costs_are_left_out_where_they_cannot_be_written(tmp_path: Path) -> None:
    """The thread that notes them also notes slow messages."""
    file = SoFarFile(tmp_path / "no directory" / "slot-0")

    file.write(3, [])

    assert () == file.read(3)

"""The runtime without one safeguard: a test that passes with it proves nothing.

The job under test loads this, in the driver and in each worker, when SAMZAPY_TEST=1 and SAMZAPY_TEST_MUTANT names one.
Each mutant replaces one function of the runtime by that function without the safeguard.
"""

from __future__ import annotations

import os
import re
import signal
import time
from inspect import signature
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, Producer

_installed = False


def install(name: str) -> None:
    """Take the safeguard out, once per process."""
    global _installed
    if not _installed:
        MUTANTS[name]()
        _installed = True


def without_catching_up() -> None:
    """A kept local store counts as complete; later changelog records are not applied."""
    from samzapy.container.local_state import restore

    apply = restore._Restore._apply_store
    place = list(signature(apply).parameters).index("offsets")

    def apply_to_fresh_ones_only(*given: Any) -> Any:
        return (given[place].start, None) if given[place].start else apply(*given)

    restore._Restore._apply_store = apply_to_fresh_ones_only


def without_transactions() -> None:
    """Workers write without transactions over outputs, changelog and checkpoint."""
    from samzapy.adapters.kafka import transactions

    class AtOnce(Producer):  # type: ignore[misc]
        def __new__(cls, settings: dict[str, Any]) -> Any:
            of_worker = re.fullmatch(r"samzapy/.*/\d+", settings["transactional.id"])
            return super().__new__(cls) if of_worker else Producer(settings)

        def __init__(self, settings: dict[str, Any]) -> None:
            kept = {name: value for name, value in settings.items() if not name.startswith("transaction")}
            super().__init__(kept)

        def init_transactions(self, *_: Any) -> None:
            pass

        def begin_transaction(self, *_: Any) -> None:
            pass

        def commit_transaction(self, *_: Any) -> None:
            self.flush()

        def abort_transaction(self, *_: Any) -> None:
            self.flush()

    transactions.Producer = AtOnce


def without_reading_to_the_end() -> None:
    """The end of a topic is its stable end, although open transactions hide more."""
    from samzapy.adapters.kafka import reading

    def last_stable_offset(self: Any, deadline_s: float = reading.DEADLINE_S) -> int:
        where = (self.topic, self.partition)
        offsets = reading.end_offsets(self._connection, [where], IsolationLevel.READ_COMMITTED, deadline_s)
        return offsets[where]

    reading.PartitionReader.end_offset = last_stable_offset


def replaying_before_fencing() -> None:
    """Positions are read first and the lost execution is fenced afterwards.

    Between the two it waits, as on a busy machine: it makes the file of SAMZAPY_TEST_GAP and continues after
    the file is deleted.
    """
    from samzapy.adapters.kafka import positions

    fence, read = positions.KafkaFence.fence, positions.KafkaPositions.read
    deferred: list[tuple[Any, ...]] = []

    def fence_later(self: Any, *asked: Any) -> None:
        deferred.append((self, *asked))

    def read_and_then_fence(self: Any, *asked: Any) -> Any:
        records = read(self, *asked)
        if deferred:
            gap = Path(os.environ["SAMZAPY_TEST_GAP"])
            gap.touch()
            while gap.exists():
                time.sleep(0.05)
        while deferred:
            fence(*deferred.pop())
        return records

    positions.KafkaFence.fence = fence_later
    positions.KafkaPositions.read = read_and_then_fence


def without_query_numbers() -> None:
    """A worker takes its slot without a check of its query's number.

    One of an earlier query is killed after its Kafka commit, as Spark kills a cancelled worker wherever it is by then.
    """
    from samzapy.adapters.host.crash_points import ArmedCrashPoints
    from samzapy.adapters.spark import slots

    entered, hit, late = slots.WorkerSlots._entered, ArmedCrashPoints.hit, []

    def entered_by_anybody(self: Any, slot: int, query_number: int) -> Any:
        admitted = self._files[slot].read().query
        if admitted != query_number:
            late.append(query_number)
        return entered(self, slot, admitted)

    def hit_and_killed_late(self: Any, name: str) -> None:
        hit(self, name)
        if late and name == "after-kafka-commit":
            os.kill(os.getpid(), signal.SIGKILL)

    slots.WorkerSlots._entered = entered_by_anybody  # type: ignore[method-assign]
    ArmedCrashPoints.hit = hit_and_killed_late  # type: ignore[method-assign]


MUTANTS = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        without_catching_up,
        without_transactions,
        without_reading_to_the_end,
        replaying_before_fencing,
        without_query_numbers,
    )
}

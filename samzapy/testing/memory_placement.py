"""The placement topic in memory, as the coordinator reads and writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from samzapy.coordinator.commands import RequestsRead
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.placement import Requested, Unreadable, read_message
from samzapy.testing.memory_log import MemoryLog, MemoryTopic

_ID = "samzapy-placement/memory"


class MemoryPlacementWriter:
    """A `coordinator.ports.PlacementWriter` on a `MemoryTopic`."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.log = MemoryLog(topic, _ID)

    def acquire(self) -> bool:
        if self.log.is_owner:
            return False
        self.log.take_over()
        return True

    def write(self, writes: Sequence[Write]) -> int:
        return self.log.append_atomically(writes)


def read_inbox(
    topic: MemoryTopic,
    offset_from: int,
    now_ms: int,
    count_max: int | None = None,
    refusal: Callable[[LogRecord], str] = lambda record: "",
) -> RequestsRead:
    """The messages that `adapters.kafka.placement.KafkaInbox` would hand over.

    They are of at most `count_max` records.
    """
    records, offset_next = topic.read_stable(offset_from, count_max)
    messages = [item for record in records if (item := read_message(record, refusal)) is not None]
    return RequestsRead(
        offset_from=offset_from,
        offset_next=offset_next,
        requests=tuple(item for item in messages if isinstance(item, Requested)),
        unreadable=tuple(item for item in messages if isinstance(item, Unreadable)),
        now_ms=now_ms,
    )

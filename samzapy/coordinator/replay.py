"""From the bytes of the coordinator stream to state. Used by whoever leads, and by whoever only looks.

What cannot be read stops the reader by name: a coordinator that skipped a record would decide on a state
that nobody else has (law L9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from samzapy.coordinator.state import INITIAL, CoordinatorState, Standing, evolve
from samzapy.errors import CorruptRecordError
from samzapy.stream.codec import decode, parse_headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ProgressPut


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a log says.

    Attributes:
        seq_next: the number of the next record to be written (evidence, never state).
        read_to: up to where there are only markers of transactions behind what was folded in; 0: not looked.
    """

    state: CoordinatorState
    seq_next: int = 0
    read_to: int = 0

    @property
    def offset_next(self) -> int:
        """Where to read on."""
        return max(self.state.offset_next, self.read_to)


NOTHING: Final = Replayed(state=INITIAL)

_POSITIONS: Final = (CheckpointPut, ProgressPut)
BATCH_RECORDS = 20_000
"""Folded at once: large, because each batch copies the tables; bounded, so that a long stream is not held in memory."""


def replay(records: Iterable[LogRecord], *, topic: str, before: Replayed = NOTHING) -> Replayed:
    """`before` with `records` folded in.

    Raises:
        UnknownSchemaError: a newer release wrote one of them.
        CorruptRecordError: one of them is no record of a coordinator.
    """
    state, seq_next = before.state, before.seq_next
    batch: list[Standing] = []
    for found in records:
        record = decode(found, topic=topic)
        if isinstance(record, _POSITIONS):
            raise CorruptRecordError(
                f"{topic}-0 at offset {found.offset}: wanted a record of the coordinator, found a position, which "
                "belongs on the checkpoint topic; some other program writes here. See it with `samzapy stream "
                "replay`"
            )
        batch.append((found.offset, record))
        headers = parse_headers(found.headers)
        if headers is not None and headers.seq >= seq_next:
            seq_next = headers.seq + 1
        if len(batch) == BATCH_RECORDS:
            state = evolve(state, batch)
            batch.clear()
    return Replayed(state=evolve(state, batch), seq_next=seq_next)


def check_whole(state: CoordinatorState, topic: str) -> None:
    """Raise CorruptRecordError unless the plan in force has all its tasks."""
    if state.generation is not None and len(state.plan) != state.generation.task_count:
        raise CorruptRecordError(
            f"{topic}: wanted the {state.generation.task_count} tasks of generation {state.generation.generation}, "
            f"found {len(state.plan)}; somebody else wrote here or removed records. See them with `samzapy stream "
            "replay`"
        )

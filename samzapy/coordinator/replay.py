"""Replay: the bytes of the coordinator stream become the state.

Leaders and readers use it.

What a leader wrote and cannot be read stops the reader with a named error: a coordinator that skipped such a record
would decide on a state that nobody else has (law L9). Foreign records change nothing (`stream.numbering`), and are
told beside the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from samzapy.coordinator.repair import standing
from samzapy.coordinator.state import INITIAL, CoordinatorState, Standing, evolve
from samzapy.errors import CorruptRecordError
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a log says.

    Attributes:
        numbering: after the last record (evidence of who wrote, never state).
        read_to: up to where there are only foreign records, and markers of transactions, behind what was folded in; 0:
            not looked.
        foreign: the last foreign record of each key that no leader has written since; at most `FOREIGN_KEPT_MAX`, the
            latest.
        foreign_count: how many foreign records there were, of any key.
    """

    state: CoordinatorState
    numbering: Numbering = BEGINNING
    read_to: int = 0
    foreign: Mapping[bytes | None, Foreign] = field(default_factory=dict)
    foreign_count: int = 0

    @property
    def seq_next(self) -> int:
        """The number of the next record to be written."""
        return self.numbering.seq_next

    @property
    def offset_next(self) -> int:
        """Where to read on."""
        return max(self.state.offset_next, self.read_to)


NOTHING: Final = Replayed(state=INITIAL)

FOREIGN_KEPT_MAX: Final = 10_000
"""So many keys of foreign records are remembered, so that a flood of them is not held in memory."""
BATCH_RECORDS = 20_000
"""Folded at once: large, because each batch copies the tables; bounded, so that a long stream is not held in memory."""


def replay(records: Iterable[LogRecord], *, topic: str, before: Replayed = NOTHING) -> Replayed:
    """`before` with `records` folded in.

    Raises:
        UnknownSchemaError: a newer release wrote one of them.
        CorruptRecordError: one of them was written by a leader, and cannot be read.
    """
    state, read_to = before.state, before.read_to
    foreign, foreign_count = dict(before.foreign), before.foreign_count
    batch: list[Standing] = []
    reading = Reading(before.numbering, topic=topic)
    for record, fact, stranger in reading.read(records):
        read_to = record.offset + 1
        if stranger is not None:
            foreign_count += 1
            _remember(foreign, stranger, state)
            continue
        if foreign:
            foreign.pop(record.key, None)
        if fact is None:
            continue
        batch.append((record.offset, fact))
        if len(batch) == BATCH_RECORDS:
            state = evolve(state, batch)
            batch.clear()
    return Replayed(
        state=evolve(state, batch),
        numbering=reading.numbering,
        read_to=read_to,
        foreign=foreign,
        foreign_count=foreign_count,
    )


def _remember(foreign: dict[bytes | None, Foreign], found: Foreign, state: CoordinatorState) -> None:
    """Put `found` last; where there are too many the oldest one goes whose key has no value in `state`."""
    foreign.pop(found.key, None)
    foreign[found.key] = found
    if len(foreign) <= FOREIGN_KEPT_MAX:
        return
    for key in foreign:
        if standing(state, key) is None:
            del foreign[key]
            return


def with_foreign(known: Replayed, found: Iterable[Foreign], count: int) -> Replayed:
    """`known` with so many foreign records more, of which `found` are the last of each key."""
    foreign = dict(known.foreign)
    for item in found:
        _remember(foreign, item, known.state)
    return replace(known, foreign=foreign, foreign_count=known.foreign_count + count)


def check_whole(state: CoordinatorState, topic: str) -> None:
    """Raise CorruptRecordError unless the plan in force has all its tasks."""
    if state.generation is not None and len(state.plan) != state.generation.task_count:
        raise CorruptRecordError(
            f"{topic}: wanted the {state.generation.task_count} tasks of generation {state.generation.generation}, "
            f"found {len(state.plan)}; somebody else wrote here or removed records. See them with `samzapy stream "
            "replay`"
        )

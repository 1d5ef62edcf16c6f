"""Replay: folds the coordinator stream into the state.

Leaders and readers use it.

A leader's record that cannot be read stops the reader with a named error: a coordinator that skipped it would decide on
a state that no other coordinator has (law L9). Foreign records change nothing (`stream.numbering`); they are kept
beside the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from samzapy.coordinator.repair import standing
from samzapy.coordinator.state import INITIAL, CoordinatorState, Standing, evolve
from samzapy.errors import CorruptRecordError
from samzapy.stream.log import LogRecord
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The result of a replay.

    Attributes:
        numbering: after the last record (evidence of who wrote, never state).
        read_to: the offset up to which the log was read; behind the folded records there are only foreign ones and
            markers of transactions. 0: not read.
        foreign: the last foreign record of each key that no leader has written since. Above `FOREIGN_KEPT_MAX`, the
            oldest ones whose keys have no value are left out.
        foreign_count: how many foreign records there were, of any key.
    """

    state: CoordinatorState
    numbering: Numbering = BEGINNING
    read_to: int = 0
    foreign: Mapping[bytes | None, Foreign] = field(default_factory=dict)
    foreign_count: int = 0

    @property
    def seq_next(self) -> int:
        """The number of the next record to write."""
        return self.numbering.seq_next

    @property
    def offset_next(self) -> int:
        """The offset to read on from."""
        return max(self.state.offset_next, self.read_to)


NOTHING: Final = Replayed(state=INITIAL)

FOREIGN_KEPT_MAX: Final = 10_000
"""Keys of foreign records that are remembered at most, so that a flood of them does not fill the memory.

Keys with a value stay beyond that. The leader must write their values again, or compaction removes them. They are no
flood: the state has as many records.
"""
BATCH_RECORDS = 20_000
"""Records in one fold: many, because each fold copies the tables; bounded, so that a long stream fits in memory."""


def replay(records: Iterable[LogRecord], *, topic: str, before: Replayed = NOTHING) -> Replayed:
    """`before` with `records` folded in.

    Raises:
        UnknownSchemaError: a newer release wrote one of them.
        CorruptRecordError: one of them was written by a leader, and cannot be read.
    """
    state, read_to = before.state, before.read_to
    foreign, foreign_count = dict(before.foreign), before.foreign_count
    batch: list[Standing] = []
    room = _room(foreign)
    reading = Reading(before.numbering, topic=topic)
    for record, fact, stranger in reading.read(records):
        read_to = record.offset + 1
        if stranger is not None:
            foreign_count += 1
            _remember(foreign, stranger)
            if len(foreign) > room:
                # Values that are in no fold yet count too.
                state = evolve(state, batch)
                batch.clear()
                _forget_excess(foreign, state)
                room = _room(foreign)
            continue
        if foreign:
            foreign.pop(record.key, None)
        if fact is None:
            continue
        batch.append((record.offset, fact))
        if len(batch) == BATCH_RECORDS:
            state = evolve(state, batch)
            batch.clear()
    state = evolve(state, batch)
    _forget_excess(foreign, state)
    return Replayed(
        state=state,
        numbering=reading.numbering,
        read_to=read_to,
        foreign=foreign,
        foreign_count=foreign_count,
    )


def _room(foreign: Mapping[bytes | None, Foreign]) -> int:
    """How many may be there before the next look for excess ones.

    A look reads each key, so it pays for many new ones.
    """
    return max(len(foreign), FOREIGN_KEPT_MAX) + FOREIGN_KEPT_MAX


def _remember(foreign: dict[bytes | None, Foreign], record: Foreign) -> None:
    """Put a foreign record last."""
    foreign.pop(record.key, None)
    foreign[record.key] = record


def _forget_excess(foreign: dict[bytes | None, Foreign], state: CoordinatorState) -> None:
    """If there are too many, drop the oldest ones whose keys have no value in `state`."""
    excess = len(foreign) - FOREIGN_KEPT_MAX
    if excess > 0:
        for key in list(islice((key for key in foreign if standing(state, key) is None), excess)):
            del foreign[key]


def with_foreign(known: Replayed, latest: Iterable[Foreign], count: int) -> Replayed:
    """Add `count` foreign records to `known`.

    `latest`: the last one of each key.
    """
    foreign = dict(known.foreign)
    for record in latest:
        _remember(foreign, record)
    _forget_excess(foreign, known.state)
    return replace(known, foreign=foreign, foreign_count=known.foreign_count + count)


def check_whole(state: CoordinatorState, topic: str) -> None:
    """Raise CorruptRecordError unless the plan in force has all its tasks."""
    if state.generation is not None and len(state.plan) != state.generation.task_count:
        raise CorruptRecordError(
            f"{topic}: wanted the {state.generation.task_count} tasks of generation {state.generation.generation}, "
            f"found {len(state.plan)}; another program wrote here or removed records. See them with `samzapy stream "
            "replay`"
        )

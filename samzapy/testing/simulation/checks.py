"""The laws of design section 2, looked at after each step of a simulated history.

Two kinds. `LogChecks` reads the coordinator stream as it grows, folds it by itself, and asks the world how things
really are: whether an execution that a grant passes over could still commit, whether a start is where the work
ends. `Probe` stands at the coordinator's own decisions: each one is taken again on the same facts in another order,
and once more on what it led to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar
from unittest.mock import patch

from samzapy.coordinator import replay as replay_module
from samzapy.coordinator import service as service_module
from samzapy.coordinator.actions import actions
from samzapy.coordinator.commands import Command
from samzapy.coordinator.decide import Decision, decide, observe
from samzapy.coordinator.liveness import LIVING, Sightings
from samzapy.coordinator.state import INITIAL, Committed, CoordinatorState, evolve, uncommitted
from samzapy.model.container import Container, ContainerPhase
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket
from samzapy.stream.codec import decode, encode, parse_headers
from samzapy.stream.keys import key_of
from samzapy.stream.log import LogRecord
from samzapy.stream.records import (
    CheckpointPut,
    ContainerPut,
    CoordinatorRecord,
    EpochPut,
    GenerationPut,
    GrantPut,
    PlannedTaskPut,
    ProgressPut,
    Record,
    Removed,
    TermPut,
)
from samzapy.testing.memory_log import MemoryTopic

T = TypeVar("T", CoordinatorState, Sightings)

_P = ContainerPhase
_NEXT = {
    _P.STARTED: {_P.RUNNING, _P.STOPPED, _P.LOST},
    _P.RUNNING: {_P.STOPPED, _P.LOST},
    _P.STOPPED: set(),
    _P.LOST: {_P.FENCED},
    _P.FENCED: set(),
}
Decide = Callable[[Command, CoordinatorState, Sightings], Decision]
WorksOn = Callable[[Grant], list[str]]
"""The executions, by name and epoch, that could still commit: under a grant that is recorded as released, or under
another one for a bucket or the task of a new grant."""


class BrokenLawError(AssertionError):
    """A history in which a law does not hold. Never caught by what is simulated."""


class Ledger:
    """How far each bucket was really worked on: every offset once, none left out."""

    def __init__(self) -> None:
        self.done: dict[SspKeyBucket, int] = {}
        self.commits = 0

    def commit(self, ssp_kb: SspKeyBucket, offset_from: int, offset_to: int, who: str) -> None:
        done = self.done.get(ssp_kb, 0)
        if offset_from != done:
            kind = "twice" if offset_from < done else "not at all"
            raise BrokenLawError(
                f"{who} committed {ssp_kb} from {offset_from} to {offset_to}, the work before ended at {done}: "
                f"{abs(done - offset_from)} offsets are done {kind}"
            )
        self.done[ssp_kb] = offset_to
        self.commits += 1


class LogChecks:
    """The coordinator stream so far, folded apart from the coordinators.

    Args:
        works_on: how the world really is, see `WorksOn`.
        now_ms: true time.
    """

    def __init__(self, topic: MemoryTopic, ledger: Ledger, works_on: WorksOn, now_ms: Callable[[], int]) -> None:
        self.state = INITIAL
        self.term_began_ms = 0
        self.transactions = 0
        self.is_compacted = False
        self._topic = topic
        self._ledger = ledger
        self._works_on = works_on
        self._now_ms = now_ms
        self._offset_next = 0
        self._offset_last = -2
        self._seq_last = -1
        self._epoch_last = 0
        self._transaction_of: dict[int, int] = {}
        self._live: dict[str, Committed] = {}

    def look(self) -> None:
        """Read what was committed since the last look, and judge it."""
        if self._offset_next >= self._topic.end_offset:
            return
        records, self._offset_next = self._topic.read_stable(self._offset_next)
        for found in records:
            self._read(found)
        if records:
            self._l1()

    def _read(self, found: LogRecord) -> None:
        record = decoded(found, topic=self._topic.name)
        assert not isinstance(record, CheckpointPut | ProgressPut), "a position on the coordinator stream"
        if found.offset != self._offset_last + 1:
            # A marker stands between two transactions.
            self.transactions += 1
        self._offset_last = found.offset
        self._numbers(found, record)
        match record:
            case EpochPut() if record.epoch <= self._epoch_last:
                raise BrokenLawError(f"{_at(found)}: epoch {record.epoch} was given out before: {self._epoch_last}")
            case EpochPut():
                self._epoch_last = record.epoch
            case PlannedTaskPut() | GenerationPut():
                first = self._transaction_of.setdefault(record.generation, self.transactions)
                if first != self.transactions:
                    raise BrokenLawError(f"{_at(found)}: generation {record.generation} was begun before")
            case GrantPut():
                self._l6(found, record.grant)
            case ContainerPut():
                self._life(found, record.container)
            case _:
                pass
        item = Committed(found.offset, record)
        self.state = evolve(self.state, (item,))
        self._compact(item)

    def _numbers(self, found: LogRecord, record: CoordinatorRecord) -> None:
        """L4, L5: terms follow each other, each begins with its own record, and nobody else writes meanwhile."""
        headers = parse_headers(found.headers)
        if headers is None:
            raise BrokenLawError(f"{_at(found)}: no headers")
        # The numbers go on from the last record that is there; the cleaner may have taken a tombstone at the end.
        may_repeat = self.is_compacted and isinstance(record, TermPut)
        if headers.seq > self._seq_last + 1 or (headers.seq <= self._seq_last and not may_repeat):
            raise BrokenLawError(f"{_at(found)}: L5, seq {headers.seq} follows {self._seq_last}")
        self._seq_last = headers.seq
        term = self.state.term.term if self.state.term is not None else 0
        if isinstance(record, TermPut):
            if record.term != term + 1 or headers.term != record.term:
                raise BrokenLawError(f"{_at(found)}: L4, term {record.term} follows term {term}")
            self.term_began_ms = self._now_ms()
        elif headers.term != term:
            raise BrokenLawError(f"{_at(found)}: L4, a record of term {headers.term} in term {term}")

    def _life(self, found: LogRecord, container: Container) -> None:
        before = self.state.containers.get(container.execution_id)
        # The first that is heard of an execution may be that it runs.
        allowed = LIVING if before is None else _NEXT[before.phase]
        if container.phase not in allowed:
            raise BrokenLawError(f"{_at(found)}: from {before and before.phase} to {container.phase}")

    def _l6(self, found: LogRecord, grant: Grant) -> None:
        if grant.released:
            if others := self._works_on(grant):
                raise BrokenLawError(
                    f"{_at(found)}: L6, recorded as released while {', '.join(others)} can still commit"
                )
            return
        if grant.epoch != self._epoch_last:
            raise BrokenLawError(f"{_at(found)}: epoch {grant.epoch}, given out last was {self._epoch_last}")
        container = self.state.containers.get(grant.execution_id)
        if container is None or container.phase not in LIVING:
            raise BrokenLawError(f"{_at(found)}: L6, granted to {grant.execution_id}, which does not live")
        others = self._works_on(grant)
        if others:
            raise BrokenLawError(f"{_at(found)}: L6, granted while {', '.join(others)} can still commit")
        for start in grant.starts:
            done = self._ledger.done.get(start.ssp_kb, 0)
            if start.offset_next != done:
                raise BrokenLawError(
                    f"{_at(found)}: granted from {start.offset_next}, the work on {start.ssp_kb} ended at {done}"
                )

    def _compact(self, item: Committed) -> None:
        key = key_of(item.record)
        self._live.pop(key, None)
        if not isinstance(item.record, Removed):
            self._live[key] = item

    def _l1(self) -> None:
        """The hardest compaction there is: one record for each key, and no tombstones."""
        if evolve(INITIAL, self._live.values()) != self.state:
            raise BrokenLawError(
                f"before offset {self._offset_next}: L1, what compaction leaves folds to another state"
            )


class Probe:
    """Laws L2 and L7 at each decision of any coordinator, and L3 after its rounds."""

    def __init__(self) -> None:
        self.decisions = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Stand between the coordinators and their decisions; also keeps the codec from doing the same work twice.

        What the coordinators would log is not written: the trace tells it.
        """
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with self._in_between():
                yield
        finally:
            logging.disable(level)

    @contextmanager
    def _in_between(self) -> Iterator[None]:
        with (
            patch.object(service_module, "decide", self._checked(decide)),
            patch.object(service_module, "encode", _encoded),
            patch.object(replay_module, "decode", decoded),
        ):
            yield

    def _checked(self, decide: Decide) -> Decide:
        def decide_and_check(command: Command, state: CoordinatorState, seen: Sightings) -> Decision:
            decision = decide(command, state, seen)
            if not decision.records:
                return decision
            self.decisions += 1
            if decide(command, in_another_order(state), _turned(seen)) != decision:
                raise BrokenLawError(f"L7, an equal state decides otherwise on {command}")
            after = evolve(state, uncommitted(decision.records))
            again = decide(command, after, observe(command, after, seen))
            if again.records:
                raise BrokenLawError(f"L2, {command} a second time writes {again.records}")
            return decision

        return decide_and_check

    def after_round(self, state: CoordinatorState, trouble: str) -> None:
        """A round that had no trouble has done everything that its state asks for."""
        wanted = actions(state)
        if not trouble and wanted:
            raise BrokenLawError(f"L3, a round without trouble left undone: {wanted}")
        if actions(in_another_order(state)) != wanted:
            raise BrokenLawError("L7, an equal state asks for other actions")


def in_another_order(state: CoordinatorState) -> CoordinatorState:
    """An equal state, as a coordinator has it that read its tables in the opposite order."""
    return _turned(state)


def _turned(value: T) -> T:
    turned: dict[str, Any] = {
        name: dict(reversed(tuple(found.items())))
        for name in value.__slots__
        if isinstance(found := getattr(value, name), Mapping)
    }
    return replace(value, **turned)


def decoded(found: LogRecord, *, topic: str, partition: int = 0) -> Record:
    """`stream.codec.decode`, which is pure, with a memory."""
    return _decoded(found.key, found.value)


@lru_cache(maxsize=200_000)
def _decoded(key: bytes | None, value: bytes | None) -> Record:
    return decode(LogRecord(offset=0, timestamp_ms=0, key=key, value=value), topic="")


_encoded = lru_cache(maxsize=200_000)(encode)


def _at(found: LogRecord) -> str:
    return f"offset {found.offset}, {(found.key or b'').decode()}"

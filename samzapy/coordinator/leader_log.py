"""The coordinator stream as its leader uses it: replay, append, watch, repair.

State changes only by committed records: appended records are folded in at once. A record that the leader did not write
itself is foreign. It changes no state, and the leader writes the replaced value again (`coordinator.repair`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from samzapy.coordinator.commands import Command
from samzapy.coordinator.decide import Decision
from samzapy.coordinator.decision_traces import DecisionTraces
from samzapy.coordinator.ports import Clock
from samzapy.coordinator.repair import Looked, TailWatch, lost_numbers, new_term, restored
from samzapy.coordinator.replay import NOTHING, check_whole, replay, with_foreign
from samzapy.coordinator.state import Committed, CoordinatorState, evolve, latest
from samzapy.stream.audit import event_name
from samzapy.stream.codec import encode, headers
from samzapy.stream.log import CompactedLog, Write
from samzapy.stream.numbering import BEGINNING, Foreign, Numbering
from samzapy.stream.records import CoordinatorRecord, TermPut

_LOG = logging.getLogger(__name__)


class LeaderLog:
    """One process's view of the coordinator stream, and its term while it leads.

    Attributes:
        log: the stream itself.
        topic: its name.
        term: the number of the current term; None: this process does not lead.
        traces: of the decisions that are appended next.
    """

    def __init__(self, log: CompactedLog, topic: str, clock: Clock, traces: DecisionTraces) -> None:
        self.log = log
        self.topic = topic
        self.traces = traces
        self.term: int | None = None
        self._clock = clock
        self._known = NOTHING
        self._watch = TailWatch(BEGINNING, 0)
        self._term_last: int | None = None

    @property
    def state(self) -> CoordinatorState:
        """The fold of all committed records that were read or appended."""
        return self._known.state

    @property
    def foreign(self) -> Mapping[bytes | None, Foreign]:
        """The foreign records whose keys the leader has not written since."""
        return self._known.foreign

    @property
    def foreign_count(self) -> int:
        return self._known.foreign_count

    def replay(self) -> None:
        """Read the stream from its beginning to its end; the state before is dropped."""
        self._known = replay(self.log.read(), topic=self.topic)

    def watch(self) -> None:
        """Watch the tail from here on.

        Raises:
            CorruptRecordError: the plan in force lacks tasks.
        """
        check_whole(self.state, self.topic)
        self._watch = TailWatch(self._known.numbering, self._known.read_to)

    @property
    def term_before(self) -> int:
        """The last term on the stream.

        The numbering knows it even where a foreign record has replaced the term's own record.
        """
        return self._known.numbering.term

    def begin_term(self, records: Sequence[CoordinatorRecord], *, cause: str, actor: str) -> None:
        """Append the first records of a new term.

        This process leads when they are committed.
        """
        lost = lost_numbers(self.state)
        if lost:
            _LOG.warning("%s: numbers that were given out are lost; going on behind the highest in use", self.topic)
        term = self.term_before + 1
        first = (*records, *lost)
        seq_first = self._known.seq_next
        self.append(first, _encoded(first, self.state, term=term, seq_first=seq_first, cause=cause, actor=actor))
        self.term = self._term_last = term

    def end_term(self) -> None:
        self.term = None

    def forget_terms(self) -> None:
        """Forget the terms that this process led.

        A later term on the stream is then no reason not to lead.
        """
        self._term_last = None

    def later_term(self) -> tuple[int, TermPut] | None:
        """This process's last term, and a later one that the stream has.

        None: this process has not led, or its term is the last one.
        """
        newest = self.state.term
        if self._term_last is None or newest is None or newest.term <= self._term_last:
            return None
        return self._term_last, newest

    def writes(
        self, records: Sequence[CoordinatorRecord], before: CoordinatorState, *, ahead: int, cause: str, actor: str
    ) -> Sequence[Write]:
        """`records` as they are to be appended in this term, behind `ahead` others.

        `before`: the state that those others lead to.
        """
        assert self.term is not None, "only a leader writes"
        seq_first = self._known.seq_next + ahead
        return _encoded(records, before, term=self.term, seq_first=seq_first, cause=cause, actor=actor)

    def note(self, command: Command, decision: Decision, before: CoordinatorState, took_ns: int) -> None:
        """Trace a decision that is appended next.

        `before`: the state that it was made on.
        """
        term = self.term_before + 1 if self.term is None else self.term
        self.traces.decided(command, decision, before, term=term, took_ns=took_ns)

    def append(self, records: Sequence[CoordinatorRecord], writes: Sequence[Write]) -> None:
        """Append `records`, encoded as `writes`, in one transaction, and fold them in.

        Raises:
            FencedError, ProducerError: it is not known whether they are committed (law L5).
        """
        if not records:
            return
        with self.traces.appending():
            offset_after = self.log.append_atomically(writes)
        self._fold(records, writes, offset_after)

    def look(self) -> Looked | None:
        """Read the records of other writers since the last look; None if there are none."""
        offset_end = self.log.end_offset()
        if offset_end <= self._known.offset_next:
            return None
        looked = self._watch.look(self.log.read(self._watch.offset), offset_end)
        # Markers of transactions take offsets too; do not read them again.
        self._known = replace(self._known, read_to=self._watch.offset)
        if looked.count:
            self._known = with_foreign(self._known, looked.foreign.values(), looked.count)
        return looked

    def begin_term_above(self, misled: Sequence[bytes]) -> None:
        """Begin a term above a forged one, and write missed records again.

        Readers of a misled stream follow the new term.

        Raises:
            FencedError: the later term is a successor's, and not forged.
        """
        _LOG.warning("%s: records with forged headers stand there; this leader begins another term", self.topic)
        numbering = self._watch.numbering
        begun, repair = new_term(self.state, misled, numbering, started_at_ms=self._clock.wall_ms())
        self._known = replace(self._known, numbering=numbering)
        offset_after = self.log.append_atomically(repair.writes)
        self._fold(repair.records, repair.writes, offset_after, begun.term)
        self.term = self._term_last = begun.term

    def restore(self) -> bool:
        """Write the values again that foreign records have replaced.

        Writes a limited number of keys; returns whether it wrote.
        """
        known = self._known
        if not known.foreign:
            return False
        assert self.term is not None, "only a leader writes"
        repair = restored(known.state, known.foreign.values(), term=self.term, seq_first=known.seq_next)
        if not repair.writes:
            # Records under keys of positions, or without a key, which a compacted topic does not take.
            self._known = replace(known, foreign={})
            return False
        self._fold(repair.records, repair.writes, self.log.append_atomically(repair.writes))
        _LOG.warning("%s: the values of %d keys are written again", self.topic, len(repair.writes))
        return True

    def _fold(
        self,
        records: Sequence[CoordinatorRecord | None],
        writes: Sequence[Write],
        offset_after: int,
        term: int | None = None,
    ) -> None:
        """Fold appended records into the state.

        `term`: the term of the records, if it is not the current one.
        """
        known, count = self._known, len(writes)
        number = known.numbering
        in_term = term or self.term or number.term + 1
        self._watch.wrote(in_term, number.seq_next, writes)
        keys = {write.key for write in writes}
        self._known = replace(
            known,
            state=evolve(
                known.state,
                [
                    Committed(offset, record)
                    for offset, record in enumerate(records, start=offset_after - count)
                    if record is not None
                ],
            ),
            numbering=Numbering(
                term=in_term,
                seq=number.seq + count,
                seq_highest=max(number.seq_highest, number.seq + count),
                offset=offset_after - 1,
                is_tombstone=writes[-1].value is None,
            ),
            read_to=offset_after,
            foreign={key: record for key, record in known.foreign.items() if key not in keys}
            if known.foreign
            else {},
        )


def _encoded(
    records: Sequence[CoordinatorRecord],
    before: CoordinatorState,
    *,
    term: int,
    seq_first: int,
    cause: str,
    actor: str,
) -> Sequence[Write]:
    writes = []
    for seq, record in enumerate(records, start=seq_first):
        key, value = encode(record)
        event = event_name(record, latest(before, record))
        about = headers(term=term, seq=seq, event=event, cause=cause, actor=actor)
        writes.append(Write(key=key, value=value, headers=about))
    return writes

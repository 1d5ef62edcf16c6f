"""Repair of foreign records: a leader rewrites the records they replaced.

Pure.

A foreign record changes no state (`stream.numbering`), but compaction does not know that: it keeps the latest record of
a key, and would remove the leader's. So the leader writes the value of that key again, or its tombstone if it has no
value.

Containers fold a record with forged headers that continue exactly where the leader's numbers end, and the leader's next
record is then foreign to them. Only the leader can tell: records that it did not write itself are foreign. It begins
another term, above the forged one, and writes again all records about which readers were misled. Its successful write
proves that it leads: a successor would have fenced it before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from samzapy.coordinator.state import CoordinatorState, standing_under
from samzapy.stream.audit import event_name
from samzapy.stream.codec import encode, headers
from samzapy.stream.keys import parse_key
from samzapy.stream.log import LogRecord, Write
from samzapy.stream.numbering import (
    POSITION_PREFIXES,
    VALUE_RESTORED,
    Foreign,
    Numbering,
    foreign_record,
    is_key,
    place,
)
from samzapy.stream.records import (
    CoordinatorRecord,
    EpochPut,
    Removed,
    TermPut,
)

RESTORED_MAX: Final = 500
"""Values that are written again in one round."""

_ACTOR: Final = "coordinator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The result of a look at the tail.

    Attributes:
        foreign: the last foreign record of each key that the leader has not written since.
        count: how many foreign records there were.
        misled: the keys whose values differ between readers and the leader, in the order of the writes.
    """

    foreign: Mapping[bytes | None, Foreign]
    count: int
    misled: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The writes of a repair, and the record of each; None: its key is invalid."""

    records: tuple[CoordinatorRecord | None, ...]
    writes: tuple[Write, ...]


class TailWatch:
    """The leader's own writes since its last look.

    It also follows the numbering as other readers see it.

    Args:
        numbering: after all records before `offset`.
    """

    def __init__(self, numbering: Numbering, offset: int) -> None:
        self.numbering = numbering
        self.offset = offset
        self._own: dict[tuple[int, int], tuple[bytes, bytes | None]] = {}

    def wrote(self, term: int, seq_first: int, writes: Iterable[Write]) -> None:
        """The leader appended `writes`, numbered from `seq_first` on."""
        for seq, write in enumerate(writes, start=seq_first):
            self._own[term, seq] = write.key, write.value

    def look(self, records: Iterable[LogRecord], offset_end: int) -> Looked:
        """Separate foreign `records` from the leader's own; the first one is at `offset`."""
        foreign: dict[bytes | None, Foreign] = {}
        misled: dict[bytes, None] = {}
        count = 0
        for record in records:
            self.numbering, placed = place(record, self.numbering)
            is_own = self._take(record)
            if not is_own:
                count += 1
                foreign.pop(record.key, None)
                foreign[record.key] = placed if isinstance(placed, Foreign) else _forged(record)
            elif record.key in foreign:
                del foreign[record.key]
            if is_own == isinstance(placed, Foreign) and record.key is not None:
                misled.pop(record.key, None)
                misled[record.key] = None
            self.offset = record.offset + 1
        self.offset = max(self.offset, offset_end)
        self._own.clear()
        return Looked(foreign=foreign, count=count, misled=tuple(misled))

    def _take(self, record: LogRecord) -> bool:
        """Whether the leader wrote the record; a copy that follows is foreign."""
        header_of = dict(record.headers)
        try:
            number = int(header_of.get("term") or b""), int(header_of.get("seq") or b"")
        except ValueError:
            return False
        if self._own.get(number) != (record.key, record.value):
            return False
        del self._own[number]
        return True


def restored(
    state: CoordinatorState, foreign: Iterable[Foreign], *, term: int, seq_first: int, count_max: int = RESTORED_MAX
) -> Restored:
    """The current values of the keys of `foreign`, to be written again.

    Values come before tombstones. Keys of positions are left out, because all readers ignore what is under them.
    """
    values = [
        (item, standing(state, item.key))
        for item in foreign
        if item.key is not None and not item.key.startswith(POSITION_PREFIXES)
    ]
    values.sort(key=lambda pair: pair[1] is None)
    return _written(
        [(item.key or b"", value, f"foreign record at offset {item.offset}") for item, value in values[:count_max]],
        term=term,
        seq_first=seq_first,
    )


def new_term(
    state: CoordinatorState, misled: Sequence[bytes], numbering: Numbering, *, started_at_ms: int
) -> tuple[TermPut, Restored]:
    """The term that follows a forged one, and its writes.

    The writes are the term's record and the values of `misled`.
    """
    assert state.term is not None, "a leader has a term"
    begun = TermPut(
        term=numbering.term + 1,
        coordinator_id=state.term.coordinator_id,
        host=state.term.host,
        boot_id=state.term.boot_id,
        pid=state.term.pid,
        process_started_ms=state.term.process_started_ms,
        url=state.term.url,
        started_at_ms=started_at_ms,
        version=state.term.version,
    )
    cause = "forged records"
    seq_first = numbering.seq_next
    key, value = encode(begun)
    about = headers(term=begun.term, seq=seq_first, event=event_name(begun, state.term), cause=cause, actor=_ACTOR)
    facts = [(item, standing(state, item), cause) for item in misled if item != key]
    rest = _written(facts, term=begun.term, seq_first=seq_first + 1)
    first = Write(key=key, value=value, headers=about)
    return begun, Restored(records=(begun, *rest.records), writes=(first, *rest.writes))


def lost_numbers(state: CoordinatorState) -> tuple[CoordinatorRecord, ...]:
    """Records of the highest numbers in use, if the stream has lost them.

    Such numbers must not be used again. Compaction keeps a foreign record and removes the leader's, if there was no
    leader for as long as it leaves records alone.
    """
    of_grants = (grant.epoch for grant in state.grants.values())
    of_startpoints = (startpoint.epoch for startpoint in state.startpoints.values())
    epoch = max((*of_grants, *of_startpoints), default=0)
    return (EpochPut(epoch=epoch),) if epoch > state.epoch else ()


def standing(state: CoordinatorState, key: bytes | None) -> CoordinatorRecord | None:
    """The current record of `key`; None if there is none, or the key is invalid."""
    try:
        parsed = parse_key((key or b"").decode())
        return standing_under(state, parsed)
    except ValueError:
        return None


def _written(facts: Sequence[tuple[bytes, CoordinatorRecord | None, str]], *, term: int, seq_first: int) -> Restored:
    records: list[CoordinatorRecord | None] = []
    writes = []
    for seq, (key, value, cause) in enumerate(facts, start=seq_first):
        about = headers(term=term, seq=seq, event=VALUE_RESTORED, cause=cause, actor=_ACTOR)
        encoded = None if value is None else encode(value)[1]
        writes.append(Write(key=key, value=encoded, headers=about))
        records.append(_removed(key) if value is None else value)
    return Restored(records=tuple(records), writes=tuple(writes))


def _removed(key: bytes) -> Removed | None:
    """The record of a tombstone; None if the key is invalid."""
    return Removed(key=key.decode()) if is_key(key) else None


def _forged(record: LogRecord) -> Foreign:
    reason = "its headers are the leader's next ones, and the leader did not write it"
    return foreign_record(record, "stream-two-writers", reason)

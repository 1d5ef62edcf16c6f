"""What the records of our topics say about who wrote them, for somebody who looks for what is wrong. Pure.

The coordinator numbers its records without a gap, so inside the audit horizon, where compaction takes nothing away, a
number that is missing was never written or was taken by somebody, and one that comes twice had two writers. Records
without the coordinator's headers are somebody else's. None of this is ever read by the fold (`stream.codec`): it is
evidence for people.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from samzapy.errors import CorruptRecordError
from samzapy.model.finding import Finding
from samzapy.stream.changelog import split_changelog_key
from samzapy.stream.codec import RecordHeaders, decode, parse_headers
from samzapy.stream.log import LogRecord
from samzapy.stream.records import CheckpointPut, ProgressPut, Removed

_SEE_STREAM = "See it with `samzapy stream replay`"
_ONLY_OURS = (
    "find out which program writes there and stop it; only samzapy may (with ACLs: WRITE on its topics for its own "
    "user alone)"
)


@dataclass(slots=True)
class _Tally:
    """Findings of one kind in one topic: the first is told, the others are counted."""

    told: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, code: str, text: str) -> None:
        first, count = self.told.get(code, (text, 0))
        self.told[code] = (first, count + 1)

    def findings(self, topic: str, remedies: dict[str, str]) -> tuple[Finding, ...]:
        return tuple(
            Finding(
                code=code,
                subject=f"topic {topic}",
                found=text if count == 1 else f"{text} (the first of {count})",
                remedy=remedies[code],
            )
            for code, (text, count) in sorted(self.told.items())
        )


def examine_coordinator_stream(records: Iterable[LogRecord], *, topic: str, horizon_ms: int) -> tuple[Finding, ...]:
    """Everything about the records of a coordinator stream that is not as a coordinator writes it.

    Args:
        records: from the first that the topic holds.
        horizon_ms: compaction leaves alone what was appended after this (broker's) time.
    """
    tally = _Tally()
    before: tuple[LogRecord, RecordHeaders] | None = None
    for record in records:
        said = parse_headers(record.headers)
        try:
            fact = decode(record, topic=topic)
        except CorruptRecordError as error:
            tally.add("record-unreadable", str(error))
        else:
            if said is None or isinstance(fact, CheckpointPut | ProgressPut):
                what = "a position" if said is not None else "none of them"
                tally.add(
                    "record-foreign",
                    f"{topic}-0 at offset {record.offset}: wanted a coordinator's record with its headers, found "
                    f"{what}, key {_shown(record.key)}",
                )
                continue
        if said is None:
            continue
        # What cannot be read has its number all the same.
        if before is not None:
            _compare(tally, topic, before, (record, said), horizon_ms)
        before = (record, said)
    return tally.findings(
        topic,
        {
            "record-unreadable": f"{_SEE_STREAM}; if a newer release wrote it, upgrade, else {_ONLY_OURS}",
            "record-foreign": f"{_SEE_STREAM}, and {_ONLY_OURS}",
            "stream-gap": f"{_SEE_STREAM}; somebody removed records, or the topic lost them: what is decided from here "
            "on may rest on a history that is not whole",
            "stream-two-writers": f"{_SEE_STREAM}; the headers name who wrote, and {_ONLY_OURS}",
        },
    )


def examine_checkpoints(records: Iterable[LogRecord], *, topic: str) -> tuple[Finding, ...]:
    """Records of the checkpoint topic that are no positions."""
    tally = _Tally()
    for record in records:
        try:
            fact = decode(record, topic=topic)
        except CorruptRecordError as error:
            tally.add("record-unreadable", str(error))
            continue
        if not isinstance(fact, CheckpointPut | ProgressPut | Removed):
            tally.add(
                "record-foreign",
                f"{topic}-0 at offset {record.offset}: wanted a checkpoint or a progress record, found "
                f"{_shown(record.key)}",
            )
    return tally.findings(
        topic,
        {
            "record-unreadable": f"No container starts on it; if a newer release wrote it, upgrade, else {_ONLY_OURS}",
            "record-foreign": f"It changes no position, but {_ONLY_OURS}",
        },
    )


def examine_changelog(records: Iterable[LogRecord], *, topic: str, partition: int) -> tuple[Finding, ...]:
    """Records of a changelog partition that are no entries of a keyed store."""
    tally = _Tally()
    for record in records:
        try:
            if record.key is None:
                raise ValueError("wanted a key, found none")
            split_changelog_key(record.key)
        except ValueError as error:
            tally.add("record-unreadable", f"{topic}-{partition} at offset {record.offset}: {error}")
    return tally.findings(
        topic,
        {
            "record-unreadable": f"No store is restored from it: {_ONLY_OURS}; to begin anew, give the job a new job.id"
        },
    )


def _compare(
    tally: _Tally,
    topic: str,
    before: tuple[LogRecord, RecordHeaders],
    after: tuple[LogRecord, RecordHeaders],
    horizon_ms: int,
) -> None:
    (older, old), (record, said) = before, after
    numbers = (
        f"{topic}-0 at offset {record.offset}: (term, seq) ({said.term}, {said.seq}) follows ({old.term}, {old.seq})"
    )
    if said.seq <= old.seq or said.term < old.term:
        tally.add("stream-two-writers", f"{numbers}: two writers, or one that went on after it was replaced")
    elif said.seq > old.seq + 1 and older.timestamp_ms > horizon_ms:
        # What is missing is younger than the older neighbour, so compaction has not taken it.
        tally.add("stream-gap", f"{numbers}: {said.seq - old.seq - 1} record(s) in between are missing")


def _shown(key: bytes | None) -> str:
    return "none" if key is None else repr(key.decode(errors="backslashreplace"))

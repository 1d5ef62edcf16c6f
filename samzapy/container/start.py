"""Where a task starts: the start rule, and what stops a start by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from samzapy.container.ports import TopicBounds
from samzapy.errors import LostRangeError, TopicIdentityError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.stream.records import CheckpointPut, ProgressPut, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The checkpoint topic, folded: the latest checkpoint and progress record of each SSPKb."""

    checkpoints: Mapping[SspKeyBucket, Checkpoint] = field(default_factory=dict)
    progress: Mapping[SspKeyBucket, Progress] = field(default_factory=dict)


def positions_of(records: Iterable[Record]) -> Positions:
    """Fold the records of a checkpoint topic."""
    checkpoints: dict[SspKeyBucket, Checkpoint] = {}
    progress: dict[SspKeyBucket, Progress] = {}
    for record in records:
        match record:
            case CheckpointPut():
                checkpoints[record.checkpoint.ssp_kb] = record.checkpoint
            case ProgressPut():
                progress[record.progress.ssp_kb] = record.progress
            case _:
                pass
    return Positions(checkpoints=checkpoints, progress=progress)


def start_offset(start: BucketStart, epoch: int, positions: Positions) -> int:
    """The start rule: the largest of the grant's start, the checkpoint and the progress record of its bucket.

    Checkpoint and progress count only under the grant's own epoch, so nothing that an earlier owner wrote, or
    that was written before a rewind, can win, whatever its offset (design section 8).
    """
    found = [start.offset_next]
    checkpoint, progress = positions.checkpoints.get(start.ssp_kb), positions.progress.get(start.ssp_kb)
    if checkpoint is not None and checkpoint.epoch == epoch:
        found.append(checkpoint.offset_next)
    if progress is not None and progress.epoch == epoch:
        found.append(progress.offset_next)
    return max(found)


def starts_of(grants: Iterable[Grant], positions: Positions) -> Mapping[SspKeyBucket, int]:
    """Where each granted SSPKb is read from."""
    return {start.ssp_kb: start_offset(start, grant.epoch, positions) for grant in grants for start in grant.starts}


def check_bounds(starts: Mapping[SspKeyBucket, int], bounds: Mapping[SystemStreamPartition, TopicBounds]) -> None:
    """Refuse starts outside what the topics hold (law L9).

    Raises:
        LostRangeError: names each range exactly, and the operator's words that give it up.
    """
    complaints = [
        complaint
        for ssp_kb, offset in sorted(starts.items())
        if (complaint := _complaint(ssp_kb, offset, bounds[ssp_kb.ssp])) is not None
    ]
    words = [
        _words(ssp_kb, offset, bounds[ssp_kb.ssp])
        for ssp_kb, offset in sorted(starts.items())
        if offset < bounds[ssp_kb.ssp].offset_first
    ]
    if len(words) > 1:
        # A key that is set twice has its last value, so the words must stand in one.
        complaints.append(f"To give up all of them: --set task.lost.range.accept={','.join(words)}")
    if complaints:
        raise LostRangeError("\n".join(complaints))


def check_identity(recorded: Mapping[SystemStream, str], found: Mapping[SystemStream, str]) -> None:
    """Refuse inputs that were deleted and made again: their offsets no longer mean what was recorded.

    Raises:
        TopicIdentityError: names the stream and both topic ids.
    """
    for stream in sorted(recorded):
        if found[stream] != recorded[stream]:
            raise TopicIdentityError(
                f"{stream}: wanted the topic with id {recorded[stream]}, found {found[stream]}: it was deleted and "
                "made again, so checkpoints say nothing about it. Nothing of it is read. Start the job under another "
                "job.id to read the new topic from its beginning"
            )


def _complaint(ssp_kb: SspKeyBucket, offset: int, bounds: TopicBounds) -> str | None:
    if offset < bounds.offset_first:
        return (
            f"{ssp_kb}: wanted to read on from offset {offset}, but the topic now begins at {bounds.offset_first}: "
            f"{bounds.offset_first - offset} offsets, {offset} to {bounds.offset_first - 1}, are gone unread "
            "(retention, or deleted). Nothing was skipped. To give exactly this range up: "
            f"--set task.lost.range.accept={_words(ssp_kb, offset, bounds)}"
        )
    if offset > bounds.offset_end:
        return (
            f"{ssp_kb}: wanted to read on from offset {offset}, but the topic ends at {bounds.offset_end}: "
            "its log was cut (deleted and made again, or an unclean leader election), so offsets have changed their "
            "meaning. Nothing was read. Restore the topic, or start the job anew under another job.id"
        )
    return None


def _words(ssp_kb: SspKeyBucket, offset: int, bounds: TopicBounds) -> str:
    return f"{ssp_kb}@{offset}-{bounds.offset_first}"

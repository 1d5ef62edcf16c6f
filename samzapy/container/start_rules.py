"""Start offsets of tasks, and the checks that stop a start with a named error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from samzapy.config import JobConfig, differences
from samzapy.errors import ConfigError, CorruptRecordError, LostRangeError, TopicIdentityError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.plan.input_patterns import may_depart
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.codec import decode
from samzapy.stream.keys import Namespace, key_of, parse_key
from samzapy.stream.records import CheckpointPut, ProgressPut, Record, Removed

if TYPE_CHECKING:
    from samzapy.container.ports import TopicBounds
    from samzapy.model.grant import BucketStart, Floor, Grant
    from samzapy.model.job import ExecutionId
    from samzapy.stream.log import LogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """The latest checkpoint and progress record of each SSPKb.

    Attributes:
        unreadable: by SSPKb, why the only record under the key of its position cannot be read.
    """

    checkpoints: Mapping[SspKeyBucket, Checkpoint] = field(default_factory=dict)
    progress: Mapping[SspKeyBucket, Progress] = field(default_factory=dict)
    unreadable: Mapping[SspKeyBucket, str] = field(default_factory=dict)

    def check_readable(self, ssp_kbs: Iterable[SspKeyBucket]) -> None:
        """Raise CorruptRecordError if a position of one of `ssp_kbs` may be lost."""
        for ssp_kb in ssp_kbs:
            if ssp_kb in self.unreadable:
                raise CorruptRecordError(
                    f"{self.unreadable[ssp_kb]}. It may have replaced the position of {ssp_kb}, and no other record is "
                    "left of that. If a newer release wrote it, upgrade. Else write a null value under its key "
                    "(kafka-console-producer.sh with null.marker): the task then begins where it was granted, and "
                    "processes again what was committed since"
                )


def read_positions(records: Iterable[LogRecord], *, topic: str) -> Positions:
    """The positions that the raw records of a checkpoint topic leave.

    A record that is not a position, or cannot be read, changes no position: nothing shows that samzapy wrote it. If an
    unreadable record has the key of a position, an earlier readable record of that key is still valid. Compaction
    keeps the latest record before it, or removes all earlier ones. A position may be lost only if no other record of
    its key is left (`unreadable`).
    """
    facts: list[Record] = []
    known: set[bytes] = set()
    lost: dict[bytes, tuple[SspKeyBucket, str]] = {}
    for record in records:
        key = record.key or b""
        try:
            facts.append(decode(record, topic=topic))
        except CorruptRecordError as error:
            ssp_kb = _position_of_key(key)
            if ssp_kb is not None and key not in known:
                lost[key] = ssp_kb, str(error)
        else:
            known.add(key)
            lost.pop(key, None)
    return replace(positions_of(facts), unreadable=dict(lost.values()))


def _position_of_key(key: bytes) -> SspKeyBucket | None:
    try:
        parsed = parse_key(key.decode())
    except ValueError:
        return None
    is_position = parsed.namespace in (Namespace.CHECKPOINT, Namespace.PROGRESS)
    return SspKeyBucket.parse(parsed.parts[0]) if is_position else None


def positions_of(records: Iterable[Record]) -> Positions:
    """The positions that the records of a checkpoint topic leave."""
    checkpoints: dict[SspKeyBucket, Checkpoint] = {}
    progress: dict[SspKeyBucket, Progress] = {}
    for record in records:
        match record:
            case CheckpointPut():
                checkpoints[record.checkpoint.ssp_kb] = record.checkpoint
            case ProgressPut():
                progress[record.progress.ssp_kb] = record.progress
            case Removed():
                parsed = parse_key(record.key)
                if parsed.namespace is Namespace.CHECKPOINT:
                    checkpoints.pop(SspKeyBucket.parse(parsed.parts[0]), None)
                elif parsed.namespace is Namespace.PROGRESS:
                    progress.pop(SspKeyBucket.parse(parsed.parts[0]), None)
            case _:
                pass
    return Positions(checkpoints=checkpoints, progress=progress)


def start_offset(start: BucketStart, epoch: int, positions: Positions) -> int:
    """The start rule: the largest of grant start, checkpoint and progress.

    Checkpoint and progress count only under the grant's own epoch. So a position of an earlier owner, or from before
    a rewind, never wins, whatever its offset.
    """
    offsets = [start.offset_next]
    checkpoint, progress = positions.checkpoints.get(start.ssp_kb), positions.progress.get(start.ssp_kb)
    if checkpoint is not None and checkpoint.epoch == epoch:
        offsets.append(checkpoint.offset_next)
    if progress is not None and progress.epoch == epoch:
        offsets.append(progress.offset_next)
    return max(offsets)


def starts_of(grants: Iterable[Grant], positions: Positions) -> Mapping[SspKeyBucket, int]:
    """The start offset of each granted SSPKb.

    Raises:
        CorruptRecordError: the position of one of them may be lost.
    """
    grants = tuple(grants)
    positions.check_readable(start.ssp_kb for grant in grants for start in grant.starts)
    return {start.ssp_kb: start_offset(start, grant.epoch, positions) for grant in grants for start in grant.starts}


def committed_of(grants: Iterable[Grant], positions: Positions) -> Mapping[SspKeyBucket, int]:
    """The checkpoints under the epochs of `grants`, which their owners committed."""
    written = ((positions.checkpoints.get(start.ssp_kb), grant.epoch) for grant in grants for start in grant.starts)
    return {
        checkpoint.ssp_kb: checkpoint.offset_next
        for checkpoint, epoch in written
        if checkpoint is not None and checkpoint.epoch == epoch
    }


def copies_taken(
    grants: Iterable[Grant],
    starts: Mapping[SspKeyBucket, int],
    committed: Mapping[SspKeyBucket, int],
    execution_id: ExecutionId,
) -> tuple[ProgressPut, ...]:
    """Progress records which say that copied broadcast stores are complete.

    If a plan has the other task again, the coordinator grants it only after it has read these records
    (`coordinator.assignment.starts`). A task with a checkpoint under its grant needs no such record: the checkpoint
    shows the same.
    """
    return tuple(
        ProgressPut(
            progress=Progress(
                ssp_kb=start.ssp_kb,
                offset_next=starts[start.ssp_kb],
                epoch=grant.epoch,
                execution_id=execution_id,
            )
        )
        for grant in grants
        if grant.broadcast_parent and not any(start.ssp_kb in committed for start in grant.starts)
        for start in grant.starts
        if start.ssp_kb.reader
    )


def stale_keys(grants: Iterable[Grant], positions: Positions) -> Sequence[bytes]:
    """The keys of positions that earlier runs wrote for the buckets of `grants`."""
    stale: list[Record] = []
    for grant in (grant for grant in grants if grant.counts_after):
        for ssp_kb in (start.ssp_kb for start in grant.starts):
            checkpoint, progress = positions.checkpoints.get(ssp_kb), positions.progress.get(ssp_kb)
            if checkpoint is not None and checkpoint.epoch <= grant.counts_after:
                stale.append(CheckpointPut(checkpoint=checkpoint))
            if progress is not None and progress.epoch <= grant.counts_after:
                stale.append(ProgressPut(progress=progress))
    return [key_of(record).encode() for record in stale]


def superseded_keys(grants: Iterable[Grant], positions: Positions, epochs: Collection[int]) -> Sequence[bytes]:
    """The keys of positions of another factor in the buckets of `grants`.

    No task overwrites them, because they are written under another factor or another task's name. While the grant of a
    position is on the log, starts may still be computed from it, so the position stays. While an overlapping bucket is
    held, the old bucket cannot be granted, so no task writes this key in the meantime.

    Args:
        epochs: of every grant on the log that was read; all grants earlier than `grants` were read.
    """
    written: dict[tuple[SystemStreamPartition, str], list[tuple[SspKeyBucket, int, Record]]] = {}
    for checkpoint in positions.checkpoints.values():
        position = (checkpoint.ssp_kb, checkpoint.epoch, CheckpointPut(checkpoint=checkpoint))
        written.setdefault(_place(checkpoint.ssp_kb), []).append(position)
    for progress in positions.progress.values():
        written.setdefault(_place(progress.ssp_kb), []).append(
            (progress.ssp_kb, progress.epoch, ProgressPut(progress=progress))
        )
    keys = {
        key_of(record)
        for grant in grants
        for start in grant.starts
        for ssp_kb, epoch, record in written.get(_place(start.ssp_kb), ())
        if ssp_kb != start.ssp_kb
        and epoch < grant.epoch
        and (epoch not in epochs or epoch <= grant.counts_after)
        and _share_keys(ssp_kb, start.ssp_kb)
    }
    return [key.encode() for key in sorted(keys)]


def _place(ssp_kb: SspKeyBucket) -> tuple[SystemStreamPartition, str]:
    """The SSP, and the base task of the reader if each task reads the input."""
    return ssp_kb.ssp, TaskNameParts.parse(ssp_kb.reader).base_name if ssp_kb.reader else ""


def _share_keys(one: SspKeyBucket, other: SspKeyBucket) -> bool:
    """True if two positions of one place overlap; readers overlap if their tasks do."""
    if not one.reader:
        return one.overlaps(other)
    return TaskNameParts.parse(one.reader).overlaps(TaskNameParts.parse(other.reader))


def check_config(config: JobConfig, recorded: Mapping[str, str]) -> None:
    """Raise ConfigError unless `config` is the one that the job runs under.

    Two processors that start a new job at the same moment may both see it without a configuration. Then the
    configuration of the first leader counts, and the other processor must not work under its own. A container checks it
    with its first grant: a leader with a new configuration grants nothing until the containers of the old one are gone.
    Settings of a single process and secrets may differ (`config.recording`).
    """
    differing = differences(config, recorded)
    if differing:
        raise ConfigError(
            f"wanted the configuration under which {config.job} runs, found {'; '.join(map(str, differing))}. Nothing "
            "was processed here. Start this processor with the same settings, or stop all processors of the job "
            "first: the next one that starts brings the new ones"
        )


def check_bounds(
    starts: Mapping[SspKeyBucket, int],
    bounds: Mapping[SystemStreamPartition, TopicBounds],
    floors: Iterable[Floor] = (),
) -> None:
    """Refuse starts outside a topic's bounds, and floors past its end (law L9).

    Raises:
        LostRangeError: names each lost range exactly, and the option that accepts its loss.
    """
    complaints = [
        complaint
        for ssp_kb, offset in sorted(starts.items())
        if (complaint := _complaint(ssp_kb, offset, bounds[ssp_kb.ssp])) is not None
    ]
    complaints += [
        _cut(floor.ssp_kb, floor.offset_next, bounds[floor.ssp_kb.ssp])
        for floor in floors
        if floor.offset_next > bounds[floor.ssp_kb.ssp].offset_end
    ]
    ranges = [
        _lost_range(ssp_kb, offset, bounds[ssp_kb.ssp])
        for ssp_kb, offset in sorted(starts.items())
        if offset < bounds[ssp_kb.ssp].offset_first
    ]
    if len(ranges) > 1:
        # The last value of a key counts, so one value must name all ranges.
        complaints.append(f"To give up all of them: --set task.lost.range.accept={','.join(ranges)}")
    if complaints:
        raise LostRangeError("\n".join(complaints))


def check_identity(
    config: JobConfig, recorded: Mapping[SystemStream, str], current: Mapping[SystemStream, str]
) -> frozenset[SystemStream]:
    """The inputs that the query leaves out: deleted, or deleted and created again.

    After a topic was created again, recorded offsets refer to other records. The coordinator removes such an input. If
    a pattern matches it, the coordinator then adds the new topic.

    Args:
        recorded: the ids of the topics that the positions belong to.
        current: the ids of the topics that exist now.

    Raises:
        TopicIdentityError: an input that must not be removed was created again; names it and both topic ids.
    """
    absent = {stream for stream in recorded if current.get(stream) != recorded[stream] and may_depart(config, stream)}
    for stream in sorted(recorded.keys() & current.keys() - absent):
        if current[stream] != recorded[stream]:
            raise TopicIdentityError(
                f"{stream}: wanted the topic with id {recorded[stream]}, found {current[stream]}: it was deleted and "
                "made again, so checkpoints say nothing about it. Nothing of it is read. Start the job under another "
                "job.id to read the new topic from its beginning"
            )
    return frozenset(absent)


def _complaint(ssp_kb: SspKeyBucket, offset: int, bounds: TopicBounds) -> str | None:
    if offset < bounds.offset_first:
        return (
            f"{ssp_kb}: wanted to read on from offset {offset}, but the topic now begins at {bounds.offset_first}: "
            f"{bounds.offset_first - offset} offsets, {offset} to {bounds.offset_first - 1}, are gone unread "
            "(retention, or deleted). Nothing was skipped. To give exactly this range up: "
            f"--set task.lost.range.accept={_lost_range(ssp_kb, offset, bounds)}"
        )
    return _cut(ssp_kb, offset, bounds) if offset > bounds.offset_end else None


def _cut(ssp_kb: SspKeyBucket, offset: int, bounds: TopicBounds) -> str:
    return (
        f"{ssp_kb}: wanted to read on from offset {offset}, but the topic ends at {bounds.offset_end}: "
        "its log was cut (deleted and made again, or an unclean leader election), so offsets have changed their "
        "meaning. Nothing was read. Restore the topic, or start the job anew under another job.id"
    )


def _lost_range(ssp_kb: SspKeyBucket, offset: int, bounds: TopicBounds) -> str:
    return f"{ssp_kb}@{offset}-{bounds.offset_first}"

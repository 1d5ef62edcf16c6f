"""Brings a task's local state up to its start: it catches up, or it is rebuilt.

Local state is equal to the last Kafka commit or behind it. So catching up only goes forward: the restore applies the
changelog entries behind the local position, then takes over the start offsets. Any doubt about the state on the disk
ends in a rebuild, which needs only the changelog.

Virtual tasks share the changelog partition of their base task. The message key within an entry's key determines its
bucket (`stream.changelog`). So each task takes its own entries, whatever the factor was when they were written, and
reads past the others. Entries of a store that belongs to tasks, and not to keys, carry the task's name.

After a change of the factor a task begins with another task's copy of a broadcast store; the grant names that task. The
start writes the copy to the changelog under the task's own name, and a mark with the grant's epoch behind it. If the
mark is there, the copy is whole, and the task may have changed it since. Without the mark the copy is made again. The
parent's copy does not change in the meantime, because no execution runs the parent.

A rewind moves positions in inputs and leaves state as it is, so local state may then be ahead of the start. The grant
has the epoch up to which this holds, and older local state is not compared with the start. The changelog is not
rewound, so catching up works as ever.

A container that was declared lost and does not know it yet may still be in a restore, and a standby on the host may be
at work too. So local state that is kept is first marked as belonging to this execution, and each transaction checks the
mark. Without it, a late process could write its older entries over newer ones. A rebuild uses a new environment.

State of an earlier run of a bounded job is invalid. The grant has the last epoch of that run, and the changelog offsets
at which this run begins; local state of such an epoch is rebuilt from there. The rebuild also writes tombstones for the
keys in front of these offsets, so that compaction can remove them. Only the task's execution may write them, and it has
not written anything else yet. They do not change the result of a read, so they may be written partly, or twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice, takewhile
from typing import Final, Self

from samzapy.config import JobConfig
from samzapy.container.local_state.continuity import ChangelogDivergedError, ContinuityCheck
from samzapy.container.ports import StateDirectory, StateEnvironment, TopicBounds, Topics
from samzapy.container.task.changelog_mark import ChangelogMark
from samzapy.container.task.ports import LocalPosition, LocalTransaction
from samzapy.errors import DamagedStateError, DeadlineError, LocalStateError, LostRangeError, TemporaryError
from samzapy.model import clock_entry, timer_entry, window_entry
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.store_size import StoreSize
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.changelog import changelog_key, copy_mark_key, split_changelog_key
from samzapy.stream.log import LogRecord

_LOG = logging.getLogger(__name__)
_RECORDS_PER_COMMIT = 50_000
_WRITES_PER_TRANSACTION = 10_000
_CHUNK_BYTES = 16 * 1024 * 1024
# A mark that is further behind is compared by a read of its own.
_NEAR_OFFSETS = 1_000
# Clocks that are kept in step differ by less. A stamp that is further ahead was written under a wrong clock.
CLOCK_AHEAD_MAX_MS: Final = 10 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Whether a task's environment is kept, and the changelog offsets to read from.

    Attributes:
        rebuild_reason: why the local state is discarded; None to keep it.
        changelog_from: per store, the first changelog offset to apply.
        marks: per store, the record that the changelog must have for local state to be its (`continuity`).
    """

    rebuild_reason: str | None
    changelog_from: Mapping[str, int]
    marks: Mapping[str, ChangelogMark] = field(default_factory=dict)


def plan_restore(
    position: LocalPosition | None,
    *,
    grant: Grant,
    starts: Mapping[SspKeyBucket, int],
    committed: Mapping[SspKeyBucket, int],
    changelogs: Mapping[str, TopicBounds],
    topic_ids: Mapping[str, str],
    now_ms: int,
    retention_ms: int,
) -> RestorePlan:
    """Decide between catching up and rebuilding.

    Args:
        position: that of the environment; None when it is fresh or could not be read.
        starts: where the task's SSPKbs are read from.
        committed: their checkpoints under this grant, where there are any.
        changelogs: per store, the bounds of its changelog partition.
        topic_ids: per store, the cluster's id of its changelog topic.
        retention_ms: delete.retention.ms of the changelogs; tombstones are sure to be seen for half of it.
    """
    begins = {start.store: start.offset for start in grant.changelog_starts}
    reason = doubt(
        position,
        starts=comparable(starts, position, grant),
        changelogs=changelogs,
        topic_ids=topic_ids,
        now_ms=now_ms,
        retention_ms=retention_ms,
    )
    if position is not None and position.epoch > grant.epoch:
        reason = "a newer grant than this one has it"
    if grant.counts_after and position is not None and position.epoch <= grant.counts_after:
        reason = "an earlier run of the job left it"
    if reason is not None or position is None:
        return RestorePlan(
            rebuild_reason=reason,
            changelog_from={
                store: max(bounds.offset_first, begins.get(store, 0)) for store, bounds in sorted(changelogs.items())
            },
        )
    # A transaction that only fires timers, or is of a window, moves no checkpoint.
    if not changelogs.keys() & {timer_entry.STORE, window_entry.STORE, clock_entry.STORE} and _has_caught_up(
        position, grant, committed
    ):
        ends = {store: bounds.offset_end for store, bounds in sorted(changelogs.items())}
        return RestorePlan(rebuild_reason=None, changelog_from=ends)
    marks = _comparable_marks(position, changelogs)
    kept = {store: _read_from(position.changelog_next[store], marks.get(store)) for store in sorted(changelogs)}
    return RestorePlan(rebuild_reason=None, changelog_from=kept, marks=marks)


def _comparable_marks(position: LocalPosition, changelogs: Mapping[str, TopicBounds]) -> Mapping[str, ChangelogMark]:
    """The marks whose offsets the changelogs still hold.

    Records may have been deleted from the front.
    """
    return {
        store: mark
        for store, mark in sorted(position.changelog_last.items())
        if store in changelogs and mark.offset >= changelogs[store].offset_first
    }


def _read_from(changelog_next: int, mark: ChangelogMark | None) -> int:
    """The first offset to read.

    That is the offset of a mark close by, so that the same fetch brings its record.
    """
    if mark is None or changelog_next - mark.offset > _NEAR_OFFSETS:
        return changelog_next
    return min(changelog_next, mark.offset)


def _has_caught_up(position: LocalPosition, grant: Grant, committed: Mapping[SspKeyBucket, int]) -> bool:
    """Whether local state lacks nothing, so that the changelog need not be read.

    Siblings may have written much to it. Under this grant only this execution writes for the task, and every
    transaction that writes to the changelog moves a checkpoint. So an environment that has caught up under this grant
    before, and has reached every checkpoint, has the last transaction too.
    """
    return (position.execution_id, position.epoch) == (grant.execution_id, grant.epoch) and all(
        position.offsets_next.get(str(ssp_kb), -1) >= offset for ssp_kb, offset in committed.items()
    )


def unread(plan: RestorePlan, bounds: Mapping[str, TopicBounds]) -> Mapping[str, range]:
    """By store, the changelog offsets that a task has to read; no empty ranges."""
    ranges = {store: range(offset, bounds[store].offset_end) for store, offset in plan.changelog_from.items()}
    return {store: offsets for store, offsets in ranges.items() if offsets}


def comparable(
    starts: Mapping[SspKeyBucket, int], position: LocalPosition | None, grant: Grant
) -> Mapping[SspKeyBucket, int]:
    """The starts to compare local state with: none if it is older than a rewind."""
    return {} if position is not None and position.epoch < grant.epoch_rewound else starts


def out_of_time(caught_up_at_ms: int, *, now_ms: int, retention_ms: int) -> str | None:
    """Why a tombstone written since then may be gone; None if each is there.

    The age of a time stamp from the future is unknown: the clock of the host was wrong, then or now. Once the right
    clock has passed such a stamp, nothing shows that it was wrong.
    """
    if now_ms - caught_up_at_ms > retention_ms // 2:
        return "last caught up longer ago than half of the changelog's tombstone retention"
    ahead_ms = caught_up_at_ms - now_ms
    if ahead_ms > CLOCK_AHEAD_MAX_MS:
        return f"last caught up {ahead_ms // 60_000} minutes in the future: the clock of this host was or is wrong"
    return None


def doubt(
    position: LocalPosition | None,
    *,
    starts: Mapping[SspKeyBucket, int],
    changelogs: Mapping[str, TopicBounds],
    topic_ids: Mapping[str, str],
    now_ms: int,
    retention_ms: int,
) -> str | None:
    """Why local state must not be used; None if it may be.

    The arguments are those of `plan_restore`.
    """
    if position is None:
        return "no local state"
    reason = out_of_time(position.caught_up_at_ms, now_ms=now_ms, retention_ms=retention_ms)
    if reason is not None:
        return reason
    ahead = [
        f"{ssp_kb} at {position.offsets_next[str(ssp_kb)]}, start {start}"
        for ssp_kb, start in sorted(starts.items())
        if position.offsets_next.get(str(ssp_kb), 0) > start
    ]
    if ahead:
        return f"local state is ahead of the start: {', '.join(ahead)}"
    for store, bounds in sorted(changelogs.items()):
        if store not in position.changelog_next:
            return f"store {store} is new"
        if position.changelog_topic_ids.get(store) != topic_ids[store]:
            return f"the changelog of store {store} was deleted and made again"
        if position.changelog_next[store] > bounds.offset_end:
            return f"the changelog of store {store} ends before the position of local state"
        # Compaction does not move a topic's first offset, but deleting records does.
        if position.changelog_next[store] < bounds.offset_first:
            return f"the changelog of store {store} begins after the position of local state"
    return None


def caught_up_position(
    *,
    execution_id: str,
    epoch: int,
    starts: Mapping[SspKeyBucket, int],
    changelog_next: Mapping[str, int],
    topic_ids: Mapping[str, str],
    now_ms: int,
    changelog_last: Mapping[str, ChangelogMark],
) -> LocalPosition:
    """The position of an environment that has caught up for `execution_id`."""
    return LocalPosition(
        execution_id=execution_id,
        epoch=epoch,
        offsets_next={str(ssp_kb): offset for ssp_kb, offset in sorted(starts.items())},
        changelog_next=dict(changelog_next),
        caught_up_at_ms=now_ms,
        changelog_topic_ids=dict(topic_ids),
        changelog_last=dict(changelog_last),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreJob:
    """A restore of one task: its grant and starts, and its changelogs.

    Attributes:
        bounds: by store, the bounds of the task's changelog partition when all its earlier owners were done.
        topic_ids: by store, the cluster's id of its changelog.
        starts, committed: see `plan_restore`.
        write: writes to the task's partition of a store's changelog, in a transaction that is committed on return.
        on_read: takes the number of changelog offsets that were read, and the number to read.
    """

    config: JobConfig
    topics: Topics
    grant: Grant
    bounds: Mapping[str, TopicBounds]
    topic_ids: Mapping[str, str]
    starts: Mapping[SspKeyBucket, int]
    committed: Mapping[SspKeyBucket, int]
    now_ms: int
    write: Callable[[str, Sequence[tuple[bytes, bytes | None]]], None]
    on_read: Callable[[int, int], None] = lambda read, to_read: None

    @property
    def begins(self) -> Mapping[str, int]:
        """By store, the changelog offset at which this run of a bounded job begins."""
        return {start.store: start.offset for start in self.grant.changelog_starts}

    @property
    def scopes(self) -> Mapping[str, str]:
        return {store.name: store.scope for store in self.config.stores}

    def offset_first(self, store: str) -> int:
        return max(self.bounds[store].offset_first, self.begins.get(store, 0))

    def place(self, store: str) -> str:
        return f"{changelog_topic(self.config.job, store)}/{self.grant.changelog_partition}"

    def records(self, store: str, offset_from: int) -> Iterator[LogRecord]:
        return self.topics.changelog_records(store, self.grant.changelog_partition, offset_from)

    def is_own(self, store: str) -> Callable[[bytes], bool]:
        return is_own_entry(self.grant, self.scopes[store])

    def plan(self, position: LocalPosition | None) -> RestorePlan:
        return plan_restore(
            position,
            grant=self.grant,
            starts=self.starts,
            committed=self.committed,
            changelogs=self.bounds,
            topic_ids=self.topic_ids,
            now_ms=self.now_ms,
            retention_ms=CHANGELOG_DELETE_RETENTION_MS,
        )


def catch_up_or_rebuild(directory: StateDirectory, job: RestoreJob) -> StateEnvironment:
    """Bring a task's local state up to its starts and assign it to the grant.

    Returns:
        The environment, open.

    Raises:
        LostRangeError: a changelog ends before this run's part of it begins.
        LocalStateError: the disk is full. Damaged state is rebuilt, once.
        TemporaryError: another process on this host wrote to the environment meanwhile; begin again.
    """
    _check_begins(job)
    restore = _Restore.opened(directory, job)
    try:
        restore.run()
    except (ChangelogDivergedError, DamagedStateError) as error:
        restore.environment.close()
        if restore.mark is None:
            raise  # The environment was fresh.
        _LOG.warning("task %s: local state is rebuilt: %s", job.grant.task_name, error)
        directory.fresh().close()
        return catch_up_or_rebuild(directory, job)
    except BaseException:
        restore.environment.close()
        raise
    return restore.environment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restore:
    """One pass over an open environment: mark, copy, apply, clean, seal.

    Attributes:
        position: that of the environment before; None if it is not kept.
        mark: the position during the pass; None if the environment is not kept.
    """

    job: RestoreJob
    environment: StateEnvironment
    plan: RestorePlan
    position: LocalPosition | None
    mark: LocalPosition | None

    @classmethod
    def opened(cls, directory: StateDirectory, job: RestoreJob) -> Self:
        environment = directory.open()
        position = position_in(environment)
        plan = job.plan(position)
        if plan.rebuild_reason is not None:
            if position is not None:
                _LOG.warning("task %s: local state is rebuilt: %s", job.grant.task_name, plan.rebuild_reason)
            # Also without a position: a rebuild that died may have left entries that were removed since, and their
            # tombstones may be gone.
            environment.close()
            environment, position = directory.fresh(), None
        mark = None if position is None else _mark(position, job.grant)
        return cls(job=job, environment=environment, plan=plan, position=position, mark=mark)

    def run(self) -> None:
        self._set_mark()
        bounds = self._copy_from_parent()
        changelog_next, changelog_last = self._apply(bounds)
        if self.plan.rebuild_reason is not None:
            self._clean(bounds)
        self._seal(changelog_next, changelog_last)

    def _set_mark(self) -> None:
        if self.mark is not None and self.mark != self.position:
            transaction = _begin_unchanged(self.environment, self.position)
            transaction.set_position(self.mark)
            transaction.commit()

    def _copy_from_parent(self) -> Mapping[str, TopicBounds]:
        """Copy the parent's broadcast stores on their changelogs; returns the new bounds."""
        job, grant = self.job, self.job.grant
        if not grant.broadcast_parent:
            return job.bounds
        stores = [store for store in sorted(job.bounds) if job.scopes[store] == "broadcast"]
        copied = [store for store in stores if _copy(self.environment, store, job)]
        places = [(store, grant.changelog_partition) for store in copied]
        now = job.topics.changelog_bounds(places) if places else {}
        return {**job.bounds, **{store: bounds for (store, _), bounds in now.items()}}

    def _apply(self, bounds: Mapping[str, TopicBounds]) -> tuple[Mapping[str, int], Mapping[str, ChangelogMark]]:
        """Apply the entries that the environment lacks.

        Returns:
            By store, the changelog offset up to which it has all entries, and the last record that it contains.
        """
        to_read = sum(map(len, unread(self.plan, bounds).values()))
        self.job.on_read(0, to_read)
        changelog_next, changelog_last, read_before = {}, {}, 0
        for store, offset_from in self.plan.changelog_from.items():
            offsets = range(offset_from, bounds[store].offset_end)

            def on_read(read: int, before: int = read_before) -> None:
                self.job.on_read(before + read, to_read)

            changelog_next[store], mark = self._apply_store(store, offsets, on_read)
            if mark is not None:
                changelog_last[store] = mark
            read_before += len(offsets)
        return changelog_next, changelog_last

    def _apply_store(
        self, store: str, offsets: range, on_read: Callable[[int], None]
    ) -> tuple[int, ChangelogMark | None]:
        """Apply the task's entries of a store.

        Returns:
            The changelog offset up to which all entries are in, and the last record of the task. The offset is the end
            of the changelog: that of `offsets` or a later one, foreign entries and markers included.

        Entries are committed piecemeal. A restore that dies in between has put newer entries over an older position.
        That does no harm: before any worker starts, the next restore reads to the end again.
        """
        expected = self.plan.marks.get(store)
        if not offsets and expected is None:
            return offsets.start, None if self.position is None else self.position.changelog_last.get(store)
        is_own = self.job.is_own(store)
        check = ContinuityCheck(self.job.place(store), expected, is_own)
        if expected is not None and expected.offset < offsets.start:
            check.read(first_record(self.job.topics, store, self.job.grant, expected.offset))
        offset_next = max(offsets.start, offsets.stop)
        for chunk in _chunks(self.job.records(store, offsets.start), _RECORDS_PER_COMMIT) if offsets else ():
            check.read(chunk)
            offset_next = max(offset_next, chunk[-1].offset + 1)
            if entries := entries_of(chunk, is_own, self.job.place(store)):
                self._write(store, entries)
            on_read(min(chunk[-1].offset + 1, offsets.stop) - offsets.start)
        check.at_end()
        return offset_next, check.mark

    def _write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        transaction = _begin_unchanged(self.environment, self.mark)
        try:
            transaction.write(store, entries)
        except BaseException:
            transaction.abort()
            raise
        transaction.commit()

    def _clean(self, bounds: Mapping[str, TopicBounds]) -> None:
        """Remove the entries of an earlier run of a bounded job from the changelogs."""
        begins = self.job.begins
        for store in sorted(begins.keys() & bounds.keys()):
            _clean(self.environment, store, range(bounds[store].offset_first, begins[store]), self.job)

    def _seal(self, changelog_next: Mapping[str, int], changelog_last: Mapping[str, ChangelogMark]) -> None:
        """Make the environment the grant's."""
        job = self.job
        transaction = _begin_unchanged(self.environment, self.mark)
        transaction.set_position(
            caught_up_position(
                execution_id=job.grant.execution_id,
                epoch=job.grant.epoch,
                starts=job.starts,
                changelog_next=changelog_next,
                topic_ids=job.topic_ids,
                now_ms=job.now_ms,
                changelog_last=changelog_last,
            )
        )
        transaction.commit()


def _mark(position: LocalPosition, grant: Grant) -> LocalPosition:
    """The position of an environment while it is made ready for `grant`.

    Its former execution finds another one in it. The mark has the epoch of the grant only if the
    position had it before: a position of the grant's epoch has caught up (`_has_caught_up`).
    """
    if (position.execution_id, position.epoch) == (grant.execution_id, grant.epoch):
        return position
    return replace(position, execution_id=grant.execution_id, epoch=min(position.epoch, grant.epoch - 1))


def _begin_unchanged(environment: StateEnvironment, mark: LocalPosition | None) -> LocalTransaction:
    """Begin a transaction in an environment whose position is still `mark`.

    Raises:
        TemporaryError: another process has written to the environment.
    """
    transaction = environment.begin()
    try:
        position = transaction.position()
        if position != mark:
            owner = "no execution" if position is None else position.execution_id or "a standby"
            raise TemporaryError(
                f"local state {environment.directory}: wanted it unchanged, found it taken by {owner}"
            )
    except BaseException:
        transaction.abort()
        raise
    return transaction


def _chunks(records: Iterable[LogRecord], count_max: int) -> Iterator[list[LogRecord]]:
    """Up to `count_max` records at a time; fewer if they are large, to save memory."""
    chunk: list[LogRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.key or b"") + len(record.value or b"")
        if len(chunk) == count_max or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def first_record(topics: Topics, store: str, grant: Grant, offset: int) -> Sequence[LogRecord]:
    """The first changelog record of a task at `offset` or behind it; none at the end."""
    return list(islice(topics.changelog_records(store, grant.changelog_partition, offset), 1))


def is_own_entry(grant: Grant, scope: str) -> Callable[[bytes], bool]:
    """Whether an entry is the task's, by its changelog key."""
    if scope == "bucket":
        own = TaskNameParts.parse(grant.task_name)

        @cache
        def shares_keys(name: bytes) -> bool:
            return own.overlaps(TaskNameParts.parse(name.decode()))

        return lambda key: shares_keys(split_changelog_key(key)[0])
    if scope != "key":
        name = grant.task_name.encode()
        return lambda key: split_changelog_key(key)[0] == name
    bucket, factor = grant.key_bucket
    if factor == 1:
        return lambda key: True
    return lambda key: key_bucket(split_changelog_key(key)[0], 0, factor) == bucket


def _clean(environment: StateEnvironment, store: str, offsets: range, job: RestoreJob) -> None:
    """Remove a changelog's entries at `offsets`, but for keys with a later entry.

    `environment` was built from the entries behind `offsets`.
    """
    is_own, place = job.is_own(store), job.place(store)
    earlier = takewhile(lambda record: record.offset < offsets.stop, job.records(store, offsets.start))
    for chunk in _chunks(earlier, _WRITES_PER_TRANSACTION):
        transaction = environment.begin()
        try:
            # Siblings remove their own entries: they may have written some of them in this run by now.
            latest = entries_of(chunk, is_own, place)
            left = [key for key in sorted(latest) if latest[key] is not None and transaction.get(store, key) is None]
        finally:
            transaction.abort()
        if left:
            job.write(store, [(key, None) for key in left])


def _copy(environment: StateEnvironment, store: str, job: RestoreJob) -> bool:
    """Copy a broadcast store of the parent on the changelog; False if it was copied."""
    grant = job.grant
    mark = copy_mark_key(grant.task_name), str(grant.epoch).encode()
    transaction = environment.begin()
    has_mark = transaction.get(store, mark[0]) == mark[1]
    transaction.abort()
    if has_mark:
        return False
    own, parent = grant.task_name.encode(), grant.broadcast_parent.encode()
    copies: dict[bytes, dict[bytes, bytes | None]] = {own: {}, parent: {}}
    records = job.records(store, job.offset_first(store))
    entries = entries_of(records, lambda key: split_changelog_key(key)[0] in copies, job.place(store))
    for key, value in entries.items():
        owner, sub_key = split_changelog_key(key)
        copies[owner][sub_key] = value
    if copies[own].get(split_changelog_key(mark[0])[1]) == mark[1]:
        return False
    # Entries of an earlier life of the task are removed, and the parent's mark is not part of the copy.
    copy = dict.fromkeys(copies[own]) | copies[parent]
    writes = [(changelog_key(own, sub_key), value) for sub_key, value in sorted(copy.items())]
    writes = [(key, value) for key, value in writes if key != mark[0]] + [mark]
    for first in range(0, len(writes), _WRITES_PER_TRANSACTION):
        job.write(store, writes[first : first + _WRITES_PER_TRANSACTION])
    return True


def _check_begins(job: RestoreJob) -> None:
    for store, begin in sorted(job.begins.items()):
        if store in job.bounds and job.bounds[store].offset_end < begin:
            raise LostRangeError(
                f"{changelog_topic(job.config.job, store)}-{job.grant.changelog_partition}: wanted the state of this "
                f"run from offset {begin} on, found that the changelog ends at {job.bounds[store].offset_end}: its log "
                "was cut (deleted and made again, or an unclean leader election). Nothing was read. Start the job anew "
                "under another job.id"
            )


def entries_of(
    records: Iterable[LogRecord], is_own: Callable[[bytes], bool], place: str
) -> dict[bytes, bytes | None]:
    """The task's entries among `records`: the last one of each changelog key.

    A record whose key is not a changelog key is not an entry of a store. It is ignored, with a line in the log.
    """
    entries: dict[bytes, bytes | None] = {}
    others, first = 0, ""
    for record in records:
        key = record.key or b""
        try:
            if is_own(key):
                split_changelog_key(key)
                entries[key] = record.value
        except ValueError as error:
            others += 1
            size = len(key) + len(record.value or b"")
            first = first or f"at offset {record.offset}, key {key[:100]!r}, {size} bytes: {error}"
    if others:
        _LOG.warning(
            "%s: %d records are no entries of a store, the first %s; another program writes to this topic, see "
            "`samzapy doctor --changelogs`",
            place,
            others,
            first,
        )
    return entries


def local_position(directory: StateDirectory) -> LocalPosition | None:
    """The position of a task's local state; None if there is none or it is locked."""
    try:
        return known_position(directory)
    except DeadlineError:
        return None


def known_position(directory: StateDirectory) -> LocalPosition | None:
    """The position of a task's local state; None if there is none.

    Raises:
        DeadlineError: another process has its lock, and so works in it.
    """
    environment = directory.existing()
    if environment is None:
        return None
    try:
        return position_in(environment)
    finally:
        environment.close()


def position_in(environment: StateEnvironment) -> LocalPosition | None:
    """The position of an open environment; None if it is fresh or cannot be read.

    Raises:
        DeadlineError: another process has its lock.
    """
    try:
        transaction = environment.begin()
        try:
            return transaction.position()
        finally:
            transaction.abort()
    except LocalStateError as error:
        _LOG.warning("local state %s is left behind and rebuilt from the changelog: %s", environment.directory, error)
        return None


def sizes_in(environment: StateEnvironment, stores: Iterable[str]) -> Mapping[str, StoreSize]:
    """The sizes of stores in an open environment; empty if they cannot be read.

    They are only shown, so no start fails for want of them.
    """
    try:
        transaction = environment.begin()
        try:
            return {store: transaction.size(store) for store in stores}
        finally:
            transaction.abort()
    except (DeadlineError, LocalStateError) as error:
        _LOG.warning("local state %s: the sizes of its stores are not known: %s", environment.directory, error)
        return {}


def close_cleanly(directory: StateDirectory) -> None:
    """Sync a task's state to disk: it may then be used after a reboot."""
    environment = directory.open()
    try:
        if position_in(environment) is not None:
            environment.sync()
    finally:
        environment.close()

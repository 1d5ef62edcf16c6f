"""How a task's local state is brought level with its checkpoint: catch up, or rebuild from the changelog.

Local state is equal to the last Kafka commit or behind it. So catching up only goes forward: apply what the
changelog holds beyond the local position, then take over the start offsets. Any doubt about what is on the disk
ends in a rebuild, which needs nothing but the changelog.

Virtual tasks share the changelog partition of their base task. An entry's key says by its message key into which
bucket it falls (`stream.changelog`), so each task takes its own entries, whatever the factor was when they were
written, and reads past the others. Entries of a store that belongs to tasks, and not to keys, carry the task's name.

After a change of the factor the copy of a broadcast store that a task begins with is another task's, which the grant
names. The start writes it to the changelog under the task's own name, and last a mark with the grant's epoch. Where the
mark stands, the copy is whole and the task may have gone on with it; without it, it is made anew. Nobody can write to
the parent's meanwhile.

A rewind moves positions in inputs and leaves state as it is: local state may then be ahead of the start, and rightly.
The grant says up to which epoch that is so, and there the two are not compared. The changelog goes on, so what local
state lacks is found in it as ever.

A container that was given up and does not know it yet may still be at a restore, and so may whoever keeps state warm on
the host. So what is kept is marked first, as being made ready by this execution, and each transaction looks whether the
mark still stands: what they have in hand is older than what came in under another's. A rebuild goes into an environment
of its own.

What an earlier run of a bounded job left counts for nothing: the grant says up to which epoch, and from where on the
changelogs count. So local state of such an epoch is a doubt, and a rebuild begins there. Tombstones for the keys in
front of that are written by the rebuild too, so that compaction can take them: nobody else may, and nobody can have
written for the task in the meantime. They change nothing of what is read, so they may be there, half there, or twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from samzapy.config import JobConfig
from samzapy.container.ports import StateDirectory, StateEnvironment, TopicBounds, Topics
from samzapy.container.task.ports import LocalPosition, LocalTransaction
from samzapy.errors import DamagedStateError, DeadlineError, LocalStateError, LostRangeError, TemporaryError
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.stream.changelog import changelog_key, copy_mark_key, split_changelog_key
from samzapy.stream.log import LogRecord

_LOG = logging.getLogger(__name__)
_RECORDS_PER_COMMIT = 50_000
_WRITES_PER_TRANSACTION = 10_000
_CHUNK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """What to do with a task's environment.

    Attributes:
        rebuild_reason: why the local state is thrown away; None to keep it.
        changelog_from: per store, the first changelog offset to apply.
    """

    rebuild_reason: str | None
    changelog_from: Mapping[str, int]


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
        position: what the environment says of itself; None when it is fresh or could not be read.
        starts: where the task's SSPKbs are read from.
        committed: their checkpoints under this grant, where there are any.
        changelogs: per store, what its changelog partition holds.
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
    if _is_level(position, grant, committed):
        ends = {store: bounds.offset_end for store, bounds in sorted(changelogs.items())}
        return RestorePlan(rebuild_reason=None, changelog_from=ends)
    kept = {store: position.changelog_next[store] for store in sorted(changelogs)}
    return RestorePlan(rebuild_reason=None, changelog_from=kept)


def _is_level(position: LocalPosition, grant: Grant, committed: Mapping[SspKeyBucket, int]) -> bool:
    """Whether nothing of the changelog can be missing, so that it need not be read: siblings may have written much.

    Under this grant only this execution writes for the task, and every transaction that writes to the changelog moves
    a checkpoint. So where the environment, which has been level under this grant before, has come to every checkpoint,
    it has the last transaction too.
    """
    return (position.execution_id, position.epoch) == (grant.execution_id, grant.epoch) and all(
        position.offsets_next.get(str(ssp_kb), -1) >= offset for ssp_kb, offset in committed.items()
    )


def unread(plan: RestorePlan, bounds: Mapping[str, TopicBounds]) -> Mapping[str, range]:
    """By store, the offsets of its changelog between a task's local state and the end; no empty ones."""
    found = {store: range(offset, bounds[store].offset_end) for store, offset in plan.changelog_from.items()}
    return {store: offsets for store, offsets in found.items() if offsets}


def comparable(
    starts: Mapping[SspKeyBucket, int], position: LocalPosition | None, grant: Grant
) -> Mapping[SspKeyBucket, int]:
    """Those of a grant's starts that local state must not be ahead of: none, when it is older than a rewind."""
    return {} if position is not None and position.epoch < grant.epoch_rewound else starts


def doubt(
    position: LocalPosition | None,
    *,
    starts: Mapping[SspKeyBucket, int],
    changelogs: Mapping[str, TopicBounds],
    topic_ids: Mapping[str, str],
    now_ms: int,
    retention_ms: int,
) -> str | None:
    """Why local state is not to be used; None when it may be. Arguments as of `plan_restore`."""
    if position is None:
        return "no local state"
    if now_ms - position.caught_up_at_ms > retention_ms // 2:
        return "last caught up longer ago than half of the changelog's tombstone retention"
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
            return f"the changelog of store {store} ends before what was read of it"
        # Compaction does not move a topic's first offset, but deleting records does.
        if position.changelog_next[store] < bounds.offset_first:
            return f"the changelog of store {store} begins after what was read of it"
    return None


def level_position(
    *,
    execution_id: str,
    epoch: int,
    starts: Mapping[SspKeyBucket, int],
    changelog_next: Mapping[str, int],
    topic_ids: Mapping[str, str],
    now_ms: int,
) -> LocalPosition:
    """The position of an environment that has just been brought level and belongs to `execution_id` from now on."""
    return LocalPosition(
        execution_id=execution_id,
        epoch=epoch,
        offsets_next={str(ssp_kb): offset for ssp_kb, offset in sorted(starts.items())},
        changelog_next=dict(changelog_next),
        caught_up_at_ms=now_ms,
        changelog_topic_ids=dict(topic_ids),
    )


def bring_level(
    directory: StateDirectory,
    *,
    topics: Topics,
    bounds: Mapping[str, TopicBounds],
    topic_ids: Mapping[str, str],
    grant: Grant,
    starts: Mapping[SspKeyBucket, int],
    committed: Mapping[SspKeyBucket, int],
    config: JobConfig,
    now_ms: int,
    write: Callable[[str, Sequence[tuple[bytes, bytes | None]]], None],
    reads: Callable[[int, int], None] = lambda read, to_read: None,
) -> StateEnvironment:
    """Bring a task's local state level with `starts` and make it this grant's; returns it open.

    Args:
        committed: as of `plan_restore`.
        bounds: per store, what the task's changelog partition held when all its earlier owners were done.
        topic_ids: per store, the cluster's id of its changelog.
        write: writes to the task's partition of a store's changelog, in a transaction, and is sure of it when it
            returns.
        reads: is told how many offsets of the changelogs were read, and how many there are to read.

    Raises:
        LostRangeError: it ends before what counts begins.
        LocalStateError: the disk is full. State that is damaged is rebuilt, once.
        TemporaryError: another process on this host wrote to the environment meanwhile; begin anew.
    """
    begins = {start.store: start.offset for start in grant.changelog_starts}
    _check_begins(begins, bounds, grant, config)
    environment = directory.open()
    position = position_in(environment)
    plan = plan_restore(
        position,
        grant=grant,
        starts=starts,
        committed=committed,
        changelogs=bounds,
        topic_ids=topic_ids,
        now_ms=now_ms,
        retention_ms=CHANGELOG_DELETE_RETENTION_MS,
    )
    if plan.rebuild_reason is not None:
        if position is not None:
            _LOG.warning("task %s: local state is rebuilt: %s", grant.task_name, plan.rebuild_reason)
        # Also without a position: a rebuild that died may have left entries that were removed since, and their
        # tombstones may be gone.
        environment.close()
        environment = directory.fresh()
    mark = None if plan.rebuild_reason is not None or position is None else _mark(position, grant)
    scopes = {store.name: store.scope for store in config.stores}
    firsts = {store: max(found.offset_first, begins.get(store, 0)) for store, found in bounds.items()}
    try:
        if mark is not None and mark != position:
            transaction = _begun(environment, position)
            transaction.set_position(mark)
            transaction.commit()
        copied = {
            store
            for store in sorted(bounds)
            if scopes[store] == "broadcast"
            and grant.broadcast_parent
            and _copy(environment, topics, store, grant, firsts[store], config, write)
        }
        if copied:
            bounds = {**bounds, **_bounds_now(topics, copied, grant)}
        to_read = sum(map(len, unread(plan, bounds).values()))
        reads(0, to_read)
        changelog_next, read_before = {}, 0
        for store, offset_from in plan.changelog_from.items():
            offset_end = bounds[store].offset_end

            def read_to(offset: int, before: int = read_before - offset_from, end: int = offset_end) -> None:
                reads(before + min(offset, end), to_read)

            changelog_next[store] = _apply(
                environment, mark, topics, store, scopes[store], grant, offset_from, offset_end, config, read_to
            )
            read_before += max(0, offset_end - offset_from)
        if plan.rebuild_reason is not None:
            for store in sorted(begins.keys() & bounds.keys()):
                is_own = is_own_entry(grant, scopes[store])
                _clean(environment, topics, store, grant, is_own, bounds[store].offset_first, begins[store], write)
        transaction = _begun(environment, mark)
        transaction.set_position(
            level_position(
                execution_id=grant.execution_id,
                epoch=grant.epoch,
                starts=starts,
                changelog_next=changelog_next,
                topic_ids=topic_ids,
                now_ms=now_ms,
            )
        )
        transaction.commit()
    except DamagedStateError as error:
        environment.close()
        if mark is None:
            raise  # It was fresh.
        _LOG.warning("task %s: local state is rebuilt: %s", grant.task_name, error)
        directory.fresh().close()
        return bring_level(
            directory,
            topics=topics,
            bounds=bounds,
            topic_ids=topic_ids,
            grant=grant,
            starts=starts,
            committed=committed,
            config=config,
            now_ms=now_ms,
            write=write,
            reads=reads,
        )
    except BaseException:
        environment.close()
        raise
    return environment


def _mark(position: LocalPosition, grant: Grant) -> LocalPosition:
    """The position of an environment that is being made ready for `grant`: whose it was does not find itself in it.

    It is never that of the grant itself unless it was so before: only that is level (`_is_level`).
    """
    if (position.execution_id, position.epoch) == (grant.execution_id, grant.epoch):
        return position
    return replace(position, execution_id=grant.execution_id, epoch=min(position.epoch, grant.epoch - 1))


def _begun(environment: StateEnvironment, mark: LocalPosition | None) -> LocalTransaction:
    """A transaction in an environment that nobody else has written to since it said `mark` of itself.

    Raises:
        TemporaryError: somebody has.
    """
    transaction = environment.begin()
    try:
        found = transaction.position()
        if found != mark:
            owner = "nobody" if found is None else f"{found.execution_id or 'whoever keeps it warm'}"
            raise TemporaryError(f"local state {environment.directory}: wanted it as it was, found it made {owner}'s")
    except BaseException:
        transaction.abort()
        raise
    return transaction


def _apply(
    environment: StateEnvironment,
    mark: LocalPosition | None,
    topics: Topics,
    store: str,
    scope: str,
    grant: Grant,
    offset_from: int,
    offset_end: int,
    config: JobConfig,
    read_to: Callable[[int], None],
) -> int:
    """Apply the task's entries of a store's changelog from `offset_from` on; returns up to where all of them are in.

    That is the end, which lies at `offset_end` or behind it, foreign entries and markers included.

    Entries are committed piecemeal. A restore that dies in between has put newer entries over an older position, and
    that is no harm: before any worker starts, the next one goes to the end again.
    """
    if offset_from >= offset_end:
        return offset_from
    offset_next = offset_end
    place = f"{changelog_topic(config.job, store)}/{grant.changelog_partition}"
    is_own = is_own_entry(grant, scope)
    records = topics.changelog_records(store, grant.changelog_partition, offset_from)
    for chunk in _chunks(records, _RECORDS_PER_COMMIT):
        offset_next = max(offset_next, chunk[-1].offset + 1)
        entries = entries_of(chunk, is_own, place)
        if entries:
            transaction = _begun(environment, mark)
            try:
                transaction.write(store, entries)
            except BaseException:
                transaction.abort()
                raise
            transaction.commit()
        read_to(chunk[-1].offset + 1)
    return offset_next


def _chunks(records: Iterable[LogRecord], count_max: int) -> Iterator[list[LogRecord]]:
    """So many records at a time, or fewer where they are large: no more is held in memory, whatever is restored."""
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


def is_own_entry(grant: Grant, scope: str) -> Callable[[bytes], bool]:
    """Whether an entry is the task's, by its changelog key."""
    if scope != "key":
        name = grant.task_name.encode()
        return lambda key: split_changelog_key(key)[0] == name
    bucket, factor = grant.key_bucket
    if factor == 1:
        return lambda key: True
    return lambda key: key_bucket(split_changelog_key(key)[0], 0, factor) == bucket


def _clean(
    environment: StateEnvironment,
    topics: Topics,
    store: str,
    grant: Grant,
    is_own: Callable[[bytes], bool],
    offset_first: int,
    offset_end: int,
    write: Callable[[str, Sequence[tuple[bytes, bytes | None]]], None],
) -> None:
    """Remove what stands in front of `offset_end` on a store's changelog, but for keys that were written behind it.

    `environment` has been built from what stands behind it.
    """
    records = topics.changelog_records(store, grant.changelog_partition, offset_first)
    earlier = takewhile(lambda record: record.offset < offset_end, records)
    for chunk in _chunks(earlier, _WRITES_PER_TRANSACTION):
        transaction = environment.begin()
        try:
            # Those of siblings are theirs: they may have written some of them in this run by now.
            latest = entries_of(chunk, is_own, f"{store}/{grant.changelog_partition}")
            left = [key for key in sorted(latest) if latest[key] is not None and transaction.get(store, key) is None]
        finally:
            transaction.abort()
        if left:
            write(store, [(key, None) for key in left])


def _copy(
    environment: StateEnvironment,
    topics: Topics,
    store: str,
    grant: Grant,
    offset_first: int,
    config: JobConfig,
    write: Callable[[str, Sequence[tuple[bytes, bytes | None]]], None],
) -> bool:
    """Give the task its parent's copy of a broadcast store, on the changelog; False if it was there already."""
    mark = copy_mark_key(grant.task_name), str(grant.epoch).encode()
    transaction = environment.begin()
    has_mark = transaction.get(store, mark[0]) == mark[1]
    transaction.abort()
    if has_mark:
        return False
    place = f"{changelog_topic(config.job, store)}/{grant.changelog_partition}"
    own, parent = grant.task_name.encode(), grant.broadcast_parent.encode()
    found: dict[bytes, dict[bytes, bytes | None]] = {own: {}, parent: {}}
    records = topics.changelog_records(store, grant.changelog_partition, offset_first)
    for key, value in entries_of(records, lambda key: split_changelog_key(key)[0] in found, place).items():
        owner, sub_key = split_changelog_key(key)
        if owner in found:
            found[owner][sub_key] = value
    if found[own].get(split_changelog_key(mark[0])[1]) == mark[1]:
        return False
    # What the task left of an earlier life goes, and the parent's own mark is none of the copy.
    copy = dict.fromkeys(found[own]) | found[parent]
    writes = [(changelog_key(own, sub_key), value) for sub_key, value in sorted(copy.items())]
    writes = [(key, value) for key, value in writes if key != mark[0]] + [mark]
    for first in range(0, len(writes), _WRITES_PER_TRANSACTION):
        write(store, writes[first : first + _WRITES_PER_TRANSACTION])
    return True


def _bounds_now(topics: Topics, stores: Iterable[str], grant: Grant) -> Mapping[str, TopicBounds]:
    found = topics.changelog_bounds([(store, grant.changelog_partition) for store in sorted(stores)])
    return {store: bounds for (store, _), bounds in found.items()}


def _check_begins(
    begins: Mapping[str, int], bounds: Mapping[str, TopicBounds], grant: Grant, config: JobConfig
) -> None:
    for store, begin in sorted(begins.items()):
        if store in bounds and bounds[store].offset_end < begin:
            raise LostRangeError(
                f"{changelog_topic(config.job, store)}-{grant.changelog_partition}: wanted the state of this run from "
                f"offset {begin} on, found that the changelog ends at {bounds[store].offset_end}: its log was cut "
                "(deleted and made again, or an unclean leader election). Nothing was read. Start the job anew under "
                "another job.id"
            )


def entries_of(
    records: Iterable[LogRecord], is_own: Callable[[bytes], bool], place: str
) -> dict[bytes, bytes | None]:
    """The task's entries among `records`, by their changelog keys: of several with one key the last stands.

    A record whose key is no changelog key is no entry of any store: it is left aside, and told in the log.
    """
    found: dict[bytes, bytes | None] = {}
    others, first = 0, ""
    for record in records:
        key = record.key or b""
        try:
            if is_own(key):
                split_changelog_key(key)
                found[key] = record.value
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
    return found


def local_position(directory: StateDirectory) -> LocalPosition | None:
    """What a task's local state says of itself; None when there is none, or somebody else keeps its lock."""
    try:
        return known_position(directory)
    except DeadlineError:
        return None


def known_position(directory: StateDirectory) -> LocalPosition | None:
    """What a task's local state says of itself; None when there is none.

    Raises:
        DeadlineError: somebody keeps its lock, and so works in it.
    """
    environment = directory.existing()
    if environment is None:
        return None
    try:
        return position_in(environment)
    finally:
        environment.close()


def position_in(environment: StateEnvironment) -> LocalPosition | None:
    """What an open environment says of itself; None of a fresh one, and of one that cannot be read.

    Raises:
        DeadlineError: somebody keeps its lock.
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


def close_cleanly(directory: StateDirectory) -> None:
    """Sync a task's state to disk: it may then be used after a reboot."""
    environment = directory.open()
    try:
        if position_in(environment) is not None:
            environment.sync()
    finally:
        environment.close()

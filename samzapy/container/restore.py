"""How a task's local state is brought level with its checkpoint: catch up, or rebuild from the changelog.

Local state is equal to the last Kafka commit or behind it. So catching up only goes forward: apply what the
changelog holds beyond the local position, then take over the start offsets. Any doubt about what is on the disk
ends in a rebuild, which needs nothing but the changelog (design section 7).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from samzapy.config import JobConfig
from samzapy.container.ports import (
    LocalPosition,
    StateDirectory,
    StateEnvironment,
    TopicBounds,
    Topics,
)
from samzapy.errors import CorruptRecordError
from samzapy.model.grant import Grant
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.stream.changelog import split_changelog_key
from samzapy.stream.log import LogRecord

_LOG = logging.getLogger(__name__)
_RECORDS_PER_COMMIT = 50_000

CLEAN = "clean"
"""Stands for the boot id in an environment that was synced to disk and closed in good order."""


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
    starts: Mapping[SspKeyBucket, int],
    changelogs: Mapping[str, TopicBounds],
    topic_ids: Mapping[str, str],
    boot_id: str,
    now_ms: int,
    retention_ms: int,
) -> RestorePlan:
    """Decide between catching up and rebuilding.

    Args:
        position: what the environment says of itself; None when it is fresh or could not be read.
        starts: where the task's SSPKbs are read from.
        changelogs: per store, what its changelog partition holds.
        topic_ids: per store, the cluster's id of its changelog topic.
        boot_id: of this boot of the host.
        retention_ms: delete.retention.ms of the changelogs; tombstones are sure to be seen for half of it.
    """
    reason = _doubt(position, starts, changelogs, topic_ids, boot_id, now_ms, retention_ms)
    if reason is not None or position is None:
        return RestorePlan(
            rebuild_reason=reason,
            changelog_from={store: b.offset_first for store, b in sorted(changelogs.items())},
        )
    kept = {store: position.changelog_next[store] for store in sorted(changelogs)}
    return RestorePlan(rebuild_reason=None, changelog_from=kept)


def _doubt(
    position: LocalPosition | None,
    starts: Mapping[SspKeyBucket, int],
    changelogs: Mapping[str, TopicBounds],
    topic_ids: Mapping[str, str],
    boot_id: str,
    now_ms: int,
    retention_ms: int,
) -> str | None:
    if position is None:
        return "no local state"
    if position.boot_id not in (boot_id, CLEAN):
        return "the host was rebooted without a clean close"
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
    boot_id: str,
    now_ms: int,
) -> LocalPosition:
    """The position of an environment that has just been brought level and belongs to `execution_id` from now on."""
    return LocalPosition(
        execution_id=execution_id,
        epoch=epoch,
        offsets_next={str(ssp_kb): offset for ssp_kb, offset in sorted(starts.items())},
        changelog_next=dict(changelog_next),
        caught_up_at_ms=now_ms,
        boot_id=boot_id,
        changelog_topic_ids=dict(topic_ids),
    )


def bring_level(
    directory: StateDirectory,
    *,
    topics: Topics,
    grant: Grant,
    starts: Mapping[SspKeyBucket, int],
    config: JobConfig,
    boot_id: str,
    now_ms: int,
) -> StateEnvironment:
    """Bring a task's local state level with `starts` and make it this grant's; returns it open.

    Raises:
        CorruptRecordError: the changelog holds a record that is none of ours; named by offset.
    """
    stores = [store.name for store in config.stores]
    bounds = {store: topics.changelog_bounds(store, grant.changelog_partition) for store in stores}
    topic_ids = {store: topics.changelog_topic_id(store) for store in stores}
    environment = directory.open()
    found = environment.begin()
    position = found.position()
    found.abort()
    plan = plan_restore(
        position,
        starts=starts,
        changelogs=bounds,
        topic_ids=topic_ids,
        boot_id=boot_id,
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
    try:
        changelog_next = {
            store: _apply(environment, topics, store, grant, plan.changelog_from[store], config) for store in stores
        }
        transaction = environment.begin()
        transaction.set_position(
            level_position(
                execution_id=grant.execution_id,
                epoch=grant.epoch,
                starts=starts,
                changelog_next=changelog_next,
                topic_ids=topic_ids,
                boot_id=boot_id,
                now_ms=now_ms,
            )
        )
        transaction.commit()
    except BaseException:
        environment.close()
        raise
    return environment


def _apply(
    environment: StateEnvironment,
    topics: Topics,
    store: str,
    grant: Grant,
    offset_from: int,
    config: JobConfig,
) -> int:
    """Apply a store's changelog from `offset_from` to its end; returns the offset after the last record.

    Entries are committed piecemeal. A restore that dies in between has put newer entries over an older position, and
    that is no harm: before any worker starts, the next one goes to the end again.
    """
    topic = changelog_topic(config.job, store)
    offset_next = offset_from
    records = iter(topics.changelog_records(store, grant.changelog_partition, offset_from))
    while chunk := list(islice(records, _RECORDS_PER_COMMIT)):
        transaction = environment.begin()
        try:
            place = f"{topic}/{grant.changelog_partition}"
            transaction.write(store, dict(_entry(record, place) for record in chunk))
        except BaseException:
            transaction.abort()
            raise
        transaction.commit()
        offset_next = chunk[-1].offset + 1
    return offset_next


def _entry(record: LogRecord, place: str) -> tuple[bytes, bytes | None]:
    """Key and value of a changelog record; of several with one key the last stands, as on the topic."""
    key = record.key or b""
    try:
        split_changelog_key(key)
    except ValueError as error:
        raise CorruptRecordError(
            f"{place} offset {record.offset}, key {record.key!r}: wanted a changelog record of samzapy, "
            f"found another ({error}); somebody else wrote to this topic"
        ) from error
    return key, record.value


def close_cleanly(directory: StateDirectory) -> None:
    """Sync a task's state to disk and mark it so: it may then be used after a reboot."""
    environment = directory.open()
    try:
        transaction = environment.begin()
        position = transaction.position()
        if position is None:
            transaction.abort()
            return
        transaction.set_position(replace(position, boot_id=CLEAN))
        transaction.commit()
        environment.sync()
    finally:
        environment.close()

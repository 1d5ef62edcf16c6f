"""A virtual task's first state, taken from other tasks' state on this host.

After a split it comes from the parent, after a merge from the children. Otherwise the state would come from the
changelog, which the whole base task shares, and the pause of a key would grow with the state of all keys. Here each
entry is copied once, from file to file, whatever the number of tasks that take a part.

A relative is any task of the same base whose bucket overlaps: the parent, the children, or a task of an older factor.
Its environment holds all entries of its own bucket up to its changelog position, and only entries of that bucket are
taken. A target is a task that begins this way. Its part may come from several relatives, each piece from the one that
has read furthest. The target then has the lowest of their changelog positions, and `container.local_state.restore`
catches up from there.

Nothing here is needed. If a relative is in doubt (the list of `restore`), incomplete, or locked by another process, the
target begins without state and is built from the changelog.

No execution writes to a relative any more: its bucket is granted to the target, so its former owner has released it or
is fenced. Its mark is removed before it is read all the same, so that a worker that was held up for long finds that the
environment is no longer its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from samzapy.config import JobConfig
from samzapy.container.local_state.restore import doubt, known_position, local_position, out_of_time, plan_restore
from samzapy.container.ports import StateDirectory, StateEnvironment, TopicBounds
from samzapy.container.task.changelog_mark import ChangelogMark
from samzapy.container.task.owners import task_entries
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DeadlineError, LocalStateError
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, is_covered
from samzapy.model.text import some
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS
from samzapy.plan.task_names import TaskNameParts
from samzapy.stream.changelog import task_entry_key

_LOG = logging.getLogger(__name__)
_COPIED = frozenset({"key", "bucket"})
"""The scopes of stores that are copied; others are read from the changelog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A task with local state on this host, and the position of that state."""

    task_name: TaskName
    bucket: int
    factor: int
    position: LocalPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A container's host and changelogs, for its restores.

    Attributes:
        tasks_here: the tasks with local state on this host.
        bounds, topic_ids: as of `restore.RestoreJob`; the former by store and changelog partition.
    """

    config: JobConfig
    tasks_here: Sequence[TaskName]
    state_of: Callable[[str], StateDirectory]
    bounds: Mapping[tuple[str, int], TopicBounds]
    topic_ids: Mapping[str, str]
    now_ms: int

    def own_bounds(self, grant: Grant) -> Mapping[str, TopicBounds]:
        return {store.name: self.bounds[store.name, grant.changelog_partition] for store in self.config.stores}


@dataclass(slots=True)
class _Target:
    grant: Grant
    # By bucket of `factor`, within the target's own.
    sources: Mapping[int, Relative]
    factor: int
    environment: StateEnvironment | None = field(default=None)


def inherit(grants: Sequence[Grant], starts: Mapping[SspKeyBucket, int], host: Host) -> None:
    """Give tasks without usable local state that of their relatives on this host."""
    relatives_of = relatives(grants, host.tasks_here)

    @cache
    def position_of(name: TaskName) -> LocalPosition | None:
        # Once for all targets: another container on this host may change it between two looks, and the targets that
        # saw the first one would then get no entries of it.
        return local_position(host.state_of(name))

    refused: list[str] = []
    targets = [
        target
        for grant in grants
        if (target := _target(grant, relatives_of[grant.task_name], starts, host, position_of, refused))
    ]
    if refused:
        _LOG.info("local state of other tasks is not taken: %s", some(refused))
    begun = []
    try:
        for target in targets:
            target.environment = host.state_of(target.grant.task_name).fresh()
        for source, takers in _takers(targets):
            _copy_to_takers(source, takers, host)
        for target in targets:
            if target.environment is not None:
                _set_position(target, host)
                begun.append(f"{target.grant.task_name} with that of {_names(target)}")
        if begun:
            _LOG.info("tasks begin with the state of others: %s", some(begun))
    finally:
        for target in targets:
            _close(target)


def _takers(targets: Sequence[_Target]) -> Sequence[tuple[Relative, Sequence[_Target]]]:
    """Each relative with the targets that take a part of it, by name."""
    sources = {relative.task_name: relative for target in targets for relative in target.sources.values()}
    names = [{relative.task_name for relative in target.sources.values()} for target in targets]
    return [
        (sources[name], [target for target, own in zip(targets, names, strict=True) if name in own])
        for name in sorted(sources)
    ]


def _copy_to_takers(source: Relative, takers: Sequence[_Target], host: Host) -> None:
    """Copy a relative's entries to its takers.

    A taker whose part could not be copied begins without state.
    """
    takers = [target for target in takers if target.environment is not None]
    if takers and not _copy_parts(source, takers, host):
        for target in takers:
            _close(target)


def relatives(grants: Iterable[Grant], tasks_here: Iterable[TaskName]) -> Mapping[TaskName, Sequence[TaskName]]:
    """For each granted task, the other tasks here that have or had part of its keys."""
    here = _by_base(tasks_here)
    overlapping = {}
    for grant in grants:
        own = TaskNameParts.parse(grant.task_name)
        overlapping[grant.task_name] = sorted(
            parts.name for parts in here.get(own.base_name, ()) if parts.name != own.name and own.overlaps(parts)
        )
    return overlapping


def _by_base(names: Iterable[TaskName]) -> Mapping[TaskName, Sequence[TaskNameParts]]:
    """Virtual tasks by their base task.

    A look at each pair would take minutes with a thousand tasks.
    """
    by_base: dict[TaskName, list[TaskNameParts]] = {}
    for parts in map(TaskNameParts.parse, names):
        by_base.setdefault(parts.base_name, []).append(parts)
    return by_base


def choose(bucket: int, factor: int, candidates: Sequence[Relative]) -> tuple[int, Mapping[int, Relative]] | None:
    """The relatives whose state makes up `bucket` of `factor`.

    Returns:
        The finest factor, and by each of its buckets the relative that has read furthest; None if a bucket has none.
    """
    finest = max((factor, *(relative.factor for relative in candidates)))
    chosen: dict[int, Relative] = {}
    for piece in range(bucket, finest, factor):
        having = [relative for relative in candidates if piece % relative.factor == relative.bucket]
        if not having:
            return None
        chosen[piece] = max(having, key=_progress)
    return finest, chosen


def _progress(relative: Relative) -> tuple[int, TaskName]:
    return sum(relative.position.changelog_next.values()), relative.task_name


def clear_out(grants: Sequence[Grant], host: Host) -> None:
    """Remove local state of relatives on this host, now that `grants` have their own.

    It stays while a part of its keys has no newer state here, because another container on this host may be about to
    take it. It is removed when it is too old to be used.
    """
    relatives_of = relatives(grants, host.tasks_here)
    newest: dict[TaskName, int] = {}
    for grant in grants:
        for name in relatives_of[grant.task_name]:
            newest[name] = max(grant.epoch, newest.get(name, 0))
    granted = _by_base(grant.task_name for grant in grants)
    here = _by_base(host.tasks_here)
    removed = []
    for name in sorted(newest):
        try:
            position = known_position(host.state_of(name))
        except DeadlineError:
            continue  # Another process works in it.
        if position is not None and position.epoch > newest[name]:
            continue  # Its grant is newer than ours: we are late, and its owner is at work.
        own = TaskNameParts.parse(name)
        base = own.base_name
        newer = [other for other in here.get(base, ()) if position and _is_newer(other.name, position, host)]
        if _is_taken_over(own, [*granted.get(base, ()), *newer]) or (position and _is_too_old(position, host)):
            host.state_of(name).remove()
            removed.append(name)
    if removed:
        _LOG.info("removed the local state of tasks whose keys others have: %s", some(removed))


def _target(
    grant: Grant,
    names: Sequence[TaskName],
    starts: Mapping[SspKeyBucket, int],
    host: Host,
    position_of: Callable[[TaskName], LocalPosition | None],
    refused: list[str],
) -> _Target | None:
    if not names or not host.config.stores:
        return None
    position = local_position(host.state_of(grant.task_name))
    plan = plan_restore(
        position,
        grant=grant,
        starts={start.ssp_kb: starts[start.ssp_kb] for start in grant.starts},
        committed={},
        changelogs=host.own_bounds(grant),
        topic_ids=host.topic_ids,
        now_ms=host.now_ms,
        retention_ms=CHANGELOG_DELETE_RETENTION_MS,
    )
    if plan.rebuild_reason is None:
        return None
    candidates = []
    for name in names:
        relative_position = position_of(name)
        reason = "there is none" if relative_position is None else _doubt(relative_position, grant, host)
        if relative_position is None or reason is not None:
            refused.append(f"{grant.task_name} not that of {name}: {reason}")
            continue
        parts = TaskNameParts.parse(name)
        candidates.append(
            Relative(task_name=name, bucket=parts.bucket, factor=parts.factor, position=relative_position)
        )
    bucket, factor = grant.key_bucket
    chosen = choose(bucket, factor, candidates)
    return None if chosen is None else _Target(grant, chosen[1], chosen[0])


def _doubt(position: LocalPosition, grant: Grant, host: Host) -> str | None:
    """Why the state of a relative is not taken; None to take it."""
    if position.epoch <= grant.counts_after:
        return "an earlier run of the job left it"
    if position.epoch > grant.epoch:
        return "a newer grant than this one has it"
    reason = doubt(
        position,
        starts={},
        changelogs=host.own_bounds(grant),
        topic_ids=host.topic_ids,
        now_ms=host.now_ms,
        retention_ms=CHANGELOG_DELETE_RETENTION_MS,
    )
    return reason if reason is not None else _ahead(position, grant)


def _ahead(position: LocalPosition, grant: Grant) -> str | None:
    """Why the position is ahead of the grant in a shared bucket; None if it is not."""
    if position.epoch < grant.epoch_rewound:
        return None
    for text, offset in sorted(position.offsets_next.items()):
        held = SspKeyBucket.parse(text)
        for start in grant.starts:
            if not held.overlaps(start.ssp_kb):
                continue
            finest = max(held.factor, start.finest_factor)
            done = min(
                done for bucket, done in start.positions(finest).items() if bucket % held.factor == held.bucket
            )
            if offset > done:
                return f"it is ahead of the start: {held} at {offset}, start {done}"
    return None


def _copy_parts(source: Relative, takers: Sequence[_Target], host: Host) -> bool:
    """Copy each taker's part of a relative; False when that could not be done."""
    try:
        environment = host.state_of(source.task_name).existing()
    except DeadlineError:
        environment = None
    if environment is None:
        return False
    try:
        if not _seal(environment, source):
            return False
        factor = max(target.factor for target in takers)
        target_of_bucket = [_taker(bucket, source, takers) for bucket in range(factor)]
        stores = [store.name for store in host.config.stores if store.scope == "key"]
        environments = [target.environment for target in takers if target.environment is not None]
        environment.hand_over(stores, environments, target_of_bucket)
        for store in (store.name for store in host.config.stores if store.scope == "bucket"):
            _copy_all(store, environment, environments)
    except (DeadlineError, LocalStateError) as error:
        _LOG.warning("cannot copy the local state of task %s, will read its changelog: %s", source.task_name, error)
        return False
    finally:
        environment.close()
    return True


def _copy_all(store: str, source: StateEnvironment, targets: Sequence[StateEnvironment]) -> None:
    """Copy the few entries of a store whose entries belong to key buckets.

    An older entry of another relative may come later; the changelog behind the target's position has the newest one.
    """
    transaction = source.begin()
    try:
        entries = {task_entry_key(name, b""): value for name, value in task_entries(transaction, store).items()}
    finally:
        transaction.abort()
    for target in targets:
        transaction = target.begin()
        transaction.write(store, entries)
        transaction.commit()


def _seal(environment: StateEnvironment, source: Relative) -> bool:
    """Remove the former execution from the position; False if that has changed.

    Another container on this host may have removed it meanwhile, for its own part.
    """
    sealed = replace(source.position, execution_id="")
    transaction = environment.begin()
    try:
        position = transaction.position()
        if position is None or replace(position, execution_id="") != sealed:
            return False
        transaction.set_position(sealed)
        transaction.commit()
    finally:
        transaction.abort()
    return True


def _taker(bucket: int, source: Relative, takers: Sequence[_Target]) -> int:
    """The number of the taker that takes this bucket from `source`; -1 for none."""
    for number, target in enumerate(takers):
        relative = target.sources.get(bucket % target.factor)
        if relative is not None and relative.task_name == source.task_name:
            return number
    return -1


def _set_position(target: _Target, host: Host) -> None:
    """Write the target's position: the lowest of the relatives that it was made of."""
    assert target.environment is not None
    positions = [relative.position for relative in target.sources.values()]
    bounds = host.own_bounds(target.grant)
    begins = {start.store: start.offset for start in target.grant.changelog_starts}
    transaction = target.environment.begin()
    transaction.set_position(
        LocalPosition(
            execution_id="",
            epoch=min(position.epoch for position in positions),
            offsets_next={},
            changelog_next={
                store.name: min(position.changelog_next[store.name] for position in positions)
                if store.scope in _COPIED
                else max(bounds[store.name].offset_first, begins.get(store.name, 0))
                for store in host.config.stores
            },
            caught_up_at_ms=min(position.caught_up_at_ms for position in positions),
            changelog_topic_ids=dict(host.topic_ids),
            changelog_last=_furthest_marks(positions, [s.name for s in host.config.stores if s.scope in _COPIED]),
        )
    )
    transaction.commit()


def _furthest_marks(positions: Sequence[LocalPosition], stores: Sequence[str]) -> Mapping[str, ChangelogMark]:
    """By store, the last record that one of these states contains.

    A changelog that has this record has all records before it.
    """
    marks = {store: [p.changelog_last[store] for p in positions if store in p.changelog_last] for store in stores}
    return {store: max(candidates) for store, candidates in marks.items() if candidates}


def _close(target: _Target) -> None:
    """Close a target's environment, which is ignored without a position."""
    environment, target.environment = target.environment, None
    if environment is not None:
        environment.close()


def _names(target: _Target) -> str:
    return ", ".join(sorted({relative.task_name for relative in target.sources.values()}))


def _is_taken_over(task: TaskNameParts, others: Iterable[TaskNameParts]) -> bool:
    """Whether every key of a task is one of `others`', which have the same base."""
    return is_covered((task.bucket, task.factor), ((other.bucket, other.factor) for other in others))


def _is_newer(name: TaskName, than: LocalPosition, host: Host) -> bool:
    position = local_position(host.state_of(name))
    return position is not None and position.epoch > than.epoch


def _is_too_old(position: LocalPosition, host: Host) -> bool:
    return (
        out_of_time(position.caught_up_at_ms, now_ms=host.now_ms, retention_ms=CHANGELOG_DELETE_RETENTION_MS)
        is not None
    )

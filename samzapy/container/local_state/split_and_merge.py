"""A virtual task's first state, taken from its relatives on this host: its parent's after a split, its children's
after a merge.

Without that it would come from the changelog, which the whole base task shares, so the pause of a key would grow with
the state of all keys. Here each entry is copied once, from a file to a file, whatever the number of heirs.

A relative is any task of the same base whose bucket overlaps: the parent, the children, or what is left of an older
factor. Its environment holds everything of its own bucket up to its place in the changelog, and only of that bucket
anything is taken. An heir's part may come from several relatives, of each piece the one that is furthest, and then the
heir stands in the changelog where the least of them does: `container.local_state.restore` brings it level from there
as it does with any state that is behind.

Nothing here is needed: whatever is in doubt about a relative (the list of `restore`), or not whole, or kept locked by
another process, leaves the heir without state, and it is built from the changelog.

Nobody writes to a relative any more: its bucket is granted to the heir, so whoever had it has let go or is fenced. Its
mark is taken off all the same before it is read, so that a worker that was held up for long finds it is no longer its.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from samzapy.config import JobConfig
from samzapy.container.local_state.restore import doubt, known_position, local_position, plan_restore
from samzapy.container.ports import StateDirectory, StateEnvironment, TopicBounds
from samzapy.container.task.changelog_mark import ChangelogMark
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DeadlineError, LocalStateError
from samzapy.model.grant import Grant
from samzapy.model.job import TaskName
from samzapy.model.ssp import SspKeyBucket, is_covered
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS
from samzapy.plan.task_names import TaskNameParts

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A task with local state on this host, and what that says of itself."""

    task_name: TaskName
    bucket: int
    factor: int
    position: LocalPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the restore of a container needs to know of its host and its changelogs.

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
class _Heir:
    grant: Grant
    # By bucket of `factor`, within the heir's own.
    sources: Mapping[int, Relative]
    factor: int
    environment: StateEnvironment | None = field(default=None)


def inherit(grants: Sequence[Grant], starts: Mapping[SspKeyBucket, int], host: Host) -> None:
    """Give those of `grants` that have no local state of use what their relatives on this host have."""
    relatives_of = relatives(grants, host.tasks_here)
    heirs = [heir for grant in grants if (heir := _heir(grant, relatives_of[grant.task_name], starts, host))]
    try:
        for heir in heirs:
            heir.environment = host.state_of(heir.grant.task_name).fresh()
        for source, takers in _takers(heirs):
            _copy_to_takers(source, takers, host)
        for heir in heirs:
            if heir.environment is not None:
                _set_position(heir, host)
                _LOG.info("task %s begins with the state of %s", heir.grant.task_name, _names(heir))
    finally:
        for heir in heirs:
            _give_up(heir)


def _takers(heirs: Sequence[_Heir]) -> Sequence[tuple[Relative, Sequence[_Heir]]]:
    """Each relative with the heirs that take a part of it, by name."""
    sources = {relative.task_name: relative for heir in heirs for relative in heir.sources.values()}
    names = [{relative.task_name for relative in heir.sources.values()} for heir in heirs]
    return [
        (sources[name], [heir for heir, own in zip(heirs, names, strict=True) if name in own])
        for name in sorted(sources)
    ]


def _copy_to_takers(source: Relative, takers: Sequence[_Heir], host: Host) -> None:
    """Copy a relative's entries to its takers; those whose part could not be copied begin without state."""
    takers = [heir for heir in takers if heir.environment is not None]
    if takers and not _hand_over(source, takers, host):
        for heir in takers:
            _give_up(heir)


def relatives(grants: Iterable[Grant], tasks_here: Iterable[TaskName]) -> Mapping[TaskName, Sequence[TaskName]]:
    """For each granted task those of `tasks_here` that have, or had, part of its keys; without itself."""
    here = _by_base(tasks_here)
    found = {}
    for grant in grants:
        own = TaskNameParts.parse(grant.task_name)
        found[grant.task_name] = sorted(
            parts.name for parts in here.get(own.base_name, ()) if parts.name != own.name and own.overlaps(parts)
        )
    return found


def _by_base(names: Iterable[TaskName]) -> Mapping[TaskName, Sequence[TaskNameParts]]:
    """Virtual tasks by their base task; a look at each pair would take minutes with a thousand of them."""
    found: dict[TaskName, list[TaskNameParts]] = {}
    for parts in map(TaskNameParts.parse, names):
        found.setdefault(parts.base_name, []).append(parts)
    return found


def choose(bucket: int, factor: int, candidates: Sequence[Relative]) -> tuple[int, Mapping[int, Relative]] | None:
    """Whose state makes up `bucket` of `factor`: by bucket of the finest factor, which comes first.

    Of several that have a piece, the one that has read furthest; None when there is none for one of the pieces.
    """
    finest = max((factor, *(found.factor for found in candidates)))
    chosen: dict[int, Relative] = {}
    for piece in range(bucket, finest, factor):
        having = [found for found in candidates if piece % found.factor == found.bucket]
        if not having:
            return None
        chosen[piece] = max(having, key=lambda found: (sum(found.position.changelog_next.values()), found.task_name))
    return finest, chosen


def clear_out(grants: Sequence[Grant], host: Host) -> None:
    """Remove what relatives left on this host, now that `grants` have state of their own.

    One stays while a part of its keys has no newer state here, because another container on this host may be about to
    take it; until it is so old that nobody would use it.
    """
    relatives_of = relatives(grants, host.tasks_here)
    newest: dict[TaskName, int] = {}
    for grant in grants:
        for name in relatives_of[grant.task_name]:
            newest[name] = max(grant.epoch, newest.get(name, 0))
    granted = _by_base(grant.task_name for grant in grants)
    here = _by_base(host.tasks_here)
    for name in sorted(newest):
        try:
            position = known_position(host.state_of(name))
        except DeadlineError:
            continue  # Somebody is at work in it.
        if position is not None and position.epoch > newest[name]:
            continue  # Its grant is newer than ours: we are late, and it is at work.
        own = TaskNameParts.parse(name)
        base = own.base_name
        newer = [other for other in here.get(base, ()) if position and _is_newer(other.name, position, host)]
        if _is_taken_over(own, [*granted.get(base, ()), *newer]) or (position and _is_too_old(position, host)):
            host.state_of(name).remove()
            _LOG.info("removed the local state of %s, whose keys other tasks have", name)


def _heir(grant: Grant, names: Sequence[TaskName], starts: Mapping[SspKeyBucket, int], host: Host) -> _Heir | None:
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
        found = local_position(host.state_of(name))
        reason = "there is none" if found is None else _doubt(found, grant, host)
        if found is None or reason is not None:
            _LOG.info("task %s takes nothing of the local state of %s: %s", grant.task_name, name, reason)
            continue
        parts = TaskNameParts.parse(name)
        candidates.append(Relative(task_name=name, bucket=parts.bucket, factor=parts.factor, position=found))
    bucket, factor = grant.key_bucket
    chosen = choose(bucket, factor, candidates)
    return None if chosen is None else _Heir(grant, chosen[1], chosen[0])


def _doubt(position: LocalPosition, grant: Grant, host: Host) -> str | None:
    """Why nothing is taken of a relative; None to take it."""
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
    """As with a task's own state: what it has done must be done according to the grant, in each shared bucket."""
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


def _hand_over(source: Relative, takers: Sequence[_Heir], host: Host) -> bool:
    """Copy each taker's part of a relative; False when that could not be done."""
    try:
        environment = host.state_of(source.task_name).existing()
    except DeadlineError:
        environment = None
    if environment is None:
        return False
    try:
        if not _sealed(environment, source):
            return False
        factor = max(heir.factor for heir in takers)
        heir_of_bucket = [_taker(bucket, source, takers) for bucket in range(factor)]
        stores = [store.name for store in host.config.stores if store.scope == "key"]
        environments = [heir.environment for heir in takers if heir.environment is not None]
        environment.hand_over(stores, environments, heir_of_bucket)
    except (DeadlineError, LocalStateError) as error:
        _LOG.warning("the state of task %s could not be taken over and is read anew: %s", source.task_name, error)
        return False
    finally:
        environment.close()
    return True


def _sealed(environment: StateEnvironment, source: Relative) -> bool:
    """Take the mark of the execution that had it off; False when it is not what it was when it was looked at.

    Another container on this host may have done so meanwhile, for its own part.
    """
    sealed = replace(source.position, execution_id="")
    transaction = environment.begin()
    try:
        found = transaction.position()
        if found is None or replace(found, execution_id="") != sealed:
            return False
        transaction.set_position(sealed)
        transaction.commit()
    finally:
        transaction.abort()
    return True


def _taker(bucket: int, source: Relative, takers: Sequence[_Heir]) -> int:
    """Which of `takers` has a bucket of the finest factor, as far as it takes it from `source`; -1 for none."""
    for number, heir in enumerate(takers):
        if heir.sources.get(bucket % heir.factor) == source:
            return number
    return -1


def _set_position(heir: _Heir, host: Host) -> None:
    """Where the heir stands: no further than any of those that it was made of."""
    assert heir.environment is not None
    positions = [relative.position for relative in heir.sources.values()]
    bounds = host.own_bounds(heir.grant)
    begins = {start.store: start.offset for start in heir.grant.changelog_starts}
    transaction = heir.environment.begin()
    transaction.set_position(
        LocalPosition(
            execution_id="",
            epoch=min(position.epoch for position in positions),
            offsets_next={},
            changelog_next={
                store.name: min(position.changelog_next[store.name] for position in positions)
                if store.scope == "key"
                else max(bounds[store.name].offset_first, begins.get(store.name, 0))
                for store in host.config.stores
            },
            caught_up_at_ms=min(position.caught_up_at_ms for position in positions),
            changelog_topic_ids=dict(host.topic_ids),
            changelog_last=_furthest_marks(positions, [s.name for s in host.config.stores if s.scope == "key"]),
        )
    )
    transaction.commit()


def _furthest_marks(positions: Sequence[LocalPosition], stores: Sequence[str]) -> Mapping[str, ChangelogMark]:
    """By store, the last record that one of these states contains: a changelog that has it has all before it."""
    marks = {store: [p.changelog_last[store] for p in positions if store in p.changelog_last] for store in stores}
    return {store: max(candidates) for store, candidates in marks.items() if candidates}


def _give_up(heir: _Heir) -> None:
    """Close an heir's environment. Without a position it counts for nothing."""
    environment, heir.environment = heir.environment, None
    if environment is not None:
        environment.close()


def _names(heir: _Heir) -> str:
    return ", ".join(sorted({relative.task_name for relative in heir.sources.values()}))


def _is_taken_over(task: TaskNameParts, others: Iterable[TaskNameParts]) -> bool:
    """Whether every key of a task is one of `others`', which have the same base."""
    return is_covered((task.bucket, task.factor), ((other.bucket, other.factor) for other in others))


def _is_newer(name: TaskName, than: LocalPosition, host: Host) -> bool:
    position = local_position(host.state_of(name))
    return position is not None and position.epoch > than.epoch


def _is_too_old(position: LocalPosition, host: Host) -> bool:
    return host.now_ms - position.caught_up_at_ms > CHANGELOG_DELETE_RETENTION_MS // 2

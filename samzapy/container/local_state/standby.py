"""Local state that a standby keeps for tasks that another execution runs.

Every commit of a runner is on the changelogs, so a reader of them has the state, except for the last moment. A standby,
or the reserve of a move, restores the tasks of its processor on its own host and then reads on. It takes no slot and no
transactional id and writes nothing to Kafka, so its mistakes harm no other execution. When it is granted the tasks, it
starts as any execution does (`container.startup`): `restore.plan_restore` finds local state with a changelog position,
keeps it, and catches up.

The newest grant of each task says from where on the changelog counts, and for which keys. So the same doubts as in a
start end in a rebuild here, and after a change of the factor the standby takes the state of relatives
(`container.local_state.split_and_merge`). The position that is written has no execution and no input positions. It has
the epoch of that grant, and claims only that the state equals the changelog up to its offsets.

A task's directory belongs to the execution that runs it. If the runner is on this host, or the directory is marked by a
living execution, the directory is not touched: the state is local as it is. If another process writes to a directory
that is kept, its position is no longer the one written last, and the standby opens it again.

The work is done in pieces (`look`), because the same thread also reads the container's orders. Heartbeats are sent by
another thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from samzapy.config import JobConfig
from samzapy.container.local_state.continuity import ChangelogDivergedError, ContinuityCheck
from samzapy.container.local_state.restore import (
    close_cleanly,
    entries_of,
    first_record,
    is_own_entry,
    known_position,
    out_of_time,
    plan_restore,
    position_in,
)
from samzapy.container.local_state.split_and_merge import Host, clear_out, inherit
from samzapy.container.orders import WarmTasks
from samzapy.container.ports import ChangelogFollower, ChangelogRead, Clock, StateDirectory, StateEnvironment, Topics
from samzapy.container.task.ports import LocalPosition
from samzapy.errors import DataError, DeadlineError, LocalStateError, SamzapyError, TemporaryError
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.text import some
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic
from samzapy.stream.log import LogRecord

_LOG = logging.getLogger(__name__)
_RECORDS_PER_LOOK = 20_000
# Orders of one plan arrive together, as grants do.
_SETTLE_MS = 300
_AGAIN_MS = 5000
# How often it is asked whether the changelogs are still the same topics.
_IDENTITY_EVERY_MS = 10_000
# How often a position is written that moved over records of others only.
_POSITION_EVERY_MS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPorts:
    """The ports of a standby, a part of `container.ports.ContainerPorts`."""

    clock: Clock
    topics: Topics
    changelog_follower: ChangelogFollower
    state_of: Callable[[str], StateDirectory]
    tasks_here: Callable[[], Sequence[TaskName]]


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A task whose state is kept.

    `written`: the position in its environment; None while there is none. `offsets_next`: by store, up to where it has
    the changelog; that may be further. `targets`: where the changelogs ended when it began. `caught_up_at_ms`: wall
    clock.
    """

    grant: Grant
    environment: StateEnvironment
    written: LocalPosition | None
    offsets_next: dict[str, int]
    begins: Mapping[str, int]
    targets: Mapping[str, int]
    caught_up_at_ms: int
    written_at_ms: int
    is_own: Mapping[str, Callable[[bytes], bool]]
    checks: Mapping[str, ContinuityCheck]

    @property
    def has_caught_up(self) -> bool:
        return all(self.offsets_next[store] >= target for store, target in self.targets.items())


class _Disturbed(Exception):
    """The state that is kept has changed: no error, but a reason to open it again."""


class StandbyState:
    """Keeps the state of the tasks that it is told of, piece by piece.

    Args:
        execution_id: of the container whose host it is.
    """

    def __init__(self, config: JobConfig, execution_id: ExecutionId, ports: WarmPorts) -> None:
        self._config = config
        self._execution_id = execution_id
        self._ports = ports
        self._has_stores = bool(config.stores)
        self._wanted: WarmTasks | None = None
        self._settles_at_ms = 0
        self._again_at_ms = 0
        self._current: WarmTasks | None = None
        self._state: _OpenState | None = None
        self._trouble = ""

    def look(self, wanted: WarmTasks) -> bool:
        """Do a piece of the work; whether there was any, and may be more.

        A failure is retried a little later: another execution runs the tasks.
        """
        now_ms = self._ports.clock.monotonic_ms()
        if wanted != self._wanted:
            self._wanted, self._settles_at_ms = wanted, now_ms + _SETTLE_MS
        if now_ms < max(self._settles_at_ms, self._again_at_ms):
            return False
        try:
            if wanted != self._current:
                self._begin(wanted)
                return True
            return self._state is not None and self._state.read_on(now_ms)
        except _Disturbed as disturbed:
            _LOG.warning("standby state has changed, will open it again: %s", disturbed)
            self._release()
            self._again_at_ms = now_ms + _AGAIN_MS
            return False
        except (TemporaryError, DeadlineError, LocalStateError, DataError) as error:
            self._defer(error, now_ms)
            return False

    def progress(self, wanted: WarmTasks) -> StandbyProgress:
        """How ready the tasks of `wanted` are."""
        if not self._has_stores:
            return StandbyProgress(tasks=wanted.task_count, level=len(wanted.grants))
        return StandbyProgress(tasks=wanted.task_count) if self._state is None else self._state.progress(wanted)

    def close(self) -> None:
        """Write the positions, then release the directories and the connection."""
        try:
            if self._state is not None:
                self._state.write_positions(self._ports.clock.monotonic_ms())
        except (_Disturbed, DeadlineError, LocalStateError) as error:
            _LOG.info("cannot write the position of standby state: %s", error)
        self._release()
        self._wanted = None

    def end(self) -> None:
        """`close`, and sync the directories: they may then be used after a reboot."""
        names = [] if self._state is None else self._state.task_names
        self.close()
        for name in names:
            close_cleanly(self._ports.state_of(name))

    def _begin(self, wanted: WarmTasks) -> None:
        self._release()
        if self._has_stores:
            self._state = _OpenState(self._config, self._execution_id, self._ports)
            self._state.open(wanted)
            self._trouble = ""
        self._current = wanted

    def _defer(self, error: SamzapyError, now_ms: int) -> None:
        if str(error) != self._trouble:
            _LOG.warning("cannot keep standby state, will retry: %s", error)
        self._trouble = str(error)
        self._release()
        self._again_at_ms = now_ms + _AGAIN_MS

    def _release(self) -> None:
        state, self._state, self._current = self._state, None, None
        if state is not None:
            state.close()


class _OpenState:
    """The state that is kept for one set of orders.

    It is opened once, then read on until it is closed.
    """

    def __init__(self, config: JobConfig, execution_id: ExecutionId, ports: WarmPorts) -> None:
        self._config = config
        self._execution_id = execution_id
        self._ports = ports
        self._stores = sorted(store.name for store in config.stores)
        self._scopes = {store.name: store.scope for store in config.stores}
        self._kept: dict[TaskName, _Kept] = {}
        self._with_runner: frozenset[TaskName] = frozenset()
        self._ends: dict[tuple[str, int], int] = {}
        self._topic_ids: Mapping[str, str] = {}
        self._identity_at_ms = 0
        self._has_cleared_out = False

    @property
    def task_names(self) -> Sequence[TaskName]:
        return sorted(self._kept)

    def open(self, wanted: WarmTasks) -> None:
        """Open the environments of tasks that run elsewhere, and follow their changelogs."""
        grants = [grant for grant in wanted.grants if not self._is_with_runner(grant, wanted)]
        host = self._host_now(grants)
        starts = {start.ssp_kb: start.offset_next for grant in grants for start in grant.starts}
        inherit(grants, starts, host)
        for grant in grants:
            self._kept[grant.task_name] = self._opened(grant, host)
        self._ends = {place: bounds.offset_end for place, bounds in host.bounds.items()}
        self._with_runner = frozenset(grant.task_name for grant in wanted.grants).difference(self._kept)
        self._ports.changelog_follower.assign({place: self._reached(place) for place in self._places()})
        progress = self.progress(wanted)
        _LOG.info(
            "keeping standby state of %d tasks (%s): %d records to read; %d more tasks run on this host",
            len(grants),
            some([grant.task_name for grant in grants]),
            progress.total,
            progress.at_hand,
        )

    def progress(self, wanted: WarmTasks) -> StandbyProgress:
        """How ready the tasks of `wanted` are; a task that was granted again is not."""
        epochs = {grant.task_name: grant.epoch for grant in wanted.grants}
        current = [kept for name, kept in self._kept.items() if epochs.get(name) == kept.grant.epoch]
        with_runner = self._with_runner & epochs.keys()
        steps = [
            (min(kept.offsets_next[store], target) - kept.begins[store], target - kept.begins[store])
            for kept in current
            for store, target in kept.targets.items()
        ]
        return StandbyProgress(
            tasks=wanted.task_count,
            level=sum(kept.has_caught_up for kept in current) + len(with_runner),
            lag=sum(max(0, end - self._reached(place)) for place, end in self._ends.items()),
            restored=sum(max(0, done) for done, _ in steps),
            total=sum(max(0, to_do) for _, to_do in steps),
            at_hand=len(with_runner),
        )

    def read_on(self, now_ms: int) -> bool:
        """Read a piece of the changelogs; whether there was anything."""
        if not self._kept:
            return False
        self._check_topics(now_ms)
        read = self._ports.changelog_follower.poll(_RECORDS_PER_LOOK)
        for kept in self._kept.values():
            self._take(kept, read, now_ms)
        for place, tail in read.items():
            self._ends[place] = max(tail.offset_end, tail.offset_next)
        if not self._has_cleared_out and all(kept.has_caught_up for kept in self._kept.values()):
            self._clear_out()
        return any(tail.records for tail in read.values())

    def write_positions(self, now_ms: int) -> None:
        for kept in self._kept.values():
            self._write(kept, {}, now_ms)

    def close(self) -> None:
        for kept in self._kept.values():
            kept.environment.close()
        if self._kept:
            self._ports.changelog_follower.assign({})

    # --- opening ---

    def _is_with_runner(self, grant: Grant, wanted: WarmTasks) -> bool:
        """Whether a living execution works in the task's directory.

        An execution of an older grant has released it.
        """
        if grant.task_name in wanted.with_runner:
            return True
        try:
            position = known_position(self._ports.state_of(grant.task_name))
        except DeadlineError:
            return True
        return position is not None and position.execution_id in wanted.living and position.epoch >= grant.epoch

    def _host_now(self, grants: Sequence[Grant]) -> Host:
        ports = self._ports
        self._topic_ids = ports.topics.changelog_topic_ids(self._stores)
        self._identity_at_ms = ports.clock.monotonic_ms()
        partitions = sorted({grant.changelog_partition for grant in grants})
        places = [(store, partition) for store in self._stores for partition in partitions]
        return Host(
            config=self._config,
            tasks_here=ports.tasks_here(),
            state_of=ports.state_of,
            bounds=ports.topics.changelog_bounds(places),
            topic_ids=self._topic_ids,
            now_ms=ports.clock.wall_ms(),
        )

    def _opened(self, grant: Grant, host: Host) -> _Kept:
        """Open a task's environment, with its state if usable, and write its position."""
        directory = self._ports.state_of(grant.task_name)
        # Not `open`, which discards a locked environment: another process may work in it.
        environment = directory.existing() or directory.fresh()
        try:
            position = position_in(environment)
            if position is not None and position.epoch > grant.epoch:
                raise _Disturbed(f"{grant.task_name} has been granted again")
            plan = plan_restore(
                position,
                # Another execution has the grant, so the state is not taken for caught up under it.
                grant=replace(grant, execution_id=self._execution_id),
                starts={start.ssp_kb: start.offset_next for start in grant.starts},
                committed={},
                changelogs=host.own_bounds(grant),
                topic_ids=self._topic_ids,
                now_ms=host.now_ms,
                retention_ms=CHANGELOG_DELETE_RETENTION_MS,
            )
            caught_up_at_ms = host.now_ms if position is None else position.caught_up_at_ms
            if plan.rebuild_reason is not None:
                if position is not None:
                    _LOG.warning("task %s: standby state is rebuilt: %s", grant.task_name, plan.rebuild_reason)
                stale, environment, caught_up_at_ms = environment, directory.fresh(), host.now_ms
                stale.close()
                position = None
            is_own = {store: is_own_entry(grant, self._scopes[store]) for store in self._stores}
            kept = _Kept(
                grant=grant,
                environment=environment,
                written=position,
                offsets_next=dict(plan.changelog_from),
                begins=plan.changelog_from,
                targets={store: bounds.offset_end for store, bounds in host.own_bounds(grant).items()},
                caught_up_at_ms=caught_up_at_ms,
                written_at_ms=self._ports.clock.monotonic_ms(),
                is_own=is_own,
                checks={
                    store: ContinuityCheck(self._place(store, grant), plan.marks.get(store), is_own[store])
                    for store in self._stores
                },
            )
            for store, mark in plan.marks.items():
                if mark.offset < plan.changelog_from[store]:
                    record = first_record(self._ports.topics, store, grant, mark.offset)
                    self._compare(kept, store, record, is_at_end=not record)
            self._write(kept, {}, kept.written_at_ms)
        except BaseException:
            environment.close()
            raise
        return kept

    def _position_of(self, kept: _Kept) -> LocalPosition:
        marks = {store: check.mark for store, check in kept.checks.items()}
        return LocalPosition(
            execution_id="",
            epoch=kept.grant.epoch,
            offsets_next={},
            changelog_next=dict(kept.offsets_next),
            caught_up_at_ms=kept.caught_up_at_ms,
            changelog_topic_ids=dict(self._topic_ids),
            changelog_last={store: mark for store, mark in marks.items() if mark is not None},
        )

    # --- reading on ---

    def _check_topics(self, now_ms: int) -> None:
        if now_ms - self._identity_at_ms >= _IDENTITY_EVERY_MS:
            self._identity_at_ms = now_ms
            if self._ports.topics.changelog_topic_ids(self._stores) != self._topic_ids:
                raise _Disturbed("a changelog was deleted and made again")
        now_wall_ms = self._ports.clock.wall_ms()
        for at_ms in {kept.caught_up_at_ms for kept in self._kept.values()}:
            reason = out_of_time(at_ms, now_ms=now_wall_ms, retention_ms=CHANGELOG_DELETE_RETENTION_MS)
            if reason is not None:
                raise _Disturbed(reason)

    def _take(self, kept: _Kept, read: Mapping[tuple[str, int], ChangelogRead], now_ms: int) -> None:
        """Write the task's entries and its new position to its environment."""
        partition = kept.grant.changelog_partition
        entries: dict[str, Mapping[bytes, bytes | None]] = {}
        has_moved = False
        for store in self._stores:
            tail = read[store, partition]
            if tail.offset_next < kept.offsets_next[store]:
                continue  # Another task that shares the partition is behind.
            self._compare(kept, store, tail.records, is_at_end=tail.is_at_end)
            # The last record of each key counts, as on the topic. Records that are in already do no harm: any later
            # record of their keys is read here too.
            own = entries_of(tail.records, kept.is_own[store], self._place(store, kept.grant))
            if own:
                entries[store] = own
            has_moved = has_moved or tail.offset_next > kept.offsets_next[store]
            kept.offsets_next[store] = tail.offset_next
        if all(read[store, partition].is_at_end for store in self._stores):
            kept.caught_up_at_ms = self._ports.clock.wall_ms()
            has_moved = True
        if entries or (has_moved and now_ms - kept.written_at_ms >= _POSITION_EVERY_MS):
            self._write(kept, entries, now_ms)

    def _compare(self, kept: _Kept, store: str, records: Sequence[LogRecord], *, is_at_end: bool) -> None:
        """Compare records with the mark; discard state that its changelog does not have.

        Raises:
            _Disturbed: it was discarded.
        """
        check = kept.checks[store]
        try:
            check.read(records)
            if is_at_end:
                check.at_end()
        except ChangelogDivergedError as error:
            # The callers close the environment that is left behind.
            self._ports.state_of(kept.grant.task_name).fresh().close()
            raise _Disturbed(f"{kept.grant.task_name}: {error}") from error

    def _place(self, store: str, grant: Grant) -> str:
        return f"{changelog_topic(self._config.job, store)}/{grant.changelog_partition}"

    def _write(self, kept: _Kept, entries: Mapping[str, Mapping[bytes, bytes | None]], now_ms: int) -> None:
        position = self._position_of(kept)
        transaction = kept.environment.begin()
        try:
            if transaction.position() != kept.written:
                raise _Disturbed(f"{kept.grant.task_name} was written by another process")
            for store in sorted(entries):
                transaction.write(store, entries[store])
            transaction.set_position(position)
            transaction.commit()
        finally:
            transaction.abort()
        kept.written, kept.written_at_ms = position, now_ms

    def _clear_out(self) -> None:
        """Remove local state of relatives, which has no use once all tasks have caught up."""
        self._has_cleared_out = True
        ports = self._ports
        grants = [kept.grant for kept in self._kept.values()]
        host = Host(
            config=self._config,
            tasks_here=[name for name in ports.tasks_here() if name not in self._kept],
            state_of=ports.state_of,
            bounds={},
            topic_ids=self._topic_ids,
            now_ms=ports.clock.wall_ms(),
        )
        clear_out(grants, host)

    # --- state that is kept ---

    def _places(self) -> Collection[tuple[str, int]]:
        return sorted(
            {(store, kept.grant.changelog_partition) for kept in self._kept.values() for store in kept.targets}
        )

    def _reached(self, place: tuple[str, int]) -> int:
        """Up to where every task that shares a partition has it."""
        store, partition = place
        return min(
            (kept.offsets_next[store] for kept in self._kept.values() if kept.grant.changelog_partition == partition),
            default=self._ends.get(place, 0),
        )

"""An execution as a small state machine, with the container's own pure rules.

It acts on the world in single steps, so that any event may come between two of them: read the stream, send a heartbeat,
take a transactional id, begin a transaction, commit it. It is as careful as a container must be and no more: in
particular it looks at its lease only before it begins.

It reads its inputs by micro-batches, which begin where the last one ended, and by tails in between, which begin at the
positions. So micro-batches repeat messages that tails have handled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from samzapy.config import JobConfig
from samzapy.container.local_state.restore import RestoreJob, catch_up_or_rebuild, close_cleanly
from samzapy.container.local_state.split_and_merge import Host, clear_out, inherit
from samzapy.container.local_state.standby import StandbyState, WarmPorts
from samzapy.container.orders import Orders, read_on
from samzapy.container.start_rules import (
    Positions,
    check_bounds,
    committed_of,
    copies_taken,
    positions_of,
    stale_keys,
    starts_of,
    superseded_keys,
)
from samzapy.container.task.changelog_mark import mark_of
from samzapy.coordinator.grant_values import HeldGrant
from samzapy.errors import DeadlineError, FencedError, LostContainerError, ProducerError, SamzapyError
from samzapy.model.checkpoint import Checkpoint, Progress
from samzapy.model.container import ContainerPhase, driver_transactional_id, slot_transactional_id
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.standby_progress import StandbyProgress
from samzapy.stream.changelog import changelog_key, copy_mark_key, task_entry_key
from samzapy.stream.codec import encode
from samzapy.stream.log import Write
from samzapy.stream.records import CheckpointPut, ProgressPut
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.virtual_clock import VirtualClock
from simulation.checks import BrokenLawError, Ledger, decoded
from simulation.inputs import FINEST, Inputs
from simulation.state import (
    BROADCAST,
    KEYED,
    Changelogs,
    Disk,
    Environment,
    LocalTransaction,
    MemoryChangelogFollower,
    entry_of,
    one_more,
)

SLOT_COUNT = 1
STOPS_NOW = 0.3
"""The luck of one that stops without delay."""
WORKS_MUCH = 0.9
"""... and of one that has the largest batches, and no mishap."""
_DIES_AT_ITS_START = 0.05
_PRODUCES_AT_ONCE = 0.5
_SENT_ITS_COMMIT = 0.5
_TAIL_LAG_MAX = 12
_TAIL_ENDS_IN = 6
"""A tail ends after so many transactions on average."""


class ContainerEnded(BaseException):
    """The process was killed at this point of its start.

    Nothing catches it but `SimulatedContainer.step`.
    """


@dataclass(frozen=True, slots=True)
class _Handled:
    """A task's part of a transaction.

    It has the entries that it wrote, by store, and its open local transaction.
    """

    grant: Grant
    local: LocalTransaction
    written: Mapping[str, Mapping[bytes, bytes | None]]


@dataclass(slots=True)
class _Work:
    """The effect of an open transaction, once it is committed.

    `positions`: the records that are still to be produced, behind all others. `is_of_driver`: it records the positions
    that were only read past, and removes stale ones. `is_committed`: by Kafka; the local transactions are still open.
    """

    log: MemoryLog
    ranges: tuple[tuple[SspKeyBucket, int, int], ...]
    handled: tuple[_Handled, ...] = ()
    positions: Sequence[Write] = ()
    is_of_driver: bool = False
    is_committed: bool = False


class SimulatedContainer:
    """One execution.

    Attributes:
        alive: the process is there; a paused one is, too.
        is_reported_lost: a heartbeat was answered `alive: false`.
        lease_until_ms: in true time.
        serving: the grants of its query; it commits only under these.
        is_commit_in_flight: it was killed after it had sent a commit, which may still arrive.
        is_hung: it is stuck for ever; only a kill ends it.
        is_deaf: it does not stop on any request.
        answers_until_ms: from then on, in true time, its heartbeats arrive and every answer to it is lost; None: never.
        unanswered_since_ms: when it sent the first heartbeat of those that had no answer; None while the last one had.
        committed_ms: when a commit that it heard of last moved a position, in true time.
        was_level: it once reported the state of all tasks of its processor as complete.
    """

    def __init__(
        self,
        *,
        stream: MemoryTopic,
        changelogs: Changelogs,
        disk: Disk,
        ledger: Ledger,
        inputs: Inputs,
        config: JobConfig,
        random: Random,
        clock: VirtualClock,
        execution_id: str,
        processor_id: str,
        host: str,
        pid: int,
        is_launched: bool = False,
    ) -> None:
        self.execution_id = ExecutionId(execution_id)
        self.processor_id = ProcessorId(processor_id)
        self.host = host
        self.pid = pid
        self.alive = True
        self.paused = False
        self.stopping = False
        self.is_commit_in_flight = False
        self.is_hung = self.is_deaf = self.was_level = False
        self.is_reported_lost = False
        self.answers_until_ms: int | None = None
        self.unanswered_since_ms: int | None = None
        self.state = ContainerPhase.STARTED
        self.lease_until_ms = 0
        self.orders = Orders(execution_id=self.execution_id)
        # The grants of its orders, which each step asks for.
        self._wanted: tuple[Orders | None, tuple[Grant, ...]] = (None, ())
        self.serving: tuple[Grant, ...] = ()
        self.positions: dict[SspKeyBucket, int] = {}
        self.committed_ms: dict[SspKeyBucket, int] = {}
        self._reported: Mapping[SspKeyBucket, int] = {}
        # Where the next micro-batch begins; a tail does not move it.
        self._scanned: dict[SspKeyBucket, int] = {}
        self._is_tailing = False
        # By bucket of the finest factor: the first offset that is not done, where the query began.
        self._begins: dict[SspKeyBucket, Mapping[int, int]] = {}
        # The positions that were read past and are not recorded; stale records of another factor on the checkpoint
        # topic.
        self._idle: dict[SspKeyBucket, int] = {}
        self._superseded: Sequence[bytes] = ()
        # The open local state of the grants that it serves.
        self._environments: dict[TaskName, Environment] = {}
        self._stream = stream
        self._changelogs = changelogs
        self._disk = disk
        self._ledger = ledger
        self._inputs = inputs
        self._config = config
        self._is_bounded = config.is_bounded_job
        self._random = random
        self._clock = clock
        # After so many effects of a start the process is killed; 0: it is not.
        self._dies_in = 0
        self._slot = MemoryLog(changelogs.checkpoints, slot_transactional_id(config.job, self.execution_id, 0))
        self._driver = MemoryLog(changelogs.checkpoints, driver_transactional_id(config.job, self.execution_id))
        # The newest order to restart that its query was started after.
        self.restart = 0
        self._work: _Work | None = None
        self._is_level = False
        # Where people start containers there are no standbys, and each is a process of its own.
        self._is_launched = is_launched
        self._state = self._keeper()

    # --- the coordinator stream ---

    def follow(self, count_max: int | None = None) -> int:
        """Read on, as far as can be read without waiting; how many records came."""
        records, offset_next = self._stream.read_stable(self.orders.offset_next, count_max)
        if offset_next == self.orders.offset_next:
            return 0
        self.orders = read_on(self.orders, records, offset_next, topic=self._stream.name)
        return len(records)

    @property
    def is_given_up(self) -> bool:
        return self.orders.is_given_up or self.is_reported_lost

    def wanted(self) -> tuple[Grant, ...]:
        """The grants that it should serve."""
        known, wanted = self._wanted
        if known is not self.orders:
            wanted = self.orders.own_grants()
            self._wanted = self.orders, wanted
        return wanted

    def held(self) -> frozenset[HeldGrant]:
        """A grant once read stays in the list until it is released."""
        wanted = () if self.state is ContainerPhase.STOPPED else self.wanted()
        return frozenset(HeldGrant(grant.task_name, grant.epoch) for grant in (*wanted, *self.serving))

    def reported(self) -> Mapping[SspKeyBucket, int]:
        """The positions of a heartbeat.

        Those of a query that ended stay until the next one begins.
        """
        held = {start.ssp_kb for grant in self.wanted() for start in grant.starts}
        known = self.positions or {ssp_kb: at for ssp_kb, at in self._reported.items() if ssp_kb in held}
        self._reported = dict(known)
        return self._reported

    def step_of_start(self) -> str:
        """The step of its start, as in a heartbeat; empty once its query runs.

        It is also empty where the start is a launch.
        Executions that die at one step suspend their processor: no other history would come to rest.
        """
        is_starting = bool(self.wanted()) and not self.serving and self.state is not ContainerPhase.STOPPED
        return "reading positions" if is_starting and not self._is_launched else ""

    # --- state that is kept warm ---

    def _keeper(self) -> StandbyState:
        ports = WarmPorts(
            clock=self._clock,
            topics=self._changelogs,
            changelog_follower=MemoryChangelogFollower(self._changelogs),
            state_of=lambda name: self._disk.directory(name, self._effect),
            tasks_here=self._disk.tasks_here,
        )
        return StandbyState(self._config, self.execution_id, ports)

    def warmth(self) -> StandbyProgress | None:
        """How ready it is, as in a heartbeat; None if it keeps nothing warm."""
        wanted = self.orders.to_keep_warm() if self._is_launched else None
        if wanted is None or self.wanted():
            return None
        progress = self._state.progress(wanted)
        self.was_level = self.was_level or progress.tasks == progress.level
        return progress

    def _keep_warm(self) -> bool:
        """A piece of it; whether there may be more."""
        wanted = self.orders.to_keep_warm()
        return wanted is not None and self._state.look(wanted)

    # --- work ---

    def can_commit(self) -> tuple[Grant, ...]:
        """The grants under which something of it could be committed now."""
        if not (self.alive or self.is_commit_in_flight) or not (self._slot.is_owner or self._driver.is_owner):
            return ()
        return self.serving

    def may_commit(self, other: Grant) -> list[int]:
        """The epochs under which it could still commit.

        These are those under `other` if that is released, else those for any part of it.
        """
        if not (self.alive or self.is_commit_in_flight) or not (self._slot.is_owner or self._driver.is_owner):
            return []
        return [
            grant.epoch
            for grant in self.serving
            if (grant.epoch == other.epoch) is other.released
            and (
                grant.task_name == other.task_name
                or any(mine.ssp_kb.overlaps(start.ssp_kb) for mine in grant.starts for start in other.starts)
            )
        ]

    def die(self, luck: float) -> None:
        """As by SIGKILL. `luck` says whether a commit was on its way."""
        self.alive = False
        work = self._work
        self.is_commit_in_flight = (
            work is not None and not work.is_committed and not work.positions and luck < _SENT_ITS_COMMIT
        )
        self._abort_locally()

    def commit_arrives(self) -> str:
        """The commit that a killed execution had sent reaches the broker after all."""
        self.is_commit_in_flight = False
        return "" if self._work is None else self._commit(self._work, 0.5)

    def has_finished(self) -> bool:
        """Whether all it holds has an end and was read to it."""
        ends = {ssp_kb: self._end_of_run(ssp_kb) for ssp_kb in self.positions}
        return (
            bool(self.serving)
            and self.serving == self.wanted()
            and all(end is not None and self.positions[ssp_kb] >= end for ssp_kb, end in ends.items())
        )

    def _end_of_run(self, ssp_kb: SspKeyBucket) -> int | None:
        """Where this run stops to read; None for an input that is read for ever."""
        return self.orders.input_ends.get(ssp_kb.ssp) if self._is_bounded else None

    def _end_of(self, ssp_kb: SspKeyBucket) -> int:
        end = self._end_of_run(ssp_kb)
        return self._inputs.end(ssp_kb.ssp) if end is None else end

    def _abort_locally(self) -> None:
        for handled in () if self._work is None else self._work.handled:
            handled.local.abort()

    def step(self, now_ms: int, luck: float) -> str:
        """Do the next step; returns its name.

        Args:
            luck: in [0, 1), chooses between the possible steps.
        """
        if self.is_given_up:
            # Like a killed one: its open transaction stays open until the broker or the coordinator ends it.
            self.alive = False
            self._abort_locally()
            return "ends: given up"
        if self._work is not None:
            return self._commit_locally(self._work) if self._work.is_committed else self._commit(self._work, luck)
        if self.state is ContainerPhase.STOPPED:
            if luck < 0.03 or luck == STOPS_NOW:
                self.alive = False
                return "ends"
            return "has stopped"
        if self.stopping and luck < 0.3 and self.serving:
            # Its query does not end in time: it reports that it stops, and that it has not released its grants.
            self.state = ContainerPhase.STOPPED
            return "stops without letting go"
        if self.stopping or self.orders.is_finished or (self.orders.is_stopping and not self.is_deaf):
            self._state.end()
            for name in self._environments:
                close_cleanly(self._disk.directory(name, self._effect))
            self._let_go()
            self.state = ContainerPhase.STOPPED
            return "stops"
        if self._must_start_anew():
            return self._start(now_ms)
        if self._is_launched and not self.serving and self._keep_warm():
            return "keeps state warm"
        if self._has_lease(now_ms):
            return self._begin(luck)
        return "has no lease"

    def _must_start_anew(self) -> bool:
        return self.serving != self.wanted() or (bool(self.serving) and self.restart < self.orders.restart)

    def _has_lease(self, now_ms: int) -> bool:
        return now_ms < self.lease_until_ms

    def _start(self, now_ms: int) -> str:
        """The start procedure, which is also recovery.

        It takes the ids, then reads both topics to the end.
        """
        self._let_go()
        if self._is_launched and now_ms >= self.lease_until_ms:
            # Another process of the same execution may have been answered: an id belongs to the holder of a lease.
            return "waits for a lease"
        self._state.close()
        if not (self._slot.is_owner and self._driver.is_owner and self._is_level):
            self._slot.take_over()
            self._driver.take_over()
            self._is_level = True
            return "takes its ids"
        if not self._has_read_to_the_end():
            return "waits for an open transaction"
        if self.is_given_up:
            return "finds that it was given up"
        try:
            records = self._changelogs.checkpoint_records()
        except DeadlineError:
            return "waits for positions"
        positions = positions_of(decoded(record, topic=self._changelogs.checkpoints.name) for record in records)
        grants, restart = self.wanted(), self.orders.restart
        starts = dict(starts_of(grants, positions))
        try:
            environments = self._restored(grants, starts, positions)
        except DeadlineError:
            return "waits for a changelog"
        except (FencedError, ProducerError):
            return self._fail("is fenced while it puts things in order")
        except ContainerEnded:
            self.die(0.9)
            return "is killed at its start"
        except SamzapyError as error:
            raise BrokenLawError(f"L9, {self.execution_id} cannot start: {error}") from error
        finally:
            self._dies_in = 0
        self.serving, self.restart = grants, restart
        self.positions, self._environments = starts, environments
        self._scanned = dict(starts)
        self._begins = {
            start.ssp_kb: replace(start, offset_next=self.positions[start.ssp_kb]).positions(FINEST)
            for grant in self.serving
            for start in grant.starts
        }
        epochs = {grant.epoch for grant in self.orders.grants.values()}
        self._superseded = superseded_keys(self.serving, positions, epochs)
        self.state = ContainerPhase.RUNNING
        return f"serves {[f'{grant.task_name}@{grant.epoch}' for grant in self.serving]}"

    def _restored(
        self, grants: Sequence[Grant], starts: Mapping[SspKeyBucket, int], positions: Positions
    ) -> dict[TaskName, Environment]:
        """Restore local state, as `container.state_restore` does, and check the result.

        Raises:
            ContainerEnded: it was killed in the middle.
        """
        self._dies_in = 1 + self._random.randrange(40) if self._random.random() < _DIES_AT_ITS_START else 0
        floors = [floor for grant in grants for start in grant.starts for floor in start.floors]
        check_bounds(starts, self._changelogs.input_bounds([ssp_kb.ssp for ssp_kb in starts], 0), floors)
        if stale := stale_keys(grants, positions):
            self._driver.append_atomically([Write(key=key, value=None) for key in stale])
        stores = self._changelogs.stores
        if not stores or not grants:
            return {}
        places = [(store, number) for store in stores for number in {grant.changelog_partition for grant in grants}]
        host = Host(
            config=self._config,
            tasks_here=self._disk.tasks_here(),
            state_of=lambda name: self._disk.directory(name, self._effect),
            bounds=self._changelogs.changelog_bounds(places),
            topic_ids=self._changelogs.changelog_topic_ids(stores),
            now_ms=self._clock.wall_ms(),
        )
        inherit(grants, starts, host)
        committed = committed_of(grants, positions)
        environments = {grant.task_name: self._level(grant, starts, committed, host) for grant in grants}
        if taken := copies_taken(grants, starts, committed, self.execution_id):
            self._effect()
            self._driver.append_atomically(
                [Write(key=key, value=value) for key, value in (encode(record) for record in taken)]
            )
        clear_out(grants, host)
        for grant in grants:
            for store in stores:
                entries = environments[grant.task_name].state.of(store)
                bare = {key: value for key, value in entries.items() if key != copy_mark_key(grant.task_name)}
                self._ledger.check_restored(grant, store, bare, self.execution_id)
        return environments

    def _level(
        self,
        grant: Grant,
        starts: Mapping[SspKeyBucket, int],
        committed: Mapping[SspKeyBucket, int],
        host: Host,
    ) -> Environment:
        own = [start.ssp_kb for start in grant.starts]
        environment = catch_up_or_rebuild(
            self._disk.directory(grant.task_name, self._effect),
            RestoreJob(
                topics=self._changelogs,
                bounds=host.own_bounds(grant),
                topic_ids=host.topic_ids,
                grant=grant,
                starts={ssp_kb: starts[ssp_kb] for ssp_kb in own},
                committed={ssp_kb: committed[ssp_kb] for ssp_kb in own if ssp_kb in committed},
                config=self._config,
                now_ms=host.now_ms,
                write=lambda store, writes: self._put(store, grant.changelog_partition, writes),
            ),
        )
        assert isinstance(environment, Environment)
        return environment

    def _put(self, store: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put a changelog in order, in a transaction of the driver's id."""
        self._effect()
        changelog = self._changelogs.topic(store, partition)
        self._driver.append_and_stop([Write(key=key, value=value) for key, value in writes], changelog)
        self._driver.commit()

    def _effect(self) -> None:
        self._dies_in -= self._dies_in > 0
        if self._dies_in == 1:
            raise ContainerEnded

    def _has_read_to_the_end(self) -> bool:
        end = self._stream.end_offset
        self.follow()
        return self.orders.offset_next >= end

    def _begin(self, luck: float) -> str:
        """Take up new grants, or record positions that were read past.

        This is the driver's part of the work, which waits for a while.
        """
        self._choose_reading(luck)
        places = self.positions if self._is_tailing else self._scanned
        behind = [ssp_kb for ssp_kb, position in places.items() if position < self._end_of(ssp_kb)]
        is_due = not behind or 0.4 < luck < 0.5
        if (self._idle or self._superseded) and is_due:
            return self._begin_of_driver()
        if not behind:
            return "has nothing to do"
        # Some of them, not always the same ones: parts of a partition come to be at different places.
        begin = int(luck * 1000) % len(behind)
        chosen = (behind + behind)[begin : begin + 1 + int(luck * len(behind) / 2)]
        ranges = self._ranges(chosen, 1 + int(luck * luck * 16))
        if not ranges:
            return "reads past messages that are not its own, or are done"
        try:
            handled = tuple(self._handle(ranges)) if self._environments else ()
        except (LostContainerError, DeadlineError):
            return self._fail("finds another at its local state")
        return self._begin_work(_Work(self._slot, tuple(ranges), handled), ())

    def _choose_reading(self, luck: float) -> None:
        """Begin a tail where a micro-batch has left little, and end it at any moment."""
        toss = int(luck * 1_000_000)
        if self._is_tailing:
            self._is_tailing = toss % _TAIL_ENDS_IN > 0
        elif not self._is_bounded and toss % 2:
            lag = sum(self._end_of(ssp_kb) - offset for ssp_kb, offset in self._scanned.items())
            self._is_tailing = lag <= _TAIL_LAG_MAX

    def _ranges(self, chosen: Sequence[SspKeyBucket], count_max: int) -> list[tuple[SspKeyBucket, int, int]]:
        """The offsets to handle now, by key bucket, up to its own last message there."""
        ranges: list[tuple[SspKeyBucket, int, int]] = []
        places, inputs = (
            (self.positions, self._inputs_of_tail()) if self._is_tailing else (self._scanned, self._inputs)
        )
        for ssp_kb in chosen:
            end = min(self._end_of(ssp_kb), places[ssp_kb] + count_max)
            first = places[ssp_kb] if self._is_tailing else max(places[ssp_kb], self._done(ssp_kb))
            last = inputs.last_of(ssp_kb.ssp, self._begins[ssp_kb], first, end)
            if not self._is_tailing:
                self._scanned[ssp_kb] = end if last is None else last + 1
            if last is not None:
                ranges.append((ssp_kb, first, last + 1))
            elif end > self.positions[ssp_kb]:
                self.positions[ssp_kb] = self._idle[ssp_kb] = end
        return ranges

    def _done(self, ssp_kb: SspKeyBucket) -> int:
        """The offset below which a micro-batch skips rows."""
        return self.positions[ssp_kb]

    def _inputs_of_tail(self) -> Inputs:
        """The inputs by the rule for key buckets of a tail."""
        return self._inputs

    def _handle(self, ranges: Sequence[tuple[SspKeyBucket, int, int]]) -> Sequence[_Handled]:
        """Let each task handle its messages: each counts in an entry."""
        handled: list[_Handled] = []
        try:
            for grant in self.serving:
                own = {start.ssp_kb for start in grant.starts}
                taken = [item for item in ranges if item[0] in own]
                if taken:
                    local = self._environments[grant.task_name].begin()
                    handled.append(_Handled(grant, local, self._handled_by(grant, taken, local)))
        except (LostContainerError, DeadlineError):
            for item in handled:
                item.local.abort()
            raise
        return handled

    def _handled_by(
        self, grant: Grant, ranges: Sequence[tuple[SspKeyBucket, int, int]], local: LocalTransaction
    ) -> Mapping[str, Mapping[bytes, bytes | None]]:
        position = local.position()
        if position is None or (position.execution_id, position.epoch) != (self.execution_id, grant.epoch):
            local.abort()
            raise LostContainerError("another execution works in this directory")
        written: dict[str, dict[bytes, bytes | None]] = {}
        for ssp_kb, first, end in ranges:
            store = BROADCAST if ssp_kb.reader else KEYED
            if store not in self._changelogs.stores:
                continue
            entries = written.setdefault(store, {})
            inputs = self._inputs_of_tail() if self._is_tailing else self._inputs
            for key in inputs.messages(ssp_kb.ssp, self._begins[ssp_kb], first, end):
                entry = entry_of(ssp_kb, key)
                if entry is None:
                    continue
                name = task_entry_key(grant.task_name, entry) if ssp_kb.reader else changelog_key(entry, b"")
                entries[name] = one_more(entries[name] if name in entries else local.get(store, name))
        for store, entries in written.items():
            local.write(store, entries)
        moved = {str(ssp_kb): end for ssp_kb, _, end in ranges}
        local.set_position(
            replace(position, offsets_next={**position.offsets_next, **moved}, caught_up_at_ms=self._clock.wall_ms())
        )
        return written

    def _begin_of_driver(self) -> str:
        ranges = tuple((ssp_kb, end, end) for ssp_kb, end in self._idle.items())
        removed = [Write(key=key, value=None) for key in self._superseded]
        return self._begin_work(_Work(self._driver, ranges, is_of_driver=True), removed)

    def _begin_work(self, work: _Work, writes: Sequence[Write]) -> str:
        grant_of = {start.ssp_kb: grant for grant in self.serving for start in grant.starts}
        moved = [self._write(grant_of[ssp_kb], ssp_kb, end, work.is_of_driver) for ssp_kb, _, end in work.ranges]
        self._work, work.positions = work, [*moved, *writes]
        try:
            has_produced = any([self._produce(handled) for handled in work.handled])
            if not has_produced or self._random.random() < _PRODUCES_AT_ONCE:
                self._produce_positions(work)
        except (FencedError, ProducerError):
            return self._fail("is fenced at its begin")
        if work.is_of_driver:
            return f"records the offsets that it read past, {len(work.ranges)} positions, and to remove {len(writes)}"
        how = "begins in a tail" if self._is_tailing else "begins"
        return f"{how} {', '.join(f'{ssp_kb} {first}-{end}' for ssp_kb, first, end in work.ranges)}"

    def _write(self, grant: Grant, ssp_kb: SspKeyBucket, offset_next: int, is_idle: bool) -> Write:
        record: CheckpointPut | ProgressPut
        if is_idle:
            record = ProgressPut(
                progress=Progress(
                    ssp_kb=ssp_kb, offset_next=offset_next, epoch=grant.epoch, execution_id=self.execution_id
                )
            )
        else:
            record = CheckpointPut(
                checkpoint=Checkpoint(
                    ssp_kb=ssp_kb,
                    offset_next=offset_next,
                    epoch=grant.epoch,
                    task_name=grant.task_name,
                    execution_id=self.execution_id,
                )
            )
        key, value = encode(record)
        return Write(key=key, value=value)

    def _produce_positions(self, work: _Work) -> None:
        if work.positions:
            work.log.append_and_stop(work.positions)
            work.positions = ()

    def _produce(self, handled: _Handled) -> bool:
        """Write the entries to the changelogs, if there are any.

        The local state has then come to their offsets.
        """
        position = handled.local.position()
        assert position is not None, "it is brought level before anything is handled"
        changelog_next, changelog_last = dict(position.changelog_next), dict(position.changelog_last)
        for store, entries in handled.written.items():
            if entries:
                changelog = self._changelogs.topic(store, handled.grant.changelog_partition)
                writes = [Write(key=key, value=value) for key, value in entries.items()]
                changelog_next[store] = self._slot.append_and_stop(writes, changelog)
                changelog_last[store] = mark_of(changelog_next[store] - 1, writes[-1].key, writes[-1].value)
        handled.local.set_position(replace(position, changelog_next=changelog_next, changelog_last=changelog_last))
        return any(handled.written.values())

    def _commit(self, work: _Work, luck: float) -> str:
        try:
            if luck < 0.08:
                work.log.abort()
                return self._fail("aborts")
            self._produce_positions(work)
            work.log.commit()
        except (FencedError, ProducerError):
            return self._fail("is fenced at its commit")
        grant_of = {start.ssp_kb: grant for grant in self.serving for start in grant.starts}
        for ssp_kb, first, end in work.ranges:
            begins = {bucket: max(first, begin) for bucket, begin in self._begins[ssp_kb].items()}
            self._ledger.commit(grant_of[ssp_kb], ssp_kb, begins, end, self.execution_id)
        for handled in work.handled:
            for store, written in handled.written.items():
                self._ledger.check_written(handled.grant, store, written, self.execution_id)
        if work.is_of_driver:
            self._idle, self._superseded = {}, ()
        else:
            # The checkpoint is further now than the positions read past before it.
            for ssp_kb, _, _ in work.ranges:
                self._idle.pop(ssp_kb, None)
        if luck > 0.95:
            return self._fail("commits and does not hear of it")
        for ssp_kb, _, end in work.ranges:
            if end > self.positions[ssp_kb]:
                self.positions[ssp_kb], self.committed_ms[ssp_kb] = end, self._clock.monotonic_ms()
        if not self.alive:
            self._work = None
            return "commits"
        work.is_committed = True
        if luck > 0.9 and work.handled:
            return "commits, but not on its disk yet"
        return self._commit_locally(work)

    def _commit_locally(self, work: _Work) -> str:
        self._work = None
        for handled in work.handled:
            handled.local.commit()
        return "commits"

    def _fail(self, text: str) -> str:
        """Any failure of a batch ends the query; the start procedure is the way back."""
        self._let_go()
        self._is_level = False
        return text

    def _let_go(self) -> None:
        self._abort_locally()
        self._work = None
        self._reported = dict(self.positions) or self._reported
        self.serving, self.positions, self._begins, self._idle, self._superseded = (), {}, {}, {}, ()
        self._scanned, self._is_tailing = {}, False
        self._environments = {}

"""One container: follow the grants, start, run the query, recover, drain, stop.

Theory. There is one way to start and it is also the one way to recover: take all worker slots,
shut older workers out, initialise the id of every slot that may have a transaction open, read checkpoints and
changelogs *to the end*, bring the local state level, let the workers in, start a new query. A batch that fails in
any way ends the query and leads here again; nothing is patched up while a query runs. A standby or a reserve waits for
its grants like anybody else, and meanwhile keeps the state at hand that it may be granted
(`container.local_state.standby`).

The loop is driven by one thread. Heartbeats go out by themselves with the content published last, and a stop request
is a flag; both are looked at between two events.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from samzapy.config import JobConfig
from samzapy.container.batch_limit import BatchBound
from samzapy.container.input_order import BootstrapInputs, batch_order
from samzapy.container.local_state.cleanup import REMOVED_AT_ONCE_MAX, remove_unused
from samzapy.container.local_state.prefetch import ReadAhead
from samzapy.container.local_state.restore import (
    RestoreJob,
    catch_up_or_rebuild,
    close_cleanly,
    local_position,
    plan_restore,
    unread,
)
from samzapy.container.local_state.restore_progress import RestoreProgress, Restoring
from samzapy.container.local_state.split_and_merge import Host, clear_out, inherit
from samzapy.container.local_state.standby import Warming, WarmPorts
from samzapy.container.orders import Orders, read_on
from samzapy.container.ports import (
    BatchDone,
    ChangelogPlace,
    Clock,
    CoordinatorStream,
    Fence,
    HeartbeatContent,
    Heartbeats,
    ProgressLog,
    Query,
    QueryFailed,
    Slots,
    StateDirectory,
    StopRequest,
    Tail,
    TopicBounds,
    Topics,
)
from samzapy.container.query_retries import NO_FAILURES
from samzapy.container.start import (
    check_bounds,
    check_config,
    check_identity,
    committed_of,
    copies_taken,
    read_positions,
    stale_keys,
    starts_of,
    superseded_keys,
)
from samzapy.container.stats import ContainerFigures
from samzapy.container.task.ports import CrashPoints
from samzapy.container.task.work_plan import ReportKind, Route, WorkPlan
from samzapy.container.worker_deaths import WorkerDeaths
from samzapy.errors import (
    DeadlineError,
    FencedError,
    LostContainerError,
    MissingTopicError,
    ProducerError,
    SamzapyError,
    TaskError,
    TemporaryError,
)
from samzapy.model.checkpoint import Progress
from samzapy.model.container import slot_transactional_id
from samzapy.model.grant import Grant
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.standby_progress import StandbyProgress
from samzapy.model.task_stats import TaskStats
from samzapy.model.text import some
from samzapy.model.topics import CHANGELOG_DELETE_RETENTION_MS, changelog_topic, checkpoint_topic, coordinator_topic
from samzapy.stream.codec import encode
from samzapy.stream.log import LogRecord
from samzapy.stream.records import ProgressPut

_LOG = logging.getLogger(__name__)
_POLL_MS = 200
_PAUSE_MS = 50
# Grants of one plan arrive together, mostly; a query restart for each would be waste.
_GRANTS_SETTLE_MS = 300
_APPEARS_WITHIN_MS = 15_000
_MISSED_ANEW_MS = 10_000
_FIGURES_EVERY_MS = 1000
_FIGURES_WAIT_MS = 1000
_START_WAIT_MS = 30_000
_PROGRESS_EVERY_MS = 3000
_YIELD_MS = 1000
_REASON_LENGTH_MAX = 2000
_SILENCE_STEP_MS = 1000
_REHEARSAL_MAX_MS = 60_000
# Who joins is planned for so long after it came, at least: with less time a rehearsal would only be in the way.
_REHEARSAL_DEBOUNCE_MS = 10_000
_UNUSED_EVERY_MS = 3_600_000
_UNUSED_REST_MS = 60_000
_START_PAUSE_MS = 1000
_OUTAGE_PAUSE_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPorts:
    """Everything a container needs of the world. `tasks_here`: those with local state on this host."""

    clock: Clock
    stream: CoordinatorStream
    topics: Topics
    tail: Tail
    slots: Slots
    fence: Fence
    progress: ProgressLog
    query: Query
    heartbeats: Heartbeats
    stop: StopRequest
    crash_points: CrashPoints
    state_of: Callable[[str], StateDirectory]
    tasks_here: Callable[[], Sequence[TaskName]]
    pause: Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerIdentity:
    """This execution; `slot_count` as recorded before the first grant."""

    execution_id: ExecutionId
    slot_count: int
    job_file: str
    scratch_dir: str


class ContainerService:
    """Runs one execution from its first heartbeat to its end."""

    def __init__(self, config: JobConfig, identity: ContainerIdentity, ports: ContainerPorts) -> None:
        self._config = config
        self._identity = identity
        self._ports = ports
        self._orders = Orders(execution_id=identity.execution_id)
        self._batch_order = batch_order(config)
        self._bootstrap = BootstrapInputs(config)
        self._warming = Warming(
            config,
            identity.execution_id,
            WarmPorts(
                clock=ports.clock,
                topics=ports.topics,
                tail=ports.tail,
                state_of=ports.state_of,
                tasks_here=ports.tasks_here,
            ),
        )
        # What a standby or a reserve is to have at hand, and when that was told last.
        self._to_keep_warm = self._orders.to_keep_warm()
        self._warmth: StandbyProgress | None = None
        # When the rehearsal of its query began; None before that.
        self._rehearsal_at_ms: int | None = None
        self._is_rehearsed = False
        # What there is to try it out on where this processor waits to be planned for.
        self._run_by_others: tuple[Grant, ...] = ()
        # What the stream leaves us.
        self._own: tuple[Grant, ...] = ()
        # What heartbeats list: all of that, and what a worker may still commit for.
        self._held: tuple[Grant, ...] = ()
        self._running: tuple[Grant, ...] = ()
        self._state = "STARTED"
        self._kafka_silent_ms = 0
        # Why this process ends, once that is so.
        self._end: SamzapyError | None = None
        # Of the start procedure, while it is under way.
        self._step = ""
        self._query_number = 0
        self._routes: tuple[Route, ...] = ()
        self._starts: Mapping[SspKeyBucket, int] = {}
        self._retries = NO_FAILURES
        self._query_begun_ms = 0
        self._missing_since_ms: int | None = None
        self._missing_at_ms = 0
        self._first_batch_is_due = False
        # Of the query that runs, and of the next one.
        self._bound = self._next_bound = BatchBound.of(config)
        self._has_ended_batch = False
        # Inputs that the query leaves out because their topics are gone, and those that it would leave out now.
        self._absent: frozenset[SystemStream] = frozenset()
        self._absent_now: frozenset[SystemStream] = frozenset()
        # The newest order to restart that the query which runs was started after.
        self._restart = 0
        # Why the last start was put off; said once, though it may be so for long.
        self._put_off = ""
        # What is known of workers that died, and the death that was not looked into yet.
        self._deaths = WorkerDeaths()
        self._death: QueryFailed | None = None
        self._figures = ContainerFigures()
        self._figures_at_ms = 0
        self._progress_at_ms = 0
        # When local state that nobody uses is looked for again.
        self._unused_at_ms = 0
        self._committed_at_ms = ports.clock.monotonic_ms()
        # When there was nothing to be read, last.
        self._level_at_ms = self._committed_at_ms
        # What the next progress record may say: read to its end by batches that really ran, and not committed since.
        self._idle: dict[SspKeyBucket, int] = {}
        # Keys of positions of another factor, which nobody needs while what runs is held.
        self._superseded: Sequence[bytes] = ()

    def run(self) -> None:
        """Work until asked to stop; returns after a clean stop.

        Raises:
            LostContainerError: the coordinator gave this execution up, or nobody answered for too long.
            ConfigError: the job runs under another configuration than this container's.
            TaskError: user code failed under policy `fail`, or a message was too slow in three starts.
            LostRangeError, CorruptRecordError and others of their branch: data is not as it must be.
            SamzapyError: no start led to a commit within task.query.retry.ms, or a micro-batch hangs.
        """
        self._ports.slots.take_all(_YIELD_MS)
        try:
            while not self._is_over():
                grants = self._await_grants()
                if grants and self._recover_and_start(grants):
                    self._watch(grants)
        except BaseException as error:
            self._ports.query.stop()
            self._ports.slots.kill_holders()
            if isinstance(error, SamzapyError) and not isinstance(error, LostContainerError):
                self._shut_workers_out()
                self._tell_end(error)
            raise
        if self._orders.launch is not None and self._orders.is_stopping:
            _LOG.info("the coordinator wants this container to stop: %s", self._orders.launch.reason)
        self._stop_cleanly()

    def _is_over(self) -> bool:
        """Whether to stop: somebody asked for it, or the coordinator does, or the run of the job is finished."""
        return self._ports.stop.is_set() or self._orders.is_stopping or self._orders.is_finished

    # --- what is granted ---

    def _await_grants(self) -> tuple[Grant, ...]:
        """This execution's grants, once they have settled and the lease holds; empty when asked to stop first."""
        settled_at_ms: int | None = None
        seen: tuple[Grant, ...] = ()
        while not self._is_over():
            self._look_around()
            grants, now_ms = self._own, self._ports.clock.monotonic_ms()
            if self._taken_away():
                self._let_go()
            is_busy = self._keep_warm()
            if grants != seen or settled_at_ms is None:
                seen, settled_at_ms = grants, now_ms + _GRANTS_SETTLE_MS
            # Who has all that the plan has for it waits for no more.
            has_settled = now_ms >= settled_at_ms or self._orders.is_all(seen)
            if seen and has_settled and self._ports.heartbeats.lease_ran_out_at_ms() is None:
                return seen
            if not is_busy:
                self._ports.pause(_PAUSE_MS)
        return ()

    def _keep_warm(self) -> bool:
        """While nothing runs here: a piece of what keeps the state of a processor at hand; whether there may be more.

        Whoever was granted something starts, and a start wants the directories to itself.
        """
        if self._to_keep_warm is None or self._own or self._running:
            self._warming.close()
            self._rehearse_to_join()
            return False
        is_busy = self._warming.look(self._to_keep_warm)
        told = self._warming.told(self._to_keep_warm)
        is_level = told.level >= told.tasks
        if is_level and not self._is_rehearsed and self._to_keep_warm.grants:
            # A restore has the cores to itself.
            self._rehearse(self._to_keep_warm.grants)
        elif is_level:
            # It knows its own registration, so it knows the plans before that.
            self._remove_unused()
        if self._told(told) != self._warmth:
            self._publish()
        return is_busy

    def _rehearse_to_join(self) -> None:
        """Who joins a job whose tasks all run waits for its plan anyway, and what it will get is run meanwhile."""
        has_time = self._config.debounce_ms >= _REHEARSAL_DEBOUNCE_MS
        if self._run_by_others and has_time and not (self._own or self._running or self._is_rehearsed):
            self._rehearse(self._run_by_others)

    def _rehearse(self, grants: Sequence[Grant]) -> None:
        """Try the query out, once.

        What a first query costs, several seconds on a small machine, is then paid before a key waits for it.
        """
        ports, now_ms = self._ports, self._ports.clock.monotonic_ms()
        if self._rehearsal_at_ms is None:
            self._rehearsal_at_ms = now_ms
            topic = coordinator_topic(self._config.job)
            ssp = SystemStreamPartition(self._config.default_system, topic, 0)
            starts = {start.ssp_kb: start.offset_next for grant in grants for start in grant.starts}
            plan = self._work_plan([route for grant in grants for route in self._routes_of(grant, starts, "")])
            ports.query.rehearse(plan, ssp, max(0, self._orders.offset_next - 1))
        elif not ports.query.rehearses() or now_ms - self._rehearsal_at_ms >= _REHEARSAL_MAX_MS:
            ports.query.stop()
            self._is_rehearsed = True
            _LOG.info("the query was tried out in %.1f s", (now_ms - self._rehearsal_at_ms) / 1000)

    def _told(self, told: StandbyProgress) -> StandbyProgress:
        return replace(told, is_rehearsed=self._is_rehearsed)

    def _look_around(self) -> None:
        """Read the coordinator stream on, tell the heartbeats, and stop here if this execution was given up."""
        self._ports.progress.serve()
        self._follow(self._ports.stream.poll())
        self._notice_silence()
        reason = self._ports.heartbeats.given_up()
        if self._orders.is_given_up or reason is not None:
            raise LostContainerError(
                f"execution {self._identity.execution_id} was given up by the coordinator "
                f"({self._orders.reason or reason}); its tasks belong to another one, so this one stops"
            )
        self._check_lease_grace()

    def _notice_silence(self) -> None:
        """Report how long the brokers have not answered: nothing else changes meanwhile that a heartbeat would tell."""
        silent_ms = self._ports.stream.silent_ms()
        if silent_ms // _SILENCE_STEP_MS != self._kafka_silent_ms // _SILENCE_STEP_MS:
            self._kafka_silent_ms = silent_ms
            self._publish()

    def _check_lease_grace(self) -> None:
        """Without a coordinator nothing is begun, and after the grace this container ends."""
        ran_out_at_ms = self._ports.heartbeats.lease_ran_out_at_ms()
        now_ms = self._ports.clock.monotonic_ms()
        if ran_out_at_ms is not None and now_ms - ran_out_at_ms > self._config.grace_ms:
            raise LostContainerError(
                f"wanted a coordinator to answer heartbeats within job.container.grace.ms ({self._config.grace_ms}) "
                f"after the lease ran out, found none for {now_ms - ran_out_at_ms} ms; this container stops"
            )

    def _follow(self, records: Sequence[LogRecord]) -> None:
        offset_next = self._ports.stream.offset_next()
        if not records and offset_next == self._orders.offset_next:
            return  # Most looks find nothing, and with thousands of tasks the rest is work.
        topic = coordinator_topic(self._config.job)
        self._orders = read_on(self._orders, records, offset_next, topic=topic)
        self._own = self._orders.own_grants()
        self._to_keep_warm = self._orders.to_keep_warm()
        self._run_by_others = () if self._is_rehearsed else self._orders.run_by_others()
        self._hold(self._running)

    def _hold(self, running: tuple[Grant, ...]) -> None:
        """Say what is held from now on: what the stream leaves us, and `running`, which a worker may still commit
        for. A grant once read stands in the list until it is let go: by the time its new owner gets it, this
        container's last word on it was that it has it no more.
        """
        has_let_go = running != self._running
        self._running = running
        self._held = (*self._own, *self._taken_away())
        if has_let_go:
            self._figures.keep({start.ssp_kb for grant in self._held for start in grant.starts})
        self._publish()

    def _taken_away(self) -> tuple[Grant, ...]:
        """What runs, or ran last, and is no longer ours."""
        own = {(grant.task_name, grant.epoch) for grant in self._own}
        return tuple(grant for grant in self._running if (grant.task_name, grant.epoch) not in own)

    def _let_go(self) -> None:
        """After the query has ended: let no worker commit for it any more, and say that the grants are free.

        While that cannot be done the grants stay in the list, and it is tried again.
        """
        ports = self._ports
        open_slots = ports.slots.take_all(_YIELD_MS)
        self._query_number += 1
        ports.slots.block(self._query_number)
        # Of a query that is over, and partly of grants that are another's now. Before anything can fail: what is
        # held may change on the way, and this would be written as if it had been read under the new grants.
        self._idle.clear()
        try:
            self._fence(open_slots)
        except (TemporaryError, DeadlineError) as error:
            _LOG.warning("letting go is put off: %s", error)
            return
        except MissingTopicError as error:
            self._may_appear(error)
            return
        freed = self._taken_away()
        for grant in freed:
            close_cleanly(ports.state_of(grant.task_name))
        self._hold(())
        _LOG.info("let go of %s", ", ".join(grant.task_name for grant in freed))

    def _publish(self) -> None:
        term, warm = self._orders.term, self._to_keep_warm
        self._warmth = None if warm is None or self._own else self._told(self._warming.told(warm))
        self._ports.heartbeats.publish(
            HeartbeatContent(
                coordinator_url=None if term is None else term.url,
                term=0 if term is None else term.term,
                state=self._state,
                stream_offset=self._orders.offset_next,
                held=tuple((grant.task_name, grant.epoch) for grant in self._held),
                figures=self._figures.as_json(self._ports.clock.monotonic_ms()),
                reason=self._reason(),
                finished=self._has_finished(),
                restart=self._restart,
                warm=self._warmth,
                failing=self._retries.told(self._ports.clock.monotonic_ms(), self._config.query_retry_ms),
                exit_code=0 if self._end is None else self._end.exit_code,
                step=self._step,
                kafka_silent_ms=self._kafka_silent_ms,
            )
        )

    def _reason(self) -> str:
        if self._end is not None:
            return str(self._end)[:_REASON_LENGTH_MAX]
        return "" if self._state != "STOPPED" else "finished" if self._orders.is_finished else "drained"

    def _has_finished(self) -> bool:
        """Whether everything held is being worked on and was read, and committed, up to its end."""
        return (
            bool(self._routes)
            and not self._bootstrap.waiting
            and self._deaths.trial is None
            and self._running == self._own
            # A grant that was read and whose query has not begun is none that was worked on.
            and {(route.task_name, route.epoch) for route in self._routes}
            == {(grant.task_name, grant.epoch) for grant in self._running}
            and all(
                route.offset_end is not None and self._figures.positions[route.ssp_kb] >= route.offset_end
                for route in self._routes
            )
        )

    # --- start, which is also recovery ---

    def _recover_and_start(self, grants: Sequence[Grant]) -> bool:
        """The start procedure. False when the world was not ready; the caller tries again."""
        try:
            return self._start(grants)
        except (TemporaryError, DeadlineError) as error:
            # A deadline here is somebody's open transaction, which the broker ends by itself.
            if str(error) != self._put_off:
                _LOG.warning("start put off: %s", error)
            self._put_off = str(error)
        except MissingTopicError as error:
            self._may_appear(error)
        # A process that is ended while it waits was not ended by the step.
        self._begin_step("")
        self._ports.pause(_START_PAUSE_MS)
        return False

    def _begin_step(self, step: str) -> None:
        """Report a step of the start procedure, so that the coordinator knows at which one this process ends."""
        self._step = step
        self._publish()

    def _may_appear(self, error: MissingTopicError) -> None:
        """Wait with it for a while: brokers that have just come up, and others of a topic that was just made, say for
        a moment that there is none. Raises `error` when it lasts."""
        now_ms, last_ms = self._ports.clock.monotonic_ms(), self._missing_at_ms
        self._missing_at_ms = now_ms
        if self._missing_since_ms is None or now_ms - last_ms > _MISSED_ANEW_MS:
            # What was said long ago, and not since, was a moment of its own.
            self._missing_since_ms = now_ms
            _LOG.warning("asking again for %d s: %s", _APPEARS_WITHIN_MS // 1000, error)
        elif now_ms - self._missing_since_ms > _APPEARS_WITHIN_MS:
            raise error

    def _start(self, grants: Sequence[Grant]) -> bool:
        """Whether the query was started; not if the grants changed meanwhile."""
        ports = self._ports
        check_config(self._config, self._orders.config)
        begun_ms = ports.clock.monotonic_ms()
        _LOG.info("granted: %s; bringing local state level", some([grant.task_name for grant in grants]))
        self._begin_step("shutting earlier workers out")
        open_slots = ports.slots.take_all(_YIELD_MS)
        self._look_into_death(open_slots)
        self._query_number += 1
        ports.slots.block(self._query_number)
        self._idle.clear()  # As where grants are let go.
        self._fence(open_slots)
        self._look_around()
        if self._own != tuple(grants):
            self._begin_step("")
            return False
        # From here on they are held until they are let go, whatever the stream says.
        self._hold(tuple(grants))
        restart = self._orders.restart
        ports.crash_points.hit("after-fence")
        self._begin_step("reading positions")
        topic = checkpoint_topic(self._config.job)
        positions = read_positions(ports.topics.checkpoint_records(), topic=topic)
        starts = starts_of(grants, positions)
        self._leave_out(self._absent_inputs())
        self._check_commits(starts)
        read = self._without_absent(starts)
        if not read:
            raise TemporaryError(f"nothing is there to be read: {self._absent_text()}")
        ssps = sorted({ssp_kb.ssp for ssp_kb in read})
        floors = [
            floor for grant in grants for start in grant.starts if start.ssp_kb in read for floor in start.floors
        ]
        bounds = self._input_bounds(ssps, _START_WAIT_MS)
        check_bounds(read, bounds, floors)
        self._remove(topic, 0, stale_keys(grants, positions))
        epochs = {grant.epoch for grant in self._orders.grants.values()}
        self._superseded = superseded_keys(grants, positions, epochs)
        self._begin_step("bringing local state level")
        routes, restored = self._restored_all(grants, starts, committed_of(grants, positions))
        at_once = self._bootstrap.begin(
            grants, read, lambda ssp_kb: self._up_to_the_end(ssp_kb.ssp, bounds[ssp_kb.ssp]).offset_end
        )
        if self._bootstrap.waiting:
            _LOG.info("read before the other inputs of their tasks: %s", self._bootstrap_text())
        self._deaths = self._deaths.at(at_once)
        routes = self._deaths.limited([route for route in routes if route.ssp_kb in at_once])
        at_once = {route.ssp_kb: at_once[route.ssp_kb] for route in routes}
        self._bound = self._next_bound
        plan = self._work_plan(routes)
        self._routes = routes
        self._figures.begin(read, restored)
        self._figures.bootstrap_ends = self._bootstrap.ends
        ports.crash_points.hit("after-restore")
        self._begin_step("starting the query")
        ports.slots.admit(self._query_number)
        ports.query.start(plan, at_once)
        self._is_rehearsed, self._step = True, ""
        self._state, self._restart, self._put_off = "RUNNING", restart, ""
        self._missing_since_ms = None
        self._committed_at_ms = self._query_begun_ms = ports.clock.monotonic_ms()
        self._first_batch_is_due = True
        _LOG.info("query %d starts after %.1f s", self._query_number, (self._committed_at_ms - begun_ms) / 1000)
        self._publish()
        return True

    def _work_plan(self, routes: Sequence[Route]) -> WorkPlan:
        """What workers need to know of a query that runs now."""
        return WorkPlan(
            config=self._config,
            execution_id=self._identity.execution_id,
            query_number=self._query_number,
            routes=tuple(routes),
            job_file=self._identity.job_file,
            scratch_dir=self._identity.scratch_dir,
            slot_count=self._identity.slot_count,
            stream_offset=self._orders.offset_next,
            stream_numbering=self._orders.numbering,
            batch_offsets_max=self._bound.offsets,
            refusals=self._deaths.refusals,
            notes_until_s=self._deaths.notes_until_ms / 1000,
        )

    def _look_into_death(self, open_slots: Sequence[int]) -> None:
        """Which messages the workers of a query that ended with a dead worker had in hand."""
        death, self._death = self._death, None
        if death is None:
            return
        noted = self._ports.slots.in_hand(open_slots, self._query_number)
        in_hand = [(self._routes[route].ssp_kb, offset) for route, offset in noted]
        before, self._deaths = (
            self._deaths,
            self._deaths.died(in_hand, death.reason, self._ports.clock.monotonic_ms()),
        )
        if (self._deaths.suspects, self._deaths.refusals) != (before.suspects, before.refusals):
            self._retries = NO_FAILURES  # It is no failure in vain: the search came closer.
        trial = self._deaths.trial
        if trial is not None:
            _LOG.warning("a worker process died; %s offset %d is tried alone", trial.ssp_kb.ssp, trial.offset)

    def _restored_all(
        self, grants: Sequence[Grant], starts: Mapping[SspKeyBucket, int], committed: Mapping[SspKeyBucket, int]
    ) -> tuple[tuple[Route, ...], Mapping[TaskName, TaskStats]]:
        """Bring local state level, task by task; tells how far it is while that takes long.

        Returns:
            Routes, and of each task how long it took and what it has on disk; the time to hand over is shared out.
        """
        routes: list[Route] = []
        restored: dict[TaskName, TaskStats] = {}
        topics, stores = self._ports.topics, [store.name for store in self._config.stores]
        # Asked now, when all who had these tasks before are done with them, and once for all tasks.
        topic_ids = topics.changelog_topic_ids(stores)
        partitions = sorted({grant.changelog_partition for grant in grants})
        bounds = topics.changelog_bounds([(store, partition) for store in stores for partition in partitions])
        host = Host(
            config=self._config,
            tasks_here=self._ports.tasks_here(),
            state_of=self._ports.state_of,
            bounds=bounds,
            topic_ids=topic_ids,
            now_ms=self._ports.clock.wall_ms(),
        )
        begun_ns = self._ports.clock.monotonic_ns()
        inherit(grants, starts, host)
        inherited_ns = (self._ports.clock.monotonic_ns() - begun_ns) // max(1, len(grants))
        self._ports.crash_points.hit("after-inheritance")

        @cache
        def to_read(grant: Grant) -> Mapping[str, range]:
            return self._to_read(grant, starts, committed, host)

        progress = RestoreProgress(
            len(grants),
            ahead_of=lambda first: [sum(map(len, to_read(grant).values())) for grant in grants[first:]],
            now_ms=self._ports.clock.monotonic_ms,
            tell=self._tell_restoring,
        )

        def places(grant: Grant) -> Sequence[ChangelogPlace]:
            return [(store, grant.changelog_partition, offsets.start) for store, offsets in to_read(grant).items()]

        ahead = ReadAhead(grants, places, topics)

        def reads(read: int, of: int) -> None:
            if read < of:
                ahead.task_reads(len(restored))
            progress.task_reads(read, of)

        try:
            for grant in grants:
                begun_ns = self._ports.clock.monotonic_ns()
                directory, disk_bytes = self._restored(grant, starts, committed, host, reads)
                routes.extend(self._routes_of(grant, starts, directory))
                took_ns = inherited_ns + self._ports.clock.monotonic_ns() - begun_ns
                restored[grant.task_name] = TaskStats(store_identify_ns=took_ns, disk_bytes=disk_bytes)
                progress.task_is_level()
        finally:
            ahead.end()
            self._figures.restoring = None
        taken = copies_taken(grants, starts, committed, self._identity.execution_id)
        self._write(checkpoint_topic(self._config.job), 0, [encode(record) for record in taken])
        clear_out(grants, host)
        return tuple(routes), restored

    def _restored(
        self,
        grant: Grant,
        starts: Mapping[SspKeyBucket, int],
        committed: Mapping[SspKeyBucket, int],
        host: Host,
        reads: Callable[[int, int], None],
    ) -> tuple[str, int]:
        """Bring a task's local state level with its start; where that is, and how many bytes it takes on disk."""
        environment = catch_up_or_rebuild(
            self._ports.state_of(grant.task_name),
            RestoreJob(
                topics=self._ports.topics,
                bounds=host.own_bounds(grant),
                topic_ids=host.topic_ids,
                grant=grant,
                starts={start.ssp_kb: starts[start.ssp_kb] for start in grant.starts},
                committed={
                    start.ssp_kb: committed[start.ssp_kb] for start in grant.starts if start.ssp_kb in committed
                },
                config=self._config,
                now_ms=self._ports.clock.wall_ms(),
                write=lambda store, writes: self._write(
                    changelog_topic(self._config.job, store), grant.changelog_partition, writes
                ),
                on_read=reads,
            ),
        )
        disk_bytes = environment.bytes_on_disk()
        environment.close()
        return environment.directory, disk_bytes

    def _routes_of(self, grant: Grant, starts: Mapping[SspKeyBucket, int], directory: str) -> Sequence[Route]:
        return [
            Route(
                ssp_kb=start.ssp_kb,
                task_name=grant.task_name,
                partition_id=grant.partition_id,
                epoch=grant.epoch,
                changelog_partition=grant.changelog_partition,
                environment_dir=directory,
                offset_end=self._end_of(start.ssp_kb.ssp),
                floors=tuple(floor for floor in start.floors if floor.offset_next > starts[start.ssp_kb]),
            )
            for start in sorted(grant.starts, key=self._batch_order)
        ]

    def _to_read(
        self,
        grant: Grant,
        starts: Mapping[SspKeyBucket, int],
        committed: Mapping[SspKeyBucket, int],
        host: Host,
    ) -> Mapping[str, range]:
        """By store, the offsets of its changelog that a task has to read that is not at hand yet; no empty ones."""
        bounds = host.own_bounds(grant)
        plan = plan_restore(
            local_position(self._ports.state_of(grant.task_name)),
            grant=grant,
            starts={start.ssp_kb: starts[start.ssp_kb] for start in grant.starts},
            committed={start.ssp_kb: committed[start.ssp_kb] for start in grant.starts if start.ssp_kb in committed},
            changelogs=bounds,
            topic_ids=host.topic_ids,
            now_ms=host.now_ms,
            retention_ms=CHANGELOG_DELETE_RETENTION_MS,
        )
        return unread(plan, bounds)

    def _tell_restoring(self, restoring: Restoring) -> None:
        _LOG.info("restoring local state: %s", restoring)
        self._figures.restoring = restoring
        self._publish()

    def _remove(self, topic: str, partition: int, keys: Sequence[bytes]) -> None:
        """Write tombstones of what counts for nothing, with or without them. Raises as `_write`."""
        self._write(topic, partition, [(key, None) for key in keys])

    def _write(self, topic: str, partition: int, writes: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Put a topic of the job in order: remove what counts for nothing, take a copy of broadcast stores, say so.

        Raises:
            TemporaryError: it failed, and is done again by the next start.
        """
        if not writes:
            return
        try:
            self._own_driver_id()
            self._ports.progress.write(topic, partition, writes)
        except (ProducerError, FencedError) as error:
            raise TemporaryError(f"wanted to put {len(writes)} records on {topic}, found {error}") from error
        removed = sum(value is None for _, value in writes)
        _LOG.info("%s-%d: removed %d records, wrote %d", topic, partition, removed, len(writes) - removed)

    def _own_driver_id(self) -> None:
        """Take the driver's id, unless it is taken, and go on only if this execution is not given up."""
        progress = self._ports.progress
        if progress.is_owned():
            return
        progress.own()
        try:
            self._follow(self._ports.stream.to_the_end())
            self._look_around()
        except BaseException:
            # It is nobody's who has not asked: the next one to need it begins again.
            progress.close()
            raise

    def _end_of(self, ssp: SystemStreamPartition) -> int | None:
        """Where this run stops to read a partition; None for one that is read for ever."""
        return self._orders.input_ends.get(ssp) if self._config.is_bounded(str(ssp.system_stream)) else None

    def _check_commits(self, starts: Mapping[SspKeyBucket, int]) -> None:
        """End the container when the starts before led to nothing. What a batch committed before it failed counts.

        Raises:
            SamzapyError: as of `QueryRetries.error`.
        """
        has_committed = any(offset > self._starts.get(ssp_kb, offset) for ssp_kb, offset in starts.items())
        if has_committed or self._retries.under != self._works_for():
            self._retries = NO_FAILURES
        self._starts = starts
        error = self._retries.error(self._config.query_retry_ms)
        if error is not None:
            raise type(error)(f"{error}. Unread are {self._unread()}")

    def _works_for(self) -> Hashable:
        """What the query works for: once it changes, earlier failures of the query tell nothing."""
        grants = tuple((grant.task_name, grant.epoch) for grant in self._own)
        return grants, self._orders.generation, self._orders.restart

    def _unread(self) -> str:
        """Where the records stand that the query was to handle, in short."""
        ends = self._figures.ends
        found = [
            f"{ssp_kb} from offset {offset}"
            for ssp_kb, offset in sorted(self._starts.items())
            if ssp_kb.ssp not in ends or offset < ends[ssp_kb.ssp].offset_end
        ]
        return some(found)

    def _absent_inputs(self) -> frozenset[SystemStream]:
        """The inputs that are not there, or not the topics any more that the coordinator recorded, and that may go.

        Of those that are granted here: others may be deleted, or read no more. Raises as `check_identity`.
        """
        granted = {start.ssp_kb.ssp.system_stream for grant in self._running for start in grant.starts}
        recorded = {stream: found for stream, found in self._orders.input_topic_ids.items() if stream in granted}
        return check_identity(self._config, recorded, self._ports.topics.input_topic_ids(sorted(recorded)))

    def _input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        """As the port. A topic that may go, and went after it was last asked for, is a `TemporaryError`."""
        try:
            return self._ports.topics.input_bounds(ssps, wait_ms)
        except MissingTopicError as error:
            if self._absent_inputs() == self._absent:
                raise
            raise TemporaryError(str(error)) from error

    def _leave_out(self, absent: frozenset[SystemStream]) -> None:
        """Go on without inputs that are gone, for as long as they are; the coordinator takes them away in its time.

        Nothing is decided by that: what is not read keeps its positions, and is still held.
        """
        if absent - self._absent:
            # That is what the query failed of, or would have.
            self._retries = NO_FAILURES
        self._absent_now = absent
        if absent != self._absent:
            self._absent = absent
            _LOG.warning("%s", self._absent_text() if absent else "no input is left out any more")

    def _bootstrap_text(self) -> str:
        return some([f"{ssp_kb} up to offset {end}" for ssp_kb, end in sorted(self._bootstrap.ends.items())])

    def _absent_text(self) -> str:
        return f"{some(sorted(map(str, self._absent)))} was deleted, or made again: it is not read"

    def _without_absent(self, starts: Mapping[SspKeyBucket, int]) -> Mapping[SspKeyBucket, int]:
        return {ssp_kb: offset for ssp_kb, offset in starts.items() if ssp_kb.ssp.system_stream not in self._absent}

    # --- while the query runs ---

    def _watch(self, grants: Sequence[Grant]) -> None:
        """Until the query ends, the grants change, or a stop is asked for."""
        while not self._is_over():
            match self._ports.query.next_event(_POLL_MS):
                case BatchDone() as done:
                    self._batch_done(done)
                case QueryFailed() as failed:
                    self._query_failed(failed)
                    return
                case None:
                    pass
            self._look_around()
            self._refresh_figures()
            self._write_progress(grants)
            self._remove_unused()
            self._check_hang()
            if self._ports.heartbeats.lease_ran_out_at_ms() is not None:
                _LOG.warning("no coordinator answers the heartbeats; nothing is begun until one does")
                self._drain()
                return
            reason = self._why_anew(grants)
            if reason:
                _LOG.info("%s; the query is started anew", reason)
                self._drain()
                return

    def _why_anew(self, grants: Sequence[Grant]) -> str:
        """Why the query is to be drained and started anew; empty to let it go on."""
        if self._orders.restart > self._restart:
            return "an operator asked for it"
        if self._absent_now != self._absent:
            return "an input went, or came back"
        if self._own != tuple(grants):
            return "the grants changed"
        if self._bootstrap.is_over:
            return "the bootstrap inputs were read up to where they ended at the start"
        if self._deaths.is_passed(self._figures.positions):
            self._deaths = self._deaths.passed()
            return "no worker died of what was tried alone"
        ran_ms = self._ports.query.batch_runs_ms()
        bound, self._next_bound = self._bound, self._next_bound.overrun(ran_ms, is_first=not self._has_ended_batch)
        if self._next_bound == bound:
            return ""
        cause = f"one has run for {ran_ms} ms" if self._next_bound.offsets < bound.offsets else "they are short"
        return (
            f"micro-batches of {self._next_bound.offsets} offsets at most instead of {bound.offsets}, because {cause} "
            f"(task.batch.max.ms={bound.limit_ms})"
        )

    def _drain(self) -> bool:
        """End the query; what its last micro-batches did counts. False when the last one did not end in time."""
        query = self._ports.query
        finished = query.drain(self._config.drain_ms)
        # Now, while what they were of is still held: events that wait would be taken for those of the next query.
        while isinstance(event := query.next_event(0), BatchDone):
            self._batch_done(event)
        return finished

    def _batch_done(self, done: BatchDone) -> None:
        offsets_read = self._figures.add(done, self._routes)
        if self._first_batch_is_due:
            self._first_batch_is_due = False
            _LOG.info(
                "the first micro-batch of query %d ended after %.1f s: %d records in, %d out",
                self._query_number,
                (self._ports.clock.monotonic_ms() - self._committed_at_ms) / 1000,
                sum(report.records_in for report in done.reports),
                sum(report.records_out for report in done.reports),
            )
        if any(report.commits for report in done.reports):
            self._retries = NO_FAILURES
        self._committed_at_ms = self._ports.clock.monotonic_ms()
        self._has_ended_batch = True
        self._next_bound = self._next_bound.ended(done.duration_ns // 1_000_000, offsets_read)
        failed = [report.error for report in done.reports if report.kind is ReportKind.TASK_FAILED]
        if failed:
            raise TaskError("\n".join(failed))
        committed = {report.route: report.offset_next for report in done.reports if report.commits}
        for index, route in enumerate(self._routes):
            ssp_kb = route.ssp_kb
            end = done.offsets_end.get(ssp_kb.ssp)
            if end is not None and route.offset_end is not None:
                end = min(end, route.offset_end)
            if end is None or end <= self._figures.positions[ssp_kb]:
                continue
            self._figures.positions[ssp_kb] = end
            if committed.get(index) == end:
                self._idle.pop(ssp_kb, None)
            else:
                # Also behind its own last message: what follows there is of other buckets, or of nobody.
                self._idle[ssp_kb] = end
        self._bootstrap.read_to(self._figures.positions)
        self._figures.bootstrap_ends = self._bootstrap.ends

    def _query_failed(self, failed: QueryFailed) -> None:
        self._figures.recoveries += 1
        now_ms = self._ports.clock.monotonic_ms()
        if failed.is_outage:
            # As at a start: it lasts as long as it lasts, and no record is to blame.
            _LOG.warning("the query failed and is started anew: %s", failed.reason)
            pause_ms = _OUTAGE_PAUSE_MS
        else:
            if now_ms - self._query_begun_ms > self._config.hang_timeout_ms:
                # Longer than any micro-batch may take: it did what was there when it began. Else what befalls a quiet
                # job once a week would end it in the third.
                self._retries = NO_FAILURES
            self._retries = self._retries.failed(failed, now_ms, self._works_for())
            pause_ms = self._retries.pause_ms
            attempts = self._retries.attempts
            _LOG.warning("the query failed and is started anew (%d without a commit): %s", attempts, failed.reason)
        if failed.is_of_a_killed_worker:
            self._death = failed
        self._ports.query.stop()
        self._rest(pause_ms)

    def _rest(self, pause_ms: int) -> None:
        """Wait before the next start, no longer than what the container works for stays as it is."""
        works_for, clock = self._works_for(), self._ports.clock
        until_ms = clock.monotonic_ms() + pause_ms
        while (left_ms := until_ms - clock.monotonic_ms()) > 0:
            self._look_around()
            if self._is_over() or self._works_for() != works_for:
                return
            self._publish()
            self._ports.pause(min(_POLL_MS, left_ms))

    def _refresh_figures(self) -> None:
        """Where the inputs end now, for the lag; a broker that does not answer leaves the old figures."""
        now_ms = self._ports.clock.monotonic_ms()
        if now_ms - self._figures_at_ms < _FIGURES_EVERY_MS:
            return
        self._figures_at_ms = now_ms
        try:
            # A topic made anew may be longer than the old one was, and then nothing else would tell.
            self._absent_now = self._absent_inputs()
        except TemporaryError as error:
            _LOG.debug("topics of the inputs: %s", error)
        if self._absent_now != self._absent:
            return
        ssps = sorted({ssp_kb.ssp for ssp_kb in self._figures.positions})
        try:
            bounds = self._input_bounds(ssps, _FIGURES_WAIT_MS)
            self._figures.ends = {ssp: self._up_to_the_end(ssp, found) for ssp, found in bounds.items()}
            self._missing_since_ms = None
        except TemporaryError as error:
            _LOG.debug("figures: %s", error)
        except MissingTopicError as error:
            self._may_appear(error)
        self._publish()

    def _up_to_the_end(self, ssp: SystemStreamPartition, bounds: TopicBounds) -> TopicBounds:
        """What is behind the end of a bounded input is nobody's lag."""
        end = self._end_of(ssp)
        return bounds if end is None else replace(bounds, offset_end=min(end, bounds.offset_end))

    def _write_progress(self, grants: Sequence[Grant], *, at_once: bool = False) -> None:
        """Record how far idle buckets were read; never their checkpoints.

        And remove what another factor left: here, where no key waits for it.
        """
        now_ms = self._ports.clock.monotonic_ms()
        is_due = at_once or now_ms - self._progress_at_ms >= _PROGRESS_EVERY_MS
        if not (self._idle or self._superseded) or not is_due:
            return
        self._progress_at_ms = now_ms
        if self._superseded:
            self._remove_superseded()
        if not self._idle:
            return
        epochs = {start.ssp_kb: grant.epoch for grant in grants for start in grant.starts}
        records = [
            ProgressPut(
                progress=Progress(
                    ssp_kb=ssp_kb,
                    offset_next=offset,
                    epoch=epochs[ssp_kb],
                    execution_id=self._identity.execution_id,
                )
            )
            for ssp_kb, offset in sorted(self._idle.items())
        ]
        try:
            self._own_driver_id()
            self._ports.progress.append([encode(record) for record in records])
        except LostContainerError:
            raise
        except SamzapyError as error:
            # Progress is a saving, not a position of record: without it the next start reads a little again.
            _LOG.warning("progress of idle buckets was not recorded: %s", error)
            return
        self._idle.clear()

    def _remove_superseded(self) -> None:
        try:
            self._remove(checkpoint_topic(self._config.job), 0, self._superseded)
        except TemporaryError as error:
            _LOG.warning("positions of another factor stay until the next look: %s", error)
            return
        self._superseded = ()

    def _remove_unused(self) -> None:
        """Remove the local state of tasks long gone, once after the first start, or when what is kept warm is level,
        and from time to time.

        Here, where no key waits for it and the stream was read to its end, or up to when this container came.
        """
        now_ms = self._ports.clock.monotonic_ms()
        if now_ms < self._unused_at_ms:
            return  # Looked at many times a second, and who uses what is asked of every task of the job.
        in_use = self._orders.tasks_in_use()
        if in_use is None:
            return
        self._unused_at_ms = now_ms + _UNUSED_EVERY_MS
        ports = self._ports
        removed = remove_unused(in_use, ports.tasks_here(), ports.state_of, ports.clock.wall_ms())
        if len(removed) == REMOVED_AT_ONCE_MAX:
            self._unused_at_ms = now_ms + _UNUSED_REST_MS  # There may be more, and a disk that fills up.
        if removed:
            _LOG.info("removed local state of tasks that are no more: %s", some(removed))

    def _check_hang(self) -> None:
        now_ms = self._ports.clock.monotonic_ms()
        behind = any(
            ssp_kb.ssp in self._figures.ends and self._figures.ends[ssp_kb.ssp].offset_end > offset
            for ssp_kb, offset in self._figures.positions.items()
        )
        if not behind:
            # Without records there are no micro-batches: what comes after a quiet hour has all its time.
            self._level_at_ms = now_ms
        waited_ms = now_ms - max(self._committed_at_ms, self._level_at_ms)
        if waited_ms > self._config.hang_timeout_ms:
            raise SamzapyError(
                f"wanted a micro-batch to end within task.hang.timeout.ms ({self._config.hang_timeout_ms}), "
                f"found one running for {waited_ms} ms; a message may hang in user code"
            )

    # --- the end ---

    def _stop_cleanly(self) -> None:
        """Drain; then, if nothing can commit any more, let go of everything and say so."""
        ports = self._ports
        self._warming.end()
        self._to_keep_warm = None
        if not self._drain():
            _LOG.warning("the micro-batch did not finish within %d ms and is cancelled", self._config.drain_ms)
            ports.slots.kill_holders()
        self._write_progress(self._running, at_once=True)
        if not self._shut_workers_out():
            # The coordinator fences this execution when it sees that the process is gone.
            return
        for grant in self._held:
            close_cleanly(self._ports.state_of(grant.task_name))
        self._state, self._held, self._running = "STOPPED", (), ()
        self._publish()
        ports.heartbeats.send_now(_YIELD_MS)

    def _tell_end(self, error: SamzapyError) -> None:
        """Tell the coordinator why this process ends: whether another one would meet the same."""
        self._end = error
        self._publish()
        self._ports.heartbeats.send_now(_YIELD_MS)

    def _shut_workers_out(self) -> bool:
        """Let no worker begin anything more, and abort what they left open; whether nothing is open any more.

        Left to the broker's time-out or the next start, an open transaction would hide all that others write behind
        it from whoever reads the outputs. A broker that does not answer leaves it open; how long that is waited for
        is bounded from outside (`runtime.container_process`).
        """
        ports = self._ports
        open_slots = ports.slots.take_all(_YIELD_MS)
        ports.slots.block(self._query_number + 1)
        if not open_slots:
            return True
        try:
            self._fence(open_slots)
        except SamzapyError as error:
            _LOG.warning("a transaction may be open until the next start or its time-out: %s", error)
            return False
        return not self._orders.is_given_up

    def _fence(self, open_slots: Sequence[int]) -> None:
        """Abort what is open under the ids of these slots, then read whether this execution still may work.

        Kafka lets the latest initialiser win, so whoever initialises asks afterwards.
        """
        if open_slots:
            job, execution_id = self._config.job, self._identity.execution_id
            self._ports.fence.fence([slot_transactional_id(job, execution_id, slot) for slot in open_slots])
            self._ports.slots.renew(open_slots)
        self._follow(self._ports.stream.to_the_end())

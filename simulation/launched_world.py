"""A job whose coordinator starts its containers.

It has all of `world`, and a cluster manager, moves, standbys, container counts.

The cluster manager creates processes on request. The coordinators' own watch requests them
(`adapters.host.launch_watch`), in a thread beside theirs. Laws beyond those of every history:

- a start is recorded before it is asked for (ADR 0015);
- at no moment can two processes commit for one key bucket, however often executions are started;
- of the executions of a processor that are not declared lost, one at a time can commit under grants that are not
  revoked (a container that is to release its tasks may work beside the one that the processor was moved to);
- an execution recorded as gone was reported so, and tasks only go where their state is;
- a run is finished by a request, or because containers failed too often and the records say so;
- standbys of several processors that are wanted in one round are spread over the hosts;
- in the end every processor runs, its standbys are on hosts of their own, and there is no process that no record
  asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from samzapy.config import JobConfig
from samzapy.coordinator.assignment.grants import executions_to_grant, revoked_grants
from samzapy.coordinator.assignment.liveness import LIVING
from samzapy.coordinator.commands import SubmitJob
from samzapy.coordinator.launching.hosts import hosts_taken, place_of
from samzapy.coordinator.launching.launches import failed_job, wanted_processors
from samzapy.coordinator.launching.standbys import standby_count, standbys_of
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.job import ExecutionId, ProcessorId
from samzapy.model.launch import UP, Launch, LaunchPhase, LaunchRole
from samzapy.model.placement import ANY_HOST, FORCE_RESTART_LAST_SEEN, LAST_SEEN, STANDBY, Action
from samzapy.model.ssp import SystemStreamPartition
from simulation.checks import BrokenLawError, LaunchTruth
from simulation.cluster import SimulatedCluster
from simulation.configurations import PROCESSORS
from simulation.containers import SimulatedContainer
from simulation.coordinators import CoordinatorProcess, is_drivable
from simulation.events import containers, coordinators, operator
from simulation.inputs import FINEST
from simulation.operator import Operator
from simulation.world import Event, World

HOSTS = ("host-a", "host-b", "host-c", "host-d")
_SLOTS = 4
"""On each host one for each processor of the largest job, and one for a reserve."""
_LOAD_WITH_ROOM = 1
"""So many containers of the job surely leave room on a host, even if the coordinator's view of it is old."""
_COUNTS = (1, 2, 3)
_ACTIONS = (
    *(action for action in Action if action not in (Action.STOP, Action.REWIND)),
    Action.PLACE_CONTAINER,
    Action.PLACE_CONTAINER,
    Action.CONTROL_STANDBY,
)
_DESTINATIONS = (*HOSTS, ANY_HOST, LAST_SEEN, FORCE_RESTART_LAST_SEEN, STANDBY, STANDBY, "nowhere")


class LaunchedWorld(World):
    """Everything there is of such a job."""

    hosts = HOSTS
    quiet_rounds_max = 120
    """Requests for one processor are served one after the other, and a lost start is waited for."""
    rounds_to_life = 8
    _run_over = ""
    _failed_hosts: frozenset[str] = frozenset()
    _wall_ms_max = 0

    def _set_up(self) -> None:
        self.cluster = SimulatedCluster(
            slots=dict.fromkeys(HOSTS, _SLOTS),
            remembers=self.random.random() < 0.5,
            random=self.random,
            clock=self.clock,
            begin=self._begin_process,
            fault=self.fault,
        )

    def _judge(self) -> None:
        self._wall_ms_max = max(self._wall_ms_max, self.clock.wall_ms())
        committers = [container for container in self.containers if container.can_commit()]
        if len(committers) > 1:
            self._check_buckets(committers)
            self._check_processors(committers)

    def _check_buckets(self, committers: Sequence[SimulatedContainer]) -> None:
        owners: dict[tuple[SystemStreamPartition, str, int], SimulatedContainer] = {}
        for container in committers:
            for ssp_kb in [start.ssp_kb for grant in container.can_commit() for start in grant.starts]:
                for bucket in range(ssp_kb.bucket, FINEST, ssp_kb.factor):
                    other = owners.setdefault((ssp_kb.ssp, ssp_kb.reader, bucket), container)
                    if other is not container:
                        both = f"{_named(other)} and {_named(container)}"
                        raise BrokenLawError(f"{both} can commit for bucket {bucket} of {ssp_kb}")

    def _check_processors(self, committers: Sequence[SimulatedContainer]) -> None:
        state = self.checks.state
        revoked = {(grant.task_name, grant.epoch) for grant in revoked_grants(state)}
        owners: dict[str, SimulatedContainer] = {}
        for container in committers:
            known = state.containers.get(container.execution_id)
            # An execution that was declared lost can commit until it is fenced; only its own tasks wait for that.
            if known is None or known.phase not in LIVING:
                continue
            if all((grant.task_name, grant.epoch) in revoked for grant in container.can_commit()):
                continue
            other = owners.setdefault(container.processor_id, container)
            if other is not container:
                both = f"{_named(other)} and {_named(container)}"
                raise BrokenLawError(f"{both} can commit for processor {container.processor_id}")

    # --- the cluster ---

    def _begin_process(self, launch: Launch, host: str) -> SimulatedContainer:
        return self._run_container(launch.execution_id, launch.processor_id, host, is_launched=True)

    def _check_start(self, launch: Launch) -> None:
        if launch.execution_id not in self.checks.launches_recorded:
            raise BrokenLawError(f"{launch.execution_id} is started, and no record shows it")

    def was_level(self, execution_id: ExecutionId) -> bool:
        """See `LaunchTruth`."""
        return any(container.was_level for container in self.containers if container.execution_id == execution_id)

    def was_reported_ended(self, execution_id: ExecutionId) -> bool:
        """See `LaunchTruth`."""
        return execution_id in self.cluster.reported_ended

    def check_place(self, launch: Launch, state: CoordinatorState) -> None:
        """See `LaunchTruth`: decisions of one round see each other.

        Two first standbys that are wanted in one round are on one host only if no other is known that may have them,
        has fewer containers, and never failed a start.
        """
        if launch.phase not in UP and launch.failures and launch.execution_id not in state.containers:
            self._failed_hosts |= {launch.host, launch.host_found}
        if launch.phase is not LaunchPhase.WANTED or launch.role is not LaunchRole.STANDBY or launch.uuid:
            return
        up = [other for other in state.launches.values() if other.phase in UP]
        beside = [
            other
            for other in up
            if other.wanted_at_ms == launch.wanted_at_ms
            and (other.role, other.host) == (LaunchRole.STANDBY, launch.host)
            and other.processor_id != launch.processor_id
        ]
        of_kind = [
            other
            for other in state.launches.values()
            if (other.processor_id, other.role) == (launch.processor_id, LaunchRole.STANDBY)
        ]
        if launch.host and beside and of_kind == [launch]:
            load = Counter(place_of(other, state) for other in up)
            taken = hosts_taken(launch.processor_id, state)
            better = [
                host
                for host in load.keys() - taken.keys() - self._failed_hosts
                if host in HOSTS and load[host] <= min(_LOAD_WITH_ROOM, load[launch.host] - 2)
            ]
            if better:
                text = f"{launch.execution_id} and {beside[0].execution_id} are wanted on {launch.host} in one round"
                raise BrokenLawError(f"{text}, and {min(better)} has room")

    def check_end_of_run(self, state: CoordinatorState) -> None:
        """See `LaunchTruth`."""
        config = self.submission.config
        has_failed = config.fails_job_after_retries and failed_job(state, config.container_retry_count)
        if state.run is None or (state.run.run_id not in self.operator.stops and not has_failed):
            raise BrokenLawError("the run is finished, and no record has the reason")

    def _containers_are_looked_after(self) -> None:
        process = self.pick(
            [candidate for candidate in self.candidates if is_drivable(candidate) and candidate.service.is_leader]
        )
        if process is not None:
            process.look_after_containers()

    def _cluster_continues(self) -> None:
        self.cluster.start_due()

    def _process_comes_again(self) -> None:
        """A cluster manager that keeps things running starts an ended process again.

        It may also only believe that the process has ended.
        """
        process = self.pick(self.cluster.processes)
        launch = None if process is None else self.cluster.launch_of(process)
        if process is not None and launch is not None:
            self.fault("process comes again", process.execution_id)
            self.cluster.comes_again(launch, process.host)

    def _stranger_comes(self) -> None:
        self.fault("an operator starts a container by hand")
        self.start_container(PROCESSORS[self.random.randrange(len(PROCESSORS))])

    def _container_hangs(self) -> None:
        """A recorded execution hangs: an unknown one that hangs could not be seen."""
        known = {
            launch.execution_id
            for launch in self.checks.state.launches.values()
            if launch.phase is not LaunchPhase.ENDED
        }
        container = self.pick(
            [process for process in self.cluster.processes if process.alive and process.execution_id in known]
        )
        if container is not None:
            self.fault("container hangs", container.execution_id)
            container.paused = container.is_hung = True

    def _container_turns_deaf(self) -> None:
        container = self.a_running_container()
        if container is not None:
            self.fault("container does not stop", container.execution_id)
            container.is_deaf = True

    def _all_continue(self) -> None:
        super()._all_continue()
        for process in [candidate for candidate in self.candidates if is_drivable(candidate)]:
            process.look_after_containers()
        self.cluster.start_due()

    # --- the operator ---

    def _operator_moves(self) -> None:
        operator.operator_asks(self, Action.PLACE_CONTAINER)

    def _operator_replaces(self) -> None:
        operator.operator_asks(self, Action.RESTART_CONTAINER)

    def _operator_stops_the_job(self) -> None:
        operator.operator_asks(self, Action.STOP)

    def _job_is_submitted_again(self) -> None:
        run = self.checks.state.run
        if run is not None and run.ended:
            self._run_over = run.run_id
            self.submission = self.a_submission(self.submission.config)
            self.hand_in()

    def processors_asked_for(self) -> Sequence[str]:
        """Standbys too."""
        state = self.checks.state
        standbys = [
            f"{launch.processor_id}-{launch.standby}"
            for processor_id in PROCESSORS
            for launch in standbys_of(ProcessorId(processor_id), state)
        ]
        wanted = wanted_processors(state) or PROCESSORS
        return (*wanted, *wanted, *sorted({*standbys}))

    def container_counts(self) -> Sequence[int]:
        return _COUNTS

    # --- rest ---

    def _come_to_rest(self) -> None:
        # Deadlines are of the wall clock: after one was set back, and stays so, all waits are as much longer.
        self.clock.jump_wall(self._wall_ms_max - self.clock.wall_ms())
        self.cluster.comes_to_rest()
        super()._come_to_rest()

    def _quiet_cluster(self) -> None:
        was_quiet, self.cluster.is_quiet = self.cluster.is_quiet, True
        for process in self.candidates:
            process.look_after_containers()
        self.cluster.start_due()
        self.cluster.is_quiet = was_quiet
        self._judge()
        run = self.checks.state.run
        if run is not None and run.ended and run.run_id != self._run_over:
            self._run_over = run.run_id
            self.submission = self.a_submission(self.submission.config)
            self._must_submit = True

    def _replace_ended_containers(self) -> None:
        """That is the coordinator's part."""

    def _unrest(self) -> list[str]:
        state = self.checks.state
        if state.run is not None and state.run.finished:
            return ["the run is over"]
        if trouble := self._unrest_of_coordinators():
            return trouble
        wanted = wanted_processors(state) or ()
        if state.generation is None or state.generation.processor_ids != wanted:
            return [f"the plan is not for {wanted}"]
        return self._unrest_of_processes() or self._unrest_of_launches() or self._unrest_of_tasks()

    def _unrest_of_processes(self) -> list[str]:
        """Processes that no record asks for."""
        state, now_ms = self.checks.state, self.clock.monotonic_ms()
        unrest: list[str] = []
        for container in self.containers:
            if not container.alive:
                continue
            launch, known = state.launches.get(container.execution_id), state.containers.get(container.execution_id)
            is_wanted = launch is not None and launch.phase is LaunchPhase.LAUNCHED
            # A second process of an execution that hangs is ended together with that, and cannot be before.
            is_hung_copy = is_wanted and container.is_hung
            # A process that no answer reaches never hears that it is not wanted. It ends after its grace, as without a
            # leader.
            has_no_answers = container.answers_until_ms is not None and now_ms >= container.lease_until_ms
            may_run = is_hung_copy or (has_no_answers and not container.is_hung)
            if not may_run and (not is_wanted or known is None or known.pid != container.pid):
                unrest.append(f"{_named(container)} runs, and no record asks for it")
        return unrest + [f"{execution_id} is still on its way" for execution_id in self.cluster.starts_under_way()]

    def _unrest_of_launches(self) -> list[str]:
        """Records without effect, and hosts that have two executions of one processor."""
        state, unrest = self.checks.state, []
        alive = {container.execution_id for container in self.containers if container.alive}
        for launch in state.launches.values():
            if self._has_no_host(launch):
                continue
            if launch.phase in (LaunchPhase.WANTED, LaunchPhase.STOPPING):
                unrest.append(f"{launch.execution_id} is {launch.phase}")
            elif launch.phase is LaunchPhase.LAUNCHED and launch.execution_id not in alive:
                unrest.append(f"{launch.execution_id} is recorded as launched, and there is none")
        runners = executions_to_grant(state)
        for processor_id in wanted_processors(state) or ():
            standing = [launch for launch in standbys_of(processor_id, state) if not self._has_no_host(launch)]
            up = [
                launch
                for launch in state.launches.values()
                if launch.processor_id == processor_id and launch.phase is LaunchPhase.LAUNCHED
            ]
            hosts = [
                state.containers[launch.execution_id].host for launch in up if launch.execution_id in state.containers
            ]
            wanted = min(standby_count(processor_id, state), len(HOSTS) - 1)
            if len(standing) != wanted:
                unrest.append(f"processor {processor_id} has {len(standing)} standbys, wanted {wanted}")
            if not all(self.was_level(launch.execution_id) for launch in standing):
                unrest.append(f"standbys of processor {processor_id} are not level")
            if len(up) != wanted + 1 or runners.get(processor_id) not in alive:
                unrest.append(
                    f"processor {processor_id} has {len(up)} executions, wanted {wanted + 1}, one of which runs"
                )
            if len({*hosts}) != len(hosts):
                unrest.append(f"two executions of processor {processor_id} are on one host: {hosts}")
        return unrest

    def _has_no_host(self, launch: Launch) -> bool:
        """Whether it is a standby for which there is no host; it is requested for ever."""
        state = self.checks.state
        return (
            launch.role is LaunchRole.STANDBY
            and launch.execution_id not in state.containers
            and standby_count(launch.processor_id, state) > len(HOSTS) - 1
        )

    # --- making things ---

    def _an_operator(self) -> Operator:
        return Operator(self.placement, self.random, _ACTIONS, _DESTINATIONS)

    def _launch_truth(self) -> LaunchTruth:
        return self

    def a_candidate(self, name: str) -> CoordinatorProcess:
        process = super().a_candidate(name)
        process.start_containers(self.cluster, self._check_start)
        return process

    def a_submission(self, config: JobConfig) -> SubmitJob:
        submission = super().a_submission(config)
        return replace(submission, container_count=len(self._members), run_over=self._run_over)

    def _weight(self, event: Event, weight: float) -> float:
        return super()._weight(event, _OFTEN.get(event, weight))

    def _weighted(self) -> Sequence[tuple[Event, float]]:
        left_out = {containers.container_starts, containers.all_stop, World._all_continue}
        return (*(event for event in super()._weighted() if event[0] not in left_out), *_WEIGHTED)


def _named(container: SimulatedContainer) -> str:
    return f"{container.execution_id} ({container.pid})"


_WEIGHTED: tuple[tuple[Event, float], ...] = (
    (LaunchedWorld._containers_are_looked_after, 14),
    (LaunchedWorld._cluster_continues, 8),
    (LaunchedWorld._all_continue, 30),
    (LaunchedWorld._process_comes_again, 0.5),
    (LaunchedWorld._stranger_comes, 0.3),
    (LaunchedWorld._container_hangs, 0.3),
    (LaunchedWorld._container_turns_deaf, 0.3),
    (LaunchedWorld._operator_moves, 3),
    (LaunchedWorld._operator_replaces, 0.5),
    (LaunchedWorld._operator_stops_the_job, 0.1),
    (LaunchedWorld._job_is_submitted_again, 2),
)

_OFTEN: Mapping[Event, float] = {
    operator.operator_asks: 1,
    operator.operator_scales: 0.7,
    operator.operator_rewinds: 0.3,
    coordinators.coordinator_dies: 0.6,
    coordinators.election: 0.6,
}
"""How often that happens here: a request takes a while, and another one should seldom overtake it."""

"""The cluster manager of a simulated job whose coordinator starts the containers.

It is slow.

Between a request for a start and the process there may be anything: nothing (the request is lost), a long time, or two
processes, because two coordinators asked in the same moment. Answers are lost, and an answer may be old when it
arrives. It is as good as `coordinator.ports.Launcher` asks and no better: actions are idempotent by execution id, and
it only reports executions as ended that have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from samzapy.errors import BrokerUnavailableError, LaunchError
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch, Launched, LaunchedState, LaunchPhase, LaunchRole
from samzapy.testing.virtual_clock import VirtualClock
from simulation.containers import SimulatedContainer

_NOT_NOW = 0.06
"""How often a request is refused for the moment; and how often it is done, and the answer is lost."""
_LOST = 0.04
_DOUBLED = 0.06
_SURVIVES_A_KILL = 0.3
_UNKNOWN = 0.06
_IMPOSSIBLE = 0.03
_CRASHES = 0.12
_DELAYS_MS = (0, 0, 500, 2_000, 6_000, 30_000)


@dataclass(slots=True)
class _Start:
    """A process on its way. `at_ms`: true time; None: it never comes."""

    launch: Launch
    host: str
    at_ms: int | None


class SimulatedCluster:
    """Hosts with places for containers.

    Args:
        slots: the number of each host's slots.
        remembers: it knows all its executions and hosts for ever; otherwise only running ones.
        begin: makes the process of an execution on a host.
        fault: called with each kind of trouble that happens, and its execution.

    Attributes:
        is_quiet: no trouble any more.
        reported_ended: the executions whose end it ever reported.
    """

    def __init__(
        self,
        *,
        slots: Mapping[str, int],
        remembers: bool,
        random: Random,
        clock: VirtualClock,
        begin: Callable[[Launch, str], SimulatedContainer],
        fault: Callable[[str, str], None],
    ) -> None:
        self.is_quiet = False
        self.reported_ended: set[ExecutionId] = set()
        self.processes: list[SimulatedContainer] = []
        self._slots = dict(slots)
        self._remembers = remembers
        self._random = random
        self._clock = clock
        self._begin = begin
        self._fault = fault
        self._starts: list[_Start] = []
        self._impossible: set[ExecutionId] = set()
        self._launches: dict[ExecutionId, Launch] = {}

    # --- requests of coordinators ---

    def launch(self, launch: Launch) -> None:
        """See `Launcher.launch`."""
        self._refuse_now("start", launch)
        if launch.host and launch.host not in self._slots:
            self._impossible.add(launch.execution_id)
        if launch.execution_id in self._impossible:
            return
        is_on_its_way = any(start.launch.execution_id == launch.execution_id for start in self._starts)
        if is_on_its_way and self._happens(_DOUBLED):
            self._fault("started twice", launch.execution_id)
        elif is_on_its_way or self._knows(launch.execution_id):
            return
        elif self._happens(_IMPOSSIBLE):
            self._fault("start is impossible", launch.execution_id)
            self._impossible.add(launch.execution_id)
            return
        at_ms: int | None = self._clock.monotonic_ms()
        if not self.is_quiet:
            assert at_ms is not None
            at_ms += self._random.choice(_DELAYS_MS)
        if self._happens(_LOST):
            self._fault("start is lost", launch.execution_id)
            at_ms = None
        self._starts.append(_Start(launch, self._host_for(launch), at_ms))
        self._launches[launch.execution_id] = launch
        self._lose_the_answer("start", launch)

    def kill(self, launch: Launch) -> None:
        """See `Launcher.kill`. A process that is on its way may come all the same."""
        self._refuse_now("kill", launch)
        mine = [start for start in self._starts if start.launch.execution_id == launch.execution_id]
        for start in mine:
            if self._happens(_SURVIVES_A_KILL):
                self._fault("start comes after its kill", launch.execution_id)
            else:
                self._starts.remove(start)
        for process in self._running(launch.execution_id):
            process.die(self._random.random())
        self._lose_the_answer("kill", launch)

    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        """See `Launcher.look`."""
        if self._happens(_NOT_NOW):
            self._fault("cluster manager does not answer", "")
            raise LaunchError("no answer")
        seen = {launch.execution_id: self._seen(launch) for launch in launches}
        known = {execution_id: state for execution_id, state in seen.items() if state is not None}
        ended = {execution_id for execution_id, state in known.items() if state.state is LaunchedState.ENDED}
        self.reported_ended |= ended
        return known

    def hosts(self) -> Mapping[str, int | None]:
        """See `Launcher.hosts`.

        One that forgets names none: they are found out as containers come.
        """
        if not self._remembers:
            return {}
        places = self._places()
        return {host: max(0, count - places.count(host)) for host, count in self._slots.items()}

    # --- events ---

    def start_due(self) -> None:
        """Start the processes that are due; some end at once."""
        now_ms = self._clock.monotonic_ms()
        due = [
            start for start in self._starts if start.at_ms is not None and (self.is_quiet or start.at_ms <= now_ms)
        ]
        for start in due:
            self._starts.remove(start)
            process = self._begin(start.launch, start.host)
            self.processes.append(process)
            if self._happens(_CRASHES):
                self._fault("container ends at once", process.execution_id)
                process.die(self._random.random())

    def launch_of(self, process: SimulatedContainer) -> Launch | None:
        """The launch of a process; None for one that was started elsewhere."""
        return self._launches.get(process.execution_id)

    def comes_again(self, launch: Launch, host: str) -> None:
        """Start another process for an execution, without a request."""
        self.processes.append(self._begin(launch, host))

    def comes_to_rest(self) -> None:
        """End all trouble; lost starts are not waited for."""
        self.is_quiet = True
        self._starts = [start for start in self._starts if start.at_ms is not None]

    def starts_under_way(self) -> Iterator[ExecutionId]:
        """The executions of which a process may still come."""
        return (start.launch.execution_id for start in self._starts)

    # --- answers ---

    def _seen(self, launch: Launch) -> Launched | None:
        if self._happens(_UNKNOWN):
            return Launched(state=LaunchedState.UNKNOWN, reason="unknown")
        running = self._running(launch.execution_id)
        if running:
            return Launched(state=LaunchedState.RUNNING, host=running[0].host, handle=str(running[0].pid))
        if any(start.launch.execution_id == launch.execution_id for start in self._starts):
            return Launched(state=LaunchedState.STARTING)
        if launch.phase is not LaunchPhase.WANTED or launch.execution_id in self._impossible:
            return Launched(state=LaunchedState.ENDED, reason="it is not there")
        if self._remembers and self._knows(launch.execution_id):
            return Launched(state=LaunchedState.ENDED, exit_code=1)
        return None

    def _knows(self, execution_id: ExecutionId) -> bool:
        return any(
            process.execution_id == execution_id and (self._remembers or process.alive) for process in self.processes
        )

    def _running(self, execution_id: ExecutionId) -> list[SimulatedContainer]:
        return [process for process in self.processes if process.execution_id == execution_id and process.alive]

    def _host_for(self, launch: Launch) -> str:
        """Where to start it.

        Raises:
            LaunchError: there is no place now.
        """
        places = self._places()
        avoided = {
            process.host
            for process in self.processes
            if process.alive and process.processor_id == launch.processor_id and launch.role is LaunchRole.STANDBY
        }
        free = [
            host
            for host, count in self._slots.items()
            if launch.host in ("", host) and places.count(host) < count and host not in avoided
        ]
        if not free:
            raise LaunchError(f"no place for {launch.execution_id} on {launch.host or 'any host'}")
        return free[self._random.randrange(len(free))]

    def _places(self) -> Sequence[str]:
        """The hosts of all processes that run or are about to.

        A host comes as often as it has a place in use.
        """
        running = [process.host for process in self.processes if process.alive]
        return [*running, *(start.host for start in self._starts if start.at_ms is not None)]

    # --- trouble ---

    def _happens(self, likelihood: float) -> bool:
        return not self.is_quiet and self._random.random() < likelihood

    def _refuse_now(self, action: str, launch: Launch) -> None:
        if self._happens(_NOT_NOW):
            self._fault(f"{action} is refused", launch.execution_id)
            raise LaunchError(f"no {action} now")

    def _lose_the_answer(self, action: str, launch: Launch) -> None:
        if self._happens(_NOT_NOW):
            self._fault(f"{action} without an answer", launch.execution_id)
            raise LaunchError(f"{action}: no answer")


class ReachedCluster:
    """The cluster manager as one coordinator reaches it.

    It is a `coordinator.ports.Launcher`.

    Args:
        between: anything that can happen between two effects; may be the end of the coordinator.
        check_start: gets each start before it is requested; judges it.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        between: Callable[[str], None],
        check_start: Callable[[Launch], None],
    ) -> None:
        self._cluster = cluster
        self._between = between
        self._check_start = check_start

    def launch(self, launch: Launch) -> None:
        """See `Launcher.launch`."""
        self._meet("before start")
        self._check_start(launch)
        self._cluster.launch(launch)
        self._meet("after start")

    def kill(self, launch: Launch) -> None:
        """See `Launcher.kill`."""
        self._meet("before kill")
        self._cluster.kill(launch)
        self._meet("after kill")

    def look(self, launches: Sequence[Launch]) -> Mapping[ExecutionId, Launched]:
        """See `Launcher.look`."""
        self._meet("before look")
        known = self._cluster.look(launches)
        self._meet("after look")
        return known

    def hosts(self) -> Mapping[str, int | None]:
        """See `Launcher.hosts`."""
        return self._cluster.hosts()

    def _meet(self, action: str) -> None:
        try:
            self._between(action)
        except BrokerUnavailableError as error:
            raise LaunchError(str(error)) from error

"""A process of an election candidate.

It is the real `CoordinatorService`, with ports that fail as the world does.

Between two effects of a coordinator anything may happen (`Surroundings.between`): it is killed there, or it is
paused while the world continues, with its successor. So the ports below ask before and after each effect.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from samzapy.adapters.host.launch_watch import LaunchWatch
from samzapy.config import JobConfig
from samzapy.container.start_rules import positions_of
from samzapy.coordinator.action_performer import ActionPerformer
from samzapy.coordinator.assignment.starts import ChangelogPlace, PositionsRead
from samzapy.coordinator.candidate import Candidate
from samzapy.coordinator.commands import Command, OffsetBounds, SubmitJob
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.errors import (
    BrokerUnavailableError,
    DeadlineError,
    FencedError,
    ProducerError,
    RejectedError,
    SamzapyError,
    TemporaryError,
)
from samzapy.model.container import coordinator_transactional_id
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId
from samzapy.model.launch import Launch
from samzapy.model.ssp import SystemStreamPartition
from samzapy.stream.log import LogRecord, Write
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.memory_placement import MemoryPlacementWriter
from samzapy.testing.virtual_clock import VirtualClock
from simulation.checks import BrokenLawError, Probe, decoded
from simulation.cluster import ReachedCluster, SimulatedCluster
from simulation.inputs import Inputs
from simulation.state import Changelogs


class ProcessEnded(BaseException):
    """The process was killed at this point.

    Like SIGKILL, nothing catches it but the world.
    """


class Surroundings(Protocol):
    """The world as a coordinator meets it."""

    clock: VirtualClock
    stream: MemoryTopic
    checkpoints: MemoryTopic
    placement: MemoryTopic
    changelogs: Changelogs
    inputs: Inputs
    submission: SubmitJob

    def between(self, process: CoordinatorProcess, step: str) -> None:
        """Any thing that can happen between two effects of a process.

        Raises:
            ProcessEnded: it was killed.
            BrokerUnavailableError: no broker answers now.
        """
        ...

    def trouble_append(self, process: CoordinatorProcess, log: MemoryLog, count: int) -> None:
        """Prepare the fate of an append of `count` records to `log`."""
        ...

    def look(self) -> None:
        """Check the new records of the stream, before any process acts on them."""
        ...

    def process_lives(self, host: str, boot_id: str, pid: int) -> bool | None: ...

    def is_elected(self, name: str) -> bool: ...

    def rejoin_election(self, name: str) -> None:
        """The candidate gives up its seat, if it has one, to the next."""
        ...

    def note(self, text: str) -> None: ...


class CoordinatorProcess:
    """One candidate.

    `paused` and `busy` (in the middle of a round) keep the world from driving it.

    `watch`: the thread that starts its containers; None if they are self-managed.
    """

    def __init__(self, world: Surroundings, name: str, host: str, pid: int, skew_ms: int, config: JobConfig) -> None:
        self.name = name
        self.host = host
        self.pid = pid
        self.alive = True
        self.paused = False
        self.busy = False
        self.queue: list[Command] = []
        self.lease_ms = config.lease_ms
        self._answers_ms = config.answers_ms
        self.watch: LaunchWatch | None = None
        self._is_watching = False
        self._world = world
        self._skew_ms = skew_ms
        self._retry_window_ms = config.container_retry_window_ms
        self.service = CoordinatorService(
            log=_Log(self, world),
            config=config,
            identity=CoordinatorIdentity(
                coordinator_id=f"{name}-{pid}",
                host=host,
                boot_id=f"boot-{host}",
                pid=pid,
                process_started_ms=1,
                url=name,
            ),
            clock=self,
            commands=self,
            processes=self,
            performer=ActionPerformer(
                clock=self,
                fencing=_Fencing(self, world),
                positions=_Positions(self, world),
                placement=_Placement(self, world),
            ),
        )
        self._candidate = Candidate(self.service, self, lambda state: world.submission)

    # --- ports that need no class of their own ---

    def monotonic_ms(self) -> int:
        return self._world.clock.monotonic_ms() + self._skew_ms

    def monotonic_ns(self) -> int:
        return self.monotonic_ms() * 1_000_000

    def wall_ms(self) -> int:
        return self._world.clock.wall_ms()

    def take(self, timeout_ms: int) -> Sequence[Command]:
        taken, self.queue = tuple(self.queue), []
        return taken

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> bool | None:
        return self._world.process_lives(self.host, boot_id, pid)

    def end_of(self, execution_id: ExecutionId) -> ContainerEnd | None:
        return None

    def wait(self, timeout_ms: int) -> bool:
        return self._world.is_elected(self.name)

    def rejoin(self) -> None:
        self._world.note(f"{self.name} was fenced and rejoined the election")
        self._world.rejoin_election(self.name)

    # --- driven by the world ---

    def answers(self) -> bool:
        """Whether it would answer a request now with anything but 503."""
        return self.alive and self.service.status().may_answer(self.monotonic_ms(), self._answers_ms)

    def round(self, probe: Probe) -> None:
        """Become leader if elected, or do one round of the loop."""
        led = self.service.is_leader
        with self._driven():
            self._candidate.run_once(0)
            status = self.service.status()
            if self.service.is_leader and not self.service._pending_submissions:
                probe.after_round(status.state, status.trouble)
        if self.alive and self.service.is_leader and not led:
            self._world.note(f"{self.name} leads")

    def start_containers(self, cluster: SimulatedCluster, check_start: Callable[[Launch], None]) -> None:
        """Let `cluster` start the job's containers from now on, as configured."""
        self.watch = LaunchWatch(
            ReachedCluster(cluster, self._between, check_start),
            state=lambda: self.service.status().state if self.service.is_leader else None,
            put=self.queue_up,
            retry_window_ms=self._retry_window_ms,
            on_failure=_raise,
            wall_ms=self.wall_ms,
        )

    def look_after_containers(self) -> None:
        """A round of the thread that starts and stops containers.

        Any event may come between two of its effects, also rounds of the coordinator itself.
        """
        if self.watch is None or self._is_watching:
            return
        self._is_watching = True
        try:
            self.watch.go_on()
        except ProcessEnded:
            self.alive = False
        finally:
            self._is_watching = False

    def queue_up(self, command: Command) -> None:
        """A command from outside; it is lost with the process, or its term."""
        self.queue.append(command)

    def _between(self, step: str) -> None:
        self._world.between(self, step)
        if not self.alive:
            raise ProcessEnded

    def submit(self, submission: SubmitJob) -> None:
        """The job is handed in anew, if this one leads."""
        with self._driven():
            self.service.submit(submission)

    @contextmanager
    def _driven(self) -> Iterator[None]:
        self.busy = True
        try:
            yield
        except (ProducerError, TemporaryError, DeadlineError, FencedError) as error:
            self._world.note(f"{self.name} steps down: {type(error).__name__}: {error}")
            self.service.step_down()
        except RejectedError:
            # As the process would: its configuration is not that of the running processes.
            self._world.note(f"{self.name} is refused and ends")
            self.alive = False
        except SamzapyError as error:
            raise BrokenLawError(f"L9, {self.name} cannot continue: {type(error).__name__}: {error}") from error
        except ProcessEnded:
            self.alive = False
        finally:
            self.busy = False


def _raise(error: Exception) -> None:
    raise error


class _Log:
    """The coordinator stream as this process reaches it."""

    def __init__(self, process: CoordinatorProcess, world: Surroundings) -> None:
        self._process = process
        self._world = world
        self._log = MemoryLog(world.stream, coordinator_transactional_id(world.submission.config.job))

    def take_over(self) -> None:
        self._world.between(self._process, "before take-over")
        self._log.take_over()
        self._world.between(self._process, "after take-over")

    def append_atomically(self, writes: Sequence[Write]) -> int:
        try:
            self._world.between(self._process, "before append")
        except BrokerUnavailableError as error:
            raise ProducerError(str(error)) from error
        self._world.trouble_append(self._process, self._log, len(writes))
        try:
            offset_after = self._log.append_atomically(writes)
        finally:
            self._world.look()
        try:
            self._world.between(self._process, "after append")
        except BrokerUnavailableError as error:
            raise ProducerError(f"{error}; it was committed all the same") from error
        return offset_after

    def read(self, offset_from: int = 0) -> Iterator[LogRecord]:
        self._world.between(self._process, "read")
        return self._log.read(offset_from)

    def end_offset(self) -> int:
        self._world.between(self._process, "end offset")
        return self._log.end_offset()


class _Placement:
    """The right to write to the placement topic as this process has it."""

    def __init__(self, process: CoordinatorProcess, world: Surroundings) -> None:
        self._process = process
        self._world = world
        self._writer = MemoryPlacementWriter(world.placement)

    def acquire(self) -> bool:
        self._world.between(self._process, "before owning the answers")
        return self._writer.acquire()

    def write(self, writes: Sequence[Write]) -> int:
        self._world.between(self._process, "before answers")
        self._world.trouble_append(self._process, self._writer.log, len(writes))
        offset_next = self._writer.write(writes)
        self._world.between(self._process, "after answers")
        return offset_next


class _Fencing:
    def __init__(self, process: CoordinatorProcess, world: Surroundings) -> None:
        self._process = process
        self._world = world

    def fence(self, transactional_ids: Sequence[str], outputs: Collection[str]) -> None:
        for transactional_id in transactional_ids:
            self._world.between(self._process, "fence")
            MemoryLog(self._world.checkpoints, transactional_id).take_over()
        self._world.between(self._process, "after fence")


class _Positions:
    def __init__(self, process: CoordinatorProcess, world: Surroundings) -> None:
        self._process = process
        self._world = world

    def read(self, ssps: Sequence[SystemStreamPartition], changelogs: Sequence[ChangelogPlace] = ()) -> PositionsRead:
        self._world.between(self._process, "before positions")
        topic = self._world.checkpoints
        positions = positions_of(decoded(record, topic=topic.name) for record in MemoryLog(topic).read())
        read = PositionsRead(
            checkpoints=positions.checkpoints,
            progress=positions.progress,
            bounds={ssp: self._world.inputs.bounds[ssp] for ssp in ssps},
            changelog_ends={place: self._world.changelogs.topic(*place).end_offset for place in changelogs},
        )
        self._world.between(self._process, "after positions")
        return read

    def offset_bounds(
        self, ssps: Sequence[SystemStreamPartition], timestamp_ms: int | None
    ) -> Mapping[SystemStreamPartition, OffsetBounds]:
        self._world.between(self._process, "before offset bounds")
        bounds = {ssp: self._world.inputs.bounds[ssp] for ssp in ssps}
        self._world.between(self._process, "after offset bounds")
        return {
            ssp: OffsetBounds(bound.offset_first, bound.offset_end, timestamp_ms) for ssp, bound in bounds.items()
        }

    def high_watermarks(self, ssps: Sequence[SystemStreamPartition]) -> Mapping[SystemStreamPartition, int]:
        self._world.between(self._process, "before ends")
        ends = {ssp: self._world.inputs.bounds[ssp].offset_end for ssp in ssps}
        self._world.between(self._process, "after ends")
        return ends


def is_drivable(process: CoordinatorProcess) -> bool:
    return process.alive and not process.paused and not process.busy

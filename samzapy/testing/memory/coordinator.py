"""The real coordinator of one job, with its topics in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from samzapy.adapters.web.client import HeartbeatAnswer
from samzapy.container.start_rules import positions_of
from samzapy.coordinator.action_performer import ActionPerformer
from samzapy.coordinator.assignment.heartbeat_json import parse_heartbeat
from samzapy.coordinator.assignment.liveness import is_expected, may_register
from samzapy.coordinator.assignment.starts import Bounds, ChangelogPlace, PositionsRead
from samzapy.coordinator.candidate import Candidate
from samzapy.coordinator.commands import Command, OffsetBounds, SubmitJob
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.coordinator.state import CoordinatorState
from samzapy.model.container import coordinator_transactional_id
from samzapy.model.container_end import ContainerEnd
from samzapy.model.job import ExecutionId
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic, placement_topic
from samzapy.stream.codec import decode
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.memory_placement import MemoryPlacementWriter, read_inbox
from samzapy.testing.virtual_clock import VirtualClock

URL = "memory"
_IDLE_MS = 1000
"""How long a leader waits that is not asked for anything."""


class MemoryCoordinator:
    """A coordinator that leads, and whose rounds somebody asks for.

    It is its own source of commands, fence and reader of positions.

    Args:
        is_alive: whether the process with this number runs.
    """

    def __init__(
        self, submission: SubmitJob, kafka: MemoryKafka, clock: VirtualClock, is_alive: Callable[[int], bool]
    ) -> None:
        config = submission.config
        self.stream = MemoryTopic(coordinator_topic(config.job))
        self.placement = MemoryTopic(placement_topic(config.job))
        self._config = config
        self._kafka = kafka
        self._clock = clock
        self._is_alive = is_alive
        self._queue: list[Command] = []
        self._idle_until_ms = 0
        self._service = CoordinatorService(
            log=MemoryLog(self.stream, coordinator_transactional_id(config.job)),
            config=config,
            identity=CoordinatorIdentity(
                coordinator_id="memory", host="host", boot_id="boot", pid=1, process_started_ms=1, url=URL
            ),
            clock=clock,
            commands=self,
            processes=_Processes(is_alive),
            performer=ActionPerformer(
                clock=clock, fencing=self, positions=self, placement=MemoryPlacementWriter(self.placement)
            ),
        )
        self._candidate = Candidate(self._service, self, lambda _: submission)

    @property
    def state(self) -> CoordinatorState:
        return self._service.status().state

    def round(self) -> None:
        """Read requests, and do one round of the loop."""
        now_ms, position = self._clock.monotonic_ms(), self.state.inbox.offset_next
        is_asked = self._queue or self.placement.stable_offset > position
        if self._service.is_leader and not is_asked and now_ms < self._idle_until_ms:
            return
        self._idle_until_ms = now_ms + _IDLE_MS
        self.stream.now_ms = self.placement.now_ms = self._clock.wall_ms()
        command = read_inbox(self.placement, position, self._clock.wall_ms())
        if command.offset_next > position:
            self._queue.append(command)
        self._candidate.run_once(0)

    def heartbeat(self, body: bytes) -> HeartbeatAnswer | None:
        """The answer to a heartbeat in its JSON form, as the HTTP route gives it."""
        heartbeat = parse_heartbeat(body, received_ms=self._clock.monotonic_ms())
        if not self._service.is_leader:
            return None
        self._queue.append(heartbeat)
        if may_register(self.state, heartbeat):
            self.round()
        term = self.state.term
        return HeartbeatAnswer(alive=is_expected(self.state, heartbeat), term=0 if term is None else term.term)

    # --- ports ---

    def take(self, timeout_ms: int) -> Sequence[Command]:
        taken, self._queue = tuple(self._queue), []
        return taken

    def wait(self, timeout_ms: int) -> bool:
        return True

    def rejoin(self) -> None:
        """There is no other candidate."""

    def fence(self, transactional_ids: Sequence[str], outputs: Collection[str]) -> None:
        for transactional_id in transactional_ids:
            self._kafka.init(transactional_id)

    def read(self, ssps: Sequence[SystemStreamPartition], changelogs: Sequence[ChangelogPlace] = ()) -> PositionsRead:
        topic = checkpoint_topic(self._config.job)
        positions = positions_of(decode(record, topic=topic) for record in self._kafka.committed(topic))
        return PositionsRead(
            checkpoints=positions.checkpoints,
            progress=positions.progress,
            bounds={ssp: Bounds(0, self._kafka.offset_end(ssp.stream, ssp.partition)) for ssp in ssps},
            changelog_ends={
                (store, number): self._kafka.offset_end(changelog_topic(self._config.job, store), number)
                for store, number in changelogs
            },
        )

    def offset_bounds(
        self, ssps: Sequence[SystemStreamPartition], timestamp_ms: int | None
    ) -> Mapping[SystemStreamPartition, OffsetBounds]:
        return {ssp: self._bounds(ssp, timestamp_ms) for ssp in ssps}

    def _bounds(self, ssp: SystemStreamPartition, timestamp_ms: int | None) -> OffsetBounds:
        end = self._kafka.offset_end(ssp.stream, ssp.partition)
        if timestamp_ms is None:
            return OffsetBounds(0, end, None)
        records = self._kafka.committed(ssp.stream, ssp.partition)
        later = (record.offset for record in records if record.timestamp_ms >= timestamp_ms)
        return OffsetBounds(0, end, next(later, end))

    def high_watermarks(self, ssps: Sequence[SystemStreamPartition]) -> Mapping[SystemStreamPartition, int]:
        return {ssp: self._kafka.offset_end(ssp.stream, ssp.partition) for ssp in ssps}


class _Processes:
    """The processes of the only host."""

    def __init__(self, is_alive: Callable[[int], bool]) -> None:
        self._is_alive = is_alive

    def is_alive(self, boot_id: str, pid: int, process_started_ms: int) -> bool | None:
        return self._is_alive(pid)

    def end_of(self, execution_id: ExecutionId) -> ContainerEnd | None:
        return None

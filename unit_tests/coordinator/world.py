"""A coordinator with a memory log and a world that does as it is told."""

from dataclasses import dataclass, field

from samzapy.coordinator.assignment.starts import Bounds, PositionsRead
from samzapy.coordinator.commands import Landmarks
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.errors import BrokerUnavailableError, ProducerError
from samzapy.model.container import coordinator_transactional_id
from samzapy.testing.builders import a_config
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
from samzapy.testing.memory_placement import MemoryPlacementWriter
from samzapy.testing.virtual_clock import VirtualClock


@dataclass
class World:
    """Everything outside of a coordinator, shared by those that succeed one another."""

    config: object = field(default_factory=a_config)
    clock: VirtualClock = field(default_factory=VirtualClock)
    topic: MemoryTopic = field(default_factory=lambda: MemoryTopic("__samzapy-coordinator-flights-1"))
    queue: list = field(default_factory=list)
    fenced: list = field(default_factory=list)
    fencing_fails: int = 0
    fencing_error: Exception = field(default_factory=lambda: BrokerUnavailableError("no broker answered"))
    reading_fails: int = 0
    reading_error: Exception = field(default_factory=lambda: BrokerUnavailableError("no broker answered"))
    checkpoints: dict = field(default_factory=dict)
    progress: dict = field(default_factory=dict)
    bounds: dict = field(default_factory=dict)
    absent: set = field(default_factory=set)
    changelog_ends: dict = field(default_factory=dict)
    watermarks: dict = field(default_factory=dict)
    watermarks_read: list = field(default_factory=list)
    offset_at: int = 50
    landmarks_read: list = field(default_factory=list)
    positions_reads: int = 0
    alive: dict = field(default_factory=dict)
    placement: MemoryTopic = field(default_factory=lambda: MemoryTopic("__samzapy-placement-flights-1"))
    writing_fails: int = 0

    def __post_init__(self):
        self.writer = MemoryPlacementWriter(self.placement)

    def take(self, timeout_ms):
        taken, self.queue[:] = tuple(self.queue), []
        return taken

    def fence(self, transactional_ids):
        if self.fencing_fails:
            self.fencing_fails -= 1
            raise self.fencing_error
        self.fenced.extend(transactional_ids)

    def read(self, ssps, changelogs=()):
        if self.reading_fails:
            self.reading_fails -= 1
            raise self.reading_error
        self.positions_reads += 1
        return PositionsRead(
            checkpoints=dict(self.checkpoints),
            progress=dict(self.progress),
            bounds={ssp: self.bounds.get(ssp, Bounds(0, 100)) for ssp in ssps if ssp.stream not in self.absent},
            changelog_ends={place: self.changelog_ends[place] for place in changelogs},
        )

    def high_watermarks(self, ssps):
        if self.reading_fails:
            self.reading_fails -= 1
            raise self.reading_error
        self.watermarks_read.append(tuple(ssps))
        return {ssp: self.watermarks.get(ssp, 100) for ssp in ssps}

    def landmarks(self, ssps, timestamp_ms):
        if self.reading_fails:
            self.reading_fails -= 1
            raise self.reading_error
        self.landmarks_read.append((tuple(ssps), timestamp_ms))
        bounds = {ssp: self.bounds.get(ssp, Bounds(0, 100)) for ssp in ssps}
        at = None if timestamp_ms is None else self.offset_at
        return {ssp: Landmarks(found.offset_first, found.offset_end, at) for ssp, found in bounds.items()}

    def own(self):
        return self.writer.own()

    def write(self, writes):
        if self.writing_fails:
            self.writing_fails -= 1
            raise ProducerError("no broker answered")
        return self.writer.write(writes)

    def is_alive(self, boot_id, pid, process_started_ms):
        return self.alive.get(pid)

    def log(self):
        return MemoryLog(self.topic, coordinator_transactional_id("flights-1"))

    def coordinator(self, name="a", *, log=None, service=CoordinatorService, pid=1):
        return service(
            log=log if log is not None else self.log(),
            config=self.config,
            identity=CoordinatorIdentity(
                coordinator_id=name,
                host="host-a",
                boot_id="boot-a",
                pid=pid,
                process_started_ms=1,
                url=f"http://{name}:1",
                version="9.9.9",
            ),
            clock=self.clock,
            commands=self,
            fencing=self,
            positions=self,
            processes=self,
            placement=self,
        )

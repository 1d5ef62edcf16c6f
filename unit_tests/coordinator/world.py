"""A coordinator with a memory log and a world that does as it is told."""

from dataclasses import dataclass, field

from samzapy.coordinator.grants import Bounds, PositionsRead
from samzapy.coordinator.service import CoordinatorIdentity, CoordinatorService
from samzapy.errors import BrokerUnavailableError
from samzapy.model.container import coordinator_transactional_id
from samzapy.testing.builders import a_config
from samzapy.testing.memory_log import MemoryLog, MemoryTopic
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
    reading_fails: int = 0
    checkpoints: dict = field(default_factory=dict)
    progress: dict = field(default_factory=dict)
    bounds: dict = field(default_factory=dict)
    positions_reads: int = 0
    alive: dict = field(default_factory=dict)

    def take(self, timeout_ms):
        taken, self.queue[:] = tuple(self.queue), []
        return taken

    def fence(self, transactional_ids):
        if self.fencing_fails:
            self.fencing_fails -= 1
            raise BrokerUnavailableError("no broker answered")
        self.fenced.extend(transactional_ids)

    def read(self, ssps):
        if self.reading_fails:
            self.reading_fails -= 1
            raise BrokerUnavailableError("no broker answered")
        self.positions_reads += 1
        return PositionsRead(
            checkpoints=dict(self.checkpoints),
            progress=dict(self.progress),
            bounds={ssp: self.bounds.get(ssp, Bounds(0, 100)) for ssp in ssps},
        )

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
            ),
            clock=self.clock,
            commands=self,
            fencing=self,
            positions=self,
            processes=self,
        )

"""The real container in memory, in a thread that works only while it has its turn."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from samzapy.adapters.web.client import HeartbeatAnswer
from samzapy.adapters.web.heartbeat_sender import HeartbeatThread, Leader
from samzapy.config import JobConfig
from samzapy.container.ports import ContainerIdentity, ContainerPorts, TopicBounds
from samzapy.container.service import ContainerService
from samzapy.container.task.so_far import SoFar
from samzapy.errors import SamzapyError
from samzapy.model.container import driver_transactional_id, slot_transactional_id
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.ssp import SystemStreamPartition
from samzapy.model.topics import checkpoint_topic
from samzapy.stream.log import LogRecord
from samzapy.stream.records import FORMAT_LEVEL
from samzapy.task import TaskFactory
from samzapy.testing.memory.coordinator import MemoryCoordinator
from samzapy.testing.memory.driver import StopFlag
from samzapy.testing.memory.kafka import MemoryKafka, MemoryProducer
from samzapy.testing.memory.local_state import MemoryStateDirectory
from samzapy.testing.memory.process import Crash, CrashAt, Trace
from samzapy.testing.memory.query import MemoryQuery
from samzapy.testing.memory.slot import MemorySlot
from samzapy.testing.memory.topics import MemoryChangelogFollower, MemoryTopics
from samzapy.testing.memory_log import MemoryTopic
from samzapy.testing.virtual_clock import VirtualClock

_HEARTBEAT_EVERY_MS = 1000
_LEASE_MS = 10**18
"""Longer than any test: virtual time may pass by years between two heartbeats."""


class Turns:
    """A thread and its caller, of which one works at a time."""

    def __init__(self, work: Any) -> None:
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._run, name="container", daemon=True)
        self._must_die = False
        self.error: BaseException | None = None
        self.is_over = False
        self._thread.start()

    def give(self) -> None:
        """Let the thread work until it gives its turn back, or ends."""
        if not self.is_over:
            self._mine.release()
            self._theirs.acquire()

    def give_back(self) -> None:
        """Called by the thread. Raises Crash in a process that was killed."""
        self._theirs.release()
        self._mine.acquire()
        if self._must_die:
            raise Crash("the process was killed")

    def kill(self) -> None:
        self._must_die = True
        self.give()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            if not self._must_die:
                self._work()
        except BaseException as error:  # Whoever has the other turn looks at it.
            self.error = error
        self.is_over = True
        self._theirs.release()


class MemoryContainer:
    """One execution: the real service, its query, and its ports.

    Attributes:
        wakes_at_ms: when it wants its next turn.
    """

    def __init__(
        self,
        config: JobConfig,
        new_task: TaskFactory,
        number: int,
        kafka: MemoryKafka,
        coordinator: MemoryCoordinator,
        clock: VirtualClock,
        disks: dict[str, MemoryStateDirectory],
        crash_points: CrashAt,
    ) -> None:
        execution_id = ExecutionId(f"0-{number:08x}")
        self.number = number
        self.wakes_at_ms = clock.monotonic_ms()
        self._clock = clock
        self._disks = disks
        self._crash_points = crash_points
        self._stop = StopFlag()
        of_slot = slot_transactional_id(config.job, execution_id, 0)
        self._slot = MemorySlot(kafka, of_slot, crash_points=crash_points, now_ms=clock.wall_ms)
        self.query = MemoryQuery(kafka, new_task, self._slot, self._state_of, clock, crash_points, self._pause)
        self._heartbeats = _heartbeats(config, execution_id, number, coordinator, clock)
        self._beats_at_ms = clock.monotonic_ms()
        identity = ContainerIdentity(
            execution_id=execution_id, slot_count=1, job_file=new_task.declared.place, scratch_dir=""
        )
        ports = ContainerPorts(
            clock=clock,
            stream=_Stream(coordinator.stream),
            topics=_Topics(kafka, config),
            changelog_follower=MemoryChangelogFollower(kafka, config),
            slots=_Slots(self._slot, self.query),
            fence=_Fence(kafka),
            progress=_Progress(kafka, config, driver_transactional_id(config.job, execution_id)),
            query=self.query,
            heartbeats=self._heartbeats,
            stop=self._stop,
            crash_points=crash_points,
            state_of=self._state_of,
            tasks_here=lambda: [TaskName(name) for name, disk in sorted(disks.items()) if disk.number],
            pause=self._pause,
        )
        service = ContainerService(config, identity, ports)
        self._turns = Turns(service.run)

    @property
    def is_over(self) -> bool:
        return self._turns.is_over

    @property
    def has_crashed(self) -> bool:
        """Whether a crash point ended the whole process, as in a restore."""
        return isinstance(self._turns.error, Crash)

    @property
    def error(self) -> SamzapyError | None:
        """The error that ended it, as the process would report it."""
        error = self._turns.error
        if error is None or isinstance(error, SamzapyError | Crash):
            return error if isinstance(error, SamzapyError) else None
        raise error

    def turn(self) -> None:
        """Let it work until it waits, and send a heartbeat if one is due."""
        if self._clock.monotonic_ms() >= self.wakes_at_ms:
            self._turns.give()
        if not self.is_over and self._clock.monotonic_ms() >= self._beats_at_ms:
            self.beat()

    def beat(self) -> None:
        """Send a heartbeat now."""
        self._beats_at_ms = self._clock.monotonic_ms() + _HEARTBEAT_EVERY_MS
        self._heartbeats.send_now(0)

    def ask_to_stop(self) -> None:
        """As SIGTERM does."""
        self._stop.asked = True

    def kill(self) -> None:
        """As SIGKILL does, to the driver and its worker."""
        self.query.kill_worker()
        self._turns.kill()

    def _pause(self, ms: int) -> None:
        self.wakes_at_ms = self._clock.monotonic_ms() + ms
        self._turns.give_back()

    def _state_of(self, name: str) -> MemoryStateDirectory:
        disk = self._disks.setdefault(name, MemoryStateDirectory(name))
        disk.crash_points = self._crash_points
        return disk


def _heartbeats(
    config: JobConfig, execution_id: ExecutionId, pid: int, coordinator: MemoryCoordinator, clock: VirtualClock
) -> HeartbeatThread:
    """The real sender, whose thread is not started."""
    identity = {
        "job": config.job,
        "executionId": execution_id,
        "processorId": "0",
        "host": "host",
        "bootId": "boot",
        "pid": pid,
        "processStartedMs": pid,
        "slotCount": 1,
        "formatLevel": FORMAT_LEVEL,
    }
    sender = HeartbeatThread(
        _Client(coordinator),  # type: ignore[arg-type]
        identity=identity,
        interval_ms=config.heartbeat_ms,
        lease_ms=_LEASE_MS,
        on_alive=lambda _: None,
        now_s=lambda: clock.monotonic_ms() / 1000,
    )
    sender._newest.replace(Leader(0, "memory"))
    return sender


class _Client:
    def __init__(self, coordinator: MemoryCoordinator) -> None:
        self._coordinator = coordinator

    def heartbeat(self, url: str, body: Mapping[str, object], timeout_ms: int) -> HeartbeatAnswer | None:
        return self._coordinator.heartbeat(json.dumps(body).encode())


class _Stream:
    """The coordinator stream (`container.ports.CoordinatorStream`)."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        self._offset_next = 0

    def poll(self) -> Sequence[LogRecord]:
        records, self._offset_next = self._topic.read_stable(self._offset_next)
        return records

    def to_the_end(self) -> Sequence[LogRecord]:
        return self.poll()

    def offset_next(self) -> int:
        return self._offset_next

    def silent_ms(self) -> int:
        return 0


class _Topics(MemoryTopics):
    """Topics whose inputs grow."""

    def __init__(self, kafka: MemoryKafka, config: JobConfig) -> None:
        super().__init__(kafka, config)
        self._of = kafka

    def input_bounds(
        self, ssps: Sequence[SystemStreamPartition], wait_ms: int
    ) -> Mapping[SystemStreamPartition, TopicBounds]:
        return {
            ssp: TopicBounds(offset_first=0, offset_end=self._of.offset_stable(ssp.stream, ssp.partition))
            for ssp in ssps
        }


class _Slots:
    """The only slot, from the driver's side (`container.ports.Slots`)."""

    def __init__(self, slot: MemorySlot, query: MemoryQuery) -> None:
        self._slot = slot
        self._query = query

    def take_all(self, wait_ms: int) -> Sequence[int]:
        return [0] if self._slot.state == "open" else []

    def block(self, query_number: int) -> None:
        """The worker ends with its query."""

    def in_hand(self, slots: Sequence[int], query_number: int) -> Sequence[tuple[int, int]]:
        return self._slot.notes[-1:] if slots else []

    def slow_messages(self, query_number: int) -> Sequence[tuple[int, int, int]]:
        return []

    def so_far(self, query_number: int) -> Sequence[SoFar]:
        return []

    def renew(self, slots: Sequence[int]) -> None:
        for _ in slots:
            self._slot.renew()

    def admit(self, query_number: int) -> None:
        """The worker begins with its query."""

    def close_tasks(self, wait_ms: int) -> None:
        """They were closed when the query stopped."""

    def kill_holders(self) -> None:
        self._query.kill_worker()


class _Fence:
    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            self._kafka.init(transactional_id)


class _Progress:
    """Writes progress in transactions of its own (`container.ports.ProgressLog`)."""

    def __init__(self, kafka: MemoryKafka, config: JobConfig, transactional_id: str) -> None:
        self._kafka = kafka
        self._config = config
        self._transactional_id = transactional_id
        self._producer: MemoryProducer | None = None

    def is_acquired(self) -> bool:
        return self._producer is not None

    def serve(self) -> None:
        """There are no callbacks."""

    def acquire(self) -> None:
        self._producer = MemoryProducer(self._kafka, self._transactional_id, Trace(), CrashAt())

    def append(self, writes: Collection[tuple[bytes, bytes | None]]) -> None:
        self.write(checkpoint_topic(self._config.job), 0, writes)

    def write(self, topic: str, partition: int, writes: Collection[tuple[bytes, bytes | None]]) -> None:
        assert self._producer is not None, "acquire comes first"
        self._producer.begin()
        for key, value in writes:
            self._producer.produce(topic, key, value, partition)
        self._producer.commit()

    def close(self) -> None:
        self._producer = None

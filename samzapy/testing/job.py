"""A whole job in memory, without Spark, Kafka and Java.

Coordinator, container and tasks are the real ones.

```python
from samzapy.testing.job import MemoryJob


def test_counts_survive_a_crash_and_a_change_of_the_factor():
    with MemoryJob("counts.py") as job:
        job.send("views", {"page": "/"}, key="a")
        job.crash("after-kafka-commit")
        job.send("views", {"page": "/"}, key="a")
        job.scale(4)
        job.advance(minutes=1)

        assert [2] == [message.value for message in job.read("counts")]
        assert {"a": 2} == job.state("seen")
```

Topics, local state and time are in memory. Messages are handled when the job is asked for something. The time that
tasks see stands still but for `advance`, also while the job recovers; a timer fires at its very moment. There are no
tails, unless `MemoryJob.pace` asks for them.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from samzapy.config import JobConfig
from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.outputs import header_pairs
from samzapy.container.task.work_plan import NO_TIMER
from samzapy.coordinator.commands import InputFound, OwnTopicFound, SubmitJob
from samzapy.declared_task import Declared
from samzapy.errors import ConfigError, SamzapyError, TaskError
from samzapy.model.placement import (
    Action,
    ContainerPlacementRequestMessage,
    StatusCode,
    rewind_arguments,
)
from samzapy.model.ssp import SystemStream
from samzapy.model.topics import changelog_topic, checkpoint_topic, coordinator_topic
from samzapy.plan.elasticity import key_bucket
from samzapy.runtime.job_config import load_job
from samzapy.stream.keys import KeyForm
from samzapy.stream.placement import Encoding, Place, encode_message
from samzapy.streams import HeadersToSend
from samzapy.task import TaskFactory
from samzapy.testing.memory.container import MemoryContainer
from samzapy.testing.memory.coordinator import MemoryCoordinator
from samzapy.testing.memory.kafka import MemoryKafka
from samzapy.testing.memory.local_state import MemoryStateDirectory
from samzapy.testing.memory.process import CrashAt
from samzapy.testing.memory.tail import Pace
from samzapy.testing.memory_log import MemoryLog
from samzapy.testing.task_kit import OutputMessage, Sent, entries_of, output_of, value_encoder
from samzapy.testing.virtual_clock import VirtualClock

CRASH_POINTS: Final = (
    "before-begin",
    "after-produce",
    "before-commit",
    "kafka-commit",
    "after-kafka-commit",
    "local-commit",
    "after-local-commit",
)
"""Where `MemoryJob.crash` can end a worker: between any two effects of its transactions."""
TIMER_CRASH_POINTS: Final = ("before-fire", "in-the-middle-of-due", "after-fire")
"""The same, for a worker that fires timers."""
DRIVER: Final = "driver"
"""Ends the whole container at once."""
_STEP_MS = 200
_BOOTED_LATER_MS = 10**9
_ROUNDS_MAX = 20_000
_FIRINGS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message for `crash_anywhere`.

    Attributes:
        stream: empty for the first input.
        ahead_ms: how far the record's time is ahead of the present; below 0, how far it is behind.
    """

    key: Any
    value: Any
    stream: str = ""
    ahead_ms: int = 0


class MemoryJob:
    """A job and its world. As a context manager it is stopped at the end.

    Args:
        job_file: as for `samzapy run`.
        factor: the elasticity factor to begin with.
        partitions: of each input.
        config_file: the properties file; by default the one beside the job file.
        settings: configuration keys that replace those of the file.

    Raises:
        ConfigError, TaskModuleError: as `samzapy run`.

    Attributes:
        declared: the declarations of the job's task.
        pace: how much is handled at once.
    """

    def __init__(
        self,
        job_file: str | os.PathLike[str],
        *,
        factor: int = 1,
        partitions: int = 4,
        config_file: str | os.PathLike[str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        given = {
            "job.elasticity.factor": str(factor),
            "task.timer.resolution.ms": "1",
            "job.coordinator.monitor-partition-change.frequency.ms": "0",
            **(settings or {}),
        }
        overrides = [f"{key}={value}" for key, value in given.items()]
        config_path = None if config_file is None else Path(config_file)
        self._config, self._new_task = load_job(Path(job_file).absolute(), config_path, overrides, {})
        if self._config.intermediates or self._config.input_patterns:
            raise ConfigError("wanted a job without intermediate streams and patterns, which are not in memory yet")
        self.declared: Declared = self._new_task.declared
        self._partitions = partitions
        self._world = _World(_submission(self._config, partitions), self._new_task)
        self._clock, self._kafka, self.pace = self._world.clock, self._world.kafka, self._world.pace
        self._world.start()
        # Before the first message, which a job with offset.default=upcoming would pass over.
        self.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the job where it is."""
        self._world.container.kill()

    # --- messages ---

    def send(
        self,
        stream: str,
        value: Any,
        key: Any = None,
        *,
        timestamp_ms: int | None = None,
        ahead_ms: int = 0,
        headers: HeadersToSend = (),
    ) -> None:
        """Put a message on an input.

        Args:
            stream: `system.stream`, or a topic of the job's default system; empty for the first input.
            value, key: encoded with the serdes of the input; a dict stands for a Struct, too.
            timestamp_ms: the record's time; the present by default.
            ahead_ms: how much later the record's time is; below 0, how much earlier.
            headers: a mapping, or pairs in order.

        Raises:
            TaskError: the job has no such input, or the headers are not of text to bytes.
        """
        qualified = self._config.qualified(stream or self._config.inputs[0])
        if qualified not in self._config.streams_read:
            inputs = ", ".join(self._config.streams_read)
            raise TaskError(f"wanted an input of the job ({inputs}), found {stream!r}")
        declared = self._new_task.declared
        pairs = header_pairs("message of", qualified, headers)
        raw_key = declared.stream_serdes(qualified, self._config)[0].encode(key)
        raw_value = value_encoder(declared, qualified, self._config)(value)
        partition = key_bucket(raw_key, 0, 256) % self._partitions
        topic = SystemStream.parse(qualified).stream
        at_ms = self._clock.wall_ms() if timestamp_ms is None else timestamp_ms
        self._kafka.write(topic, partition, [(raw_key, raw_value)], headers=pairs, timestamp_ms=at_ms + ahead_ms)
        if len(self._config.streams_read) > 1:
            # Between inputs there is no order but that of arrival.
            self.settle()

    def read(self, stream: str) -> list[OutputMessage]:
        """All committed messages of an output, once the job has handled all inputs.

        Those of several partitions are in the order in which they were sent.
        """
        self.settle()
        topic = SystemStream.parse(self._config.qualified(stream)).stream
        declared = self._new_task.declared
        return [
            output_of(
                self._config,
                declared,
                Sent(topic, record.key, record.value, partition, record.headers, record.timestamp_ms),
            )
            for partition, record in self._kafka.committed_of_all(topic)
        ]

    def state(self, store: str) -> Mapping[Any, Any]:
        """The entries of a store by key, as `TaskRun.state`.

        The job handles all inputs first.

        Raises:
            TaskError: the job declares no such store.
        """
        self.settle()
        topic = changelog_topic(self._config.job, store)
        latest: dict[bytes, bytes | None] = {}
        for partition in range(_changelog_partitions(self._config, self._partitions)):
            for record in self._kafka.committed(topic, partition):
                latest[record.key or b""] = record.value
        entries = {key: value for key, value in latest.items() if value is not None}
        return entries_of(self._config, self._new_task.declared, store, entries)

    def dead_letters(self) -> list[OutputMessage]:
        """The dead letters of messages and timers, as `read` of the dead letter output.

        Those of windows, ends of streams and broadcast inputs are left out: each task sends its own. Empty under
        another error policy.
        """
        stream = self._config.dead_letter_output
        if stream is None:
            return []
        broadcast = {item.system_stream for item in self._config.broadcast_inputs}
        return [letter for letter in self.read(stream) if not _is_of_task(letter, broadcast)]

    def outputs(self) -> Sequence[str]:
        """The declared outputs, and all others that the job has sent messages to.

        The dead letter output is not among them. The job handles all inputs first.
        """
        self.settle()
        declared = dict.fromkeys(stream.name for stream in self._new_task.declared.outputs)
        system = SystemStream.parse(self._config.inputs[0]).system
        sent = [f"{system}.{topic}" for topic in sorted(self._kafka.topics() - {*_own_topics(self._config)})]
        others = dict.fromkeys(stream for stream in sent if stream not in self._config.streams_read)
        return [stream for stream in declared | others if stream != self._config.dead_letter_output]

    def stores(self, *scopes: str) -> Sequence[str]:
        """The stores of the job, with that of its timers.

        `scopes`: those of these scopes only.
        """
        return [store.name for store in self._config.stores if not scopes or store.scope in scopes]

    # --- time ---

    def settle(self) -> None:
        """Let the job handle everything that is there.

        Raises:
            SamzapyError: the job has ended with an error.
        """
        self._world.until(self._is_settled, "the job to handle all messages")

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let so much time pass, in which timers fire and state expires."""
        self.settle()
        end_ms = self._clock.wall_ms() + round(1000 * (seconds + 60 * minutes + 3600 * hours + 86_400 * days))
        while (now_ms := self._clock.wall_ms()) < end_ms:
            due_ms = self._world.container.query.due_ms()
            self._clock.jump_wall((end_ms if due_ms == NO_TIMER else min(due_ms, end_ms)) - now_ms)
            self.settle()

    def fire_event_timers(self) -> None:
        """Let so much time pass that every timer in event time fires that is set now.

        Entries that expire in event time are removed, too.

        Raises:
            SamzapyError: there are always others.
        """
        self.settle()
        for _ in range(_FIRINGS_MAX):
            due_ms = self._world.container.query.due_when_quiet_ms()
            if due_ms in (NO_TIMER, FAR_MS):
                return
            self.advance(seconds=max(0, due_ms - self._clock.boot_ms()) / 1000)
        raise SamzapyError(f"wanted no timer in event time any more after {_FIRINGS_MAX}, found others")

    def jump_clock(self, *, seconds: float = 0, hours: float = 0) -> None:
        """Set the host's clock forward, or back if below 0.

        An administrator or NTP does so. No time passes. Timers in processing time and windows go by this clock, event
        time does not.
        """
        self.settle()
        self._clock.set_ahead(round(1000 * (seconds + 3600 * hours)))
        self.settle()

    # --- operators and faults ---

    def scale(self, factor: int) -> None:
        """Change the elasticity factor, as `samzapy job scale` does.

        Raises:
            ConfigError: the request was refused; says why.
        """
        self._ask(Action.SCALE, {"factor": str(factor)})

    def rewind(self, stream: str, to: str) -> None:
        """Move the positions of an input, as `samzapy job rewind` does.

        Args:
            stream: as of `send`.
            to: `oldest`, `newest`, an offset or a time.

        Raises:
            ConfigError: as `scale`.
        """
        try:
            arguments = rewind_arguments(self._config.qualified(stream or self._config.inputs[0]), to)
        except ValueError as error:
            raise ConfigError(f"rewind: {error}") from error
        self._ask(Action.REWIND, arguments)

    def restart(self) -> None:
        """Stop the container in good order, and start another one."""
        self.settle()
        self._world.restart()
        self.settle()

    def move(self) -> None:
        """Stop the container in good order, and start one on the other of two hosts.

        Its local state there is what the last container left, which may be none. It has another clock since its boot.
        """
        self.settle()
        self._world.restart(moves=True)
        self.settle()

    def crash(self, at: str = DRIVER, *, hit: int = 1, loses_disk: bool = False) -> None:
        """Let the job crash.

        Args:
            at: one of `CRASH_POINTS` or `TIMER_CRASH_POINTS`: a worker ends when it comes there, which may be later;
                or `driver`: the whole container ends now, and another one starts.
            hit: at which time that a worker comes there.
            loses_disk: whether local state is gone, too; only with `driver`.
        """
        if at != DRIVER:
            if at not in (*CRASH_POINTS, *TIMER_CRASH_POINTS):
                names = ", ".join((DRIVER, *CRASH_POINTS, *TIMER_CRASH_POINTS))
                raise ConfigError(f"wanted a place to crash at ({names}), found {at!r}")
            self._world.crash_points.arm(at, hit)
            return
        self._world.container.kill()
        if loses_disk:
            self._world.disks.clear()
        self._world.start()

    @property
    def crashes(self) -> int:
        """How often a worker has crashed."""
        return self._world.crash_points.fired

    def _is_settled(self) -> bool:
        state = self._world.coordinator.state
        if state.requests or state.generation is None:
            return False
        return self._world.container.query.is_level(self._places())

    def _places(self) -> Iterable[tuple[str, int]]:
        streams = [SystemStream.parse(stream).stream for stream in self._config.streams_read]
        return [(stream, number) for stream in streams for number in range(self._partitions)]

    def _ask(self, action: Action, arguments: Mapping[str, str]) -> None:
        world, coordinator = self._world, self._world.coordinator
        world.until(lambda: coordinator.state.generation is not None, "the first plan")
        run = coordinator.state.run
        assert run is not None
        message = ContainerPlacementRequestMessage(
            uuid=uuid.uuid4(),
            deployment_id=run.run_id,
            processor_id="",
            destination_host="ANY_HOST",
            timestamp_ms=self._clock.wall_ms(),
            action=action,
            arguments=arguments,
            request_expiry=None,
        )
        place = Place(namespace=action.namespace, key_form=KeyForm.TEXT, encoding=Encoding.JSON)
        log = MemoryLog(coordinator.placement, "operator")
        log.take_over()
        try:
            log.append_atomically([encode_message(message, place)])
        except ValueError as error:
            raise ConfigError(f"{action}: {error}") from error
        world.until(lambda: self._is_answered(str(message.uuid)), f"an answer to {action}")
        memory = coordinator.state.request_memory[str(message.uuid)]
        if memory.status_code is not StatusCode.SUCCEEDED:
            raise ConfigError(f"{action}: wanted it to succeed, found {memory.status_code}")
        self.settle()

    def _is_answered(self, request: str) -> bool:
        state = self._world.coordinator.state
        return request in state.request_memory and request not in state.requests


class _Clock(VirtualClock):
    """Time as tasks see it, which stands still while the job works."""

    def __init__(self) -> None:
        super().__init__()
        self._booted_ms = 0

    def boot_ms(self) -> int:
        return self.wall_ms() - self._booted_ms

    def set_ahead(self, ms: int) -> None:
        """Set the clock of the host forward; below 0, back."""
        self.jump_wall(ms)
        self._booted_ms += ms

    def change_host(self, ms: int) -> None:
        """Go on with the clock of a host that was booted so much later; below 0, earlier."""
        self._booted_ms += ms


class _CrashPoints(CrashAt):
    """Crash points of all workers of a job; one at a time is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.fired = 0

    def arm(self, name: str, hit: int) -> None:
        self._name, self._at_hit = name, self.hits[name] + hit

    def hit(self, name: str) -> None:
        try:
            super().hit(name)
        except BaseException:
            self.fired += 1
            raise


class _World:
    """The surroundings of a job, its coordinator and its container, which take turns.

    Attributes:
        disks: by task, its local state on the present host, which outlives containers.
        pace: of all containers.
        container: the one that was started last.
    """

    container: MemoryContainer

    def __init__(self, submission: SubmitJob, new_task: TaskFactory) -> None:
        self.clock = _Clock()
        self.kafka = MemoryKafka()
        self.disks: dict[str, MemoryStateDirectory] = {}
        self._disks_elsewhere: dict[str, MemoryStateDirectory] = {}
        self._booted_later_ms = _BOOTED_LATER_MS
        self.crash_points = _CrashPoints()
        self.pace = Pace()
        self._config, self._new_task = submission.config, new_task
        self._executions = 0
        self.coordinator = MemoryCoordinator(submission, self.kafka, self.clock, self._is_alive)

    def restart(self, *, moves: bool = False) -> None:
        """Stop the container in good order, and start another one.

        `moves`: on the other host.
        """
        self.container.ask_to_stop()
        self.until(lambda: self.container.is_over, "the container to stop")
        if moves:
            self._change_host()
        self.start()

    def _change_host(self) -> None:
        self.disks, self._disks_elsewhere = self._disks_elsewhere, self.disks
        self.clock.change_host(self._booted_later_ms)
        self._booted_later_ms *= -1

    def start(self) -> None:
        """Start another container."""
        self._executions += 1
        self.container = MemoryContainer(
            self._config,
            self._new_task,
            self._executions,
            self.kafka,
            self.coordinator,
            self.clock,
            self.disks,
            self.crash_points,
        )
        self.container.query.pace = self.pace

    def until(self, condition: Callable[[], bool], wanted: str) -> None:
        """Let coordinator and container work until a condition holds.

        Raises:
            SamzapyError: it does not within the time, or the job has ended with an error.
        """
        for _ in range(_ROUNDS_MAX):
            if condition():
                return
            self._step(_STEP_MS)
        raise SamzapyError(f"wanted {wanted}, found that it does not within {_ROUNDS_MAX * _STEP_MS // 1000} s")

    def _step(self, ms: int) -> None:
        self.clock.advance(ms)
        # For tasks no time has passed.
        self.clock.jump_wall(-ms)
        self.coordinator.round()
        self.container.turn()
        if self.container.is_over and (error := self.container.error) is not None:
            raise error
        if self.container.has_crashed:
            # As a supervisor does.
            self.start()

    def _is_alive(self, pid: int) -> bool:
        return self._executions > 0 and pid == self.container.number and not self.container.is_over


def _changelog_partitions(config: JobConfig, partitions: int) -> int:
    return max(1, partitions * len(config.streams_divided))


def _own_topics(config: JobConfig, changelog_partitions: int = 1) -> Mapping[str, int]:
    """The topics of the job itself, each with its number of partitions."""
    changelogs = [changelog_topic(config.job, store.name) for store in config.stores]
    ones = dict.fromkeys((coordinator_topic(config.job), checkpoint_topic(config.job)), 1)
    return {**ones, **dict.fromkeys(changelogs, changelog_partitions)}


def _is_of_task(letter: OutputMessage, broadcast: Collection[str]) -> bool:
    """Whether each task sends such a dead letter.

    The number of these depends on the factor.
    """
    # The second header names what failed. A message's own headers come last.
    name, content = letter.headers[1] if len(letter.headers) > 1 else ("", None)
    if name == "ssp" and content is not None:
        return content.decode().rpartition(".")[0] in broadcast
    return name in ("window", "end_of_stream")


def _submission(config: JobConfig, partitions: int) -> SubmitJob:
    own = _own_topics(config, _changelog_partitions(config, partitions))
    return SubmitJob(
        config=config,
        inputs=tuple(
            InputFound(
                system_stream=SystemStream.parse(stream), partition_count=partitions, topic_id=f"id-of-{stream}"
            )
            for stream in config.streams_read
        ),
        own_topics=tuple(
            OwnTopicFound(name=name, topic_id=f"id-of-{name}", partition_count=number) for name, number in own.items()
        ),
        cause="submit",
        actor="test",
    )

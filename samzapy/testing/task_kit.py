"""Run a job's task on messages in memory, without Spark and Kafka.

It is for tests of your own task.

```python
from samzapy.testing.task_kit import run_task


def test_flights_are_counted_by_aircraft():
    run = run_task("flights.py", [("N14228", {"delay": 4}), ("N14228", {"delay": 7})])

    assert [1, 2] == [output.value for output in run.outputs]
    assert {"N14228": 2} == run.state("counts")
```

The job file and its properties are loaded as `samzapy run` loads them, and the same code calls the task as in a Spark
worker: serdes, error policy, dead letters and stores are the real ones. Tasks, partitions and transactions are not
shown here; run the job on `samzapy dev up` for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from samzapy.adapters.host.threads import HostThreads
from samzapy.config import JobConfig
from samzapy.container.task.clocks import FAR_MS
from samzapy.container.task.outputs import header_pairs
from samzapy.container.task.ports import Headers, LocalPosition
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import NO_TIMER, Report, Route, Rows, WorkPlan
from samzapy.declared_task import Declared
from samzapy.errors import ConfigError, TaskError
from samzapy.model.job import ExecutionId, TaskName
from samzapy.model.serde import SerdeError, Structured, ordered_of, serde_of
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.store_size import StoreSize
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.runtime.job_config import load_job
from samzapy.stream.changelog import split_changelog_key, split_task_entry_key
from samzapy.streams import HeadersToSend
from samzapy.task import TaskFactory
from samzapy.testing.memory.local_state import owners_of, scanned, timers_due

_PARTITION_COUNT = 4
_BATCH_BYTES_MAX = 1_048_588


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMessage:
    """A message for the task; a pair `(key, value)` stands for one of the first input.

    `key` and `value` are encoded with the serdes of the input; a dict stands for a Struct, too. `stream` is
    `system.stream`, or a topic of the job's default system; empty for the first input. `timestamp_ms` is the record's
    time; the present on the run's clock if not given. That clock, of timers and of `ttl`, goes on by `after_ms` before
    the message; it stands still at other times.
    """

    key: Any
    value: Any
    stream: str = ""
    headers: HeadersToSend = ()
    timestamp_ms: int | None = None
    after_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputMessage:
    """A message that the task sent, decoded with the serdes of the output.

    A dead letter's value is bytes. `partition` is the one that the task named; None if it left the choice to Kafka.
    """

    topic: str
    key: Any
    value: Any
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """The committed effects of a run: `outputs` in the order in which they were sent."""

    outputs: tuple[OutputMessage, ...]
    _config: JobConfig
    _declared: Declared
    _entries: Mapping[str, Mapping[bytes, bytes]]

    def sent_to(self, topic: str) -> tuple[OutputMessage, ...]:
        """The outputs of one topic."""
        return tuple(output for output in self.outputs if output.topic == topic)

    def state(self, store: str) -> Mapping[Any, Any]:
        """The entries of a store by the key of the messages that they belong to.

        An entry that was put under a name stands under `(key, name)`. A map or list of a key is a dict by sub-key, or
        by number. Keys are text where they are UTF-8, else bytes. In a store of the scope `task` or `broadcast` the
        name of the task takes the place of the key.

        Raises:
            TaskError: the job declares no such store.
        """
        return entries_of(self._config, self._declared, store, self._entries.get(store, {}))


def entries_of(config: JobConfig, declared: Declared, name: str, stored: Mapping[bytes, bytes]) -> Mapping[Any, Any]:
    """The entries of a store, given by changelog key, as `TaskRun.state` shows them.

    Raises:
        TaskError: the job declares no such store.
    """
    stores = {store.name: store for store in config.stores}
    if name not in stores:
        raise TaskError(
            f"wanted a store of the job ({', '.join(stores) or 'it has none'}), found {name!r}; declare it with "
            f"stores.{name}.msg.serde"
        )
    store = stores[name]
    decode = declared.store_serde(store).decode
    name_decode = (ordered_of if store.is_ordered else serde_of)(store.key_serde).decode
    entries: dict[Any, Any] = {}
    for entry, value in sorted(stored.items()):
        split = split_changelog_key(entry) if store.scope == "key" else split_task_entry_key(entry)
        if split is None:
            # A mark of a copy, which is no entry.
            continue
        owner, sub_key = split
        shown = owner if isinstance(owner, str) else _shown(owner)
        if store.is_ordered:
            entries.setdefault(shown, {})[name_decode(sub_key)] = decode(value)
        else:
            entries[(shown, name_decode(sub_key)) if sub_key else shown] = decode(value)
    return entries


def run_task(
    job_file: str | os.PathLike[str],
    messages: Iterable[InputMessage | tuple[Any, Any]],
    *,
    config_file: str | os.PathLike[str] | None = None,
    settings: Mapping[str, str] | None = None,
    advance_ms: int = 0,
) -> TaskRun:
    """Hand messages to the task of a job file, one after the other.

    Returns the messages that it sent and its stores.

    Args:
        config_file: the properties file; by default the one beside the job file.
        settings: configuration keys that replace those of the file.
        advance_ms: by how much the clock of timers goes on after the messages. Each timer fires at its moment. The
            inputs of a bounded job end then.

    Raises:
        ConfigError: the configuration is wrong.
        TaskModuleError: the job file does not import, or marks no task.
        TaskError: a message failed, and the error policy is `fail`; names offset and key. Or a message is none, or
            sets the clock back.
    """
    if advance_ms < 0:
        raise TaskError(f"wanted an advance_ms of 0 or more, because the clock of a run goes on, found {advance_ms}")
    path = Path(job_file).absolute()
    config, new_task = _loaded(path, config_file, settings)
    declared = new_task.declared
    plan = _plan(config, path)
    producer, state = _Producer(config), _State(plan)
    clock = _Clock(time.time_ns() // 1_000_000)
    runner = _runner(plan, new_task, state, clock)
    try:
        feed = _Feed(plan, declared, clock)
        for after_ms, run in feed.runs(messages):
            _pass(runner, producer, clock, after_ms)
            _check(runner.run(run, producer))
        _pass(runner, producer, clock, advance_ms)
        if config.is_bounded_job:
            runner.covered(dict.fromkeys(runner.routes, FAR_MS))
            _check(runner.run((), producer))
    finally:
        runner.close()
    outputs = tuple(output_of(config, declared, sent) for sent in producer.sent)
    return TaskRun(outputs=outputs, _config=config, _declared=declared, _entries=state.entries)


@dataclass(slots=True)
class _Clock:
    now_ms: int


def _loaded(
    job_file: Path, config_file: str | os.PathLike[str] | None, settings: Mapping[str, str] | None
) -> tuple[JobConfig, TaskFactory]:
    overrides = [f"{key}={value}" for key, value in (settings or {}).items()]
    config, new_task = load_job(job_file, None if config_file is None else Path(config_file), overrides, {})
    if config.input_patterns:
        raise ConfigError(
            f"task.inputs: wanted topics by name, found the pattern {', '.join(config.input_patterns)}, which is not "
            'in memory yet; name the topics in settings={"task.inputs": "..."}'
        )
    return config, new_task


def _runner(plan: WorkPlan, new_task: TaskFactory, state: _State, clock: _Clock) -> TaskRunner:
    return TaskRunner(
        plan=plan,
        routes=range(len(plan.routes)),
        new_task=new_task,
        environment=state,
        limits=TransactionLimits(
            duration_max_s=3600.0,
            bytes_max=1 << 30,
            now_s=time.monotonic,
            wall_ms=lambda: clock.now_ms,
            boot_ms=lambda: clock.now_ms,
        ),
        crash_points=_NoCrashPoints(),
        is_interrupted=lambda: False,
        threads=HostThreads(),
    )


def _pass(runner: TaskRunner, producer: _Producer, clock: _Clock, ms: int) -> None:
    """Let time pass; each timer that is due meanwhile fires at its moment.

    All messages are handled, so the inputs are covered.
    """
    end_ms = clock.now_ms + ms
    while (due_ms := _next_ms(runner)) is not None and due_ms <= end_ms:
        clock.now_ms = max(clock.now_ms, due_ms)
        runner.covered(dict.fromkeys(runner.routes, clock.now_ms))
        _check(runner.run((), producer))
        runner.covered({})
    clock.now_ms = end_ms


def _next_ms(runner: TaskRunner) -> int | None:
    due = [due_ms for due_ms in (runner.due_ms(), runner.due_when_quiet_ms()) if due_ms != NO_TIMER]
    return min(due, default=None)


def _check(reports: Sequence[Report]) -> None:
    for report in reports:
        if report.error:
            raise TaskError(report.error)


def _plan(config: JobConfig, job_file: Path) -> WorkPlan:
    task_name = TaskName("Partition 0")
    broadcast = {item.system_stream for item in config.broadcast_inputs}
    return WorkPlan(
        config=config,
        execution_id=ExecutionId("test"),
        query_number=1,
        routes=tuple(
            Route(
                ssp_kb=SspKeyBucket.parse(f"{stream}.0@{task_name}" if stream in broadcast else f"{stream}.0:0/1"),
                task_name=task_name,
                partition_id=0,
                epoch=1,
                changelog_partition=0,
                environment_dir="",
            )
            for stream in config.streams_read
        ),
        job_file=str(job_file),
        scratch_dir="",
        slot_count=1,
        stream_offset=0,
        batch_offsets_max=1 << 30,
    )


def value_encoder(declared: Declared, stream: str, config: JobConfig) -> Callable[[Any], bytes | None]:
    """Encodes the values of a stream.

    They may also be given as builtins, which the stream's own serde refuses: a dict for a Struct.
    """
    own, encode = declared.streams.get(stream), declared.stream_serdes(stream, config)[1].encode
    if own is None or not isinstance(own.value, Structured):
        return encode
    encode_builtins = serde_of(own.value.name).encode

    def encode_any(value: Any) -> bytes | None:
        try:
            return encode(value)
        except SerdeError:
            if not isinstance(value, dict | list):
                raise
            return encode_builtins(value)

    return encode_any


def _message(given: InputMessage | tuple[Any, Any]) -> InputMessage:
    if not isinstance(given, InputMessage):
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise TaskError(f"wanted a message as a pair (key, value) or as an InputMessage, found {given!r}")
        return InputMessage(key=given[0], value=given[1])
    if given.after_ms < 0:
        raise TaskError(
            f"wanted an after_ms of 0 or more, because the clock of a run goes on, found {given.after_ms}"
        )
    return given


class _Feed:
    """Messages as rows of a worker; offsets count per input."""

    def __init__(self, plan: WorkPlan, declared: Declared, clock: _Clock) -> None:
        self._config = plan.config
        self._declared = declared
        self._clock = clock
        self._routes = {str(route.ssp_kb.ssp.system_stream): index for index, route in enumerate(plan.routes)}
        self._offsets = dict.fromkeys(self._routes, 0)

    def runs(self, messages: Iterable[InputMessage | tuple[Any, Any]]) -> Iterator[tuple[int, Iterable[Rows]]]:
        """Runs of messages between which no time passes, each with the time before it."""
        run: list[InputMessage] = []
        for given in messages:
            message = _message(given)
            if message.after_ms and run:
                yield run[0].after_ms, self._rows(run)
                run = []
            run.append(message)
        if run:
            yield run[0].after_ms, self._rows(run)

    def _rows(self, messages: Sequence[InputMessage]) -> Iterable[Rows]:
        """Runs of messages of one input."""
        for stream, group in groupby(messages, key=self._stream_of):
            run = list(group)
            key_encode = self._declared.stream_serdes(stream, self._config)[0].encode
            value_encode = value_encoder(self._declared, stream, self._config)
            begin = self._offsets[stream]
            self._offsets[stream] += len(run)
            yield Rows(
                self._routes[stream],
                range(begin, self._offsets[stream]),
                [key_encode(message.key) for message in run],
                [value_encode(message.value) for message in run],
                [self._clock.now_ms if (given := message.timestamp_ms) is None else given for message in run],
                [header_pairs("message of", stream, message.headers) for message in run],
            )

    def _stream_of(self, message: InputMessage) -> str:
        stream = self._config.qualified(message.stream or next(iter(self._routes)))
        if stream not in self._routes:
            raise TaskError(f"wanted an input of the job ({', '.join(self._routes)}), found {message.stream!r}")
        return stream


def output_of(config: JobConfig, declared: Declared, sent: Sent) -> OutputMessage:
    stream = f"{config.default_system}.{sent.topic}"
    is_dead = stream == config.dead_letter_output
    key, value = declared.stream_serdes(stream, config)
    return OutputMessage(
        topic=sent.topic,
        key=sent.key if is_dead else key.decode(sent.key),
        value=sent.value if is_dead else value.decode(sent.value),
        headers=sent.headers,
        partition=sent.partition,
        timestamp_ms=sent.timestamp_ms,
    )


def _shown(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


@dataclass(frozen=True, slots=True)
class Sent:
    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: Headers
    timestamp_ms: int | None


class _Producer:
    """A slot and its transactional producer (`container.task.ports`).

    Committed messages are in `sent`.
    """

    def __init__(self, config: JobConfig) -> None:
        self.sent: list[Sent] = []
        self._open: list[Sent] = []
        stores = [store.name for store in config.stores]
        self._own = {checkpoint_topic(config.job), *(changelog_topic(config.job, name) for name in stores)}

    def producer(self) -> _Producer:
        return self

    def mark_open(self) -> None: ...
    def mark_clean(self) -> None: ...
    def note(self, route: int, offset: int) -> None: ...
    def check_lease(self) -> None: ...
    def begin(self) -> None: ...
    def flush(self) -> None: ...

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None = None,
        headers: Headers | None = None,
        timestamp_ms: int | None = None,
        on_offset: Callable[[int], None] | None = None,
    ) -> None:
        if on_offset is not None:
            on_offset(0)
        if topic not in self._own:
            self._open.append(Sent(topic, key, value, partition, tuple(headers or ()), timestamp_ms))

    def partition_count(self, topic: str) -> int | None:
        return _PARTITION_COUNT

    def topic_limits(self, topic: str) -> TopicLimits | None:
        return TopicLimits(batch_bytes_max=_BATCH_BYTES_MAX)

    def commit(self) -> None:
        self.sent += self._open
        self._open = []

    def abort(self) -> None:
        self._open = []


class _State:
    """A task's local state and its one transaction (`container.task.ports`).

    Ordered stores are written while messages are handled, but a transaction that is aborted ends the run.
    """

    def __init__(self, plan: WorkPlan) -> None:
        stores = [store.name for store in plan.config.stores]
        self.entries: dict[str, dict[bytes, bytes]] = {name: {} for name in stores}
        self._position = LocalPosition(
            execution_id="test",
            epoch=1,
            offsets_next={str(route.ssp_kb): 0 for route in plan.routes},
            changelog_next=dict.fromkeys(stores, 0),
            caught_up_at_ms=0,
            changelog_topic_ids=dict.fromkeys(stores, ""),
        )

    def begin(self) -> _State:
        return self

    def position(self) -> LocalPosition | None:
        return self._position

    def set_position(self, position: LocalPosition) -> None:
        self._position = position

    def get(self, store: str, key: bytes) -> bytes | None:
        return self.entries[store].get(key)

    def scan(
        self, store: str, prefix: bytes, first: bytes, end: bytes | None, *, reverse: bool, count_max: int
    ) -> Sequence[tuple[bytes, bytes]]:
        bounds = (prefix, first, end)
        return scanned(self.entries[store].items(), bounds, reverse=reverse, count_max=count_max)

    def owners(self, store: str, place: bytes, count_max: int) -> tuple[Sequence[bytes], bytes | None]:
        return owners_of(self.entries[store], place, count_max)

    def due(
        self, store: str, domain: int, until_ms: int | None, count_max: int
    ) -> Sequence[tuple[int, bytes, bytes]]:
        return timers_due(self.entries[store].items(), domain, until_ms, count_max)

    def remove_due(self, store: str, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
        for _, key, _ in rows:
            del self.entries[store][key]

    def size(self, store: str) -> StoreSize:
        return StoreSize(bytes_used=0, entries=len(self.entries[store]))

    def write(self, store: str, entries: Mapping[bytes, bytes | None]) -> None:
        for key, value in entries.items():
            if value is None:
                self.entries[store].pop(key, None)
            else:
                self.entries[store][key] = value

    def check(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...

    def bytes_on_disk(self) -> int:
        return 0


class _NoCrashPoints:
    def hit(self, name: str) -> None: ...

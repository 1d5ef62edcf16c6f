"""One worker with one task, over the fakes; each test names only what it is about."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from samzapy.config import JobConfig
from samzapy.container.task.ports import LocalPosition
from samzapy.container.task.runner import TaskRunner, TransactionLimits
from samzapy.container.task.work_plan import Report, Route, Rows, WorkPlan
from samzapy.model.checkpoint import Checkpoint
from samzapy.model.job import ExecutionId, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket
from samzapy.model.topics import changelog_topic, checkpoint_topic
from samzapy.stream.codec import decode
from samzapy.stream.records import CheckpointPut, GenerationPut, PlannedTaskPut
from samzapy.task import LoadedTask
from samzapy.testing.builders import a_config
from unit_tests.container.fakes import CrashAt, MemoryKafka, MemorySlot, MemoryStateDirectory, Trace

SSP_KB = SspKeyBucket.parse("kafka.orders.0:0/1")
TASK = TaskName("SystemStreamPartition_kafka.orders.0")
Process = Callable[[Any, Any, Any], None]


def a_job(**properties: str) -> JobConfig:
    """A job with JSON values, text keys and the store `sums`."""
    defaults = {
        "systems_kafka_samza_key_serde": "string",
        "systems_kafka_samza_msg_serde": "json",
        "stores_sums_msg_serde": "json",
        "local_store_dir": "/data",
    }
    return a_config(**(defaults | properties))


def a_plan(
    config: JobConfig,
    *,
    epoch: int = 1,
    execution_id: str = "e1",
    directory: str = "task/1",
    ssp_kbs: Sequence[SspKeyBucket] = (SSP_KB,),
) -> WorkPlan:
    """The plan of one task."""
    return WorkPlan(
        config=config,
        execution_id=ExecutionId(execution_id),
        query_number=1,
        routes=tuple(
            Route(
                ssp_kb=ssp_kb,
                task_name=TASK,
                partition_id=0,
                epoch=epoch,
                changelog_partition=0,
                environment_dir=directory,
            )
            for ssp_kb in ssp_kbs
        ),
        job_file="job.py",
        scratch_dir="/scratch",
        slot_count=1,
        stream_offset=0,
        batch_offsets_max=200_000,
    )


def a_position(**changes: Any) -> LocalPosition:
    """Of an environment that is level at offset 0 and belongs to `e1` under epoch 1."""
    fields: dict[str, Any] = {
        "execution_id": "e1",
        "epoch": 1,
        "offsets_next": {str(SSP_KB): 0},
        "changelog_next": {"sums": 0},
        "caught_up_at_ms": 0,
        "changelog_topic_ids": {"sums": "id-of-sums"},
    }
    return LocalPosition(**(fields | changes))


def rows(
    *messages: tuple[str | None, Any],
    first: int = 0,
    route: int = 0,
    offsets: Sequence[int] | None = None,
    headers: Sequence[Any] | None = None,
) -> Rows:
    """Messages as (key, value) with offsets from `first`; values are JSON but for bytes and None."""
    count = len(messages)
    return Rows(
        route,
        list(range(first, first + count)) if offsets is None else offsets,
        [None if key is None else key.encode() for key, _ in messages],
        [value if value is None or isinstance(value, bytes) else json.dumps(value).encode() for _, value in messages],
        [1000 + index for index in range(count)],
        headers,
    )


def sum_up(envelope: Any, collector: Any, context: Any) -> None:
    """A task whose every answer depends on all messages of the key before: the running sum."""
    store = context.store("sums")
    total = (store.get() or 0) + envelope.value
    store.put(total)
    collector.send("totals", {"offset": envelope.offset, "total": total}, key=envelope.key)


class AWorker:
    """A worker process in its slot, with a task's environment that is level and its own."""

    def __init__(
        self,
        process: Process = sum_up,
        *,
        config: JobConfig | None = None,
        kafka: MemoryKafka | None = None,
        bytes_max: int = 1 << 20,
        duration_max_s: float = 5.0,
        task: LoadedTask | None = None,
        new_task: Callable[[], LoadedTask] | None = None,
        crash_points: CrashAt | None = None,
        plan: WorkPlan | None = None,
    ) -> None:
        self.config = config if config is not None else a_job()
        self.kafka = kafka if kafka is not None else MemoryKafka()
        self.trace = Trace()
        self.process = process
        self.slot = MemorySlot(self.kafka, trace=self.trace)
        self.directory = MemoryStateDirectory()
        self.directory.trace = self.trace
        self.environment = self.directory.open()
        self.now_s = 0.0
        self.wall_ms = 77
        self.is_interrupted = False
        plan = plan or a_plan(self.config)
        self.environment.contents.position = a_position(offsets_next={str(route.ssp_kb): 0 for route in plan.routes})
        given = task or LoadedTask(process=lambda *given: self.process(*given), init=None, close=None)
        self.runner = TaskRunner(
            plan=plan,
            routes=range(len(plan.routes)),
            new_task=new_task or (lambda: given),
            environment=self.environment,
            limits=TransactionLimits(
                duration_max_s=duration_max_s,
                bytes_max=bytes_max,
                now_s=lambda: self.now_s,
                wall_ms=lambda: self.wall_ms,
            ),
            crash_points=crash_points or CrashAt(),
            is_interrupted=lambda: self.is_interrupted,
            current_thread=threading.current_thread,
        )

    def run(self, *chunks: Rows) -> Report:
        """Of rows of one route."""
        (report,) = self.run_routes(*chunks)
        return report

    def run_routes(self, *chunks: Rows) -> Sequence[Report]:
        return self.runner.run(chunks, self.slot)

    def outputs(self, topic: str = "totals") -> list[tuple[bytes | None, Any]]:
        """Committed outputs: key, and value as JSON."""
        return [
            (record.key, None if record.value is None else json.loads(record.value))
            for record in self.kafka.committed(topic)
        ]

    def changelog(self, store: str = "sums") -> list[tuple[bytes | None, bytes | None]]:
        topic = changelog_topic(self.config.job, store)
        return [(record.key, record.value) for record in self.kafka.committed(topic)]

    def checkpoints(self) -> list[Checkpoint]:
        topic = checkpoint_topic(self.config.job)
        found = [decode(record, topic=topic) for record in self.kafka.committed(topic)]
        return [record.checkpoint for record in found if isinstance(record, CheckpointPut)]

    @property
    def sums(self) -> dict[bytes, bytes]:
        """The local store, by changelog key."""
        return self.environment.values("sums")


def plan_in_force(generation: int, **processor_of: str) -> tuple[PlannedTaskPut | GenerationPut, ...]:
    """The records of a plan that is in force: task a reads orders.0, b reads orders.1."""
    tasks = [
        PlannedTaskPut(
            generation=generation,
            task_name=TaskName(name),
            partition_id="ab".index(name),
            mode="active",
            processor_id=ProcessorId(processor_id),
            changelog_partition="ab".index(name),
            ssp_kbs=(SspKeyBucket.parse(f"kafka.orders.{'ab'.index(name)}:0/1"),),
        )
        for name, processor_id in sorted(processor_of.items())
    ]
    return (*tasks, GenerationPut(generation=generation, factor=1, task_count=len(tasks), scheme="max"))

"""A long coordinator stream and a large job: the times of reading and publishing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from confluent_kafka import Producer

from samzapy.adapters.kafka.admin import KafkaAdmin
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.log import KafkaLog
from samzapy.coordinator.assignment.replanning import planned_tasks
from samzapy.coordinator.replay import replay
from samzapy.coordinator.state import job_model
from samzapy.model.container import Container, ContainerPhase, ProcessorLocality, TaskLocality
from samzapy.model.grant import BucketStart, Grant
from samzapy.model.job import ExecutionId, JobModel, ProcessorId, TaskName
from samzapy.model.ssp import SspKeyBucket, SystemStream, SystemStreamPartition
from samzapy.model.topics import coordinator_spec, coordinator_topic
from samzapy.plan.job_plan import plan_job
from samzapy.stream.audit import event_name
from samzapy.stream.codec import encode, headers, schema_records
from samzapy.stream.log import Write
from samzapy.stream.records import (
    ChangelogPartitionPut,
    ContainerPut,
    EpochPut,
    GenerationPut,
    GrantPut,
    JobIdentityPut,
    LocalityPut,
    PlannedTaskPut,
    Record,
    Removed,
    TaskLocalityPut,
    TermPut,
)
from samzapy.testing.builders import a_config

TASKS = 10_000
PROCESSORS = 5_000
JOB = "audited-1"
_PROGRAM = "from samzapy.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Timed:
    """An ended command: wall and CPU seconds, and its peak memory (MiB, resident)."""

    command: str
    wall_s: float
    cpu_s: float
    rss_mib: float
    load: float

    @property
    def text(self) -> str:
        figures = f"{self.wall_s:.1f} s, {self.cpu_s:.1f} CPU s, {self.rss_mib:.0f} MiB, load {self.load:.0f}"
        return f"{self.command}: {figures}"


@dataclass(frozen=True, slots=True)
class LargeJob:
    """Seconds of a job with many tasks; `cpu_s`: of publishing and reading together."""

    tasks: int
    plan_s: float
    publish_s: float
    read_s: float
    cpu_s: float


def publish_history(servers: str, count: int) -> int:
    """Publish `count` records on the topic of `JOB`; returns the count of live keys."""
    connection = KafkaConnection(bootstrap_servers=servers)
    topic = coordinator_topic(JOB)
    KafkaAdmin(connection).ensure_topic(coordinator_spec(JOB))
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    live: set[bytes] = set()
    for seq, record in enumerate(islice(a_history(), count)):
        key, value = encode(record)
        record_headers = headers(
            term=1, seq=seq, event=event_name(record, None), cause="heartbeat", actor="coordinator-bench"
        )
        while True:
            try:
                producer.produce(topic, value, key, headers=list(record_headers.items()))
                break
            except BufferError:
                producer.poll(0.1)
        live.discard(key) if value is None else live.add(key)
    if producer.flush(60):
        raise RuntimeError("the broker did not take everything in a minute")
    return len(live)


def a_history() -> Iterator[Record]:
    """A lawful history of 10,000 tasks that begin repeatedly, with 50,000 live keys."""
    yield TermPut(
        term=1,
        coordinator_id="coordinator-bench",
        host="host-a",
        boot_id="b00t",
        pid=4711,
        process_started_ms=1,
        url="http://127.0.0.1:8181",
        started_at_ms=1,
    )
    yield from schema_records()
    yield JobIdentityPut(job_name="audited", job_id="1")
    for processor in range(PROCESSORS):
        yield _running(processor)
        yield _at_host(processor, 0)
    for task in range(TASKS):
        yield ChangelogPartitionPut(task_name=_task(task), partition=task)
        yield PlannedTaskPut(
            generation=1,
            task_name=_task(task),
            partition_id=task,
            mode="active",
            processor_id=_processor(task),
            changelog_partition=task,
            ssp_kbs=(_ssp_kb(task),),
        )
    yield GenerationPut(
        generation=1,
        factor=1,
        task_count=TASKS,
        scheme="max",
        processor_ids=tuple(ProcessorId(str(processor)) for processor in range(PROCESSORS)),
    )
    for task in range(TASKS):
        yield EpochPut(epoch=task + 1)
        yield _granted(task, task + 1, released=False)
        yield _located(task, 0)
    epochs = list(range(1, TASKS + 1))
    epoch = TASKS
    for move, task in enumerate(cycle(range(TASKS))):
        epoch += 1
        yield _granted(task, epochs[task], released=True)
        yield EpochPut(epoch=epoch)
        yield _granted(task, epoch, released=False)
        yield Removed(key=f"grant/{_task(task)}/{epochs[task]}")
        yield _located(task, move)
        if move % 10 == 0:
            yield _at_host(move // 10 % PROCESSORS, move)
        epochs[task] = epoch


def timed(servers: str, *arguments: str, out: Path) -> Timed:
    """Run one samzapy command on the stream, or on a file if `arguments` name one."""
    job = [] if "--from" in arguments else ["--job", JOB, "--bootstrap-servers", servers]
    with out.open("wb") as sink:
        before_s = time.monotonic()
        child = subprocess.Popen([sys.executable, "-c", _PROGRAM, *arguments, *job], stdout=sink)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - before_s
    child.returncode = os.waitstatus_to_exitcode(status)
    # The policy of one development broker is as it must be, so anything but 0 is a failure.
    if child.returncode:
        raise RuntimeError(f"samzapy {' '.join(arguments)} ended with {child.returncode}")
    return Timed(
        command=" ".join(arguments[:-1] if arguments[-1].endswith(".avro") else arguments),
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        rss_mib=usage.ru_maxrss / 1024,
        load=os.getloadavg()[0],
    )


def large_job(servers: str) -> LargeJob:
    """A job of 10,000 tasks: planned, written in one transaction, and read back."""
    config = a_config(job_name="large", task_inputs="kafka.orders")
    processors = [ProcessorId(str(processor)) for processor in range(100)]
    began_s = time.monotonic()
    plan = plan_job(config, {SystemStream("kafka", "orders"): TASKS}, None, processors)
    planned_s = time.monotonic()
    connection, topic = KafkaConnection(bootstrap_servers=servers), coordinator_topic(config.job)
    KafkaAdmin(connection).ensure_topic(coordinator_spec(config.job))
    log = KafkaLog(connection, topic, "samzapy-coordinator/large-1")
    log.take_over()
    ready_s, ready_cpu_s = time.monotonic(), time.process_time()
    log.append_atomically(_writes(plan, processors))
    published_s = time.monotonic()
    state = replay(log.read(), topic=topic).state
    plan_read = job_model(state)
    read_s, read_cpu_s = time.monotonic(), time.process_time()
    log.close()
    if plan_read is None or plan_read.tasks != plan.tasks:
        raise RuntimeError("the plan read back differs from the written plan")
    return LargeJob(
        tasks=len(plan.tasks),
        plan_s=planned_s - began_s,
        publish_s=published_s - ready_s,
        read_s=read_s - published_s,
        cpu_s=read_cpu_s - ready_cpu_s,
    )


def _writes(plan: JobModel, processors: Sequence[ProcessorId]) -> Sequence[Write]:
    records: list[Record] = [
        *(ChangelogPartitionPut(task_name=task.name, partition=task.changelog_partition) for task in plan.tasks),
        *planned_tasks(plan),
        GenerationPut(
            generation=plan.generation,
            factor=1,
            task_count=len(plan.tasks),
            scheme="max",
            processor_ids=tuple(processors),
        ),
    ]
    writes = []
    for seq, record in enumerate(records):
        key, value = encode(record)
        record_headers = headers(term=1, seq=seq, event=event_name(record, None), cause="submit", actor="bench")
        writes.append(Write(key=key, value=value, headers=record_headers))
    return writes


def _task(task: int) -> TaskName:
    return TaskName(f"SystemStreamPartition_kafka.orders.{task}")


def _processor(task: int) -> ProcessorId:
    return ProcessorId(str(task % PROCESSORS))


def _host(number: int) -> str:
    return f"host-{number % 50}.example.org"


def _ssp_kb(task: int) -> SspKeyBucket:
    return SspKeyBucket(SystemStreamPartition("kafka", "orders", task))


def _execution(processor: int) -> ExecutionId:
    return ExecutionId(f"container-{processor}-a97f3c11d2")


def _located(task: int, move: int) -> Record:
    return TaskLocalityPut(
        locality=TaskLocality(task_name=_task(task), processor_id=_processor(task), host=_host(task + move))
    )


def _granted(task: int, epoch: int, *, released: bool) -> Record:
    return GrantPut(
        grant=Grant(
            task_name=_task(task),
            epoch=epoch,
            execution_id=_execution(task % PROCESSORS),
            generation=1,
            partition_id=task,
            changelog_partition=task,
            starts=(BucketStart(ssp_kb=_ssp_kb(task), offset_next=epoch * 1000),),
            released=released,
        )
    )


def _at_host(processor: int, move: int) -> Record:
    return LocalityPut(
        locality=ProcessorLocality(processor_id=ProcessorId(str(processor)), host=_host(processor + move))
    )


def _running(processor: int) -> Record:
    return ContainerPut(
        container=Container(
            execution_id=_execution(processor),
            processor_id=ProcessorId(str(processor)),
            host=_host(processor),
            boot_id="6f0e2d4c-8d9c-4a51-b2a8-0f4b7f2b1e11",
            pid=4711,
            process_started_ms=123_456,
            slot_count=4,
            phase=ContainerPhase.RUNNING,
            format_level=1,
        )
    )

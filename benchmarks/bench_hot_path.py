"""Measure the cost of a record in a worker's thread, without Spark and a broker.

    PYTHONPATH=. python benchmarks/bench_hot_path.py [--rounds 15]

Each round runs every subject once, in turn: 50,000 records of 100 bytes from Arrow batches, one transaction, with a
real local store and librdkafka's producer in front of librdkafka's mock broker. The figures are CPU time of the thread
that runs user code, so other work on the machine moves them less than wall time. librdkafka's threads are not in them.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from benchmarks.jobs.copy_each import copy_each
from benchmarks.jobs.count_keys import count_keys
from samzapy.adapters.host.threads import HostThreads
from samzapy.adapters.kafka.clients import KafkaConnection
from samzapy.adapters.kafka.transactions import TransactionalProducer
from samzapy.adapters.lmdb.store import LmdbEnvironment
from samzapy.adapters.spark.rows import rows_of, runs
from samzapy.config import JobConfig
from samzapy.container.task.runner import TaskRunner
from samzapy.container.task.topic_limits import TopicLimits
from samzapy.container.task.transaction import TransactionLimits
from samzapy.container.task.work_plan import Rows
from samzapy.declared_task import Declared
from samzapy.task import LoadedTask, TaskFactory
from samzapy.testing.memory.process import CrashAt
from unit_tests.fixtures.container_worlds import SSP_KB, a_job, a_plan, a_position

RECORDS = 50_000
# Of 100,000 keys over 4 partitions.
_KEYS = 25_000
_BATCH = 10_000
_LIMITS = TopicLimits(batch_bytes_max=1 << 30)


class _MockProducer(TransactionalProducer):
    """The producer of a worker, in front of librdkafka's mock broker."""

    def topic_limits(self, topic: str) -> TopicLimits:
        return _LIMITS


class _Slot:
    """A slot whose lease never runs out."""

    def __init__(self) -> None:
        self._producer = self._made()

    def _made(self) -> TransactionalProducer:
        connection = KafkaConnection(bootstrap_servers="127.0.0.1:1")
        settings = {"test.mock.num.brokers": 1, "log_level": 0, "queue.buffering.max.messages": 200_000}
        producer = _MockProducer(connection, "hot-path", settings=settings)
        producer.take_over()
        return producer

    def producer(self) -> TransactionalProducer:
        # A machine that is busy with other work answers late.
        if self._producer.must_be_renewed:
            self._producer.close()
            self._producer = self._made()
        return self._producer

    def nothing(self, *_: object) -> None:
        pass

    mark_open = mark_clean = note = check_lease = nothing


def a_slot() -> Any:
    """A slot with a producer in front of the mock broker."""
    return _Slot()


def _nothing(envelope: Any, collector: Any, context: Any) -> None:
    pass


def _batches(random: Random, first: int) -> list[pa.RecordBatch]:
    """The records of one transaction, as Spark hands them over."""
    return [_batch(random, start) for start in range(first, first + RECORDS, _BATCH)]


def _batch(random: Random, first: int) -> pa.RecordBatch:
    columns = {
        "route": pa.array([0] * _BATCH, pa.int64()),
        "offset": pa.array(range(first, first + _BATCH), pa.int64()),
        "key": pa.array([b"%08d" % random.randrange(_KEYS) for _ in range(_BATCH)], pa.binary()).cast(pa.string()),
        "value": pa.array([random.randbytes(23).hex() + "x" * 46 for _ in range(_BATCH)], pa.string()),
        "timestamp_ms": pa.array([1_700_000_000_000 + first] * _BATCH, pa.int64()),
        "headers": pa.nulls(_BATCH, pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _rows(batches: list[pa.RecordBatch]) -> Iterator[Rows]:
    return (rows_of(route, run) for route, run in runs(batches))


class OneTask:
    """One task with its local store, run by the code that runs it in a worker."""

    def __init__(
        self,
        config: JobConfig,
        new_task: TaskFactory,
        directory: Path,
        slot: Any,
        limits: TransactionLimits | None = None,
    ) -> None:
        (directory / "x").mkdir(parents=True)
        environment = self.environment = LmdbEnvironment(directory / "x" / "1", config.stores)
        changelog_next = {store.name: 0 for store in config.stores}
        local = environment.begin()
        local.set_position(a_position(offsets_next={str(SSP_KB): 0}, changelog_next=changelog_next))
        local.commit()
        plan = a_plan(config)
        self._slot = slot
        self.runner = TaskRunner(
            plan=plan,
            routes=range(len(plan.routes)),
            new_task=new_task,
            environment=environment,
            limits=limits or limits_of(60.0, 1 << 30, lambda: time.time_ns() // 10**6),
            crash_points=CrashAt(),
            is_interrupted=lambda: False,
            threads=HostThreads(),
        )

    def ns_per_record(self, chunks: Iterable[Rows]) -> float:
        """The CPU time of this thread for each record of one transaction."""
        begun_s = time.thread_time()
        (report,) = self.runner.run(chunks, self._slot)
        took_s = time.thread_time() - begun_s
        assert report.records_in == RECORDS and not report.error, report
        return took_s / RECORDS * 1e9


def limits_of(duration_max_s: float, bytes_max: int, wall_ms: Callable[[], int]) -> TransactionLimits:
    """The limits of a transaction, by the clock of this host."""
    return TransactionLimits(
        duration_max_s=duration_max_s, bytes_max=bytes_max, now_s=time.monotonic, wall_ms=wall_ms, boot_ms=wall_ms
    )


class _Subject:
    """A task that gets the next records in each round."""

    def __init__(self, process: Callable[..., None], directory: Path, slot: Any, stores: bool) -> None:
        config = a_job(
            systems_kafka_samza_key_serde="bytes",
            systems_kafka_samza_msg_serde="bytes",
            stores_sums_msg_serde="bytes",
        )
        config = replace(config, stores=tuple(replace(store, name="counts") for store in config.stores if stores))
        task = LoadedTask(process=process, init=None, close=None)
        self._task = OneTask(config, TaskFactory(Declared(), lambda: task), directory, slot)
        self._first, self._random = 0, Random(1)

    def ns_per_record(self) -> float:
        """The CPU time of this thread for a record of the next transaction."""
        batches = _batches(self._random, self._first)
        self._first += RECORDS
        return self._task.ns_per_record(_rows(batches))


def _ns_of_rows(random: Random) -> float:
    batches = _batches(random, 0)
    begun_s = time.thread_time()
    for _ in _rows(batches):
        pass
    return (time.thread_time() - begun_s) / RECORDS * 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        slot = _Slot()
        subjects = {
            "nothing": _Subject(_nothing, Path(directory, "nothing"), slot, stores=False),
            "1:1": _Subject(copy_each, Path(directory, "copy"), slot, stores=False),
            "keyed count": _Subject(count_keys, Path(directory, "count"), slot, stores=True),
        }
        # As the worker process does.
        gc.collect()
        gc.freeze()
        for _ in range(options.rounds):
            times.setdefault("Arrow to rows", []).append(_ns_of_rows(Random(2)))
            for name, subject in subjects.items():
                times.setdefault(name, []).append(subject.ns_per_record())
    load = os.getloadavg()[0]
    for name, figures in times.items():
        least, median = min(figures), sorted(figures)[len(figures) // 2]
        print(json.dumps({"subject": name, "least_ns": round(least), "median_ns": round(median), "load": load}))


if __name__ == "__main__":
    main()

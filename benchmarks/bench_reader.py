"""The cost of a record until a task has it: by Spark's source, and by a tail.

A whole job runs in both cases, `jobs/thin.py`, which reads each record and sends one in a hundred. With tails all
records arrive while the workers tail, with any lag.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_input import bulk_producer, random_records, send
from bench_measure import CPU_ROLES, Look, Steady, cpu_of, percentile, steady_between
from bench_report import bullets, table
from bench_subjects import Place, Running, Subject, running, samzapy_job
from confluent_kafka import Consumer, TopicPartition

from samzapy.errors import DeadlineError

FACTORS = (1, 4)
WARM_UP, MEASURED = 1_000_000, 2_000_000
RECORD_BYTES = 100
ONE_IN = 100
CHEAPER_MIN = 1.3
"""How much cheaper the tail's reader must be if bulk reading is to go that way."""
_WITHIN_S = 300.0
_NEARLY = 0.995
# So large that no tail ends because of the records that the next micro-batch would read again.
_ANY_NUMBER = str(10**9)
WAYS: Mapping[str, Mapping[str, str]] = {
    "source": {"task.tail.ms": "0"},
    "tail": {"task.tail.ms": "3600000", "task.tail.lag.max": _ANY_NUMBER, "task.batch.offsets.max": _ANY_NUMBER},
}
_NAMES = {"source": "Spark's source", "tail": "the reader of a tail"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One measurement."""

    way: str
    factor: int
    steady: Steady

    @property
    def total_us(self) -> float:
        """CPU time of a record, without the JVM's compiling, which ends."""
        return 1e6 / self.steady.per_cpu_s


def subject(way: str, factor: int) -> Subject:
    settings = {**WAYS[way], "job.elasticity.factor": str(factor)}
    return samzapy_job(f"{way}, factor {factor}", "thin.py", settings)


def measure_reading(way: str, factor: int, place: Place) -> Reading:
    """Run the job, and measure it while it handles the second part of the records.

    Raises:
        DeadlineError: not all outputs came within five minutes.
    """
    producer = bulk_producer(place.servers)
    with running(subject(way, factor), place) as process:
        outputs = _Outputs(place)
        try:
            # The first ones bring the query up; the tail is there when they are handled.
            for records in (4_000, WARM_UP):
                send(producer, place.topic, random_records(records, RECORD_BYTES))
                outputs.await_more(records, process)
            before = _look(process, 0)
            send(producer, place.topic, random_records(MEASURED, RECORD_BYTES))
            outputs.await_more(MEASURED, process)
            return Reading(way=way, factor=factor, steady=steady_between(before, _look(process, MEASURED)))
        finally:
            outputs.close()


def _look(process: Running, records: int) -> Look:
    return Look(at_s=time.monotonic(), records=records, cpu_s=cpu_of(process.tree()))


class _Outputs:
    """Counts the outputs of a run."""

    def __init__(self, place: Place) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": place.servers, "group.id": "bench-reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(place.output, number, 0) for number in range(place.partitions)])
        self._seen = 0
        self._wanted = 0

    def await_more(self, records: int, process: Running) -> None:
        """Wait for nearly all outputs of some records: their offsets depend on the keys."""
        self._wanted += records
        deadline_s = time.monotonic() + _WITHIN_S
        while self._seen < self._wanted / ONE_IN * _NEARLY - 8:
            self._seen += sum(message.error() is None for message in self._consumer.consume(1000, 0.05))
            process.check_alive()
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"{self._seen * ONE_IN} of {self._wanted} records within {_WITHIN_S:g} s")

    def close(self) -> None:
        self._consumer.close()


def reader_section(readings: Sequence[Reading], conditions: Sequence[str]) -> str:
    """The section of the page."""
    rows = []
    for way, factor in dict.fromkeys((one.way, one.factor) for one in readings):
        ones = [one for one in readings if (one.way, one.factor) == (way, factor)]
        total = percentile((one.total_us for one in ones), 50)
        each = ", ".join(f"{one.total_us:.2f}" for one in ones)
        roles = [f"{percentile((one.steady.cpu_us_per_record(role) for one in ones), 50):.2f}" for role in CPU_ROLES]
        rows.append([_NAMES[way], str(factor), f"**{total:.2f}**", each, *roles])
    names = ("brought by", "factor", "us CPU per record", "of runs", *CPU_ROLES)
    notes = (
        f"A job that sends one of {ONE_IN} records, `local[2]`, 4 partitions, {MEASURED:,} records of {RECORD_BYTES} "
        f"bytes after {WARM_UP:,}, written while it reads. CPU of the JVM, the driver and the workers until their "
        "outputs were read; the JVM's time for compiling is not in the sum.",
        "One container has all key buckets, so no row is foreign. With several containers each reads all rows of a "
        "partition, and drops those of the others: in the JVM, or in Python.",
        f"To be weighed in an ADR where the tail's reader is {CHEAPER_MIN:g} times cheaper.",
    )
    return "\n\n".join(["## Reading", table(names, rows), "Conditions:", bullets([*conditions, *notes])])

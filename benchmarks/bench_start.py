"""The time of a job from its command to its first output, by parts.

100 records wait in the input. The lines of a job's log mark the ends of the parts; the first record
that a `read_committed` reader of the output gets is the end.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bench_measure import CPU_ROLES, Others, cpu_of
from bench_report import table
from bench_subjects import Place, Subject, running
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from samzapy.adapters.spark.class_archive import OFF, USAGE_VARIABLE
from samzapy.errors import DeadlineError

RECORDS = 100
FIRST_S_MAX, LATER_S_MAX = 12.0, 8.0
_END = "first output"
MARKS: Mapping[str, str] = {
    "spark-submit ": "command: configuration and job file read",
    "leads ": "JVM and driver up, cluster asked, leader elected",
    "Spark is up": "Spark session open",
    "granted: ": "job planned, tasks granted",
    _END: "query planned, first micro-batch",
}
"""The log line at the end of each part of a start."""
_WITHIN_S = 120.0
_LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`ends_s`: of parts, since the start. `cpu_s`: until the first output, by role."""

    total_s: float
    ends_s: Mapping[str, float]
    cpu_s: Mapping[str, float]
    others_cores: float


def publish(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.servers})
    for number in range(RECORDS):
        producer.produce(place.topic, b"%020d%012d" % (time.monotonic_ns(), number), b"%08d" % number)
    producer.flush(10)


def measure_start(subject: Subject, place: Place, environment: Mapping[str, str]) -> Start:
    publish(place)
    with _reader(place) as reader:
        others = Others()
        with running(subject, place, environment) as process:
            ends_s: dict[str, float] = {}
            while (message := reader.poll(_LOOK_EVERY_S)) is None or message.error() is not None:
                process.check_alive()
                at_s = time.monotonic() - process.started_s
                log = process.log_path.read_text(errors="replace")
                ends_s |= {mark: at_s for mark in MARKS if mark not in ends_s and mark in log}
                if at_s > _WITHIN_S:
                    raise DeadlineError(f"{subject.name}: no output after {_WITHIN_S:.0f} s; see {process.log_path}")
            total_s = time.monotonic() - process.started_s
            return Start(
                total_s=total_s,
                ends_s={**ends_s, _END: total_s},
                cpu_s=cpu_of(process.tree()),
                others_cores=others.cores(),
            )


@contextmanager
def _reader(place: Place) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": place.servers, "group.id": "bench-start", "isolation.level": "read_committed"}
    )
    try:
        consumer.assign([TopicPartition(place.output, number, OFFSET_END) for number in range(place.partitions)])
        consumer.poll(2.0)
        yield consumer
    finally:
        consumer.close()


def parts_table(starts: Mapping[str, Sequence[Start]]) -> str:
    """Seconds of each part, by subject: medians."""
    rows = []
    marks = [*MARKS]
    for place, mark in enumerate(marks):
        row = [MARKS[mark]]
        for runs in starts.values():
            parts = [_part(start, marks[: place + 1]) for start in runs]
            row.append(f"{statistics.median(parts):.2f}")
        rows.append(row)
    rows.append(
        [
            "**until the first output**",
            *(f"**{statistics.median(s.total_s for s in f):.2f}**" for f in starts.values()),
        ]
    )
    for role in CPU_ROLES:
        cpu_s = [statistics.median(start.cpu_s[role] for start in runs) for runs in starts.values()]
        rows.append([f"CPU seconds: {role}", *(f"{seconds:.1f}" for seconds in cpu_s)])
    return table(("part of the start, s", *starts), rows)


def _part(start: Start, marks: Sequence[str]) -> float:
    """From the last mark before that was seen to this one."""
    end_s = start.ends_s.get(marks[-1])
    if end_s is None:
        return 0.0
    return end_s - max((start.ends_s[mark] for mark in marks[:-1] if mark in start.ends_s), default=0.0)


def totals_table(starts: Mapping[str, Sequence[Start]]) -> str:
    return table(
        ("subject", "starts", "first output after s: each", "median", "CPU s"),
        [
            (
                name,
                str(len(runs)),
                ", ".join(f"{start.total_s:.1f}" for start in runs),
                f"**{statistics.median(start.total_s for start in runs):.2f}**",
                f"{statistics.median(sum(start.cpu_s.values()) for start in runs):.1f}",
            )
            for name, runs in starts.items()
        ],
    )


WITHOUT_ARCHIVE: Mapping[str, str] = {USAGE_VARIABLE: OFF}
WITH_ARCHIVE: Mapping[str, str] = {USAGE_VARIABLE: "manual"}

"""The benchmark of the data path. Started by `scripts/bench`."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import bench_api
import bench_due
import bench_latency_table as latency_table
import bench_report as report
import click
from bench_audit import large_job, publish_history, timed
from bench_conditions import PRODUCTION_JVM, busy, disturbed, load, machine, processor, versions
from bench_connections import connections_section, measure_connections
from bench_heartbeats import CONTAINERS, INTERVALS_MS, P99_MS_MAX, Fleet
from bench_heartbeats import MEASURE_S as BEATS_MEASURE_S
from bench_input import KEY_COUNT, publish, remove_topics
from bench_latency import MEASURE_S, RATE_PER_S, SETTLE_S, Latency, Stream, measure_latency, stream_of
from bench_latency_subjects import PLAN, latency_subjects, missing
from bench_measure import Others, memory_of, percentile, steady_state, tree_of
from bench_placement import PLACEMENTS, STATE_MB, placement_section
from bench_reader import FACTORS, WAYS, Reading, measure_reading, reader_section
from bench_scale import PARTS, WITHOUT_BROKER, section
from bench_scale_job import Ground
from bench_start import (
    FIRST_S_MAX,
    LATER_S_MAX,
    RECORDS,
    WITH_ARCHIVE,
    WITHOUT_ARCHIVE,
    Start,
    measure_start,
    parts_table,
    totals_table,
)
from bench_subjects import Place, Running, Subject, plain_client, plain_spark, running, samzapy_job
from bench_timers import WAYS as TIMER_WAYS
from bench_timers import Timed, measure_timers, timers_section

from samzapy.cli.class_archive import made_archive
from samzapy.errors import SamzapyError
from samzapy.testing.broker import DevBroker
from samzapy.testing.topics import make_topics

PAGE = Path(__file__).resolve().parent.parent / "docs" / "internals" / "performance.md"
PARTITIONS = 4
CORES = 2
OUTPUT = "bench-output"
# Has no records; a broadcast input sends the rows of the other inputs through a shuffle.
BROADCAST = "bench-rules"
OFFSETS_MAX = 200_000
WARM_UP = 4_000_000
MEASURED = {100: 1_600_000, 1000: 800_000}
LATENCY_INPUT = "trickle"
SECONDS_TAILED = 150.0
WARM_BROKER_S = 60.0
SECONDS = 30.0
QUICK = 0.2
MEMORY_RECORDS = 5_000_000
MEMORY_RECORD_BYTES = 100
MEMORY_EVERY_S = 0.5
AUDIT_RECORDS = 1_000_000
AUDIT_WALL_S_MAX = 25
AUDIT_RSS_MIB_MAX = 700
DEADLINE_S = 900.0

# The last batch would become a tail and never end, and a batch counts when it has ended.
_BATCHES = {"task.tail.ms": "0"}
SUBJECTS: Mapping[str, Subject] = {
    "read": plain_spark("(a) Spark: Kafka -> noop", "read"),
    "read-ours": plain_spark("(a) with samzapy's source settings", "read", source_is_ours=True),
    "thin": samzapy_job("samzapy, 1 % out", "thin.py", _BATCHES),
    "plain": plain_spark("(b) Spark: Kafka -> mapInArrow -> Kafka", "copy"),
    "plain-none": plain_spark("(b) uncompressed, as by default", "copy", compression="none"),
    "plain-ours": plain_spark(
        "(b) with samzapy's session and source settings", "copy", source_is_ours=True, session_is_ours=True
    ),
    "copy": samzapy_job("samzapy, 1:1", "copy_each.py", _BATCHES),
    "shuffled": samzapy_job(
        "samzapy, 1:1, by a shuffle", "copy_each.py", {"task.broadcast.inputs": f"kafka.{BROADCAST}", **_BATCHES}
    ),
    "count": samzapy_job("samzapy, keyed count", "count_keys.py", {"stores.counts.msg.serde": "bytes", **_BATCHES}),
    "client": plain_client("(c) confluent-kafka loop, transactional"),
}
NAMES = {name: subject.name for name, subject in SUBJECTS.items()}
THROUGHPUT = ("read", "read-ours", "thin", "plain", "plain-none", "copy", "shuffled", "count", "client")
LATENCY = ("plain-none", "copy", "plain-ours")
REACH = (
    report.Reach(title="1 % out, of (a)", subject="thin", base="read", size=1000, bound=0.6),
    report.Reach(title="1 % out, of (a)", subject="thin", base="read", size=100, bound=0.45),
    *(
        report.Reach(title=f"{figure}, of {of}", subject=subject, base=base, size=size, bound=bound)
        for subject, figure, bound in (("copy", "1:1", 0.9), ("count", "keyed count", 0.5))
        for size in MEASURED
        for base, of in (("plain", "(b)"), ("plain-none", "(b) uncompressed"))
    ),
    report.Reach(
        title="latency p50, of (b) with Spark's defaults", subject="copy", base="plain-none", size=0, bound=1.3
    ),
)
NOTES = (
    "One broker and the subject share the machine; CPU is user and system time of the subject's processes alone "
    "(JVM, Python driver, Python workers), out of /proc. The broker's counts for no subject. *Others* is the time of "
    "all other processes during a run, with the kernel's own threads and other virtual machines on its host.",
    "*JIT* is the JVM's time for compiling its code. It is start-up that continues after the first batches, for a "
    "minute or two, and takes up to half of the JVM's time meanwhile; *records per CPU-second* is without it.",
    f"Every subject: {PARTITIONS} input and output partitions, `local[{CORES}]`, at most {OFFSETS_MAX:,} records a "
    f"batch, keys of 8 bytes out of {KEY_COUNT:,}, values of which about half is the same in all records.",
    "samzapy: exactly once, read_committed, headers read, a Python function called per record; the keyed count "
    "writes its changelog too. (a) calls no Python. (b) is at-least-once, reads no headers, and also calls a Python "
    "function per record. (c) is one Python process, exactly once, without Spark, state or headers.",
    "All subjects that write compress with lz4: samzapy's producer by itself, (b) and (c) by a setting, so that the "
    "same bytes go to the broker. (b) without that setting is beside it, uncompressed.",
    "The subjects on samzapy run with the same configuration as any job; only `task.batch.offsets.max` is set. "
    "*By a shuffle* is 1:1 with an empty broadcast input: as the rows of tasks with several inputs go to Python.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSubject:
    """A start that is measured; `is_second`: after another one of the same job."""

    subject: Subject
    environment: Mapping[str, str] = field(default_factory=dict)
    is_second: bool = False

    @property
    def name(self) -> str:
        return self.subject.name


_OURS = latency_subjects({})
START: Mapping[str, StartSubject] = {
    "first": StartSubject(
        subject=replace(_OURS["samzapy"], name="samzapy, no class archive"), environment=WITHOUT_ARCHIVE
    ),
    "later": StartSubject(subject=replace(_OURS["samzapy"], name="samzapy"), environment=WITH_ARCHIVE),
    "keyed": StartSubject(subject=replace(_OURS["samzapy-keyed"], name="samzapy, keyed"), environment=WITH_ARCHIVE),
    "again": StartSubject(
        subject=replace(_OURS["samzapy-keyed"], name="samzapy, keyed, again"),
        environment=WITH_ARCHIVE,
        is_second=True,
    ),
    "spark": StartSubject(subject=_OURS["spark"]),
    "client": StartSubject(subject=_OURS["client"]),
    "quix": StartSubject(subject=_OURS["quix"]),
}
_WARM_UP: Mapping[str, Any] = {
    "seconds": 1.0,
    "settle": 30.0,
    "idle": 0.0,
    "sparse_every": 60.0,
    "partitions": PARTITIONS,
    "slots": CORES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    servers: str
    directory: Path

    def place(self, topic: str, name: str) -> Place:
        return Place(
            servers=self.servers,
            topic=topic,
            output=OUTPUT,
            partitions=PARTITIONS,
            directory=self.directory / name,
            name=name,
            offsets_max=OFFSETS_MAX,
            cores=CORES,
        )


@contextmanager
def bench() -> Iterator[Bench]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # So that nothing outlives it.
    root = Path(tempfile.mkdtemp(prefix="samzapy-bench-"))
    broker = DevBroker(root / "broker", jvm_options=["-Xmx1024m", *PRODUCTION_JVM])
    try:
        broker.start()
        yield Bench(servers=broker.bootstrap_servers, directory=root)
    finally:
        broker.stop()
        shutil.rmtree(root, ignore_errors=True)


@click.group()
def main() -> None:
    """The cost of the data path, against Spark and Kafka by themselves."""


@main.command()
@click.option("--quick", is_flag=True, help="A fifth of the records, one round, indicative only.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice(list(SUBJECTS)), help="Subjects [default: all].")
@click.option("--size", "sizes", type=click.Choice([str(size) for size in MEASURED]), multiple=True)
@click.option("--no-latency", is_flag=True)
@click.option("--no-throughput", is_flag=True)
@click.option(
    "--page", type=click.Path(path_type=Path), help="Page to write [default: docs/internals/performance.md if whole]."
)
def data(
    quick: bool,
    rounds: int,
    only: tuple[str, ...],
    sizes: tuple[str, ...],
    no_latency: bool,
    no_throughput: bool,
    page: Path | None,
) -> None:
    """Records per CPU-second and per wall second, start-up, latency; half an hour."""
    scale, rounds = (QUICK, 1) if quick else (1.0, rounds)
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    runs: list[report.Throughput] = []
    latencies: dict[str, list[Latency]] = {}
    with bench() as at:
        if not no_throughput:
            words = [name for name in THROUGHPUT if name in only or not only]
            for size in (int(size) for size in sizes or map(str, MEASURED)):
                runs += measure_throughput(at, size, words, rounds, scale)
        if not no_latency:
            latencies = measure_latencies(at, [name for name in LATENCY if name in only or not only], rounds, scale)
    records = {size: int((WARM_UP + measured) * scale) for size, measured in MEASURED.items()}
    conditions = [
        f"{begun:%Y-%m-%d}, {rounds} round(s), subjects in turn; medians"
        + ("; a fifth of the records: **indicative only**, the JVM is still compiling." if quick else "."),
        f"{os.cpu_count()} x {processor()}; load average {load_before:.1f} before, {load():.1f} after.",
        *disturbed([*(run.others_cores for run in runs), *(one.others_cores for one in chain(*latencies.values()))]),
        versions("pyspark", "confluent-kafka", "pyarrow"),
        "Records: "
        + ", ".join(f"{count:,} of {size} bytes" for size, count in records.items())
        + f"; the steady state begins at the first batch end after {int(WARM_UP * scale):,} and ends with the last "
        "full batch. Start-up is in `first batch`: from the start of the process to the end of the first batch.",
        f"Latency: {RATE_PER_S} records/s, from `produce` to a `read_committed` reader of the output; "
        f"{MEASURE_S * scale:g} s after {SETTLE_S:g} s of settling.",
        *NOTES,
    ]
    body = data_section(conditions, runs, latencies)
    click.echo(body)
    whole = not (quick or only or sizes or no_latency or no_throughput)
    if page or whole:
        report.write_section(page or PAGE, "data", body)


def data_section(
    conditions: Sequence[str], runs: Sequence[report.Throughput], latencies: Mapping[str, Sequence[Latency]]
) -> str:
    parts = ["## Throughput and latency", report.reach_table(runs, latencies, REACH)]
    if runs:
        parts.append(report.throughput_table(runs, NAMES))
    if latencies:
        parts.append(report.latency_table(latencies, NAMES))
    return "\n\n".join([*parts, "Conditions:", report.bullets(conditions)])


def measure_throughput(
    at: Bench, size: int, words: Sequence[str], rounds: int, scale: float
) -> list[report.Throughput]:
    records, warm_up, topic = int((WARM_UP + MEASURED[size]) * scale), int(WARM_UP * scale), f"records-{size}"
    make_topics(at.servers, {topic: PARTITIONS})
    publish(at.servers, topic, records, size)
    runs = []
    for number in range(rounds):
        for name in words:
            remove_topics(at.servers, but=[topic])
            make_topics(at.servers, {OUTPUT: PARTITIONS, BROADCAST: PARTITIONS})
            others = Others()
            with running(SUBJECTS[name], at.place(topic, f"bench-{size}-{number}-{name}")) as process:
                looks = list(process.looks(records, DEADLINE_S))
                run = report.Throughput(
                    subject=name,
                    size=size,
                    steady=steady_state(looks, warm_up),
                    first_s=looks[0].at_s - process.started_s,
                    others_cores=others.cores(),
                )
            runs.append(run)
            us = ", ".join(f"{role} {run.steady.cpu_us_per_record(role):.2f}" for role in run.steady.cpu_s)
            click.echo(
                f"{size:5} B  {NAMES[name]:46} {run.steady.per_cpu_s / 1e3:6.1f} k/cpu-s "
                f"{run.steady.per_wall_s / 1e3:6.1f} k/s  us: {us}  n {run.steady.records} "
                f"first {run.first_s:.1f} s  others {run.others_cores:.2f} cores"
            )
    remove_topics(at.servers, but=[])
    return runs


def measure_latencies(at: Bench, words: Sequence[str], rounds: int, scale: float) -> dict[str, list[Latency]]:
    latencies: dict[str, list[Latency]] = {name: [] for name in words}
    for number in range(rounds):
        for name in words:
            remove_topics(at.servers, but=[])
            make_topics(at.servers, {OUTPUT: PARTITIONS, LATENCY_INPUT: PARTITIONS})
            place = at.place(LATENCY_INPUT, f"latency-{number}-{name}")
            latency = measure_latency(SUBJECTS[name], place, Stream(measure_s=MEASURE_S * scale))
            latencies[name].append(latency)
            click.echo(
                f"{NAMES[name]:46} p50 {percentile(latency.latencies_ms, 50):.0f} "
                f"p99 {percentile(latency.latencies_ms, 99):.0f} ms  n {len(latency.latencies_ms)} "
                f"first {latency.startup_s:.1f} s  others {latency.others_cores:.2f} cores"
            )
    return latencies


class Samples:
    """The memory that a thread samples while the subject works, also within batches."""

    def __init__(self) -> None:
        self.records = 0
        self.memories: list[report.Memory] = []


@contextmanager
def sampled(process: Running) -> Iterator[Samples]:
    samples, ended = Samples(), threading.Event()

    def sample() -> None:
        while not ended.wait(MEMORY_EVERY_S):
            samples.memories.append(report.Memory(records=samples.records, mib=memory_of(tree_of(process.pid))))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


@main.command()
@click.option("--only", multiple=True, type=click.Choice(list(latency_subjects({}))), help="Subjects [default: all].")
@click.option(
    "--rates", default="", help="Records per second, or `sparse`, with commas between; [default: the plan]."
)
@click.option("--seconds", type=float, help="Measured time of each row [default: 150 with tails, 30 without].")
@click.option("--settle", default=15.0, show_default=True, help="Seconds after the first output that do not count.")
@click.option(
    "--idle", default=20.0, show_default=True, help="Seconds without records, after a subject's first rate."
)
@click.option("--sparse-every", default=60.0, show_default=True, help="Seconds between the bursts of `sparse`.")
@click.option("--slots", default=4, show_default=True, help="Task slots of the master `local[...]`.")
@click.option("--partitions", default=PARTITIONS, show_default=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the subjects on samzapy.")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Page to write [default: docs/internals/performance.md if whole]."
)
def latency(only: tuple[str, ...], rates: str, page: Path | None, **options: Any) -> None:
    """Latency and CPU of samzapy and others; forty minutes, or two for a row."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    subjects = latency_subjects(dict(one.split("=", 1) for one in options["settings"]))
    plan = latency_plan(only, [rate for rate in rates.split(",") if rate])
    target = page or (None if only or rates or options["seconds"] else PAGE)
    rows: list[latency_table.Row] = []
    reasons = {name: missing(name) for name, _ in plan}
    skipped = [f"{subjects[name].name}: skipped; {reason}." for name, reason in reasons.items() if reason]
    click.echo("\n".join(skipped))
    # Else it is made beside the first row.
    made_archive({})
    with bench() as at:
        # The broker's JVM compiles for a minute, and answers ten times as slowly meanwhile.
        _latency_of(at, subjects["client"], "warm-up", "200", {**options, "settle": WARM_BROKER_S}, is_first=False)
        for name, rate in [(name, rate) for name, rate in plan if not reasons[name]]:
            is_first = name not in {row.subject for row in rows}
            try:
                measured = _latency_of(at, subjects[name], f"{name}-{rate}", rate, options, is_first=is_first)
            except SamzapyError as error:
                skipped.append(f"{subjects[name].name}, {rate}: no row; {str(error).splitlines()[0]}")
                click.echo(str(error))
                continue
            rows.append(
                latency_table.Row(subject=name, name=subjects[name].name, rate=rate, latency=measured, load=load())
            )
            click.echo(latency_table.rows_table(rows[-1:]))
            body = latency_table.section(rows, skipped, _latency_conditions(begun, load_before, rows, options))
            if target is not None:
                report.write_section(target, "latency", body)
    click.echo(latency_table.bars_table(rows))


@main.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--only", multiple=True, type=click.Choice([*START]), help="Subjects [default: all that install].")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Page to write [default: docs/internals/performance.md if whole]."
)
def start(rounds: int, only: tuple[str, ...], page: Path | None) -> None:
    """Time from the command to the first output; five minutes."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    words = [name for name in START if (name in only or not only) and missing(name) is None]
    starts: dict[str, list[Start]] = {START[name].name: [] for name in words}
    made_archive({})
    with bench() as at:
        _latency_of(at, START["client"].subject, "warm-up", "200", _WARM_UP, is_first=False)
        for number in range(rounds):
            for name in words:
                starts[START[name].name].append(_start_of(at, name, number))
    body = start_section(starts, begun, load_before)
    click.echo(body)
    if page or not only:
        report.write_section(page or PAGE, "start", body)


@main.command()
@click.option("--seconds", default=60.0, show_default=True, help="Measured time, with a timer and without.")
@click.option("--only", multiple=True, type=click.Choice(list(TIMER_WAYS)), help="Ways [default: all].")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Page to write [default: the performance page if whole]."
)
def timers(seconds: float, only: tuple[str, ...], page: Path | None) -> None:
    """How late timers fire without messages, and their cost; six minutes."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    made_archive({})
    timed: dict[str, Timed] = {}
    with bench() as at:
        for number, way in enumerate(only or TIMER_WAYS):
            place = at.place(f"timers-{number}", f"timers-{number}")
            place = replace(place, output=f"{place.topic}-fired")
            make_topics(at.servers, {place.topic: PARTITIONS, place.output: PARTITIONS})
            timed[way] = measure_timers(way, place, seconds)
    conditions = [machine(begun, load_before), versions("pyspark", "confluent-kafka", "lmdb")]
    body = timers_section(timed, seconds, conditions)
    click.echo(body)
    if page or not only:
        report.write_section(page or PAGE, "timers", body)


@main.command()
@click.option("--rounds", default=15, show_default=True)
@click.option(
    "--timers", default=1_000_000, show_default=True, help="Timers that are due at once; 0 leaves that part out."
)
@click.option("--page", type=click.Path(path_type=Path), default=PAGE, show_default=True, help="Page to write.")
def api(rounds: int, timers: int, page: Path) -> None:
    """CPU of task classes, typed values, counters and timers; three minutes."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    figures = bench_api.measure(rounds)
    body = bench_api.section(figures, [machine(begun, load_before), versions("msgspec", "confluent-kafka", "lmdb")])
    click.echo(body)
    report.write_section(page, "api", body)
    if timers:
        begun, load_before = datetime.datetime.now(datetime.UTC), load()
        due = bench_due.measure(timers)
        body = bench_due.section(due, [machine(begun, load_before), versions("confluent-kafka", "lmdb")])
        click.echo(body)
        report.write_section(page, "due", body)


@main.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--page", type=click.Path(path_type=Path), default=PAGE, show_default=True, help="Page to write.")
def reader(rounds: int, page: Path) -> None:
    """CPU of a record by Spark's source, and by a tail; ten minutes."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    readings: list[Reading] = []
    made_archive({})
    with bench() as at:
        for number in range(rounds):
            for factor in FACTORS:
                for way in WAYS:
                    remove_topics(at.servers, but=[])
                    make_topics(at.servers, {OUTPUT: PARTITIONS, LATENCY_INPUT: PARTITIONS})
                    place = at.place(LATENCY_INPUT, f"reader-{way}-{factor}-{number}")
                    readings.append(measure_reading(way, factor, place))
                    click.echo(readings[-1])
    conditions = [machine(begun, load_before), versions("pyspark", "confluent-kafka")]
    body = reader_section(readings, conditions)
    click.echo(body)
    report.write_section(page, "reader", body)


def _start_of(at: Bench, name: str, number: int) -> Start:
    one = START[name]
    remove_topics(at.servers, but=[])
    make_topics(at.servers, {OUTPUT: PARTITIONS, LATENCY_INPUT: PARTITIONS})
    place = at.place(LATENCY_INPUT, f"start-{name}-{number}")
    measured = measure_start(one.subject, place, one.environment)
    if one.is_second:
        # The same job again: its topics and its coordinator stream are there.
        measured = measure_start(one.subject, place, one.environment)
    click.echo(
        f"{one.name}: {measured.total_s:.1f} s, {sum(measured.cpu_s.values()):.1f} CPU s, {dict(measured.ends_s)}"
    )
    return measured


def start_section(starts: Mapping[str, Sequence[Start]], begun: datetime.datetime, load_before: float) -> str:
    ours = {name: runs for name, runs in starts.items() if name.startswith("samzapy")}
    conditions = [
        f"{machine(begun, load_before)} Starts in turn; medians.",
        *disturbed([start.others_cores for runs in starts.values() for start in runs]),
        f"{RECORDS} records wait in {PARTITIONS} partitions, `local[{CORES}]` where there is Spark. From the start of "
        "the process to the first record that a `read_committed` reader of the output gets; the broker is warm.",
        f"To be reached: {LATER_S_MAX:g} s with a class archive, {FIRST_S_MAX:g} s without. *Again*: the second start "
        "of the same job, whose topics, coordinator stream and state are there.",
        "The lines of the job's log separate the parts of a start. CPU: of all processes until the first "
        "output, the JVM's compiler included.",
        versions("pyspark", "confluent-kafka"),
    ]
    return "\n\n".join(
        [
            "## Start",
            totals_table(starts),
            "Where the time of a start goes:",
            parts_table(ours),
            "Conditions:",
            report.bullets(conditions),
        ]
    )


def latency_plan(only: Sequence[str], rates: Sequence[str]) -> Sequence[tuple[str, str]]:
    """All pairs of the named subjects and rates; those of the plan if none is named."""
    if only and rates:
        return [(name, rate) for name in only for rate in rates]
    return [(name, rate) for name, rate in PLAN if (not only or name in only) and (not rates or rate in rates)]


def _latency_of(
    at: Bench, subject: Subject, name: str, rate: str, options: Mapping[str, Any], *, is_first: bool
) -> Latency:
    has_tails = name.startswith("samzapy") and "no-tail" not in name
    stream = stream_of(
        rate,
        seconds=options["seconds"] or (SECONDS_TAILED if has_tails else SECONDS),
        settle_s=options["settle"],
        idle_s=options["idle"] if is_first else 0.0,
        sparse_every_s=options["sparse_every"],
    )
    count = options["partitions"]
    remove_topics(at.servers, but=[])
    make_topics(at.servers, {OUTPUT: count, LATENCY_INPUT: count})
    place = replace(at.place(LATENCY_INPUT, f"latency-{name}"), partitions=count, cores=options["slots"])
    return measure_latency(subject, place, stream)


def _latency_conditions(
    begun: datetime.datetime, load_before: float, rows: Sequence[latency_table.Row], options: Mapping[str, Any]
) -> Sequence[str]:
    given = f" Settings: {', '.join(options['settings'])}." if options["settings"] else ""
    return [
        f"{machine(begun, load_before)} One run each.",
        *disturbed([row.latency.others_cores for row in rows]),
        f"{options['partitions']} input and output partitions, `local[{options['slots']}]` where there is Spark. Each "
        f"row is a new start; {options['settle']:g} s after its first output the measured window begins. It "
        f"lasts {options['seconds'] or SECONDS_TAILED:g} s with tails and {options['seconds'] or SECONDS:g} s "
        f"without.{given} The gap between two tails comes once in `task.tail.ms`, an hour, and no window has one. "
        f"A client at 200 records/s warms the broker up for {WARM_BROKER_S:g} s first.",
        "From the produce call to a `read_committed` reader, one clock. *Cores*: CPU of all processes of the subject "
        "in the window, the JVM's compiler included; without the broker's. *Idle*: the same without records, from "
        f"{SETTLE_S:g} s after the last one. *Lost* and *doubled* are of all records, those before the window too. A "
        "percentile that needs more records than there are is left out.",
        f"*Sparse*: four records every {options['sparse_every']:g} s. All are exactly once but bytewax, which has no "
        "transactions. (c) and quix-streams are one Python process; quix-streams commits every 50 ms.",
        versions("pyspark", "confluent-kafka"),
    ]


@main.command()
@click.option("--records", default=MEMORY_RECORDS, show_default=True)
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    default=PAGE,
    help="Page to write [default: docs/internals/performance.md].",
)
def rss(records: int, page: Path) -> None:
    """Memory of a keyed count while records pass: does it end?"""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    with bench() as at:
        topic = f"records-{MEMORY_RECORD_BYTES}"
        make_topics(at.servers, {topic: PARTITIONS, OUTPUT: PARTITIONS})
        publish(at.servers, topic, records, MEMORY_RECORD_BYTES)
        with running(SUBJECTS["count"], at.place(topic, "bench-rss")) as process, sampled(process) as samples:
            for look in process.looks(records, DEADLINE_S):
                samples.records = look.records
    conditions = [
        f"{machine(begun, load_before)} One run.",
        *busy([load_before]),
        "One broker and the job share the machine; memory is that of the job's processes alone. "
        + versions("pyspark", "confluent-kafka", "pyarrow"),
    ]
    body = memory_section(records, report.memory_by_million(samples.memories), conditions)
    click.echo(body)
    report.write_section(page, "rss", body)


def memory_section(records: int, steps: Sequence[report.Memory], conditions: Sequence[str]) -> str:
    growth = report.growth_of(steps, lambda step: step.total_mib)
    verdict = "bounded" if growth <= report.MEMORY_GROWTH_MAX else "**not bounded**"
    return "\n\n".join(
        [
            "## Memory",
            f"A keyed count over {records:,} records of {MEMORY_RECORD_BYTES} bytes and {KEY_COUNT:,} keys. "
            "The largest proportional set size (MiB; pages that several processes share are counted once, pages of the "
            "local store's file that are mapped are counted) within each million:",
            report.memory_table(steps),
            f"From the second million to the last: x {growth:.2f} (at most {report.MEMORY_GROWTH_MAX} counts as "
            f"bounded): {verdict}.",
            "Conditions:",
            report.bullets(conditions),
        ]
    )


@main.command()
@click.option("--records", default=AUDIT_RECORDS, show_default=True)
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    default=PAGE,
    help="Page to write [default: docs/internals/performance.md].",
)
def audit(records: int, page: Path) -> None:
    """A long coordinator stream, and a job of 10,000 tasks; up to half an hour."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    with bench() as at:
        begun_s = time.monotonic()
        live = publish_history(at.servers, records)
        file, sink = at.directory / "stream.avro", Path(os.devnull)
        commands = (
            ("stream", "state", "-o", "json"),
            ("stream", "replay", "-o", "jsonl"),
            ("stream", "replay"),
            ("stream", "replay", "--key", "container/"),
            ("stream", "verify"),
            ("stream", "export", str(file)),
            ("stream", "state", "-o", "json", "--from", str(file)),
            ("task", "explain", "SystemStreamPartition_kafka.orders.7"),
        )
        click.echo(f"published {records:,} records, {live:,} live keys, in {time.monotonic() - begun_s:.0f} s")
        runs = []
        for command in commands:
            runs.append(timed(at.servers, *command, out=sink))
            click.echo(runs[-1].text)
        large = [large_job(at.servers)]
    one = large[0]
    body = "\n\n".join(
        [
            "## Audit",
            f"A coordinator stream of {records:,} records with {live:,} live keys, read by each command to its end; to "
            f"be reached: at most {AUDIT_WALL_S_MAX} s and {AUDIT_RSS_MIB_MAX} MiB.",
            report.table(
                ("command", "s", "CPU s", "memory MiB", "load", ""),
                [
                    (
                        f"`samzapy {run.command}`",
                        f"**{run.wall_s:.1f}**",
                        f"{run.cpu_s:.1f}",
                        f"{run.rss_mib:.0f}",
                        f"{run.load:.0f}",
                        "pass" if run.wall_s <= AUDIT_WALL_S_MAX and run.rss_mib <= AUDIT_RSS_MIB_MAX else "**fail**",
                    )
                    for run in runs
                ],
            ),
            f"A job of {one.tasks:,} tasks on 100 processors: planned in {one.plan_s:.2f} s (to be reached: 1), "
            f"written in one transaction in {one.publish_s:.2f} s and read back into a job model in {one.read_s:.2f} s "
            f"(to be reached together: 3; of CPU they took {one.cpu_s:.2f} s).",
            "Conditions:",
            report.bullets(
                [
                    f"{machine(begun, load_before)} One run each.",
                    *busy([load_before, *(run.load for run in runs)]),
                    "Wall time from the start of the process to its end, Python's own start included; memory is the "
                    "largest resident set, and at least that of the benchmark, which starts it. Output goes to "
                    "/dev/null. The broker is on the same machine.",
                    versions("confluent-kafka", "fastavro"),
                ]
            ),
        ]
    )
    click.echo(body)
    report.write_section(page, "audit", body)


@main.command()
@click.option("--containers", default=CONTAINERS, show_default=True)
@click.option("--seconds", default=BEATS_MEASURE_S, show_default=True, help="Measured time of each interval.")
@click.option("--viewers", default=20, show_default=True, help="Browsers that show the coordinator's page meanwhile.")
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    default=PAGE,
    help="Page to write [default: docs/internals/performance.md].",
)
def heartbeats(containers: int, seconds: float, viewers: int, page: Path) -> None:
    """How long a coordinator on one core takes to answer heartbeats; ten minutes."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    runs = []
    with bench() as at, Fleet(at.servers, containers) as fleet:
        begun_s = time.monotonic()
        fleet.start(core=0)
        started_s = time.monotonic() - begun_s
        click.echo(f"{containers} containers have a task each after {started_s:.0f} s")
        for interval_ms in INTERVALS_MS:
            with fleet.watched(viewers):
                runs.append(fleet.measure(interval_ms, seconds))
            click.echo(f"{interval_ms} ms: p99 {runs[-1].p99_ms:.1f} ms, {runs[-1].unanswered} unanswered")
    body = "\n\n".join(
        [
            "## Heartbeats",
            f"{containers:,} containers, each with a task, and one coordinator that is held to one core; to be reached "
            f"at {INTERVALS_MS[0] // 1000} s: p99 of at most {P99_MS_MAX:.0f} ms.",
            report.table(
                (
                    "interval",
                    "answers per s",
                    "p50 ms",
                    "p99 ms",
                    "longest ms",
                    "begun late, p99 ms",
                    "not answered",
                    "of its core",
                    "load",
                    "",
                ),
                [
                    (
                        f"{run.interval_ms / 1000:g} s",
                        f"{len(run.answer_ms) / seconds:.0f}",
                        f"{percentile(run.answer_ms, 50.0):.1f}",
                        f"**{run.p99_ms:.1f}**",
                        f"{max(run.answer_ms):.0f}",
                        f"{run.late_p99_ms:.1f}",
                        f"{run.unanswered}",
                        f"{run.cpu_share:.0%}",
                        f"{run.load:.1f}",
                        "-"
                        if run.interval_ms != INTERVALS_MS[0]
                        else "pass"
                        if run.p99_ms <= P99_MS_MAX
                        else "**fail**",
                    )
                    for run in runs
                ],
            ),
            "Conditions:",
            report.bullets(
                [
                    f"{machine(begun, load_before)} {seconds:.0f} s at each interval.",
                    *busy([load_before, *(run.load for run in runs)]),
                    f"{viewers} viewers of the page load their view whenever there is something new.",
                    "From before the connection is made to the whole answer, as the client of a container sees it. All "
                    "containers are in one Python process on the other core, with the broker, so its own waiting is "
                    "in the figures. *Begun late*: how long after it was due a heartbeat began, which is theirs.",
                    "Each container keeps its connection. A heartbeat names the grant that it holds, and is handed to "
                    f"the coordinator. Registering them all, planning and granting took {started_s:.0f} s.",
                    versions("starlette", "uvicorn", "confluent-kafka"),
                ]
            ),
        ]
    )
    click.echo(body)
    report.write_section(page, "heartbeats", body)


@main.command()
@click.option("--containers", default=CONTAINERS, show_default=True)
@click.option("--seconds", default=BEATS_MEASURE_S, show_default=True, help="For each way.")
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    default=PAGE,
    help="Write there [default: docs/internals/performance.md].",
)
def connections(containers: int, seconds: float, page: Path) -> None:
    """Heartbeats over TLS on kept and on new connections; seven minutes."""
    begun, load_before = datetime.datetime.now(datetime.UTC), load()
    with bench() as at:
        runs = measure_connections(at.servers, at.directory, containers, seconds)
    conditions = [
        f"{machine(begun, load_before)} {seconds:g} s for each way.",
        *busy([load_before, *(run.answers.load for run in runs)]),
        versions("starlette", "uvicorn", "confluent-kafka"),
    ]
    body = connections_section(containers, runs, conditions)
    click.echo(body)
    report.write_section(page, "connections", body)


@main.command()
@click.option("--only", multiple=True, type=click.Choice(list(PARTS)), help="Parts [default: all].")
@click.option("--quick", is_flag=True, help="Small sizes, for a check of the bench itself.")
@click.option("--seed", default=1, show_default=True, help="The seed of random choices.")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Page to write [default: docs/internals/performance.md if whole]."
)
def scale(only: tuple[str, ...], quick: bool, seed: int, page: Path | None) -> None:
    """The cost of elasticity and the wait of keys; an hour, or a part at a time."""
    parts = [part for part in PARTS if part in only or not only]
    target = page or (None if only or quick else PAGE)
    with tempfile.TemporaryDirectory(prefix="samzapy-bench-") as scratch, ExitStack() as stack:
        servers, directory = "", Path(scratch)
        if set(parts) - set(WITHOUT_BROKER):
            at = stack.enter_context(bench())
            servers, directory = at.servers, at.directory
        for part in parts:
            body = section(part, Ground(servers=servers, directory=directory, is_quick=quick, seed=seed))
            if target is not None:
                report.write_section(target, f"scale-{part}", body)


@main.command()
@click.option("--only", multiple=True, type=click.Choice(list(PLACEMENTS)), help="Parts [default: all].")
@click.option("--quick", is_flag=True, help="Little state and one of each, for a check of the bench itself.")
@click.option("--state-mb", type=click.IntRange(min=1), default=STATE_MB, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The seed of random choices.")
@click.option(
    "--page", type=click.Path(path_type=Path), help="Page to write [default: docs/internals/performance.md if whole]."
)
def placement(only: tuple[str, ...], quick: bool, state_mb: int, seed: int, page: Path | None) -> None:
    """How long keys wait when a container moves or is lost; a quarter of an hour."""
    target = page or (None if only or quick or state_mb != STATE_MB else PAGE)
    with bench() as at:
        ground = Ground(servers=at.servers, directory=at.directory, is_quick=quick, seed=seed)
        for part in PLACEMENTS:
            if part in only or not only:
                body = placement_section(part, ground, state_mb)
                if target is not None:
                    report.write_section(target, f"placement-{part}", body)


if __name__ == "__main__":
    main()

"""Event time in a whole job in memory: which task closes windows, and when."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from samzapy.container.task.coverage import Coverage
from samzapy.errors import ConfigError, TaskError
from samzapy.model.ssp import SystemStreamPartition
from samzapy.plan.elasticity import key_bucket
from samzapy.testing.job import MemoryJob
from samzapy.testing.memory.kafka import MemoryProducer
from samzapy.testing.memory.process import CrashAt, Trace
from samzapy.testing.memory.topics import MemoryTopics

_JOB = """
import samzapy as sz

orders = sz.Stream("kafka.orders", key=sz.String, value=sz.Long{event_time})
rates = sz.Stream("kafka.rates", key=sz.String, value=sz.Long)
results = sz.Stream("kafka.results", key=sz.String, value=sz.Json())

@sz.task(inputs=[orders{inputs}], outputs=[results])
class PerMinute(sz.Task[str, int]):
    totals = sz.map(sz.Timestamp, sz.Long)
    over = sz.timer("event")

    def process(self, message, out):
        start = message.time_ms // 60_000 * 60_000
        watermark_ms = self.context.watermark_ms
        if watermark_ms is not None and start + 60_000 <= watermark_ms:
            out.send(results, ["late", message.value], key=message.key)
            return
        self.totals.put(start, (self.totals.get(start) or 0) + message.value)
        self.over.set(start + 60_000, tag=str(start))

    @over.fires
    def send_total(self, timer, out):
        start = int(timer.tag)
        out.send(results, [start, self.totals.get(start)], key=timer.key)
        self.totals.delete(start)
"""
_PROPERTIES = "job.name=minutes\nsystems.kafka.bootstrap.servers=localhost:1\nlocal.store.dir=/data\n"
T = 1_699_999_980_000
"""A full minute, 20 s before the time at which a job in memory begins."""
KEYS = "abcdefgh"
IDLE_S = 30
"""`task.event.time.idle.ms` by default."""


def a_job_file(tmp_path: Path, *, inputs: str = "", event_time: str = "") -> Path:
    path = tmp_path / "minutes.py"
    path.write_text(_JOB.format(inputs=inputs, event_time=event_time))
    path.with_suffix(".properties").write_text(_PROPERTIES)
    return path


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with MemoryJob(a_job_file(tmp_path), partitions=1) as job:
        yield job


def send(job: MemoryJob, key: str, value: int, at_s: float, stream: str = "orders") -> None:
    job.send(stream, value, key=key, timestamp_ms=T + round(1000 * at_s))


def write(job: MemoryJob, stream: str, at_s: float, value: bytes = (1).to_bytes(8, "big")) -> None:
    """Put a message on an input, also while the job is down."""
    job._world.kafka.write(stream, 0, [(b"a", value)], timestamp_ms=T + round(1000 * at_s))


def results(job: MemoryJob, key: str | None = None) -> list[list[object]]:
    """Minute and total; the minute counts from T."""
    values = [output.value for output in job.read("results") if key in (None, output.key)]
    return [[(minute - T) // 60_000 if isinstance(minute, int) else minute, total] for minute, total in values]


def of_bucket(bucket: int, factor: int) -> str:
    return next(key for key in map(str, range(1000)) if key_bucket(key.encode(), 0, factor) == bucket)


# --- messages ---


def test_a_minute_closes_before_the_first_message_of_a_later_one(job: MemoryJob) -> None:
    send(job, "a", 1, 10)
    send(job, "a", 2, 59)
    send(job, "a", 4, 60)

    assert [[0, 3]] == results(job)


def test_all_messages_of_one_micro_batch_are_handled_in_event_time(job: MemoryJob) -> None:
    for at_s in (0, 59, 61, 30, 125, 100, 300):
        send(job, "a", 1, at_s)

    assert [[0, 2], ["late", 1], [1, 1], ["late", 1], [2, 1]] == results(job)


def test_an_event_time_of_the_message_counts_in_place_of_that_of_the_record(tmp_path: Path) -> None:
    path = a_job_file(tmp_path, event_time=", event_time=lambda message: message.value")
    with MemoryJob(path, partitions=1) as job:
        for at_s in (5, 65):
            job.send("orders", T + 1000 * at_s, key="a")

        assert [[0, T + 5000]] == results(job)


def test_messages_within_the_disorder_are_not_late(tmp_path: Path) -> None:
    with MemoryJob(a_job_file(tmp_path, event_time=", disorder_ms=5000"), partitions=1) as job:
        for at_s in (0, 64, 58, 65, 59):
            send(job, "a", 1, at_s)

        assert [[0, 2], ["late", 1]] == results(job)


def test_a_message_that_is_far_ahead_of_the_clock_moves_none(job: MemoryJob) -> None:
    send(job, "a", 1, 10)
    send(job, "b", 1, 86_400)
    send(job, "a", 1, 20)

    assert [] == results(job)
    job.advance(seconds=120)
    assert [[0, 2]] == results(job)


def test_a_message_that_is_far_ahead_fails_where_its_stream_is_so_configured(tmp_path: Path) -> None:
    path = a_job_file(tmp_path, event_time=', event_time_ahead="refuse"')
    with MemoryJob(path, partitions=1) as job:
        send(job, "b", 1, 86_400)

        with pytest.raises(
            TaskError, match=r"wanted an event time of at most 1700000300000, which is task.event.time"
        ):
            job.settle()


def test_an_event_time_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = a_job_file(tmp_path, event_time=', event_time=lambda message: "noon"')
    with MemoryJob(path, partitions=1) as job:
        send(job, "a", 1, 10)

        with pytest.raises(TaskError, match=r"minutes.py:4: event_time of kafka.orders: wanted whole milliseconds"):
            job.settle()


# --- inputs that go quiet ---


def test_a_topic_that_becomes_quiet_closes_its_minutes(job: MemoryJob) -> None:
    send(job, "a", 1, 10)

    job.advance(seconds=79)
    assert [] == results(job), "30 s idle, and 50 s to the end of the minute"
    job.advance(seconds=1)
    assert [[0, 1]] == results(job)


@pytest.mark.parametrize(
    ("fails", "value"),
    [("        1 // message.value\n", (0).to_bytes(8, "big")), ("", b"no number")],
    ids=["in its handler", "in its serde"],
)
def test_an_input_whose_messages_fail_is_not_quiet(tmp_path: Path, fails: str, value: bytes) -> None:
    path = a_job_file(tmp_path)
    path.write_text(_JOB.format(inputs="", event_time="").replace("message, out):\n", f"message, out):\n{fails}", 1))
    dead = {"task.error.policy": "dead-letter", "task.dead.letter.output": "kafka.dead"}
    with MemoryJob(path, partitions=1, settings=dead) as job:
        send(job, "a", 1, 10)
        for _ in range(8):
            job.advance(seconds=10)
            write(job, "orders", 11, value)
        job.settle()
        send(job, "a", 2, 59)

        assert [] == results(job)
        job.advance(seconds=IDLE_S + 1)
        assert [[0, 3]] == results(job)
        assert 8 == len(job.dead_letters())


def test_a_key_bucket_that_is_quiet_in_a_busy_partition_closes_its_minutes(job: MemoryJob) -> None:
    quiet, busy = of_bucket(1, 8), of_bucket(2, 8)
    job.scale(8)
    send(job, quiet, 1, 20)

    at_s = 20
    while not (closed := results(job, quiet)) and at_s < 200:
        send(job, busy, 1, at_s)
        job.advance(seconds=1)
        at_s += 1

    assert [[0, 1]] == closed
    assert 60 <= at_s <= 60 + IDLE_S + 2


def test_a_quiet_topic_closes_nothing_where_it_is_to_hold_time(tmp_path: Path) -> None:
    never = {"task.event.time.idle.ms": "0"}
    with MemoryJob(a_job_file(tmp_path), partitions=1, settings=never) as job:
        send(job, "a", 1, 10)
        job.advance(hours=1)

        assert [] == results(job)


def test_an_input_without_any_message_does_not_hold_the_others(tmp_path: Path) -> None:
    with MemoryJob(a_job_file(tmp_path, inputs=", rates"), partitions=1) as job:
        send(job, "a", 1, 10)
        send(job, "a", 1, 70)

        assert [[0, 1]] == results(job)


def test_an_input_that_lags_behind_holds_the_others(tmp_path: Path) -> None:
    with MemoryJob(a_job_file(tmp_path, inputs=", rates"), partitions=1) as job:
        send(job, "a", 1, 10)
        send(job, "a", 1, 20, stream="rates")
        send(job, "a", 1, 150)
        assert [] == results(job)

        send(job, "a", 1, 100, stream="rates")
        assert [[0, 2]] == results(job)


def test_a_backlog_is_read_before_any_clock_runs(job: MemoryJob) -> None:
    """The job was down for an hour, in which messages came on time."""
    send(job, "a", 1, 10)
    job.settle()
    job._world.container.kill()
    for number in range(60):
        job._world.clock.jump_wall(60_000)
        write(job, "orders", 60 * number + 65)
    job.pace.batch_max = 1
    job._world.start()

    job.advance(minutes=5)

    assert [[number, 1] for number in range(61)] == results(job)


def test_an_open_transaction_in_an_input_holds_its_clock(job: MemoryJob) -> None:
    """Others may have committed messages behind it, which no reader has read yet."""
    send(job, "a", 1, 10)
    job.settle()
    other = MemoryProducer(job._world.kafka, "another", Trace(), CrashAt())
    other.begin()
    other.produce("orders", b"b", (1).to_bytes(8, "big"), 0, None, T + 15_000)
    send(job, "a", 1, 20)

    job.advance(hours=1)
    assert [] == results(job)

    other.commit()
    job.settle()
    job.advance(minutes=2)
    assert [[0, 2]] == results(job, "a") and [[0, 1]] == results(job, "b")


def test_an_input_that_a_query_leaves_out_holds_the_others(tmp_path: Path) -> None:
    """Bootstrap inputs are read first, and have no clocks alone."""
    first = {"systems.kafka.streams.rates.samza.bootstrap": "true"}
    with MemoryJob(a_job_file(tmp_path, inputs=", rates"), partitions=1, settings=first) as job:
        send(job, "a", 1, 5)
        send(job, "a", 1, 6, stream="rates")
        job.settle()
        job._world.container.kill()
        for at_s in (100, 200):
            write(job, "rates", at_s)
        for at_s in (10, 70):
            write(job, "orders", at_s)
        job._world.start()

        assert [[0, 3]] == results(job)
        job.fire_event_timers()
        assert [[0, 3], [1, 2], [3, 1]] == results(job)


# --- operators and faults ---


@pytest.mark.parametrize("factors", [(2,), (8, 1), (1, 4, 2, 1)])
def test_minutes_close_once_over_changes_of_the_factor(job: MemoryJob, factors: tuple[int, ...]) -> None:
    for key in KEYS:
        send(job, key, 1, 10)
    for step, factor in enumerate(factors, start=1):
        job.scale(factor)
        for key in KEYS:
            send(job, key, 1, 10 + 70 * step)

    job.fire_event_timers()

    expected = [[(10 + 70 * step) // 60, 1] for step in range(len(factors) + 1)]
    assert {key: expected for key in KEYS} == {key: results(job, key) for key in KEYS}


def test_a_message_that_was_late_for_a_key_stays_late_after_a_merge(job: MemoryJob) -> None:
    ahead, behind = of_bucket(1, 2), of_bucket(0, 2)
    job.scale(2)
    send(job, behind, 1, 10)
    send(job, ahead, 1, 10)
    send(job, ahead, 1, 70)
    assert [[0, 1]] == results(job, ahead)

    job.scale(1)
    send(job, ahead, 1, 20)
    send(job, behind, 1, 20)

    assert [[0, 1], ["late", 1]] == results(job, ahead)
    job.fire_event_timers()
    assert [[0, 1], ["late", 1], [1, 1]] == results(job, ahead)
    assert [[0, 2]] == results(job, behind)


@pytest.mark.parametrize("loses_disk", [False, True])
def test_a_container_that_dies_keeps_its_watermark(job: MemoryJob, loses_disk: bool) -> None:
    send(job, "a", 1, 10)
    send(job, "b", 1, 70)
    assert [[0, 1]] == results(job, "a")

    job.crash(loses_disk=loses_disk)
    send(job, "a", 1, 20)

    assert [[0, 1], ["late", 1]] == results(job, "a")


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_moves_no_clock_of_an_input(job: MemoryJob, hours: int) -> None:
    send(job, "a", 1, 10)
    job.settle()

    job.jump_clock(hours=hours)

    job.advance(seconds=79)
    assert [] == results(job)
    job.advance(seconds=1)
    assert [[0, 1]] == results(job)


def test_a_quiet_minute_closes_once_on_another_host(job: MemoryJob) -> None:
    """Each host counts from its own boot."""
    send(job, "a", 1, 10)
    job.advance(seconds=40)

    job.move()

    job.advance(seconds=39)
    assert [] == results(job)
    job.advance(seconds=1)
    job.move()
    assert [[0, 1]] == results(job)


def test_a_timer_that_is_set_stays_at_a_rewind(job: MemoryJob) -> None:
    send(job, "a", 1, 10)
    job.settle()

    job.rewind("orders", "newest")
    assert [] == results(job)

    send(job, "b", 1, 70)
    job.fire_event_timers()
    assert [[0, 1]] == results(job, "a")


def test_a_rewound_input_begins_without_a_clock(job: MemoryJob) -> None:
    send(job, "a", 1, 10)
    send(job, "a", 2, 70)
    assert [[0, 1]] == results(job)

    job.rewind("orders", "oldest")

    assert [[0, 1], [0, 1]] == results(job), "nothing of it is late"


# --- declarations ---


@pytest.mark.parametrize(
    ("event_time", "reason"),
    [
        (", disorder_ms=-1", "wanted disorder_ms in whole milliseconds, 0 or more, at most 10{15}, .*, found -1"),
        (", disorder_ms=1.5", "wanted disorder_ms in whole milliseconds, 0 or more, at most 10{15}, .*, found 1.5"),
        (", disorder_ms=0.0", "wanted disorder_ms in whole milliseconds, 0 or more, at most 10{15}, .*, found 0.0"),
        (
            ", disorder_ms=10**15 + 1",
            "wanted disorder_ms in whole milliseconds, .*, at most 10{15}, .*, found 10{14}1",
        ),
        (", event_time=5", "wanted event_time as a function of the message, found 5"),
        (', event_time_ahead="drop"', "wanted event_time_ahead as take or refuse, found 'drop'"),
    ],
)
def test_a_wrong_declaration_names_its_place(tmp_path: Path, event_time: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"minutes.py:4: stream kafka.orders: {reason}"):
        MemoryJob(a_job_file(tmp_path, event_time=event_time))


def test_clocks_are_kept_in_a_store_of_their_own(job: MemoryJob) -> None:
    send(job, "a", 1, 10)

    assert "_clocks" in job.stores()
    entries: Mapping[object, Mapping[str, object]] = job.state("_clocks")
    assert [T + 10_000] == [entry["watermark_ms"] for entry in entries.values()]


# --- without one of the safeguards it goes wrong ---


def test_coverage_by_the_last_stable_offset_would_close_too_early(
    job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction hides the messages behind it."""

    def stable(topics: MemoryTopics, ssps: Sequence[SystemStreamPartition], wait_ms: int) -> Mapping[object, int]:
        return {ssp: bounds.offset_end for ssp, bounds in topics.input_bounds(ssps, wait_ms).items()}

    monkeypatch.setattr(MemoryTopics, "input_high_watermarks", stable)

    with pytest.raises(AssertionError):
        test_an_open_transaction_in_an_input_holds_its_clock(job)


def idle(coverage: Coverage[Hashable], place: Hashable, offset_next: int) -> int | None:
    """Coverage by time alone, wherever the reader stands."""
    ends = coverage._ends.get(place)
    return ends[-1][0] if ends else None


def test_coverage_by_an_idle_time_out_would_close_too_early(job: MemoryJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle time-out passes, too, while a reader lags."""
    monkeypatch.setattr(Coverage, "covered_ms", idle)

    with pytest.raises(AssertionError):
        test_an_open_transaction_in_an_input_holds_its_clock(job)

from __future__ import annotations

import errno
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from samzapy.adapters.spark.arrow_bound import ArrowBound
from samzapy.adapters.spark.ends_file import EndsFile
from samzapy.adapters.spark.query import (
    BatchFailedError,
    SparkQuery,
    _collected,
    _Run,
    _TickJobs,
    is_direct,
    kind_of,
    reason_of,
    source_options,
    without_checkpoint,
)
from samzapy.container.batch_limit import BatchLimiter
from samzapy.container.ports import BatchDone, EndsSeen, QueryFailed
from samzapy.container.task.lookup_table import lookup_table
from samzapy.errors import (
    BrokerUnavailableError,
    FencedError,
    ProducerError,
    SamzapyError,
    SlowMessageError,
    UndeliveredError,
)
from samzapy.model.grant import BucketStart, Floor
from samzapy.model.job import TaskName
from samzapy.testing.builders import a_work_plan, an_ssp_kb
from unit_tests.fixtures.container_worlds import a_job
from unit_tests.fixtures.unbounded_rows import NoBound


def a_query(scratch_dir: Path) -> SparkQuery:
    return SparkQuery(
        cast(SparkSession, None),
        worker_entry="no.module:run",
        bootstrap_servers="localhost:9092",
        kafka_options={},
        scratch_dir=scratch_dir,
    )


def test_a_query_begins_without_the_checkpoint_of_an_earlier_one(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "7").write_text("v1")

    assert checkpoint == without_checkpoint(checkpoint)
    assert not checkpoint.exists()


def test_a_query_that_was_never_started_has_no_events_and_can_be_drained_and_stopped(tmp_path: Path) -> None:
    query = a_query(tmp_path)

    query.stop()

    assert (True, None) == (query.drain(0), query.next_event(0))


FULL = OSError(errno.ENOSPC, "No space left on device", "/scratch/x")


class JvmFailure(Py4JJavaError):  # type: ignore[misc]
    """An error of the JVM, without the JVM."""

    def __init__(self) -> None:
        """The text of py4j has to come from the JVM."""

    def __str__(self) -> str:
        return (
            "An error occurred while calling o7.start.\n: java.io.IOException: No space left on device\n"
            "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
        )


def a_query_that_cannot_start(scratch_dir: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> SparkQuery:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("samzapy.adapters.spark.query.add_exact_source", fail)
    query, run = a_query(scratch_dir), a_run(scratch_dir)
    run.may_have_failed_of_a_time = True
    query._bound, query._run = cast(ArrowBound, NoBound()), run
    return query


@pytest.mark.parametrize("error", [FULL, JvmFailure()])
def test_a_disk_that_is_full_at_the_start_of_a_query_is_a_failure_that_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    query = a_query_that_cannot_start(tmp_path, monkeypatch, error)

    query.start(a_work_plan(), {})
    event = query.next_event(0)
    query.stop()
    query.start(a_work_plan(), {})

    assert isinstance(event, QueryFailed) and "No space left on device" in event.reason and not event.is_outage
    assert event == query.next_event(0)


def test_a_jvm_that_is_gone_at_the_start_of_a_query_ends_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = a_query_that_cannot_start(tmp_path, monkeypatch, ConnectionRefusedError("no JVM"))

    with pytest.raises(ConnectionRefusedError):
        query.start(a_work_plan(), {})


def test_a_full_disk_delays_the_ends_of_the_inputs_and_stops_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    query, run, file = a_query(tmp_path), a_run(tmp_path), EndsFile(tmp_path)
    query._run = run
    seen = EndsSeen(at_ms=1000, ends={}, covered_ms={})

    with monkeypatch.context() as full:
        full.setattr(Path, "write_bytes", _fail_of_a_full_disk)
        query.note_ends(seen)
        query.note_ends(seen)
        assert not file.look(run.query_number)
    query.note_ends(seen)

    assert file.look(run.query_number)
    assert 1 == caplog.text.count("No space left on device")


def _fail_of_a_full_disk(*_: object) -> int:
    raise FULL


@pytest.mark.parametrize(
    ("routes", "floors", "ns"),
    [
        ([("a", "kafka.orders.0:0/1"), ("b", "kafka.rules.0@b")], (), 0.0),
        ([("a", "kafka.orders.0:0/2"), ("b", "kafka.rules.0@b")], (), 2.5),
        # A merged task, until it has passed the position of the part that was ahead.
        ([("a", "kafka.orders.0:0/1")], ("kafka.orders.0:1/2",), 2.5),
    ],
)
def test_a_key_hash_costs_something_only_where_keys_are_hashed(
    tmp_path: Path, routes: list[tuple[str, str]], floors: tuple[str, ...], ns: float
) -> None:
    plan, query = a_work_plan(*routes), a_query(tmp_path)
    floor = tuple(Floor(ssp_kb=an_ssp_kb(text), offset_next=9) for text in floors)
    plan = replace(plan, routes=(replace(plan.routes[0], floors=floor), *plan.routes[1:]))
    query._keyhash.ns = 2.5  # Measured under the factor before.
    query._query = cast(StreamingQuery, object())
    query._run = _Run(plan, "no.module:run", tmp_path, ArrowBound(cores=1, rows_max=1))
    query._run.events.put(BatchDone(reports=(), offsets_end={}))

    event = query.next_event(0)

    assert isinstance(event, BatchDone)
    assert ns == event.keyhash_ns
    starts = [BucketStart(ssp_kb=route.ssp_kb, offset_next=0, floors=route.floors) for route in plan.routes]
    assert (lookup_table(starts).factor > 1) is (ns > 0)


def test_a_signal_whose_handler_outlasts_the_time_limit_keeps_no_query_waiting(tmp_path: Path) -> None:
    """A job that was asked to stop waited for its next event until it was killed."""
    query = a_query(tmp_path)
    query._query = cast(StreamingQuery, SimpleNamespace(isActive=True))
    query._run = _Run(a_work_plan(), "no.module:run", tmp_path, ArrowBound(cores=1, rows_max=1))
    late = threading.Timer(20.0, query._run.events.put, [BatchDone(reports=(), offsets_end={})])
    handled: list[float] = []

    def handle(*_: object) -> None:
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + 0.3:
            pass
        handled.append(begun_s)

    before = signal.signal(signal.SIGALRM, handle)
    try:
        late.start()
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert query.next_event(200) is None
    finally:
        signal.signal(signal.SIGALRM, before)
        late.cancel()
    assert len(handled) == 1


class AFrameThatFails:
    sparkSession = None

    def __init__(self) -> None:
        self.collected = 0

    def collect(self) -> None:
        self.collected += 1
        trace = "".join(f'  File "worker.py", line {number}, in work\n' for number in range(2000))
        raise RuntimeError(
            f"Job aborted. Traceback (most recent call last):\n{trace}ValueError: wanted a slot, found none\n"
        )


def test_a_failed_warm_up_raises_a_short_error_in_spark() -> None:
    with pytest.raises(BatchFailedError) as failed:
        _collected(cast(DataFrame, AFrameThatFails()), 0)

    assert "ValueError: wanted a slot, found none" == str(failed.value)
    assert failed.value.__suppress_context__, "Spark gets the trace of an error with all its causes"


class ASessionThatFails:
    def __getattr__(self, name: str) -> object:
        raise RuntimeError("Python worker exited unexpectedly (crashed)")


def a_run(tmp_path: Path) -> _Run:
    return _Run(a_work_plan(), "no.module:run", tmp_path, cast(ArrowBound, NoBound()))


NO_SESSION = cast(SparkSession, ASessionThatFails())


def test_no_tick_begins_after_a_micro_batch_that_failed(tmp_path: Path) -> None:
    """Its worker may have committed to Kafka what the local state does not have."""
    run = a_run(tmp_path)

    with pytest.raises(BatchFailedError):
        run.on_batch(cast(DataFrame, AFrameThatFails()), 1)

    assert not run.tick(NO_SESSION, ())
    assert not run.lock.locked()


def test_no_tick_begins_that_waits_for_the_lock_while_a_micro_batch_fails(tmp_path: Path) -> None:
    run = a_run(tmp_path)

    class TheLockOfABatchThatFails:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def acquire(self, *, blocking: bool) -> bool:
            with self.lock, pytest.raises(BatchFailedError):
                raise run._failed(RuntimeError("Python worker exited unexpectedly (crashed)"))
            return self.lock.acquire(blocking)

        def release(self) -> None:
            self.lock.release()

    lock = TheLockOfABatchThatFails()
    run.lock = cast(threading.Lock, lock)

    assert not run.tick(NO_SESSION, ())
    assert not lock.lock.locked()


def test_no_micro_batch_begins_after_a_tick_that_failed(tmp_path: Path) -> None:
    run, frame = a_run(tmp_path), AFrameThatFails()

    assert run.tick(NO_SESSION, ())
    assert isinstance(run.events.get(timeout=10), QueryFailed)
    run.on_batch(cast(DataFrame, frame), 1)

    assert 0 == frame.collected


def test_a_tick_has_a_spark_task_for_the_one_share_that_has_due_timers() -> None:
    names = [TaskName(f"p{number}") for number in range(5)]
    plan = a_work_plan(*((name, f"kafka.views.{number}") for number, name in enumerate(names)), slot_count=2)
    jobs = _TickJobs(plan, "no.module:run")

    assert range(1, 2) == jobs.shares_of({names[1], names[3]})
    assert range(0, 1) == jobs.shares_of({names[4]})
    assert range(2) == jobs.shares_of({names[0], names[1]})
    assert range(2) == jobs.shares_of(())
    assert range(1, 2) == jobs.shares_of({names[1], TaskName("of no route of this query")})


class SlowTickJobs:
    """Jobs of ticks that run until a test lets them end."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.cancelled = 0

    def begin(self) -> int:
        return 1

    def shares_of(self, tasks: object) -> range:
        return range(2)

    def run(self, session: object, shares: range) -> tuple[()]:
        self.begun.set()
        assert self.may_end.wait(timeout=10)
        return ()

    def cancel(self, session: object) -> None:
        self.cancelled += self.begun.is_set() and not self.may_end.is_set()


@pytest.fixture
def ticking(tmp_path: Path) -> Iterator[tuple[SparkQuery, _Run, SlowTickJobs]]:
    query, run, jobs = a_query(tmp_path), a_run(tmp_path), SlowTickJobs()
    run._tick_jobs = jobs  # type: ignore[assignment]
    query._run = run
    assert run.tick(NO_SESSION, ()) and jobs.begun.wait(timeout=10)
    yield query, run, jobs
    jobs.may_end.set()


def test_a_drain_during_a_tick_waits_for_it_and_begins_no_other(
    ticking: tuple[SparkQuery, _Run, SlowTickJobs],
) -> None:
    query, run, jobs = ticking
    drained: list[bool] = []
    draining = threading.Thread(target=lambda: drained.append(query.drain(10_000)))

    draining.start()
    assert run.draining.wait(timeout=10) and draining.is_alive()
    jobs.may_end.set()
    draining.join(timeout=10)

    assert [True] == drained and 0 == jobs.cancelled
    event = run.events.get_nowait()
    assert isinstance(event, BatchDone) and event.is_tick
    assert not run.tick(NO_SESSION, ())


def test_a_tick_that_outlasts_the_drain_is_cancelled(ticking: tuple[SparkQuery, _Run, SlowTickJobs]) -> None:
    query, run, jobs = ticking

    assert not query.drain(0)

    assert 1 == jobs.cancelled and not run.tick(NO_SESSION, ())


def test_a_tick_that_takes_long_makes_no_micro_batch_smaller(ticking: tuple[SparkQuery, _Run, SlowTickJobs]) -> None:
    """A window that took over a minute had the query started again and again."""
    query, run, jobs = ticking
    limiter = BatchLimiter(a_job(task_batch_max_ms="1"))
    limiter.batch_ended(0, 0)
    begun_ns = time.monotonic_ns()
    while time.monotonic_ns() < begun_ns + 5_000_000:
        pass

    assert 0 == query.batch_runs_ms() and "" == limiter.change(query.batch_runs_ms())

    jobs.may_end.set()
    assert isinstance(run.events.get(timeout=10), BatchDone)
    assert run.lock.acquire(timeout=10)
    assert 0 == query.batch_runs_ms()


@pytest.mark.parametrize("error", ["AssertionError", "asyncio.exceptions.TimeoutError", "KeyboardInterrupt"])
def test_an_error_without_a_text_is_reported_by_its_name(error: str) -> None:
    text = (
        'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "worker.py", line 1, '
        f"in call\n{error}\n\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)"
    )

    assert error == reason_of(text)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            "samzapy.errors.UndeliveredError: wanted all records written within 30 s, found 3 unwritten",
            UndeliveredError,
        ),
        ("samzapy.errors.BrokerUnavailableError: no broker answered", BrokerUnavailableError),
        ("samzapy.errors.SlowMessageError: task a failed at kafka.orders.0 offset 7", SlowMessageError),
        ("samzapy.errors.FencedError: the transaction timed out", FencedError),
        ("samzapy.errors.ExitCode: no error at all", SamzapyError),
        ("ValueError: samzapy.errors.BrokerUnavailableError: words of somebody else", SamzapyError),
    ],
)
def test_the_error_of_a_failed_worker_is_read_from_its_text(error: str, kind: type[SamzapyError]) -> None:
    text = (
        'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "worker.py", line 1, '
        f"in call\n{error}\n\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)"
    )

    assert kind is kind_of(reason_of(text))


@pytest.mark.parametrize(
    ("kind", "is_outage"),
    [
        (UndeliveredError, True),
        (BrokerUnavailableError, True),
        (ProducerError, False),
        (FencedError, False),
        (SlowMessageError, False),
    ],
)
def test_unavailable_brokers_are_distinguished_from_other_failures_of_a_worker(
    kind: type[SamzapyError], is_outage: bool
) -> None:
    assert is_outage is QueryFailed(reason="it failed", kind=kind).is_outage


def test_routes_are_grouped_by_task() -> None:
    assert ((0, 1), (2,)) == a_work_plan(("a", "kafka.x.0:0/1"), ("a", "kafka.y.0:0/1"), ("b", "kafka.x.1:0/1")).tasks


@pytest.mark.parametrize(
    ("routes", "direct"),
    [
        ([("a", "kafka.orders.0:0/1"), ("b", "kafka.orders.1:0/1")], True),
        ([("a", "kafka.orders.0:0/1"), ("b", "kafka.refunds.0:0/1")], True),
        ([("a", "kafka.orders.0:0/1"), ("a", "kafka.orders.1:0/1")], False),
        ([("a", "kafka.orders.0:0/2"), ("b", "kafka.orders.0:1/2")], False),
        ([("a", "kafka.rules.0@a"), ("b", "kafka.rules.0@b")], False),
    ],
)
def test_the_direct_path_is_for_tasks_with_one_unshared_input_each(
    routes: list[tuple[str, str]], direct: bool
) -> None:
    assert direct is is_direct(a_work_plan(*routes))


def test_the_source_gives_a_broker_that_has_left_the_cluster_up_in_seconds() -> None:
    options = source_options({})

    assert {"5000"} == {options["kafka.request.timeout.ms"], options["kafka.default.api.timeout.ms"]}


@pytest.mark.parametrize("name", ["kafka.request.timeout.ms", "kafka.default.api.timeout.ms"])
def test_an_operator_s_time_out_replaces_both_as_one_may_not_be_shorter_than_the_other(name: str) -> None:
    assert {name: "30000"} == {
        key: value for key, value in source_options({name: "30000"}).items() if "timeout" in key
    }

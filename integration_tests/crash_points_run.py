"""A job under the ledger that dies or stops at named points."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from integration_tests.ledger_run import PARTITIONS, LedgerRun, stopped_in_a_transaction
from integration_tests.support.job_process import JobProcess, kill
from samzapy.adapters.host.crash_points import CrashPoint, arming
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.testing.waiting import wait_until

RECORDS_PER_S = 400
WORK_S = 0.001
_WITHIN_S = 300.0


class Points:
    """Crash points armed for a run, each with the flag file that proves it fired."""

    def __init__(self, directory: Path, hits: Mapping[str, int]) -> None:
        self._points = [
            CrashPoint(name=name, at_hit=hit, flag=directory / f"{name}.flag") for name, hit in hits.items()
        ]
        self.environment = arming(self._points)

    def disarm(self) -> None:
        """Let none of them fire: each flag is there."""
        for point in self._points:
            point.flag.touch()

    def arm(self, name: str) -> None:
        """Let this one fire at its next hit."""
        next(point.flag for point in self._points if point.name == name).unlink()

    def missing(self) -> list[str]:
        return [point.name for point in self._points if not point.flag.exists()]


def a_run(directory: Path, environment: Mapping[str, str], mutant: str | None, **overrides: str) -> LedgerRun:
    chosen = {} if mutant is None else {"SAMZAPY_TEST_MUTANT": mutant}
    return LedgerRun(
        directory,
        seed=1,
        environment={"RUNNING_SUMS_WORK_S": str(WORK_S), **environment, **chosen},
        overrides={name.replace("_", "."): value for name, value in overrides.items()},
    )


def die_at(run: LedgerRun, points: Points) -> None:
    """Let the job die at each crash point but those in ticks.

    Ticks need a pause of the feed. A dead driver is started again.
    """
    run.feed(RECORDS_PER_S)
    run.wait(
        lambda: all(name.startswith("tick-") for name in points.missing()) or None,
        2 * _WITHIN_S,
        "every crash point to fire",
    )


def die_in_ticks(run: LedgerRun, points: Points) -> None:
    """Let the feed pause, and workers die at the crash points in ticks."""
    run.feeder.pause()
    run.wait(lambda: not points.missing() or None, _WITHIN_S, "every crash point in ticks to fire")


def recover_behind_an_open_transaction(run: LedgerRun, patience_s: float) -> bool:
    """Kill a worker while another producer's open transaction hides later commits.

    The transaction is open on the checkpoint topic and the changelog. It ends after `patience_s`, or a thousand
    outputs later.

    Returns whether the job waited for it.
    """
    other_producer = Producer(
        {
            "bootstrap.servers": run.broker.bootstrap_servers,
            "transactional.id": "other-producer",
            "transaction.timeout.ms": 600_000,
        }
    )
    other_producer.init_transactions(30)
    while not hides_what_the_job_commits(other_producer, run):
        # The last crash is reported only now: the job recovers, and would wait for this test as the test waits for it.
        other_producer.abort_transaction(30)
    failures = failures_of(run)
    # One that has just become idle would be replaced, and no query would fail.
    kill(run.wait(lambda: stopped_in_a_transaction(run.job), _WITHIN_S, "a worker with an open transaction"))
    run.wait(lambda: failures_of(run) > failures, _WITHIN_S, "the query to fail")
    # The runtime waits here. Without the safeguard it continues, and has enough time for that.
    recovering_from, give_up_at_s = run.watcher.count(), time.monotonic() + patience_s
    run.wait(
        lambda: run.watcher.count() > recovering_from + 1000 or time.monotonic() > give_up_at_s,
        patience_s + 60,
        "outputs or the end of the patience",
    )
    has_waited = run.watcher.count() <= recovering_from + 1000
    other_producer.abort_transaction(30)
    return has_waited


def hides_what_the_job_commits(other_producer: Producer, run: LedgerRun) -> bool:
    """Whether the job commits 2000 outputs behind an open transaction."""
    run.wait(lambda: is_at_work(run), _WITHIN_S, "the job to have recovered")
    failures, seen = failures_of(run), run.watcher.count()
    run.wait(lambda: run.watcher.count() > seen + 500, _WITHIN_S, "500 outputs")
    other_producer.begin_transaction()
    for topic, partition in [(run.checkpoint, 0), *((run.changelog("sums"), number) for number in range(PARTITIONS))]:
        other_producer.produce(topic, b"never seen", b"never seen", partition)
    assert other_producer.flush(30) == 0
    hidden_from = run.watcher.count()
    run.wait(
        lambda: run.watcher.count() > hidden_from + 2000 or failures_of(run) > failures,
        _WITHIN_S,
        "2000 outputs committed behind it",
    )
    return failures_of(run) == failures


def is_at_work(run: LedgerRun) -> bool:
    """Whether the query that was started last has ended a micro-batch."""
    log = run.job.log_text()
    return log.rfind("the first micro-batch of query") > log.rfind("the query failed")


def failures_of(run: LedgerRun) -> int:
    return run.job.log_text().count("the query failed")


# Lease and time-out are safeguards too, but not the ones under test while a worker is stopped.
PATIENCE = {
    "job_container_lease_ms": "120000",
    "job_container_lost_ms": "130000",
    "task_transaction_timeout_ms": "120000",
}


def standing_still(file: Path, place: str) -> Mapping[str, str]:
    """The environment in which a worker stops at `place`, given as `point@hit`."""
    return {"SAMZAPY_TEST_STAND_STILL": f"{place}={file}"}


def stood_still(run: LedgerRun, file: Path) -> ProcessIdentity:
    """The worker that is stopped there."""
    run.wait(file.exists, _WITHIN_S, "a worker to stop")
    worker = ProcessIdentity.of(int(wait_until(file.read_text, 10.0, "its pid")))
    wait_until(worker.is_stopped, 10.0, "the worker to stop")
    return worker


def woken_up(run: LedgerRun, worker: ProcessIdentity, file: Path) -> str:
    """Continue the worker; returns the outcome of its rows."""
    assert worker.is_stopped(), "no fault: the worker was not stopped until now"
    worker.send(signal.SIGCONT)
    outcome = Path(f"{file}.outcome")
    run.wait(outcome.exists, _WITHIN_S, "the worker to continue")
    return wait_until(outcome.read_text, 10.0, "its outcome")


def wake_up_when_another_one_has_its_task(
    run: LedgerRun, file: Path, next_job: JobProcess, gap: Path | None = None
) -> str:
    """The execution of a stopped worker is lost; returns the outcome of its rows.

    The worker continues after another execution has taken over, or during that, in the gap of a mutant.
    """
    worker = stood_still(run, file)
    # Each other process ends the worker once it notices the end of the driver. So the JVM is stopped too.
    lost, run.job = run.job, next_job
    with lost:
        jvm, driver = lost.jvm(), lost.driver()
        assert jvm is not None and driver is not None
        jvm.send(signal.SIGSTOP)
        wait_until(jvm.is_stopped, 10.0, "the JVM to stop")
        kill(driver)
        before = run.watcher.count()
        if gap is None:
            # The rows of the other worker are among them; it has fewer than a thousand.
            run.wait(lambda: run.watcher.count() > before + 1000, _WITHIN_S, "outputs of the next execution")
        else:
            run.wait(gap.exists, _WITHIN_S, "the take-over to come to the gap")
        outcome = woken_up(run, worker, file)
        if gap is not None:
            gap.unlink()
    return outcome


@contextmanager
def cancelled_before_its_slot(
    directory: Path, mutant: str | None
) -> Iterator[tuple[LedgerRun, ProcessIdentity, Path]]:
    """A run whose micro-batch is ended because a worker is stopped before its slot.

    It returns when the next query has been started. The worker is stopped until then.
    """
    file = directory / "before-its-slot"
    with a_run(directory, standing_still(file, "before-slot@10"), mutant, task_batch_max_ms="4000") as run:
        # After two seconds, as by default, Spark has killed a cancelled worker more often than not.
        patience = ("--conf", "spark.python.task.killTimeout=10min")
        run.job = run.another_job("job", spark_options=("--master", "local[2]", *patience))
        run.feed(RECORDS_PER_S)
        worker = stood_still(run, file)
        queries = queries_of(run)
        run.wait(lambda: queries_of(run) > queries, _WITHIN_S, "the next query", poll_interval_s=0.01)
        yield run, worker, file


def queries_of(run: LedgerRun) -> int:
    return len(re.findall(r"query \d+ starts after", run.job.log_text()))

"""The windows that kills at random seldom hit (design section 13): each is hit by name, and the ledger stays exact.

And the other way round: with one safeguard of the runtime taken out (`jobs/mutants.py`), the same scenario under the
same rules fails. So what the rules pass is due to the safeguard, not to luck.
"""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration_tests.ledger_run import PARTITIONS, LedgerRun, stopped_in_a_transaction
from integration_tests.sizes import FULL, VARIABLE
from integration_tests.support.job_process import JobProcess, kill
from integration_tests.support.ledger import Violation, told
from samzapy.adapters.host.crash_points import CrashPoint, arming
from samzapy.adapters.host.processes import ProcessIdentity
from samzapy.testing.waiting import wait_until

pytestmark = [pytest.mark.ledger, pytest.mark.timeout(900)]

RECORDS_PER_S = 400
WORK_S = 0.001
_WITHIN_S = 300.0

# Counted in each process for itself. Later ones come after more hits, so that transactions end in between.
OF_WORKERS = {
    "before-slot": 2,
    "before-init": 1,
    "before-begin": 3,
    "after-produce": 5,
    "before-commit": 7,
    "after-kafka-commit": 9,
    "after-local-commit": 11,
}
OF_THE_DRIVER = {"after-fence": 2, "after-restore": 2}


class Points:
    """Crash points armed for a run, each with the flag file that proves it fired."""

    def __init__(self, directory: Path, hits: Mapping[str, int]) -> None:
        self._points = [
            CrashPoint(name=name, at_hit=hit, flag=directory / f"{name}.flag") for name, hit in hits.items()
        ]
        self.environment = arming(self._points)

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
    """The job is killed at each of the crash points, and started again when that was the driver."""
    run.feed(RECORDS_PER_S)
    run.wait(lambda: not points.missing() or None, 2 * _WITHIN_S, "every crash point to fire")


def recover_behind_an_open_transaction(run: LedgerRun, patience_s: float) -> bool:
    """Somebody's transaction stays open on the checkpoint topic and the changelog and hides what is committed behind
    it; meanwhile a worker is killed. The transaction ends when its patience does, or a thousand outputs later.

    Returns whether the job waited for it.
    """
    somebody = Producer(
        {
            "bootstrap.servers": run.broker.bootstrap_servers,
            "transactional.id": "somebody",
            "transaction.timeout.ms": 600_000,
        }
    )
    somebody.init_transactions(30)
    while not hides_what_the_job_commits(somebody, run):
        # The last crash was told only now: the job recovers, and would wait for us as we for it.
        somebody.abort_transaction(30)
    failures = failures_of(run)
    # One that has just become idle would be replaced, and no query would fail.
    kill(run.wait(lambda: stopped_in_a_transaction(run.job), _WITHIN_S, "a worker with an open transaction"))
    run.wait(lambda: failures_of(run) > failures, _WITHIN_S, "the query to fail")
    # The runtime waits here. Without the safeguard it goes on, and the time is enough for that.
    recovering_from, give_up_at_s = run.watcher.count(), time.monotonic() + patience_s
    run.wait(
        lambda: run.watcher.count() > recovering_from + 1000 or time.monotonic() > give_up_at_s,
        patience_s + 60,
        "outputs or the end of the patience",
    )
    has_waited = run.watcher.count() <= recovering_from + 1000
    somebody.abort_transaction(30)
    return has_waited


def hides_what_the_job_commits(somebody: Producer, run: LedgerRun) -> bool:
    """Open a transaction and let the job commit 2000 outputs behind it; whether it did, and no query failed."""
    run.wait(lambda: is_at_work(run), _WITHIN_S, "the job to have recovered")
    failures, seen = failures_of(run), run.watcher.count()
    run.wait(lambda: run.watcher.count() > seen + 500, _WITHIN_S, "500 outputs")
    somebody.begin_transaction()
    for topic, partition in [(run.checkpoint, 0), *((run.changelog("sums"), number) for number in range(PARTITIONS))]:
        somebody.produce(topic, b"never seen", b"never seen", partition)
    assert somebody.flush(30) == 0
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


# Lease and time-out are safeguards too, and not the ones that are meant where a worker stands still.
PATIENCE = {
    "job_container_lease_ms": "120000",
    "job_container_lost_ms": "130000",
    "task_transaction_timeout_ms": "120000",
}


def standing_still(file: Path, place: str) -> Mapping[str, str]:
    """The environment in which a worker stands still at `place`, given as `point@hit`."""
    return {"SAMZAPY_TEST_STAND_STILL": f"{place}={file}"}


def stood_still(run: LedgerRun, file: Path) -> ProcessIdentity:
    """The worker that stands still there."""
    run.wait(file.exists, _WITHIN_S, "a worker to stand still")
    worker = ProcessIdentity.of(int(wait_until(file.read_text, 10.0, "its pid")))
    wait_until(worker.is_stopped, 10.0, "the worker to stand still")
    return worker


def woken_up(run: LedgerRun, worker: ProcessIdentity, file: Path) -> str:
    """Let it go on; what became of what it had in hand."""
    assert worker.is_stopped(), "no fault: the worker did not stand still until now"
    worker.send(signal.SIGCONT)
    outcome = Path(f"{file}.outcome")
    run.wait(outcome.exists, _WITHIN_S, "the worker to go on")
    return wait_until(outcome.read_text, 10.0, "its outcome")


def wake_up_when_another_one_has_its_task(
    run: LedgerRun, file: Path, next_job: JobProcess, gap: Path | None = None
) -> str:
    """The execution of a worker that stands still is lost. The worker goes on when another one has taken over, or
    while it does, in the gap that a mutant has."""
    worker = stood_still(run, file)
    # Whoever of the others notices that the driver is gone ends the worker. So the JVM stands still too.
    lost, run.job = run.job, next_job
    with lost:
        jvm, driver = lost.jvm(), lost.driver()
        assert jvm is not None and driver is not None
        jvm.send(signal.SIGSTOP)
        wait_until(jvm.is_stopped, 10.0, "the JVM to stand still")
        kill(driver)
        before = run.watcher.count()
        if gap is None:
            # Whatever the other worker had in hand is among them; a thousand is more than that.
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
    """A run whose micro-batch is ended because a worker stands still in front of its slot, up to the moment in which
    the next query has been started. The worker stands still until then."""
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


def test_crashes_at_each_point_and_behind_an_open_transaction_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = Points(tmp_path, {**OF_WORKERS, **OF_THE_DRIVER})
    # A batch of a partition takes several transactions: a crash also finds it half committed, and all hits come soon.
    settings = {"task_transaction_max_ms": "100", "task_batch_interval_ms": "1000"}
    with a_run(tmp_path, points.environment, None, **settings) as run:
        die_at(run, points)
        has_waited = recover_behind_an_open_transaction(run, patience_s=8)
        violations = run.finish()

    with capsys.disabled():
        print(f"\ncrash points: {run.figures}", file=sys.stderr, flush=True)
    assert not violations, told(violations)
    assert has_waited
    # The driver's two; and nothing else.
    assert [137, 137] == run.figures.ended_by_itself


def test_a_worker_that_wakes_up_when_others_work_changes_nothing(tmp_path: Path) -> None:
    """Right before its Kafka commit, and right after it, when another execution works in the same directory."""
    before, after = tmp_path / "before-its-commit", tmp_path / "after-its-commit"
    with a_run(tmp_path, standing_still(before, "before-commit@10"), None, **PATIENCE) as run:
        run.feed(RECORDS_PER_S)
        second = run.another_job("job-2", environment=standing_still(after, "after-kafka-commit@10"))
        outcomes = [wake_up_when_another_one_has_its_task(run, before, second)]
        outcomes.append(wake_up_when_another_one_has_its_task(run, after, run.another_job("job-3")))
        violations = run.finish()

    assert not violations, told(violations)
    assert "FencedError" == outcomes[0]
    # What it had committed to Kafka it commits to a store that is nobody's any more; then it is fenced, if there is
    # more for it to do.
    assert outcomes[1] in ("committed", "FencedError")


def test_a_cancelled_worker_that_comes_late_to_its_slot_begins_nothing(tmp_path: Path) -> None:
    with cancelled_before_its_slot(tmp_path, None) as (run, worker, file):
        outcome = woken_up(run, worker, file)
        violations = run.finish()

    assert not violations, told(violations)
    assert "StaleQueryError" == outcome
    # The job did not have to begin anew for it.
    assert [] == run.figures.ended_by_itself


def without_catching_up(directory: Path) -> list[Violation]:
    # The ninth of a worker: by then each of the four tasks has a store that could be behind.
    points = Points(directory, {"after-kafka-commit": 9})
    with a_run(directory, points.environment, "without-catching-up") as run:
        die_at(run, points)
        return run.finish()


def without_transactions(directory: Path) -> list[Violation]:
    points = Points(directory, {"after-produce": 3})
    with a_run(directory, points.environment, "without-transactions") as run:
        die_at(run, points)
        return run.finish()


def without_reading_to_the_end(directory: Path) -> list[Violation]:
    with a_run(directory, {}, "without-reading-to-the-end") as run:
        run.feed(RECORDS_PER_S)
        assert not recover_behind_an_open_transaction(run, patience_s=60), "not the mutant"
        return run.finish()


def replaying_before_fencing(directory: Path) -> list[Violation]:
    # Before it begins: reading to the end would wait for a transaction that is open already.
    gap, stopped = directory / "gap", directory / "stopped"
    environment = {"SAMZAPY_TEST_GAP": str(gap), **standing_still(stopped, "before-begin@10")}
    with a_run(directory, environment, "replaying-before-fencing", **PATIENCE) as run:
        run.feed(RECORDS_PER_S)
        outcome = wake_up_when_another_one_has_its_task(run, stopped, run.another_job("job-after"), gap)
        assert "committed" == outcome, "not the mutant"
        return run.finish()


def without_query_numbers(directory: Path) -> list[Violation]:
    with cancelled_before_its_slot(directory, "without-query-numbers") as (run, worker, _):
        worker.send(signal.SIGCONT)
        assert worker.wait_gone(_WITHIN_S), "not the mutant"
        return run.finish()


# These safeguards are missed by shorter tests too: of the simulation, and of slots.
full_only = pytest.mark.skipif(not FULL, reason=f"run with {VARIABLE}=full")


@pytest.mark.parametrize(
    ("mutant", "rules"),
    [
        # A store one transaction behind: sums go on from an old state.
        (without_catching_up, {"D"}),
        # What was sent before the crash stays, and is sent again.
        (without_transactions, {"C"}),
        # The recovery starts where the hidden commits began.
        pytest.param(without_reading_to_the_end, {"C"}, marks=full_only),
        # What the old owner committed in the gap is done again by the new one.
        pytest.param(replaying_before_fencing, {"C"}, marks=full_only),
        # What a worker of the query before commits to Kafka, and not to its store, is done again by the one that runs.
        pytest.param(without_query_numbers, {"C"}, marks=full_only),
    ],
    ids=["catching-up", "transactions", "reading-to-the-end", "fencing-before-replaying", "query-numbers"],
)
def test_the_ledger_shows_a_safeguard_that_was_taken_out(
    tmp_path: Path, mutant: Callable[[Path], list[Violation]], rules: set[str]
) -> None:
    violations = mutant(tmp_path)

    assert rules <= {violation.rule for violation in violations}, told(violations)

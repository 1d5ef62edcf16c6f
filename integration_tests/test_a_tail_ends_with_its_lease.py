"""A lease runs out in a tail, or a container is stopped there for longer.

No message is begun after that, and the ledger stays exact.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from integration_tests.crash_points_run import a_run
from integration_tests.ledger_run import LedgerRun, stopped_in_a_transaction
from integration_tests.support.ledger import describe_violations
from integration_tests.support.tails import Tails, standing_still
from integration_tests.tailed_run import feed_and_await, handled_in_a_tail
from samzapy.adapters.spark.slots import LeaseFile
from samzapy.errors import ExitCode, LostContainerError

RECORDS_PER_S = 200
LEASE_S, LOST_S, TRANSACTION_S = 8, 10, 8
# Longer than each of them; at full size as long as a machine that was suspended for a minute.
STANDS_STILL_S = 60
SETTINGS = {
    "task_batch_interval_ms": "0",
    "task_transaction_max_ms": "100",
    "task_transaction_timeout_ms": f"{TRANSACTION_S}000",
    "job_container_lease_ms": f"{LEASE_S}000",
    "job_container_lost_ms": f"{LOST_S}000",
}
_WITHIN_S = 300.0


@pytest.mark.ledger
@pytest.mark.timeout(1800)
def test_tails_begin_nothing_after_their_lease_and_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_run(tmp_path, {}, None, **SETTINGS) as run:
        tails = Tails(lambda: run.job)
        # Else the backlog of the start would keep tails away for a while.
        feed_and_await(run, 10)
        run.feed(RECORDS_PER_S)
        answers = answers_after_the_lease_ran_out(run, tails)
        stand_still_in_a_tail(run, tails)
        handled_in_a_tail(run, tails)
        violations = run.finish()

    with capsys.disabled():
        print(f"\nleases of tails: {run.figures}", file=sys.stderr, flush=True)
    assert not violations, describe_violations(violations)
    assert 0 == answers, "workers continued without a lease"
    assert {"lease in a tail": 1, "container in a tail": 1} == run.figures.faults
    assert {*run.figures.ended_by_itself} <= {ExitCode.LOST, ExitCode.TIMED_OUT}


def answers_after_the_lease_ran_out(run: LedgerRun, tails: Tails) -> int:
    """The driver is stopped, so no heartbeat renews the lease of its workers' tails.

    Returns how many answers came after the workers must have seen its end.
    """
    handled_in_a_tail(run, tails)
    driver, directory = run.job.driver(), run.job.scratch_dir()
    assert driver is not None and directory is not None
    lease = LeaseFile(directory)
    with standing_still([driver]):
        assert tails.batch() is not None, "it is stopped in a tail"
        run.fault("lease in a tail")
        before = run.watcher.count()
        run.wait(lambda: has_run_out(lease), 2 * LEASE_S + 30, "the lease to run out")
        assert run.watcher.count() > before, "its workers continued as long as they had a lease"
        run.wait(lambda: all(slot.holder is None or not slot.is_open for slot in run.job.slots()), 30, "commits")
        committed = last_answer_count(run)
        fed = len(run.ledger.acked)
        run.wait(lambda: len(run.ledger.acked) > fed + 2 * RECORDS_PER_S, 60, "more records to be fed")
        return run.watcher.count() - committed


def has_run_out(lease: LeaseFile) -> bool:
    try:
        lease.check()
    except LostContainerError:
        return True
    return False


def last_answer_count(run: LedgerRun) -> int:
    """How many answers there are once five seconds have brought none."""
    seen = [(time.monotonic(), run.watcher.count())]

    def is_quiet() -> bool:
        now_s, count = time.monotonic(), run.watcher.count()
        if count != seen[-1][1]:
            seen.append((now_s, count))
        return now_s - seen[-1][0] > 5

    run.wait(is_quiet, 60, "the answers to end")
    return run.watcher.count()


def stand_still_in_a_tail(run: LedgerRun, tails: Tails) -> None:
    """All processes of the container are stopped, with a transaction open in a tail."""
    handled_in_a_tail(run, tails)
    while True:
        worker = run.wait(lambda: stopped_in_a_transaction(run.job), _WITHIN_S, "a worker with an open transaction")
        with standing_still([worker, *run.job.left_behind()]):
            if tails.batch() is not None:
                pass_time(run, STANDS_STILL_S)
                run.fault("container in a tail", True)
                return


def pass_time(run: LedgerRun, duration_s: float) -> None:
    until_s = time.monotonic() + duration_s
    run.wait(lambda: time.monotonic() > until_s, duration_s + 30, "the time to pass")

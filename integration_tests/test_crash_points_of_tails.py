"""Crashes in a tail: between two effects, of a worker, of the next micro-batch.

The micro-batches bring messages that tails have handled, and the ledger stays exact.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.crash_points_run import Points, a_run
from integration_tests.ledger_run import LedgerRun, stopped_worker
from integration_tests.support.job_process import kill
from integration_tests.support.ledger import describe_violations
from integration_tests.support.tails import TailedBatch, Tails, standing_still
from integration_tests.tailed_run import feed_and_await, feed_in_a_tail, handled_in_a_tail

RECORDS_PER_S = 200
EACH = 120
TAILS = {
    "task_batch_interval_ms": "0",
    # Long enough for the steps of one tail, and short enough to reach its end.
    "task_tail_ms": "10000",
    "task_transaction_max_ms": "100",
}
POINTS = (
    "tail-before-begin",
    "tail-after-produce",
    "tail-before-commit",
    "tail-after-kafka-commit",
    "tail-after-local-commit",
    "tail-at-the-common-end",
)
_WITHIN_S = 300.0


@pytest.mark.ledger
@pytest.mark.timeout(1800)
def test_crashes_in_tails_and_micro_batches_after_tails_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = Points(tmp_path, dict.fromkeys(POINTS, 1))
    points.disarm()
    with a_run(tmp_path, points.environment, None, **TAILS) as run:
        tails = Tails(lambda: run.job)
        feed_and_await(run, EACH)
        after_all = micro_batch_after_all_was_handled(run, tails)
        after_half = micro_batch_after_half_was_handled(run, tails)

        run.feed(RECORDS_PER_S)
        kill_in_a_tail(run, tails)
        for name in POINTS:
            handled_in_a_tail(run, tails)
            points.arm(name)
            run.wait(lambda n=name: n not in points.missing(), _WITHIN_S, f"the crash point {name} to fire")  # type: ignore[misc]
        handled_in_a_tail(run, tails)
        violations = run.finish()

    with capsys.disabled():
        print(f"\ncrash points of tails: {run.figures}", file=sys.stderr, flush=True)
    assert not violations, describe_violations(violations)
    # Its workers handled none of the tails' messages, and all messages after them.
    assert (0, EACH) == (after_all.in_rows, after_half.in_rows)
    # Only workers died, and their container continued.
    assert (1, []) == (run.figures.starts, run.figures.ended_by_itself)


def next_batch(run: LedgerRun, tails: Tails, before: TailedBatch) -> TailedBatch:
    """Wait for the micro-batch after this one, and until its rows are handled."""

    def later_batch() -> TailedBatch | None:
        batch = tails.batch()
        return batch if batch is not None and not batch.is_of_order(before) else None

    return run.wait(later_batch, _WITHIN_S, "the next micro-batch")


def micro_batch_after_all_was_handled(run: LedgerRun, tails: Tails) -> TailedBatch:
    before = feed_in_a_tail(run, tails, EACH)
    # Spark has none of these rows before the tails end.
    tails.end()
    return next_batch(run, tails, before)


def micro_batch_after_half_was_handled(run: LedgerRun, tails: Tails) -> TailedBatch:
    """The tails handle some records and end while others wait behind them."""
    while True:
        before = feed_in_a_tail(run, tails, EACH)
        with standing_still(run.job.workers()):
            current = tails.batch()
            run.feeder.feed_now(EACH)
            tails.end()
        after = next_batch(run, tails, before)
        # Else the common end came in between.
        if current is not None and current.is_of_order(before):
            return after


def kill_in_a_tail(run: LedgerRun, tails: Tails) -> None:
    """Kill a worker that handles records in its tail."""
    while True:
        handled_in_a_tail(run, tails)
        worker, is_open = run.wait(lambda: stopped_worker(run.job), _WITHIN_S, "a worker in its slot")
        # Its slot is that of its tail as long as the tails have not ended.
        is_in_tail = tails.batch() is not None
        kill(worker)
        if is_in_tail:
            run.fault("worker in its tail", is_open)
            return

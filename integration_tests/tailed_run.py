"""The run of the ledger tests of tails."""

from __future__ import annotations

from functools import partial

from integration_tests.ledger_run import LedgerRun
from integration_tests.support.tails import TailedBatch, Tails

_WITHIN_S = 300.0


def feed_and_await(run: LedgerRun, count: int) -> None:
    """Feed so many records, and wait for all answers."""
    run.feeder.feed_now(count)
    await_answers(run)


def await_answers(run: LedgerRun) -> None:
    run.wait(lambda: run.watcher.count() == len(run.ledger.acked), _WITHIN_S, "all answers")


def feed_in_a_tail(run: LedgerRun, tails: Tails, count: int) -> TailedBatch:
    """Feed records until so many were handled in the tails of one micro-batch."""
    while True:
        # Where the last tails have ended, the next ones follow a micro-batch, which needs records.
        before = tails.batch()
        feed_and_await(run, count)
        after = (
            None
            if before is None
            else run.wait(partial(reported_batch, tails, before, count), _WITHIN_S, "reports of tails")
        )
        if before is not None and after is not None and after.is_of_order(before):
            return after


def reported_batch(tails: Tails, before: TailedBatch, count: int) -> TailedBatch | None:
    """The micro-batch, once its tails have reported so many records more, or are over."""
    batch = tails.batch()
    if batch is None or not batch.is_of_order(before):
        # Its reports are removed.
        return before._replace(batch=-1)
    return batch if batch.in_tails >= before.in_tails + count else None


def handled_in_a_tail(run: LedgerRun, tails: Tails, more_than: int = 0) -> TailedBatch:
    """Wait until the tails of a micro-batch have handled records."""

    def handled() -> TailedBatch | None:
        batch = tails.batch()
        return batch if batch is not None and batch.in_tails > more_than else None

    return run.wait(handled, _WITHIN_S, "a tail to handle records")

"""Tails meet too many tasks, a slow task, open transactions and a lost broker.

A hot partition is among them. The ledger is as exact as without tails.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from integration_tests.crash_points_run import a_run
from integration_tests.ledger_run import INPUT, LedgerRun
from integration_tests.support.ledger import describe_violations
from integration_tests.support.tails import Tails
from integration_tests.tailed_run import await_answers, feed_and_await, feed_in_a_tail, handled_in_a_tail
from samzapy.testing.waiting import wait_until

FACTOR = 4
RECORDS_PER_S = 100
AWAY_S = 5.0
EACH, HOT, SLOW, UNCOMMITTED = 200, 3000, 4, 10
SLOW_S = 0.5
SETTINGS = {
    "task_batch_interval_ms": "0",
    "task_transaction_max_ms": "100",
    # No tail ends because of its length, or because the next micro-batch would read too much again.
    "task_tail_ms": "3600000",
    "task_batch_offsets_max": "20000",
    # 16 tasks on the two slots of `local[2]`.
    "job_elasticity_factor": str(FACTOR),
}
_WITHIN_S = 300.0


@pytest.mark.ledger
@pytest.mark.timeout(1800)
def test_slow_tasks_and_odd_inputs_in_tails_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with a_run(tmp_path, {"RUNNING_SUMS_SLOW": f"slow={SLOW_S}"}, None, **SETTINGS) as run:
        run.factor = FACTOR
        tails = Tails(lambda: run.job)
        feed_and_await(run, EACH)
        slow_messages_in_a_tail(run, tails)
        a_hot_partition_in_a_tail(run, tails)
        an_open_transaction_in_a_tail(run, tails)
        run.feed(RECORDS_PER_S)
        a_broker_that_is_away_in_a_tail(run, tails)
        violations = run.finish()

    with capsys.disabled():
        print(f"\nodd inputs in tails: {run.figures}", file=sys.stderr, flush=True)
    assert not violations, describe_violations(violations)
    assert (1, []) == (run.figures.starts, run.figures.ended_by_itself), run.job.all_log_text()


def slow_messages_in_a_tail(run: LedgerRun, tails: Tails) -> None:
    """Messages of one key take long; other keys' are before, between and after them."""
    feed_in_a_tail(run, tails, EACH)
    for _ in range(SLOW):
        run.feeder.feed_now(1, "slow")
        run.feeder.feed_now(EACH // SLOW)
    await_answers(run)


def a_hot_partition_in_a_tail(run: LedgerRun, tails: Tails) -> None:
    """Thousands of messages of one key, and few of the others."""
    feed_in_a_tail(run, tails, EACH)
    run.feeder.feed_now(HOT, "hot")
    feed_and_await(run, EACH)


def an_open_transaction_in_a_tail(run: LedgerRun, tails: Tails) -> None:
    """Only messages behind an open transaction of their partition wait for its end."""
    before = feed_in_a_tail(run, tails, EACH)
    other_producer = Producer(
        {"bootstrap.servers": run.broker.bootstrap_servers, "transactional.id": "other-producer"}
    )
    other_producer.init_transactions(30)
    other_producer.begin_transaction()
    for _ in range(UNCOMMITTED):
        other_producer.produce(INPUT, b"never committed", b"never committed", 0)
    assert 0 == other_producer.flush(30)

    answered = len(run.ledger.acked)
    run.feeder.feed_now(EACH)
    waiting = sum(place.partition == 0 for place in list(run.ledger.acked.values())[answered:])
    assert 0 < waiting < EACH
    expected = len(run.ledger.acked) - waiting
    run.wait(lambda: run.watcher.count() == expected, _WITHIN_S, "the answers to the other partitions")
    after = handled_in_a_tail(run, tails, before.in_tails)
    assert after.is_of_order(before), "the tails continued"
    assert run.watcher.count() == expected, "nothing behind the transaction was handled"

    other_producer.abort_transaction(30)
    await_answers(run)


def a_broker_that_is_away_in_a_tail(run: LedgerRun, tails: Tails) -> None:
    handled_in_a_tail(run, tails)
    run.broker.kill()
    back_s = time.monotonic() + AWAY_S
    wait_until(lambda: time.monotonic() > back_s, AWAY_S + 5, "the time to pass")
    run.broker.start()
    run.fault("broker")
    seen = run.watcher.count()
    run.wait(lambda: run.watcher.count() > seen + RECORDS_PER_S, _WITHIN_S, "answers after the broker is back")
    handled_in_a_tail(run, tails)

"""Timers under the ledger: every part of the job is killed at random moments, and each timer fires once."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from integration_tests.ledger_run import TAILS, LedgerRun
from integration_tests.random_kills import RECORDS_PER_S, WORK_S, disturb
from integration_tests.seeds import told_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import told
from integration_tests.timed_subject import TimedSubject
from samzapy.errors import ExitCode

FAULTS = sized(
    {"worker": 4, "worker in a transaction": 6, "driver": 2, "jvm": 1, "jvm and disk": 1, "broker": 3},
    short={"worker": 1, "worker in a transaction": 2, "driver": 1, "jvm and disk": 1, "broker": 1},
)
RECORDS_MIN = sized(100_000, short=20_000)
WAYS = {
    # Timers fire in micro-batches of their tasks, and in ticks without rows.
    "micro-batches": {"task.batch.interval.ms": "1000", "task.tail.ms": "0"},
    "tails": TAILS,
}


@pytest.mark.ledger
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", list(WAYS))
def test_each_timer_fires_once_under_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str], way: str) -> None:
    seed = told_seed("timers", "SAMZAPY_LEDGER_SEED", capsys)
    subject = TimedSubject()
    environment = {"RUNNING_SUMS_WORK_S": str(WORK_S)}
    overrides = {"task.transaction.max.ms": "100", **WAYS[way]}
    with LedgerRun(tmp_path, seed=seed, environment=environment, overrides=overrides, subject=subject) as run:
        run.feed(RECORDS_PER_S / 3)
        run.await_work(in_tails=way == "tails")
        run.compact_eagerly()

        disturb(run, random.Random(seed), FAULTS, RECORDS_MIN)
        violations = run.finish()

        with capsys.disabled():
            print(f"timers, {way}: {run.figures}; {subject.told()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {told(violations)}"
        assert FAULTS == run.figures.faults
        assert {*run.figures.ended_by_itself} <= {ExitCode.TIMED_OUT}, run.job.all_log_text()

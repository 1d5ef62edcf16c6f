"""The ledger test: a stateful job, killed in every part at random moments, and every record accounted for.

A seed decides what is fed and when which process is killed; it is printed, and SAMZAPY_LEDGER_SEED repeats it (the
machine's own timing stays its own). Each fault is proven: the process is gone. How many of them met an open
transaction is read off the slot files and printed: a run that met too few has proven too little, and fails.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from integration_tests.ledger_run import LedgerRun
from integration_tests.random_kills import APPEARS_WITHIN_S, RECORDS_PER_S, WORK_S, disturb
from integration_tests.seeds import told_seed
from integration_tests.support.ledger import told
from samzapy.errors import ExitCode

RECORDS_MIN = 100_000
CHAOS_MIN_S = 90.0
FAULTS = {"worker": 4, "worker in a transaction": 6, "driver": 2, "jvm": 1, "jvm and disk": 1, "broker": 3}
HIT_OPEN_MIN = 6


@pytest.mark.ledger
@pytest.mark.timeout(900)
def test_no_record_is_lost_or_doubled_under_kills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = told_seed("ledger test", "SAMZAPY_LEDGER_SEED", capsys)
    environment = {"RUNNING_SUMS_WORK_S": str(WORK_S)}
    # A batch of a partition takes several transactions, so that a kill also finds it half committed.
    overrides = {"task.transaction.max.ms": "100", "task.batch.interval.ms": "1000"}
    with LedgerRun(tmp_path, seed=seed, environment=environment, overrides=overrides) as run:
        run.feed(RECORDS_PER_S)
        run.wait(lambda: run.watcher.count() > 0, APPEARS_WITHIN_S, "the first output")
        run.compact_eagerly()

        chaos_s = disturb(run, random.Random(seed), FAULTS, RECORDS_MIN, CHAOS_MIN_S)
        violations = run.finish()

        with capsys.disabled():
            print(f"ledger test: {chaos_s:.0f} s of chaos, {run.figures}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {told(violations)}"
        assert FAULTS == run.figures.faults
        # A start may give up while the broker is away; nothing else ends the job but the test.
        assert {*run.figures.ended_by_itself} <= {ExitCode.TIMED_OUT}, run.job.all_log_text()
        assert run.figures.records >= RECORDS_MIN
        assert chaos_s >= CHAOS_MIN_S
        assert run.figures.hit_open_transactions >= HIT_OPEN_MIN, "kills missed the transactions: invalid, not green"

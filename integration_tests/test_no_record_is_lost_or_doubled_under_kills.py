"""The ledger test: a stateful job is killed in every part at random moments.

A seed decides the records and the moments of the kills; it is printed, and SAMZAPY_LEDGER_SEED repeats it (the
machine's own timing stays its own). Each fault is proven: the process has ended. How many of them met an open
transaction is read off the slot files and printed: a run that met too few has proven too little, and fails.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration_tests.ledger_run import TAILS, LedgerRun, Subject
from integration_tests.random_kills import RECORDS_PER_S, WORK_S, disturb
from integration_tests.seeds import printed_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import describe_violations
from integration_tests.timed_subject import TimedSubject
from samzapy.errors import ExitCode

CHAOS_MIN_S = sized(90.0, short=45.0)
FAULTS = sized(
    {"worker": 4, "worker in a transaction": 6, "driver": 2, "jvm": 1, "jvm and disk": 1, "broker": 3},
    short={"worker": 2, "worker in a transaction": 3, "driver": 1, "jvm": 1, "jvm and disk": 1, "broker": 2},
)
HIT_OPEN_MIN = sized(6, short=3)


@dataclass(frozen=True)
class Way:
    """A way of records to tasks; a backlog prevents tails, so their feed is slower.

    Attributes:
        subject: the job. Under tails it also sets a timer for each record, and each timer must fire once.
    """

    subject: type[Subject]
    settings: Mapping[str, str]
    records_per_s: float
    records_min: int


WAYS = {
    "micro-batches": Way(
        Subject,
        {"task.batch.interval.ms": "1000", "task.tail.ms": "0"},
        RECORDS_PER_S,
        sized(100_000, short=22_000),
    ),
    "tails": Way(TimedSubject, TAILS, RECORDS_PER_S / 3, sized(40_000, short=14_000)),
}


@pytest.mark.ledger
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_no_record_is_lost_or_doubled_under_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: Way
) -> None:
    seed = printed_seed("ledger test", "SAMZAPY_LEDGER_SEED", capsys)
    environment = {"RUNNING_SUMS_WORK_S": str(WORK_S)}
    # A batch of a partition takes several transactions, so that a kill also finds it half committed.
    overrides = {"task.transaction.max.ms": "100", **way.settings}
    subject = way.subject()
    with LedgerRun(tmp_path, seed=seed, environment=environment, overrides=overrides, subject=subject) as run:
        run.feed(way.records_per_s)
        run.await_work(in_tails=way.settings is TAILS)
        run.compact_eagerly()

        chaos_s = disturb(run, random.Random(seed), FAULTS, way.records_min, CHAOS_MIN_S)
        violations = run.finish()

        with capsys.disabled():
            print(
                f"ledger test: {chaos_s:.0f} s of chaos, {run.figures} {subject.summary()}",
                file=sys.stderr,
                flush=True,
            )
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {describe_violations(violations)}"
        assert FAULTS == run.figures.faults
        # A start may give up while the broker is away; nothing else ends the job but the test.
        assert {*run.figures.ended_by_itself} <= {ExitCode.TIMED_OUT}, run.job.all_log_text()
        assert run.figures.records >= way.records_min
        assert chaos_s >= CHAOS_MIN_S
        assert run.figures.hit_open_transactions >= HIT_OPEN_MIN, "kills missed the transactions: invalid, not green"

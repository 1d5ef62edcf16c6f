"""The ledger test of a job whose tasks read several inputs, with random kills.

SAMZAPY_LEDGER_SEED repeats one. It is shorter than `test_no_record_is_lost_or_doubled_under_kills`.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from integration_tests.ledger_run import TAILS, LedgerRun
from integration_tests.random_kills import RECORDS_PER_S, WORK_S, disturb
from integration_tests.seeds import printed_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import describe_violations

# Behind a backlog there are no tails.
_RECORDS_PER_S = RECORDS_PER_S / 5
RECORDS_MIN = sized(15_000, short=8_000)
FAULTS = sized(
    {"worker in a transaction": 4, "driver": 1, "jvm and disk": 1, "restart by request": 2},
    short={"worker in a transaction": 2, "jvm and disk": 1, "restart by request": 1},
)


@pytest.mark.ledger
@pytest.mark.timeout(1800)
def test_no_record_is_lost_or_doubled_where_a_task_reads_several_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cogrouped inputs: rows are shuffled, and a transaction moves several positions."""
    seed = printed_seed("ledger test, cogroup", "SAMZAPY_LEDGER_SEED", capsys)
    overrides = {
        "task.inputs": "kafka.fed,kafka.fed-too",
        "task.partition.scheme": "cogroup",
        "task.transaction.max.ms": "100",
        **TAILS,
    }
    with LedgerRun(
        tmp_path,
        seed=seed,
        inputs={"fed": 4, "fed-too": 6},
        task_count=2,
        environment={"RUNNING_SUMS_WORK_S": str(WORK_S)},
        overrides=overrides,
    ) as run:
        run.feed(_RECORDS_PER_S)
        run.await_work(in_tails=True)

        chaos_s = disturb(run, random.Random(seed), FAULTS, RECORDS_MIN)
        violations = run.finish()

        with capsys.disabled():
            print(f"ledger test, cogroup: {chaos_s:.0f} s of chaos, {run.figures}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_LEDGER_SEED={seed}: {describe_violations(violations)}"
        assert FAULTS == run.figures.faults
        assert [] == run.figures.ended_by_itself, run.job.all_log_text()
        assert run.figures.records >= RECORDS_MIN

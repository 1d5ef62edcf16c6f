"""The windows that random kills seldom hit: the ledger stays exact in each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.crash_points_run import (
    PATIENCE,
    RECORDS_PER_S,
    Points,
    a_run,
    cancelled_before_its_slot,
    die_at,
    recover_behind_an_open_transaction,
    standing_still,
    wake_up_when_another_one_has_its_task,
    woken_up,
)
from integration_tests.support.ledger import describe_violations

pytestmark = [pytest.mark.ledger, pytest.mark.timeout(1800)]

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
    assert not violations, describe_violations(violations)
    assert has_waited
    # The driver's two; and nothing else.
    assert [137, 137] == run.figures.ended_by_itself


def test_a_worker_that_wakes_up_when_others_work_changes_nothing(tmp_path: Path) -> None:
    """Before and after its Kafka commit, while another execution uses its directory."""
    before, after = tmp_path / "before-its-commit", tmp_path / "after-its-commit"
    with a_run(tmp_path, standing_still(before, "before-commit@10"), None, **PATIENCE) as run:
        run.feed(RECORDS_PER_S)
        second = run.another_job("job-2", environment=standing_still(after, "after-kafka-commit@10"))
        outcomes = [wake_up_when_another_one_has_its_task(run, before, second)]
        outcomes.append(wake_up_when_another_one_has_its_task(run, after, run.another_job("job-3")))
        violations = run.finish()

    assert not violations, describe_violations(violations)
    assert "FencedError" == outcomes[0]
    # It commits to a store without an owner the records that it had committed to Kafka; then it is fenced, if it
    # has more to do.
    assert outcomes[1] in ("committed", "FencedError")


def test_a_cancelled_worker_that_reaches_its_slot_late_begins_nothing(tmp_path: Path) -> None:
    with cancelled_before_its_slot(tmp_path, None) as (run, worker, file):
        outcome = woken_up(run, worker, file)
        violations = run.finish()

    assert not violations, describe_violations(violations)
    assert "StaleQueryError" == outcome
    # The job did not have to begin anew for it.
    assert [] == run.figures.ended_by_itself

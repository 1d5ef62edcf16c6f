"""Timers under the ledger fire once, though workers die and the job is down.

Beside other faults they are in `test_no_record_is_lost_or_doubled_under_kills.py` and, while the job is scaled, in
`test_a_job_is_scaled_while_it_runs.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from integration_tests.crash_points_run import Points, die_at, die_in_ticks
from integration_tests.ledger_run import TAILS, LedgerRun
from integration_tests.sizes import sized
from integration_tests.support.ledger import describe_violations
from integration_tests.timed_subject import TimedSubject

LATE_MAX_MS = 20_000
WAITING = 1000
"""Records whose timers become due while the job is down, but for those that fire before."""
_WITHIN_S = 300.0


class Way(NamedTuple):
    """How timers fire, and after how many hits of each crash point a worker dies."""

    settings: Mapping[str, str]
    points: Mapping[str, int]


WAYS = {
    # Timers fire in micro-batches of their tasks, and in ticks without rows.
    "micro-batches": Way(
        {"task.batch.interval.ms": "1000", "task.tail.ms": "0"},
        sized(
            {
                "before-fire": 50,
                "in-the-middle-of-due": 40,
                "after-fire": 120,
                "tick-before-begin": 1,
                "tick-in-the-middle-of-due": 1,
                "tick-after-kafka-commit": 2,
            },
            short={"in-the-middle-of-due": 20, "tick-before-begin": 1, "tick-after-kafka-commit": 1},
        ),
    ),
    "tails": Way(
        TAILS,
        sized(
            {
                "tail-before-fire": 30,
                "tail-in-the-middle-of-due": 20,
                "tail-after-fire": 60,
                "tail-after-produce": 40,
                "tail-after-kafka-commit": 80,
                "tail-after-local-commit": 90,
            },
            short={"tail-before-fire": 30, "tail-after-kafka-commit": 40},
        ),
    ),
}


@pytest.mark.ledger
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
def test_each_timer_fires_once_though_workers_die_as_it_fires_and_the_job_is_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], way: Way
) -> None:
    points, subject = Points(tmp_path, way.points), TimedSubject()
    environment = {**points.environment, "TIMED_SUMS_LATE_MAX_MS": str(LATE_MAX_MS)}
    with LedgerRun(tmp_path, seed=1, environment=environment, overrides=way.settings, subject=subject) as run:
        die_at(run, points)
        die_in_ticks(run, points)
        # On a slow machine the timers of all records before may have fired by now.
        wanted = run.watcher.count() + WAITING
        run.feeder.feed_now(WAITING)
        run.wait(lambda: run.watcher.count() >= wanted or None, _WITHIN_S, "the last records to be handled")
        run.was_killed()
        assert 0 == run.job.terminate()
        waiting = subject.waiting(run)
        run.wait_until_settled()
        violations = run.finish()

        with capsys.disabled():
            print(
                f"timers: {waiting} wait at the stop, {run.figures}; {subject.summary()}", file=sys.stderr, flush=True
            )
        assert not violations, describe_violations(violations)
        assert waiting > 100
        # Only workers died; the second start is the test's.
        assert (2, []) == (run.figures.starts, run.figures.ended_by_itself)

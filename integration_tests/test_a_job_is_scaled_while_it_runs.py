"""A short run of `scripts/chaos --scale`: changes of the factor with kills.

The job sets a timer for each record, so timers move with the state of their keys.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.factor_walk import KILLS, FactorWalk
from integration_tests.seeds import printed_seed
from integration_tests.sizes import sized
from integration_tests.support.ledger import describe_violations
from integration_tests.timed_subject import TimedSubject

CHANGES = sized(8, short=4)
RECORDS_PER_S = 300


@pytest.mark.ledger
@pytest.mark.timeout(2400)
def test_a_walk_over_factors_with_kills_loses_and_doubles_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("walk over factors", "SAMZAPY_WALK_SEED", capsys)
    with FactorWalk(tmp_path, seed=seed, subject=TimedSubject()) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        run.walk(CHANGES, expansions=1)
        violations = run.finish()

        with capsys.disabled():
            print(f"walk over factors: {run.summary()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {describe_violations(violations)}"
        assert CHANGES == len(run.changes.factors) == run.changes.at_rest
        assert run.deaths >= CHANGES, "a process must be killed in each change"
        assert sum(run.changes.disturbed.get(kind, 0) for kind in KILLS) == CHANGES

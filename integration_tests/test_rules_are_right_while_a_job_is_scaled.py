"""A short run of `scripts/chaos --scale --job rules`: rules, scaling and kills."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.factor_walk import FactorWalk
from integration_tests.rules_subject import RulesSubject
from integration_tests.seeds import printed_seed
from integration_tests.support.ledger import describe_violations

# The job with rules has a split and two merges. A process killed in the second comes back in the third.
CHANGES = ((4, "worker"), (2, "leader"), (1, "jvm"))
RECORDS_PER_S = 300


@pytest.mark.ledger
@pytest.mark.timeout(1500)
def test_every_task_s_copy_of_the_rules_is_right_through_splits_merges_and_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("walk with rules", "SAMZAPY_WALK_SEED", capsys)
    with FactorWalk(tmp_path, seed=seed, subject=RulesSubject()) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        for factor, killed in CHANGES:
            run.change(factor, killed)
        run.end()
        violations = run.finish()

        with capsys.disabled():
            print(f"walk with rules: {run.summary()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {describe_violations(violations)}"
        assert [factor for factor, _ in CHANGES] == run.changes.factors
        assert {"worker": 1, "leader": 1, "jvm": 1, "join": 1} == run.changes.disturbed
        assert run.deaths >= len(CHANGES)

"""Short runs of `scripts/chaos --scale`: changes of the factor with kills in between, under a ledger."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.factor_walk import KILLS, FactorWalk
from integration_tests.rules_subject import RulesSubject
from integration_tests.seeds import told_seed
from integration_tests.support.ledger import told

CHANGES = 8
# Of the job with rules: a split and two merges. Who is killed in the second comes back in the third.
CHANGES_WITH_RULES = ((4, "worker"), (2, "leader"), (1, "jvm"))
RECORDS_PER_S = 300


@pytest.mark.ledger
@pytest.mark.timeout(1200)
def test_a_walk_over_factors_with_kills_loses_and_doubles_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = told_seed("walk over factors", "SAMZAPY_WALK_SEED", capsys)
    with FactorWalk(tmp_path, seed=seed) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        run.walk(CHANGES, expansions=1)
        violations = run.finish()

        with capsys.disabled():
            print(f"walk over factors: {run.told()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {told(violations)}"
        assert CHANGES == len(run.changes.factors) == run.changes.at_rest
        assert run.deaths >= CHANGES, "somebody is to be killed in each change"
        assert sum(run.changes.disturbed.get(kind, 0) for kind in KILLS) == CHANGES


@pytest.mark.ledger
@pytest.mark.timeout(600)
def test_every_task_s_copy_of_the_rules_is_right_through_splits_merges_and_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = told_seed("walk with rules", "SAMZAPY_WALK_SEED", capsys)
    with FactorWalk(tmp_path, seed=seed, subject=RulesSubject()) as run:
        run.feed(RECORDS_PER_S)
        run.start_all()

        for factor, killed in CHANGES_WITH_RULES:
            run.change(factor, killed)
        run.end()
        violations = run.finish()

        with capsys.disabled():
            print(f"walk with rules: {run.told()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {told(violations)}"
        assert [factor for factor, _ in CHANGES_WITH_RULES] == run.changes.factors
        assert {"worker": 1, "leader": 1, "jvm": 1, "join": 1} == run.changes.disturbed
        assert run.deaths >= len(CHANGES_WITH_RULES)

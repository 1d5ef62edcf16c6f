"""Without one safeguard (`jobs/mutants.py`) a scenario of crashes breaks a rule.

So the rules hold in `test_crash_points_of_the_commit_path` because of the safeguard, and not by luck.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
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
)
from integration_tests.sizes import FULL, VARIABLE
from integration_tests.support.ledger import Violation, describe_violations

pytestmark = [pytest.mark.ledger, pytest.mark.timeout(1800)]


def without_catching_up(directory: Path) -> list[Violation]:
    # The ninth of a worker: by then each of the four tasks has a store that could be behind.
    points = Points(directory, {"after-kafka-commit": 9})
    with a_run(directory, points.environment, "without-catching-up") as run:
        die_at(run, points)
        return run.finish()


def without_transactions(directory: Path) -> list[Violation]:
    points = Points(directory, {"after-produce": 3})
    with a_run(directory, points.environment, "without-transactions") as run:
        die_at(run, points)
        return run.finish()


def without_reading_to_the_end(directory: Path) -> list[Violation]:
    with a_run(directory, {}, "without-reading-to-the-end") as run:
        run.feed(RECORDS_PER_S)
        assert not recover_behind_an_open_transaction(run, patience_s=60), "not the mutant"
        return run.finish()


def replaying_before_fencing(directory: Path) -> list[Violation]:
    # Before it begins: reading to the end would wait for a transaction that is open already.
    gap, stopped = directory / "gap", directory / "stopped"
    environment = {"SAMZAPY_TEST_GAP": str(gap), **standing_still(stopped, "before-begin@10")}
    with a_run(directory, environment, "replaying-before-fencing", **PATIENCE) as run:
        run.feed(RECORDS_PER_S)
        outcome = wake_up_when_another_one_has_its_task(run, stopped, run.another_job("job-after"), gap)
        assert "committed" == outcome, "not the mutant"
        return run.finish()


def without_query_numbers(directory: Path) -> list[Violation]:
    with cancelled_before_its_slot(directory, "without-query-numbers") as (run, worker, _):
        worker.send(signal.SIGCONT)
        assert worker.wait_gone(300.0), "not the mutant"
        return run.finish()


# These safeguards are missed by shorter tests too: of the simulation, and of slots.
full_only = pytest.mark.skipif(not FULL, reason=f"run with {VARIABLE}=full")


@pytest.mark.parametrize(
    ("mutant", "rules"),
    [
        # A store one transaction behind: sums continue from an old state.
        (without_catching_up, {"D"}),
        # The outputs before the crash stay, and are sent again.
        (without_transactions, {"C"}),
        # The recovery starts where the hidden commits began.
        pytest.param(without_reading_to_the_end, {"C"}, marks=full_only),
        # The new owner repeats the messages that the old one committed in the gap.
        pytest.param(replaying_before_fencing, {"C"}, marks=full_only),
        # A worker of the old query commits to Kafka but not to its store; the running query repeats these messages.
        pytest.param(without_query_numbers, {"C"}, marks=full_only),
    ],
    ids=["catching-up", "transactions", "reading-to-the-end", "fencing-before-replaying", "query-numbers"],
)
def test_the_ledger_shows_a_safeguard_that_was_taken_out(
    tmp_path: Path, mutant: Callable[[Path], list[Violation]], rules: set[str]
) -> None:
    violations = mutant(tmp_path)

    assert rules <= {violation.rule for violation in violations}, describe_violations(violations)

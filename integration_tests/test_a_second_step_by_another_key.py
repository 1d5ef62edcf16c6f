"""A job with an intermediate stream: its second step gets each record once.

Both steps keep state, and both are judged by a ledger. The second test lets the stream grow between two runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integration_tests.factor_walk import FactorWalk
from integration_tests.ledger_run import INPUT, LedgerRun, stopped_in_a_transaction
from integration_tests.repartition_subject import INTERMEDIATE, PARTITIONS_FIRST, RepartitionSubject
from integration_tests.seeds import printed_seed
from integration_tests.sizes import sized
from integration_tests.support.job_process import kill
from integration_tests.support.ledger import describe_violations

RECORDS_PER_S = 150
# A record is two messages here, and the second waits for the next micro-batch; few should be left at the end.
LAG_MAX = 2_000
# One process dies in each change; a container last, because an absent one comes back in the next change.
CHANGES = sized(((2, "worker"), (1, "worker"), (2, "driver")), short=((2, "worker"), (1, "driver")))
_APPEARS_WITHIN_S = 300.0


@pytest.mark.ledger
@pytest.mark.timeout(1800)
def test_every_record_of_the_first_step_reaches_the_second_one_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("two steps", "SAMZAPY_WALK_SEED", capsys)
    with FactorWalk(tmp_path, seed=seed, subject=RepartitionSubject()) as run:
        run.feed(RECORDS_PER_S, LAG_MAX)
        run.start_all()

        for factor, killed in CHANGES:
            run.change(factor, killed)
        run.end()
        violations = run.finish()

        with capsys.disabled():
            print(f"two steps: {run.summary()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {describe_violations(violations)}"
        assert [factor for factor, _ in CHANGES] == run.changes.factors
        assert run.figures.faults == {"worker": sum(killed == "worker" for _, killed in CHANGES)}
        assert run.deaths == len(CHANGES)


@pytest.mark.ledger
@pytest.mark.timeout(1500)
def test_an_intermediate_stream_that_the_configuration_lets_grow_keeps_order_and_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = printed_seed("a second step that grows", "SAMZAPY_WALK_SEED", capsys)
    overrides = {
        "job.coordinator.monitor-partition-change.frequency.ms": "1000",
        "job.expansion.settle.ms": "5000",
    }
    partitions = 2 * PARTITIONS_FIRST
    with LedgerRun(
        tmp_path,
        seed=seed,
        inputs={INPUT: PARTITIONS_FIRST},
        task_count=PARTITIONS_FIRST,
        overrides=overrides,
        subject=RepartitionSubject(),
    ) as run:
        run.feed(RECORDS_PER_S, LAG_MAX)
        run.wait(lambda: run.watcher.count() > 1000, _APPEARS_WITHIN_S, "the first answers")
        run.was_killed()
        assert run.job.terminate() == 0, run.job.log_text()[-4000:]
        run.job = run.another_job(
            "job-with-more", overrides={f"task.intermediate.{INTERMEDIATE}.partitions": str(partitions)}
        )
        run.wait(lambda: _partitions_read(run) == partitions or None, _APPEARS_WITHIN_S, "the new partitions' plan")
        kill(
            run.wait(
                lambda: stopped_in_a_transaction(run.job), _APPEARS_WITHIN_S, "a worker with an open transaction"
            )
        )
        run.fault("worker", hit_open_transaction=True)
        fed = len(run.ledger.acked)
        run.wait(lambda: run.watcher.count() > fed or None, _APPEARS_WITHIN_S, "the records fed before to come out")
        violations = run.finish()

        with capsys.disabled():
            print(f"a second step that grows: {run.figures}, {run.subject.summary()}", file=sys.stderr, flush=True)
        assert not violations, f"SAMZAPY_WALK_SEED={seed}: {describe_violations(violations)}"
        assert f"through {partitions} partitions" in run.subject.summary()


def _partitions_read(run: LedgerRun) -> int:
    """How many partitions of the intermediate stream the plan in force has."""
    topic = f"kafka.__samzapy-intermediate-{run.subject.name}-{INTERMEDIATE}."
    return sum(ssp_kb.startswith(topic) for buckets in run.planned_buckets().values() for ssp_kb in buckets)
